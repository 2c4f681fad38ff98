package forward

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"golang.org/x/net/proxy"
)

// Upstream is the proxy that a Forwarder forwards to. It prints without its
// credentials.
type Upstream struct {
	scheme, addr string // addr is host:port
	user         *url.Userinfo
}

// ports are the default ports of the schemes.
var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// Parse reads the URL of a proxy: http, https or socks5, a host, and perhaps a
// port, a user and a password, which are percent-encoded. The URL "direct://"
// means no proxy: the result is nil. No error repeats the URL.
func Parse(s string) (*Upstream, error) {
	if s == "direct://" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errNotURL
	}
	scheme := u.Scheme
	if scheme == "socks5h" { // as curl calls it
		scheme = "socks5"
	}
	switch {
	case ports[scheme] == "" || u.Hostname() == "":
		return nil, errNotURL
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("a proxy's URL has no path, no query and no fragment: percent-encode /, ?, # and @ in " +
			"its password")
	}
	port := u.Port()
	if port == "" {
		port = ports[scheme]
	}
	password, _ := u.User.Password()
	if scheme == "socks5" && u.User != nil && (u.User.Username() == "" || len(u.User.Username()) > 255 ||
		password == "" || len(password) > 255) {
		return nil, errors.New("a SOCKS proxy takes a user and a password of 1 to 255 bytes each")
	}
	return &Upstream{scheme: scheme, addr: net.JoinHostPort(u.Hostname(), port), user: u.User}, nil
}

var errNotURL = errors.New("it is not the URL of a proxy: expected http://, https:// or socks5://, USER:PASSWORD@ " +
	"with percent-encoded characters if the proxy needs them, and HOST:PORT; or direct://")

// Read reads the URL of a proxy, or from the file of @FILE, so that a password
// need not be in an argument list.
func Read(s string) (*Upstream, error) {
	name, ok := strings.CutPrefix(s, "@")
	if !ok {
		return Parse(s)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the URL of a proxy: %w", err)
	}
	u, err := Parse(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return u, nil
}

// String returns the URL without credentials.
func (u *Upstream) String() string {
	if u == nil {
		return "direct://"
	}
	return u.scheme + "://" + u.addr
}

// GoString is String, so that no format prints the credentials.
func (u *Upstream) GoString() string { return u.String() }

// Secret returns the URL with its credentials, which Parse reads.
func (u *Upstream) Secret() string {
	if u == nil {
		return "direct://"
	}
	return u.url().String()
}

func (u *Upstream) url() *url.URL { return &url.URL{Scheme: u.scheme, Host: u.addr, User: u.user} }

// authorization returns the header Proxy-Authorization, "" without credentials.
func (u *Upstream) authorization() string {
	if u.user == nil {
		return ""
	}
	password, _ := u.user.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.user.Username()+":"+password))
}

// dial connects to a target through the proxy. The header is for a proxy that
// speaks HTTP.
func (u *Upstream) dial(ctx context.Context, target string, header http.Header) (net.Conn, error) {
	if u.scheme == "socks5" {
		return u.dialSOCKS(ctx, target)
	}
	c, err := u.dialProxy(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	tunnel, err := u.connect(c, target, header)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return tunnel, nil
}

// dialSOCKS lets a SOCKS proxy resolve the name of the target.
func (u *Upstream) dialSOCKS(ctx context.Context, target string) (net.Conn, error) {
	var auth *proxy.Auth
	if u.user != nil {
		auth = &proxy.Auth{User: u.user.Username()}
		auth.Password, _ = u.user.Password()
	}
	d, err := proxy.SOCKS5("tcp", u.addr, auth, &net.Dialer{})
	if err != nil {
		return nil, err
	}
	return d.(proxy.ContextDialer).DialContext(ctx, "tcp", target)
}

// dialProxy connects to the proxy itself.
func (u *Upstream) dialProxy(ctx context.Context) (net.Conn, error) {
	if u.scheme == "https" {
		return (&tls.Dialer{}).DialContext(ctx, "tcp", u.addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", u.addr)
}

// connect asks a proxy for a tunnel to a target.
func (u *Upstream) connect(c net.Conn, target string, header http.Header) (net.Conn, error) {
	header = header.Clone()
	header.Del("Proxy-Authorization")
	if a := u.authorization(); a != "" {
		header.Set("Proxy-Authorization", a)
	}
	if header["User-Agent"] == nil {
		header.Set("User-Agent", "") // not the library's
	}
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: header}
	if err := r.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		resp.Body.Close()
		return nil, &statusError{resp.StatusCode}
	}
	if n := in.Buffered(); n > 0 {
		early, _ := in.Peek(n)
		return &earlyConn{c, io.MultiReader(bytes.NewReader(early), c)}, nil
	}
	return c, nil
}

// earlyConn is a connection whose first bytes have been read already.
type earlyConn struct {
	net.Conn
	in io.Reader
}

func (c *earlyConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// statusError is the answer of a proxy that opens no tunnel.
type statusError struct{ status int }

func (e *statusError) Error() string {
	text := fmt.Sprintf("it answers %d %s", e.status, http.StatusText(e.status))
	if e.status == http.StatusProxyAuthRequired {
		text += ": it does not accept the user and the password, or accepts none in this form (Basic)"
	}
	return text
}

// causeOf says why the proxy did not serve a request, in words that are the
// same each time. It returns "" if the proxy works and the target is the
// reason.
func causeOf(err error) string {
	var status *statusError
	var name *net.DNSError
	var number syscall.Errno
	var op *net.OpError
	switch {
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return errSlow.Error()
	case errors.As(err, &status):
		if status.status/100 == 5 { // the proxy speaks for the target
			return ""
		}
		return status.Error()
	case errors.As(err, &op) && strings.HasPrefix(op.Op, "socks "):
		return causeOfSOCKS(op.Err)
	case errors.As(err, &name):
		return "its name cannot be resolved: " + name.Err
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "server closed idle connection"):
		return "it closes the connection without an answer"
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var timed net.Error
	return errors.As(err, &timed) && timed.Timeout()
}

// causeOfSOCKS returns the cause of an error of the SOCKS library, which has no
// types for the answers of the proxy.
func causeOfSOCKS(err error) string {
	text, ok := strings.CutPrefix(err.Error(), "unknown error ")
	switch {
	case strings.Contains(text, "authentication"):
		return "it does not accept the user and the password: " + text
	case ok && text != "connection not allowed by ruleset":
		return "" // about the target
	case ok:
		return "it refuses: " + text
	}
	return causeOf(err)
}
