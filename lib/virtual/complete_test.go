package virtual

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
)

// items are localStorage with these values by name, as a state has it.
func items(values map[string]string) json.RawMessage {
	all := []map[string]string{}
	for name, value := range values {
		all = append(all, map[string]string{"name": name, "value": value})
	}
	raw, _ := json.Marshal(all)
	return raw
}

// storedIn returns the localStorage of an origin in a state.
func storedIn(t *testing.T, state *logins.State, origin string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, o := range state.Origins {
		var all []struct{ Name, Value string }
		if o.Origin != origin {
			continue
		}
		if err := json.Unmarshal(o.LocalStorage, &all); err != nil {
			t.Fatal(err)
		}
		for _, item := range all {
			values[item.Name] = item.Value
		}
	}
	return values
}

// However a page is opened, its first script finds the login that the session has
// started with; and what it stores is saved.
func TestStateByEachWay(t *testing.T) {
	t.Parallel()
	var site, also string
	fetched := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		fetched <- r.Host + r.URL.Path
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, also+"/", http.StatusFound)
		case "/prefetch", "/prerender":
			fmt.Fprintf(w, `<script type="speculationrules">
				{%q: [{"urls": ["%s/", "%[2]s/again"], "eagerness": "immediate"}]}
				</script>`, r.URL.Path[1:], also)
		default:
			io.WriteString(w, "<script>const found = localStorage.getItem('token')</script>")
		}
	}))
	t.Cleanup(server.Close)
	site = server.URL
	also = strings.Replace(site, "127.0.0.1", "localhost", 1)
	state := &logins.State{Origins: []logins.Origin{
		{Origin: site, LocalStorage: items(map[string]string{"token": "old"})},
		{Origin: also, LocalStorage: items(map[string]string{"token": "also", "kept": "yes"})},
	}}
	create := func(url string) func(*Session, *peer) string {
		return func(s *Session, p *peer) string {
			got := p.must("", "Target.createTarget", map[string]string{"url": url})
			return p.attach(jsonrpc.GetString(got, "targetId"))
		}
	}
	follow := func(path string) func(*Session, *peer) string {
		return func(s *Session, p *peer) string {
			page := p.enter(site + path)
			for host := strings.TrimPrefix(also, "http://"); <-fetched != host+"/"; { // it has been prefetched
			}
			p.do(page, fmt.Sprintf("void setTimeout(() => { location.href = %q })", also+"/"))
			return page
		}
	}
	for name, open := range map[string]func(*Session, *peer) string{
		"createTarget":              create(also),
		"createTarget, redirected":  create(site + "/redirect"),
		"a page that is prefetched": follow("/prefetch"),
		"one that is prerendered":   follow("/prerender"),
		"/json/new": func(s *Session, p *peer) string {
			page, err := s.NewPage(t.Context(), also)
			if err != nil {
				t.Fatal(err)
			}
			return p.attach(page)
		},
	} {
		b := sharedBrowser(t)
		if strings.Contains(name, " pre") {
			b = sharedChrome(t)
		}
		s := newSession(t, b, Options{Login: state})
		p := connect(t, s, "")
		page := open(s, p)
		p.awaitPage(page, also)
		if got := p.do(page, "found"); got != `"also"` {
			t.Errorf("%s: the first script has found %s", name, got)
		}
		p.do(page, "localStorage.setItem('token', 'new')")
		now, _, err := s.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := storedIn(t, now, also); got["token"] != "new" || got["kept"] != "yes" {
			t.Errorf("%s: what is saved is %v, want the new token", name, got)
		}
		s.End(t.Context())
		for len(fetched) > 0 {
			<-fetched
		}
	}
}

// The storage of an origin is complete when the page is shown, however large it is.
func TestLargeState(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>
			const found = Array.from({length: localStorage.length}, (_, i) => localStorage.key(i)).map(
				(k) => k + ' ' + localStorage.getItem(k).length).sort().join()</script>`)
	}))
	t.Cleanup(site.Close)
	one, many := map[string]string{"big": strings.Repeat("x", 4_500_000)}, map[string]string{}
	for i := range 5 {
		one[fmt.Sprint("small", i)] = "x"
	}
	for i := range 20 {
		many[fmt.Sprint("item", i)] = strings.Repeat("\u20ac", 10_000)
	}
	b := openShell(t)
	for _, values := range []map[string]string{one, many} {
		state := &logins.State{Origins: []logins.Origin{{Origin: site.URL, LocalStorage: items(values)}}}
		rounds := 1
		if long {
			rounds = 5
		}
		for range rounds {
			s := newSession(t, b, Options{Login: state})
			p := connect(t, s, "")
			page := p.enter(site.URL)
			if got := p.do(page, "found.split(',').length"); got != fmt.Sprint(len(values)) {
				t.Errorf("the first script has found %s of %d items: %.200s", got, len(values), p.do(page, "found"))
			}
			now, _, err := s.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range storedIn(t, now, site.URL) {
				if values[name] != value {
					t.Errorf("what is saved has %d characters in %s, want %d", len(value), name, len(values[name]))
				}
			}
			s.End(t.Context())
		}
	}
}

const strange = `new Promise((done, fail) => {
	localStorage.setItem('length', '7')
	localStorage.setItem('getItem', 'x')
	sessionStorage.setItem('key', 'y')
	const r = indexedDB.open('db')
	r.onerror = fail
	r.onupgradeneeded = () => {
		r.result.createObjectStore('counted', {autoIncrement: true})
		r.result.createObjectStore('spent', {autoIncrement: true}).createIndex('u', '', {unique: true})
		const nested = r.result.createObjectStore('nested', {autoIncrement: true, keyPath: 'a.b'})
		nested.createIndex('u', 'a.b', {unique: true})
	}
	r.onsuccess = () => {
		const t = r.result.transaction(['counted', 'nested', 'spent'], 'readwrite')
		const spent = t.objectStore('spent') // whose generator has no key left
		spent.add(0, 1)
		spent.add('', 2 ** 53)
		spent.delete(2 ** 53)
		const s = t.objectStore('counted'), n = t.objectStore('nested'), holes = [1, , 3], named = [5], all = {}
		const both = Object.assign([1, , 3], {name: 'y'}) // as many keys as elements
		named.name = 'x'
		Object.defineProperty(all, '__proto__', {value: {x: 1}, enumerable: true})
		s.add({no: new Date(NaN), yes: new Boolean(true), one: new Number(1), text: new String('t'), holes, named, both,
			all, view: new DataView(new Uint8Array([1, 2]).buffer), same: [all, all],
			gone: new DOMException('m', 'AbortError'), error: new TypeError('t', {cause: all})})
		for (const o of [s, n]) for (let i = 0; i < 4; i++) o.add({})
		s.delete(5)
		n.delete(4)
		t.oncomplete = () => { r.result.close(); done() }
		t.onabort = () => fail(t.error)
	}
})`

const readStrange = `new Promise((done, fail) => {
	const r = indexedDB.open('db')
	r.onerror = fail
	r.onsuccess = async () => {
		const get = (q) => new Promise((ok, no) => { q.onsuccess = () => ok(q.result); q.onerror = no })
		const t = r.result.transaction(['counted', 'nested', 'spent'], 'readwrite')
		const spent = await new Promise((ok) => {
			const q = t.objectStore('spent').add({})
			q.onsuccess = () => ok(q.result)
			q.onerror = (e) => { e.preventDefault(); ok(q.error.name) }
		})
		const v = await get(t.objectStore('counted').get(1))
		const next = [await get(t.objectStore('counted').add({})), await get(t.objectStore('nested').add({}))]
		t.abort()
		r.result.close()
		done([localStorage.getItem('length'), localStorage.getItem('getItem'), sessionStorage.getItem('key'),
			v.no.getTime(), typeof v.yes + v.yes, typeof v.one + v.one, typeof v.text + v.text,
			1 in v.holes, v.holes.length, v.named.length + v.named.name, 1 in v.both, v.both.name,
			Object.keys(v.all),
			v.view.byteLength + ':' + v.view.getUint8(1),
			v.same[0] === v.same[1] && v.same[0] === v.all,
			v.gone.name + v.gone.code, v.error.name + (v.error.cause === v.all), ...next, spent].join(' '))
	}
})`

const wantStrange = `"7 x y NaN objecttrue object1 objectt false 3 1x false y __proto__ 2:2 true ` +
	`AbortError20 TypeErrortrue 6 5 ConstraintError"`

// Values that JSON cannot describe come back as they were.
func TestStrangeValues(t *testing.T) {
	t.Parallel()
	site, _ := member(t)
	b := sharedBrowser(t)
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	page := p.enter(site)
	p.do(page, strange)
	if got := p.do(page, readStrange); got != wantStrange {
		t.Fatalf("before: %s, want %s", got, wantStrange)
	}
	saved, err := s.Snapshot(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	s = newSession(t, b, Options{Login: saved.State, Tabs: saved.Tabs})
	p = connect(t, s, "")
	page = p.attach(p.pages()[0])
	p.awaitPage(page, site)
	if got := p.do(page, readStrange); got != wantStrange {
		t.Errorf("after: %s, want %s", got, wantStrange)
	}
	p.do(page, `new Promise((done) => {
		const r = indexedDB.open('files')
		r.onupgradeneeded = () => r.result.createObjectStore('s').add(new DOMRect(1, 2, 3, 4), 1)
		r.onsuccess = () => { r.result.close(); done() }
	})`)
	_, lost, err := s.State(t.Context())
	if err != nil || strings.Join(lost, "; ") != site+`: database "files": DOMRect` {
		t.Errorf("what is reported as lost is %q, %v", lost, err)
	}
}

// A storage that is being filled while the session is saved is saved.
func TestSaveWhileFilling(t *testing.T) {
	t.Parallel()
	site, _ := member(t)
	state := &logins.State{Origins: []logins.Origin{
		{Origin: site, LocalStorage: items(map[string]string{"token": "kept"})}}}
	s := newSession(t, sharedBrowser(t), Options{Login: state})
	s.browser.mu.Lock()
	o := s.login.unfilled[site]
	o.begun = true // by a page
	s.browser.mu.Unlock()
	saved := make(chan *logins.State)
	go func() {
		now, _, err := s.State(t.Context())
		if err != nil {
			t.Error(err)
		}
		saved <- now
	}()
	h, err := s.hiding.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	why, err := h.Fill(t.Context(), o.origin)
	s.login.filled(o, why, err)
	if now := <-saved; now == nil || storedIn(t, now, site)["token"] != "kept" {
		t.Errorf("what is saved is %+v", now)
	}
}

// The first script of a frame finds the storage, too.
func TestStateInAFrame(t *testing.T) {
	t.Parallel()
	outer, _ := member(t)
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>top.postMessage(localStorage.token, '*')</script>`)
	}))
	t.Cleanup(inner.Close)
	state := &logins.State{Origins: []logins.Origin{
		{Origin: inner.URL, LocalStorage: items(map[string]string{"token": "kept"})}}}
	s := newSession(t, sharedBrowser(t), Options{Login: state})
	p := connect(t, s, "")
	got := p.do(p.enter(outer), fmt.Sprintf(`new Promise((done) => {
		onmessage = (e) => done(e.data)
		const frame = document.createElement('iframe')
		frame.src = %q
		document.body.append(frame)
	})`, inner.URL))
	if got != `"kept"` {
		t.Errorf("the first script of the frame has found %s", got)
	}
}
