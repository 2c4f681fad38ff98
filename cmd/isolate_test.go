//go:build linux

package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"btools/lib/jsonrpc"
)

func TestIsolatedPort(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("--isolate", "--max-sessions", "2")
	at := "ws" + strings.TrimPrefix(p.url, "http")
	one := at + "/session/one/devtools/browser/one"
	t.Run("what needs no browser launches none", func(t *testing.T) {
		if s := p.do("status"); s.Status.State != "stopped" {
			t.Errorf("before the first client: %+v", s)
		}
		if code, body := get(t, "GET", p.url+"/json/list"); code != 200 || strings.TrimSpace(body) != "[]" {
			t.Errorf("/json/list: %d %s", code, body)
		}
		if code, body := get(t, "GET", p.url+"/session/a%20b/json/version"); code != 400 ||
			!strings.Contains(body, "1 to 64 letters") {
			t.Errorf("a name that is none: %d %s", code, body)
		}
		if s := p.do("status"); s.Status.Launches != 0 {
			t.Errorf("what needs no browser has launched one: %+v", s)
		}
	})
	t.Run("a session sees its own pages, over any number of connections", func(t *testing.T) {
		if got := once(t, one, "Target.createTarget", `{"url":"about:blank#one"}`); !strings.Contains(got, "targetId") {
			t.Fatalf("createTarget: %s, want a targetId", got)
		}
		got := once(t, at+"/session/two/devtools/browser", "Target.getTargets", `{}`)
		if strings.Contains(got, "#one") {
			t.Errorf("a session sees a page of another: %s", got)
		}
		// A client that opens a connection for each command.
		if got := once(t, one, "Target.getTargets", `{}`); !strings.Contains(got, "#one") {
			t.Errorf("a new connection does not see the session's page: %s", got)
		}
	})
	t.Run("one session too many is refused", func(t *testing.T) {
		if code, body := get(t, "GET", p.url+"/session/three/json/list"); code != 503 ||
			!strings.Contains(body, "session_limit") {
			t.Errorf("one session too many: %d %s", code, body)
		}
		if got := p.sessions(); got != "one two" {
			t.Errorf("the sessions are %q", got)
		}
	})
	t.Run("the status has the figures of each session", func(t *testing.T) {
		r := w.run("bproxy", "status")
		var s struct {
			Status struct {
				Active   int `json:"active_sessions"`
				Sessions []struct {
					Name      string
					TabCount  int `json:"tab_count"`
					Clients   int
					StartedAt string `json:"started_at"`
					BytesIn   int64  `json:"bytes_in"`
					BytesOut  int64  `json:"bytes_out"`
				}
			}
		}
		if err := json.Unmarshal([]byte(r.out), &s); err != nil || s.Status.Active != 2 || len(s.Status.Sessions) != 2 {
			t.Fatalf("status: %s", r.out)
		}
		if x := s.Status.Sessions[0]; x.Name != "one" || x.TabCount != 2 || x.StartedAt == "" || x.BytesIn == 0 ||
			x.BytesOut < x.BytesIn {
			t.Errorf("a session's figures are %+v", x)
		}
	})
	t.Run("session end disconnects, session new takes properties", func(t *testing.T) {
		c := dial(t, one)
		w.run("bproxy", "session", "end", "one").wants(t, 0, "")
		c.lost()
		w.run("bproxy", "session", "end", "one").wants(t, 69, "no session \"one\"")
		w.run("bproxy", "session", "new", "two", "--tab-limit", "1").wants(t, 64, "already a session \"two\"")
		w.run("bproxy", "session", "end", "two").wants(t, 0, "")
		for name, says := range map[string]string{"a/b": "1 to 64 letters", "--all": "expected list"} {
			w.run("bproxy", "session", "new", name).wants(t, 64, says)
		}
		w.run("bproxy", "session", "new", "two", "--tab-limit", "-1").wants(t, 64, "tab limit")
		w.run("bproxy", "session", "end", "two", "--tab-limit", "1").wants(t, 64, "new session")
		two := w.run("bproxy", "session", "new", "two", "--tab-limit", "1", "-f", "session.ws_url,session.tab_count")
		two.wants(t, 0, "")
		if want := at + "/session/two/devtools/browser/two\t1\n"; two.out != want {
			t.Errorf("session new printed %q, want %q", two.out, want)
		}
		once(t, at+"/session/two/devtools/browser", "Target.createTarget", `{"url":"about:blank#new"}`)
		until(t, "the session's own tab limit holds", func() bool {
			got := once(t, at+"/session/two/devtools/browser", "Target.getTargets", `{}`)
			return strings.Count(got, `"type":"page"`) == 1 && strings.Contains(got, "#new")
		})
	})
	t.Run("a session that begins again has nothing of before", func(t *testing.T) {
		w.run("bproxy", "session", "end", "--all").wants(t, 0, "")
		if got := p.sessions(); got != "" {
			t.Errorf("after the end of all the sessions are %q", got)
		}
		if got := once(t, one, "Target.getTargets", `{}`); strings.Contains(got, "#one") {
			t.Errorf("a session that begins again has a page of before: %s", got)
		}
	})
	p.stop()
	w.clean()
}

func TestIsolateRefuses(t *testing.T) {
	w := newWorld(t)
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{"--isolate", "--direct"}, "--direct"},
		{[]string{"--isolate", "--browser", "firefox"}, "Firefox speaks WebDriver BiDi"},
		{[]string{"--isolate", "--target", "ws://127.0.0.1:1/session"}, "WebDriver BiDi"},
		{[]string{"--isolate", "--default-session", "a/b"}, "1 to 64 letters"},
		{[]string{"--isolate", "--max-sessions", "0"}, "1 or more"},
		{[]string{"--tab-limit", "3"}, "--isolate"},
	} {
		w.run("bproxy", x.args...).wants(t, 64, x.says)
	}
	p := w.proxy("--isolate")
	w.run("bproxy", "launch", "--browser", "firefox").wants(t, 64, "Firefox")
	p.stop()
	p = w.proxy()
	port := strings.TrimPrefix(p.addr, "127.0.0.1:")
	w.run("bproxy", "session", "list", "--port", port).wants(t, 64, "start it with --isolate")
	w.run("bproxy", "session", "end", "x").wants(t, 69, "no bproxy --isolate is running")
	p.stop()
}

// The guard is before all paths, and no answer holds the token.
func TestIsolatedToken(t *testing.T) {
	w := newWorld(t)
	token := w.dir + "/token"
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.proxy("--isolate", "--token-file", token)
	for _, path := range []string{"/json/version", "/json/list", "/session/a/json/list", "/session/a/devtools/browser",
		"/devtools/browser"} {
		if code, _ := get(t, "GET", p.url+path); code != 401 {
			t.Errorf("%s without the token: %d", path, code)
		}
	}
	for _, x := range [][2]string{{"GET", "/json/version?token=secret"}, {"GET", "/session/a/json/list?token=secret"},
		{"PUT", "/session/a/json/new?about:blank%23x&token=secret"}} {
		if code, body := get(t, x[0], p.url+x[1]); code != 200 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", x[1], code, body)
		}
	}
	at := "ws" + strings.TrimPrefix(p.url, "http")
	if got := once(t, at+"/session/a/devtools/browser/a?token=secret", "Target.getTargets", `{}`); !strings.Contains(
		got,
		"about:blank#x") || strings.Contains(got, "secret") {
		t.Errorf("the targets are %s, want about:blank#x, without the token", got)
	}
	if _, resp := p.socket("/session/a/devtools/browser", "Origin: http://evil.example",
		"Authorization: Bearer secret"); resp.StatusCode != 403 {
		t.Errorf("a web page's WebSocket: %d", resp.StatusCode)
	}
	p.stop()
	w.clean()
}

// Chrome is killed: all clients are disconnected at once, and what is named
// is there again, empty, on the next one.
func TestIsolatedBrowserKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy("--isolate")
	at := "ws" + strings.TrimPrefix(p.url, "http")
	var all []*wire
	for _, path := range []string{"/session/one/devtools/browser/one", "/session/two/devtools/browser",
		"/devtools/browser/x", "/devtools/browser"} {
		c := dial(t, at+path)
		if got := c.ask("Target.createTarget", `{"url":"about:blank#mine"}`); !strings.Contains(got, "targetId") {
			t.Fatalf("createTarget: %s, want a targetId", got)
		}
		all = append(all, c)
	}
	syscall.Kill(p.do("status").Instance.PID, syscall.SIGKILL)
	for _, c := range all {
		c.lost()
	}
	if got := once(t, at+"/session/one/devtools/browser/one", "Target.getTargets", `{}`); strings.Contains(
		got, "#mine") ||
		!strings.Contains(got, "about:blank") {
		t.Errorf("a named session on the next browser has %s", got)
	}
	if s := p.do("status"); s.Status.Launches != 2 {
		t.Errorf("%+v, want 2 launches", s)
	}
	// One that is restarted is no different.
	c := dial(t, at+"/session/one/devtools/browser/one")
	p.do("restart")
	c.lost()
	once(t, at+"/session/one/devtools/browser/one", "Target.getTargets", `{}`)
	p.stop()
	w.clean()
}

// A browser that is somebody else's has no context of ours when bproxy is
// killed, nor when it stops.
func TestIsolatedTarget(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.run("blaunch", "--browser", "chromium"))
	chrome := dial(t, x.Instance.WSURL)
	contexts := func() int {
		var got struct {
			Result struct {
				IDs []string `json:"browserContextIds"`
			}
		}
		if err := json.Unmarshal([]byte(chrome.ask("Target.getBrowserContexts", `{}`)), &got); err != nil {
			t.Fatal(err)
		}
		return len(got.Result.IDs)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p := w.proxy("--isolate", "--target", x.Instance.HTTPURL)
		at := "ws" + strings.TrimPrefix(p.url, "http")
		one, two := dial(t, at+"/session/one/devtools/browser/one"), dial(t, at+"/devtools/browser")
		for _, c := range []*wire{one, two} {
			if got := c.ask("Target.createBrowserContext", `{}`); !strings.Contains(got, "browserContextId") {
				t.Fatalf("createBrowserContext: %s, want a browserContextId", got)
			}
		}
		if n := contexts(); n != 4 {
			t.Errorf("two sessions with two contexts each have %d", n)
		}
		p.cmd.Process.Signal(sig)
		one.lost()
		two.lost()
		p.cmd.Wait()
		until(t, "no context is left", func() bool { return contexts() == 0 })
	}
}

// A browser of somebody else that dies takes the clients with it; named
// sessions are there again on the next one at its address.
func TestIsolatedTargetKilled(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.run("blaunch", "--browser", "chromium"))
	p := w.proxy("--isolate", "--tab-limit", "2", "--target", x.Instance.HTTPURL)
	url := "ws" + strings.TrimPrefix(p.url, "http") + "/session/one/devtools/browser/one"
	c := dial(t, url)
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	c.lost()
	until(t, "bproxy says that there is no browser", func() bool {
		code, body := get(t, "GET", p.url+"/session/one/json/list")
		return code == 502 && strings.Contains(body, "error")
	})
	w.run("blaunch", "stop", "--all")
	parse(t, w.pipe(fmt.Sprintf(`{"v":1,"port":%d}`+"\n", x.Instance.Port), "blaunch", "--browser", "chromium"))
	for range 3 {
		if got := once(t, url, "Target.createTarget", `{"url":"about:blank#new"}`); !strings.Contains(got, "targetId") {
			t.Errorf("%s\nlacks %q", got, "targetId")
		}
	}
	until(t, "--tab-limit holds", func() bool {
		return strings.Count(once(t, url, "Target.getTargets", `{}`), `"type":"page"`) == 2
	})
	p.stop()
}

// bproxy is killed, and leaves no browser.
func TestIsolatedProxyKilled(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("--isolate")
	c := dial(t, "ws"+strings.TrimPrefix(p.url, "http")+"/session/one/devtools/browser/one")
	c.ask("Target.createTarget", `{"url":"about:blank"}`)
	p.cmd.Process.Kill()
	p.cmd.Wait()
	c.lost()
	w.clean()
}

// A session has the browser's profile, which is kept; the others don't.
func TestDefaultSession(t *testing.T) {
	t.Parallel()
	site := clientSite(t)
	w := newWorld(t)
	cookie := fmt.Sprintf(`{"cookies":[{"name":"kept","value":"yes","url":%q,"expires":%d}]}`, site,
		time.Now().Add(time.Hour).Unix())
	args := []string{"--isolate", "--default-session", "me", "--profile", w.dir + "/profile"}
	p := w.proxy(args...)
	at := "ws" + strings.TrimPrefix(p.url, "http")
	if got := once(t, at+"/session/me/devtools/browser", "Storage.setCookies", cookie); strings.Contains(got, "error") {
		t.Fatalf("setCookies: %s", got)
	}
	if got := once(t, at+"/session/other/devtools/browser", "Storage.getCookies", `{}`); strings.Contains(got, "kept") {
		t.Errorf("another session has the profile's cookie: %s", got)
	}
	foreign := once(t, at+"/session/other/devtools/browser", "Target.createTarget", `{"url":"about:blank#other"}`)
	if got := once(t, at+"/session/me/devtools/browser", "Target.getTargets", `{}`); strings.Contains(got, "#other") {
		t.Errorf("the session with the profile sees another's page, %s: %s", foreign, got)
	}
	p.stop()
	p = w.proxy(args...)
	at = "ws" + strings.TrimPrefix(p.url, "http")
	if got := once(t, at+"/session/me/devtools/browser", "Storage.getCookies", `{}`); !strings.Contains(got, "kept") {
		t.Errorf("the profile's cookie is gone after a restart: %s", got)
	}
	// It is the user's own: it may open files and trace its pages, and others
	// may not.
	for name, may := range map[string]bool{"me": true, "other": false} {
		session := p.url + "/session/" + name
		root := dial(t, at+"/session/"+name+"/devtools/browser")
		if got := root.ask("Target.createTarget", `{"url":"file:///etc/hostname"}`); strings.Contains(
			got, "error") == may {
			t.Errorf("%s opens a file: %s", name, got)
		}
		root.ask("Target.createTarget", `{"url":"about:blank"}`)
		_, list := get(t, "GET", session+"/json/list")
		id := jsonrpc.GetString(slices.Collect(jsonrpc.Elements([]byte(list)))[0], "id")
		page := dial(t, at+"/session/"+name+"/devtools/page/"+id)
		if got := page.ask("Page.navigate", `{"url":"FILE:///etc/hostname"}`); strings.Contains(got, "error") == may {
			t.Errorf("%s goes to a file: %s", name, got)
		}
		if got := page.ask("Tracing.start", `{}`); strings.Contains(got, "error") == may {
			t.Errorf("%s traces: %s", name, got)
		}
		if got := page.ask("Page.navigate", `{"url":"chrome://version"}`); !strings.Contains(got, "error") {
			t.Errorf("%s opens a page of Chrome's: %s", name, got)
		}
		if got := page.ask("Tracing.end", `{}`); may && strings.Contains(got, "error") {
			t.Errorf("%s ends its trace: %s", name, got)
		}
	}
	// Its end leaves the profile, and the next use finds it.
	w.run("bproxy", "session", "end", "me").wants(t, 0, "")
	if got := once(t, at+"/session/me/devtools/browser", "Storage.getCookies", `{}`); !strings.Contains(got, "kept") {
		t.Errorf("the profile's cookie is gone after the end of its session: %s", got)
	}
	p.stop()
	w.clean()
}

// With --idle-by connections, a browser ends when it has no session any more,
// not while it has one.
func TestIsolatedIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy("--isolate", "--idle", "300ms", "--session-grace", "0s", "--idle-by", "connections")
	at := "ws" + strings.TrimPrefix(p.url, "http")
	once(t, at+"/session/one/devtools/browser", "Browser.getVersion", `{}`)
	time.Sleep(time.Second) // longer than --idle: what is tested is that nothing happens
	if s := p.do("status"); s.Status.State != "ready" {
		t.Errorf("the browser ended under a session: %+v", s.Status)
	}
	w.run("bproxy", "session", "end", "one").wants(t, 0, "")
	until(t, "the browser ends", func() bool { return p.do("status").Status.State == "stopped" })
	p.stop()
	w.clean()
}

// A browser ends when its clients send nothing, not while one waits for an
// answer. The next command has another browser.
func TestIsolatedIdleByTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const idle = 2 * time.Second
	p := w.proxy("--isolate", "--idle", idle.String())
	at := "ws" + strings.TrimPrefix(p.url, "http") + "/session/one/devtools/"
	silent := dial(t, at+"browser")
	silent.ask("Browser.getVersion", `{}`)
	target := jsonrpc.GetString(jsonrpc.Get([]byte(silent.ask("Target.createTarget", `{"url":"about:blank"}`)),
		"result"),
		"targetId")
	waiting := dial(t, at+"page/"+target)
	began := time.Now()
	waiting.ask("Runtime.evaluate", fmt.Sprintf(
		`{"awaitPromise":true,"expression":"new Promise(f => setTimeout(f, %d))"}`, (2*idle).Milliseconds()))
	if time.Since(began) < 2*idle || p.do("status").Status.State != "ready" {
		t.Errorf("the browser was stopped under a client that waits: %+v", p.do("status").Status)
	}
	silent.lost()
	waiting.lost()
	until(t, "the browser ends", func() bool { return p.do("status").Status.State == "stopped" })
	before := p.do("status").Status.Launches
	once(t, at+"browser", "Browser.getVersion", `{}`)
	if s := p.do("status"); s.Status.Launches != before+1 {
		t.Errorf("the next command has launched no other browser: %+v", s)
	}
	p.stop()
	w.clean()
}

// A download keeps the browser, although its client has nothing to send.
func TestIdleDownload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const idle = time.Second
	finish := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(w, strings.Repeat("x", 4<<10))
		w.(http.Flusher).Flush()
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	}))
	defer site.Close()
	defer site.CloseClientConnections()
	p := w.proxy("--idle", idle.String())
	c := dial(t, "ws"+strings.TrimPrefix(p.url, "http")+"/devtools/browser")
	c.ask("Browser.setDownloadBehavior",
		fmt.Sprintf(`{"behavior":"allowAndName","downloadPath":%q,"eventsEnabled":true}`, w.dir))
	c.ask("Target.createTarget", fmt.Sprintf(`{"url":%q}`, site.URL))
	c.askUntilTold("Browser.downloadWillBegin")
	time.Sleep(3 * idle) // what is tested is that nothing happens
	if s := p.do("status"); s.Status.State != "ready" {
		t.Errorf("the browser was stopped while it downloads a file: %+v", s.Status)
	}
	close(finish)
	c.lost()
	until(t, "the browser ends", func() bool { return p.do("status").Status.State == "stopped" })
	p.stop()
	w.clean()
}

// A command gets an address whose clients share one browser.
func TestIsolatedCommand(t *testing.T) {
	w := newWorld(t)
	r := w.run("bproxy", "--isolate", "--no-input", "--", "sh", "-c",
		"echo $BTOOLS_CDP_URL $BTOOLS_WS_URL; bproxy session list -f session.name")
	r.wants(t, 0, "")
	cdp, ws, _ := strings.Cut(strings.TrimSpace(r.out), " ")
	if want := strings.Replace(cdp, "http", "ws", 1) + "/session/default/devtools/browser/default"; ws != want {
		t.Errorf("the addresses are %q and %q", cdp, ws)
	}
	w.clean()
}

// isolatedSite serves the pages of scripts/clients/isolated.mjs. What a page
// leads to has the page's own query, by which it is known whose it is.
func isolatedSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := r.URL.RawQuery
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=file.txt")
			fmt.Fprint(w, who)
		case "/worker.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, "postMessage(location.search)")
		case "/sw.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, "onmessage = (e) => e.source.postMessage(location.search); onfetch = () => {}; "+
				"oninstall = () => "+
				"skipWaiting()")
		case "/page":
			_, port, _ := strings.Cut(r.Host, ":")
			fmt.Fprintf(w, "<!doctype html><title>/page</title><a id=popup target=_blank href=/popup?%[1]s>"+
				"pop-up</a> <a id=download href=/file?%[1]s>file</a>"+
				"<iframe src=http://localhost:%[2]s/frame?%[1]s></iframe>", who, port)
		default:
			fmt.Fprintf(w, "<!doctype html><title>%[1]s</title><h1>%[1]s</h1>", r.URL.Path)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// twice is two of each client.
func twice(scripts ...string) []string { return append(scripts, scripts...) }

// isolatedClients runs clients at once, each at the addresses that at gives it.
// All of them must end well.
func isolatedClients(t *testing.T, p *proxy, site string, at func(who string) (http, ws string), scripts ...string) {
	t.Helper()
	dir, err := filepath.Abs("../scripts/clients")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/node_modules"); err != nil {
		t.Fatalf("the clients are not installed (scripts/install-deps test does it): %v", err)
	}
	var wg sync.WaitGroup
	for i, script := range scripts {
		who := fmt.Sprintf("%s-%d", strings.TrimSuffix(strings.TrimPrefix(script, "isolated-"), ".mjs"), i)
		httpURL, wsURL := at(who)
		c := p.w.cmd("node", filepath.Join(dir, script), httpURL, wsURL, site, who, p.w.dir)
		c.Env = slices.Concat(c.Env, []string{"HOME=" + p.w.dir}) // others share what follows it
		wg.Go(func() {
			if out, err := c.CombinedOutput(); err != nil || string(out) != "done\n" {
				t.Errorf("%s: %v\n%s", who, err, out)
			}
		})
	}
	wg.Wait()
}

// Two Playwright and two Puppeteer clients at once, each with an anonymous
// session each time.
func TestIsolatedClients(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	p := w.proxy("--isolate", "--session-grace", "0s")
	isolatedClients(t, p, site, func(string) (string, string) { return p.url, "" }, "isolated-playwright.mjs",
		"isolated-puppeteer.mjs")
	until(t, "the sessions end", func() bool { return p.sessions() == "" })
	p.launched(1, 0)
	p.stop()
	w.clean()
}

// The same on named sessions, which keep what they have over three
// connections, and with clients that open a connection for each page. The
// session of one of them is the browser's default context.
func TestClientsOfSessions(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	p := w.proxy("--isolate", "--default-session", "playwright-0")
	at := func(who string) (string, string) {
		return p.url + "/session/" + who, "ws" + strings.TrimPrefix(p.url, "http") + "/session/" + who +
			"/devtools/browser/" + who
	}
	var wg sync.WaitGroup
	for _, who := range []string{"chromedp-1", "chromedp-2"} {
		wg.Go(func() {
			_, ws := at(who)
			chromedpSession(t, ws, site, who)
		})
	}
	isolatedClients(t, p, site, at, twice("isolated-playwright.mjs", "isolated-puppeteer.mjs", "isolated-cri.mjs")...)
	wg.Wait()
	if got := len(strings.Fields(p.sessions())); got != 8 {
		t.Errorf("there are %d sessions, want 8: %s", got, p.sessions())
	}
	p.launched(1, 0)
	p.stop()
	w.clean()
}

// chromedpSession is a client by chromedp, which takes no address of a browser
// but one that ends in /devtools/browser/ID.
func chromedpSession(t *testing.T, url, site, who string) {
	bound, cancel := context.WithTimeout(t.Context(), clientBound)
	defer cancel()
	for round := range 3 {
		browser, disconnect := remote.NewAllocator(bound, url)
		defer disconnect()
		tab, _ := chromedp.NewContext(browser)
		if err := chromedp.Do(tab, chromedp.Navigate(site+"/page?"+who)); err != nil {
			t.Errorf("%s, round %d: %v", who, round, err)
			return
		}
		if title, err := chromedp.Run(tab, chromedp.Title()); err != nil || title != "/page" {
			t.Errorf("%s, round %d: the page has the title %q, %v", who, round, title, err)
		}
		targets, err := chromedp.Targets(tab)
		if err != nil {
			t.Errorf("%s, round %d: %v", who, round, err)
		}
		for _, x := range targets {
			if x.URL != "about:blank" && !strings.HasSuffix(x.URL, "?"+who) {
				t.Errorf("%s sees %s", who, x.URL)
			}
		}
		disconnect()
	}
}

// The port's own address is a session's, whoever connects, and a session can
// have a port to itself: for clients that take no path.
func TestPortOfASession(t *testing.T) {
	w := newWorld(t)
	p := w.proxy("--isolate", "--root-session", "me", "--default-session", "me")
	at := "ws" + strings.TrimPrefix(p.url, "http")
	once(t, at+"/devtools/browser", "Target.createTarget", `{"url":"about:blank#mine"}`)
	once(t, at+"/session/other/devtools/browser", "Target.createTarget", `{"url":"about:blank#other"}`)
	for _, target := range []string{p.url + "/session/other", at + "/session/other/devtools/browser/other"} {
		alone := w.proxy("--target", target)
		for _, c := range []struct{ url, has, lacks string }{
			{p.url, "#mine", "#other"}, {p.url + "/session/me", "#mine", "#other"}, {alone.url, "#other", "#mine"},
		} {
			_, body := get(t, "GET", c.url+"/json/list")
			if !strings.Contains(body, c.has) || strings.Contains(body, c.lacks) {
				t.Errorf("%s/json/list: %s", c.url, body)
			}
			_, body = get(t, "GET", c.url+"/json/version")
			ws := jsonrpc.GetString([]byte(body), "webSocketDebuggerUrl")
			if !strings.HasPrefix(ws, "ws"+strings.TrimPrefix(c.url, "http")+"/devtools/browser") {
				t.Errorf("%s says that its WebSocket is %q", c.url, ws)
				continue
			}
			if got := once(t, ws, "Target.getTargets", `{}`); !strings.Contains(got, c.has) ||
				strings.Contains(got, c.lacks) {
				t.Errorf("%s has the targets %s, want %q and not %q", ws, got, c.has, c.lacks)
			}
		}
		_, body := get(t, "GET", alone.url+"/json/list")
		var pages []struct{ URL, WSURL string }
		json.Unmarshal([]byte(strings.ReplaceAll(body, "webSocketDebuggerUrl", "WSURL")), &pages)
		if len(pages) == 0 || !strings.HasPrefix(pages[0].WSURL,
			"ws"+strings.TrimPrefix(alone.url, "http")+"/devtools/page/") {
			t.Fatalf("the pages are %s, want addresses of %s", body, alone.url)
		}
		if got := once(t, pages[0].WSURL, "Runtime.evaluate", `{"expression":"6*7"}`); !strings.Contains(got, "42") {
			t.Errorf("%s\nlacks %q", got, "42")
		}
		alone.stop()
	}
	p.stop()
	w.clean()
}
