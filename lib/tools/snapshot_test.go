package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// controls is a page with elements to act on, and with text around them.
const controls = `<!doctype html><title>Controls</title><h1>Shop</h1><p>Welcome</p>
	<nav><ul><li><a href=/home>Home</a></ul></nav> <button disabled>Buy</button> <button></button>
	<label><input type=checkbox checked> Gifts</label> <input aria-label=Amount value=3> <input>
	<select aria-label=Colour><option>red<option selected>blue</select> <img alt=Socks>
	<div style="cursor:pointer">Add <b>wool</b> socks</div> <div tabindex=0>Reached</div> <div tabindex=-1>Text</div>
	<span onclick="1">Handles</span> <div contenteditable><p>Draft</p></div> <div role=tab aria-selected=true>More</div>
	<div style="cursor:pointer">Card <a href=#>inside</a></div> <button hidden>Hidden</button>
	<iframe title=Pay srcdoc="<p>Total</p><button>Pay now</button>"></iframe> <button>Last</button>`

// controlsOnly is what an interactive snapshot of it has, without refs.
const controlsOnly = `- link "Home"
- button "Buy" [disabled]
- button
- checkbox "Gifts" [checked]
- textbox "Amount": "3"
- textbox
- combobox "Colour"
- option "red"
- option "blue" [selected]
- generic [cursor=pointer]: Add wool socks
- generic: Reached
- generic: Handles
- generic: Draft
- tab "More" [selected]
- generic [cursor=pointer]: Card
- link "inside"
- iframe "Pay"
- button "Pay now"
- button "Last"
`

var refOnLine = regexp.MustCompile(` \[ref=(\w+)\]`)

// interactive are the lines of an interactive snapshot, without refs.
func interactive(h *host, args string) string {
	h.t.Helper()
	text := h.wants(false, "```yaml\n", "browser_snapshot", args)
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	return refOnLine.ReplaceAllString(text, "")
}

// An interactive snapshot has the elements to act on and nothing else, each on a line, with
// the refs of the whole one.
func TestInteractiveSnapshot(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/controls":
			fmt.Fprint(w, controls)
		case "/text":
			fmt.Fprint(w, "<!doctype html><title>Text</title><p>Words</p>")
		case "/large":
			fmt.Fprint(w, "<!doctype html><title>Large</title><main>")
			for i := range 500 {
				fmt.Fprintf(w, `<section><h2>Offer %[1]d</h2><p>Some <b>words</b> on it.</p><ul>
					<li><a href="/offer/%[1]d">Read %[1]d</a><li><button>Buy %[1]d</button></ul>
					<input aria-label="Amount %[1]d"></section>`, i)
			}
		}
	}))
	defer site.Close()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, time.Second)
	open := func(path string) string {
		return h.wants(false, path, "browser_navigate", `{"url":`+quoted(site.URL+path)+`}`)
	}

	whole := open("/controls")
	only := h.wants(false, "Last", "browser_snapshot", `{"interactive":true}`)
	refs := refOnLine.FindAllStringSubmatch(only, -1)
	for line := range strings.Lines(only) {
		line = strings.TrimSpace(line)
		if m := refOnLine.FindString(line); m != "" && !strings.Contains(line, "Handles") {
			if head, _, _ := strings.Cut(line, m); !strings.Contains(whole, head+m) {
				t.Errorf("%q is not in the whole snapshot:\n%s", head+m, whole)
			}
		}
	}
	if got := interactive(h, `{"interactive":true}`); got != controlsOnly {
		t.Errorf("the snapshot is\n%s", got)
	}
	if n := len(refs); n != 17 { // an option has none, as in the whole one
		t.Fatalf("%d elements have refs:\n%s", n, only)
	}
	h.wants(false, "Clicked <span>", "browser_click", `{"target":"`+refs[9][1]+`"}`)
	h.wants(false, `Clicked button "Pay now"`, "browser_click", `{"target":"`+refs[15][1]+`"}`)
	if got := interactive(h, `{"interactive":true,"target":"nav"}`); got != "- link \"Home\"\n" {
		t.Errorf("of a target it is\n%s", got)
	}
	if got := interactive(h, `{"interactive":true,"depth":0}`); strings.Contains(got, "Home") ||
		!strings.Contains(got, "Last") {
		t.Errorf("with a depth it is\n%s", got)
	}
	h.wants(false, ` [ref=`+refs[0][1]+`] [box=`, "browser_snapshot", `{"interactive":true,"boxes":true}`)
	// It is not what an agent has been given of the page.
	h.wants(false, "The snapshot has not changed.", "browser_hover", `{"target":"text=Last"}`)

	open("/text")
	h.wants(false, "Nothing in the page is interactive.", "browser_snapshot", `{"interactive":true}`)

	first := open("/large")
	if !strings.Contains(first, "- heading \"Offer 90\" [level=2]") || len(first) > 8500 ||
		!strings.Contains(first, "lines of the headings, links, buttons and fields: browser_snapshot shows the whole") {
		t.Errorf("of a large page is shown first %d characters: %s", len(first), first)
	}
	large := h.wants(false, "Amount 499", "browser_snapshot", `{}`)
	got := interactive(h, `{"interactive":true}`)
	if n := strings.Count(got, "\n"); n != 1500 || !strings.HasSuffix(got, "- textbox \"Amount 499\"\n") {
		t.Errorf("the snapshot of a large page has %d lines: %.200s", n, got)
	}
	if 3*len(got) > len(large) {
		t.Errorf("it has %d characters, the whole one %d", len(got), len(large))
	}
}
