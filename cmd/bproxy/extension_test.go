//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ws "github.com/coder/websocket"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// A browser that has joined, its extension and its hub end in every way.
func TestExtensionFaults(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p, chrome, process, j := w.WithJoined("--session-grace", "0s")
	before := cmdtest.Tabs(t, chrome)
	state := func(want string) {
		t.Helper()
		if s := p.Do("status").Status.State; s != want {
			t.Errorf("the hub is %s, want %s", s, want)
		}
	}
	state("ready")
	// Tabs are closed with their client, also those whose page replaces itself for ever
	// or asks before it is left.
	t.Run("tabs that stay", func(t *testing.T) {
		site := cmdtest.FaultySite(t)
		c := cmdtest.Dial(t, j.Instance.WSURL)
		turning := 1 // each takes what processor time it gets
		if cmdtest.IsLong {
			turning = 3
		}
		for range turning {
			c.Ask("Target.createTarget", `{"url":"`+site+`/turns"}`)
		}
		target := cmdtest.ResultOf(t, c.Ask("Target.createTarget", `{"url":"`+site+`/unsaved"}`))
		id := jsonrpc.GetString(target, "targetId")
		session := jsonrpc.GetString(cmdtest.ResultOf(t, c.Ask("Target.attachToTarget",
			`{"targetId":"`+id+`","flatten":true}`)),
			"sessionId")
		cmdtest.Until(t, "the page takes a key", func() bool {
			of := `,"sessionId":"` + session + `"`
			c.Ask("Runtime.evaluate", `{"expression":"document.querySelector('input').focus()"}`+of)
			c.Ask("Input.dispatchKeyEvent", `{"type":"char","text":"x"}`+of)
			got := c.Ask("Runtime.evaluate", `{"expression":"document.querySelector('input').value"}`+of)
			return strings.Contains(got, `"x`)
		})
		cmdtest.Until(t, "the pages turn", func() bool {
			return strings.Count(strings.Join(cmdtest.Tabs(t, chrome), "\n"), "/turns?") == turning
		})
		c.Conn.Close(websocket.Normal, "")
		cmdtest.Until(t, "the tabs of the client are closed", func() bool {
			return slices.Equal(cmdtest.Tabs(t, chrome),
				before)
		})
	})
	// The worker of the extension is stopped during a call: the client is told at
	// once, its tabs are closed, and the browser comes back with its ID.
	t.Run("the worker stops", func(t *testing.T) {
		c := cmdtest.Dial(t, j.Instance.WSURL)
		var page struct {
			Result struct{ TargetID, SessionID string }
		}
		json.Unmarshal([]byte(c.Ask("Target.createTarget", `{"url":"about:blank"}`)), &page)
		json.Unmarshal([]byte(c.Ask("Target.attachToTarget",
			`{"flatten":true,"targetId":"`+page.Result.TargetID+`"}`)), &page)
		c.Conn.Write([]byte(`{"id":99,"method":"Runtime.evaluate","sessionId":"` + page.Result.SessionID +
			`","params":{"expression":"new Promise(() => {})","awaitPromise":true}}`))
		user := cmdtest.Dial(t, chrome)
		var targets struct {
			Result struct {
				TargetInfos []struct{ TargetID, Type, URL string }
			}
		}
		json.Unmarshal([]byte(user.Ask("Target.getTargets", `{}`)), &targets)
		for _, x := range targets.Result.TargetInfos {
			if x.Type == "service_worker" && strings.HasPrefix(x.URL, "chrome-extension://") {
				user.Ask("Target.closeTarget", `{"targetId":"`+x.TargetID+`"}`)
			}
		}
		c.AwaitEnd()
		// An alarm wakes the worker every 30 s.
		cmdtest.Until(t, "the browser is back, and the tabs of the client are closed", func() bool {
			all := p.Joined()
			return len(all) == 1 && all[0].Instance.ID == j.Instance.ID && slices.Equal(cmdtest.Tabs(t, chrome), before)
		})
	})
	// The hub is killed and started again: what clients had opened is closed, and
	// the browser comes back with its ID.
	t.Run("the hub dies", func(t *testing.T) {
		c := cmdtest.Dial(t, j.Instance.WSURL)
		c.Ask("Target.createTarget", `{"url":"about:blank"}`)
		if got := cmdtest.Tabs(t, chrome); len(got) != len(before)+2 {
			t.Errorf("with a client there are the tabs %v", got)
		}
		p.Cmd.Process.Kill()
		p.Cmd.Wait()
		c.AwaitEnd()
		cmdtest.Until(t, "the tabs of the client are closed", func() bool {
			return slices.Equal(cmdtest.Tabs(t, chrome),
				before)
		})
		again := &cmdtest.Proxy{T: w.T, W: w, Cmd: w.Cmd("bproxy", "--extension", "--listen", p.Addr,
			"--pairing-file", w.Dir+"/code")}
		again.Start()
		back := again.AwaitJoined("the browser is back", cmdtest.AnyJoined)
		if back.Instance.ID != j.Instance.ID {
			t.Errorf("the browser came back as %s, and was %s", back.Instance.ID, j.Instance.ID)
		}
		p = again
	})
	// The browser is killed while a client waits: it is told at once, and the
	// instance and its port are gone. So it is when a user closes a tab.
	t.Run("the browser dies", func(t *testing.T) {
		watch := w.Cmd("bproxy", "watch", "-f", "event.event,event.instance,event.why")
		var events cmdtest.SyncBuffer
		watch.Stdout = &events
		cmdtest.Start(t, watch)
		defer func() {
			watch.Process.Kill()
			watch.Wait()
		}()
		browser := cmdtest.Dial(t, j.Instance.WSURL)
		target := func() string {
			var got struct{ Result struct{ TargetID string } }
			json.Unmarshal([]byte(browser.Ask("Target.createTarget", `{"url":"about:blank"}`)), &got)
			return got.Result.TargetID
		}
		browser.Ask("Target.setDiscoverTargets", `{"discover":true}`)
		id := target()
		_, answer := cmdtest.Get(t, "GET", "http"+strings.TrimPrefix(strings.Split(chrome, "/devtools")[0],
			"ws")+"/json/close/"+id)
		if !strings.Contains(answer, "closing") {
			t.Fatalf("the user cannot close the tab: %s", answer)
		}
		browser.AskUntilTold("Target.targetDestroyed")
		process.Signal(syscall.SIGKILL)
		browser.AwaitEnd()
		cmdtest.Until(t, "the instance is gone", func() bool { return len(p.Joined()) == 0 })
		state("stopped")
		cmdtest.Until(t, "the watcher is told", func() bool {
			return strings.Contains(events.String(), "disconnected\t"+j.Instance.ID)
		})
		if code, body := cmdtest.Get(t, "GET", j.Instance.HTTPURL+"/json/version"); code != 404 ||
			!strings.Contains(body, "no browser") {
			t.Errorf("the address of a browser that has left answers %d %s", code, body)
		}
	})
}

// Whoever is not the extension gets nothing from the hub.
func TestExtensionStrangers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Hub()
	body := `{"userAgent":"x","windowId":1}`
	for name, test := range map[string]struct {
		header, value string
	}{
		"a program without the code": {"X", "x"},
		"a web page":                 {"Origin", "http://evil.example"},
		"another extension":          {"Origin", "chrome-extension://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
		"a page without an origin":   {"Sec-Fetch-Site", "cross-site"},
		"a wrong code":               {"Authorization", "Bearer AAAAA-BBBBB-CCCCC-DDDDD"},
	} {
		code, _, answer := cmdtest.Post(t, p.URL+"/register", map[string]string{test.header: test.value}, body)
		if code != 403 {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	for path, want := range map[string]int{"/json/version": 503, "/session/inst_1706234567890_abc123/json/version": 404,
		"/session/3301/json/list": 404, "/register": 405} {
		if code, answer := cmdtest.Get(t, "GET", p.URL+path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
}

func TestExtensionUsage(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bproxy", "--extension", "--target", "http://127.0.0.1:1").Exits(t, 64, "--target has no effect")
	w.Run("bproxy", "--ports", "1-2").Exits(t, 64,
		"--ports is an option of bproxy hub\nbproxy: hint: see bproxy hub --help\n")
	w.Run("bproxy", "--extension", "--ports", "5").Exits(t, 64, "a range such as 3301-3399")
	w.Run("bproxy", "--extension", "--listen", "0.0.0.0:0").Exits(t, 64, "")
	w.Run("bproxy", "hub", "--listen", "127.0.0.1:0", "--no-pairing", "--timeout", "10ms", "--", "true").
		Exits(t, 75, "no browser has joined: timed out")
	w.Run("bproxy", "extension").Exits(t, 64, "one directory")
	cmdtest.WriteFile(t, w.Dir+"/other/file", "x")
	w.Run("bproxy", "extension", w.Dir+"/other").Exits(t, 1, "is not the extension")
	w.Run("bproxy", "extension", w.Dir+"/new").Exits(t, 0, "")
	w.Run("bproxy", "extension", w.Dir+"/new").Exits(t, 0, "") // a later version over it
	cmdtest.WriteFile(t, w.Dir+"/short", "ABC")
	w.Run("bproxy", "--extension", "--listen", "127.0.0.1:0", "--pairing-file", w.Dir+"/short").
		Exits(t, 78, "has no pairing code")
	w.Run("bproxy", "stop", "inst_1706234567890_abc123").Exits(t, 69, "has joined")
}

// With --all-tabs, clients share all tabs of the browser, the user's too; chromedp
// and @playwright/mcp work on the address as well, and so does a command.
func TestExtensionAllTabs(t *testing.T) {
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p := w.Hub("--all-tabs")
	chrome, _ := cmdtest.ChromiumWith(t, p.Extension())
	j := w.Join() // who waits for a browser gets the one that joins
	user := cmdtest.Dial(t, chrome)
	user.Ask("Target.createTarget", `{"url":"`+site+`/page?user"}`)
	cmdtest.Until(t, "a client sees the tab of the user", func() bool {
		return strings.Contains(cmdtest.AskOnce(t, j.Instance.WSURL, "Target.getTargets", "{}"), "/page?user")
	})
	// The number of tabs is told when it changes, not with the next answer to a ping.
	began := time.Now()
	tabs := func(what string) {
		t.Helper()
		cmdtest.Until(t, what, func() bool {
			usable := slices.DeleteFunc(cmdtest.Tabs(t, chrome), func(url string) bool {
				return strings.HasPrefix(url, "chrome")
			})
			return len(usable) == p.Joined()[0].Joined.Tabs
		})
	}
	tabs("the tab of the user is counted")
	another := jsonrpc.GetString(cmdtest.ResultOf(t, user.Ask("Target.createTarget", `{"url":"`+site+`/page?2"}`)),
		"targetId")
	tabs("another one is counted")
	user.Ask("Target.closeTarget", `{"targetId":"`+another+`"}`)
	cmdtest.Until(t, "the other one is closed", func() bool { // its command is answered before
		return !slices.Contains(cmdtest.Tabs(t, chrome), site+"/page?2")
	})
	tabs("one that is closed is not")
	if took := time.Since(began); took > 40*time.Second { // the hub pings every 20 s, and these were three changes
		t.Errorf("the number of tabs was true after %v", took)
	}
	before := cmdtest.Tabs(t, chrome)
	cmdtest.AskOnce(t, j.Instance.WSURL, "Browser.close", "{}")
	if got := cmdtest.Tabs(t, chrome); !slices.Equal(got, before) {
		t.Errorf("a client that closes the browser leaves the tabs %v of %v", got, before)
	}
	p.Stop()
	if code := j.Code(t); code != 69 {
		t.Errorf("the hub has ended, and bproxy join ended with %d: %s", code, j.Errs.String())
	}
}

// A command gets the first browser that joins.
func TestExtensionCommand(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	dir := w.Dir + "/extension"
	port := strings.TrimSpace(w.Run("bport", "-f", "port").Out)
	w.Run("bproxy", "extension", "--paired", "--pairing-file", w.Dir+"/code", "--hub", "http://127.0.0.1:"+port, dir).
		Exits(t, 0, "")
	cmdtest.ChromiumWith(t, dir)
	r := w.Run("bproxy", "--extension", "--listen", port, "--pairing-file", w.Dir+"/code", "--timeout", "1m", "--",
		"sh", "-c", "echo {cdp_endpoint} $BTOOLS_CDP_URL; exit 7")
	at, env, _ := strings.Cut(strings.TrimSpace(r.Out), " ")
	if r.Code != 7 || at != env || !strings.HasPrefix(at, "http://127.0.0.1:"+port+"/session/inst_") {
		t.Errorf("exit %d, %s, %s", r.Code, r.Out, r.Err)
	}
}

// Without pairing, any extension joins as seed 002 has it: by its Origin alone, on the
// port that it is told. If it answers no call, clients are told of a timeout.
func TestJoinWithoutPairing(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	paired, open := w.Hub("--ports", "23900-23949"), w.Hub("--no-pairing", "--ports", "23950-23999")
	register := func(p *cmdtest.Proxy, origin string) (place struct {
		InstanceID string
		Port       int
		Error      struct{ Message string }
	}, status int) {
		t.Helper()
		r, _ := http.NewRequest("POST", p.URL+"/register",
			strings.NewReader(`{"userAgent":"Mozilla/5.0","windowId":1}`))
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		json.NewDecoder(resp.Body).Decode(&place)
		return place, resp.StatusCode
	}
	const own = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
	for _, c := range []struct {
		p            *cmdtest.Proxy
		origin, want string
	}{{paired, own, "is not allowed"}, {open, "", "needs one Origin, which begins with chrome-extension://"},
		{open, "https://example.org", "is not allowed"}, {open, "null", "is not allowed"}} {
		if place, status := register(c.p, c.origin); status != http.StatusForbidden ||
			!strings.Contains(place.Error.Message, c.want) {
			t.Errorf("a registration from %q: %d %s", c.origin, status, place.Error.Message)
		}
	}
	place, status := register(open, own)
	if status != http.StatusOK {
		t.Fatalf("a registration from an extension: %d", status)
	}
	at := fmt.Sprintf("ws://localhost:%d", place.Port)
	join := func(origin string) (*ws.Conn, error) {
		conn, _, err := ws.Dial(t.Context(), at, &ws.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		return conn, err
	}
	if _, err := join("https://example.org"); err == nil {
		t.Error("a web page has joined")
	}
	conn, err := join(own)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.Write(t.Context(), ws.MessageText, []byte(`{"type":"hello","instanceId":"`+place.InstanceID+`"}`))
	if _, got, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(got), `"type":"welcome"`) {
		t.Fatalf("after the hello: %s %v", got, err)
	}
	if _, got := cmdtest.Get(t, "GET", open.URL+"/health"); !strings.Contains(got, `"instances":1`) {
		t.Errorf("the hub's health: %s", got)
	}
	go func() {
		for {
			if _, _, err := conn.Read(t.Context()); err != nil {
				return
			}
		}
	}()
	if code, got := cmdtest.Get(t, "GET", open.URL+"/session/"+place.InstanceID+"/json/version"); code != 502 ||
		!strings.Contains(got, "Timeout") {
		t.Errorf("an extension that answers no call: %d %s", code, got)
	}
}
