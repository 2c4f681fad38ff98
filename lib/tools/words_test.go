package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// A text is found wherever it is in a page, however much is before it, and a text that
// is not there is not.
func TestWords(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>Words</title>")
		switch r.URL.Path {
		case "/long":
			fmt.Fprintf(w, `<p>%s the far end</p>
				<button onclick="said.textContent = 'Order placed'">Submit order</button>
				<style>.added { &::before { content: "Added by a style" } }</style><p class=added>
				<p>Terms of sale<p>In <b>sever</b>al <i>parts</i><p>soft&shy;ly
				<div><div><div>alone</div></div></div><p id=said>`,
				strings.Repeat("word ", 10000))
		case "/many":
			for i := range rows() {
				fmt.Fprintf(w, "<div><p>Row %d</p><button>Buy</button></div>", i)
			}
			fmt.Fprint(w, `<button>Last one</button>`)
		}
	}))
	defer site.Close()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 1200*time.Millisecond)
	open := func(path string) { h.wants(false, path, "browser_navigate", `{"url":`+quoted(site.URL+path)+`}`) }

	open("/long")
	for _, target := range []string{"text=Submit order", "getByText('submit order')", `body:has-text("Submit order")`,
		`text="Submit order"`, "text=/^Submit ORDER$/i", `button:text("Submit")`, `:text-is("Submit order")`,
		"text=several parts",
		"text=In several", `text="In several parts"`, "text=/al parts$/", "text=softly",
		`text="alone"`, "text=/^alone$/"} {
		h.wants(false, "Clicked", "browser_click", `{"target":`+quoted(target)+`}`)
	}
	h.wants(true, "nothing matches", "browser_hover", `{"target":"text=Submit orders"}`)
	h.wants(false, "is there", "browser_wait_for", `{"text":"ORDER  placed"}`)
	h.wants(false, "is there", "browser_wait_for", `{"text":"the far end"}`)
	h.wants(false, "word the far end", "browser_find", `{"text":"far end"}`)
	h.wants(false, "several parts", "browser_find", `{"text":"several parts"}`)
	h.wants(false, "Added by", "browser_find", `{"text":"by a style"}`)
	h.wants(false, "No matches found", "browser_find", `{"text":"far ends"}`)

	open("/many")
	h.wants(false, "Last one", "browser_find", `{"text":"last ONE"}`)
	h.wants(false, "Clicked", "browser_click", `{"target":"text=Last one"}`)
	h.wants(false, "is there", "browser_wait_for", `{"text":"Last one"}`)
}

// rows is how many rows a page with many elements has: a third of these.
func rows() int {
	if os.Getenv("LONG") != "" {
		return 33000
	}
	return 3000
}
