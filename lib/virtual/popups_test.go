package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"

	coder "github.com/coder/websocket"
)

// popUp opens a pop-up from a page and waits until the client is told of it. The
// answer may come only when the pop-up goes on. A page that Chrome does not let
// open one, as it has lost the user's gesture to one before, tries again.
func (p *peer) popUp(page, url string) (session string) {
	p.t.Helper()
	open := func() string {
		p.begin(page, "Runtime.evaluate",
			map[string]any{"expression": "!!window.open('" + url + "')", "userGesture": true})
		return string(jsonID(p.last))
	}
	for id := open(); ; {
		m := p.next()
		switch {
		case jsonrpc.GetString(m, "method") == "Target.attachedToTarget" && strings.Contains(string(m), `"page"`):
			return jsonrpc.GetString(m, "params", "sessionId")
		case string(jsonrpc.Get(m, "id")) == id && string(jsonrpc.Get(m, "result", "result", "value")) == "false":
			id = open()
		default:
			p.events = append(p.events, m)
		}
	}
}

func TestPausedPopUpsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	one, two := newSession(t, b, Options{}), newSession(t, b, Options{})
	q := connect(t, two, "")
	qpage := q.autoAttach()
	open := func() {
		for range 5 {
			popup := q.popUp(qpage, "about:blank")
			q.must(popup, "Runtime.runIfWaitingForDebugger", nil)
			q.must(popup, "Runtime.evaluate", map[string]any{"expression": "1"})
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k, err := one.Connect(r.Context(), ""); err == nil {
			k.Accept(w, r)
		}
	}))
	defer server.Close()
	raw, _, err := coder.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(m string) {
		if err := raw.Write(t.Context(), coder.MessageText, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	until := func(with string) string {
		for {
			_, m, err := raw.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(m), with) {
				return string(m)
			}
		}
	}
	write(`{"id":1,"method":"Target.setAutoAttach",` +
		`"params":{"autoAttach":true,"waitForDebuggerOnStart":true,"flatten":true}}`)
	first := jsonrpc.GetString([]byte(until("attachedToTarget")), "params", "sessionId")
	write(fmt.Sprintf(`{"id":2,"method":"Runtime.evaluate",`+
		`"params":{"expression":"window.open('about:blank')","userGesture":true},"sessionId":%q}`, first))
	until(`"openerId":"`)
	open()
	if !hasPaused(one) {
		t.Error("the pop-ups of one session opened only once that of the other one had resumed")
	}
	raw.CloseNow() // as a process that is killed
	open()
	// The paused pop-up resumes without its client.
	p := connect(t, one, "")
	for _, id := range p.pages() {
		page := jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": id, "flatten": true}),
			"sessionId")
		p.must(page, "Runtime.evaluate", map[string]any{"expression": "1", "awaitPromise": true})
	}
}

// hasPaused reports whether a page of a session is paused.
func hasPaused(s *Session) bool {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for _, t := range s.targetsLocked() {
		if t.typ == "page" && t.isPaused() {
			return true
		}
	}
	return false
}

// Two clients of one session both set up a pop-up before it runs, whichever
// lets it go first, and whether they ask for pages or for tabs.
func TestAllClientsSetUpAPopUp(t *testing.T) {
	t.Parallel()
	tabs := []map[string]any{{"type": "page", "exclude": true}, {"type": "browser", "exclude": true}, {}}
	b := sharedChrome(t)
	until := make(chan struct{})
	defer close(until)
	url := site(t, until)
	for _, byTab := range []bool{false, true} {
		t.Run(fmt.Sprintf("tab mode %v", byTab), func(t *testing.T) {
			s := newSession(t, b, Options{})
			p, q := connect(t, s, ""), connect(t, s, "")
			page := p.autoAttach()
			p.must(page, "Page.navigate", map[string]any{"url": url})
			var second string
			if byTab {
				tab := q.autoAttach(tabs...)
				q.must(tab, "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
					"flatten": true, "filter": []any{map[string]any{}}})
				q.event("Target.attachedToTarget", `"page"`)
			} else {
				q.autoAttach()
			}
			first := p.popUp(page, url+"/popup")
			if byTab {
				tab := jsonrpc.GetString(q.event("Target.attachedToTarget", `"tab"`), "params", "sessionId")
				q.must(tab, "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
					"flatten": true, "filter": []any{map[string]any{}}})
				q.must(tab, "Runtime.runIfWaitingForDebugger", nil)
			}
			told := q.event("Target.attachedToTarget", `"page"`)
			second = jsonrpc.GetString(told, "params", "sessionId")
			if string(jsonrpc.Get(told, "params", "waitingForDebugger")) != "true" {
				t.Errorf("the second client was told of a pop-up that does not wait: %s", told)
			}
			for i, c := range []struct {
				p       *peer
				session string
			}{{p, first}, {q, second}} {
				c.p.must(c.session, "Page.enable", nil)
				c.p.must(c.session, "Page.addScriptToEvaluateOnNewDocument",
					map[string]any{"source": fmt.Sprintf("window.set%d = 1", i)})
				c.p.must(c.session, "Runtime.runIfWaitingForDebugger", nil)
			}
			p.event("Page.loadEventFired", first)
			got := p.must(first, "Runtime.evaluate",
				map[string]any{"expression": "[location.pathname, window.set0, window.set1].join()"})
			if v := jsonrpc.GetString(got, "result", "value"); v != "/popup,1,1" {
				t.Errorf("the pop-up has %q, want %q", v, "/popup,1,1")
			}
		})
	}
	// A client of tabs that only lets the tab go has let its page go.
	t.Run("tab only", func(t *testing.T) {
		s := newSession(t, b, Options{})
		p := connect(t, s, "")
		p.autoAttach(tabs...)
		p.must("", "Target.createTarget", map[string]any{"url": url + "/created"})
		tab := jsonrpc.GetString(p.event("Target.attachedToTarget", `"tab"`), "params", "sessionId")
		p.must(tab, "Runtime.runIfWaitingForDebugger", nil)
		q := connect(t, s, "")
		for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if got := q.must("", "Target.getTargets", nil); strings.Contains(string(got), `"/created"`) {
				break
			} else if time.Since(begun) > patience {
				t.Fatalf("the page has not been loaded: %s", got)
			}
		}
	})
}

// A page that a link opens has no opener, and its document is on its way before anybody
// is told. It runs under what its clients have set up all the same, and tells each its
// first requests.
func TestPagesOfLinksBeginUnderTheirClients(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<script>begun = [window.set0, window.set1].join()</script><script src=/first.js></script>"+
			"<a target=_blank href=/opened>open</a>")
	}))
	defer server.Close()
	all := map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true,
		"filter": []any{map[string]any{}}}
	port, _ := openProcess(t, chrometest.StartShell)
	for _, test := range []struct {
		name  string
		b     *Browser
		byTab bool
	}{{"page mode", sharedChrome(t), false}, {"tab mode", sharedChrome(t), true}, {"by port", port, false}} {
		t.Run(test.name, func(t *testing.T) {
			byTab := test.byTab
			s := newSession(t, test.b, Options{})
			p, q := connect(t, s, ""), connect(t, s, "")
			page := p.autoAttach()
			p.must(page, "Page.enable", nil)
			p.must(page, "Page.navigate", map[string]any{"url": server.URL})
			p.event("Page.loadEventFired", page)
			if byTab {
				q.must(q.autoAttach(map[string]any{"type": "page", "exclude": true},
					map[string]any{"type": "browser", "exclude": true}, map[string]any{}), "Target.setAutoAttach", all)
				q.event("Target.attachedToTarget", `"page"`)
			} else {
				q.autoAttach()
			}
			for range 3 {
				p.begin(page, "Runtime.evaluate",
					map[string]any{"expression": "document.links[0].click()", "userGesture": true})
				first := jsonrpc.GetString(p.event("Target.attachedToTarget", `"page"`), "params", "sessionId")
				if byTab {
					tab := jsonrpc.GetString(q.event("Target.attachedToTarget", `"tab"`), "params", "sessionId")
					q.begin(tab, "Target.setAutoAttach", all)
					q.begin(tab, "Runtime.runIfWaitingForDebugger", nil)
				}
				second := jsonrpc.GetString(q.event("Target.attachedToTarget", `"page"`), "params", "sessionId")
				for i, c := range []struct {
					p       *peer
					session string
				}{{p, first}, {q, second}} {
					c.p.begin(c.session, "Page.enable", nil)
					c.p.begin(c.session, "Network.enable", nil)
					c.p.begin(c.session, "Page.addScriptToEvaluateOnNewDocument",
						map[string]any{"source": fmt.Sprintf("window.set%d = 1", i)})
					c.p.begin(c.session, "Runtime.runIfWaitingForDebugger", nil)
				}
				p.event("Network.requestWillBeSent", "/first.js")
				q.event("Network.requestWillBeSent", "/first.js")
				p.event("Page.loadEventFired", first)
				got := p.must(first, "Runtime.evaluate", map[string]any{"expression": "begun"})
				if v := jsonrpc.GetString(got, "result", "value"); v != "1,1" {
					t.Errorf("the page has begun with %q, want 1,1", v)
				}
				info := p.must(first, "Target.getTargetInfo", nil)
				p.must("", "Target.closeTarget",
					map[string]any{"targetId": jsonrpc.GetString(info, "targetInfo", "targetId")})
				p.event("Target.detachedFromTarget", first)
				q.event("Target.detachedFromTarget", second)
			}
		})
	}
}

// A page goes elsewhere once all clients that set it up have done so: each is told of its
// first requests.
func TestAllClientsSeeTheFirstRequests(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<script src=/first.js></script>")
	}))
	defer server.Close()
	s := newSession(t, sharedChrome(t), Options{})
	p, q := connect(t, s, ""), connect(t, s, "")
	q.autoAttach()
	page := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
	p.begin(p.attach(page), "Page.navigate", map[string]any{"url": server.URL})
	session := jsonrpc.GetString(q.event("Target.attachedToTarget", page), "params", "sessionId")
	for range 50 { // if nothing holds it up, the page is on its way now
		q.must("", "Target.getTargets", nil)
	}
	q.begin(session, "Network.enable", nil)
	q.begin(session, "Runtime.runIfWaitingForDebugger", nil)
	q.event("Network.requestWillBeSent", "/first.js")
}

// begin sends a command.
func (p *peer) begin(session, method string, params any) {
	p.t.Helper()
	p.last++
	if err := p.conn.Write(wire.Command(string(jsonID(p.last)), session, method, params)); err != nil {
		p.t.Fatal(err)
	}
}

// Targets outside all sessions resume at once.
func TestPopUpsOfOthersGoOn(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	newSession(t, b, Options{})
	l, err := b.dial(t.Context(), func(string, string, json.RawMessage) {})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call := func(session, method string, params map[string]any) json.RawMessage {
		t.Helper()
		got, err := l.Call(ctx, session, method, params)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return got
	}
	id := jsonrpc.GetString(call("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
	page := jsonrpc.GetString(call("", "Target.attachToTarget", map[string]any{"targetId": id, "flatten": true}),
		"sessionId")
	got := call(page, "Runtime.evaluate", map[string]any{"awaitPromise": true, "userGesture": true, "expression": `
		new Promise(done => {
		const w = window.open('about:blank')
		w.setTimeout(() => done('loaded'), 5) })`})
	if v := jsonrpc.GetString(got, "result", "value"); v != "loaded" {
		t.Errorf("the pop-up: %s", got)
	}
}

// Sessions and clients leave nothing behind.
func TestNothingIsLeft(t *testing.T) {
	rounds := 4
	if long {
		rounds = 50
	}
	b := openShell(t)
	one := func(t *testing.T) {
		s := newSession(t, b, Options{})
		p := connect(t, s, "")
		p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
		page := p.autoAttach()
		p.conn.Write(wire.Command("1000", page, "Runtime.evaluate",
			map[string]any{"expression": "window.open('about:blank')",
				"userGesture": true}))
		p.conn.Write(wire.Command("1001", "", "Target.createBrowserContext", nil))
		p.conn.Write(wire.Command("1002", "", "Target.createTarget", map[string]any{"url": "about:blank"}))
		for range 2 {
			if err := s.End(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("first", one)
	before := runtime.NumGoroutine()
	t.Run("more", func(t *testing.T) {
		for range rounds {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				one(t)
			})
		}
	})
	for begun := time.Now(); runtime.NumGoroutine() > before+5; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
	for range 2 {
		var work sync.WaitGroup
		for range 2 * rounds {
			work.Go(func() {
				s, err := b.NewSession(t.Context(), Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.End(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
	}
	left := func() (left string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.sessions)+len(b.contexts)+len(b.targets)+b.watcher.Pending() > 0 {
			left = fmt.Sprintf("%d sessions, %d contexts, %d targets, %d calls", len(b.sessions), len(b.contexts),
				len(b.targets), b.watcher.Pending())
		}
		return left
	}
	for begun := time.Now(); left() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("there are left: %s", left())
		}
	}
}
