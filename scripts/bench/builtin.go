//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// builtins measures the tools of bmcp beside @playwright/mcp.
func builtins() {
	attempt("builtin: tools/list after the start", firstList)
	attempt("builtin: first loaded page", firstPage)
	attempt("builtin: rounds of calls", rounds)
	attempt("builtin: a page of 5,000 elements", bigSnapshot)
}

// firstList measures from the start to the tools; nothing is cached.
func firstList() {
	var ours, theirs []float64
	for i := range 10 {
		for _, s := range []struct {
			times *[]float64
			argv  []string
		}{{&ours, builtinMCP()}, {&theirs, playwrightMCP()}} {
			began := time.Now()
			h := mcpServer([]string{"HOME=" + dir, "XDG_CACHE_HOME=" + dir + "/empty-" + strconv.Itoa(i)}, s.argv[0],
				s.argv[1:]...)
			h.call("tools/list", "{}")
			*s.times = append(*s.times, time.Since(began).Seconds()*1000)
			h.stop()
		}
	}
	row("builtin: start to the answer of tools/list, median of 10", fmt.Sprintf("%.0f ms", median(ours)), "≤ 50 ms")
	row("the same: @playwright/mcp", fmt.Sprintf("%.0f ms", median(theirs)), "")
}

// loaded returns the milliseconds from the start of blaunch to the load event of its
// page.
func loaded() float64 {
	done := make(chan time.Time, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loaded" {
			done <- time.Now()
			return
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<!doctype html><title>Page</title><link rel=icon href="data:,">
			<script>onload = () => fetch("/loaded")</script>`)
	}))
	defer s.Close()
	began := time.Now()
	id := output(bin+"blaunch", "--no-input", "-f", "instance.id", "--url", s.URL)
	defer output(bin+"blaunch", "stop", id)
	select {
	case at := <-done:
		return at.Sub(began).Seconds() * 1000
	case <-time.After(time.Minute):
		panic(failure{errors.New("blaunch has loaded no page")})
	}
}

// firstPage measures from the start to a page that is loaded.
func firstPage() {
	s := counters()
	defer s.Close()
	var ours, theirs, launch []float64
	for range 7 { // by turns
		for _, p := range []struct {
			times *[]float64
			argv  []string
		}{{&ours, builtinMCP()}, {&theirs, playwrightMCP()}} {
			began := time.Now()
			h := mcpServer([]string{"HOME=" + dir}, p.argv[0], p.argv[1:]...)
			if r := h.tool("browser_navigate", `{"url":"`+s.URL+`/?7"}`); !bytes.Contains(r, []byte("Counter 7")) {
				panic(failure{fmt.Errorf("no page: %.500s", r)})
			}
			*p.times = append(*p.times, time.Since(began).Seconds()*1000)
			h.stop()
		}
		launch = append(launch, loaded())
	}
	row("builtin: start to the first loaded page, median of 7", fmt.Sprintf("%.0f ms", median(ours)), "")
	row("the same: blaunch --url", fmt.Sprintf("%.0f ms", median(launch)), "")
	row("builtin ÷ blaunch --url", fmt.Sprintf("%.2f", median(ours)/median(launch)), "≤ 1.5")
	row("the same: @playwright/mcp", fmt.Sprintf("%.0f ms", median(theirs)), "")
}

// counters serves pages /?N with a button that adds N to window.n.
func counters() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.RawQuery)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>Counter %d</title><h1>Number %d</h1><p>%s
			<button onclick="window.n = (window.n || 0) + %d">Add %d</button>`, n, n, strings.Repeat("text ", 200), n,
			n)
	}))
}

// httpHost is a host that speaks to a server by HTTP.
type httpHost struct {
	url, session string
	id           int
}

// httpServer starts a server on a port, and returns its address.
func httpServer(argv []string, address func(port string) string) (d daemon, url string) {
	port := output(bin+"bport", "--no-input", "-f", "port")
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{port}", port)
	}
	c := command(argv[0], argv[1:]...)
	c.Env, c.Dir = append(c.Env, "HOME="+dir, "XDG_CACHE_HOME="+dir+"/cache"), dir
	if err := c.Start(); err != nil {
		panic(failure{err})
	}
	url = address(port)
	within(time.Minute, func() bool {
		r, err := http.Get(url)
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	return daemon{c}, url
}

// newHTTPHost greets the server.
func newHTTPHost(url string) *httpHost {
	h := &httpHost{url: url}
	h.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	h.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return h
}

// post sends a message and returns what comes of it.
func (h *httpHost) post(body string) []byte {
	r, _ := http.NewRequest("POST", h.url, strings.NewReader(body))
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	if h.session != "" {
		r.Header.Set("Mcp-Session-Id", h.session)
	}
	a, err := (&http.Client{Timeout: maxTask}).Do(r)
	if err != nil {
		panic(failure{err})
	}
	defer a.Body.Close()
	if id := a.Header.Get("Mcp-Session-Id"); id != "" {
		h.session = id
	}
	b, err := io.ReadAll(a.Body)
	if err != nil {
		panic(failure{err})
	}
	return b
}

// tool calls a tool and returns the text of its result.
func (h *httpHost) tool(name, args string) (text string, failed bool) {
	h.id++
	body := h.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`,
		h.id, name, args))
	for line := range bytes.Lines(body) {
		var m struct {
			ID     int
			Result *struct {
				IsError bool
				Content []struct{ Text string }
			}
		}
		line = bytes.TrimPrefix(line, []byte("data: "))
		if json.Unmarshal(line, &m) == nil && m.ID == h.id && m.Result != nil {
			for _, c := range m.Result.Content {
				text += c.Text
			}
			return text, m.Result.IsError
		}
	}
	return string(body), true
}

// leave ends the host's session.
func (h *httpHost) leave() {
	r, _ := http.NewRequest("DELETE", h.url, nil)
	r.Header.Set("Mcp-Session-Id", h.session)
	if a, err := http.DefaultClient.Do(r); err == nil {
		a.Body.Close()
	}
}

// tally counts what went wrong in rounds.
type tally struct{ calls, wrong, failed atomic.Int32 }

var addButton = regexp.MustCompile(`button "Add \d+".*?\[ref=(\w+)\]`)

// round loads a page with a number of its own, looks at it, clicks, and
// evaluates what came of it.
func (h *httpHost) round(site string, n int, t *tally) {
	call := func(name, args, want string) string {
		text, failed := h.tool(name, args)
		t.calls.Add(1)
		switch {
		case failed:
			if t.failed.Add(1) == 1 {
				fmt.Fprintf(os.Stderr, "%s %s: %.500s\n", name, args, text)
			}
		case !strings.Contains(text, want):
			if t.wrong.Add(1) == 1 {
				fmt.Fprintf(os.Stderr, "%s %s: no %q in %.500s\n", name, args, want, text)
			}
		}
		return text
	}
	call("browser_navigate", fmt.Sprintf(`{"url":"%s/?%d"}`, site, n), fmt.Sprintf("Counter %d", n))
	ref := addButton.FindStringSubmatch(call("browser_snapshot", "{}", fmt.Sprintf(`heading "Number %d"`, n)))
	if ref == nil {
		ref = []string{"", "none"}
	}
	call("browser_click", `{"element":"the button","target":"`+ref[1]+`"}`, "")
	call("browser_evaluate", `{"function":"() => 'sum ' + window.n"}`, fmt.Sprintf(`"sum %d"`, n))
}

// agents has so many hosts make so many rounds at once, and returns the hosts
// and the calls a second.
func agents(url, site string, n, each int, t *tally) (hosts []*httpHost, rate float64) {
	hosts = make([]*httpHost, n)
	var starts, all together
	for i := range n {
		starts.Go(func() {
			hosts[i] = newHTTPHost(url)
			hosts[i].round(site, 1000+i, &tally{}) // starts what it needs
		})
	}
	starts.Wait()
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for k := range each {
				hosts[i].round(site, 100*i+k+1, t)
			}
		})
	}
	all.Wait()
	return hosts, float64(4*n*each) / time.Since(began).Seconds()
}

func rounds() {
	s := counters()
	defer s.Close()
	ours, at := httpServer(builtinMCP("--http", "{port}"), func(p string) string {
		return "http://127.0.0.1:" + p + "/mcp"
	})
	defer ours.stop()
	theirs, peer := httpServer(playwrightMCP("--port", "{port}"), func(p string) string {
		return "http://localhost:" + p + "/mcp"
	})
	defer theirs.stop()

	a, b := newHTTPHost(at), newHTTPHost(peer)
	var took [2][]float64
	var t tally
	for i := range 21 { // by turns; the first starts the browsers
		for k, h := range []*httpHost{a, b} {
			began := time.Now()
			h.round(s.URL, i+1, &t)
			if i > 0 {
				took[k] = append(took[k], time.Since(began).Seconds()*1000)
			}
		}
	}
	a.leave()
	b.leave()
	row("navigate, snapshot, click, evaluate, median of 20: builtin, theirs",
		fmt.Sprintf("%.0f, %.0f ms", median(took[0]), median(took[1])), "")
	row("the same: builtin ÷ @playwright/mcp", fmt.Sprintf("%.2f", median(took[0])/median(took[1])), "≤ 0.25")

	var rates [2]float64
	for k, url := range []string{at, peer} {
		var hosts []*httpHost
		hosts, rates[k] = agents(url, s.URL, 12, 5, &t)
		for _, h := range hosts {
			h.leave()
		}
	}
	row("12 agents at once, calls a second: builtin, theirs", fmt.Sprintf("%.0f, %.0f", rates[0], rates[1]), "")
	row("the same: builtin ÷ @playwright/mcp", fmt.Sprintf("%.1f", rates[0]/rates[1]), "≥ 2.5")
	row("the same: wrong answers, failed calls of both", fmt.Sprintf("%d, %d", t.wrong.Load(), t.failed.Load()), "0, 0")

	const n = 50
	var fifty tally
	hosts, rate := agents(at, s.URL, n, 4, &fifty)
	row("50 agents × 4 rounds: wrong answers, failed calls",
		fmt.Sprintf("%d, %d", fifty.wrong.Load(), fifty.failed.Load()), "0, 0")
	row("the same: calls a second", fmt.Sprintf("%.0f", rate), "")
	time.Sleep(2 * time.Second)
	row("the same: memory of bmcp, Rss", fmt.Sprintf("%.0f MiB", rss(ours.Process.Pid)), "≤ 100 MiB")
	for _, h := range hosts {
		h.leave()
	}
	attempt("@playwright/mcp with 50 sessions", func() {
		var t tally
		hosts, rate := agents(peer, s.URL, n, 1, &t)
		row("50 agents on @playwright/mcp: wrong answers, failed calls",
			fmt.Sprintf("%d, %d", t.wrong.Load(), t.failed.Load()), "")
		row("the same: calls a second", fmt.Sprintf("%.0f", rate), "")
		row("the same: memory of the Node server, Rss", fmt.Sprintf("%.0f MiB", rss(theirs.Process.Pid)), "")
		for _, h := range hosts {
			h.leave()
		}
	})
}

// thousands is a page of 5,000 elements as pages have them.
func thousands() string {
	var b strings.Builder
	b.WriteString("<!doctype html><title>Thousands</title><main>")
	for i := range 500 {
		fmt.Fprintf(&b, `<section><h2>Offer %d</h2><p>Some <b>words</b> on it.</p><ul>
			<li><a href="/offer/%d">Read %d</a><li><button>Buy %d</button></ul>
			<input aria-label="Amount %d"></section>`, i, i, i, i, i)
	}
	return b.String()
}

func bigSnapshot() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, thousands())
	}))
	defer s.Close()
	var took [2][]float64
	var size [2]int
	hosts := []*mcpHost{}
	for _, argv := range [][]string{builtinMCP("--max-inline", "10MiB"), playwrightMCP()} {
		h := mcpServer([]string{"HOME=" + dir}, argv[0], argv[1:]...)
		defer h.stop()
		h.tool("browser_navigate", `{"url":"`+s.URL+`"}`)
		hosts = append(hosts, h)
	}
	for range 11 { // by turns
		for k, h := range hosts {
			began := time.Now()
			r, err := h.result("browser_snapshot", "{}")
			took[k] = append(took[k], time.Since(began).Seconds()*1000)
			var text struct{ Content []struct{ Text string } }
			if json.Unmarshal(r, &text) != nil || len(text.Content) == 0 ||
				!strings.Contains(text.Content[0].Text, "Amount 499") {
				panic(failure{fmt.Errorf("no snapshot: %v %.300s", err, r)})
			}
			size[k] = len(text.Content[0].Text)
		}
	}
	row("snapshot of 5,000 elements, median of 11: builtin, theirs",
		fmt.Sprintf("%.0f, %.0f ms", median(took[0]), median(took[1])), "")
	row("the same: builtin ÷ @playwright/mcp", fmt.Sprintf("%.2f", median(took[0])/median(took[1])), "≤ 0.8")
	row("the same: tokens, characters ÷ 4: builtin, theirs", fmt.Sprintf("%d, %d", size[0]/4, size[1]/4), "")
	row("the same: builtin ÷ @playwright/mcp", fmt.Sprintf("%.2f", float64(size[0])/float64(size[1])), "≤ 1")
}
