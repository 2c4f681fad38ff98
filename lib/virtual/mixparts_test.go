package virtual

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
)

//go:embed testdata/mix.js
var mixScript string

// digest is a number for what a storage has, as the script's is.
func digest(values map[string]string) string {
	h := int32(len(values))
	for _, name := range slices.SortedFunc(maps.Keys(values), inUnits) {
		for _, text := range []string{name, values[name]} {
			for _, unit := range utf16.Encode([]rune(text)) {
				h = h*31 + int32(unit)
			}
		}
	}
	return fmt.Sprint(h)
}

// inUnits compares texts as JavaScript does.
func inUnits(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// findings is what the first script of a page has found.
const findings = `foundStored.then((all) =>
	[found, ...Object.entries(all).filter(([name]) => name !== 'unsaved').sort()].join('|'))`

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
	fmt.Fprintf(rw, `<!doctype html><link rel="icon" href="data:,"><script>%s</script>`, mixScript)
	for kind, rule := range map[string]string{"prefetched": "prefetch", "prerendered": "prerender"} {
		if to := r.URL.Query().Get(kind); to != "" {
			fmt.Fprintf(rw, `<script type="speculationrules">
				{%q: [{"urls": [%q], "eagerness": "immediate"}]}</script>`, rule, to)
		}
	}
	if to := r.URL.Query().Get("frame"); to != "" {
		fmt.Fprintf(rw, `<iframe src="%s"></iframe>`, to)
	}
	io.WriteString(rw, "<p>")
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
	web       *web
	log       *syncBuffer
	large     int // characters, of 2 or 4 bytes: 5 to 10 MB with LONG=1
	many      int // origins
	databases []database
}

// database is one that the script makes from a number.
type database struct {
	name   string
	seed   int
	large  int
	digest json.Number
	saved  json.RawMessage // as a state has it
	counts bool            // it gives out keys
}

// makeDatabases makes databases in a page, to learn how they are seen and saved.
func (m *mix) makeDatabases(t *testing.T, b *Browser, n int) {
	t.Helper()
	s := newSession(t, b, Options{})
	defer s.End(t.Context())
	p := connect(t, s, "")
	origin := m.origin(0)
	page := p.enter(origin)
	for i := range n {
		d := database{seed: m.IntN(1 << 30)}
		if i == 0 {
			d.large = m.large
		}
		d.name = decoded(t, p.do(page, fmt.Sprintf("make(%d, %d)", d.seed, d.large)))
		m.databases = append(m.databases, d)
	}
	seen := map[string]json.Number{}
	if err := json.Unmarshal([]byte(p.do(page, "stored()")), &seen); err != nil {
		t.Fatal(err)
	}
	state, lost, err := s.State(t.Context())
	if err != nil || len(lost) > 0 {
		t.Fatal(err, lost)
	}
	saved := byName(t, stateOf(state, origin).IndexedDB)
	for i := range m.databases {
		d := &m.databases[i]
		d.digest, d.saved = seen[d.name], saved[d.name]
		d.counts = strings.Contains(string(d.saved), `"autoIncrement":true`)
		if d.digest == "" || d.saved == nil {
			t.Fatalf("the database %q is not there", d.name)
		}
	}
}

// byName are the databases of a state's origin.
func byName(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	all := map[string]json.RawMessage{}
	for d := range jsonrpc.Elements(raw) {
		all[jsonrpc.GetString(d, "name")] = d
	}
	return all
}

// stateOf returns what a state has of an origin.
func stateOf(state *logins.State, origin string) logins.Origin {
	for _, o := range state.Origins {
		if o.Origin == origin {
			return o
		}
	}
	return logins.Origin{}
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

// content is what an origin has.
type content struct {
	local     map[string]string
	databases []int // of the mix
	unsaved   bool  // it has one that cannot be saved, too
}

// content is a storage of 20 KB mostly, and of nearly all that an origin may have once
// in 50 times. One that is kept while it changes has no databases that give out keys.
func (m *mix) content(kept bool) content {
	size := 100 + m.ExpFloat64()*29_000
	switch {
	case m.oneIn(50):
		size = float64(m.large)
	case m.oneIn(50):
		size = 0
	}
	names := []string{"token", "length", "key", "getItem", "__proto__", "1", "", "a b", "\u00e9"}
	n := 1 + m.IntN(len(names))
	c := content{local: map[string]string{}}
	for _, i := range m.Perm(len(names))[:n] {
		c.local[names[i]] = m.text(int(size) / n)
	}
	for range m.IntN(3) {
		i := 1 + m.IntN(len(m.databases)-1)
		if m.oneIn(50) {
			i = 0 // the large one
		}
		if !slices.Contains(c.databases, i) && !(kept && m.databases[i].counts) {
			c.databases = append(c.databases, i)
		}
	}
	return c
}

// in is the content in a state.
func (c content) in(m *mix, origin string) logins.Origin {
	o := logins.Origin{Origin: origin, LocalStorage: items(c.local)}
	var all []json.RawMessage
	for _, i := range c.databases {
		all = append(all, m.databases[i].saved)
	}
	if all != nil {
		o.IndexedDB, _ = json.Marshal(all)
	}
	return o
}

// script is an expression that stores the content, and nothing else, for the origin of
// a page.
func (c content) script(m *mix) string {
	entries, seeds := [][2]string{}, [][2]int{}
	for name, value := range c.local {
		entries = append(entries, [2]string{name, value})
	}
	for _, i := range c.databases {
		seeds = append(seeds, [2]int{m.databases[i].seed, m.databases[i].large})
	}
	return fmt.Sprintf("store(%s, %s, %v)", jsonOf(entries), jsonOf(seeds), c.unsaved)
}

// jsonOf is the JSON of a value, always with the same escapes.
func jsonOf(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// findings is what the first script of a page of the origin has to find.
func (c content) findings(m *mix) string {
	all := []string{}
	for _, i := range c.databases {
		all = append(all, m.databases[i].name+","+string(m.databases[i].digest))
	}
	slices.SortFunc(all, inUnits)
	return strings.Join(append([]string{digest(c.local)}, all...), "|")
}

// compare returns how what is saved of the origin differs; "": it does not.
func (c content) compare(m *mix, saved logins.Origin) string {
	values := map[string]string{}
	for item := range jsonrpc.Elements(saved.LocalStorage) {
		values[jsonrpc.GetString(item, "name")] = jsonrpc.GetString(item, "value")
	}
	if !maps.Equal(values, c.local) {
		return fmt.Sprintf("its localStorage is %s, want %s", digest(values), digest(c.local))
	}
	var names []string
	for d := range jsonrpc.Elements(saved.IndexedDB) {
		name := jsonrpc.GetString(d, "name")
		names = append(names, name)
		for _, i := range c.databases {
			if want := m.databases[i]; want.name == name && jsonOf(want.saved) != jsonOf(d) {
				return fmt.Sprintf("the database is\n%.9000s\nwant\n%.9000s", d, want.saved)
			}
		}
	}
	if len(names) != len(c.databases) {
		return fmt.Sprintf("its databases are %q, want %d", names, len(c.databases))
	}
	return ""
}

// origin is the nth, of a site with its neighbour.
func (m *mix) origin(n int) string {
	return fmt.Sprintf("http://s%d.site%d.localhost%s", n, n/2, m.web.URL[strings.LastIndex(m.web.URL, ":"):])
}

// origins are a few, or many once in 50 times, some of which are of the same site.
func (m *mix) origins() (all []string) {
	n := []int{1, 1, 1, 2, 3}[m.IntN(5)]
	if m.oneIn(50) {
		n = m.many
	}
	for i := range n {
		all = append(all, m.origin(i))
	}
	return all
}

// cookiesOf are cookies of the host or the site of an origin.
func (m *mix) cookiesOf(origin string) (all []logins.Cookie) {
	host := strings.Split(strings.TrimPrefix(origin, "http://"), ":")[0]
	_, site, _ := strings.Cut(host, ".")
	for i := range m.IntN(4) {
		c := logins.Cookie{Name: fmt.Sprintf("c%d", i), Value: "v=\"" + strings.Repeat("x", m.IntN(200)), Domain: host,
			Path: []string{"/", "/", "/tab0", "/a%20b"}[m.IntN(4)], Expires: -1, HTTPOnly: m.oneIn(2),
			SameSite: []string{"", "", "Lax", "Strict"}[m.IntN(4)],
			Priority: []string{"", "", "High", "Low"}[m.IntN(4)]}
		switch m.IntN(6) {
		case 0:
			c.Name, c.Domain = fmt.Sprintf("c%d of %s", i, host), "."+site
		case 1:
			c.Name, c.Secure, c.Path = "__Host-"+c.Name, true, "/"
		case 2:
			c.Secure, c.SameSite = true, "None"
			c.PartitionKey, c.HasCrossSiteAncestor = "http://"+site, new(m.oneIn(2))
		case 3:
			c.Name, c.Path, c.Value = "", fmt.Sprintf("/%d", i), strings.ReplaceAll(c.Value, "=", "")
		case 4:
			c.SourceScheme, c.SourcePort = "NonSecure", 8080
		}
		if m.oneIn(2) {
			c.Expires = float64(time.Now().Unix()) + 1e5 + float64(m.IntN(1e7)) + 0.25
		}
		all = append(all, c)
	}
	return all
}

func escaped(address string) string { return url.QueryEscape(address) }

// ways are how a page is opened with an address; each returns its CDP session.
var ways = map[string]func(s *Session, p *peer, url string) string{
	"navigate": func(s *Session, p *peer, url string) string {
		page := p.attach(p.create("about:blank"))
		p.must(page, "Page.navigate", map[string]string{"url": url})
		return page
	},
	"createTarget": func(s *Session, p *peer, url string) string { return p.attach(p.create(url)) },
	"prefetched":   func(s *Session, p *peer, url string) string { return p.follow(url) },
	"prerendered":  func(s *Session, p *peer, url string) string { return p.follow(url) },
	"/json/new": func(s *Session, p *peer, url string) string {
		page, err := s.NewPage(p.t.Context(), url)
		if err != nil {
			p.t.Fatal(err)
		}
		return p.attach(page)
	},
	"window.open": func(s *Session, p *peer, url string) string {
		return p.openFrom(fmt.Sprintf("void open(%q)", url))
	},
	"noopener": func(s *Session, p *peer, url string) string {
		return p.openFrom(fmt.Sprintf("void open(%q, '', 'noopener')", url))
	},
}

func (p *peer) create(url string) string {
	p.t.Helper()
	return jsonrpc.GetString(p.must("", "Target.createTarget", map[string]string{"url": url}), "targetId")
}

// follow goes to a page, and from there to the one that it has loaded before.
func (p *peer) follow(address string) string {
	p.t.Helper()
	page := p.attach(p.create("about:blank"))
	p.goTo(page, address)
	_, to, _ := strings.Cut(address, "=")
	to, _ = url.QueryUnescape(to)
	p.do(page, fmt.Sprintf("void setTimeout(() => { location.href = %q })", to))
	p.awaitTrue(page, fmt.Sprintf("location.href === %q", to))
	return page
}

// openFrom opens a page by a script of the first one.
func (p *peer) openFrom(script string) string {
	p.t.Helper()
	before := p.pages()
	p.must(p.attach(before[0]), "Runtime.evaluate", map[string]any{"expression": script, "userGesture": true})
	for {
		for _, id := range p.pages() {
			if !slices.Contains(before, id) {
				return p.attach(id)
			}
		}
	}
}

// fill is an expression that replaces what a storage has.
func fill(storage string, values map[string]string) string {
	entries := [][2]string{}
	for name, value := range values {
		entries = append(entries, [2]string{name, value})
	}
	return fmt.Sprintf("%s.clear(); for (const [k, v] of %s) %[1]s.setItem(k, v)", storage, jsonOf(entries))
}
