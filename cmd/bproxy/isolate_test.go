//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

func TestIsolatedPort(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--max-sessions", "2")
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	one := at + "/session/one/devtools/browser/one"
	t.Run("what needs no browser launches none", func(t *testing.T) {
		if s := p.Do("status"); s.Status.State != "stopped" {
			t.Errorf("before the first client: %+v", s)
		}
		if code, body := cmdtest.Get(t, "GET", p.URL+"/json/list"); code != 200 || strings.TrimSpace(body) != "[]" {
			t.Errorf("/json/list: %d %s", code, body)
		}
		if code, body := cmdtest.Get(t, "GET", p.URL+"/session/a%20b/json/version"); code != 400 ||
			!strings.Contains(body, "1 to 64 letters") {
			t.Errorf("a name that is none: %d %s", code, body)
		}
		if _, b := cmdtest.Get(t, "GET", p.URL+"/json/version", "User-Agent: chromedriver"); !strings.Contains(b,
			"--root-session") {
			t.Errorf("chromedriver is told %s", b)
		}
		if s := p.Do("status"); s.Status.Launches != 0 {
			t.Errorf("what needs no browser has launched one: %+v", s)
		}
	})
	t.Run("a session sees its own pages, over any number of connections", func(t *testing.T) {
		if got := cmdtest.AskOnce(t, one, "Target.createTarget", `{"url":"about:blank#one"}`); !strings.Contains(got,
			"targetId") {
			t.Fatalf("createTarget: %s, want a targetId", got)
		}
		got := cmdtest.AskOnce(t, at+"/session/two/devtools/browser", "Target.getTargets", `{}`)
		if strings.Contains(got, "#one") {
			t.Errorf("a session sees a page of another: %s", got)
		}
		// A client that opens a connection for each command.
		if got := cmdtest.AskOnce(t, one, "Target.getTargets", `{}`); !strings.Contains(got, "#one") {
			t.Errorf("a new connection does not see the session's page: %s", got)
		}
	})
	t.Run("one session too many is refused", func(t *testing.T) {
		if code, body := cmdtest.Get(t, "GET", p.URL+"/session/three/json/list"); code != 503 ||
			!strings.Contains(body, "session_limit") {
			t.Errorf("one session too many: %d %s", code, body)
		}
		if got := p.Sessions(); got != "one two" {
			t.Errorf("the sessions are %q", got)
		}
	})
	t.Run("the status has the figures of each session", func(t *testing.T) {
		r := w.Run("bproxy", "status")
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
		if err := json.Unmarshal([]byte(r.Out), &s); err != nil || s.Status.Active != 2 || len(s.Status.Sessions) != 2 {
			t.Fatalf("status: %s", r.Out)
		}
		if x := s.Status.Sessions[0]; x.Name != "one" || x.TabCount != 2 || x.StartedAt == "" || x.BytesIn == 0 ||
			x.BytesOut < x.BytesIn {
			t.Errorf("a session's figures are %+v", x)
		}
	})
	t.Run("session end disconnects, session new takes properties", func(t *testing.T) {
		c := cmdtest.Dial(t, one)
		w.Run("bproxy", "session", "end", "one").Exits(t, 0, "")
		c.AwaitEnd()
		w.Run("bproxy", "session", "end", "one").Exits(t, 69, "no session \"one\"")
		w.Run("bproxy", "session", "new", "two", "--tab-limit", "1").Exits(t, 64, "already a session \"two\"")
		w.Run("bproxy", "session", "end", "two").Exits(t, 0, "")
		for name, says := range map[string]string{"a/b": "1 to 64 letters", "--all": "expected list"} {
			w.Run("bproxy", "session", "new", name).Exits(t, 64, says)
		}
		w.Run("bproxy", "session", "new", "two", "--tab-limit", "-1").Exits(t, 64, "--tab-limit")
		w.Run("bproxy", "session", "end", "two", "--tab-limit", "1").Exits(t, 64, "new session")
		two := w.Run("bproxy", "session", "new", "two", "--tab-limit", "1", "-f", "session.ws_url,session.tab_count")
		two.Exits(t, 0, "")
		if want := at + "/session/two/devtools/browser/two\t1\n"; two.Out != want {
			t.Errorf("session new printed %q, want %q", two.Out, want)
		}
		cmdtest.AskOnce(t, at+"/session/two/devtools/browser", "Target.createTarget", `{"url":"about:blank#new"}`)
		cmdtest.Until(t, "the session's own tab limit holds", func() bool {
			got := cmdtest.AskOnce(t, at+"/session/two/devtools/browser", "Target.getTargets", `{}`)
			return strings.Count(got, `"type":"page"`) == 1 && strings.Contains(got, "#new")
		})
	})
	t.Run("a session that begins again has nothing of before", func(t *testing.T) {
		w.Run("bproxy", "session", "end", "--all").Exits(t, 0, "")
		if got := p.Sessions(); got != "" {
			t.Errorf("after the end of all the sessions are %q", got)
		}
		if got := cmdtest.AskOnce(t, one, "Target.getTargets", `{}`); strings.Contains(got, "#one") {
			t.Errorf("a session that begins again has a page of before: %s", got)
		}
	})
	t.Run("a command finds the proxy of a session, and leaves that of another program alone", func(t *testing.T) {
		theirs := w.Proxy("--isolate", "--owner", "bmcp 7")
		_, port, _ := strings.Cut(theirs.Addr, ":")
		if r := w.Run("bproxy", "status", "-f", "proxy.http_url"); r.Out != p.URL+"\n" {
			t.Errorf("status is that of %s%s", r.Out, r.Err)
		}
		w.Run("bproxy", "session", "new", "theirs", "--port", port).Exits(t, 0, "")
		w.Run("bproxy", "session", "new", "ours").Exits(t, 0, "")
		if r := w.Run("bproxy", "session", "list", "--output", "table"); !strings.Contains(r.Out, "bmcp 7") ||
			strings.Contains(r.Out, "bmcp 7  "+at) || !regexp.MustCompile(` [0-9]+s `).MatchString(r.Out) {
			t.Errorf("the table of sessions:\n%s", r.Out)
		}
		if r := w.Run("bproxy", "list", "--output", "table"); !strings.Contains(r.Out, "OWNER") {
			t.Errorf("the table of proxies:\n%s", r.Out)
		}
		w.Run("bproxy", "downloads", "theirs").Exits(t, 0, "")
		w.Run("bproxy", "session", "new", "ours", "--port", port).Exits(t, 0, "")
		w.Run("bproxy", "session", "end", "ours").Exits(t, 0, "")
		w.Run("bproxy", "session", "end", "nobodys").Exits(t, 69, "they listen on")
		w.Run("bproxy", "session", "end", "--all").Exits(t, 0, "")
		if got := p.Sessions(); got != "theirs ours" {
			t.Errorf("the sessions of the other program are %q", got)
		}
		w.Run("bproxy", "session", "end", "theirs").Exits(t, 0, "")
		theirs.Stop()
	})
	p.Stop()
	w.Clean()
}

func TestIsolateRefuses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{"--isolate", "--direct"}, "--direct"},
		{[]string{"--isolate", "--browser", "firefox"}, "Firefox speaks WebDriver BiDi"},
		{[]string{"--isolate", "--target", "ws://127.0.0.1:1/session"}, "WebDriver BiDi"},
		{[]string{"--isolate", "--default-session", "a/b"}, "1 to 64 letters"},
		{[]string{"--isolate", "--max-sessions", "0"}, "1 or more"},
		{[]string{"--tab-limit", "3"}, "bproxy share"},
		{[]string{"share", "--direct"}, "--direct is an option of bproxy, not of bproxy share"},
		{[]string{"hub", "--browser", "chrome"}, "an option of bproxy, bproxy share, bproxy launch, not of bproxy hub"},
		{[]string{"hub", "--hibernate", "5m"}, "--hibernate is an option of bproxy share, not of bproxy hub"},
		{[]string{"share", "--ports", "1-2"}, "--ports is an option of bproxy hub, not of bproxy share"},
		{[]string{"share", "--allow-origins", "https://a.test/path"}, "an origin does not have"},
		{[]string{"share", "--block-private", "--default-session", "me"}, "which has no limits"},
		{[]string{"share", "--block-private", "--proxy", "http://a.test", "--proxy-bypass", "b"}, "--proxy-bypass"},
		{[]string{"session", "lst"}, "did you mean list?"},
		{[]string{"session", "agent-7"}, "expected list, new NAME"},
		{[]string{"state", "exprot", "x"}, "did you mean export?"},
	} {
		w.Run("bproxy", x.args...).Exits(t, 64, x.says)
	}
	w.Run("bproxy", "share", "--init-script", "/none").Exits(t, 78, "cannot be read: open /none")
	w.Run("bproxy", "share", "--init-script", "/").Exits(t, 78, "is a directory")
	p := w.Proxy("share", "--session-throttle", "1m")
	w.Run("bproxy", "launch", "--browser", "firefox").Exits(t, 64, "Firefox")
	p.Stop()
	p = w.Proxy()
	port := strings.TrimPrefix(p.Addr, "127.0.0.1:")
	w.Run("bproxy", "session", "list", "--port", port).Exits(t, 64, "start bproxy share")
	w.Run("bproxy", "session", "end", "x").Exits(t, 69, "no bproxy share is running")
	p.Stop()
}

// The guard is before all paths, and no answer holds the token.
func TestIsolatedToken(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	token := w.Dir + "/token"
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.Proxy("--isolate", "--token-file", token)
	for _, path := range []string{"/json/version", "/json/list", "/session/a/json/list", "/session/a/devtools/browser",
		"/devtools/browser"} {
		if code, _ := cmdtest.Get(t, "GET", p.URL+path); code != 401 {
			t.Errorf("%s without the token: %d", path, code)
		}
	}
	for _, x := range [][2]string{{"GET", "/json/version?token=secret"}, {"GET", "/session/a/json/list?token=secret"},
		{"PUT", "/session/a/json/new?about:blank%23x&token=secret"}} {
		if code, body := cmdtest.Get(t, x[0], p.URL+x[1]); code != 200 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", x[1], code, body)
		}
	}
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	if got := cmdtest.AskOnce(t, at+"/session/a/devtools/browser/a?token=secret", "Target.getTargets",
		`{}`); !strings.Contains(
		got,
		"about:blank#x") || strings.Contains(got, "secret") {
		t.Errorf("the targets are %s, want about:blank#x, without the token", got)
	}
	if _, resp := p.Socket("/session/a/devtools/browser", "Origin: http://evil.example",
		"Authorization: Bearer secret"); resp.StatusCode != 403 {
		t.Errorf("a web page's WebSocket: %d", resp.StatusCode)
	}
	p.Stop()
	w.Clean()
}

// Chrome is killed, and replaced: all clients are disconnected at once, and what is
// named is there again on the next one, logged in, at its page.
func TestIsolatedBrowserKilled(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	p := w.Proxy("--isolate")
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	var all []*cmdtest.Wire
	for _, path := range []string{"/session/two/devtools/browser", "/devtools/browser/x", "/devtools/browser"} {
		c := cmdtest.Dial(t, at+path)
		if got := c.Ask("Target.createTarget", `{"url":"about:blank#mine"}`); !strings.Contains(got, "targetId") {
			t.Fatalf("createTarget: %s, want a targetId", got)
		}
		all = append(all, c)
	}
	page := cmdtest.FirstPage(t, p.URL+"/session/one")
	page.Open(site + "/login")
	page.AwaitTitle("logged in")
	kept := func() {
		t.Helper()
		after := time.Now()
		page.AwaitTitle("shows ann, s3cret-token, s3cret-key") // a use, so that a save follows one that has begun
		cmdtest.Until(t, "the session is kept", func() bool {
			var at time.Time
			list := w.Run("bproxy", "session", "list", "-f", "session.name,session.kept_at").Out
			for line := range strings.Lines(list) {
				if name, kept, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name == "one" {
					at, _ = time.Parse(time.RFC3339Nano, kept)
				}
			}
			return at.After(after)
		})
	}
	for _, end := range []func(){
		func() { syscall.Kill(p.Do("status").Instance.PID, syscall.SIGKILL) },
		func() { p.Do("restart") },
		func() { // whose end is told three seconds later
			i := p.Do("status").Instance
			syscall.Kill(i.SupervisorPID, syscall.SIGSTOP)
			syscall.Kill(i.PID, syscall.SIGKILL)
			time.AfterFunc(3*time.Second, func() { syscall.Kill(i.SupervisorPID, syscall.SIGCONT) })
		},
	} {
		page.Open(site + "/inbox")
		page.AwaitTitle("shows ann, s3cret-token, s3cret-key")
		kept()
		end()
		for _, c := range all {
			c.AwaitEnd()
		}
		all = nil
		page.AwaitEnd()
		page = cmdtest.FirstPage(t, p.URL+"/session/one")
		page.AwaitTitle("shows ann, s3cret-token, s3cret-key")
		got := page.Ask("Runtime.evaluate", `{"expression":"location.href"}`)
		if !strings.Contains(got, site+"/inbox") {
			t.Errorf("the page is at %s, want %s/inbox", got, site)
		}
	}
	if s := p.Do("status"); s.Status.Launches != 4 {
		t.Errorf("%+v, want 4 launches", s)
	}
	p.Stop()
	w.Clean()
}

// A browser that is somebody else's has no context of ours when bproxy is
// killed, nor when it stops.
func TestIsolatedTarget(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch", "--browser", "chrome-headless-shell"))
	chrome := cmdtest.Dial(t, x.Instance.WSURL)
	contexts := func() int {
		var got struct {
			Result struct {
				IDs []string `json:"browserContextIds"`
			}
		}
		if err := json.Unmarshal([]byte(chrome.Ask("Target.getBrowserContexts", `{}`)), &got); err != nil {
			t.Fatal(err)
		}
		return len(got.Result.IDs)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p := w.Proxy("--isolate", "--target", x.Instance.HTTPURL)
		at := "ws" + strings.TrimPrefix(p.URL, "http")
		one, two := cmdtest.Dial(t, at+"/session/one/devtools/browser/one"), cmdtest.Dial(t, at+"/devtools/browser")
		for _, c := range []*cmdtest.Wire{one, two} {
			if got := c.Ask("Target.createBrowserContext", `{}`); !strings.Contains(got, "browserContextId") {
				t.Fatalf("createBrowserContext: %s, want a browserContextId", got)
			}
		}
		if n := contexts(); n != 4 {
			t.Errorf("two sessions with two contexts each have %d", n)
		}
		if got := p.Errs.String(); strings.Count(got, "pages of other sessions cannot") != 1 {
			t.Errorf("it does not warn once of the browser's own port:\n%s", got)
		}
		p.Cmd.Process.Signal(sig)
		one.AwaitEnd()
		two.AwaitEnd()
		p.Cmd.Wait()
		cmdtest.Until(t, "no context is left", func() bool { return contexts() == 0 })
	}
}

// A browser of somebody else that dies takes the clients with it; named
// sessions are there again on the next one at its address.
func TestIsolatedTargetKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch", "--browser", "chrome-headless-shell"))
	p := w.Proxy("--isolate", "--tab-limit", "2", "--target", x.Instance.HTTPURL)
	url := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/browser/one"
	c := cmdtest.Dial(t, url)
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	c.AwaitEnd()
	cmdtest.Until(t, "bproxy says that there is no browser", func() bool {
		code, body := cmdtest.Get(t, "GET", p.URL+"/session/one/json/list")
		return code == 502 && strings.Contains(body, "error")
	})
	w.Run("blaunch", "stop", "--all")
	cmdtest.Parse(t, w.Pipe(fmt.Sprintf(`{"v":1,"port":%d}`+"\n", x.Instance.Port), "blaunch", "--browser",
		"chrome-headless-shell"))
	for range 3 {
		if got := cmdtest.AskOnce(t, url, "Target.createTarget", `{"url":"about:blank#new"}`); !strings.Contains(got,
			"targetId") {
			t.Errorf("%s\nlacks %q", got, "targetId")
		}
	}
	cmdtest.Until(t, "--tab-limit holds", func() bool {
		return strings.Count(cmdtest.AskOnce(t, url, "Target.getTargets", `{}`), `"type":"page"`) == 2
	})
	p.Stop()
}

// bproxy is killed, and leaves no browser.
func TestIsolatedProxyKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate")
	c := cmdtest.Dial(t, "ws"+strings.TrimPrefix(p.URL, "http")+"/session/one/devtools/browser/one")
	c.Ask("Target.createTarget", `{"url":"about:blank"}`)
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	c.AwaitEnd()
	w.Clean()
}

// A session has the browser's profile, which is kept; the others don't.
func TestDefaultSession(t *testing.T) {
	t.Parallel()
	site := cmdtest.ClientSite(t)
	w := cmdtest.New(t)
	cookie := fmt.Sprintf(`{"cookies":[{"name":"kept","value":"yes","url":%q,"expires":%d}]}`, site,
		time.Now().Add(time.Hour).Unix())
	args := []string{"--isolate", "--default-session", "me", "--profile", w.Dir + "/profile"}
	p := w.Proxy(args...)
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	if got := cmdtest.AskOnce(t, at+"/session/me/devtools/browser", "Storage.setCookies", cookie); strings.Contains(got,
		"error") {
		t.Fatalf("setCookies: %s", got)
	}
	got := cmdtest.AskOnce(t, at+"/session/other/devtools/browser", "Storage.getCookies", `{}`)
	if strings.Contains(got, "kept") {
		t.Errorf("another session has the profile's cookie: %s", got)
	}
	foreign := cmdtest.AskOnce(t, at+"/session/other/devtools/browser", "Target.createTarget",
		`{"url":"about:blank#other"}`)
	if got := cmdtest.AskOnce(t, at+"/session/me/devtools/browser", "Target.getTargets", `{}`); strings.Contains(got,
		"#other") {
		t.Errorf("the session with the profile sees another's page, %s: %s", foreign, got)
	}
	p.Stop()
	p = w.Proxy(args...)
	at = "ws" + strings.TrimPrefix(p.URL, "http")
	if got := cmdtest.AskOnce(t, at+"/session/me/devtools/browser", "Storage.getCookies", `{}`); !strings.Contains(got,
		"kept") {
		t.Errorf("the profile's cookie is gone after a restart: %s", got)
	}
	// It is the user's own: it may open files and trace its pages, and others
	// may not.
	for name, may := range map[string]bool{"me": true, "other": false} {
		session := p.URL + "/session/" + name
		root := cmdtest.Dial(t, at+"/session/"+name+"/devtools/browser")
		if got := root.Ask("Target.createTarget", `{"url":"file:///etc/hostname"}`); strings.Contains(
			got, "error") == may {
			t.Errorf("%s opens a file: %s", name, got)
		}
		root.Ask("Target.createTarget", `{"url":"about:blank"}`)
		_, list := cmdtest.Get(t, "GET", session+"/json/list")
		id := jsonrpc.GetString(slices.Collect(jsonrpc.Elements([]byte(list)))[0], "id")
		page := cmdtest.Dial(t, at+"/session/"+name+"/devtools/page/"+id)
		if got := page.Ask("Page.navigate", `{"url":"FILE:///etc/hostname"}`); strings.Contains(got, "error") == may {
			t.Errorf("%s goes to a file: %s", name, got)
		}
		if got := page.Ask("Tracing.start", `{}`); strings.Contains(got, "error") == may {
			t.Errorf("%s traces: %s", name, got)
		}
		if got := page.Ask("Page.navigate", `{"url":"chrome://version"}`); !strings.Contains(got, "error") {
			t.Errorf("%s opens a page of Chrome's: %s", name, got)
		}
		if got := page.Ask("Tracing.end", `{}`); may && strings.Contains(got, "error") {
			t.Errorf("%s ends its trace: %s", name, got)
		}
	}
	// Its end leaves the profile, and the next use finds it.
	w.Run("bproxy", "session", "end", "me").Exits(t, 0, "")
	if got := cmdtest.AskOnce(t, at+"/session/me/devtools/browser", "Storage.getCookies", `{}`); !strings.Contains(got,
		"kept") {
		t.Errorf("the profile's cookie is gone after the end of its session: %s", got)
	}
	p.Stop()
	w.Clean()
}

// With --idle-by connections, a browser ends when it has no session any more,
// not while it has one.
func TestIsolatedIdle(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--idle", "300ms", "--session-grace", "0s", "--idle-by", "connections")
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	cmdtest.AskOnce(t, at+"/session/one/devtools/browser", "Browser.getVersion", `{}`)
	time.Sleep(time.Second) // longer than --idle: what is tested is that nothing happens
	if s := p.Do("status"); s.Status.State != "ready" {
		t.Errorf("the browser ended under a session: %+v", s.Status)
	}
	w.Run("bproxy", "session", "end", "one").Exits(t, 0, "")
	cmdtest.Until(t, "the browser ends", func() bool { return p.Do("status").Status.State == "stopped" })
	p.Stop()
	w.Clean()
}

// A browser ends when its clients send nothing, not while one waits for an
// answer. The next command has another browser.
func TestIsolatedIdleByTraffic(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const idle = 2 * time.Second
	p := w.Proxy("--isolate", "--idle", idle.String())
	at := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/"
	silent := cmdtest.Dial(t, at+"browser")
	silent.Ask("Browser.getVersion", `{}`)
	target := jsonrpc.GetString(jsonrpc.Get([]byte(silent.Ask("Target.createTarget", `{"url":"about:blank"}`)),
		"result"),
		"targetId")
	waiting := cmdtest.Dial(t, at+"page/"+target)
	began := time.Now()
	waiting.Ask("Runtime.evaluate", fmt.Sprintf(
		`{"awaitPromise":true,"expression":"new Promise(f => setTimeout(f, %d))"}`, (2*idle).Milliseconds()))
	if time.Since(began) < 2*idle || p.Do("status").Status.State != "ready" {
		t.Errorf("the browser was stopped under a client that waits: %+v", p.Do("status").Status)
	}
	silent.AwaitEnd()
	waiting.AwaitEnd()
	cmdtest.Until(t, "the browser ends", func() bool { return p.Do("status").Status.State == "stopped" })
	before := p.Do("status").Status.Launches
	cmdtest.AskOnce(t, at+"browser", "Browser.getVersion", `{}`)
	if s := p.Do("status"); s.Status.Launches != before+1 {
		t.Errorf("the next command has launched no other browser: %+v", s)
	}
	p.Stop()
	w.Clean()
}

// A download keeps the browser, although its client has nothing to send.
func TestIdleDownload(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const idle = 4 * time.Second // a machine that is busy with other tests sends nothing for a second
	finish := make(chan struct{})
	site := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(w, strings.Repeat("x", 4<<10))
		w.(http.Flusher).Flush()
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	})
	p := w.Proxy("--idle", idle.String())
	c := cmdtest.Dial(t, "ws"+strings.TrimPrefix(p.URL, "http")+"/devtools/browser")
	c.Ask("Browser.setDownloadBehavior",
		fmt.Sprintf(`{"behavior":"allowAndName","downloadPath":%q,"eventsEnabled":true}`, w.Dir))
	c.Ask("Target.createTarget", fmt.Sprintf(`{"url":%q}`, site))
	c.AskUntilTold("Browser.downloadWillBegin")
	time.Sleep(idle + idle/2) // what is tested is that nothing happens
	if s := p.Do("status"); s.Status.State != "ready" {
		t.Errorf("the browser was stopped while it downloads a file: %+v", s.Status)
	}
	close(finish)
	c.AwaitEnd()
	cmdtest.Until(t, "the browser ends", func() bool { return p.Do("status").Status.State == "stopped" })
	p.Stop()
	w.Clean()
}

// A command gets an address whose clients share one browser.
func TestIsolatedCommand(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Run("bproxy", "--isolate", "--no-input", "--", "sh", "-c",
		"echo $BTOOLS_CDP_URL $BTOOLS_WS_URL; bproxy session list -f session.name")
	r.Exits(t, 0, "")
	cdp, ws, _ := strings.Cut(strings.TrimSpace(r.Out), " ")
	if want := strings.Replace(cdp, "http", "ws", 1) + "/session/default/devtools/browser/default"; ws != want {
		t.Errorf("the addresses are %q and %q", cdp, ws)
	}
	w.Clean()
}

// The port's own address is a session's, whoever connects, and a session can
// have a port to itself: for clients that take no path.
func TestPortOfASession(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--root-session", "me", "--default-session", "me")
	at := "ws" + strings.TrimPrefix(p.URL, "http")
	cmdtest.AskOnce(t, at+"/devtools/browser", "Target.createTarget", `{"url":"about:blank#mine"}`)
	cmdtest.AskOnce(t, at+"/session/other/devtools/browser", "Target.createTarget", `{"url":"about:blank#other"}`)
	for _, target := range []string{p.URL + "/session/other", at + "/session/other/devtools/browser/other"} {
		alone := w.Proxy("--target", target)
		for _, c := range []struct{ url, has, lacks string }{
			{p.URL, "#mine", "#other"}, {p.URL + "/session/me", "#mine", "#other"}, {alone.URL, "#other", "#mine"},
		} {
			_, body := cmdtest.Get(t, "GET", c.url+"/json/list")
			if !strings.Contains(body, c.has) || strings.Contains(body, c.lacks) {
				t.Errorf("%s/json/list: %s", c.url, body)
			}
			_, body = cmdtest.Get(t, "GET", c.url+"/json/version")
			ws := jsonrpc.GetString([]byte(body), "webSocketDebuggerUrl")
			if !strings.HasPrefix(ws, "ws"+strings.TrimPrefix(c.url, "http")+"/devtools/browser") {
				t.Errorf("%s says that its WebSocket is %q", c.url, ws)
				continue
			}
			if got := cmdtest.AskOnce(t, ws, "Target.getTargets", `{}`); !strings.Contains(got, c.has) ||
				strings.Contains(got, c.lacks) {
				t.Errorf("%s has the targets %s, want %q and not %q", ws, got, c.has, c.lacks)
			}
		}
		_, body := cmdtest.Get(t, "GET", alone.URL+"/json/list")
		var pages []struct{ URL, WSURL string }
		json.Unmarshal([]byte(strings.ReplaceAll(body, "webSocketDebuggerUrl", "WSURL")), &pages)
		if len(pages) == 0 || !strings.HasPrefix(pages[0].WSURL,
			"ws"+strings.TrimPrefix(alone.URL, "http")+"/devtools/page/") {
			t.Fatalf("the pages are %s, want addresses of %s", body, alone.URL)
		}
		if got := cmdtest.AskOnce(t, pages[0].WSURL, "Runtime.evaluate", `{"expression":"6*7"}`); !strings.Contains(got,
			"42") {
			t.Errorf("%s\nlacks %q", got, "42")
		}
		alone.Stop()
	}
	p.Stop()
	w.Clean()
}
