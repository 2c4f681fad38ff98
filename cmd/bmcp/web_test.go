//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// website serves what the tools that read pages and send requests are tested on. It is
// on 127.0.0.1, and as another site on localhost.
type website struct {
	url, other string
	begun      chan struct{} // a request for /hangs
	over       chan struct{} // its end
}

// asked is what /me says of a request.
type asked struct {
	Method, Host, Body string
	Cookies            map[string]string
	Headers            http.Header
}

func newWebsite(t *testing.T) *website {
	t.Helper()
	article, err := os.ReadFile(cmdtest.Root + "/lib/webtext/testdata/article.html")
	if err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile(cmdtest.Root + "/lib/searchpage/testdata/searxng.html")
	if err != nil {
		t.Fatal(err)
	}
	site := &website{begun: make(chan struct{}, 10), over: make(chan struct{}, 10)}
	mux := http.NewServeMux()
	page := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, strings.ReplaceAll(text, "{other}", site.other))
		})
	}
	page("/article", strings.ReplaceAll(string(article), "https://count.harbour.example", ""))
	page("/parts", `<!doctype html><title>Parts</title><base href="/base/"><h1>Whole</h1><p hidden>unseen</p>
		<style>.gone { display: none }</style><div class=gone>unseen</div>
		<section id=links><h2>Links</h2><a href="next">The next</a></section>
		<x-card><b slot=name>Slotted</b></x-card><iframe src="{other}/inner"></iframe><p>The end.
		<script>document.querySelector('x-card').attachShadow({ mode: 'open' }).innerHTML =
			'<p>In the shadow: <slot name=name></slot></p>'</script>`)
	page("/inner", `<!doctype html><title>Inner</title><h2>In a frame</h2>`)
	page("/late", `<!doctype html><title>Late</title><main></main><script>
		alert('welcome')
		fetch('/words').then((r) => r.text()).then((s) => document.querySelector('main').textContent = s)</script>`)
	mux.HandleFunc("/words", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond)
		io.WriteString(w, "Words that a script has fetched.")
	})
	page("/strict", `<!doctype html><meta http-equiv=Content-Security-Policy content="default-src 'none'">Strict`)
	page("/captcha", `<!doctype html><title>Are you human?</title><p>Drag the slider to the right.</p>`)
	mux.HandleFunc("/search", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		title := fmt.Sprintf("slices package of %s, page %s", r.FormValue("q"), r.FormValue("p"))
		io.WriteString(w, strings.ReplaceAll(string(results), "slices package - Go Packages", title))
	})
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "who", Value: "anna", Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
	})
	mux.HandleFunc("/me", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a := asked{Method: r.Method, Host: r.Host, Body: string(body), Cookies: map[string]string{}, Headers: r.Header}
		for _, c := range r.Cookies() {
			a.Cookies[c.Name] = c.Value
		}
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "yes", Path: "/"})
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(a)
	})
	redirect := func(path string, status int, to func() string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to(), status) })
	}
	redirect("/there", http.StatusFound, func() string { return site.other + "/me" })
	redirect("/again", http.StatusTemporaryRedirect, func() string { return "/me" })
	redirect("/round", http.StatusFound, func() string { return "/round" })
	mux.HandleFunc("/guarded", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
		http.Error(w, "who is it?", http.StatusUnauthorized)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", "attachment; filename=a.bin")
		w.Write([]byte{0, 1, 2, 255})
	})
	mux.HandleFunc("/latin", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
		w.Write([]byte{'g', 'r', 0xfc, 'n'})
	})
	mux.HandleFunc("/drips", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("drip ", 1000))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/hangs", func(w http.ResponseWriter, r *http.Request) {
		site.begun <- struct{}{}
		<-r.Context().Done()
		site.over <- struct{}{}
	})
	site.url = cmdtest.Serve(t, mux.ServeHTTP)
	site.other = strings.Replace(site.url, "127.0.0.1", "localhost", 1)
	return site
}

// member is an agent with a virtual browser, or, if it has no name, with the browser
// that bmcp shows as a whole.
type member struct {
	*cmdtest.MCP
	name string
}

func (m member) in(format string, args []any) string {
	all := fmt.Sprintf(format, args...)
	if m.name == "" {
		return all
	}
	all = strings.Replace(all, "{", fmt.Sprintf(`{"session_id":%q,`, m.name), 1)
	return strings.Replace(all, ",}", "}", 1)
}

func (m member) did(tool, format string, args ...any) cmdtest.ToolResult {
	m.T.Helper()
	return m.MCP.MustTool(tool, "%s", m.in(format, args))
}

func (m member) refused(want, tool, format string, args ...any) {
	m.T.Helper()
	m.MCP.MustFail(want, tool, "%s", m.in(format, args))
}

// Agents read the web, one with a virtual browser, and one without.
func TestMCPWeb(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.Builtin("--headless")
	for _, name := range []string{"", "anna"} {
		t.Run("session_id "+name, func(t *testing.T) {
			a, site := member{m, name}, newWebsite(t)
			t.Run("the page that is open", func(t *testing.T) { testMCPText(t, a, site) })
			t.Run("pages apart", func(t *testing.T) { testMCPApart(t, a, site) })
			t.Run("requests", func(t *testing.T) { testMCPFetch(t, a, site) })
		})
	}
	m.End()
	w.Clean()
}

// contains reports each text that a result lacks, and each that it must not have.
func contains(t *testing.T, of, text string, want, not []string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(text, s) {
			t.Errorf("%s has no %q:\n%s", of, s, text)
		}
	}
	for _, s := range not {
		if strings.Contains(text, s) {
			t.Errorf("%s has %q:\n%s", of, s, text)
		}
	}
}

// The page that is open is read as Markdown and as HTML, with components and frames.
func testMCPText(t *testing.T, m member, site *website) {
	m.did("browser_navigate", `{"url":%q}`, site.url+"/parts")
	contains(t, "the Markdown", m.did("browser_get_markdown", `{}`).Text(),
		[]string{"```markdown\n# Whole", "[The next](" + site.url + "/base/next)", "In the shadow: **Slotted**",
			"## In a frame", "The end."},
		[]string{"unseen", "attachShadow", "Inner"})
	contains(t, "the Markdown of a part", m.did("browser_get_markdown", `{"selector":"#links"}`).Text(),
		[]string{"## Links\n\n[The next]("}, []string{"Whole", "The end"})
	contains(t, "the Markdown of a frame's part",
		m.did("browser_get_markdown", `{"selector":"text=In a frame"}`).Text(),
		[]string{"## In a frame\n```"}, []string{"Whole"})
	contains(t, "the DOM", m.did("browser_get_dom", `{}`).Text(),
		[]string{"```html\n<html>", "<title>Parts</title>", "  #shadow-root", "<slot name=\"name\"></slot>",
			"<h2>In a frame</h2>", `<p hidden>unseen</p>`}, []string{"attachShadow"})
	contains(t, "the DOM of a part", m.did("browser_get_dom", `{"selector":"#links","depth":0}`).Text(),
		[]string{`<section id="links">… 2 elements</section>`}, []string{"next"})
	m.refused("nothing matches", "browser_get_markdown", `{"selector":"#nothing"}`)
	m.refused("not a valid selector", "browser_get_dom", `{"selector":"##"}`)
	m.refused("depth must be at least 0", "browser_get_dom", `{"depth":-1}`)
}

// Pages are read apart: in a tab that nobody sees, without the session's cookies.
func testMCPApart(t *testing.T, m member, site *website) {
	m.did("browser_navigate", `{"url":%q}`, site.url+"/login")
	contains(t, "the main text", m.did("browser_extract", `{"url":%q}`, site.url+"/article").Text(),
		[]string{"- Title: How ferries keep their timetable in winter", "- URL: " + site.url + "/article",
			"- By: Ada Lindqvist", "- Published: 2025-01-14", "```markdown\n", "**two spare minutes**"},
		[]string{"herring", "partners", "### Page", "max_length"})
	contains(t, "a part of it", m.did("browser_extract", `{"url":%q,"max_length":100}`, site.url+"/article").Text(),
		[]string{"max_length sets how many"}, []string{"two spare minutes"})
	contains(t, "the whole page",
		m.did("browser_scrape", `{"url":%q,"include_images":true}`, site.url+"/article").Text(),
		[]string{"812 partners", "herring", "2 images:", "/img/ferry.jpg (1200×800) A ferry between ice floes"}, nil)
	if cmdtest.IsLong { // once in thirty times the request of its script is not seen, and not waited for
		contains(t, "a page that a script fills", m.did("browser_scrape", `{"url":%q}`, site.url+"/late").Text(),
			[]string{"Words that a script has fetched."}, []string{"images"})
	}
	cookies := `"Cookies":{}` // each time: what a page sets is lost
	if m.name != "" {
		cookies = `"Cookies":{"who":"anna"}`
	}
	for range 2 {
		contains(t, "the cookies", m.did("browser_scrape", `{"url":%q}`, site.url+"/me").Text(), []string{cookies}, nil)
	}
	contains(t, "a page that is not there", m.did("browser_scrape", `{"url":%q}`, site.url+"/none").Text(),
		[]string{"- Status: 404 Not Found", "404 page not found"}, nil)
	for _, bad := range [][2]string{
		{`{"url":"file:///etc/passwd"}`, "url must begin with http:// or https://"},
		{`{"url":"http://127.0.0.1:1/"}`, "cannot load http://127.0.0.1:1/: net::ERR_UNSAFE_PORT"},
		{`{}`, "the argument url is missing"},
		{fmt.Sprintf(`{"url":%q}`, site.url+"/file"), "browser_fetch reads it"},
	} {
		m.refused(bad[1], "browser_extract", "%s", bad[0])
	}
	if m.name != "" && !cmdtest.IsLong { // what follows is alike
		return
	}
	// More pages than are open at once are all read, which is four.
	waiting := map[string]bool{}
	for range 5 {
		waiting[m.StartTool("browser_extract", m.in(`{"url":%q}`, []any{site.url + "/article"}))] = true
	}
	for len(waiting) > 0 {
		r := m.Next()
		if r.Method != "" {
			continue
		}
		if !waiting[string(r.ID)] {
			t.Fatalf("an answer to another request: %.300s", r.Line)
		}
		delete(waiting, string(r.ID))
		contains(t, "one of several", r.Text(t), []string{"**two spare minutes**"}, nil)
	}
	// A page that never comes is given up when its call is cancelled, and the next call
	// does not wait for it.
	id := m.StartTool("browser_extract", m.in(`{"url":%q}`, []any{site.url + "/hangs"}))
	await(t, "the page is asked for", site.begun)
	m.Send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
	await(t, "the cancelled page is given up", site.over)
	got := m.did("browser_tabs", `{"action":"list"}`).Text()
	contains(t, "the list of tabs", got, []string{"- 0: (current) [](" + site.url + "/login)"}, []string{"- 1:"})
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(cmdtest.Patience):
		t.Fatalf("%s: it does not happen", what)
	}
}

// A search reads the result page of the engine that is configured.
func TestMCPSearch(t *testing.T) {
	t.Parallel()
	site := newWebsite(t)
	w := cmdtest.New(t)
	start := func(template string) *cmdtest.MCP {
		c := w.Cmd("bmcp", "--headless")
		c.Env = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache", "BTOOLS_BROWSER=chrome-headless-shell",
			"SEARCH_URL="+template)
		m := w.Attach(c)
		m.Initialize(`{}`)
		return m
	}
	m := start(site.url + "/search?q={query}&p={page}")
	r := m.MustTool("browser_search", `{"query":"go & rust","page":2,"count":2}`)
	contains(t, "the list", r.Text(), []string{"2 results of 127.0.0.1", ", page 2:",
		"2. slices package of go & rust, page 2", "\n   https://go.dev/doc/tutorial/generics\n", "```"},
		[]string{"3.", "without a snippet"})
	results, _ := r.Struct["results"].([]any)
	if len(results) != 2 {
		t.Fatalf("the structured results are %v", r.Struct)
	}
	first, _ := results[0].(map[string]any)
	if first["url"] != "https://go.dev/doc/tutorial/generics" || first["title"] == "" || first["snippet"] == "" {
		t.Errorf("the first result is %v", first)
	}
	m.MustFail("count must be at most 20", "browser_search", `{"query":"a","count":21}`)
	m.MustFail("page must be at least 1", "browser_search", `{"query":"a","page":0}`)
	m.MustFail("query is empty", "browser_search", `{"query":" "}`)
	m.End()
	m = start(site.url + "/captcha?q={query}")
	m.MustFail("Drag the slider", "browser_search", `{"query":"a"}`)
	m.MustFail("SEARCH_URL, in the environment of bmcp, has no {page}", "browser_search", `{"query":"a","page":2}`)
	m.End()
	w.Clean()
}

// A request has the session's cookies and sets them, whatever the page that is open
// allows, and goes where it is redirected.
func testMCPFetch(t *testing.T, m member, site *website) {
	const tool = "browser_fetch"
	m.did("browser_navigate", `{"url":%q}`, site.url+"/login")
	m.did("browser_navigate", `{"url":%q}`, site.other+"/strict")
	me := func(of, format string, args ...any) asked {
		t.Helper()
		text := m.did(tool, format, args...).Text()
		_, text, _ = strings.Cut(text, "```json\n")
		text, _, _ = strings.Cut(text, "\n```")
		var a asked
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Errorf("%s: %v: %s", of, err, text)
		}
		return a
	}
	a := me("a GET", `{"url":%q}`, site.url+"/me")
	if a.Method != "GET" || a.Cookies["who"] != "anna" || a.Headers.Get("Accept") != "*/*" {
		t.Errorf("the server was asked %+v", a)
	}
	a = me("a POST", `{"url":%q,"method":"post","body":"{\"a\":\"ü\"}","headers":{"X-Token":"secret"}}`,
		site.url+"/me")
	if a.Method != "POST" || a.Body != `{"a":"ü"}` || a.Cookies["seen"] != "yes" ||
		a.Headers.Get("X-Token") != "secret" || a.Headers.Get("Content-Type") != "application/json" ||
		a.Headers.Get("Origin") != site.url {
		t.Errorf("the server was asked %+v", a)
	}
	a = me("a DELETE", `{"url":%q,"method":"DELETE","headers":{"accept":"text/x"}}`, site.url+"/me")
	if a.Method != "DELETE" || a.Headers.Get("Accept") != "text/x" {
		t.Errorf("the server was asked %+v", a)
	}
	a = me("a redirect to another site", `{"url":%q,"headers":{"X-Token":"secret","Authorization":"Bearer x"}}`,
		site.url+"/there")
	if !strings.HasPrefix(a.Host, "localhost") || a.Cookies["who"] != "" || a.Headers.Get("X-Token") != "" ||
		a.Headers.Get("Authorization") != "" {
		t.Errorf("the other site was asked %+v", a)
	}
	a = me("a redirect with the body", `{"url":%q,"method":"PUT","body":"text"}`, site.url+"/again")
	if a.Method != "PUT" || a.Body != "text" || a.Cookies["who"] != "anna" {
		t.Errorf("the server was asked %+v", a)
	}
	if m.name != "" && !cmdtest.IsLong { // what follows is alike
		return
	}
	for _, c := range []struct{ args, want string }{
		{fmt.Sprintf(`{"url":%q}`, site.url+"/none"), "- Status: 404 Not Found"},
		{fmt.Sprintf(`{"url":%q}`, site.url+"/guarded"), "- Status: 401 Unauthorized"},
		{fmt.Sprintf(`{"url":%q}`, site.url+"/file"), "4 bytes"},
		{fmt.Sprintf(`{"url":%q}`, site.url+"/latin"), "grün"},
		{fmt.Sprintf(`{"url":%q,"method":"HEAD"}`, site.url+"/article"), "The body is empty."},
	} {
		contains(t, c.args, m.did(tool, "%s", c.args).Text(), []string{c.want}, nil)
	}
	for _, bad := range []struct{ args, want string }{
		{fmt.Sprintf(`{"url":%q,"timeout":500}`, site.url+"/hangs"), "there was no answer within 500ms"},
		{fmt.Sprintf(`{"url":%q,"timeout":8000}`, site.url+"/drips"), "the body did not end"},
		{fmt.Sprintf(`{"url":%q}`, site.url+"/round"), "redirected again and again"},
		{`{"url":"http://127.0.0.1:9/"}`, "ERR_UNSAFE_PORT"},
		{`{"url":"file:///etc/passwd"}`, "it begins with http:// or https://"},
		{fmt.Sprintf(`{"url":%q,"method":"BREW"}`, site.url), "method must be one of GET,"},
		{fmt.Sprintf(`{"url":%q,"body":"a"}`, site.url), "a GET request has no body"},
		{fmt.Sprintf(`{"url":%q,"timeout":0}`, site.url), "timeout must be at least 1"},
	} {
		m.refused(bad.want, tool, "%s", bad.args)
	}
	got := m.did("browser_tabs", `{"action":"list"}`).Text()
	contains(t, "the list of tabs", got, []string{site.other + "/strict"}, []string{"- 1:"})
}

// Requests and pages go through the browser's proxy, from the browser.
func TestMCPFetchByProxy(t *testing.T) {
	t.Parallel()
	proxy := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s of %s by the proxy", r.Method, r.URL)
	})
	w := cmdtest.New(t)
	m := w.Builtin("--headless", "--arg=--proxy-server="+proxy)
	contains(t, "the answer", m.MustTool("browser_fetch", `{"url":"http://site.example/a","method":"PUT"}`).Text(),
		[]string{"PUT of http://site.example/a by the proxy"}, nil)
	contains(t, "the page", m.MustTool("browser_scrape", `{"url":"http://site.example/b"}`).Text(),
		[]string{"GET of http://site.example/b by the proxy"}, nil)
	m.End()
	w.Clean()
}
