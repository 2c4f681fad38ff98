package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// long says that what takes long by its nature is tested as well.
var long = os.Getenv("LONG") != ""

// sharedBrowser is one headless shell for all tests that neither end it nor count all
// that it has: each has sessions of its own. With LONG=1 it is a Chromium, which takes
// three times as much of the processor.
func sharedBrowser(t *testing.T) *Browser {
	t.Helper()
	if long {
		return sharedChrome(t)
	}
	return lastingShell.open(t, chrometest.StartShellOnPipe)
}

// sharedChrome is one Chromium for those tests for which the kind matters.
func sharedChrome(t *testing.T) *Browser {
	t.Helper()
	return lastingChrome.open(t, chrometest.StartOnPipe)
}

var lastingShell, lastingChrome common

// common is a browser that all tests use: it ends with the last one.
type common struct {
	once    sync.Once
	browser *Browser
	atEnd   []func()
}

func (l *common) open(t *testing.T, start func(testing.TB) (in, out *os.File, p *os.Process)) *Browser {
	t.Helper()
	l.once.Do(func() { l.browser = openPipe(lasting{t, l}, start) })
	if l.browser == nil {
		t.Fatal("the shared browser has not started")
	}
	return l.browser
}

// lasting stands for the test that starts a shared browser.
type lasting struct {
	testing.TB
	browser *common
}

func (l lasting) Cleanup(f func()) { l.browser.atEnd = append(l.browser.atEnd, f) }

func (lasting) Context() context.Context { return context.Background() }

func (lasting) Failed() bool { return false }

func TestMain(m *testing.M) {
	if dir := os.Getenv("VIRTUAL_TEST_CLIENT"); dir != "" {
		runClient(dir)
		return
	}
	code := m.Run()
	for _, f := range slices.Backward(append(lastingShell.atEnd, lastingChrome.atEnd...)) {
		f()
	}
	os.Exit(code)
}

// runClient wants its downloads in a directory, in which the address of its session is
// and the answer gets.
func runClient(dir string) {
	url, _ := os.ReadFile(dir + "/url")
	conn, err := websocket.Dial(context.Background(), string(url))
	if err == nil {
		conn.Write(wire.Command("1", "", "Browser.setDownloadBehavior",
			map[string]any{"behavior": "allow", "downloadPath": dir}))
		var m *websocket.Message
		if m, err = conn.Next(); err == nil {
			var b []byte
			if b, err = m.Bytes(); err == nil {
				err = os.WriteFile(dir+"/answer.new", b, 0o600)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Rename(dir+"/answer.new", dir+"/answer")
}

// openChrome starts a Chromium for the test and opens it, by its pipe.
func openChrome(t *testing.T) *Browser {
	t.Helper()
	return openPipe(t, chrometest.StartOnPipe)
}

// openShell starts a chrome-headless-shell for the test and opens it, by its pipe.
func openShell(t *testing.T) *Browser {
	t.Helper()
	return openPipe(t, chrometest.StartShellOnPipe)
}

func openPipe(t testing.TB, start func(testing.TB) (in, out *os.File, p *os.Process)) *Browser {
	t.Helper()
	in, out, _ := start(t)
	m := single.NewPipe(in, out)
	t.Cleanup(m.Close)
	b, err := OpenOn(t.Context(), Over(m), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// openProcess opens a browser by its port, and returns its process as well.
func openProcess(t *testing.T, start func(testing.TB) (string, *os.Process)) (*Browser, *os.Process) {
	t.Helper()
	url, process := start(t)
	b, err := Open(t.Context(), url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, process
}

func newSession(t *testing.T, b *Browser, o Options) *Session {
	t.Helper()
	s, err := b.NewSession(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.End(context.Background()) })
	return s
}

// peer is a client in a test: what it has heard can be waited for.
type peer struct {
	t      *testing.T
	conn   *websocket.Conn
	last   int
	events []json.RawMessage
}

// connect connects a client to a session, or to a target of it.
func connect(t *testing.T, s *Session, target string) *peer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := s.Connect(r.Context(), target)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		k.Accept(w, r)
	}))
	t.Cleanup(server.Close)
	conn, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &peer{t: t, conn: conn}
}

// next is the next message that the client is sent.
func (p *peer) next() json.RawMessage {
	p.t.Helper()
	type got struct {
		b   []byte
		err error
	}
	c := make(chan got, 1)
	go func() {
		m, err := p.conn.Next()
		if err != nil {
			c <- got{nil, err}
			return
		}
		b, err := m.Bytes()
		c <- got{b, err}
	}()
	select {
	case g := <-c:
		if g.err != nil {
			p.t.Fatalf("the client was disconnected: %v", g.err)
		}
		return g.b
	case <-time.After(patience):
		p.t.Fatalf("the client was told nothing for %v; last: %s", patience, p.events[max(0, len(p.events)-5):])
		return nil
	}
}

// call sends a command and returns its answer; events that come before are kept.
func (p *peer) call(session, method string, params any) json.RawMessage {
	p.t.Helper()
	p.begin(session, method, params)
	for {
		m := p.next()
		if string(jsonrpc.Get(m, "id")) == string(jsonID(p.last)) {
			return m
		}
		p.events = append(p.events, m)
	}
}

// must is ask for a command that succeeds; it returns the result.
func (p *peer) must(session, method string, params any) json.RawMessage {
	p.t.Helper()
	m := p.call(session, method, params)
	if jsonrpc.Get(m, "error") != nil {
		p.t.Fatalf("%s: %s", method, m)
	}
	return jsonrpc.Get(m, "result")
}

// event waits for an event whose params have such text.
func (p *peer) event(method, with string) json.RawMessage {
	p.t.Helper()
	is := func(m json.RawMessage) bool {
		return jsonrpc.GetString(m, "method") == method && strings.Contains(string(m), with)
	}
	if i := slices.IndexFunc(p.events, is); i >= 0 {
		m := p.events[i]
		p.events = slices.Delete(p.events, i, i+1)
		return m
	}
	for {
		if m := p.next(); is(m) {
			return m
		} else {
			p.events = append(p.events, m)
		}
	}
}

func jsonID(n int) json.RawMessage {
	b, _ := json.Marshal(n)
	return b
}

// pages are the IDs of the pages that a client is shown.
func (p *peer) pages() (ids []string) {
	p.t.Helper()
	for info := range jsonrpc.Elements(jsonrpc.Get(p.must("", "Target.getTargets", nil), "targetInfos")) {
		if jsonrpc.GetString(info, "type") == "page" {
			ids = append(ids, jsonrpc.GetString(info, "targetId"))
		}
	}
	return ids
}

// attach attaches to a page.
func (p *peer) attach(page string) (session string) {
	p.t.Helper()
	return jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": page, "flatten": true}),
		"sessionId")
}

func TestSessionsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	b := sharedChrome(t)
	one, two := newSession(t, b, Options{}), newSession(t, b, Options{})
	p, q := connect(t, one, ""), connect(t, two, "")
	mine, theirs := p.pages(), q.pages()
	if len(mine) != 1 || len(theirs) != 1 || mine[0] == theirs[0] {
		t.Fatalf("a new session has %v, another has %v; want one page each", mine, theirs)
	}
	got := p.call("", "Target.attachToTarget", map[string]any{"targetId": theirs[0], "flatten": true})
	if jsonrpc.GetString(got, "error", "message") != "No target with given id found" {
		t.Errorf("attaching to a page of another session: %s", got)
	}
	p.must("", "Target.createTarget", map[string]any{"url": "about:blank#new"})
	if n := len(p.pages()); n != 2 {
		t.Errorf("the session has %d pages, want 2", n)
	}
	if n := len(q.pages()); n != 1 {
		t.Errorf("another session has %d pages, want 1", n)
	}
	if err := one.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(q.pages()); n != 1 {
		t.Errorf("after the end of the other the session has %d pages, want 1", n)
	}
	if s := one.Stats(); s.TabCount != 0 || s.Clients != 0 {
		t.Errorf("an ended session has %d tabs and %d clients", s.TabCount, s.Clients)
	}
}

func TestTargetsAreToldBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	p := connect(t, newSession(t, b, Options{}), "")
	p.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
		"flatten": true})
	if len(p.events) != 1 {
		t.Fatalf("auto-attach told of %d targets before its answer, want 1: %s", len(p.events), p.events)
	}
	id := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
	last := p.events[len(p.events)-1]
	if len(p.events) != 2 || jsonrpc.GetString(last, "params", "targetInfo", "targetId") != id ||
		string(jsonrpc.Get(last, "params", "waitingForDebugger")) != "true" {
		t.Fatalf("a new target was not told, waiting, before the answer: %s", p.events)
	}
	page := jsonrpc.GetString(last, "params", "sessionId")
	p.must(page, "Runtime.runIfWaitingForDebugger", nil)
	got := p.must(page, "Runtime.evaluate",
		map[string]any{"expression": "document.hasFocus() + ' ' + document.visibilityState"})
	if s := jsonrpc.GetString(got, "result", "value"); s != "true visible" {
		t.Errorf("a page of a session has focus and visibility %q, want %q", s, "true visible")
	}
}

// A client is told of the end of a context's targets before the answer to its command,
// whether it is attached to them or discovers them.
func TestEndsAreToldBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	p := connect(t, newSession(t, sharedChrome(t), Options{}), "")
	p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	for n := range 6 {
		if n == 3 { // from now on new pages wait for the client
			p.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
				"flatten": true})
		}
		disposed := p.must("", "Target.createBrowserContext", nil)
		var pages, sessions []string
		for range 2 {
			in := jsonrpc.Set(disposed, "url", quote(server.URL))
			var page, session string
			if n < 3 {
				page = jsonrpc.GetString(p.must("", "Target.createTarget", in), "targetId")
				session = p.attach(page)
			} else {
				p.begin("", "Target.createTarget", in)
				opened := p.event("Target.attachedToTarget", jsonrpc.GetString(disposed, "browserContextId"))
				page = jsonrpc.GetString(opened, "params", "targetInfo", "targetId")
				session = jsonrpc.GetString(opened, "params", "sessionId")
				p.must(session, "Runtime.runIfWaitingForDebugger", nil)
			}
			p.must(session, "Page.enable", nil)
			p.must(session, "Page.navigate", map[string]any{"url": server.URL + "/page"})
			pages, sessions = append(pages, page), append(sessions, session)
		}
		p.must("", "Target.disposeBrowserContext", disposed)
		told := fmt.Sprintf("%s", p.events)
		for i, page := range pages {
			for _, end := range []string{`"Target.targetDestroyed","params":{"targetId":"` + page,
				`"Target.detachedFromTarget","params":{"sessionId":"` + sessions[i]} {
				if !strings.Contains(told, end) {
					t.Errorf("the answer came before %s", end)
				}
			}
		}
	}
}

func TestTabLimit(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	p := connect(t, newSession(t, b, Options{Settings: settings.Settings{TabLimit: 2}}), "")
	first := p.pages()[0]
	p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	var last string
	for range 3 {
		last = jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
	}
	p.event("Target.targetDestroyed", first)
	p.event("Target.targetDestroyed", "")
	if ids := p.pages(); len(ids) != 2 || !slices.Contains(ids, last) {
		t.Errorf("with a limit of 2 there are %v; want 2, with the newest, %s", ids, last)
	}
}

func TestClosingTheBrowserEndsTheSession(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	s, other := newSession(t, b, Options{}), newSession(t, b, Options{})
	p := connect(t, s, "")
	p.must("", "Browser.close", nil)
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("Browser.close has not ended the session")
	}
	if err := s.Err(); err != ErrClosed {
		t.Errorf("the session ended: %v", err)
	}
	connect(t, other, "").pages()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.End(ctx); err != nil {
		t.Errorf("its pages are still there: %v", err)
	}
}

// Clients find the browser itself among the targets, and discover targets on a
// page's session, too.
func TestBrowserIsATarget(t *testing.T) {
	t.Parallel()
	b := sharedChrome(t)
	one := newSession(t, b, Options{})
	p, q := connect(t, one, ""), connect(t, newSession(t, b, Options{}), "")
	foreign := q.pages()[0]
	all := map[string]any{"discover": true, "filter": []map[string]any{{}}}
	p.must("", "Target.setDiscoverTargets", all)
	id := jsonrpc.GetString(p.event("Target.targetCreated", `"type":"browser"`), "params", "targetInfo", "targetId")
	if got := p.must("", "Target.getTargetInfo", map[string]any{"targetId": id}); jsonrpc.GetString(got, "targetInfo",
		"type") != "browser" {
		t.Errorf("the browser's own info is %s", got)
	}
	if got := p.must("", "Target.getTargets",
		map[string]any{"filter": []map[string]any{{}}}); !strings.Contains(string(got), id) {
		t.Errorf("without a filter the browser is not listed: %s", got)
	}
	root := jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": id, "flatten": true}),
		"sessionId")
	if got := p.must(root, "Target.getTargets", nil); strings.Contains(string(got), foreign) {
		t.Errorf("a session with the browser sees a page of another: %s", got)
	}
	if got := q.call("", "Target.attachToTarget", map[string]any{"targetId": id, "flatten": true}); jsonrpc.Get(got,
		"error") == nil {
		t.Errorf("a session has attached to another as a browser: %s", got)
	}
	page := jsonrpc.GetString(p.must("", "Target.attachToTarget",
		map[string]any{"targetId": p.pages()[0], "flatten": true}), "sessionId")
	p.must(page, "Target.setDiscoverTargets", map[string]any{"discover": true})
	p.event("Target.targetCreated", `"sessionId":"`+page+`"`)
	p.must("", "Target.createTarget", map[string]any{"url": "about:blank#new"})
	q.must("", "Target.createTarget", map[string]any{"url": "about:blank#theirs"})
	p.event("Target.targetInfoChanged", "#new")
	for _, m := range p.events {
		if strings.Contains(string(m), "#theirs") || strings.Contains(string(m), foreign) {
			t.Errorf("a page's session was told of a page of another: %s", m)
		}
	}
}
