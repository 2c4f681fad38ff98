package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"btools/lib/guard"
)

// A port can have another process after this one, which answers on connections that this one is given.

// errLeft means that the successor answers a request.
var errLeft = errors.New("another process has the port")

// hasLeft reports whether the successor answers.
func (f *Front) hasLeft() bool {
	if f.Successor == nil {
		return false
	}
	select {
	case <-f.Left:
		return true
	default:
		return false
	}
}

// closeIfLeft has a client connect to the other process for its next request.
func (f *Front) closeIfLeft(w http.ResponseWriter, r *http.Request) {
	if f.hasLeft() && r.Header.Get("Upgrade") == "" {
		w.Header().Set("Connection", "close")
	}
}

// Active returns how many connections are open, those that wait for a request included, or requests are being
// answered; a WebSocket is one.
func (f *Front) Active() int { return max(f.Limit.Count(), int(f.active.Load())) }

// keep returns the request as it has come, whose body can be read again, for the successor; nil: there will be none.
func (f *Front) keep(r *http.Request) *http.Request {
	if f.Successor == nil {
		return nil
	}
	original := r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		body, read := r.Body, &bytes.Buffer{}
		r.Body = io.NopCloser(io.TeeReader(body, read))
		original.Body = io.NopCloser(io.MultiReader(read, body))
	}
	return original
}

// Relay returns a handler that relays each request on a connection of its own.
func Relay(dial func(context.Context) (net.Conn, error), log *slog.Logger) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.RawQuery = "http", "successor", p.In.URL.RawQuery
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.Debug("no answer of the successor", "error", err)
			w.(*Response).Refuse(r, Unavailable(err))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		conn.SetReadDeadline(time.Time{}) // its turn may take long
		conn.SetWriteDeadline(time.Time{})
		proxy.ServeHTTP(w, r)
	})
}

// ServeConn serves a connection that has been accepted, and whose client sees TLS or not, until it is closed.
func (f *Front) ServeConn(ctx context.Context, c net.Conn, encrypted bool) {
	f.active.Add(1) // before its request is read
	defer f.active.Add(-1)
	one := &oneConn{Conn: c, closed: make(chan struct{})}
	defer context.AfterFunc(ctx, func() { one.Close() })()
	s := &http.Server{ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead, ConnContext: guard.ConnContext,
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if encrypted {
				r.TLS = &tls.ConnectionState{}
			}
			f.ServeHTTP(w, r)
		})}
	s.Serve(one)
}

// oneConn is a connection, and the listener that accepts it.
type oneConn struct {
	net.Conn
	accepted bool
	once     sync.Once
	closed   chan struct{}
}

// Accept returns the connection once.
func (c *oneConn) Accept() (net.Conn, error) {
	if !c.accepted {
		c.accepted = true
		return c, nil
	}
	<-c.closed
	return nil, net.ErrClosed
}

// Addr returns its address.
func (c *oneConn) Addr() net.Addr { return c.LocalAddr() }

// Close closes it.
func (c *oneConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
