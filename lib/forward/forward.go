// Package forward lets Chrome use a proxy with a password. Chrome accepts no
// credentials in the address of a proxy. A Forwarder is a proxy without them,
// on an address of this machine, that forwards to the real one and adds the
// credentials. It neither reads nor changes what passes through a tunnel. It can also
// keep the browser from one port of this machine, and to the servers that rules allow.
//
// Only the processes of one browser may use it. On Linux, the owner of each
// connection is looked up, by its socket. Elsewhere only the address, with a
// port that nobody is told, keeps other users out. A process that can change
// the browser itself (its debugger, a client of its whole endpoint) is not kept
// out anywhere.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"time"

	"btools/lib/forward/limits"
	"btools/lib/forward/upstream"
)

// Options say what a Forwarder forwards to, and for whom.
type Options struct {
	Upstream *upstream.URL // nil: servers themselves
	// Except, if it is valid, is a port of this machine to which nothing is forwarded.
	// What is for this machine does not go to Upstream then, unless Loopback says so.
	Except   netip.AddrPort
	Loopback bool
	// Limits are the rules about what pages may reach.
	Limits limits.Limits
	// Browser returns the process of the browser whose processes may use the
	// forwarder; 0: it is not known, and any process of this user may. It is
	// called until it succeeds.
	Browser func(context.Context) (pid int, err error)
	Log     *slog.Logger

	answer time.Duration // how long the proxy may take to answer; 0: answerTimeout
}

// answerTimeout is how long the proxy may take to open a tunnel, and
// pageTimeout how long it may take to answer a request for http://, which also
// takes the time of the server.
const (
	answerTimeout = 30 * time.Second
	pageTimeout   = 2 * time.Minute
)

// Limits of connections.
const (
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	maxIdle     = 64 // connections to the proxy that are kept
)

var errSlow = errors.New("it does not answer in time")

// Forwarder is a proxy for one browser. Close it.
type Forwarder struct {
	Options
	listener net.Listener
	server   *http.Server
	plain    *httputil.ReverseProxy
	idle     *http.Transport
	direct   *httputil.ReverseProxy
	straight *http.Transport // of direct
	owner    owner
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	err      string          // why the last use of the proxy failed; "": it did not
	reported map[string]bool // causes in the log
	failures failures
}

// Listen starts a forwarder on an address of this machine.
func Listen(o Options) (*Forwarder, error) {
	l, err := listen()
	if err != nil {
		return nil, fmt.Errorf("cannot forward to the proxy: %w", err)
	}
	f := &Forwarder{Options: o, listener: l, reported: map[string]bool{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.owner.browser = o.Browser
	f.straight = &http.Transport{DialContext: f.dialDirect, DisableCompression: true,
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout}
	f.idle = f.straight.Clone()
	f.idle.DialContext = (&net.Dialer{Timeout: f.bound()}).DialContext
	f.idle.TLSHandshakeTimeout, f.idle.ResponseHeaderTimeout = f.bound(), cmp.Or(o.answer, pageTimeout)
	switch {
	case o.Upstream == nil:
	case o.Upstream.Scheme != "socks5":
		f.idle.Proxy = http.ProxyURL(o.Upstream.URL())
	default: // the library does not bound the answers of a SOCKS proxy
		f.idle.DialContext = func(ctx context.Context, _, target string) (net.Conn, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, f.bound(), errSlow)
			defer cancel()
			return dialSOCKS(ctx, o.Upstream, target)
		}
	}
	errorLog := slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	f.plain = &httputil.ReverseProxy{
		Rewrite: f.rewrite, Transport: f.idle, ModifyResponse: f.checkResponse, ErrorHandler: f.writeError,
		ErrorLog: errorLog,
	}
	f.server = &http.Server{
		Handler: f, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, ErrorLog: errorLog,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return f.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, &peer{conn: c})
		},
	}
	f.direct = f.newDirect()
	f.running.Go(func() { f.server.Serve(l) })
	return f, nil
}

// listen listens on a port that cannot be guessed, on Linux also on an address
// that cannot.
func listen() (net.Listener, error) {
	const tries = 20
	for range tries {
		host := "127.0.0.1"
		if runtime.GOOS == "linux" { // which has the whole network 127.0.0.0/8
			host = net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254))).String()
		}
		if l, err := net.Listen("tcp4", host+":0"); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp4", "127.0.0.1:0")
}

func (f *Forwarder) bound() time.Duration { return cmp.Or(f.answer, answerTimeout) }

// URL returns the address of the forwarder, as Chrome takes it.
func (f *Forwarder) URL() string { return "http://" + f.listener.Addr().String() }

// Close ends the forwarder and its connections.
func (f *Forwarder) Close() {
	f.mu.Lock() // after this, no request begins
	f.cancel()
	f.mu.Unlock()
	f.server.Close()
	f.running.Wait()
	f.idle.CloseIdleConnections()
	f.straight.CloseIdleConnections()
}

// Status is the state of a proxy.
type Status struct {
	URL   string // without credentials
	Error string // why its last use failed
}

// Status returns the state of the proxy.
func (f *Forwarder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{URL: f.Upstream.String(), Error: f.err}
}

// noteWorking notes that the proxy has served a request.
func (f *Forwarder) noteWorking() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = ""
}

// maxReported bounds the causes that are remembered.
const maxReported = 100

// noteFailure notes that the proxy has not served a request, and logs each
// cause once.
func (f *Forwarder) noteFailure(err error) {
	cause := causeOf(err)
	if cause == "" || f.ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	known := f.reported[cause]
	if f.err = cause; len(f.reported) < maxReported {
		f.reported[cause] = true
	}
	f.mu.Unlock()
	if !known {
		f.Log.Warn("a proxy does not work: "+cause, "proxy", f.Upstream.String())
	}
}

// begin counts a request, for which Close waits. It returns false after Close.
func (f *Forwarder) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	f.running.Add(1)
	return true
}

// ServeHTTP serves a request of the browser.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.begin() {
		return
	}
	defer f.running.Done()
	if err := r.Context().Value(peerKey{}).(*peer).check(r.Context(), &f.owner); err != nil {
		f.Log.Warn("refused a connection to the forwarder of a proxy: "+err.Error(), "proxy", f.Upstream.String())
		http.Error(w, "this proxy serves one browser only", http.StatusForbidden)
		return
	}
	err := f.checkLimits(r)
	switch {
	case r.Method == http.MethodConnect && err != nil:
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		f.abort(err)
	case r.Method == http.MethodConnect:
		f.serveTunnel(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "" && f.isDirect(r.URL.Host):
		if isForeign(r) {
			f.abort(errForeign)
		}
		f.direct.ServeHTTP(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		f.plain.ServeHTTP(w, r)
	default: // a page connects to it as to a server
		http.Error(w, "this is a proxy, not a server", http.StatusBadRequest)
	}
}

// rewrite keeps the address of a request as Chrome wrote it.
func (f *Forwarder) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery // the library drops parts that it cannot parse
	if f.Upstream.Scheme == "socks5" {
		r.Out.URL.Opaque = originForm(r.In)
		return
	}
	r.Out.URL.Opaque = asWritten(r.In)
}

// asWritten returns the address of a request without its scheme and its query.
func asWritten(r *http.Request) string {
	uri, _, _ := strings.Cut(r.RequestURI, "?")
	return strings.TrimPrefix(uri, r.URL.Scheme+":")
}

// originForm returns the path of a request as a server gets it; "": as the library
// writes it.
func originForm(r *http.Request) string {
	uri := strings.TrimPrefix(asWritten(r), "//"+r.URL.Host)
	if !strings.HasPrefix(uri, "/") || strings.HasPrefix(uri, "//") {
		return ""
	}
	return uri
}

// checkResponse refuses a 407: Chrome would ask its user for a password.
func (f *Forwarder) checkResponse(r *http.Response) error {
	if r.StatusCode == http.StatusProxyAuthRequired {
		return &statusError{r.StatusCode}
	}
	f.noteWorking()
	return nil
}

// writeError answers a request that the proxy did not serve.
func (f *Forwarder) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil { // Chrome no longer wants the answer
		return
	}
	f.noteFailure(err)
	status := http.StatusBadGateway
	if isTimeout(err) || errors.Is(err, errSlow) {
		status = http.StatusGatewayTimeout
	}
	cause := cmp.Or(causeOf(err), "it cannot reach the server")
	http.Error(w, "The proxy "+f.Upstream.String()+" does not serve this request: "+cause, status)
}

// serveTunnel opens a tunnel to a target through the proxy.
func (f *Forwarder) serveTunnel(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), f.bound(), errSlow)
	defer cancel()
	header := r.Header.Clone()
	for _, h := range []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		header.Del(h)
	}
	direct := f.isDirect(r.RequestURI)
	var up net.Conn
	var err error
	if direct {
		up, err = f.dialDirect(ctx, "tcp", r.RequestURI)
	} else {
		up, err = dial(ctx, f.Upstream, r.RequestURI, header)
	}
	if err != nil {
		f.noteFailed(r, err)
		if direct {
			f.abort(err)
		}
		if errors.Is(context.Cause(ctx), errSlow) {
			err = errSlow
		}
		f.writeError(w, r, err)
		return
	}
	f.noteWorking()
	down, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		up.Close()
		return
	}
	defer context.AfterFunc(f.ctx, func() {
		up.Close()
		down.Close()
	})()
	early, _ := buf.Reader.Peek(buf.Reader.Buffered())
	if _, err = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		_, err = up.Write(early)
	}
	if err == nil {
		relay(up, down)
	}
	up.Close()
	down.Close()
}

// relay copies between two connections until both directions have ended.
func relay(a, b net.Conn) {
	var back sync.WaitGroup
	back.Go(func() { copyAndClose(a, b) })
	copyAndClose(b, a)
	back.Wait()
}

// copyAndClose copies until from ends, and passes the end on.
func copyAndClose(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		half.CloseWrite()
		return
	}
	to.Close()
	from.Close()
}

// peerKey is the key of the peer in the context of a connection.
type peerKey struct{}

// peer is the other end of a connection, checked once.
type peer struct {
	conn net.Conn
	once sync.Once
	err  error
}

func (p *peer) check(ctx context.Context, o *owner) error {
	p.once.Do(func() { p.err = o.check(ctx, p.conn) })
	return p.err
}
