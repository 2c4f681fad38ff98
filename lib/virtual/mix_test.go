package virtual

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"btools/lib/jsonrpc"
	"btools/lib/states"
	"btools/lib/websocket"
)

// digestScript is digest in JavaScript.
const digestScript = `function digest(storage) {
	const names = Array.from({length: storage.length}, (_, i) => storage.key(i)).sort()
	let h = names.length
	for (const name of names) for (const text of [name, storage.getItem(name)])
		for (let i = 0; i < text.length; i++) h = (Math.imul(h, 31) + text.charCodeAt(i)) | 0
	return h
}`

// digest is a number for what a storage has.
func digest(values map[string]string) string {
	h := int32(len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, text := range []string{name, values[name]} {
			for _, unit := range utf16.Encode([]rune(text)) {
				h = h*31 + int32(unit)
			}
		}
	}
	return fmt.Sprint(h)
}

// web is a server of many hosts, each of which can be slow or down.
type web struct {
	*httptest.Server
	mu     sync.Mutex
	faults map[string]string // by host: "slow", "down"
	over   map[string]chan struct{}
}

func newWeb(t *testing.T) *web {
	w := &web{faults: map[string]string{}, over: map[string]chan struct{}{}}
	w.Server = httptest.NewServer(w)
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	fault, over := w.faults[r.Host], w.over[r.Host]
	w.mu.Unlock()
	switch fault {
	case "down":
		panic(http.ErrAbortHandler)
	case "slow":
		select {
		case <-over:
		case <-r.Context().Done():
			return
		}
	}
	rw.Header().Set("content-type", "text/html")
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(rw, r, to, http.StatusFound)
		return
	}
	fmt.Fprintf(rw, `<script>%s
		const found = digest(localStorage), foundHere = digest(sessionStorage)</script>`, digestScript)
	if to := r.URL.Query().Get("prefetch"); to != "" {
		fmt.Fprintf(rw, `<script type="speculationrules">
			{"prefetch": [{"urls": [%q], "eagerness": "immediate"}]}</script>`, to)
	}
	io.WriteString(rw, `<link rel="icon" href="data:,">`)
}

// set makes the server of an origin have a fault; "": it answers what waits.
func (w *web) set(origin, fault string) {
	host := strings.TrimPrefix(origin, "http://")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults[host] == "slow" {
		close(w.over[host])
	}
	w.faults[host], w.over[host] = fault, make(chan struct{})
}

// mix generates what sessions have.
type mix struct {
	*rand.Rand
	web   *web
	large int // characters, of 2 or 4 bytes: 5 to 10 MB with LONG=1
}

// oneIn reports true once in n times.
func (m *mix) oneIn(n int) bool { return m.IntN(n) == 0 }

// text is a text of n characters, not all of which are ASCII.
func (m *mix) text(n int) string {
	letters := []rune("abcdefghij0123456789 \"\\<&\u00e9\u20ac\u2028\U0001f600")
	unit := make([]rune, min(n, 1+m.IntN(500)))
	for i := range unit {
		unit[i] = letters[m.IntN(len(letters))]
	}
	return strings.Repeat(string(unit), n/max(1, len(unit)))
}

// values is a storage of 20 KB mostly, and of nearly all that an origin may have once
// in 50 times.
func (m *mix) values() map[string]string {
	size := 100 + m.ExpFloat64()*29_000
	switch {
	case m.oneIn(50):
		size = float64(m.large)
	case m.oneIn(50):
		size = 0
	}
	names := []string{"token", "length", "key", "getItem", "__proto__", "1", "", "a b", "\u00e9"}
	n := 1 + m.IntN(len(names))
	values := map[string]string{}
	for _, i := range m.Perm(len(names))[:n] {
		values[names[i]] = m.text(int(size) / n)
	}
	return values
}

// origins are a few, or 50 once in 50 times, some of which are of the same site.
func (m *mix) origins() []string {
	n := 1 + m.IntN(4)
	if m.oneIn(50) {
		n = 50
	}
	port := m.web.URL[strings.LastIndex(m.web.URL, ":"):]
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("http://s%d.site%d.localhost%s", i, i/2, port))
	}
	return all
}

// ways are how a page is opened with an address; each returns its CDP session.
var ways = map[string]func(s *Session, p *peer, url string) string{
	"navigate": func(s *Session, p *peer, url string) string {
		page := p.attach(p.create("about:blank"))
		p.must(page, "Page.navigate", map[string]string{"url": url})
		return page
	},
	"createTarget": func(s *Session, p *peer, url string) string { return p.attach(p.create(url)) },
	"prefetched": func(s *Session, p *peer, url string) string {
		page := p.attach(p.create("about:blank"))
		p.goTo(page, url)
		_, url, _ = strings.Cut(url, "?prefetch=")
		p.do(page, fmt.Sprintf("void setTimeout(() => { location.href = %q })", url))
		p.awaitTrue(page, fmt.Sprintf("location.href === %q", url))
		return page
	},
	"/json/new": func(s *Session, p *peer, url string) string {
		page, err := s.NewPage(p.t.Context(), url)
		if err != nil {
			p.t.Fatal(err)
		}
		return p.attach(page)
	},
	"window.open": func(s *Session, p *peer, url string) string {
		page := p.attach(p.pages()[0])
		before := p.pages()
		p.must(page, "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("void open(%q)", url),
			"userGesture": true})
		for {
			for _, id := range p.pages() {
				if !slices.Contains(before, id) {
					return p.attach(id)
				}
			}
		}
	},
}

func (p *peer) create(url string) string {
	p.t.Helper()
	return jsonrpc.GetString(p.must("", "Target.createTarget", map[string]string{"url": url}), "targetId")
}

// What a session carries through saving, sleeping, waking, exporting and importing is
// what it had, whatever it has and however its pages are opened.
func TestMix(t *testing.T) {
	t.Parallel()
	rounds, seed, large, open := 5, uint64(1), 200_000, openShell
	if long {
		rounds, seed, large, open = 1000, rand.Uint64(), 2_500_000, openChrome
	}
	b := open(t)
	if !long {
		b.commit = 100 * time.Millisecond // servers that are slow answer at the end of a round only
	}
	t.Logf("the seed is %d", seed)
	m := &mix{rand.New(rand.NewPCG(seed, 0)), newWeb(t), large}
	differences := 0
	for round := range rounds {
		for _, difference := range m.round(t, b) {
			differences++
			t.Errorf("round %d: %s", round, difference)
		}
	}
	t.Logf("%d rounds, %d differences", rounds, differences)
}

// round is one session of the mix, from its start with a state to its end.
type round struct {
	*mix
	t           *testing.T
	b           *Browser
	s           *Session
	p           *peer
	origins     []string
	has         map[string]map[string]string // by origin
	tabs        []mixTab                     // besides a blank one
	differences []string
}

// mixTab is a page of a round.
type mixTab struct {
	url, origin string
	here        map[string]string // sessionStorage
}

func (r *round) differs(format string, args ...any) {
	r.differences = append(r.differences, fmt.Sprintf(format, args...))
}

// round returns what differs in one round.
func (m *mix) round(t *testing.T, b *Browser) []string {
	t.Helper()
	r := &round{mix: m, t: t, b: b, origins: m.origins(), has: map[string]map[string]string{}}
	r.begin()
	for range 1 + m.IntN(2) {
		r.open()
	}
	fault := []string{"", "", "slow", "down"}[m.IntN(4)]
	r.sleepAndWake(fault)
	if fault != "" {
		r.sleepAndWake("")
	}
	r.checkTabs()
	r.p.conn.Close(websocket.Normal, "")
	r.s.End(t.Context())
	return r.differences
}

// begin starts the session.
func (r *round) begin() {
	state := &states.State{}
	for _, origin := range r.origins {
		if r.oneIn(3) {
			continue // it has nothing
		}
		r.has[origin] = r.values()
		state.Origins = append(state.Origins, states.Origin{Origin: origin, LocalStorage: items(r.has[origin])})
		if r.oneIn(2) {
			state.Cookies = append(state.Cookies, states.Cookie{Name: "sid", Value: "x", Path: "/", Expires: -1,
				Domain: strings.Split(strings.TrimPrefix(origin, "http://"), ":")[0]})
		}
	}
	r.s = newSession(r.t, r.b, Options{State: exported(r.t, state), StateName: "mix"})
	r.p = connect(r.t, r.s, "")
}

// open opens a page, compares what its first script has found, and changes that.
func (r *round) open() {
	way := slices.Sorted(maps.Keys(ways))[r.IntN(len(ways))]
	origin := r.origins[r.IntN(len(r.origins))]
	tab := mixTab{url: fmt.Sprintf("%s/tab%d", origin, len(r.tabs)), origin: origin}
	address := tab.url
	if via := r.origins[r.IntN(len(r.origins))]; way == "prefetched" {
		address = via + "/?prefetch=" + tab.url
	} else if r.oneIn(4) {
		address = via + "/?to=" + tab.url
	}
	page := ways[way](r.s, r.p, address)
	r.p.awaitPage(page, origin)
	if got, want := r.p.do(page, "found"), digest(r.has[origin]); got != want {
		r.differs("%s of %s: the first script has found %s, want %s", way, address, got, want)
	}
	if r.oneIn(2) {
		r.has[origin] = r.values()
		r.p.store(page, "localStorage", r.has[origin])
	}
	tab.here = map[string]string{"length": r.text(r.IntN(3000))}
	r.p.store(page, "sessionStorage", tab.here)
	r.tabs = append(r.tabs, tab)
}

// sleepAndWake hibernates the session and wakes it, while the servers of its tabs
// have a fault.
func (r *round) sleepAndWake(fault string) {
	for _, tab := range r.tabs {
		r.web.set(tab.origin, fault)
	}
	r.p.conn.Close(websocket.Normal, "")
	for r.s.isBusy() {
		runtime.Gosched()
	}
	snapshot, err := r.s.Snapshot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if st := r.s.Stats().State; st != nil && st.Error != "" {
		r.differs("the session tells %s", st.Error)
	}
	file, err := snapshot.Save(r.t.TempDir())
	if err != nil {
		r.t.Fatal(err)
	}
	r.s.End(r.t.Context())
	if snapshot, err = file.Load(); err != nil {
		r.t.Fatal(err)
	}
	file.Remove()
	for _, origin := range r.origins {
		if got, want := digest(storedIn(r.t, snapshot.State, origin)), digest(r.has[origin]); got != want {
			r.differs("what is saved of %s is %s, want %s", origin, got, want)
		}
	}
	r.s = newSession(r.t, r.b,
		Options{State: exported(r.t, snapshot.State), StateName: "mix", Tabs: snapshot.Tabs})
	r.p = connect(r.t, r.s, "")
	listed := map[string]bool{}
	for info := range jsonrpc.Elements(jsonrpc.Get(r.p.must("", "Target.getTargets", nil), "targetInfos")) {
		listed[jsonrpc.GetString(info, "url")] = true
	}
	for _, tab := range r.tabs {
		if !listed[tab.url] {
			r.differs("after waking, with servers that are %q, the tabs are %v, without %s", fault, listed, tab.url)
		}
		r.web.set(tab.origin, "")
	}
}

// checkTabs compares the tabs.
func (r *round) checkTabs() {
	pages := r.p.pages()
	if len(pages) != len(r.tabs)+1 {
		r.differs("there are %d tabs, want %d", len(pages), len(r.tabs)+1)
	}
	for _, id := range pages {
		page := r.p.attach(id)
		url := jsonrpc.GetString(r.p.must(page, "Target.getTargetInfo", nil), "targetInfo", "url")
		for _, tab := range r.tabs {
			if url != tab.url {
				continue
			}
			r.p.awaitPage(page, tab.origin)
			if got, want := r.p.do(page, "foundHere"), digest(tab.here); got != want {
				r.differs("after waking, sessionStorage of %s is %s, want %s", tab.url, got, want)
			}
			if got, want := r.p.do(page, "found"), digest(r.has[tab.origin]); got != want {
				r.differs("after waking, the first script of %s has found %s, want %s", tab.url, got, want)
			}
		}
	}
}

// exported returns a state as it is after its export and import.
func exported(t *testing.T, state *states.State) *states.State {
	t.Helper()
	again, dropped, err := states.Parse(state.Export())
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	return again
}

// store replaces what a storage of a page has.
func (p *peer) store(page, storage string, values map[string]string) {
	p.t.Helper()
	entries := [][2]string{}
	for name, value := range values {
		entries = append(entries, [2]string{name, value})
	}
	raw, _ := json.Marshal(entries)
	p.do(page, fmt.Sprintf("%s.clear(); for (const [k, v] of %s) %[1]s.setItem(k, v)", storage, raw))
}
