package virtual

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
	"btools/lib/webstorage"
)

// What a session carries through saving, sleeping, waking, exporting and importing is
// what it had, whatever it has and however its pages are opened. MIX_SEED repeats a
// run, with MIX_ROUND one of its rounds. There are 10; with LONG=1 as many as MIX_MINUTES
// has room for, else 1,000.
func TestMix(t *testing.T) {
	t.Parallel()
	rounds, seed, databases, start := 10, uint64(1), 12, chrometest.StartOneRenderer
	m := &mix{large: 60_000, many: 10}
	var end <-chan time.Time
	if long {
		rounds, seed, databases, start = 1000, rand.Uint64(), 60, chrometest.StartOnPipe
		m.large, m.many = 2_400_000, 50
		if n, _ := strconv.ParseFloat(os.Getenv("MIX_MINUTES"), 64); n > 0 {
			end = time.After(time.Duration(n * float64(time.Minute)))
		}
	}
	if n, err := strconv.ParseUint(os.Getenv("MIX_SEED"), 10, 64); err == nil {
		seed = n
	}
	b := openPipe(t, start)
	log := &syncBuffer{}
	b.log = slog.New(slog.NewTextHandler(log, nil))
	if !long {
		b.commit = 100 * time.Millisecond // servers that are slow answer at the end of a round only
	}
	m.Rand, m.web, m.log = rand.New(rand.NewPCG(seed, 0)), newWeb(t), log
	m.makeDatabases(t, b, databases)
	first, differences := 0, 0
	if n, err := strconv.Atoi(os.Getenv("MIX_ROUND")); err == nil {
		first, rounds = n, n+1
	}
	done := first
	for ; done < rounds; done++ {
		// Each round is random by a seed of its own, whatever the browser did in the others.
		m.Rand = rand.New(rand.NewPCG(seed, uint64(done+1)))
		for _, difference := range m.round(t, b) {
			differences++
			t.Errorf("MIX_SEED=%d MIX_ROUND=%d: %s", seed, done, difference)
		}
		select {
		case <-end:
			rounds = done
		default:
		}
	}
	t.Logf("MIX_SEED=%d: %d rounds, %d differences", seed, done-first, differences)
}

// round is one session of the mix, from its start with a state to its end.
type round struct {
	*mix
	t           *testing.T
	b           *Browser
	s           *Session
	p           *peer
	origins     []string
	has         map[string]content // by origin
	jar         []string           // the cookies, as the browser lists them
	tabs        []mixTab           // besides a blank one
	keep        bool               // it is kept while it runs, and goes on after a crash
	told        int                // bytes of the log before it
	steps       []string           // what was done, for people
	differences []string
}

// mixTab is a page of a round.
type mixTab struct {
	url, origin string
	frame       string            // the origin of its frame; "": it has none
	here        map[string]string // sessionStorage
}

func (r *round) differs(format string, args ...any) {
	r.differences = append(r.differences, fmt.Sprintf(format, args...)+"\nafter "+strings.Join(r.steps, ", "))
}

// round returns what differs in one round.
func (m *mix) round(t *testing.T, b *Browser) []string {
	t.Helper()
	r := &round{mix: m, t: t, b: b, origins: m.origins(), has: map[string]content{}, keep: m.oneIn(4),
		told: len(m.log.String())}
	r.begin()
	for range 1 + m.IntN(4)/3 {
		r.open()
	}
	fault := []string{"", "", "", "", "slow", "down"}[m.IntN(6)]
	r.jar = r.cookies()
	r.sleepAndWake(fault)
	if fault != "" {
		r.sleepAndWake("")
	}
	r.checkTabs()
	r.compareCookies("after waking", r.cookies(), r.jar)
	r.p.conn.Close(websocket.Normal, "")
	r.s.End(t.Context())
	return r.differences
}

// begin starts the session.
func (r *round) begin() {
	state := &logins.State{}
	for _, origin := range r.origins {
		state.Cookies = append(state.Cookies, r.cookiesOf(origin)...)
		if r.oneIn(3) {
			continue // it has nothing
		}
		r.has[origin] = r.content(r.keep)
		state.Origins = append(state.Origins, r.has[origin].in(r.mix, origin))
	}
	r.s = newSession(r.t, r.b, Options{Login: exported(r.t, state), Keep: r.keep,
		Settings: settings.Settings{State: "mix"}})
	r.p = connect(r.t, r.s, "")
	now, err := webstorage.Cookies(r.t.Context(), r.s.link, r.s.base)
	if err != nil {
		r.t.Fatal(err)
	}
	r.compareCookies("at the start", linesOf(now), linesOf(state.Cookies))
}

// cookies are the cookies as a client sees them.
func (r *round) cookies() (lines []string) {
	for c := range jsonrpc.Elements(jsonrpc.Get(r.p.must("", "Storage.getCookies", nil), "cookies")) {
		lines = append(lines, string(c))
	}
	return lines
}

// linesOf are cookies as JSON.
func linesOf(cookies []logins.Cookie) (lines []string) {
	for _, c := range cookies {
		lines = append(lines, jsonOf(c))
	}
	return lines
}

// compareCookies compares cookies. An export has the SameSite Lax, which is Chrome's
// default, for those without.
func (r *round) compareCookies(when string, got, want []string) {
	for _, lines := range [][]string{got, want} {
		for n := range lines {
			lines[n] = strings.Replace(lines[n], `,"sameSite":"Lax"`, "", 1)
		}
		slices.Sort(lines)
	}
	if slices.Equal(got, want) {
		return
	}
	isIn := func(lines []string) func(string) bool {
		return func(l string) bool { return slices.Contains(lines, l) }
	}
	r.differs("%s, there are also the cookies\n%s\nand not\n%s", when,
		strings.Join(slices.DeleteFunc(slices.Clone(got), isIn(want)), "\n"),
		strings.Join(slices.DeleteFunc(want, isIn(got)), "\n"))
}

// open opens a page, compares what its first script has found, and changes that.
func (r *round) open() {
	way := r.way()
	origin := r.origins[r.IntN(len(r.origins))]
	via := r.origins[r.IntN(len(r.origins))]
	tab := mixTab{url: fmt.Sprintf("%s/tab%d", origin, len(r.tabs)), origin: origin}
	if r.oneIn(3) {
		tab.frame = r.origins[r.IntN(len(r.origins))]
		tab.url += "?frame=" + tab.frame + "/"
	}
	address := tab.url
	if way == "prefetched" || way == "prerendered" {
		address = fmt.Sprintf("%s/?%s=%s", via, way, escaped(tab.url))
	} else if r.oneIn(4) {
		address = via + "/?to=" + escaped(tab.url)
	}
	r.steps = append(r.steps, way+" of "+address)
	page := ways[way](r.s, r.p, address)
	r.p.awaitPage(page, origin)
	r.compare(way+" of "+address, page, tab)
	if r.oneIn(2) {
		has := r.content(r.keep)
		has.unsaved = r.oneIn(6)
		r.has[origin] = has
		r.steps = append(r.steps, "storing in "+origin)
		r.p.do(page, has.script(r.mix))
		r.p.do(page, fmt.Sprintf("document.cookie = 'changed%d=%d; path=/'", r.IntN(3), r.IntN(1000)))
	}
	// What a frame changes in databases is not noticed while a session is kept.
	if tab.frame != "" && webstorage.SiteOf(tab.frame) == webstorage.SiteOf(origin) && r.oneIn(2) && !r.keep {
		r.steps = append(r.steps, "storing in the frame")
		r.has[tab.frame] = r.content(r.keep)
		r.p.do(page, fmt.Sprintf("inFrame(%q)", r.has[tab.frame].script(r.mix)))
	}
	tab.here = map[string]string{"length": r.text(r.IntN(3000))}
	r.p.do(page, fill("sessionStorage", tab.here))
	r.tabs = append(r.tabs, tab)
}

// compare compares what the first scripts of a page and of its frame have found.
func (r *round) compare(what, page string, tab mixTab) {
	r.t.Helper()
	if got, want := decoded(r.t, r.p.do(page, findings)), r.has[tab.origin].findings(r.mix); got != want {
		r.differs("%s: the first script has found %s, want %s", what, got, want)
	}
	if tab.frame == "" {
		return
	}
	var want content // Chrome keeps that of another site's frame apart, and it is not saved
	if webstorage.SiteOf(tab.frame) == webstorage.SiteOf(tab.origin) {
		want = r.has[tab.frame]
	}
	if got, want := decoded(r.t, r.p.do(page, fmt.Sprintf("inFrame(%q)", findings))),
		want.findings(r.mix); got != want {
		r.differs("%s: the first script of the frame has found %s, want %s", what, got, want)
	}
}

// sleepAndWake hibernates the session and wakes it, while the servers of its tabs
// have a fault.
func (r *round) sleepAndWake(fault string) {
	for _, tab := range r.tabs {
		r.web.set(tab.origin, fault)
	}
	r.p.conn.Close(websocket.Normal, "")
	r.steps = append(r.steps, "sleep, with servers that are "+strconv.Quote(fault))
	snapshot := r.snapshot()
	if st := r.s.Stats().State; st != nil && st.Error != "" {
		r.differs("the session tells %s", st.Error)
	}
	file, err := snapshot.Save(r.t.TempDir(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.s.End(r.t.Context())
	if snapshot, err = file.Load(); err != nil {
		r.t.Fatal(err)
	}
	file.Remove()
	for _, difference := range r.compareSaved(snapshot) {
		r.differs("%s", difference)
	}
	for _, origin := range r.origins {
		has := r.has[origin]
		if has.unsaved && !strings.Contains(r.log.String()[r.told:], origin+`: database \"unsaved\": DOMRect`) {
			r.differs("nobody is told that %s has a database that is not saved", origin)
		}
		has.unsaved = false
		r.has[origin] = has
	}
	r.s = newSession(r.t, r.b,
		Options{Login: exported(r.t, snapshot.State), Tabs: snapshot.Tabs, Keep: r.keep,
			Settings: settings.Settings{State: "mix"}})
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

// snapshot returns what the session goes on from.
func (r *round) snapshot() (now *Snapshot) {
	for end := time.Now().Add(patience); r.keep; time.Sleep(10 * time.Millisecond) {
		found, err := r.s.Look(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if found != nil {
			now = found
		}
		if now != nil && len(r.compareSaved(now)) == 0 || time.Now().After(end) {
			return now
		}
	}
	for r.s.isBusy() {
		runtime.Gosched()
	}
	now, err := r.s.Snapshot(r.t.Context(), false)
	if err != nil {
		r.t.Fatal(err)
	}
	return now
}

// compareSaved returns how a snapshot differs.
func (r *round) compareSaved(snapshot *Snapshot) (differences []string) {
	for _, origin := range r.origins {
		if difference := r.has[origin].compare(r.mix, stateOf(snapshot.State, origin)); difference != "" {
			differences = append(differences, "what is saved of "+origin+": "+difference)
		}
	}
	for _, tab := range r.tabs {
		i := slices.IndexFunc(snapshot.Tabs, func(t Tab) bool { return t.URL == tab.url })
		if i < 0 {
			differences = append(differences, "the tab "+tab.url+" is not saved")
			continue
		}
		values := map[string]string{}
		for item := range jsonrpc.Elements(jsonrpc.Get(snapshot.Tabs[i].Page, "items")) {
			var pair [2]string
			if err := json.Unmarshal(item, &pair); err != nil {
				r.t.Fatal(err)
			}
			values[pair[0]] = pair[1]
		}
		if got, want := digest(values), digest(tab.here); got != want {
			differences = append(differences, "what is saved of the sessionStorage of "+tab.url+" is "+got+", want "+
				want)
		}
	}
	return differences
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
			r.compare("after waking, "+tab.url, page, tab)
		}
	}
}

// exported returns a state as it is after its export and import.
func exported(t *testing.T, state *logins.State) *logins.State {
	t.Helper()
	again, dropped, err := logins.Parse(state.Export())
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	return again
}

// way is one of the ways to open a page.
func (m *mix) way() string {
	all := slices.Sorted(maps.Keys(ways))
	return all[m.IntN(len(all))]
}
