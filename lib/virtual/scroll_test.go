package virtual

import (
	"encoding/json"
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
		saved, err := s.Snapshot(t.Context())
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
