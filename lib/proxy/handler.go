package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/cdp"
	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/launcher"
	"btools/lib/record"
)

const (
	maxHead       = 64 << 10 // bytes of a request's head
	headTimeout   = 10 * time.Second
	idleTimeout   = 2 * time.Minute // of a kept-alive connection
	answerTimeout = 30 * time.Second
	maxJSON       = 64 << 20 // bytes of an answer that is rewritten
	tries         = 2        // browsers that are asked, should the first die just then
)

// ServeHTTP answers one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if no := p.check(r); no != nil {
		p.Log.Debug("refused", "client", r.RemoteAddr, "request", describe(r), "why", no.Error.Message)
		if r.ContentLength != 0 {
			// The server else waits for the body, which may never come.
			http.NewResponseController(w).SetReadDeadline(time.Now())
		}
		no.Answer(w)
		return
	}
	if isUpgrade(r) {
		p.upgrade(w, r)
		return
	}
	began := time.Now()
	p.plain.ServeHTTP(w, r)
	p.Log.Debug("request", "client", r.RemoteAddr, "request", describe(r), "duration", time.Since(began))
}

// noBrowser answers a request for which there is no browser.
func noBrowser(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		err = errors.New("the client has closed its side of the connection") // it may still read
	}
	(&guard.Refusal{Status: http.StatusBadGateway, Error: control.ErrorOf(err)}).Answer(w)
}

// reverse makes the reverse proxy of plain requests.
func (p *Proxy) reverse() *httputil.ReverseProxy {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: answerTimeout}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came: the library has dropped parts of a URL in it
			p.Guard.Clean(r.Out)
			// The library passes an upgrade on, such as to h2c, which would lead
			// past all checks.
			r.Out.Header.Del("Connection")
			r.Out.Header.Del("Upgrade")
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "browser"
			r.Out.Host = r.In.Host
		},
		Transport:    roundTripper(func(r *http.Request) (*http.Response, error) { return p.roundTrip(transport, r) }),
		ErrorHandler: noBrowser,
		ErrorLog:     p.errorLog(),
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *Proxy) roundTrip(transport http.RoundTripper, r *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		g, err := p.backend.acquire(r.Context())
		if err != nil {
			return nil, err
		}
		out := r.Clone(r.Context())
		out.URL.Host = launcher.Addr(g.browser.Instance)
		out.Host = p.hostFor(r.Host, g.browser.Instance)
		resp, err := transport.RoundTrip(out)
		p.backend.release(g)
		if err == nil {
			if out.Host != r.Host && !p.Direct && strings.HasPrefix(out.URL.Path, "/json") {
				err = ownAddress(resp, out.Host, r.Host)
			}
			return resp, err
		}
		if try == tries || r.Context().Err() != nil || !p.backend.distrust(g, refused(err)) {
			return nil, fmt.Errorf("the browser does not answer: %w", err)
		}
	}
}

// hostFor is the Host that the browser is told: the client's, which it names
// in its answers, so that they show the proxy's address; its own if that is
// to be shown, or if the client's is a name, which Chrome refuses. Firefox
// refuses every other port than its own.
func (p *Proxy) hostFor(client string, i record.Instance) string {
	if p.Direct || !chromeHost(client) || i.Protocol == record.BiDi {
		return launcher.Addr(i)
	}
	return client
}

// ownAddress has an answer show the proxy's address where the browser was
// told its own.
func ownAddress(resp *http.Response, browser, proxy string) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON))
	resp.Body.Close()
	if err != nil {
		return err
	}
	for _, before := range []string{"ws://", "ws="} {
		b = bytes.ReplaceAll(b, []byte(before+browser+"/"), []byte(before+proxy+"/"))
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	resp.ContentLength = int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// upgrade opens a WebSocket to the browser and joins the client to it.
func (p *Proxy) upgrade(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	client := r.RemoteAddr
	p.Guard.Clean(r)
	for try := 1; ; try++ {
		g, err := p.backend.acquire(r.Context())
		if err != nil {
			noBrowser(w, r, err)
			return
		}
		up, err := p.ask(g, r)
		if err == nil {
			defer p.backend.release(g)
			if up.resp.StatusCode != http.StatusSwitchingProtocols {
				up.pass(w)
				return
			}
			if t, err := p.join(w, up); err != nil {
				p.Log.Debug("client lost", "client", client, "why", err)
			} else if p.backend.enter(g, t) {
				path := r.URL.Path
				go func() {
					sent, received := p.run(g, t)
					p.limit.Drop(t.client)
					p.Log.Debug("connection", "client", client, "path", path, "sent", sent, "received", received, "duration", time.Since(began).Round(time.Microsecond))
					p.backend.leave(g, t)
				}()
			} else {
				t.close()
				p.limit.Drop(t.client)
			}
			return
		}
		p.backend.release(g)
		if try == tries || r.Context().Err() != nil || !p.backend.distrust(g, refused(err)) {
			noBrowser(w, r, fmt.Errorf("the browser does not answer: %w", err))
			return
		}
	}
}

// run joins a client and its browser until one of them is gone.
func (p *Proxy) run(g *generation, t *tunnel) (sent, received int64) {
	if g.browser.Instance.Protocol != record.BiDi {
		return t.run()
	}
	locked := false
	sent, received, over := newSession(t).run(func() {
		select {
		case g.ending <- struct{}{}: // who comes now waits for it
			locked = true
		case <-g.end:
		}
	}, g.end)
	if !over {
		p.Log.Debug("a client has left a session that can't be ended", "instance", g.browser.Instance.ID)
		p.backend.distrust(g, true)
	}
	if locked {
		<-g.ending
	}
	return sent, received
}

// upgraded is a browser's answer to an upgrade.
type upgraded struct {
	conn net.Conn
	in   *bufio.Reader
	resp *http.Response
}

// ask sends the upgrade to the browser and reads the head of its answer.
func (p *Proxy) ask(g *generation, r *http.Request) (*upgraded, error) {
	i := g.browser.Instance
	if i.Protocol == record.BiDi {
		// A session that is being ended makes room for the next.
		select {
		case g.ending <- struct{}{}:
			<-g.ending
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-g.end:
			return nil, errors.New("the browser is being stopped")
		}
	}
	path, err := p.path(r, i)
	if err != nil {
		return nil, err
	}
	addr := launcher.Addr(i)
	var d net.Dialer
	c, err := d.DialContext(r.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { c.SetDeadline(time.Unix(1, 0)) })
	resp, in, err := p.handshake(c, r, path, p.hostFor(r.Host, i))
	if !stop() && err == nil {
		err = context.Cause(r.Context())
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	return &upgraded{conn: c, in: in, resp: resp}, nil
}

// path is where the browser has what the client asks for.
func (p *Proxy) path(r *http.Request, i record.Instance) (string, error) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if i.Protocol == record.BiDi && (browserPath(path) || path == "/session") {
		return "/session", nil
	}
	if !browserPath(path) {
		return r.URL.EscapedPath(), nil
	}
	if u, err := url.Parse(i.WSURL); err == nil && strings.HasPrefix(u.Path, "/devtools/browser/") {
		return u.Path, nil
	}
	v, err := cdp.GetVersion(r.Context(), launcher.Addr(i))
	if err != nil {
		return "", err
	}
	u, err := url.Parse(v.WSURL)
	if err != nil || u.Path == "" {
		return "", fmt.Errorf("it has no WebSocket, but %q", v.WSURL)
	}
	return u.Path, nil
}

func (p *Proxy) handshake(c net.Conn, r *http.Request, path, host string) (*http.Response, *bufio.Reader, error) {
	c.SetDeadline(time.Now().Add(answerTimeout))
	header := r.Header.Clone()
	webSocketOnly(header)
	if p.Trace != nil {
		header.Del("Sec-WebSocket-Extensions") // no compression: it is to be read
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, host)
	header.Write(&head)
	head.WriteString("\r\n")
	if _, err := c.Write(head.Bytes()); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols && !hasWord(resp.Header["Upgrade"], "websocket") {
		err = fmt.Errorf("it has switched to %q", resp.Header.Get("Upgrade"))
	}
	return resp, in, err
}

// webSocketOnly removes what a head says of its connection alone, other
// protocols that it may switch to among it, but for the WebSocket.
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

// pass gives the client an answer that is no WebSocket.
func (u *upgraded) pass(w http.ResponseWriter) {
	defer u.conn.Close()
	for k, v := range u.resp.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Connection", "close")
	w.WriteHeader(u.resp.StatusCode)
	u.conn.SetDeadline(time.Now().Add(answerTimeout))
	io.Copy(w, io.LimitReader(u.resp.Body, maxJSON))
}

// join takes the client's connection over and gives each side what the
// other one has already sent.
func (p *Proxy) join(w http.ResponseWriter, u *upgraded) (*tunnel, error) {
	client, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		u.conn.Close()
		return nil, err
	}
	t := &tunnel{client: client, browser: u.conn}
	if p.Trace != nil {
		t.toBrowser, t.toClient = p.Trace.connection()
	}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	u.resp.Header.Write(&head)
	head.WriteString("\r\n")
	if err := errors.Join(early(client, head.Bytes(), u.in, t.toClient), early(u.conn, nil, buf.Reader, t.toBrowser)); err != nil {
		t.close()
		p.limit.Drop(client)
		return nil, err
	}
	return t, nil
}

// early passes on what was read too far, after head.
func early(to net.Conn, head []byte, from *bufio.Reader, tap io.Writer) error {
	b, _ := from.Peek(from.Buffered())
	if tap != nil {
		tap.Write(b)
	}
	if b = append(head, b...); len(b) == 0 {
		return nil
	}
	_, err := to.Write(b)
	return err
}
