//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fakechild builds a child server that does little.
func fakechild() (path string) {
	path = dir + "/fakechild"
	output("go", "build", "-o", path, "../fakechild")
	return path
}

func calls(b *bench) {
	child := fakechild()
	hosts := []*host{b.host([]string{child}), b.host([]string{bin + "bmcp", "--mcp", child})}
	for _, size := range []struct {
		what, args string
		n          int
		goal       string
	}{{"100-byte", `{"n":60}`, 2000, "≤ 80 µs"}, {"1 MiB", `{"n":1048576}`, 100, "≤ 4000 µs"}} {
		var took [2]series
		for turn := range 11 { // by turns; the first one warms up
			for k, h := range hosts {
				for range size.n / 10 {
					us := ms(func() { h.tool("big", size.args) }) * 1000
					if turn > 0 {
						took[k].add(us)
					}
				}
			}
		}
		row("bmcp: added to a call with a "+size.what+" result, p50", size.goal, "%.0f µs",
			took[1].median()-took[0].median())
	}
	pid := hosts[1].Process.Pid
	before := rss(pid)
	for range 10000 {
		hosts[1].tool("big", `{"n":60}`)
	}
	row("bmcp: growth in 10,000 calls, Rss", "≤ 2 MiB", "%.1f MiB", rss(pid)-before)
}

func lists(b *bench) {
	argv := []string{bin + "bmcp", "--mcp", "h=" + fakechild()}
	hundred := []string{"FAKE=many", "FAKE_TOOLS=" + strings.Repeat("x,", 99) + "x"}
	b.host(argv, hundred...).stop() // fills the cache
	var h *host
	first := ms(func() {
		h = b.host(argv, hundred...)
		h.call("tools/list", "{}")
	})
	list := medians(200, func() float64 { return ms(func() { h.call("tools/list", "{}") }) })[0]
	row("bmcp: tools/list, p50; the first one after the start, cached", "≤ 1, ≤ 150 ms", "%.2f, %.0f ms", list, first)
}

func firstCall(b *bench) {
	first := func(argv []string) func() float64 {
		n := 0
		return func() float64 {
			// A child whose tools are known from an earlier run is started by the call.
			h := b.host(argv, fmt.Sprintf("XDG_CACHE_HOME=%s/first-%d", dir, n))
			defer h.stop()
			n++
			h.call("tools/list", "{}")
			time.Sleep(700 * time.Millisecond) // until the child is up: what is measured is the call
			return ms(func() { h.tool("browser_navigate", `{"url":"data:text/html,<title>x</title>"}`) })
		}
	}
	m := medians(9, first([]string{bin + "bmcp", "--mcp", client(".bin/playwright-mcp")}), first(playwrightMCP()))
	row("bmcp: first browser call ÷ @playwright/mcp with its own browser", "≤ 1.1", "%.2f", m[0]/m[1])
}

func burst(b *bench) {
	h := b.host([]string{bin + "bmcp", "--mcp", fakechild() + " {cdp_endpoint}"}, "PW_MCP_PROXY_LAUNCH=false",
		"PW_MCP_PROXY__A_INSTANCES=64", "PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY_AFFINITY=call")
	all := func() {
		for range 64 {
			h.start("tools/call", `{"name":"sleep","arguments":{"ms":100}}`)
		}
		for range 64 {
			h.answer()
		}
	}
	all() // starts the children
	row("bmcp: 64 calls of 100 ms at once on 64 slots", "≤ 130 ms", "%.0f ms",
		medians(15, func() float64 { return ms(all) })[0])
}

func idleCoordinator(b *bench) {
	h := b.host([]string{bin + "bmcp", "--mcp", fakechild() + " {cdp_endpoint}"})
	h.call("tools/list", "{}")
	time.Sleep(2 * time.Second)
	pids := []int{h.Process.Pid}
	for _, pid := range strings.Fields(try("pgrep", "-P", fmt.Sprint(pids[0]), "-x", "bproxy")) {
		pids = append(pids, must(strconv.Atoi(pid)))
	}
	memory, before := rss(pids...), cpu(pids...)
	time.Sleep(20 * time.Second)
	row("bmcp and bproxy, idle, no browser: memory, Rss; CPU in 20 s", "≤ 32 MiB, 0", "%.1f MiB, %.0f ms", memory,
		cpu(pids...)-before)
}
