package forward

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A forwarder can also keep a browser from a port of this machine, such as its own
// debugging port: a page that reaches that controls the browser. Chrome asks a proxy
// for whatever it loads, also for WebSockets, workers, redirects and what it prefetches,
// and the address that a name has is known where the connection is made. Options.Except is
// the port: requests for this machine, and all if there is no other proxy, are then served
// without another proxy, but those for that port.

// errExcepted ends a connection to the port.
var errExcepted = errors.New("no page may reach the browser's own debugging port")

// errForeign ends a connection of a page that is not of this machine.
var errForeign = errors.New("a page from elsewhere may request nothing of this machine")

// isExcepted reports whether a connection leads to the port, by whichever address of
// this machine.
func (f *Forwarder) isExcepted(c net.Conn) bool {
	to, from := c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr)
	return f.Except.IsValid() && to.Port == int(f.Except.Port()) && (to.IP.IsLoopback() || to.IP.Equal(from.IP))
}

// isDirect reports whether requests for a host:port are served without another proxy.
func (f *Forwarder) isDirect(target string) bool {
	if f.Upstream == nil {
		return true
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		host, port = target, "80"
	}
	return isHere(host) && (f.Except.IsValid() && (!f.Loopback || port == strconv.Itoa(int(f.Except.Port()))) ||
		f.Limits.Any() && !f.Loopback)
}

// isHere reports whether a host is this machine, by its address or to every browser.
func isHere(host string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return isLocalhost(host) || err == nil && (a.Unmap().IsLoopback() || a.IsUnspecified())
}

// isForeign reports whether a page from elsewhere requests something of this machine
// other than a page. Chrome refuses that by itself, but not what a proxy serves.
func isForeign(r *http.Request) bool {
	if !isHere(r.URL.Hostname()) || r.Header.Get("Sec-Fetch-Site") != "cross-site" ||
		r.Header.Get("Sec-Fetch-Dest") == "document" {
		return false
	}
	from, err := url.Parse(cmp.Or(r.Header.Get("Origin"), r.Header.Get("Referer")))
	return err != nil || !isHere(from.Hostname())
}

// isLocalhost reports whether a name is this machine's own to every browser.
func isLocalhost(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// dialDirect connects to a server.
func (f *Forwarder) dialDirect(ctx context.Context, _, target string) (c net.Conn, err error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	hosts := []string{strings.Trim(host, "[]")}
	if isLocalhost(host) {
		hosts = []string{"127.0.0.1", "::1"}
	}
	d := net.Dialer{Timeout: f.bound(), ControlContext: f.checkAddress}
	for _, h := range hosts {
		if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(h, port)); err == nil {
			break
		}
	}
	if err == nil && f.isExcepted(c) {
		c.Close()
		return nil, errExcepted
	}
	return c, err
}

// newDirect serves requests without another proxy. One that fails ends with its
// connection: a page is not to take the failure for the server's answer.
func (f *Forwarder) newDirect() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.URL.Opaque = originForm(r.In)
		},
		Transport: f.straight,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.noteFailed(r, err)
			f.abort(err)
		},
		ErrorLog: f.server.ErrorLog,
	}
}

// abort ends the connection of a request.
func (f *Forwarder) abort(err error) {
	if errors.Is(err, errExcepted) || errors.Is(err, errForeign) {
		f.Log.Warn("refused a request of a page: " + err.Error())
	}
	panic(http.ErrAbortHandler)
}
