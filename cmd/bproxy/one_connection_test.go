//go:build linux

package main_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// A client of the port has Chrome's own protocol, on the whole browser.
func TestOneConnectionIsVerbatim(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	chrome := w.Consent()
	p := w.Proxy("--one-connection", "--target", chrome.HTTP, "--eager", "--health-interval", "50ms",
		"--trace", w.Dir+"/trace")
	cmdtest.Until(t, "it connects at once", func() bool {
		chrome.Mu.Lock()
		defer chrome.Mu.Unlock()
		return chrome.Questions == 1
	})
	direct, c := cmdtest.Dial(t, chrome.WSURL), cmdtest.Dial(t, "ws://"+p.Addr+"/devtools/browser")
	for _, command := range [][2]string{
		{"Browser.getVersion", "{}"}, {"Target.getBrowserContexts", "{}"}, {"SystemInfo.getInfo", "{}"},
		{"Target.attachToTarget", `{"targetId":"none"}`}, {"No.method", "{}"},
	} {
		if a, b := direct.Ask(command[0], command[1]), c.Ask(command[0], command[1]); a != b {
			t.Errorf("%s\nby Chrome: %s\nby bproxy: %s", command[0], a, b)
		}
	}
	_, made := cmdtest.Get(t, "PUT", p.URL+"/json/new?about:blank%23made")
	id := jsonrpc.GetString([]byte(made), "id")
	if at := jsonrpc.GetString([]byte(made), "webSocketDebuggerUrl"); at != "ws://"+p.Addr+"/devtools/page/"+id {
		t.Errorf("/json/new: %s", made)
	}
	if got := direct.Ask("Target.getTargets", "{}"); !strings.Contains(got, `"`+id+`"`) {
		t.Errorf("the page is not in the browser: %s", got)
	}
	page := cmdtest.Dial(t, "ws://"+p.Addr+"/devtools/page/"+id)
	if got := page.Ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, "blank#made") {
		t.Errorf("the page: %s", got)
	}
	for path, want := range map[string]int{"/json/activate/" + id: 200, "/json/activate/none": 404,
		"/json/close/" + id: 200, "/json/close/none": 404, "/json/protocol": 200} {
		if path == "/json/close/"+id {
			continue // the last one
		}
		if code, body := cmdtest.Get(t, "GET", p.URL+path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/close/"+id); code != 200 {
		t.Errorf("/json/close: %d %s", code, body)
	}
	page.AwaitEnd()
	if _, resp := p.Socket("/devtools/page/none"); resp.StatusCode != 500 {
		t.Errorf("a page that there is not: %s", resp.Status)
	}
	if s := p.Do("status"); s.Status.State != "foreign" {
		t.Errorf("it is well: %+v", s)
	}
	chrome.CheckAsked(t, 2, 1) // one of them by ourselves
	p.Stop()
	trace, _ := os.ReadFile(w.Dir + "/trace")
	for _, line := range []string{`"connection":1,"opened":"/devtools/browser"}`,
		`"connection":1,"direction":"to_browser","message":{"id":5,"method":"No.method","params":{}}}`,
		`"connection":1,"direction":"to_client","message":{"id":5,"error":`,
		`"connection":2,"opened":"/devtools/page/` + id + `"}`} {
		if !strings.Contains(string(trace), line) {
			t.Errorf("the trace lacks %s:\n%s", line, trace)
		}
	}
}

// What a client had ends with it, also when bproxy is killed.
func TestOneConnectionEnds(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	chrome := w.Consent()
	direct := cmdtest.Dial(t, chrome.WSURL)
	contexts := func() int {
		return strings.Count(string(jsonrpc.Get([]byte(direct.Ask("Target.getBrowserContexts", "{}")), "result",
			"browserContextIds")), `"`) / 2
	}
	p := w.Proxy("--one-connection", "--target", chrome.WSURL)
	one, two := cmdtest.Dial(t, "ws://"+p.Addr), cmdtest.Dial(t, "ws://"+p.Addr)
	for _, c := range []*cmdtest.Wire{one, two} {
		c.Ask("Target.createBrowserContext", `{"disposeOnDetach":true}`)
	}
	if n := contexts(); n != 2 {
		t.Errorf("there are %d contexts", n)
	}
	one.Conn.Close(1000, "")
	cmdtest.Until(t, "one context is left", func() bool { return contexts() == 1 })
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	two.AwaitEnd()
	cmdtest.Until(t, "no context is left", func() bool { return contexts() == 0 })
}

// A refusal is told as such; the user is not asked again and again.
func TestOneConnectionRefused(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	chrome := w.Consent()
	chrome.Refuses = true
	for _, args := range [][]string{nil, {"--isolate"}} {
		before, began := chrome.Questions, time.Now()
		p := w.Proxy(append(args, "--one-connection", "--target", chrome.WSURL)...)
		for _, path := range []string{"/json/version", "/json/list"} {
			if args != nil && path == "/json/list" {
				continue // it is the session's of nobody
			}
			code, body := cmdtest.Get(t, "GET", p.URL+path)
			if code != 502 || !strings.Contains(body, "the browser has refused the connection") ||
				!strings.Contains(body, "the user said no") || !strings.Contains(body, "allow remote debugging") {
				t.Errorf("%v %s: %d %s", args, path, code, body)
			}
		}
		if _, resp := p.Socket("/"); resp.StatusCode != 502 {
			t.Errorf("a WebSocket: %s", resp.Status)
		}
		p.Stop()
		// A refusal holds for five seconds.
		if n := chrome.Questions - before; n < 1 || n > 1+int(time.Since(began)/(5*time.Second)) {
			t.Errorf("the user was asked %d times within %v", n, time.Since(began))
		}
	}
}

// The one connection may be to a session of another bproxy.
func TestOneConnectionToSession(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate")
	q := w.Proxy("--one-connection", "--target", p.URL+"/session/one")
	one, two := cmdtest.Dial(t, "ws://"+q.Addr), cmdtest.Dial(t, "ws://"+q.Addr)
	made := one.Ask("Target.createTarget", `{"url":"about:blank#one"}`)
	target := jsonrpc.GetString([]byte(made), "result", "targetId")
	if got := two.Ask("Target.getTargets", "{}"); !strings.Contains(got, target) {
		t.Errorf("the other client does not see the page: %s", got)
	}
	page := cmdtest.Dial(t, "ws://"+q.Addr+"/devtools/page/"+target)
	if got := page.Ask("Runtime.evaluate", `{"expression":"location.hash"}`); !strings.Contains(got, "#one") {
		t.Errorf("the page: %s", got)
	}
	if s := p.Do("status"); s.Status.WebSockets != 1 {
		t.Errorf("the session has %d clients", s.Status.WebSockets)
	}
	q.Stop()
	p.Stop()
}

// The browser says in a file where it is. The next one is elsewhere.
func TestOneConnectionByFile(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	file := w.Dir + "/DevToolsActivePort"
	w.Run("bproxy", "--one-connection", "--target", file).Exits(t, 69, "no such file")
	point := func(c *cmdtest.Consent) {
		u, _ := url.Parse(c.WSURL)
		cmdtest.WriteFile(t, file, u.Port()+"\n"+u.Path)
	}
	first, second := w.Consent(), w.Consent()
	point(first)
	p := w.Proxy("--one-connection", "--target", file)
	c := cmdtest.Dial(t, "ws://"+p.Addr)
	c.Ask("Browser.getVersion", "{}")
	point(second)
	cmdtest.AskOnce(t, "ws://"+p.Addr, "Browser.getVersion", "{}")
	first.CheckAsked(t, 1, 0)
	second.CheckAsked(t, 0, 0)
	syscall.Kill(first.PID, syscall.SIGKILL)
	c.AwaitEnd()
	cmdtest.AskOnce(t, "ws://"+p.Addr, "Browser.getVersion", "{}")
	first.CheckAsked(t, 1, 0)
	second.CheckAsked(t, 1, 0)
	p.Stop()
}

// The browser is another one at the same address, and asks again.
func TestOneConnectionAgain(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch"))
	p := w.Proxy("--one-connection", "--target", x.Instance.HTTPURL, "--health-interval", "50ms",
		"--health-timeout", "1s")
	c := cmdtest.Dial(t, "ws://"+p.Addr)
	c.Ask("Browser.getVersion", "{}")
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	c.AwaitEnd()
	cmdtest.Until(t, "the browser is unresponsive",
		func() bool { return p.Do("status").Status.State == "unresponsive" })
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 502 || !strings.Contains(body,
		"does not answer") {
		t.Errorf("without a browser: %d %s", code, body)
	}
	w.Run("blaunch", "stop", "--all")
	cmdtest.Parse(t, w.Pipe(fmt.Sprintf(`{"v":1,"port":%d}`+"\n", x.Instance.Port), "blaunch"))
	cmdtest.AskOnce(t, "ws://"+p.Addr, "Browser.getVersion", "{}")
	cmdtest.Until(t, "it is well again", func() bool { return p.Do("status").Status.State == "foreign" })
	p.Stop()
}

func TestOneConnectionRefuses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
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
		w.Run("bproxy", x.args...).Exits(t, 64, x.says)
	}
}

// Many clients at once, some of which leave in the middle.
func TestOneConnectionCrowd(t *testing.T) {
	t.Parallel()
	cmdtest.Long(t)
	w := cmdtest.New(t)
	chrome := w.Consent()
	p := w.Proxy("--one-connection", "--target", chrome.WSURL)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			c := cmdtest.Dial(t, "ws://"+p.Addr)
			for i := range 50 {
				if n%4 == 0 && i == 25 {
					c.Conn.Close(1000, "")
					return
				}
				if got := c.Ask("Browser.getVersion", "{}"); !strings.Contains(got, `"product"`) ||
					strings.Contains(got, "sessionId") {
					t.Errorf("client %d: %s", n, got)
				}
			}
		})
	}
	all.Wait()
	chrome.CheckAsked(t, 1, 0)
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > cmdtest.Patience/2 {
		t.Errorf("the end took %v", took)
	}
}
