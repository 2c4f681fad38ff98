//go:build linux

package virtual

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"btools/lib/forward/proxytest"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
)

// No page of a session gets to the debugging port of its own Chrome, whichever name the
// port has and whatever leads there; other ports of this machine are as they were.
func TestOwnPortIsOutOfReach(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		switch to := r.URL.Query().Get("to"); {
		case to != "":
			http.Redirect(w, r, to, http.StatusFound)
		case r.URL.Query().Get("prefetch") != "":
			fmt.Fprintf(w, `<script type="speculationrules">{"prefetch": [{"urls": [%q], "eagerness": "immediate"}]}
				</script>`, r.URL.Query().Get("prefetch"))
		case r.URL.Path == "/worker.js":
			w.Header().Set("content-type", "text/javascript")
			io.WriteString(w, `onmessage = (e) => fetch(e.data, {mode: 'no-cors'}).then(() => postMessage('got it'),
				(e) => postMessage(e.message))`)
		default:
			fmt.Fprintf(w, "this is %s %s", r.Host, r.RequestURI)
		}
	}))
	defer site.Close()
	web := proxytest.HTTP(t, site.Listener.Addr().String())
	proxy := "http://" + proxytest.Credentials + web.At
	url, _ := chrometest.StartShell(t)
	log := &syncBuffer{}
	b, err := Open(t.Context(), url, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, port, _ := net.SplitHostPort(b.Addr())
	name, _ := os.Hostname()
	for kind, o := range map[string]Options{"no proxy": {}, "a proxy": {Settings: settings.Settings{Proxy: proxy}},
		"a proxy for all": {Settings: settings.Settings{Proxy: proxy, ProxyBypass: "*;<-loopback>"}}} {
		p := connect(t, newSession(t, b, o), "")
		made := jsonrpc.GetString(p.must("", "Target.createBrowserContext", nil), "browserContextId")
		hosts := []string{"127.0.0.1", "localhost", "x.localhost", "localhost."}
		if o.Proxy == "" {
			hosts = append(hosts, "0.0.0.0", "[::ffff:127.0.0.1]", name)
		}
		for i, host := range hosts {
			to := "http://" + host + ":" + port + "/json/version"
			for _, context := range []string{"", made}[:1+i%2] {
				if got := p.visit(context, site.URL+"/?to="+to); !strings.HasPrefix(got, "net::ERR_") {
					t.Errorf("%s: a page has been led to %s: %s", kind, to, got)
				}
			}
		}
		for _, host := range hosts[:2] { // of the page's own site, and of another
			page := p.attach(p.create("about:blank"))
			p.goTo(page, site.URL+"/?prefetch=http://"+host+":"+port+"/json/version")
			p.do(page, fmt.Sprintf("setTimeout(() => { location.href = 'http://%s:%s/json/version' }, 200)", host,
				port))
			p.awaitTrue(page, "location.origin !== "+jsonOf(site.URL))
			if got := p.do(page, "location.href + document.body.innerText"); !strings.Contains(got, "chrome-error:") {
				t.Errorf("%s: a page has prefetched the port as %s: %s", kind, host, got)
			}
		}
		page := p.attach(p.create("about:blank"))
		p.goTo(page, site.URL+"/a%20b?c=d%2F")
		if got := p.do(page, "document.body.innerText"); got != fmt.Sprintf(`"this is %s /a%%20b?c=d%%2F"`,
			site.Listener.Addr()) {
			t.Errorf("%s: the page of another port is %s", kind, got)
		}
		own := "127.0.0.1:" + port + "/json/version"
		for what, script := range map[string]string{
			"fetch": fmt.Sprintf(`fetch('http://%s', {mode: 'no-cors'}).then(() => 'got it', (e) => e.message)`, own),
			"socket": fmt.Sprintf(`new Promise((done) => { const s = new WebSocket('ws://%s')
				s.onopen = () => done('got it'); s.onerror = () => done('error') })`, own),
			"worker": fmt.Sprintf(`new Promise((done) => { const w = new Worker('/worker.js')
				w.onmessage = (e) => done(e.data); w.postMessage('http://%s') })`, own),
		} {
			if got := p.do(page, script); strings.Contains(got, "got it") {
				t.Errorf("%s: a %s has reached the port", kind, what)
			}
		}
		if got := p.do(page, `fetch('/').then((r) => r.text())`); !strings.Contains(got, "this is") {
			t.Errorf("%s: the page's own server answers %s", kind, got)
		}
		got := p.call("", "Target.createBrowserContext", map[string]string{"proxyServer": "direct://"})
		if !strings.Contains(string(got), "debugging port") {
			t.Errorf("%s: a context with a proxy of its own: %s", kind, got)
		}
	}
	if !strings.Contains(log.String(), "no page may reach the browser's own debugging port") {
		t.Errorf("the log says\n%s", log)
	}
	if got := strings.Join(web.Targets(), " "); strings.Contains(got, port) ||
		!strings.Contains(got, site.Listener.Addr().String()) {
		t.Errorf("the proxy was asked for %s", got)
	}
}
