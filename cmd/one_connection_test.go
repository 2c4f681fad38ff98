//go:build linux

package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/jsonrpc"
)

// consent is the endpoint of a Chrome that asks its user to allow each
// WebSocket. Its user allows all, or none.
type consent struct {
	wsURL string // of the browser
	http  string
	pid   int

	mu        sync.Mutex
	refuses   bool
	noJSON    bool // as Chrome since version 144
	questions int
	requests  int // of /json
}

func (w *world) consent() *consent {
	w.t.Helper()
	x := parse(w.t, w.run("blaunch", "--browser", "chromium"))
	target, err := url.Parse(x.Instance.HTTPURL)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &consent{pid: x.Instance.PID}
	to := httputil.NewSingleHostReverseProxy(target)
	to.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, err error) {
		http.Error(rw, err.Error(), http.StatusBadGateway)
	}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		refuses := false
		if r.Header.Get("Upgrade") != "" {
			c.questions++
			refuses = c.refuses
		} else {
			c.requests++
			if refuses = c.noJSON; refuses {
				c.mu.Unlock()
				http.NotFound(rw, r)
				return
			}
		}
		c.mu.Unlock()
		if refuses {
			http.Error(rw, "the user said no", http.StatusForbidden)
			return
		}
		to.ServeHTTP(rw, r)
	}))
	w.t.Cleanup(s.Close)
	at := strings.TrimPrefix(s.URL, "http://")
	browser, err := url.Parse(x.Instance.WSURL)
	if err != nil {
		w.t.Fatal(err)
	}
	c.http, c.wsURL = s.URL, "ws://"+at+browser.Path
	return c
}

// asked asserts how often the user was asked so far, and how many requests of
// /json there were.
func (c *consent) asked(t *testing.T, questions, requests int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.questions != questions || c.requests != requests {
		t.Errorf("the user was asked %d times, want %d; /json %d times, want %d", c.questions, questions, c.requests,
			requests)
	}
}

// Two Playwrights and a Puppeteer at the same time, with /json and health checks
// besides, cost one question. One of them is killed; the others stay.
func TestOneConnection(t *testing.T) {
	for _, args := range [][]string{nil, {"--isolate"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			site := clientSite(t)
			w := newWorld(t)
			chrome := w.consent()
			chrome.noJSON = true
			p := w.proxy(append(args, "--one-connection", "--target", chrome.wsURL, "--health-interval", "50ms")...)
			chrome.asked(t, 0, 0)
			var cs []*client
			for _, script := range []string{"playwright.mjs", "playwright.mjs", "puppeteer.mjs"} {
				cs = append(cs, p.client(script, site))
			}
			for _, c := range cs {
				c.says("ready")
			}
			for _, path := range []string{"/json/version", "/json/list", "/json"} {
				if code, body := get(t, "GET", p.url+path); code != 200 {
					t.Errorf("%s: %d %s", path, code, body)
				}
			}
			cs[0].cmd.Process.Kill()
			cs[0].cmd.Wait()
			until(t, "the killed client is gone", func() bool { return p.do("status").Status.WebSockets == 2 })
			chrome.asked(t, 1, 0)
			syscall.Kill(chrome.pid, syscall.SIGKILL)
			for _, c := range cs[1:] {
				c.told() // and waits until it has noticed; then it finds no browser
			}
			for _, c := range cs[1:] {
				if c.cmd.Wait(); strings.Contains(c.errs.String(), "no end after") {
					t.Errorf("%s does not notice that its browser is lost", c.name)
				}
			}
			p.stop()
		})
	}
}

// A client of the port has Chrome's own protocol, on the whole browser.
func TestOneConnectionIsVerbatim(t *testing.T) {
	w := newWorld(t)
	chrome := w.consent()
	p := w.proxy("--one-connection", "--target", chrome.http, "--eager", "--health-interval", "50ms")
	until(t, "it connects at once", func() bool {
		chrome.mu.Lock()
		defer chrome.mu.Unlock()
		return chrome.questions == 1
	})
	direct, c := dial(t, chrome.wsURL), dial(t, "ws://"+p.addr+"/devtools/browser")
	for _, command := range [][2]string{
		{"Browser.getVersion", "{}"}, {"Target.getBrowserContexts", "{}"}, {"SystemInfo.getInfo", "{}"},
		{"Target.attachToTarget", `{"targetId":"none"}`}, {"No.method", "{}"},
	} {
		if a, b := direct.ask(command[0], command[1]), c.ask(command[0], command[1]); a != b {
			t.Errorf("%s\nby Chrome: %s\nby bproxy: %s", command[0], a, b)
		}
	}
	_, made := get(t, "PUT", p.url+"/json/new?about:blank%23made")
	id := jsonrpc.GetString([]byte(made), "id")
	if at := jsonrpc.GetString([]byte(made), "webSocketDebuggerUrl"); at != "ws://"+p.addr+"/devtools/page/"+id {
		t.Errorf("/json/new: %s", made)
	}
	if got := direct.ask("Target.getTargets", "{}"); !strings.Contains(got, `"`+id+`"`) {
		t.Errorf("the page is not in the browser: %s", got)
	}
	page := dial(t, "ws://"+p.addr+"/devtools/page/"+id)
	if got := page.ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, "blank#made") {
		t.Errorf("the page: %s", got)
	}
	for path, want := range map[string]int{"/json/activate/" + id: 200, "/json/activate/none": 404,
		"/json/close/" + id: 200, "/json/close/none": 404, "/json/protocol": 404} {
		if path == "/json/close/"+id {
			continue // the last one
		}
		if code, body := get(t, "GET", p.url+path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, body := get(t, "GET", p.url+"/json/close/"+id); code != 200 {
		t.Errorf("/json/close: %d %s", code, body)
	}
	page.lost()
	if _, resp := p.socket("/devtools/page/none"); resp.StatusCode != 500 {
		t.Errorf("a page that there is not: %s", resp.Status)
	}
	if s := p.do("status"); s.Status.State != "foreign" {
		t.Errorf("it is well: %+v", s)
	}
	chrome.asked(t, 2, 1) // one of them by ourselves
	p.stop()
}

// What a client had ends with it, also when bproxy is killed.
func TestOneConnectionEnds(t *testing.T) {
	w := newWorld(t)
	chrome := w.consent()
	direct := dial(t, chrome.wsURL)
	contexts := func() int {
		return strings.Count(string(jsonrpc.Get([]byte(direct.ask("Target.getBrowserContexts", "{}")), "result",
			"browserContextIds")), `"`) / 2
	}
	p := w.proxy("--one-connection", "--target", chrome.wsURL)
	one, two := dial(t, "ws://"+p.addr), dial(t, "ws://"+p.addr)
	for _, c := range []*wire{one, two} {
		c.ask("Target.createBrowserContext", `{"disposeOnDetach":true}`)
	}
	if n := contexts(); n != 2 {
		t.Errorf("there are %d contexts", n)
	}
	one.conn.Close(1000, "")
	until(t, "one context is left", func() bool { return contexts() == 1 })
	p.cmd.Process.Kill()
	p.cmd.Wait()
	two.lost()
	until(t, "no context is left", func() bool { return contexts() == 0 })
}

// A refusal is told as such; the user is not asked again and again.
func TestOneConnectionRefused(t *testing.T) {
	w := newWorld(t)
	chrome := w.consent()
	chrome.refuses = true
	for _, args := range [][]string{nil, {"--isolate"}} {
		before, began := chrome.questions, time.Now()
		p := w.proxy(append(args, "--one-connection", "--target", chrome.wsURL)...)
		for _, path := range []string{"/json/version", "/json/list"} {
			if args != nil && path == "/json/list" {
				continue // it is the session's of nobody
			}
			code, body := get(t, "GET", p.url+path)
			if code != 502 || !strings.Contains(body, "the browser has refused the connection") ||
				!strings.Contains(body, "the user said no") || !strings.Contains(body, "allow remote debugging") {
				t.Errorf("%v %s: %d %s", args, path, code, body)
			}
		}
		if _, resp := p.socket("/"); resp.StatusCode != 502 {
			t.Errorf("a WebSocket: %s", resp.Status)
		}
		p.stop()
		// A refusal holds for five seconds.
		if n := chrome.questions - before; n < 1 || n > 1+int(time.Since(began)/(5*time.Second)) {
			t.Errorf("the user was asked %d times within %v", n, time.Since(began))
		}
	}
}

// The one connection may be to a session of another bproxy.
func TestOneConnectionToSession(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("--isolate")
	q := w.proxy("--one-connection", "--target", p.url+"/session/one")
	one, two := dial(t, "ws://"+q.addr), dial(t, "ws://"+q.addr)
	made := one.ask("Target.createTarget", `{"url":"about:blank#one"}`)
	target := jsonrpc.GetString([]byte(made), "result", "targetId")
	if got := two.ask("Target.getTargets", "{}"); !strings.Contains(got, target) {
		t.Errorf("the other client does not see the page: %s", got)
	}
	page := dial(t, "ws://"+q.addr+"/devtools/page/"+target)
	if got := page.ask("Runtime.evaluate", `{"expression":"location.hash"}`); !strings.Contains(got, "#one") {
		t.Errorf("the page: %s", got)
	}
	if s := p.do("status"); s.Status.WebSockets != 1 {
		t.Errorf("the session has %d clients", s.Status.WebSockets)
	}
	q.stop()
	p.stop()
}

// The browser says in a file where it is. The next one is elsewhere.
func TestOneConnectionByFile(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/DevToolsActivePort"
	w.run("bproxy", "--one-connection", "--target", file).wants(t, 69, "no such file")
	point := func(c *consent) {
		u, _ := url.Parse(c.wsURL)
		write(t, file, u.Port()+"\n"+u.Path)
	}
	first, second := w.consent(), w.consent()
	point(first)
	p := w.proxy("--one-connection", "--target", file)
	c := dial(t, "ws://"+p.addr)
	c.ask("Browser.getVersion", "{}")
	point(second)
	once(t, "ws://"+p.addr, "Browser.getVersion", "{}")
	first.asked(t, 1, 0)
	second.asked(t, 0, 0)
	syscall.Kill(first.pid, syscall.SIGKILL)
	c.lost()
	once(t, "ws://"+p.addr, "Browser.getVersion", "{}")
	first.asked(t, 1, 0)
	second.asked(t, 1, 0)
	p.stop()
}

// The browser is another one at the same address, and asks again.
func TestOneConnectionAgain(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.run("blaunch", "--browser", "chromium"))
	p := w.proxy("--one-connection", "--target", x.Instance.HTTPURL, "--health-interval", "50ms")
	c := dial(t, "ws://"+p.addr)
	c.ask("Browser.getVersion", "{}")
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	c.lost()
	until(t, "the browser is unresponsive", func() bool { return p.do("status").Status.State == "unresponsive" })
	if code, body := get(t, "GET", p.url+"/json/version"); code != 502 || !strings.Contains(body, "does not answer") {
		t.Errorf("without a browser: %d %s", code, body)
	}
	w.run("blaunch", "stop", "--all")
	parse(t, w.pipe(fmt.Sprintf(`{"v":1,"port":%d}`+"\n", x.Instance.Port), "blaunch", "--browser", "chromium"))
	once(t, "ws://"+p.addr, "Browser.getVersion", "{}")
	until(t, "it is well again", func() bool { return p.do("status").Status.State == "foreign" })
	p.stop()
}

func TestOneConnectionRefuses(t *testing.T) {
	w := newWorld(t)
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{"--one-connection"}, "--one-connection needs --target"},
		{[]string{"--one-connection", "--isolate"}, "--one-connection needs --target"},
		{[]string{"--one-connection", "--extension"}, "--one-connection has no effect"},
		{[]string{"--one-connection", "--target", "ws://127.0.0.1:1/session"}, "WebDriver BiDi"},
		{[]string{"--one-connection", "--target", "http://127.0.0.1:1", "--direct"}, "--direct"},
		{[]string{"--one-connection", "--target", "http://127.0.0.1:1", "--idle", "1s"}, "--idle applies to"},
		{[]string{"--target", "http://127.0.0.1:1", "--eager"}, "--eager applies to"},
	} {
		w.run("bproxy", x.args...).wants(t, 64, x.says)
	}
}

// Many clients at once, some of which leave in the middle.
func TestOneConnectionCrowd(t *testing.T) {
	long(t)
	w := newWorld(t)
	chrome := w.consent()
	p := w.proxy("--one-connection", "--target", chrome.wsURL)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			c := dial(t, "ws://"+p.addr)
			for i := range 50 {
				if n%4 == 0 && i == 25 {
					c.conn.Close(1000, "")
					return
				}
				if got := c.ask("Browser.getVersion", "{}"); !strings.Contains(got, `"product"`) ||
					strings.Contains(got, "sessionId") {
					t.Errorf("client %d: %s", n, got)
				}
			}
		})
	}
	all.Wait()
	chrome.asked(t, 1, 0)
	began := time.Now()
	p.stop()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the end took %v", took)
	}
}
