package tools

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// straySite serves a page that goes to another one on a word to leave, and tells when it is there.
func straySite(t *testing.T) (url string, leave chan<- struct{}, came <-chan struct{}) {
	t.Helper()
	leaves, comes := make(chan struct{}), make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gate":
			select {
			case <-leaves:
			case <-r.Context().Done():
			}
			return
		case "/came":
			comes <- struct{}{}
			return
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<!doctype html><title>A page</title><h1 id=said>untouched</h1>
			<input id=field><label><input type=checkbox id=box>Box</label>
			<select id=choice><option>one<option>two</select><button id=one>One</button><button id=two>Two</button>
			<script>for (const e of ['mousedown', 'mousemove', 'keydown', 'input', 'change', 'drop', 'dragenter'])
				addEventListener(e, () => { said.textContent = 'had ' + e }, true)
			`)
		switch r.URL.Path {
		case "/leaves":
			fmt.Fprintf(w, "fetch('/gate').then(() => { location = '//localhost:' + location.port + '/other' })")
		case "/reloads":
			fmt.Fprintf(w, "fetch('/gate').then(() => location.reload())")
		case "/next":
			fmt.Fprintf(w, "one.onclick = () => { location = '/other' }; box.onclick = () => { location = '/other' }")
		}
		if r.URL.Path != "/leaves" {
			io.WriteString(w, `;addEventListener('load', async () => { await fetch('/x'); await fetch('/came') })`)
		}
		io.WriteString(w, "</script>")
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL, leaves, comes
}

// checkStrays checks that what an agent has learnt of a page does nothing on another one to which that has gone by
// itself, until the agent has been told. Only are the tools that there are, nil: all.
func checkStrays(h *host, only []string) {
	h.t.Helper()
	site, leave, came := straySite(h.t)
	open := func(path string) { h.wants(false, path, "browser_navigate", `{"url":`+quoted(site+path)+`}`) }
	arrives := func() {
		h.t.Helper()
		select {
		case <-came:
		case <-time.After(time.Minute):
			h.t.Fatal("the page has not come")
		}
	}
	goes := func() {
		h.t.Helper()
		select {
		case leave <- struct{}{}:
		case <-time.After(time.Minute):
			h.t.Fatal("the page does not ask whether it is to go")
		}
	}
	gone := func() {
		h.t.Helper()
		goes()
		arrives()
		if only != nil { // Firefox tells later than the page
			until(h, `[ref=`, "browser_find", `{"text":"untouched"}`)
		}
	}
	untouched := `{"function":"() => document.title + ' is ' + said.textContent"}`
	for _, c := range [][2]string{
		{"browser_type", `{"target":"#field","text":"secret","submit":true}`},
		{"browser_fill_form", `{"fields":[{"target":"text=Box","name":"box","type":"checkbox","value":"true"}]}`},
		{"browser_press_key", `{"key":"a"}`},
		{"browser_localstorage_set", `{"key":"a","value":"secret"}`},
		{"browser_evaluate", `{"target":"#field","function":"() => { said.textContent = 'had it' }"}`},
	} {
		if only != nil && c[0] != "browser_type" && c[0] != "browser_press_key" { // the others do it in the same way
			continue
		}
		open("/leaves")
		gone()
		s := h.wants(true, "the page went to ", c[0], c[1])
		if !strings.Contains(s, "localhost") || !strings.Contains(s, site+"/leaves") {
			h.t.Errorf("%s does not say where the page has gone, and from where: %s", c[0], s)
		}
		h.wants(false, "A page is untouched", "browser_evaluate", untouched)
		if c[0] == "browser_localstorage_set" {
			h.wants(false, "null", "browser_evaluate", `{"function":"() => localStorage.getItem('a')"}`)
		}
	}
	// Once it has been told, also of a page that goes there by what the agent does, or that stays where it is.
	for _, path := range []string{"/leaves", "/reloads"} {
		if path == "/reloads" && only != nil {
			continue
		}
		open(path)
		if path == "/reloads" {
			arrives()
		}
		gone()
		if path == "/leaves" {
			h.wants(true, "the page went to ", "browser_click", `{"target":"text=One"}`)
		} else {
			goes() // its next document asks as well
			arrives()
		}
		h.wants(false, "Clicked", "browser_click", `{"target":"text=Two"}`)
	}
	open("/next")
	arrives()
	h.wants(false, "Page URL: "+site+"/other", "browser_click", `{"target":"text=One"}`)
	arrives()
	h.wants(false, "Typed", "browser_type", `{"target":"#field","text":"x"}`)
	if only == nil {
		open("/next")
		arrives()
		h.wants(false, "to true", "browser_fill_form",
			`{"fields":[{"target":"#box","name":"box","type":"checkbox","value":"true"}]}`)
		arrives()
		// One that the agent closes leaves another in its place.
		h.wants(false, "(current)", "browser_tabs", `{"action":"new","url":`+quoted(site+"/plain")+`}`)
		arrives()
		h.wants(false, "", "browser_tabs", `{"action":"close"}`)
		h.wants(false, "Clicked", "browser_click", `{"target":"text=One"}`)
	}
}
