package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// secret is in all data of the second session.
const secret = "secret-of-the-other"

// site serves the pages of the hostile test. A download and a request go on
// until the channel is closed.
func site(t *testing.T, until <-chan struct{}) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s</title>%s", r.URL.Path, r.URL.Path)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", "attachment; filename="+secret)
		w.Header().Set("Content-Length", "200000")
		w.Write(make([]byte, 100_000))
		w.(http.Flusher).Flush()
		select {
		case <-until:
			w.Write(make([]byte, 100_000))
		case <-r.Context().Done():
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// victim is a session with one of everything.
type victim struct {
	*peer
	s       *Session
	page    string // its CDP session
	ids     map[string][]any
	secrets []string
	stream  string
	paused  string
}

func newVictim(t *testing.T, b *Browser, site string) *victim {
	t.Helper()
	v := &victim{s: newSession(t, b, Options{})}
	v.peer = connect(t, v.s, "")
	v.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	v.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
		"flatten": true})
	v.must("", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": t.TempDir(),
		"eventsEnabled": true})
	other := jsonrpc.GetString(v.must("", "Target.createBrowserContext", nil), "browserContextId")
	v.must("", "Browser.grantPermissions", map[string]any{"permissions": []string{"geolocation"}})
	target := v.pages()[0]
	v.page = jsonrpc.GetString(v.event("Target.attachedToTarget", target), "params", "sessionId")
	for _, d := range []string{"Page", "Runtime", "Network", "DOM", "Log", "Debugger", "CSS"} {
		v.must(v.page, d+".enable", nil)
	}
	v.must(v.page, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*paused*"}}})
	v.must(v.page, "Page.navigate", map[string]any{"url": site + "/" + secret})
	v.event("Page.loadEventFired", "")
	v.must(v.page, "Runtime.evaluate",
		map[string]any{"expression": "document.cookie = localStorage.x = '" + secret + "'; fetch('/paused'); 1"})
	paused := v.event("Fetch.requestPaused", "")
	v.paused = jsonrpc.GetString(paused, "params", "requestId")
	v.must(v.page, "Runtime.evaluate",
		map[string]any{"expression": "let a = document.createElement('a'); a.href = '/file'; a.click(); 1"})
	guid := jsonrpc.GetString(v.event("Browser.downloadWillBegin", ""), "params", "guid")
	v.stream = jsonrpc.GetString(v.must(v.page, "Page.printToPDF", map[string]any{"transferMode": "ReturnAsStream"}),
		"stream")
	window := jsonrpc.Get(v.must("", "Browser.getWindowForTarget", map[string]any{"targetId": target}), "windowId")
	tree := jsonrpc.Get(v.must(v.page, "Page.getFrameTree", nil), "frameTree", "frame")
	object := jsonrpc.GetString(v.must(v.page, "Runtime.evaluate", map[string]any{"expression": "document"}), "result",
		"objectId")
	loader := jsonrpc.GetString(tree, "loaderId")
	networkID := jsonrpc.GetString(paused, "params", "networkId")
	var tabs []string
	for info := range jsonrpc.Elements(jsonrpc.Get(v.must("", "Target.getTargets",
		map[string]any{"filter": []any{map[string]any{}}}), "targetInfos")) {
		if jsonrpc.GetString(info, "type") == "tab" {
			tabs = append(tabs, jsonrpc.GetString(info, "targetId"))
		}
	}
	if len(tabs) == 0 || guid == "" || v.stream == "" || window == nil || object == "" || loader == "" ||
		networkID == "" {
		t.Fatalf("the second session lacks ids: %s %s %s %s %s %s %s", tabs, guid, v.stream, window, object, loader,
			networkID)
	}
	v.ids = map[string][]any{
		"Target.TargetID": {target, tabs[0]}, "Target.SessionID": {v.page},
		"Browser.BrowserContextID": {v.s.base, other},
		"Browser.WindowID":         {window}, "guid": {guid}, "IO.StreamHandle": {v.stream},
		"Fetch.RequestId":   {v.paused},
		"Network.RequestId": {networkID, loader}, "Network.InterceptionId": {v.paused}, "Page.FrameId": {target},
		"Network.LoaderId":       {loader},
		"Runtime.RemoteObjectId": {object}, "DOM.NodeId": {2}, "DOM.BackendNodeId": {2}, "Runtime.ScriptId": {"3"},
		"Runtime.ExecutionContextId": {1}, "origin": {site}, "securityOrigin": {site}, "storageKey": {site + "/"},
		"Storage.SerializedStorageKey": {site + "/"}, "scopeURL": {site + "/"}, "ownerOrigin": {site},
		"Page.ScriptIdentifier": {"1"},
	}
	v.secrets = []string{secret, target, tabs[0], v.page, v.s.base, other, guid, loader, v.s.id}
	return v
}

// state returns the state of the victim's page.
func (v *victim) state() string {
	v.t.Helper()
	got := v.must(v.page, "Runtime.evaluate", map[string]any{"awaitPromise": true, "returnByValue": true,
		"expression": `
		(async () => JSON.stringify([
		location.href, document.title, document.cookie, localStorage.x, document.hasFocus(), document.visibilityState,
		innerWidth, innerHeight, outerWidth, outerHeight, screen.width, screen.height, devicePixelRatio,
		navigator.userAgent, navigator.onLine, navigator.languages, Intl.DateTimeFormat().resolvedOptions().timeZone,
		matchMedia('(prefers-color-scheme: dark)').matches, navigator.hardwareConcurrency,
		(await navigator.permissions.query({name: 'geolocation'})).state, history.length]))()`})
	window := v.must("", "Browser.getWindowBounds", map[string]any{"windowId": v.ids["Browser.WindowID"][0]})
	cookies := v.must("", "Storage.getCookies", nil)
	targets := v.pages()
	return fmt.Sprintf("%s %s %s %s", jsonrpc.GetString(got, "result", "value"), window, cookies, targets)
}

// quiet checks that the victim got no events while others were busy.
func (v *victim) quiet() {
	v.t.Helper()
	v.must("", "Browser.getVersion", nil)
	for _, e := range v.events {
		if m := jsonrpc.GetString(e, "method"); !strings.HasSuffix(m, ".downloadProgress") {
			v.t.Errorf("the other session was told %.300s", e)
		}
	}
	v.events = nil
}

// harmful are the methods after which a page does not answer: they come last.
var harmful = []string{
	"Emulation.setScriptExecutionDisabled", "Emulation.setVirtualTimePolicy", "Page.setWebLifecycleState",
	"Page.startScreencast", "Debugger.enable",
	"Debugger.pause", "Runtime.terminateExecution", "Page.waitForDebugger", "HeadlessExperimental.beginFrame",
	"Page.stopLoading", "Page.close",
}

// ending are the methods that end the session or the page, and are tried on
// their own: a renderer that ends while a screenshot is taken can end Chromium
// 156 itself; see bproxy(1).
var ending = []string{"Browser.close", "Page.crash"}

// browserLayer are the domains that name things of the whole browser: there
// each foreign id is answered with an error.
var browserLayer = []string{"Target", "Browser", "Storage", "Tracing", "IO", "Memory", "SystemInfo", "Tethering",
	"Extensions", "Fetch", "PWA"}

// publicOnly matches commands that name no more than an origin, which is
// nobody's.
var publicOnly = regexp.MustCompile(`"(origin|storageKey)":"http`)

// attack sends all commands of a domain from the root and from a page, and
// returns their number and those without an answer.
func attack(t *testing.T, a *Session, d domain, s samples, secrets []string, site string) (sent int,
	unanswered []string) {
	p := connect(t, a, "")
	target := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": site + "/own"}), "targetId")
	page := jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}),
		"sessionId")
	type command struct {
		text  string
		named bool
	}
	waiting := map[string]command{}
	var all []json.RawMessage
	for _, session := range []string{"", page} {
		var late []json.RawMessage
		for _, c := range d.Commands {
			method := d.Name + "." + c.Name
			params, named := s.commands(d.Name, c.Params)
			for i, raw := range params {
				if slices.Contains(ending, method) {
					continue
				}
				p.last++
				text := fmt.Sprintf("%s %s", method, raw)
				waiting[fmt.Sprint(p.last)] = command{text + " on " + session, named[i]}
				message := json.RawMessage(wire.Command(fmt.Sprint(p.last), session, method, raw))
				if slices.Contains(harmful, method) {
					late = append(late, message)
				} else {
					all = append(all, message)
				}
			}
		}
		slices.SortStableFunc(late, func(a, b json.RawMessage) int {
			return slices.Index(harmful, jsonrpc.GetString(a, "method")) - slices.Index(harmful,
				jsonrpc.GetString(b, "method"))
		})
		all = append(all, late...)
	}
	sent = len(all)
	go func() {
		for _, m := range all {
			if p.conn.Write(m) != nil {
				return
			}
		}
	}()
	heard := make(chan json.RawMessage)
	go func() {
		defer close(heard)
		for {
			m, err := p.conn.Next()
			if err != nil {
				return
			}
			b, err := m.Bytes()
			if err != nil {
				return
			}
			heard <- b
		}
	}()
	defer func() {
		p.conn.Close(websocket.Normal, "")
		for range heard {
		}
	}()
	for len(waiting) > 0 {
		within := 1500 * time.Millisecond // a page that is not well any more answers nothing
		for _, c := range waiting {
			if !strings.HasSuffix(c.text, page) {
				within = patience
				break
			}
		}
		select {
		case m, ok := <-heard:
			if !ok {
				for id, c := range waiting {
					unanswered = append(unanswered, id+" "+c.text)
				}
				slices.Sort(unanswered)
				t.Errorf("%s: the client was disconnected, without an answer to\n%s", d.Name,
					strings.Join(unanswered, "\n"))
				return sent, nil
			}
			id := string(jsonrpc.Get(m, "id"))
			c := waiting[id]
			delete(waiting, id)
			data := string(m)
			if jsonrpc.Get(m, "error") != nil {
				continue // it may name the id that it was given
			}
			for _, secret := range secrets {
				if strings.Contains(data, secret) {
					t.Errorf("%s told of the other session: %.400s", c.text, data)
					break
				}
			}
			if c.named && slices.Contains(browserLayer, d.Name) && !publicOnly.MatchString(c.text) {
				t.Errorf("%s names what is not the session's, and succeeded: %.200s", c.text, data)
			}
		case <-time.After(within):
			for _, c := range waiting {
				unanswered = append(unanswered, c.text)
				if !strings.HasSuffix(c.text, page) {
					t.Errorf("%s is not answered", c.text)
				}
			}
			return sent, unanswered
		}
	}
	return sent, nil
}

// Two clients of two sessions: for each method that Chrome has, from the root
// and from a page, with each id of the other session wherever it can stand, the
// hostile one learns nothing and the other one notices nothing.
func TestHostileClients(t *testing.T) {
	if !long {
		t.Skip("make test LONG=1 runs it")
	}
	t.Parallel()
	b, _ := openProcess(t, func(t testing.TB) (string, *os.Process) { return chrometest.Start(t) }) // it has a port
	until := make(chan struct{})
	end := sync.OnceFunc(func() { close(until) })
	defer end()
	url := site(t, until)
	victim := newVictim(t, b, url)
	p := readProtocol(t, b)
	s := newSamples(p, victim.ids)
	before := victim.state()
	victim.events = nil

	begun := time.Now()
	a := newSession(t, b, Options{})
	var mu sync.Mutex
	var work sync.WaitGroup
	methods, commands, silent := 0, 0, map[string]bool{}
	slots := make(chan struct{}, 6)
	for _, d := range p.Domains {
		methods += len(d.Commands)
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			// Pages of one site can share a process, and would die with each other.
			own := strings.Replace(url, "127.0.0.1", strings.ToLower(d.Name)+".localhost", 1)
			n, unanswered := attack(t, a, d, s, victim.secrets, own)
			mu.Lock()
			defer mu.Unlock()
			commands += n
			for _, u := range unanswered {
				method, _, _ := strings.Cut(u, " ")
				silent[method] = true
			}
		})
	}
	work.Wait()
	closing := newSession(t, b, Options{})
	last := connect(t, closing, "")
	page := last.autoAttach()
	last.conn.Write(wire.Command("1000000", page, "Page.crash", nil))
	last.event("Inspector.targetCrashed", page)
	last.must("", "Browser.close", nil)
	t.Logf("%d methods, %d commands in %v; %d methods have no answer on a page that is not well any more", methods,
		commands, time.Since(begun).Round(time.Millisecond), len(silent))

	victim.quiet()
	if after := victim.state(); after != before {
		t.Errorf("the other session changed:\n%s\n%s", before, after)
	}
	victim.must(victim.page, "IO.read", map[string]any{"handle": victim.stream, "size": 10})
	victim.must(victim.page, "Fetch.continueRequest", map[string]any{"requestId": victim.paused})
	end()
	victim.event("Browser.downloadProgress", `"completed"`)
}
