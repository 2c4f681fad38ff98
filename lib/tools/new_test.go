package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// scrollPage has a page and a part of it that scroll, and sends requests for a while.
const scrollPage = `<!doctype html><title>Scrolls</title><body style="height:4000px;margin:0">
	<div id=box style="position:absolute;top:2000px;height:100px;width:100px;overflow:auto"><p id=in style="margin-top:900px">
	Inner</p></div><p id=end style="position:absolute;top:3900px">End</p><script>
	onpopstate = onhashchange = () => document.title = location.hash
	setTimeout(() => { history.pushState(null, '', '/late/there'); window.ready = { now: true } }, 300)</script>`

// usePages are what tools of a browser do with pages: history, scrolling, waiting and labels of tabs.
func usePages(h *host, site string) {
	wants := func(want, tool, args string) string {
		h.t.Helper()
		return h.wants(want[0] == '!', want[1:], tool, args)
	}
	open := func(path string) { h.wants(false, site+path, "browser_navigate", `{"url":`+quoted(site+path)+`}`) }
	open("/one")
	wants("!there is no page after this one", "browser_navigate_forward", `{}`)
	open("/two")
	wants("=Page URL: "+site+"/one", "browser_navigate_back", `{}`)
	wants("=Page URL: "+site+"/two", "browser_navigate_forward", `{}`)
	wants("=", "browser_evaluate", `{"function":"window.kept = 1"}`)
	wants("=Page URL: "+site+"/two", "browser_reload", `{}`)
	wants("=undefined", "browser_evaluate", `{"function":"window.kept"}`)

	open("/scrolls")
	wants("=The address is "+site+"/late/there", "browser_wait_for", `{"url":"**/late/*","function":"() => window.ready.now"}`)
	wants("=- Scrolled the page by 250 pixels, to 250 of ", "browser_scroll", `{"direction":"down","pixels":250}`)
	wants("=Nothing has scrolled: the page has no more than is seen", "browser_scroll", `{"direction":"right"}`)
	wants("=, to 0 of ", "browser_scroll", `{"direction":"top"}`)
	wants("=Nothing has scrolled: the page is at 0 of", "browser_scroll", `{"direction":"up"}`)
	wants(`=Scrolled <div#box> "Inner" by `, "browser_scroll", `{"target":"#in","direction":"bottom"}`)
	wants("=Scrolled to ", "browser_scroll", `{"target":"#end"}`)
	wants("=true", "browser_evaluate", `{"function":"scrollY > 2000"}`)
	wants("!direction is missing", "browser_scroll", `{}`)
	wants("=The page has come to load", "browser_wait_for", `{"load":"load"}`)

	wants(`=(current) [](about:blank) label "mail"`, "browser_tabs", `{"action":"new","label":"mail"}`)
	wants(`=label "shop"`, "browser_tabs", `{"action":"select","index":0,"label":"shop"}`)
	wants(`=(current) [](about:blank) label "mail"`, "browser_tabs", `{"action":"select","label":"mail"}`)
	wants("=", "browser_tabs", `{"action":"close","label":"mail"}`)
	wants(`!no tab is called "mail", or it was closed`, "browser_tabs", `{"action":"select","label":"mail"}`)
}

func newSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/scrolls" {
			fmt.Fprint(w, scrollPage)
			return
		}
		fmt.Fprintf(w, "<!doctype html><title>%s</title><h1>A page</h1>", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

func TestPagesAndTabs(t *testing.T) {
	t.Parallel()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 200*time.Millisecond)
	site := newSite(t)
	usePages(h, site)
	h.wants(true, "which does not match **/never", "browser_wait_for", `{"url":"**/never"}`)
	h.wants(true, "ReferenceError", "browser_wait_for", `{"function":"() => nothing.at.all"}`)
	h.wants(false, "The page has come to idle", "browser_wait_for", `{"load":"idle"}`)
}
