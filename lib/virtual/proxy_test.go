package virtual

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/control/api"
	"btools/lib/forward/proxytest"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// visit opens a page in a context and returns what it shows, or the error of its
// navigation.
func (p *peer) visit(context, url string) string {
	p.t.Helper()
	params := map[string]any{"url": "about:blank"}
	if context != "" {
		params["browserContextId"] = context
	}
	target := jsonrpc.GetString(p.must("", "Target.createTarget", params), "targetId")
	attach := map[string]any{"targetId": target, "flatten": true}
	session := jsonrpc.GetString(p.must("", "Target.attachToTarget", attach), "sessionId")
	defer p.must("", "Target.closeTarget", map[string]string{"targetId": target})
	answer := p.must(session, "Page.navigate", map[string]string{"url": url})
	if err := jsonrpc.GetString(answer, "errorText"); err != "" {
		return err
	}
	got := p.must(session, "Runtime.evaluate", map[string]any{"expression": `new Promise(done => {
		const say = () => done(document.body.innerText)
		document.readyState === 'complete' ? say() : addEventListener('load', say)
	})`, "awaitPromise": true})
	return jsonrpc.GetString(jsonrpc.Get(got, "result"), "value")
}

func TestProxies(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "this is "+r.Host)
	}))
	defer server.Close()
	direct := server.Listener.Addr().String()
	log := &syncBuffer{}
	b := openShell(t)
	b.log = slog.New(slog.NewTextHandler(log, nil))
	through := func(upstream, bypass string) (*Session, *peer) {
		t.Helper()
		s := newSession(t, b, Options{Settings: settings.Settings{Proxy: upstream, ProxyBypass: bypass}})
		return s, connect(t, s, "")
	}
	web, socks := proxytest.HTTP(t, direct), proxytest.SOCKS5(t, direct)
	_, w := through("http://"+proxytest.Credentials+web.At, "")
	one, s := through("socks5://"+proxytest.Credentials+socks.At, "<-loopback>")
	plain := connect(t, newSession(t, b, Options{}), "")
	own := func(p *peer, params any) string {
		return jsonrpc.GetString(p.must("", "Target.createBrowserContext", params), "browserContextId")
	}
	for _, x := range []struct {
		name         string
		p            *peer
		context, url string
		want         string
	}{
		{"HTTP", w, "", "http://name.test/", "this is name.test"},
		{"SOCKS", s, "", "http://name.test/", "this is name.test"},
		{"loopback is direct", w, "", "http://" + direct, "this is " + direct},
		{"loopback through the proxy", s, "", "http://" + direct, "this is " + direct},
		{"no proxy", plain, "", "http://name.test/", "net::ERR_NAME_NOT_RESOLVED"},
		{"a client's context", w, own(w, nil), "http://own.test/", "this is own.test"},
		{"a client's proxy", w, own(w, map[string]string{"proxyServer": "direct://"}), "http://own.test/",
			"net::ERR_NAME_NOT_RESOLVED"},
	} {
		if got := x.p.visit(x.context, x.url); got != x.want {
			t.Errorf("%s: %s is %q, want %q\n%s", x.name, x.url, got, x.want, log)
		}
	}
	if got := strings.Join(web.Targets(), " "); strings.Contains(got, direct) || !strings.Contains(got, "own.test") {
		t.Errorf("the HTTP proxy was asked for %s", got)
	}
	if got := strings.Join(socks.Targets(), " "); !strings.Contains(got, "name.test:80") ||
		!strings.Contains(got, direct) {
		t.Errorf("the SOCKS proxy was asked for %s", got)
	}
	if st := one.Stats().Proxy; st == nil || *st != (api.UpstreamStatus{URL: "socks5://" + socks.At}) {
		t.Errorf("the status of the proxy is %+v", st)
	}
	// Nobody but Chrome may use the forwarder, not even this process.
	out, err := exec.Command("curl", "-sS", "-x", one.proxy.to.URL(), "http://name.test/").CombinedOutput()
	if !strings.Contains(string(out), "one browser only") {
		t.Errorf("curl through the forwarder of a session: %s (%v)", out, err)
	}
	// A page cannot use it, either, as it is not a server.
	if got := plain.visit("", one.proxy.to.URL()+"/http://name.test/"); !strings.Contains(got, "not a server") {
		t.Errorf("the forwarder as a page: %s", got)
	}
	if err := one.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); socks.Connections() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections to the proxy outlive the session", socks.Connections())
		}
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(one.proxy.to.URL(), "http://")); err == nil {
		c.Close()
		t.Error("the forwarder outlives its session")
	}

	bad, p := through("http://us%3Aer:s3cret@"+web.At, "")
	if got := p.visit("", "http://name.test/"); !strings.Contains(got, "407") || !strings.Contains(got, web.At) {
		t.Errorf("a page behind a proxy that refuses is %q", got)
	}
	if got := p.visit("", "https://name.test/"); got != "net::ERR_TUNNEL_CONNECTION_FAILED" {
		t.Errorf("a page by TLS behind a proxy that refuses is %q", got)
	}
	if st := bad.Stats().Proxy; st == nil || !strings.Contains(st.Error, "407") {
		t.Errorf("the status of the proxy is %+v", st)
	}
	if n := strings.Count(log.String(), "407 Proxy"); n != 1 || strings.Contains(log.String(), "s3cret") {
		t.Errorf("%d lines about it, want 1, without the password:\n%s", n, log)
	}
	if _, err := b.NewSession(t.Context(), Options{DefaultContext: true, Settings: bad.options.Settings}); err == nil {
		t.Error("the default context has got a proxy")
	}
}
