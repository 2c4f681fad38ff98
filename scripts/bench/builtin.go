//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// The tools of bmcp are measured beside @playwright/mcp.

// firstList measures from the start to the tools; nothing is cached.
func firstList(b *bench) {
	list := func(argv []string) func() float64 {
		n := 0
		return func() float64 {
			n++
			began := time.Now()
			h := b.host(argv, "XDG_CACHE_HOME="+dir+"/empty-"+strconv.Itoa(n))
			defer h.stop()
			h.call("tools/list", "{}")
			return time.Since(began).Seconds() * 1000
		}
	}
	m := medians(10, list(builtinMCP()), list(playwrightMCP()))
	row("builtin: start to the answer of tools/list, median of 10", "≤ 50 ms", "%.0f ms", m[0])
	row("the same: @playwright/mcp", "", "%.0f ms", m[1])
}

// loaded returns the milliseconds from the start of blaunch to the load event of its
// page.
func loaded(b *bench) float64 {
	done := make(chan time.Time, 1)
	s := b.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loaded" {
			done <- time.Now()
			return
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<!doctype html><title>Page</title><link rel=icon href="data:,">
			<script>onload = () => fetch("/loaded")</script>`)
	})
	began := time.Now()
	_, stop := blaunch("instance.pid", "--url", s)
	defer stop()
	select {
	case at := <-done:
		return at.Sub(began).Seconds() * 1000
	case <-time.After(time.Minute):
		panic(failure{errors.New("blaunch has loaded no page")})
	}
}

// firstPage measures from the start to a page that is loaded.
func firstPage(b *bench) {
	s := b.serve(counters)
	first := func(argv []string) func() float64 {
		return func() float64 {
			began := time.Now()
			h := b.host(argv)
			defer h.stop()
			if r := h.tool("browser_navigate", `{"url":"`+s+`/?7"}`); !bytes.Contains(r, []byte("Counter 7")) {
				fail("no page: %.500s", r)
			}
			return time.Since(began).Seconds() * 1000
		}
	}
	m := medians(7, first(builtinMCP()), first(playwrightMCP()), func() float64 { return loaded(b) })
	row("builtin: start to the first loaded page, median of 7", "", "%.0f ms", m[0])
	row("the same: blaunch --url", "", "%.0f ms", m[2])
	row("builtin ÷ blaunch --url", "≤ 1.5", "%.2f", m[0]/m[2])
	row("the same: @playwright/mcp", "", "%.0f ms", m[1])
}

// pageTool measures calls of a page's tool that takes no time itself.
func pageTool(b *bench) {
	s := b.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<!doctype html><title>Page</title><script>document.modelContext.registerTool({ name: "now",
			description: "It", inputSchema: { type: "object" }, execute: () => "it answers" })</script>`)
	})
	h := b.host(builtinMCP())
	h.tool("browser_navigate", `{"url":"`+s+`"}`)
	m := medians(200, func() float64 {
		return ms(func() {
			if r := h.tool("browser_page_tool", `{"name":"now"}`); !bytes.Contains(r, []byte("it answers")) {
				fail("no answer: %.500s", r)
			}
		})
	}, func() float64 { return ms(func() { h.tool("browser_evaluate", `{"function":"1"}`) }) })
	row("builtin: a page's tool that takes no time, median of 200", "≤ 5 ms", "%.1f ms", m[0])
	row("the same: browser_evaluate", "", "%.1f ms", m[1])
}

// counters serves pages /?N with a button that adds N to window.n.
func counters(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.RawQuery)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html><title>Counter %[1]d</title><h1>Number %[1]d</h1><p>%[2]s
		<button onclick="window.n = (window.n || 0) + %[1]d">Add %[1]d</button>`, n, strings.Repeat("text ", 200))
}

// httpServer starts a server whose last argument is a port, and returns its address.
func (b *bench) httpServer(host string, argv []string) (pid int, url string) {
	port := freePort()
	c := command(argv[0], append(argv[1:], port)...)
	c.Env, c.Dir, c.Stderr = append(c.Env, "HOME="+dir, "XDG_CACHE_HOME="+dir+"/cache"), dir, nil
	pid = b.start(c)
	url = "http://" + host + ":" + port + "/mcp"
	within(time.Minute, func() bool {
		r, err := http.Get(url)
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	return pid, url
}

func (b *bench) builtinServer() (pid int, url string) {
	return b.httpServer("127.0.0.1", builtinMCP("--http"))
}

func (b *bench) playwrightServer() (pid int, url string) {
	return b.httpServer("localhost", playwrightMCP("--port"))
}

// agent is a host by HTTP.
type agent struct{ *mcpclient.Client }

func newAgent(url string) agent {
	c := must(mcpclient.NewStreamableHttpClient(url, transport.WithHTTPTimeout(maxTask)))
	check(c.Start(ctx))
	must(c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: "2025-11-25", ClientInfo: mcp.Implementation{Name: "bench", Version: "1"}}}))
	return agent{c}
}

// tool calls a tool and returns the text of its result.
func (a agent) tool(name string, args map[string]any) (text string, failed bool) {
	r, err := a.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: args}})
	if err != nil {
		return err.Error(), true
	}
	for _, c := range r.Content {
		if t, ok := c.(mcp.TextContent); ok {
			text += t.Text
		}
	}
	return text, r.IsError
}

// tally counts what went wrong in rounds.
type tally struct{ wrong, failed atomic.Int32 }

var addButton = regexp.MustCompile(`button "Add \d+".*?\[ref=(\w+)\]`)

// round loads a page with a number of its own, looks at it, clicks, and
// evaluates what came of it.
func (a agent) round(site string, n int, t *tally) {
	call := func(name string, args map[string]any, want string) string {
		text, failed := a.tool(name, args)
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
	call("browser_navigate", map[string]any{"url": fmt.Sprintf("%s/?%d", site, n)}, fmt.Sprintf("Counter %d", n))
	heading := fmt.Sprintf(`heading "Number %d"`, n)
	ref := addButton.FindStringSubmatch(call("browser_snapshot", map[string]any{}, heading))
	if ref == nil {
		ref = []string{"", "none"}
	}
	call("browser_click", map[string]any{"element": "the button", "target": ref[1]}, "")
	call("browser_evaluate", map[string]any{"function": "() => 'sum ' + window.n"}, fmt.Sprintf(`"sum %d"`, n))
}

// crowd has so many agents make so many rounds at once, and returns their calls a
// second. They leave at the end of the case.
func (b *bench) crowd(url, site string, n, each int, t *tally) (rate float64) {
	agents := make([]agent, n)
	var starts, all together
	for i := range n {
		starts.Go(func() {
			agents[i] = newAgent(url)
			agents[i].round(site, 1000+i, &tally{}) // starts what it needs
		})
	}
	starts.Wait()
	b.atEnd(func() {
		for _, a := range agents {
			a.Close()
		}
	})
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for k := range each {
				agents[i].round(site, 100*i+k+1, t)
			}
		})
	}
	all.Wait()
	return float64(4*n*each) / time.Since(began).Seconds()
}

func rounds(b *bench) {
	site := b.serve(counters)
	_, ours := b.builtinServer()
	_, theirs := b.playwrightServer()
	var t tally
	one := &bench{}
	alone := func(url string) func() float64 {
		a := newAgent(url)
		one.atEnd(func() { a.Close() })
		n := 0
		round := func() float64 {
			n++
			return ms(func() { a.round(site, n, &t) })
		}
		round() // starts the browser
		return round
	}
	m := medians(20, alone(ours), alone(theirs))
	one.end() // its sessions would be there beside those of many
	row("navigate, snapshot, click, evaluate, median of 20: builtin, theirs", "", "%.0f, %.0f ms", m[0], m[1])
	row("the same: builtin ÷ @playwright/mcp", "≤ 0.25", "%.2f", m[0]/m[1])
	var rates []float64
	for _, url := range []string{ours, theirs} {
		part := &bench{}
		rates = append(rates, part.crowd(url, site, 12, 5, &t))
		part.end()
	}
	row("12 agents at once, calls a second: builtin, theirs", "", "%.0f, %.0f", rates[0], rates[1])
	row("the same: builtin ÷ @playwright/mcp", "≥ 2.5", "%.1f", rates[0]/rates[1])
	row("the same: wrong answers, failed calls of both", "0, 0", "%d, %d", t.wrong.Load(), t.failed.Load())
}

func fifty(b *bench) {
	pid, url := b.builtinServer()
	var t tally
	rate := b.crowd(url, b.serve(counters), 50, 4, &t)
	row("50 agents × 4 rounds: wrong answers, failed calls", "0, 0", "%d, %d", t.wrong.Load(), t.failed.Load())
	row("the same: calls a second", "", "%.0f", rate)
	time.Sleep(2 * time.Second)
	row("the same: memory of bmcp, Rss", "≤ 100 MiB", "%.0f MiB", rss(pid))
}

func fiftyOfPeer(b *bench) {
	pid, url := b.playwrightServer()
	var t tally
	rate := b.crowd(url, b.serve(counters), 50, 1, &t)
	row("50 agents on @playwright/mcp: wrong answers, failed calls", "", "%d, %d", t.wrong.Load(), t.failed.Load())
	row("the same: calls a second", "", "%.0f", rate)
	row("the same: memory of the Node server, Rss", "", "%.0f MiB", rss(pid))
}

// thousands is a page of 5,000 elements as pages have them.
func thousands(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	io.WriteString(w, "<!doctype html><title>Thousands</title><main>")
	for i := range 500 {
		fmt.Fprintf(w, `<section><h2>Offer %[1]d</h2><p>Some <b>words</b> on it.</p><ul>
			<li><a href="/offer/%[1]d">Read %[1]d</a><li><button>Buy %[1]d</button></ul>
			<input aria-label="Amount %[1]d"></section>`, i)
	}
}

func bigSnapshot(b *bench) {
	site := b.serve(thousands)
	size := make([]int, 2)
	snapshot := func(argv []string, size *int) func() float64 {
		h := b.host(argv)
		h.tool("browser_navigate", `{"url":"`+site+`"}`)
		return func() float64 {
			began := time.Now()
			r := must(h.result("browser_snapshot", "{}"))
			took := time.Since(began).Seconds() * 1000
			var text struct{ Content []struct{ Text string } }
			if json.Unmarshal(r, &text) != nil || len(text.Content) == 0 ||
				!strings.Contains(text.Content[0].Text, "Amount 499") {
				fail("no snapshot: %.300s", r)
			}
			*size = len(text.Content[0].Text)
			return took
		}
	}
	m := medians(11, snapshot(builtinMCP("--max-inline", "10MiB"), &size[0]), snapshot(playwrightMCP(), &size[1]))
	row("snapshot of 5,000 elements, median of 11: builtin, theirs", "", "%.0f, %.0f ms", m[0], m[1])
	row("the same: builtin ÷ @playwright/mcp", "≤ 0.8", "%.2f", m[0]/m[1])
	row("the same: tokens, characters ÷ 4: builtin, theirs", "", "%d, %d", size[0]/4, size[1]/4)
	row("the same: builtin ÷ @playwright/mcp", "≤ 1", "%.2f", float64(size[0])/float64(size[1]))
}
