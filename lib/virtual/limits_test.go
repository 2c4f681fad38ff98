package virtual

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/forward/limits"
	"btools/lib/forward/proxytest"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
)

// escapes are what a page can do to reach a server, by a name that is a host of it: $ is its
// address, as http://NAME.localhost:PORT, and each script may use the functions of escapePage.
// Quiet ones may leave it at nothing.
var escapes = []struct{ name, script string }{
	{"fetch", `fetch('$/', {mode: 'no-cors'})`},
	{"keepalive", `fetch('$/', {mode: 'no-cors', keepalive: true})`},
	{"cors", `fetch('$/', {method: 'PUT', headers: {x: 'y'}})`},
	{"xhr", `const x = new XMLHttpRequest; x.open('GET', '$/'); x.send()`},
	{"beacon", `navigator.sendBeacon('$/', 'x')`},
	{"socket", `new WebSocket('$/'.replace('http', 'ws'))`},
	{"events", `new EventSource('$/')`},
	{"image", `new Image().src = '$/'`},
	{"script", `add('<script>', {src: '$/'})`},
	{"style", `add('<link>', {rel: 'stylesheet', href: '$/'})`},
	{"css", `add('<div>', {style: 'background: url($/)'})`},
	{"import", `add('<style>', {textContent: '@import url($/);'})`},
	{"font", `add('<style>', {textContent: '@font-face { font-family: f; src: url($/) } b { font-family: f }'})
		add('<b>', {textContent: 'b'})`},
	{"frame", `add('<iframe>', {src: '$/'})`},
	{"object", `add('<object>', {data: '$/'})`},
	{"embed", `add('<embed>', {src: '$/'})`},
	{"video", `add('<video>', {src: '$/', preload: 'auto'})`},
	{"poster", `add('<video>', {poster: '$/'})`},
	{"audio", `new Audio('$/').load()`},
	{"srcset", `add('<img>', {srcset: '$/ 1x'})`},
	{"button", `add('<input>', {type: 'image', src: '$/'})`},
	{"svg", `add('<div>', {innerHTML: '<svg><image href="$/"/></svg>'})`},
	{"form", `add('<iframe>', {name: 'form'}); add('<form>', {action: '$/', method: 'POST', target: 'form'}).submit()`},
	{"refresh", `add('<iframe>', {srcdoc: '<meta http-equiv=refresh content="0;url=$/">'})`},
	{"inner", `add('<iframe>', {srcdoc: '<script>fetch("$/", {mode: "no-cors"})</scr' + 'ipt>'})`},
	{"data", `add('<iframe>', {src: 'data:text/html,<img src="$/">'})`},
	{"sandbox", `add('<iframe>', {sandbox: 'allow-scripts', srcdoc: '<script>location = "$/"</scr' + 'ipt>'})`},
	{"worker", `new Worker('/script?fetch("$/",{mode:"no-cors"})')`},
	{"scripts", `new Worker('/script?importScripts("$/")')`},
	{"module", `new Worker('/script?import("$/")', {type: 'module'})`},
	{"nested", `new Worker('/script?new Worker(URL.createObjectURL(new Blob([%27fetch("$/",{mode:"no-cors"})%27])))')`},
	{"blob", `new Worker(URL.createObjectURL(new Blob(['fetch("$/", {mode: "no-cors"})'])))`},
	{"shared", `new SharedWorker('/script?fetch("$/",{mode:"no-cors"})')`},
	{"service", `navigator.serviceWorker.register('/script?fetch("$/",{mode:"no-cors"})')`},
	{"dynamic", `import('$/').catch(() => {})`},
	{"popup", `open('$/')`},
	{"noopener", `open('$/', '', 'noopener')`},
	{"download", `add('<a>', {href: '$/file', target: 'x', rel: 'noopener'}).click()`},
	{"ping", `const a = add('<a>', {href: '#', ping: '$/'}); a.click()`},
	{"preload", `add('<link>', {rel: 'preload', as: 'image', href: '$/'})`},
	{"modulepreload", `add('<link>', {rel: 'modulepreload', href: '$/'})`},
	{"prefetch", `add('<link>', {rel: 'prefetch', href: '$/'})`},
	{"speculate?", `add('<script>', {type: 'speculationrules', textContent:
		'{"prefetch": [{"urls": ["$/"], "eagerness": "immediate"}]}'})`},
	{"redirected", `fetch('/redirect?to=$/', {mode: 'no-cors'})`},
	{"picture", `new Image().src = '/redirect?to=$/'`},
	{"moved", `add('<iframe>', {src: '/redirect?to=$/'})`},
	{"turn", `const p = new RTCPeerConnection({iceServers: [{urls: 'turn:$?transport=tcp'.replace('http://', ''),
		username: 'u', credential: 'p'}]}); p.createDataChannel('x'); p.setLocalDescription()`},
	{"preconnect?", `add('<link>', {rel: 'preconnect', href: '$/'})`},
	{"resolve?", `add('<link>', {rel: 'dns-prefetch', href: '$/'})`},
	{"icon?", `add('<link>', {rel: 'icon', href: '$/'})`},
	{"manifest?", `add('<link>', {rel: 'manifest', href: '$/'})`},
	{"prerender?", `add('<script>', {type: 'speculationrules', textContent:
		'{"prerender": [{"urls": ["$/"], "eagerness": "immediate"}]}'})`},
	{"transport?", `new WebTransport('$/'.replace('http', 'https')).ready.catch(() => {})`},
	{"stun?", `const p = new RTCPeerConnection({iceServers: [{urls: 'stun:$'.replace('http://', '')}]})
		p.createDataChannel('x'); p.setLocalDescription()`},
}

const escapePage = `<!doctype html><title>escapes</title><body><script>
const add = (tag, has) => document.body.appendChild(Object.assign(document.createElement(tag.slice(1, -1)), has))
</script>`

// escapeSite is the site whose pages try the escapes.
func escapeSite(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		case "/script":
			w.Header().Set("content-type", "text/javascript")
			script, _ := url.QueryUnescape(r.URL.RawQuery)
			io.WriteString(w, script)
		default:
			w.Header().Set("content-type", "text/html")
			io.WriteString(w, escapePage)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// heard is a server by TCP and UDP that notes who connects, and by which name.
type heard struct {
	port string

	mu    sync.Mutex
	hosts map[string]bool
}

func listenForAll(t *testing.T) *heard {
	h := &heard{hosts: map[string]bool{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.note(r.Host)
		w.Header().Set("access-control-allow-origin", "*")
		if r.URL.Path == "/file" {
			w.Header().Set("content-disposition", "attachment")
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			h.note("a connection")
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, h.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	udp, err := net.ListenPacket("udp4", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b := make([]byte, 2048)
			if _, _, err := udp.ReadFrom(b); err != nil {
				return
			}
			h.note(fmt.Sprintf("a packet %x", b[:4]))
		}
	}()
	t.Cleanup(func() {
		udp.Close()
		<-done
	})
	return h
}

func (h *heard) note(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts[host] = true
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.hosts))
}

const blocked = "net::ERR_BLOCKED_BY_ADMINISTRATOR: "

// openLimited starts a Chromium as the programs launch one for sessions with limits.
func openLimited(t *testing.T) *Browser {
	url, _ := chrometest.Start(t, limits.ChromeArgs...)
	b, err := Open(t.Context(), url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// No page gets past the limits, whatever it does and however it spells an address, and an
// attempt is an error with the rule.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := openLimited(t)
	site := escapeSite(t)
	heard := listenForAll(t)
	t.Run("ways", func(t *testing.T) {
		t.Parallel()
		here := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
		s := newSession(t, b, Options{Settings: settings.Settings{AllowOrigins: []string{here}}})
		p := connect(t, s, "")
		began := time.Now()
		page := p.attach(p.create("about:blank"))
		p.goTo(page, here)
		left := map[string]string{}
		for _, way := range escapes {
			name := strings.TrimSuffix(way.name, "?")
			at := "http://" + name + ".localhost:" + heard.port
			got := p.must(page, "Runtime.evaluate", map[string]any{"userGesture": true,
				"expression": "{" + strings.ReplaceAll(way.script, "$", at) + "\n}"})
			if why := jsonrpc.GetString(got, "exceptionDetails", "exception", "description"); why != "" {
				t.Errorf("%s: %s", way.name, why)
			}
			if name == way.name {
				left[name] = name + ".localhost:" + heard.port
			}
		}
		for end := time.Now().Add(patience / 2); len(left) > 0 && time.Now().Before(end); {
			for name, at := range left {
				why := s.proxy.to.WhyFailed("http://"+at, began)
				if strings.Contains(why, "--allow-origins: no pattern matches http://"+at) ||
					strings.Contains(why, "--allow-origins: no pattern matches "+at) {
					delete(left, name)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		for name := range left {
			t.Errorf("%s: it was not refused", name)
		}
		st := s.Stats().Limits
		if st == nil || st.AllowOrigins[0] != here || st.Refused < len(escapes)/2 || st.LastRefused == "" {
			t.Errorf("the status of the limits is %+v", st)
		}
		for to, want := range map[string]string{
			site.URL:                          "no pattern matches http://" + site.Listener.Addr().String(),
			here + "/redirect?to=" + site.URL: "no pattern matches http://" + site.Listener.Addr().String(),
			"https://name.test":               "no pattern matches name.test:443",
			here:                              "",
		} {
			got := p.visit("", to)
			if !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, blocked+"--allow-origins: ") {
				t.Errorf("%s: %s, want %s", to, got, want)
			}
		}
		got := p.call("", "Target.createBrowserContext", map[string]string{"proxyServer": "direct://"})
		if !strings.Contains(string(got), "cannot have a proxy of its own") {
			t.Errorf("a context with a proxy of its own: %s", got)
		}
	})
	t.Run("spellings", func(t *testing.T) {
		t.Parallel()
		name, _ := os.Hostname()
		web := proxytest.HTTP(t, site.Listener.Addr().String())
		for proxy, hosts := range map[string][]string{
			"": {"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001",
				"127.0.0.1.", "127.255.255.254", "localhost", "LOCALHOST", "localhost.", "a.localhost", "0", "0.0.0.0",
				"[::1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]",
				"[2002:7f00:1::]", "１２７.0.0.1", "%31%32%37.0.0.1", "127。0。0。1", "ⓛocalhost", name, "10.0.0.1",
				"172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "0xa9fea9fe", "168.63.129.16",
				"[fe80::1]", "[fd00:ec2::254]", "[fc00::1]", "224.0.0.1", "255.255.255.255"},
			"http://" + proxytest.Credentials + web.At: {"127.0.0.1", "0x7f.1", "localhost", "[::1]",
				"169.254.169.254"},
		} {
			s := newSession(t, b, Options{Settings: settings.Settings{BlockPrivate: true, Proxy: proxy}})
			p := connect(t, s, "")
			page := p.attach(p.create("about:blank"))
			for _, host := range hosts {
				to := []string{"http://" + host + ":" + heard.port}
				if proxy != "" {
					to = append(to, "http://public.test/redirect?to="+to[0])
				}
				for _, to := range to {
					got := jsonrpc.GetString(p.must(page, "Page.navigate", map[string]string{"url": to}), "errorText")
					if !strings.HasPrefix(got, blocked+"--block-private: ") {
						t.Errorf("%s by %q: %s", to, proxy, got)
					}
				}
			}
			if proxy == "" {
				continue
			}
			if got := p.visit("", "http://public.test/"); got != "" {
				t.Errorf("a public site: %s", got)
			}
		}
	})
	t.Cleanup(func() {
		if all := heard.all(); len(all) > 0 {
			t.Errorf("pages have reached a server that they must not: %s", all)
		}
	})
	if _, err := b.NewSession(t.Context(), Options{DefaultContext: true,
		Settings: settings.Settings{BlockPrivate: true}}); err == nil {
		t.Error("the default context has limits")
	}
}

// A Chrome whose pages can send UDP past the limits has no session with any.
func TestNoLimitsWithUDP(t *testing.T) {
	t.Parallel()
	_, err := sharedBrowser(t).NewSession(t.Context(), Options{Settings: settings.Settings{BlockPrivate: true}})
	if err == nil || !strings.Contains(err.Error(), "WebRTC") {
		t.Errorf("the error is %v", err)
	}
}
