//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
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
	article, err := os.ReadFile("../lib/webtext/testdata/article.html")
	if err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile("../lib/searchpage/testdata/searxng.html")
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
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	site.url, site.other = s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return site
}

// member is an agent with a virtual browser, or, if it has no name, with the browser
// that bmcp shows as a whole.
type member struct {
	*mcp
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

func (m member) did(tool, format string, args ...any) toolResult {
	m.t.Helper()
	return m.mcp.did(tool, "%s", m.in(format, args))
}

func (m member) refused(want, tool, format string, args ...any) {
	m.t.Helper()
	m.mcp.refused(want, tool, "%s", m.in(format, args))
}

// forMembers runs a test for an agent with a virtual browser, and for one without.
func forMembers(t *testing.T, test func(t *testing.T, m member, site *website)) {
	for _, name := range []string{"", "anna"} {
		t.Run("session_id "+name, func(t *testing.T) {
			t.Parallel()
			site := newWebsite(t)
			w := newWorld(t)
			m := w.builtin("--headless")
			test(t, member{m, name}, site)
			m.end()
			w.clean()
		})
	}
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
func TestMCPText(t *testing.T) {
	t.Parallel()
	forMembers(t, testMCPText)
}

func testMCPText(t *testing.T, m member, site *website) {
	m.did("browser_navigate", `{"url":%q}`, site.url+"/parts")
	contains(t, "the Markdown", m.did("browser_get_markdown", `{}`).text(),
		[]string{"```markdown\n# Whole", "[The next](" + site.url + "/base/next)", "In the shadow: **Slotted**",
			"## In a frame", "The end.", "- Page Title: Parts"},
		[]string{"unseen", "attachShadow", "Inner"})
	contains(t, "the Markdown of a part", m.did("browser_get_markdown", `{"selector":"#links"}`).text(),
		[]string{"## Links\n\n[The next]("}, []string{"Whole", "The end"})
	contains(t, "the Markdown of a frame's part",
		m.did("browser_get_markdown", `{"selector":"text=In a frame"}`).text(),
		[]string{"## In a frame\n```"}, []string{"Whole"})
	contains(t, "the DOM", m.did("browser_get_dom", `{}`).text(),
		[]string{"```html\n<html>", "<title>Parts</title>", "  #shadow-root", "<slot name=\"name\"></slot>",
			"<h2>In a frame</h2>", `<p hidden>unseen</p>`}, []string{"attachShadow"})
	contains(t, "the DOM of a part", m.did("browser_get_dom", `{"selector":"#links","depth":0}`).text(),
		[]string{`<section id="links">… 2 elements</section>`}, []string{"next"})
	m.refused("nothing matches", "browser_get_markdown", `{"selector":"#nothing"}`)
	m.refused("not a valid selector", "browser_get_dom", `{"selector":"##"}`)
	m.refused("depth must be at least 0", "browser_get_dom", `{"depth":-1}`)
}
