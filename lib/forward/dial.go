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
	"strings"
	"syscall"

	"golang.org/x/net/proxy"

	"btools/lib/forward/upstream"
)

// authorization returns the header Proxy-Authorization, "" without credentials.
func authorization(u *upstream.URL) string {
	if u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
}

// dial connects to a target through the proxy. The header is for a proxy that
// speaks HTTP.
func dial(ctx context.Context, u *upstream.URL, target string, header http.Header) (net.Conn, error) {
	if u.Scheme == "socks5" {
		return dialSOCKS(ctx, u, target)
	}
	c, err := dialProxy(ctx, u)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	tunnel, err := connect(u, c, target, header)
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
func dialSOCKS(ctx context.Context, u *upstream.URL, target string) (net.Conn, error) {
	var auth *proxy.Auth
	if u.User != nil {
		auth = &proxy.Auth{User: u.User.Username()}
		auth.Password, _ = u.User.Password()
	}
	d, err := proxy.SOCKS5("tcp", u.Addr, auth, &net.Dialer{})
	if err != nil {
		return nil, err
	}
	return d.(proxy.ContextDialer).DialContext(ctx, "tcp", target)
}

// dialProxy connects to the proxy itself.
func dialProxy(ctx context.Context, u *upstream.URL) (net.Conn, error) {
	if u.Scheme == "https" {
		return (&tls.Dialer{}).DialContext(ctx, "tcp", u.Addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", u.Addr)
}

// connect asks a proxy for a tunnel to a target.
func connect(u *upstream.URL, c net.Conn, target string, header http.Header) (net.Conn, error) {
	header = header.Clone()
	header.Del("Proxy-Authorization")
	if a := authorization(u); a != "" {
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
