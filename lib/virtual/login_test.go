package virtual

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
)

// member serves pages whose first script notes what it finds; /login logs in.
// Its pages also have the name localhost.
func member(t *testing.T) (site, also string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		if r.URL.Path == "/login" {
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: "s3cret-cookie", HttpOnly: true, MaxAge: 3600})
		}
		io.WriteString(w, "<script>const found = localStorage.getItem('token')</script>")
	}))
	t.Cleanup(s.Close)
	return s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
}

// do evaluates an expression in a page; a promise is waited for.
func (p *peer) do(session, expression string) string {
	p.t.Helper()
	got := p.must(session, "Runtime.evaluate",
		map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if jsonrpc.Get(got, "exceptionDetails") != nil {
		p.t.Fatalf("%s: %s", expression, got)
	}
	return string(jsonrpc.Get(got, "result", "value"))
}

// enter attaches to the session's first page, and goes to an address.
func (p *peer) enter(url string) (session string) {
	p.t.Helper()
	attach := map[string]any{"targetId": p.pages()[0], "flatten": true}
	session = jsonrpc.GetString(p.must("", "Target.attachToTarget", attach), "sessionId")
	p.goTo(session, url)
	return session
}

func (p *peer) goTo(session, url string) {
	p.t.Helper()
	got := p.must(session, "Page.navigate", map[string]string{"url": url})
	if err := jsonrpc.GetString(got, "errorText"); err != "" {
		p.t.Fatalf("%s: %s", url, err)
	}
	p.do(session, `new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))`)
}

// awaitPage waits until a page has loaded a document of a site.
func (p *peer) awaitPage(session, site string) {
	p.t.Helper()
	p.awaitTrue(session, fmt.Sprintf(`location.origin === %q && document.readyState === 'complete'`, site))
}

// awaitTrue waits until an expression is true in a page.
func (p *peer) awaitTrue(session, expression string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got := p.call(session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
		if string(jsonrpc.Get(got, "result", "result", "value")) == "true" { // else it may be about to navigate
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("it does not become true: %s", expression)
		}
	}
}

const fillDatabase = `new Promise((done, fail) => {
	const r = indexedDB.open('db', 3)
	r.onerror = fail
	r.onupgradeneeded = () => {
		const s = r.result.createObjectStore('things', {keyPath: 'id'})
		s.createIndex('by name', ['name', 'id'], {unique: true})
		r.result.createObjectStore('loose', {autoIncrement: true})
	}
	r.onsuccess = () => {
		const t = r.result.transaction(['things', 'loose'], 'readwrite')
		t.objectStore('things').add({id: 1, name: 'plain', list: [1, {two: 2}]})
		t.objectStore('things').add({id: 2, name: 'special', date: new Date(5), map: new Map([['k', 7n]]),
			set: new Set([1]), bytes: new Uint8Array([0, 255]), none: undefined, nan: NaN, re: /x/g,
			buffer: new Uint8Array([9]).buffer})
		t.objectStore('loose').add('a key of its own', new Date(9))
		t.oncomplete = () => { r.result.close(); done() }
	}
})`

const readDatabase = `new Promise((done, fail) => {
	const r = indexedDB.open('db')
	r.onerror = fail
	r.onsuccess = async () => {
		const db = r.result, get = (q) => new Promise((ok) => { q.onsuccess = () => ok(q.result) })
		const t = db.transaction(['things', 'loose'])
		const v = await get(t.objectStore('things').index('by name').get(['special', 2]))
		const one = await get(t.objectStore('things').get(1))
		const keys = await get(t.objectStore('loose').getAllKeys())
		db.close()
		done([db.version, JSON.stringify(one), v.date.getTime(), v.map.get('k') === 7n, v.set.has(1), v.bytes[1],
			'none' in v, Number.isNaN(v.nan), v.re.flags, new Uint8Array(v.buffer)[0], keys[0].getTime()].join(' '))
	}
})`

const wantDatabase = `"3 {\"id\":1,\"name\":\"plain\",\"list\":[1,{\"two\":2}]} 5 true true 255 true true g 9 9"`

// A session that starts with a state is logged in; nothing that it does changes
// the state, and no client sees how its storage was filled.
func TestState(t *testing.T) {
	t.Parallel()
	site, also := member(t)
	url, _ := chrometest.StartShell(t)
	log := &syncBuffer{}
	b, err := Open(t.Context(), url, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()

	one := newSession(t, b, Options{})
	p := connect(t, one, "")
	p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": []any{map[string]any{}}})
	page := p.enter(site + "/login")
	p.do(page, `localStorage.setItem('token', 's3cret-token'); localStorage.setItem('half', '\ud800<&'); `+fillDatabase)
	p.goTo(page, also+"/a#b")
	p.do(page, `localStorage.setItem('token', 's3cret-also')`)
	told := len(p.events)
	state, lost, err := one.State(t.Context())
	if err != nil || len(lost) > 0 {
		t.Fatal(err, lost)
	}
	saved := string(state.Export())
	if len(state.Cookies) != 1 || len(state.Origins) != 2 || !strings.Contains(saved, `\ud800<&`) {
		t.Errorf("the state is %s", saved)
	}
	if n := len(p.pages()); n != 1 {
		t.Errorf("the client sees %d pages", n)
	}
	for _, e := range p.events[told:] {
		if strings.Contains(string(e), "targetCreated") {
			t.Errorf("the client was told of %s", e)
		}
	}

	two := newSession(t, b, Options{Login: state, Settings: settings.Settings{State: "login"}})
	q := connect(t, two, "")
	page = q.enter(also)
	if got := q.do(page, "found"); got != `"s3cret-also"` {
		t.Errorf("the first script of the other origin found %s\n%s", got, log)
	}
	again, _, err := two.State(t.Context()) // one origin is untouched so far
	if err != nil || !bytes.Equal(again.Export(), state.Export()) {
		t.Errorf("%v: the state was\n%s\nand is\n%s", err, saved, again.Export())
	}
	q.goTo(page, site)
	if got := q.do(page, "found"); got != `"s3cret-token"` {
		t.Errorf("the first script found %s\n%s", got, log)
	}
	if got := q.do(page, readDatabase); got != wantDatabase {
		t.Errorf("the database has\n%s, want\n%s", got, wantDatabase)
	}
	if got := q.do(page, `localStorage.getItem('half').charCodeAt(0)`); got != "55296" {
		t.Errorf("half a character has become %s", got)
	}
	again, _, err = two.State(t.Context())
	if err != nil || !bytes.Equal(again.Export(), state.Export()) {
		t.Errorf("%v: the state was\n%s\nand is\n%s", err, saved, again.Export())
	}
	q.do(page, `localStorage.clear()`)
	q.goTo(page, site+"/again")
	if got := q.do(page, "found"); got != "null" {
		t.Errorf("a storage that was cleared has %s again", got)
	}
	if st := two.Stats().State; st == nil || *st != (api.StateStatus{Name: "login"}) {
		t.Errorf("the status of the state is %+v", st)
	}

	// A pop-up, and a client that answers requests itself.
	three := newSession(t, b, Options{Login: state, Settings: settings.Settings{State: "login"}})
	r := connect(t, three, "")
	r.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	page = r.enter("about:blank")
	r.must(page, "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf(`open(%q, '', 'noopener')`, also),
		"userGesture": true})
	popup := jsonrpc.GetString(r.event("Target.targetInfoChanged", `"url":"`+also), "params", "targetInfo", "targetId")
	attach := map[string]any{"targetId": popup, "flatten": true}
	session := jsonrpc.GetString(r.must("", "Target.attachToTarget", attach), "sessionId")
	r.awaitPage(session, also)
	if got := r.do(session, "found"); got != `"s3cret-also"` {
		t.Errorf("the first script of a pop-up found %s", got)
	}
	r.must(page, "Fetch.enable", map[string]any{"patterns": []map[string]string{{"urlPattern": "*"}}})
	r.last++
	navigate := wire.Command(string(jsonID(r.last)), page, "Page.navigate", map[string]string{"url": site})
	if err := r.conn.Write(navigate); err != nil {
		t.Fatal(err)
	}
	paused := jsonrpc.Get(r.event("Fetch.requestPaused", site), "params")
	r.must(page, "Fetch.fulfillRequest", map[string]any{"requestId": jsonrpc.GetString(paused, "requestId"),
		"responseCode": 200, "body": base64.StdEncoding.EncodeToString([]byte("<!doctype html>")),
		"responseHeaders": []map[string]string{{"name": "content-type", "value": "text/html"}}})
	r.awaitPage(page, site)
	if got := r.do(page, `localStorage.getItem('token')`); got != `"s3cret-token"` {
		t.Errorf("a document of the client's own found %s", got)
	}
	if strings.Contains(log.String(), "s3cret") || strings.Contains(log.String(), "WARN") {
		t.Errorf("the log says\n%s", log)
	}
}

// What cannot be restored is reported, and the pages load.
func TestStateFaults(t *testing.T) {
	t.Parallel()
	site, also := member(t)
	url, _ := chrometest.StartShell(t)
	log := &syncBuffer{}
	b, err := Open(t.Context(), url, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	big := json.RawMessage(`[{"name":"big","value":"` + strings.Repeat("s3cret", 1<<20) + `"}]`)
	state := &logins.State{
		Cookies: []logins.Cookie{{Name: "old", Value: "s3cret", Domain: "127.0.0.1", Path: "/", Expires: 5}},
		Origins: []logins.Origin{
			{Origin: site, LocalStorage: big},
			{Origin: also, LocalStorage: json.RawMessage(`[]`),
				IndexedDB: json.RawMessage(`[{"name":"db","version":1,"stores":[{"name":"s"}]}]`)},
		},
	}
	s := newSession(t, b, Options{Login: state, Settings: settings.Settings{State: "bad"}})
	p := connect(t, s, "")
	page := p.enter(site)
	// Both are filled before the first page of either is shown; the status is of one.
	if got := s.Stats().State; got == nil || !strings.Contains(got.Error, "cannot restore the storage of "+site+
		": localStorage: QuotaExceededError") && !strings.Contains(got.Error, also) {
		t.Errorf("the status of the state is %+v", got)
	}
	p.goTo(page, also)
	if got := log.String(); strings.Count(got, "WARN") != 2 || !strings.Contains(got, "TypeError") ||
		!strings.Contains(got, "QuotaExceededError") || strings.Contains(got, "s3cret") {
		t.Errorf("the log says\n%.2000s", got)
	}
	if now, _, err := s.State(t.Context()); err != nil || len(now.Cookies) != 0 {
		t.Errorf("the state is now %+v, %v", now, err)
	}
	bad := &logins.State{Cookies: []logins.Cookie{
		{Name: "fine", Value: "s3cret", Domain: "a.test", Path: "/", Expires: -1},
		{Name: "__Host-x", Value: "s3cret", Domain: ".a.test", Path: "/", Expires: -1}}}
	_, err = b.NewSession(t.Context(), Options{Login: bad, Settings: settings.Settings{State: "bad"}})
	if err == nil || !strings.Contains(err.Error(), `the cookie "__Host-x" of .a.test`) ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a cookie that Chrome refuses: %v", err)
	}
	if _, err := b.NewSession(t.Context(), Options{Login: bad, DefaultContext: true}); err == nil {
		t.Error("the browser's own profile has got a state")
	}
	// A session that ends while it is being saved.
	saved := make(chan error, 1)
	go func() {
		_, _, err := s.State(t.Context())
		saved <- err
	}()
	s.End(t.Context())
	if err := <-saved; err != nil && err != ErrEnded {
		t.Errorf("the session ended while it was being saved: %v", err)
	}
}

// To read the storage of an origin, no request of it is answered by its server,
// nor by its service worker, which would start the application a second time.
func TestStateOfServiceWorker(t *testing.T) {
	t.Parallel()
	var root atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/worker.js":
			w.Header().Set("content-type", "text/javascript")
			io.WriteString(w, `oninstall = () => skipWaiting()
				onactivate = (e) => e.waitUntil(clients.claim())
				onfetch = (e) => e.respondWith(fetch(e.request))`)
			return
		case "/":
			root.Add(1)
		}
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>localStorage.setItem('visits', 1 + Number(localStorage.getItem('visits')))</script>`)
	}))
	defer server.Close()
	b := sharedBrowser(t)
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	page := p.enter(server.URL + "/app")
	p.do(page, `new Promise((done) => {
		navigator.serviceWorker.oncontrollerchange = () => done()
		navigator.serviceWorker.register('/worker.js')
	})`)
	state, _, err := s.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Origins) != 1 || !strings.Contains(string(state.Origins[0].LocalStorage), `"value":"1"`) ||
		root.Load() > 0 {
		t.Errorf("%d requests for /, and the storage is %s", root.Load(), state.Origins)
	}
}
