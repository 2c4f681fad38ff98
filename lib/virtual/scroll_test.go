package virtual

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
)

// scrolledPages are pages by their addresses, each of which makes it hard in its way to scroll it as it was.
var scrolledPages = map[string]string{
	"/plain":      `<div style="height:9000px">`,
	"/smooth":     `<style>html { scroll-behavior: smooth }</style><div style="height:9000px">`,
	"/manual":     `<script>history.scrollRestoration = 'manual'</script><div style="height:9000px">`,
	"/reset":      `<script>addEventListener('load', () => scrollTo(0, 0))</script><div style="height:9000px">`,
	"/anchor#top": `<a id="top"></a><div style="height:9000px">`,
	"/images":     strings.Repeat(`<p>text</p><img src="/image.svg">`, 60),
	"/later": `<script>setTimeout(async () => {
			await fetch('/slow');
			document.body.innerHTML = '<div style="height:9000px">';
		}, 300)</script>`,
	"/inner": `<!doctype html><style>body { margin: 0; overflow: hidden }</style>
		<main style="height:400px; overflow:auto"><div style="height:9000px"></div></main>`,
}

// The scroll positions of pages are there when their session wakes, also for a client that asks at once, and if the
// session was hibernated in between before they were. With LONG=1 50 pages are asked, otherwise each twice.
func TestScrollPositionsComeBack(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		for path, page := range scrolledPages {
			if before, _, _ := strings.Cut(path, "#"); r.URL.Path == before {
				io.WriteString(w, page)
				return
			}
		}
		time.Sleep(100 * time.Millisecond) // for all that a page needs besides
		w.Header().Set("content-type", "image/svg+xml")
		io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100"/>`)
	}))
	t.Cleanup(server.Close)
	b := openShell(t)
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	const scroller = `(document.querySelector('main') ?? document.scrollingElement)`
	for path := range scrolledPages {
		blank := p.must("", "Target.createTarget", map[string]any{"url": "about:blank"})
		page := p.attach(jsonrpc.GetString(blank, "targetId"))
		p.goTo(page, server.URL+path)
		p.awaitTrue(page, scroller+".scrollHeight > 5000")
		p.do(page, scroller+".scrollTo({ top: 1234, behavior: 'instant' })")
	}
	next := func() {
		p.conn.Close(1000, "")
		for s.isBusy() {
			time.Sleep(time.Millisecond)
		}
		saved, err := s.Snapshot(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(saved)
		s.End(t.Context())
		saved = &Snapshot{}
		json.Unmarshal(text, saved)
		s = newSession(t, b, Options{Login: saved.State, Tabs: saved.Tabs})
		p = connect(t, s, "")
	}
	asked, enough, lost := 0, 2*len(scrolledPages), map[string]int{}
	if long {
		enough = 50
	}
	for wake := 0; asked < enough; wake++ {
		b.commit = 0
		if wake%2 == 1 { // a client may wait for the pages
			b.commit = patience
		}
		if next(); b.commit == 0 {
			continue
		}
		for _, id := range p.pages() {
			page := p.attach(id)
			at := strings.Trim(p.do(page, `location.href + ' ' + `+scroller+".scrollTop"), `"`)
			if path, is := strings.CutPrefix(at, server.URL); is {
				asked++
				if !strings.HasSuffix(path, " 1234") {
					lost[path]++
				}
			}
		}
	}
	if len(lost) > 0 {
		t.Errorf("of %d pages that were scrolled to 1234, these were not when they came back: %v", asked, lost)
	}
}

// A session that is saved while it is used has the scroll positions that its pages came back with, or had at the last
// save, as long as they show the same page; so has one whose pages do not answer at a save.
func TestScrollPositionsStay(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<!doctype html><div style="height:9000px"></div>
			<script>sessionStorage.cart = 'full'</script>`)
	}))
	t.Cleanup(server.Close)
	b := openShell(t)
	tab := func(y int) Tab {
		return Tab{URL: server.URL + "/page", Page: json.RawMessage(fmt.Sprintf(
			`{"origin":%q,"scrolled":[[[],0,%d]],"items":[["cart","full"]]}`, server.URL, y))}
	}
	s := newSession(t, b, Options{Keep: true, Tabs: []Tab{tab(1234)}})
	p := connect(t, s, "")
	page := p.attach(p.pages()[0])
	p.awaitTrue(page, "scrollY === 1234")
	look := func(path string, y int) {
		t.Helper()
		var now *Snapshot
		for end := time.Now().Add(patience); now == nil || now.Tabs[0].URL != server.URL+path; {
			var err error
			p.do(page, "sessionStorage.cart += ' '; localStorage.n = Math.random()") // so that there is news
			if now, err = s.Look(t.Context()); err != nil || time.Now().After(end) {
				t.Fatalf("%+v, %v", now, err)
			}
		}
		want := "[]"
		if y > 0 {
			want = fmt.Sprintf("[[[],0,%d]]", y)
		}
		if got := string(jsonrpc.Get(now.Tabs[0].Page, "scrolled")); got != want {
			t.Errorf("%s is kept as scrolled to %s, want %s", path, got, want)
		}
	}
	snapshot := func() Tab {
		t.Helper()
		p.conn.Close(1000, "")
		for s.isBusy() {
			time.Sleep(time.Millisecond)
		}
		now, err := s.Snapshot(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return now.Tabs[0]
	}
	look("/page", 1234)
	p.do(page, "dispatchEvent(new Event('wheel')); scrollTo(0, 2345)") // a person's wheel ends the way back
	snapshot()
	p = connect(t, s, "")
	page = p.attach(p.pages()[0])
	look("/page", 2345)
	p.goTo(page, server.URL+"/other")
	look("/other", 0)
	p.goTo(page, server.URL+"/page")
	p.do(page, "scrollTo(0, 3456)")
	snapshot()
	p = connect(t, s, "")
	page = p.attach(p.pages()[0])
	p.begin(page, "Page.crash", nil)
	p.event("Inspector.targetCrashed", "")
	if got := snapshot(); string(jsonrpc.Get(got.Page, "scrolled")) != "[[[],0,3456]]" {
		t.Errorf("a page that has crashed is saved as %s", got.Page)
	}
}
