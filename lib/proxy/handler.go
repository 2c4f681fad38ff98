package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/supply"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/lazy"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/wait"
	"btools/lib/websocket"
)

const (
	answerTimeout = 30 * time.Second
	maxJSON       = 64 << 20 // bytes of an answer that is rewritten
	attempts      = 2        // browsers that are tried, in case the first has just died
)

// serve answers a request to the browser as it is.
func (p *Proxy) serve(w *front.Response, r *http.Request) error {
	d, no := front.ReadDevTools(r, r.URL.Path, true)
	switch {
	case no != nil:
		return no
	case d.IsSocket():
		return p.upgrade(w, r, d, p.backend.epochAt(w.Arrived))
	}
	p.plain.ServeHTTP(w, r)
	return nil
}

// noAnswer returns the error for a client whose browser does not answer, or has
// refused to.
func noAnswer(err error) error {
	var refused *websocket.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("the browser does not answer: %w", err)
}

// errNoJSON is the error for /json requests to a browser without CDP, which
// itself answers only 404.
func errNoJSON(r *http.Request) error {
	e := control.Errorf(guard.NotFound, "the browser behind this port speaks WebDriver BiDi, not CDP: it has no %s",
		r.URL.Path)
	e.Hint = "connect to ws://" + r.Host + "/session, with a client such as Puppeteer with protocol: 'webDriverBiDi'"
	return e
}

// reverse returns the reverse proxy for requests without an upgrade.
func (p *Proxy) reverse() *httputil.ReverseProxy {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: p.answerTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := p.dial(ctx, network, addr)
			return timedConn{c, 2 * p.answerTimeout}, err // a head that is late has an error of its own
		}}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged: the library has dropped parts of a URL in it
			// The library would pass on an upgrade, such as to h2c, which bypasses
			// all checks.
			r.Out.Header.Del("Connection")
			r.Out.Header.Del("Upgrade")
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "browser"
			r.Out.Host = r.In.Host
		},
		Transport:    roundTripper(func(r *http.Request) (*http.Response, error) { return p.roundTrip(transport, r) }),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { w.(*front.Response).Refuse(r, err) },
		ErrorLog:     slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *Proxy) roundTrip(transport http.RoundTripper, r *http.Request) (resp *http.Response, err error) {
	d, _ := front.ReadDevTools(r, r.URL.Path, true) // which has been allowed
	failed := p.try(r.Context(), p.backend.epochAt(time.Now()), func(g *supply.Chrome) error {
		i := g.Browser.Instance
		if i.Protocol == record.BiDi {
			err = errNoJSON(r)
			return nil
		}
		out, below := r.Clone(r.Context()), supply.SessionPath(i)
		out.URL.Host, out.Host = sibling.Addr(i), p.hostFor(r.Host, i)
		if below != "" {
			out.URL.Path, out.URL.RawPath = below+out.URL.Path, ""
		}
		answer, err := transport.RoundTrip(out)
		if d.IsCommand() {
			g.NoteUse()
		}
		switch {
		case err != nil:
			return err
		case p.leaseEnded(answer):
			answer.Body.Close()
			return errLeaseEnded
		}
		resp = answer
		renames := out.Host != r.Host || below != ""
		hasFrontEnds := d.Endpoint == front.List || d.Endpoint == front.NewPage
		if !p.Direct && d.Endpoint < front.ToBrowser && (renames || hasFrontEnds) {
			return replaceAddress(resp, out.Host+below, r.Host)
		}
		return nil
	})
	return resp, cmp.Or(failed, err)
}

// try has do use the browser, which is launched if none is running: another one, if the
// first has just died.
func (p *Proxy) try(ctx context.Context, epoch <-chan struct{}, do func(*supply.Chrome) error) error {
	for try := 1; ; try++ {
		g, err := p.acquire(ctx, epoch)
		if err != nil {
			return err
		}
		err = do(g)
		p.Leave(g)
		switch {
		case err == nil:
			return nil
		case wait.Closed(epoch):
			return supply.ErrCutOff
		case try == attempts || ctx.Err() != nil || !p.backend.reportUnreachable(g, stopReason(g, err)):
			return noAnswer(err)
		}
	}
}

// errLeaseEnded means that the browser was leased from a pool and its lease has
// ended.
var errLeaseEnded = errors.New("its lease has ended")

// leaseEnded reports whether an answer says that the browser's lease has ended.
// The launcher notices that a moment later.
func (p *Proxy) leaseEnded(resp *http.Response) bool {
	return resp.StatusCode == http.StatusGone && !p.Spec.Foreign
}

// timedConn is a connection to a browser whose answer must make progress.
type timedConn struct {
	net.Conn
	bound time.Duration
}

func (c timedConn) Read(p []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(c.bound))
	n, err := c.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("the browser stopped in the middle of its answer")
	}
	return n, err
}

// hostFor returns the Host for the browser. It is the client's, because the
// browser repeats it in its answers, which then show the proxy's address. It is
// the browser's own with Direct, or if the client's is a name, which Chrome
// refuses. Firefox accepts only its own port; a port of bpool or a bproxy with
// sessions accepts only its own host.
func (p *Proxy) hostFor(client string, i record.Instance) string {
	if p.Direct || !chromeHost(client) || i.Protocol == record.BiDi || supply.SessionPath(i) != "" {
		return sibling.Addr(i)
	}
	return client
}

// chromeHost reports whether Chrome accepts a Host header: an IP address or
// localhost.
func chromeHost(host string) bool {
	name, ok := guard.HostName(host)
	return ok && (strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil)
}

// outsideFrontEnd begins the address of a front end on a host of Chrome's makers. A
// browser has the same pages itself, which need no network.
var outsideFrontEnd = lazy.Regexp(`"https://[^"/]+/serve_(?:rev|file)/[^"/]+/`)

// replaceAddress replaces the browser's address in an answer by the proxy's, and that
// of a front end elsewhere by the browser's own.
func replaceAddress(resp *http.Response, browser, proxy string) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON))
	resp.Body.Close()
	if err != nil {
		return err
	}
	for _, before := range []string{"ws://", "ws="} {
		b = bytes.ReplaceAll(b, []byte(before+browser+"/"), []byte(before+proxy+"/"))
	}
	b = outsideFrontEnd().ReplaceAll(b, []byte(`"/devtools/`))
	resp.Body = io.NopCloser(bytes.NewReader(b))
	resp.ContentLength = int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

// stopReason returns why a browser that did not answer must be stopped, nil if
// it may be well.
func stopReason(g *supply.Chrome, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || g.HasClosed() {
		return errors.New("its endpoint is closed")
	}
	return nil
}

// upgrade opens a WebSocket to the browser and connects the client to it.
func (p *Proxy) upgrade(w *front.Response, r *http.Request, d front.DevTools, epoch <-chan struct{}) error {
	return p.try(r.Context(), epoch, func(g *supply.Chrome) error {
		up, err := p.dialBrowser(g, r, d, epoch)
		if err != nil {
			return err
		}
		if up.resp.StatusCode != http.StatusSwitchingProtocols {
			up.writeTo(w)
		} else if err := p.join(w, r, g, up, epoch); err != nil {
			p.Log.Debug("client lost", "client", r.RemoteAddr, "why", err)
		}
		return nil
	})
}

// upgraded is the browser's answer to an upgrade.
type upgraded struct {
	conn net.Conn
	in   *bufio.Reader
	resp *http.Response
}

// dialBrowser sends the upgrade to the browser and reads the head of its
// answer.
func (p *Proxy) dialBrowser(
	g *supply.Chrome, r *http.Request, d front.DevTools, epoch <-chan struct{},
) (*upgraded, error) {
	i := g.Browser.Instance
	if i.Protocol == record.BiDi {
		if err := p.backend.awaitSessionEnd(r.Context(), g, epoch); err != nil {
			return nil, err
		}
	}
	path, err := p.path(r, d, i)
	if err != nil {
		return nil, err
	}
	c, err := p.dial(r.Context(), "tcp", sibling.Addr(i))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { c.SetDeadline(time.Unix(1, 0)) })
	resp, in, err := p.handshake(c, r, path, i)
	if !stop() && err == nil {
		err = context.Cause(r.Context())
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if p.leaseEnded(resp) {
		c.Close()
		return nil, errLeaseEnded
	}
	c.SetDeadline(time.Time{})
	return &upgraded{conn: c, in: in, resp: resp}, nil
}

// dial connects to the browser's endpoint.
func (p *Proxy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: p.answerTimeout}).DialContext(ctx, network, addr)
}

// path returns the browser's path for the one that the client requests.
func (p *Proxy) path(r *http.Request, d front.DevTools, i record.Instance) (string, error) {
	if d.Endpoint != front.ToBrowser && (d != front.DevTools{Endpoint: front.ToBiDi} || i.Protocol != record.BiDi) {
		return supply.SessionPath(i) + r.URL.EscapedPath(), nil
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.answerTimeout,
		errors.New("it did not report the address of its WebSocket"))
	defer cancel()
	path, err := supply.SocketPath(ctx, i)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return path, err
}

func (p *Proxy) handshake(
	c net.Conn, r *http.Request, path string, i record.Instance,
) (*http.Response, *bufio.Reader, error) {
	c.SetDeadline(time.Now().Add(p.answerTimeout))
	header := r.Header.Clone()
	webSocketOnly(header)
	if p.Trace != nil || i.Protocol == record.BiDi {
		header.Del("Sec-WebSocket-Extensions") // no compression: messages are read
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, p.hostFor(r.Host, i))
	header.Write(&head)
	head.WriteString("\r\n")
	if _, err := c.Write(head.Bytes()); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols &&
		!front.HasToken(resp.Header, "Upgrade", "websocket") {
		err = fmt.Errorf("it switched protocols to %q", resp.Header.Get("Upgrade"))
	}
	return resp, in, err
}

// webSocketOnly removes the headers that concern one connection, and every
// upgrade but the one to WebSocket.
func webSocketOnly(h http.Header) {
	for _, list := range h["Connection"] {
		for _, name := range strings.Split(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Keep-Alive", "Te", "Trailer", "Proxy-Connection", "Http2-Settings"} {
		h.Del(name)
	}
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
}

// writeTo passes an answer that is not a WebSocket to the client.
func (u *upgraded) writeTo(w http.ResponseWriter) {
	defer u.conn.Close()
	for k, v := range u.resp.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(u.resp.StatusCode)
	u.conn.SetDeadline(time.Now().Add(answerTimeout))
	io.Copy(w, io.LimitReader(u.resp.Body, maxJSON))
}

// join takes over the client's connection and joins it with the browser's.
func (p *Proxy) join(w *front.Response, r *http.Request, g *supply.Chrome, u *upgraded, epoch <-chan struct{}) error {
	began := w.Arrived
	client, in, err := w.Take()
	if err != nil {
		u.conn.Close()
		return err
	}
	t := &tunnel{
		client: client, browser: u.conn, bidi: g.Browser.Instance.Protocol == record.BiDi, done: make(chan struct{}),
		fromClient: buffered(in.Reader), fromBrowser: buffered(u.in),
	}
	t.in, t.lastUse = observed(client)
	if p.Trace != nil {
		t.record = p.Trace.Connection(r.URL.Path)
	}
	if !p.backend.addTunnel(g, t, epoch) {
		t.Close()
		p.Front.Limit.Drop(client)
		return supply.ErrCutOff
	}
	go func() {
		sent, received := p.run(g, t, u.resp)
		p.Front.Limit.Drop(client)
		p.Log.Debug("connection", "client", r.RemoteAddr, "path", r.URL.Path, "sent", sent, "received", received,
			"took_us", time.Since(began).Microseconds())
		p.backend.removeTunnel(g, t)
	}()
	return nil
}

// run relays between a client and its browser until one of them is gone.
func (p *Proxy) run(g *supply.Chrome, t *tunnel, switched *http.Response) (sent, received int64) {
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	switched.Header.Write(&head)
	head.WriteString("\r\n")
	if _, err := t.client.Write(head.Bytes()); err != nil {
		t.Close()
		return 0, 0
	}
	if !t.bidi && t.record == nil {
		return t.run()
	}
	client, browser := t.messages()
	if !t.bidi {
		websocket.Join(client, browser)
		t.Close()
	} else if s := (&bidiSession{tunnel: t, toClient: client, toBrowser: browser, ended: make(chan struct{})}); !s.run(
		func() { p.backend.markClientGone(t) }, g.Done()) {
		p.Log.Debug(supply.SessionLeft.Error(), "instance", g.Browser.Instance.ID)
		p.backend.markClientGone(t) // new clients wait for its end
		p.backend.reportUnreachable(g, supply.SessionLeft)
	}
	return client.Received(), browser.Received()
}

// buffered returns the bytes that were read ahead.
func buffered(from *bufio.Reader) []byte {
	b, _ := from.Peek(from.Buffered())
	return bytes.Clone(b)
}
