//go:build linux

package cmd_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// joinedBrowser is the record of a browser that has joined by its extension.
type joinedBrowser struct {
	Instance struct {
		ID, Protocol, Source string
		HTTPURL              string `json:"http_url"`
		WSURL                string `json:"ws_url"`
	}
	Joined struct {
		Port, Tabs int
		UserAgent  string `json:"user_agent"`
	}
}

// hub starts a bproxy for browsers that join.
func (w *world) hub(args ...string) *proxy {
	w.t.Helper()
	p := &proxy{t: w.t, w: w}
	p.cmd = w.cmd("bproxy", append([]string{"--extension", "--listen", "127.0.0.1:0",
		"--pairing-file", w.dir + "/code"}, args...)...)
	p.start()
	return p
}

// extension writes the extension, which knows the hub and its code.
func (p *proxy) extension() (dir string) {
	p.t.Helper()
	dir = p.w.dir + "/extension"
	p.w.run("bproxy", "extension", "--paired", "--pairing-file", p.w.dir+"/code", "--hub", p.url, dir).
		wants(p.t, 0, "")
	return dir
}

// chromiumWith starts a Chromium with an extension and returns its debugging
// endpoint, by which a test sees what its user sees.
func chromiumWith(t *testing.T, dir string) (wsURL string, p *os.Process) {
	t.Helper()
	return chrometest.Start(t, "--disable-extensions", "--load-extension="+dir, "--disable-extensions-except="+dir)
}

// joined lists the browsers that have joined.
func (p *proxy) joined() (all []joinedBrowser) {
	p.t.Helper()
	r := p.w.run("bproxy", "list", "--output=json")
	r.wants(p.t, 0, "")
	for d := json.NewDecoder(strings.NewReader(r.out)); d.More(); {
		var j joinedBrowser
		if err := d.Decode(&j); err != nil {
			p.t.Fatal(err)
		}
		if j.Instance.ID != "" {
			all = append(all, j)
		}
	}
	return all
}

// awaitJoined waits until one browser has joined, in which is reports true.
func (p *proxy) awaitJoined(what string, is func(joinedBrowser) bool) (j joinedBrowser) {
	p.t.Helper()
	until(p.t, what, func() bool {
		for _, one := range p.joined() {
			if is(one) {
				j = one
				return true
			}
		}
		return false
	})
	return j
}

func anyJoined(joinedBrowser) bool { return true }

// withJoined starts a hub and a Chromium that joins it.
func (w *world) withJoined(args ...string) (p *proxy, chrome string, process *os.Process, j joinedBrowser) {
	w.t.Helper()
	p = w.hub(args...)
	chrome, process = chromiumWith(w.t, p.extension())
	return p, chrome, process, p.awaitJoined("the browser joins", anyJoined)
}

// tabs are the pages of a Chromium, as its user sees them.
func tabs(t *testing.T, wsURL string) (urls []string) {
	t.Helper()
	_, body := get(t, "GET", "http://"+strings.Split(strings.TrimPrefix(wsURL, "ws://"), "/")[0]+"/json/list")
	var all []struct{ Type, URL string }
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Type == "page" {
			urls = append(urls, one.URL)
		}
	}
	slices.Sort(urls)
	return urls
}

// Clients of a browser that has joined: two of each kind at once, none of which
// sees the tabs of another one or of the user, and none of which leaves a tab.
func TestExtensionClients(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	p, chrome, _, j := w.withJoined("--session-grace", "0s")
	if i := j.Instance; i.Protocol != "cdp" || i.Source != "extension" || i.HTTPURL != p.url+"/session/"+i.ID ||
		!strings.Contains(j.Joined.UserAgent, "Chrome/") || j.Joined.Tabs != 0 {
		t.Errorf("the record is %+v", j)
	}
	before := tabs(t, chrome)
	isolatedClients(t, p, site, func(string) (string, string) { return j.Instance.HTTPURL, j.Instance.WSURL },
		twice("extension-playwright.mjs", "extension-puppeteer.mjs")...)
	until(t, "the tabs of the clients are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
}

// The hub is killed and started again: what clients had opened is closed, and
// the browser comes back with its ID.
func TestExtensionHubDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, chrome, _, j := w.withJoined()
	before := tabs(t, chrome)
	c := dial(t, j.Instance.WSURL)
	c.ask("Target.createTarget", `{"url":"about:blank"}`)
	if got := tabs(t, chrome); len(got) != len(before)+2 {
		t.Errorf("with a client there are the tabs %v", got)
	}
	p.cmd.Process.Kill()
	p.cmd.Wait()
	c.lost()
	until(t, "the tabs of the client are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
	again := &proxy{t: t, w: w, cmd: w.cmd("bproxy", "--extension", "--listen", p.addr,
		"--pairing-file", w.dir+"/code")}
	again.start()
	back := again.awaitJoined("the browser is back", anyJoined)
	if back.Instance.ID != j.Instance.ID {
		t.Errorf("the browser came back as %s, and was %s", back.Instance.ID, j.Instance.ID)
	}
}

// The browser is killed while a client waits: it is told at once, and the
// instance and its port are gone. So it is when a user closes a tab.
func TestExtensionBrowserDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.hub()
	watch := w.cmd("bproxy", "watch", "-f", "event.event,event.instance,event.why")
	var events syncBuffer
	watch.Stdout = &events
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		watch.Process.Kill()
		watch.Wait()
	}()
	chrome, process := chromiumWith(t, p.extension())
	j := p.awaitJoined("the browser joins", anyJoined)
	browser := dial(t, j.Instance.WSURL)
	target := func() string {
		var got struct{ Result struct{ TargetID string } }
		json.Unmarshal([]byte(browser.ask("Target.createTarget", `{"url":"about:blank"}`)), &got)
		return got.Result.TargetID
	}
	browser.ask("Target.setDiscoverTargets", `{"discover":true}`)
	id := target()
	_, answer := get(t, "GET", "http"+strings.TrimPrefix(strings.Split(chrome, "/devtools")[0], "ws")+"/json/close/"+id)
	if !strings.Contains(answer, "closing") {
		t.Fatalf("the user cannot close the tab: %s", answer)
	}
	browser.askUntilTold("Target.targetDestroyed")
	process.Signal(syscall.SIGKILL)
	browser.lost()
	until(t, "the instance is gone", func() bool { return len(p.joined()) == 0 })
	until(t, "the watcher is told", func() bool {
		return strings.Contains(events.String(), "disconnected\t"+j.Instance.ID)
	})
	if code, body := get(t, "GET", j.Instance.HTTPURL+"/json/version"); code != 404 ||
		!strings.Contains(body, "no browser") {
		t.Errorf("the address of a browser that has left answers %d %s", code, body)
	}
}

// The worker of the extension is stopped during a call: the client is told at
// once, its tabs are closed, and the browser comes back with its ID.
func TestExtensionWorkerStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, chrome, _, j := w.withJoined()
	before := tabs(t, chrome)
	c := dial(t, j.Instance.WSURL)
	var page struct {
		Result struct{ TargetID, SessionID string }
	}
	json.Unmarshal([]byte(c.ask("Target.createTarget", `{"url":"about:blank"}`)), &page)
	json.Unmarshal([]byte(c.ask("Target.attachToTarget",
		`{"flatten":true,"targetId":"`+page.Result.TargetID+`"}`)), &page)
	c.conn.Write([]byte(`{"id":99,"method":"Runtime.evaluate","sessionId":"` + page.Result.SessionID +
		`","params":{"expression":"new Promise(() => {})","awaitPromise":true}}`))
	user := dial(t, chrome)
	var targets struct {
		Result struct {
			TargetInfos []struct{ TargetID, Type, URL string }
		}
	}
	json.Unmarshal([]byte(user.ask("Target.getTargets", `{}`)), &targets)
	for _, x := range targets.Result.TargetInfos {
		if x.Type == "service_worker" && strings.HasPrefix(x.URL, "chrome-extension://") {
			user.ask("Target.closeTarget", `{"targetId":"`+x.TargetID+`"}`)
		}
	}
	c.lost()
	// An alarm wakes the worker every 30 s.
	until(t, "the browser is back, and the tabs of the client are closed", func() bool {
		all := p.joined()
		return len(all) == 1 && all[0].Instance.ID == j.Instance.ID && slices.Equal(tabs(t, chrome), before)
	})
}

// The same browser in a window.
func TestExtensionInWindow(t *testing.T) {
	long(t)
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	p := w.hub("--session-grace", "0s")
	w.env = append(w.env, "DISPLAY="+display(t))
	w.run("blaunch", "--no-input", "--browser", "chromium", "--no-headless", "--extension").wants(t, 0, "")
	j := p.awaitJoined("the browser joins", anyJoined)
	isolatedClients(t, p, site, func(string) (string, string) { return j.Instance.HTTPURL, j.Instance.WSURL },
		"extension-playwright.mjs", "extension-puppeteer.mjs")
	w.run("blaunch", "stop", "--all").wants(t, 0, "")
	until(t, "the instance is gone", func() bool { return len(p.joined()) == 0 })
}

// What the extension's own page says and does.
func TestExtensionPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.hub()
	dir := filepath.Join(w.dir, "plain")
	w.run("bproxy", "extension", "--hub", p.url, dir).wants(t, 0, "")
	chrome, _ := chromiumWith(t, dir)
	code, err := os.ReadFile(w.dir + "/code")
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("../scripts/clients/extension-page.mjs")
	if err != nil {
		t.Fatal(err)
	}
	c := w.cmd("node", script, chrome, p.url, strings.TrimSpace(string(code)), w.dir)
	c.Env = append(c.Env, "HOME="+w.dir)
	if out, err := c.CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("the page: %v\n%s", err, out)
	}
}

// Whoever is not the extension gets nothing from the hub.
func TestExtensionStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.hub()
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
		code, _, answer := post(t, p.url+"/register", map[string]string{test.header: test.value}, body)
		if code != 403 {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	for path, want := range map[string]int{"/json/version": 503, "/session/inst_1706234567890_abc123/json/version": 404,
		"/session/3301/json/list": 404, "/register": 405} {
		if code, answer := get(t, "GET", p.url+path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
}

func TestExtensionUsage(t *testing.T) {
	w := newWorld(t)
	w.run("bproxy", "--extension", "--target", "http://127.0.0.1:1").wants(t, 64, "--target has no effect")
	w.run("bproxy", "--ports", "1-2").wants(t, 64, "--ports needs --extension")
	w.run("bproxy", "--extension", "--ports", "5").wants(t, 64, "a range such as 3301-3399")
	w.run("bproxy", "--extension", "--listen", "0.0.0.0:0").wants(t, 64, "")
	w.run("bproxy", "extension").wants(t, 64, "one directory")
	write(t, w.dir+"/other/file", "x")
	w.run("bproxy", "extension", w.dir+"/other").wants(t, 1, "is not the extension")
	w.run("bproxy", "extension", w.dir+"/new").wants(t, 0, "")
	w.run("bproxy", "extension", w.dir+"/new").wants(t, 0, "") // a later version over it
	write(t, w.dir+"/short", "ABC")
	w.run("bproxy", "--extension", "--listen", "127.0.0.1:0", "--pairing-file", w.dir+"/short").
		wants(t, 78, "has no pairing code")
	w.run("bproxy", "stop", "inst_1706234567890_abc123").wants(t, 69, "has joined")
}

// With --all-tabs, clients share all tabs of the browser, the user's too; chromedp
// and @playwright/mcp work on the address as well, and so does a command.
func TestExtensionAllTabs(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	_, chrome, _, j := w.withJoined("--all-tabs")
	user := dial(t, chrome)
	user.ask("Target.createTarget", `{"url":"`+site+`/page?user"}`)
	until(t, "a client sees the tab of the user", func() bool {
		return strings.Contains(once(t, j.Instance.WSURL, "Target.getTargets", "{}"), "/page?user")
	})
	before := tabs(t, chrome)
	once(t, j.Instance.WSURL, "Browser.close", "{}")
	if got := tabs(t, chrome); !slices.Equal(got, before) {
		t.Errorf("a client that closes the browser leaves the tabs %v of %v", got, before)
	}
}

func TestExtensionOtherClients(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	_, chrome, _, j := w.withJoined("--session-grace", "0s")
	before := tabs(t, chrome)
	chromedpSession(t, j.Instance.WSURL+"/chromedp", site, "chromedp")
	node, err := filepath.Abs("../scripts/clients/node_modules/.bin/playwright-mcp")
	if err != nil {
		t.Fatal(err)
	}
	m := w.cmd(node, "--cdp-endpoint", j.Instance.HTTPURL)
	m.Stdin = strings.NewReader(greeting("2025-06-18") + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"browser_navigate",` +
		`"arguments":{"url":"` + site + `/page?mcp"}}}` + "\n")
	in := m.Stdin
	m.Stdin = nil
	stdin, err := m.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out syncBuffer
	m.Stdout = &out
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	io.Copy(stdin, in)
	until(t, "@playwright/mcp opens a page", func() bool { return strings.Contains(out.String(), "Page Title: /page") })
	stdin.Close()
	m.Wait()
	until(t, "the tabs of the clients are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
}

// Tabs are closed with their client, also those whose page replaces itself for ever
// or asks before it is left.
func TestExtensionTabsThatStay(t *testing.T) {
	t.Parallel()
	site := faultySite(t)
	w := newWorld(t)
	_, chrome, _, j := w.withJoined("--session-grace", "0s")
	before := tabs(t, chrome)
	c := dial(t, j.Instance.WSURL)
	for range 6 {
		c.ask("Target.createTarget", `{"url":"`+site+`/turns"}`)
	}
	target := resultOf(t, c.ask("Target.createTarget", `{"url":"`+site+`/unsaved"}`))
	id := jsonrpc.GetString(target, "targetId")
	session := jsonrpc.GetString(resultOf(t, c.ask("Target.attachToTarget", `{"targetId":"`+id+`","flatten":true}`)),
		"sessionId")
	until(t, "the page takes a key", func() bool {
		of := `,"sessionId":"` + session + `"`
		c.ask("Runtime.evaluate", `{"expression":"document.querySelector('input').focus()"}`+of)
		c.ask("Input.dispatchKeyEvent", `{"type":"char","text":"x"}`+of)
		got := c.ask("Runtime.evaluate", `{"expression":"document.querySelector('input').value"}`+of)
		return strings.Contains(got, `"x`)
	})
	until(t, "the pages turn", func() bool {
		return strings.Count(strings.Join(tabs(t, chrome), "\n"), "/turns?") == 6
	})
	c.conn.Close(websocket.Normal, "")
	until(t, "the tabs of the client are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
}

// A command gets the first browser that joins.
func TestExtensionCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.dir + "/extension"
	port := strings.TrimSpace(w.run("bport", "-f", "port").out)
	w.run("bproxy", "extension", "--paired", "--pairing-file", w.dir+"/code", "--hub", "http://127.0.0.1:"+port, dir).
		wants(t, 0, "")
	chromiumWith(t, dir)
	r := w.run("bproxy", "--extension", "--listen", port, "--pairing-file", w.dir+"/code", "--timeout", "1m", "--",
		"sh", "-c", "echo {cdp_endpoint} $BTOOLS_CDP_URL; exit 7")
	at, env, _ := strings.Cut(strings.TrimSpace(r.out), " ")
	if r.code != 7 || at != env || !strings.HasPrefix(at, "http://127.0.0.1:"+port+"/session/inst_") {
		t.Errorf("exit %d, %s, %s", r.code, r.out, r.err)
	}
}

// A tab that a client opens goes to its address.
func TestExtensionTabWithAddress(t *testing.T) {
	t.Parallel()
	site := isolatedSite(t)
	w := newWorld(t)
	_, _, _, j := w.withJoined()
	c := dial(t, j.Instance.WSURL)
	c.ask("Target.createTarget", `{"url":"`+site+`/page?x"}`)
	until(t, "the tab is at its address", func() bool {
		return strings.Contains(c.ask("Target.getTargets", "{}"), site+"/page?x")
	})
}
