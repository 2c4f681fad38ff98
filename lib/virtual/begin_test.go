package virtual

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// setter is a client that sets up each target that it is told of, before the target
// begins, and notes what it is told.
type setter struct {
	*peer
	name string // among the clients
	in   string // the only context whose targets it sets up; "": all
	site *beginnings
	all  []*setter // the clients, in the order of their names

	mu       sync.Mutex
	answers  map[string]chan json.RawMessage
	resumes  map[string]string // the CDP sessions to resume, by the command that is answered before
	sessions map[string]string // by the type and the path of the target
	told     map[string]bool   // the facts that it has been told
}

// newSetters returns clients of these connections, which do nothing yet.
func newSetters(site *beginnings, in string, peers ...*peer) (all []*setter) {
	for i, p := range peers {
		all = append(all, &setter{peer: p, name: fmt.Sprint(i), in: in, site: site,
			answers: map[string]chan json.RawMessage{}, resumes: map[string]string{},
			sessions: map[string]string{}, told: map[string]bool{}})
	}
	return all
}

// run begins the client's work, beside that of all.
func (s *setter) run(t *testing.T, all []*setter) {
	t.Helper()
	s.all = all
	go func() {
		for {
			m, err := s.conn.Next()
			if err != nil {
				return // the test has ended
			}
			b, err := m.Bytes()
			if err != nil {
				return
			}
			s.hear(slices.Clone(b))
		}
	}()
	s.do("", "Target.setAutoAttach", autoAttach)
}

// do sends a command and waits for the result.
func (s *setter) do(session, method string, params any) json.RawMessage {
	s.t.Helper()
	got := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.begin(session, method, params)
	s.answers[string(jsonID(s.last))] = got
	s.mu.Unlock()
	select {
	case m := <-got:
		if e := jsonrpc.Get(m, "error"); e != nil {
			s.t.Fatalf("client %s: %s: %s", s.name, method, e)
		}
		return jsonrpc.Get(m, "result")
	case <-time.After(patience):
		s.t.Fatalf("client %s: %s is not answered", s.name, method)
		return nil
	}
}

// session waits for the CDP session with a target.
func (s *setter) session(of string) (session string) {
	s.t.Helper()
	for end := time.Now().Add(patience); session == ""; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		session = s.sessions[of]
		s.mu.Unlock()
		if time.Now().After(end) {
			s.t.Fatalf("client %s is not told of %s", s.name, of)
		}
	}
	return session
}

// await waits until the client has been told a fact.
func (s *setter) await(fact string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		told := s.told[fact]
		s.mu.Unlock()
		if told {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("client %s is not told: %s", s.name, fact)
		}
	}
}

// forget forgets the facts about a way.
func (s *setter) forget(way string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.told, func(fact string, _ bool) bool { return strings.Contains(fact, "/"+way) })
}

// settle returns when the client has been told all that has happened.
func (s *setter) settle() {
	s.mu.Lock()
	sessions := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, session := range sessions {
		got := make(chan json.RawMessage, 1)
		s.mu.Lock()
		s.begin(session, "Runtime.evaluate", map[string]any{"expression": "1"})
		s.answers[string(jsonID(s.last))] = got
		s.mu.Unlock()
		select {
		case <-got:
		case <-time.After(time.Second): // it may have ended
		}
	}
}

// facts returns the sorted facts about a way that the client has been told.
func (s *setter) facts(way string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fact := range s.told {
		if strings.Contains(fact, "/"+way) {
			all = append(all, s.name+" "+fact)
		}
	}
	slices.Sort(all)
	return all
}

// hear handles a message of the browser.
func (s *setter) hear(m json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	params, session := jsonrpc.Get(m, "params"), jsonrpc.GetString(m, "sessionId")
	if id := jsonrpc.Get(m, "id"); id != nil {
		if got := s.answers[string(id)]; got != nil {
			got <- m
		}
		if session := s.resumes[string(id)]; session != "" {
			s.begin(session, "Runtime.runIfWaitingForDebugger", nil)
		}
		return
	}
	switch jsonrpc.GetString(m, "method") {
	case "Target.attachedToTarget":
		s.setUpLocked(params, session)
	case "Fetch.requestPaused":
		id := jsonrpc.Get(params, "requestId")
		if !strings.Contains(jsonrpc.GetString(params, "request", "url"), "/routed/") {
			s.begin(session, "Fetch.continueRequest", map[string]any{"requestId": id})
			return
		}
		s.begin(session, "Fetch.fulfillRequest", map[string]any{"requestId": id, "responseCode": 200,
			"responseHeaders": []any{map[string]string{"name": "Content-Type", "value": "text/javascript"}},
			"body":            base64.StdEncoding.EncodeToString([]byte("routed = true"))})
	case "Network.requestWillBeSent":
		s.told["request "+path(jsonrpc.GetString(params, "request", "url"))] = true
	case "Runtime.consoleAPICalled":
		for a := range jsonrpc.Elements(jsonrpc.Get(params, "args")) {
			s.told["console "+jsonrpc.GetString(a, "value")] = true
		}
	case "Runtime.bindingCalled":
		s.told["binding "+jsonrpc.GetString(params, "payload")] = true
	case "Inspector.targetCrashed":
		for of, its := range s.sessions {
			if its == session {
				s.told["crashed "+of[len("page "):]] = true
			}
		}
	case "Page.frameNavigated":
		s.told["frame "+path(jsonrpc.GetString(params, "frame", "url"))] = true
	}
}

// path returns the path of a test's URL.
func path(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	_, rest, _ = strings.Cut(rest, "/")
	rest, _, _ = strings.Cut(rest, "?")
	return "/" + rest
}

// setUpLocked sets up a target, and lets it run. A service worker that a page leads to is
// left to its other CDP session, as Puppeteer and Playwright do. A worker of several pages
// resumes when it has been set up: Chrome (156) lets it run once one client resumes it, before
// it has begun the CDP sessions of others (7 of 1,280 workers of a whole browser under load).
func (s *setter) setUpLocked(params json.RawMessage, parent string) {
	session, info := jsonrpc.GetString(params, "sessionId"), jsonrpc.Get(params, "targetInfo")
	typ := jsonrpc.GetString(info, "type")
	foreign := s.in != "" && jsonrpc.GetString(info, "browserContextId") != s.in
	if foreign || parent != "" && typ == "service_worker" {
		s.begin(session, "Runtime.runIfWaitingForDebugger", nil)
		s.begin(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
		return
	}
	s.sessions[typ+" "+path(jsonrpc.GetString(info, "url"))] = session
	if typ == "page" || typ == "iframe" {
		s.begin(session, "Page.enable", nil)
		s.begin(session, "Page.addScriptToEvaluateOnNewDocument",
			map[string]any{"source": fmt.Sprintf("window.init%s = true", s.name)})
		s.begin(session, "Target.setAutoAttach", autoAttach)
	}
	s.begin(session, "Network.enable", nil)
	s.begin(session, "Network.setUserAgentOverride", map[string]any{"userAgent": "a user agent of the client's"})
	s.begin(session, "Fetch.enable", map[string]any{"patterns": []any{map[string]string{"urlPattern": "*/routed/*"}}})
	s.begin(session, "Runtime.enable", nil)
	s.begin(session, "Runtime.addBinding", map[string]string{"name": "bound" + s.name})
	if typ == "shared_worker" || typ == "service_worker" {
		s.resumes[string(jsonID(s.last))] = session
		return
	}
	s.begin(session, "Runtime.runIfWaitingForDebugger", nil)
}

// beginnings serves pages and workers that report under what they have begun.
type beginnings struct {
	*httptest.Server
	mu      sync.Mutex
	reports map[string][]string // by way
}

func newBeginnings(t *testing.T) *beginnings {
	b := &beginnings{reports: map[string][]string{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *beginnings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, way, _ := strings.Cut(r.URL.Path[1:], "/")
	way, _, _ = strings.Cut(way, ".")
	const first = `
		var routed = false, begun = ['0', '1'].flatMap((n) => [
			self['init' + n] && 'init' + n, self['bound' + n] && 'bound' + n])
		if (navigator.userAgent.startsWith('a user agent')) begun.push('agent')
		console.log('/%[1]s')
		for (const n of ['0', '1']) self['bound' + n]?.('/%[1]s')`
	const last = `
		if (routed) begun.push('routed')
		fetch(location.origin + '/report/%[1]s?' + begun.filter(Boolean).join())`
	w.Header().Set("Cache-Control", "no-store")
	switch dir, _, _ := strings.Cut(r.URL.Path[1:], "/"); dir {
	case "opened":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<script>"+first+"</script><script src=/routed/%[1]s.js></script><script>"+last+"</script>", way)
	case "worker":
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprintf(w, first+"\nimportScripts('/routed/%[1]s.js')\n"+last, way)
	case "routed":
		w.Header().Set("Content-Type", "text/javascript")
	case "report":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports[way] = strings.Split(r.URL.RawQuery, ",")
	case "from":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<body><a id=there style='position:fixed;left:0;top:0;width:99px;height:99px'>there</a>")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// report waits for a report, which is removed.
func (b *beginnings) report(t *testing.T, way string) []string {
	t.Helper()
	return b.reportOrNot(t, way, false)
}

// reportOrNot waits for a report, for a short time if there may be none: it returns nil then.
func (b *beginnings) reportOrNot(t *testing.T, way string, mayLack bool) (facts []string) {
	t.Helper()
	wait := patience
	if mayLack {
		wait = 2 * time.Second
	}
	for end := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		b.mu.Lock()
		facts = b.reports[way]
		delete(b.reports, way)
		b.mu.Unlock()
		if facts != nil {
			return facts
		}
		switch late := time.Now().After(end); {
		case late && mayLack:
			return nil
		case late:
			t.Fatalf("%s does not begin", way)
		}
	}
}

// rawPeer is a client of a whole browser.
func rawPeer(t *testing.T, m *single.Mux) *peer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := m.Connect(r.Context(), "")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		conn, err := websocket.Accept(w, r)
		if err != nil {
			c.Close()
			return
		}
		c.Serve(conn)
	}))
	t.Cleanup(server.Close)
	conn, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &peer{t: t, conn: conn}
}

// beginWay is a way in which a target comes to be.
type beginWay struct {
	name   string
	begin  func(s *setter, page string) // from the page with this CDP session
	unsure func(fact string) bool       // Chrome itself gives it at times only; nil: none
	again  string                       // the way of the target, which begins again; "": this one
}

// byScript returns a way that a script of the page begins.
func byScript(name, script string) beginWay {
	return beginWay{name: name, begin: func(s *setter, page string) {
		s.do(page, "Runtime.evaluate", map[string]any{"expression": script + "; 1", "userGesture": true})
	}}
}

// byService returns a way that registers a service worker.
func byService(n int) beginWay {
	name := fmt.Sprint("service", n)
	return byScript(name, fmt.Sprintf("navigator.serviceWorker.register('/worker/%[1]s.js', {scope: '/worker/%[1]s'})",
		name))
}

var beginWays = []beginWay{
	byScript("blank", "there.target = '_blank'; there.href = '/opened/blank'; there.click()"),
	byScript("noopener", "there.target = '_blank'; there.rel = 'noopener'; there.href = '/opened/noopener';"+
		"there.click()"),
	byScript("form", "f = document.createElement('form'); f.target = '_blank'; f.action = '/opened/form';"+
		"document.body.append(f); f.submit()"),
	byScript("open", "window.open('/opened/open')"),
	{name: "ctrl", begin: ctrlClick, unsure: beforeDocument},
	byService(1), byService(2), byService(3),
	{name: "shared", begin: byScript("", "new SharedWorker('/worker/shared.js')").begin, unsure: isRouted},
	byScript("dedicated", "new Worker('/worker/dedicated.js')"),
	byScript("frame", "f = document.createElement('iframe'); document.body.append(f);"+
		"f.src = location.origin.replace('127.0.0.1', 'localhost') + '/opened/frame'"),
	{name: "crash", begin: crashAndReload},
	// Chrome (156) prerenders nothing for a page to which a client has attached by itself and
	// not by its tab (PrerenderingDisabledByDevTools). A session attaches to each page.
	byScript("prerender", "r = document.createElement('script'); r.type = 'speculationrules';"+
		"r.textContent = JSON.stringify({prerender: [{urls: ['/opened/prerender'], eagerness: 'immediate'}]});"+
		"document.head.append(r)"),
}

// isRouted reports whether a fact needs a request of a worker to be held up. Chrome (156) does not
// at times if the client asks for that while the worker begins: 5 of 800 in a whole browser under load.
func isRouted(fact string) bool { return fact == "routed" }

// ctrlClick opens a page in the background.
func ctrlClick(s *setter, page string) {
	s.do(page, "Runtime.evaluate", map[string]any{"expression": "there.target = ''; there.href = '/opened/ctrl'"})
	for _, typ := range []string{"mousePressed", "mouseReleased"} {
		s.do(page, "Input.dispatchMouseEvent", map[string]any{"type": typ, "x": 50, "y": 50, "button": "left",
			"clickCount": 1, "modifiers": 2})
	}
}

// beforeDocument reports whether a fact needs a client that is heard before the document
// begins. Chrome (156) does not hold up the page that a ctrl-click opens until then: with a
// whole browser, too, five of eight such pages began under their client.
func beforeDocument(fact string) bool {
	return !strings.Contains(fact, " console ") && !strings.Contains(fact, " request /report/")
}

// crashAndReload reloads a page that has crashed.
func crashAndReload(s *setter, _ string) {
	s.create("/opened/crash")
	s.site.report(s.t, "crash")
	page := s.session("page /opened/crash")
	for _, k := range s.all {
		k.session("page /opened/crash")
	}
	s.mu.Lock()
	s.begin(page, "Page.crash", nil)
	s.mu.Unlock()
	for _, k := range s.all {
		k.await("crashed /opened/crash")
		k.forget("crash")
	}
	s.do(page, "Page.reload", nil)
}

// Whichever way a target comes to be, it begins under what a session's clients set up, and
// they are told its first events, as with a whole browser.
func TestTargetsBeginAsInAWholeBrowser(t *testing.T) {
	t.Parallel()
	in, out, _ := chrometest.StartOnPipe(t)
	m := single.NewPipe(in, out)
	t.Cleanup(m.Close)
	site := newBeginnings(t)
	whole := [3]facts{{}, {}, {}}
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprintf("whole browser, clients: %d", n), func(t *testing.T) {
			p := rawPeer(t, m)
			in := jsonrpc.GetString(p.must("", "Target.createBrowserContext", nil), "browserContextId")
			clients := newSetters(site, in, p, rawPeer(t, m))
			visit(t, clients, n, whole[n], true)
			clients[0].do("", "Target.disposeBrowserContext", map[string]any{"browserContextId": in})
		})
	}
	up := &resumeCounter{Upstream: Over(m), told: map[string]int{}}
	b, err := OpenOn(t.Context(), up, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprintf("session, clients: %d", n), func(t *testing.T) {
			s := newSession(t, b, Options{})
			visit(t, newSetters(site, "", connect(t, s, ""), connect(t, s, "")), n, whole[n], false)
			up.assertOnce(t)
		})
	}
}

// resumeCounter counts how often each CDP session is told to resume: told twice, Chrome does not
// wait for the other sessions of the target.
type resumeCounter struct {
	Upstream
	mu   sync.Mutex
	told map[string]int
}

func (u *resumeCounter) Dial(ctx context.Context, target string) (Conn, error) {
	c, err := u.Upstream.Dial(ctx, target)
	return countedConn{c, u}, err
}

type countedConn struct {
	Conn
	of *resumeCounter
}

func (c countedConn) Put(message []byte) {
	c.of.note(jsonrpc.GetString(message, "method"), jsonrpc.GetString(message, "sessionId"))
	c.Conn.Put(message)
}

func (c countedConn) Write(k policy.Command, message []byte) error {
	c.of.note(k.Method, k.Session)
	return c.Conn.Write(k, message)
}

func (c countedConn) Give(session string, to Conn) bool {
	return c.Conn.Give(session, to.(countedConn).Conn)
}

func (u *resumeCounter) note(method, session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if method == "Runtime.runIfWaitingForDebugger" {
		u.told[session]++
	}
}

// assertOnce asserts that no CDP session was told twice since it was called last.
func (u *resumeCounter) assertOnce(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for session, n := range u.told {
		if n > 1 {
			t.Errorf("the CDP session %s is told %d times to resume", session, n)
		}
	}
	if len(u.told) == 0 {
		t.Error("no CDP session is told to resume")
	}
	clear(u.told)
}

// facts are the facts of each way.
type facts map[string][]string

// visit begins targets in all ways, with n clients, and then has another one come. It adds
// the facts of a whole browser, or asserts that a session's are at least these.
func visit(t *testing.T, clients []*setter, n int, whole facts, isWhole bool) {
	s := clients[0]
	for _, k := range clients[:n] {
		k.run(t, clients[:n])
	}
	s.create("/from/")
	page := s.session("page /from/")
	s.awaitLoaded(page)
	try := func(w beginWay, by *setter, page string) {
		t.Run(w.name, func(t *testing.T) {
			if _, known := whole[w.name]; !known && !isWhole {
				t.Skip("this browser doesn't do it")
			}
			w.begin(by, page)
			way := cmp.Or(w.again, w.name)
			begun := s.site.reportOrNot(t, way, isWhole && way == "prerender")
			if begun == nil {
				t.Skip("this browser doesn't do it")
			}
			seen := func() []string {
				told := slices.Clone(begun)
				for _, k := range by.all {
					told = append(told, k.facts(way)...)
				}
				return told
			}
			if isWhole {
				for _, k := range by.all {
					k.settle()
				}
				whole[w.name] = seen()
				return
			}
			for end := time.Now().Add(patience / 4); ; time.Sleep(5 * time.Millisecond) {
				got := seen()
				missing := slices.DeleteFunc(slices.Clone(whole[w.name]), func(fact string) bool {
					return slices.Contains(got, fact) || w.unsure != nil && w.unsure(fact)
				})
				if len(missing) == 0 {
					return
				}
				if time.Now().After(end) {
					t.Errorf("it lacks %q of a whole browser; it has %q", missing, got)
					return
				}
			}
		})
	}
	for _, w := range beginWays {
		try(w, s, page)
	}
	if n > 1 {
		return
	}
	late := clients[1]
	late.run(t, []*setter{late})
	for _, of := range []string{"page /opened/crash", "service_worker /worker/service1.js",
		"shared_worker /worker/shared.js", "worker /worker/dedicated.js", "iframe /opened/frame"} {
		typ, _, _ := strings.Cut(of, " ")
		try(beginWay{name: "late-" + typ, begin: func(late *setter, _ string) {
			late.do(late.session(of), "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf(
				"bound1('/late-%[1]s'); fetch('/report/late-%[1]s?late'); console.log('/late-%[1]s')", typ)})
		}}, late, "")
	}
	try(beginWay{name: "late reload", again: "crash", begin: func(late *setter, _ string) {
		late.do(late.session("page /opened/crash"), "Page.reload", nil)
	}}, late, "")
}

// create opens a page of the site.
func (s *setter) create(path string) {
	s.t.Helper()
	params := map[string]any{"url": s.site.URL + path}
	if s.in != "" {
		params["browserContextId"] = s.in
	}
	s.do("", "Target.createTarget", params)
}

// awaitLoaded waits until a page has its body.
func (s *setter) awaitLoaded(page string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		got := s.do(page, "Runtime.evaluate", map[string]any{"expression": "!!self.there"})
		if string(jsonrpc.Get(got, "result", "value")) == "true" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatal("the page has not been loaded")
		}
	}
}
