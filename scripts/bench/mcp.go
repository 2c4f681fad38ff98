//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"btools/lib/jsonrpc"
)

// mcpHost is a host that speaks to a server by its standard streams.
type mcpHost struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

// mcpServer starts a server and greets it.
func mcpServer(env []string, name string, args ...string) *mcpHost {
	h := &mcpHost{cmd: command(name, args...)}
	h.cmd.Env = append(h.cmd.Env, append([]string{"XDG_CACHE_HOME=" + dir + "/cache"}, env...)...)
	h.cmd.Dir = dir
	h.cmd.Stderr = nil
	h.in, _ = h.cmd.StdinPipe()
	out, _ := h.cmd.StdoutPipe()
	h.out = bufio.NewReaderSize(out, 1<<20)
	if err := h.cmd.Start(); err != nil {
		panic(err)
	}
	h.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},`+
		`"clientInfo":{"name":"bench","version":"1"}}`)
	io.WriteString(h.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return h
}

func (h *mcpHost) start(method, params string) {
	h.id++
	fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", h.id, method, params)
}

// answer reads messages until the next answer. A server that asks for the
// host's roots gets the directory.
func (h *mcpHost) answer() []byte {
	for {
		line, err := h.out.ReadBytes('\n')
		if err != nil {
			panic(err)
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			continue
		}
		if m.IsResponse() {
			return line
		}
		if m.Method == "roots/list" {
			fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file://%s","name":"bench"}]}}`+"\n",
				m.ID, dir)
		}
	}
}

func (h *mcpHost) call(method, params string) []byte {
	h.start(method, params)
	return h.answer()
}

func (h *mcpHost) tool(name, args string) []byte {
	return h.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// times calls a tool n times and returns how long each took in µs.
func (h *mcpHost) times(n int, name, args string) (all []float64) {
	for range n {
		began := time.Now()
		h.tool(name, args)
		all = append(all, time.Since(began).Seconds()*1e6)
	}
	return all
}

func (h *mcpHost) stop() {
	h.in.Close()
	h.cmd.Wait()
}

func coordinators() {
	child := dir + "/fakechild"
	output("go", "build", "-o", child, "../fakechild")
	direct := mcpServer(nil, child)
	ours := mcpServer(nil, abs(bin+"bmcp"), "--mcp", child)
	for _, size := range []struct {
		what, args string
		n          int
		goal       string
	}{{"100-byte", `{"n":60}`, 2000, "≤ 80 µs"}, {"1 MiB", `{"n":1048576}`, 100, "≤ 4000 µs"}} {
		direct.times(size.n/10, "big", size.args)
		ours.times(size.n/10, "big", size.args)
		var without, with []float64
		for range 10 { // by turns
			without = append(without, direct.times(size.n/10, "big", size.args)...)
			with = append(with, ours.times(size.n/10, "big", size.args)...)
		}
		row("bmcp: added to a call with a "+size.what+" result, p50",
			fmt.Sprintf("%.0f µs", median(with)-median(without)),
			size.goal)
	}
	before := rss(ours.cmd.Process.Pid)
	ours.times(10000, "big", `{"n":60}`)
	row("bmcp: growth in 10,000 calls, Rss", fmt.Sprintf("%.1f MiB", rss(ours.cmd.Process.Pid)-before), "≤ 2 MiB")
	direct.stop()
	ours.stop()

	hundred := []string{"FAKE=many", "FAKE_TOOLS=" + strings.Repeat("x,", 99) + "x"}
	mcpServer(hundred, abs(bin+"bmcp"), "--mcp", "h="+child).stop() // fills the cache
	began := time.Now()
	h := mcpServer(hundred, abs(bin+"bmcp"), "--mcp", "h="+child)
	h.call("tools/list", "{}")
	first := time.Since(began)
	var lists []float64
	for range 200 {
		began := time.Now()
		h.call("tools/list", "{}")
		lists = append(lists, time.Since(began).Seconds()*1000)
	}
	h.stop()
	row("bmcp: tools/list, p50; the first one after the start, cached",
		fmt.Sprintf("%.2f, %.0f ms", median(lists), first.Seconds()*1000), "≤ 1, ≤ 150 ms")

	playwright := "../clients/node_modules/.bin/playwright-mcp"
	var cold, alone []float64
	for i := range 9 {
		for _, c := range []struct {
			times *[]float64
			argv  []string
		}{{&cold, []string{abs(bin + "bmcp"), "--mcp", abs(playwright)}},
			{&alone, []string{abs(playwright), "--headless", "--no-sandbox", "--isolated", "--executable-path",
				"/usr/bin/chromium"}}} {
			// A child whose tools are known from an earlier run is started by the call.
			h := mcpServer([]string{"HOME=" + dir, fmt.Sprintf("XDG_CACHE_HOME=%s/first-%d", dir, i)}, c.argv[0],
				c.argv[1:]...)
			h.call("tools/list", "{}")
			time.Sleep(700 * time.Millisecond) // until the child is up: what is measured is the call
			began := time.Now()
			h.tool("browser_navigate", `{"url":"data:text/html,<title>x</title>"}`)
			*c.times = append(*c.times, time.Since(began).Seconds()*1000)
			h.stop()
		}
	}
	row("bmcp: first browser call ÷ @playwright/mcp with its own browser",
		fmt.Sprintf("%.2f", median(cold)/median(alone)),
		"≤ 1.1")

	slots := mcpServer([]string{"PW_MCP_PROXY_LAUNCH=false", "PW_MCP_PROXY__A_INSTANCES=64",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY_AFFINITY=call"}, abs(bin+"bmcp"), "--mcp",
		child+" {cdp_endpoint}")
	burst := func() time.Duration {
		began := time.Now()
		for range 64 {
			slots.start("tools/call", `{"name":"sleep","arguments":{"ms":100}}`)
		}
		for range 64 {
			slots.answer()
		}
		return time.Since(began)
	}
	burst() // starts the children
	var bursts []float64
	for range 15 {
		bursts = append(bursts, burst().Seconds()*1000)
	}
	row("bmcp: 64 calls of 100 ms at once on 64 slots", fmt.Sprintf("%.0f ms", median(bursts)), "≤ 130 ms")
	slots.stop()

	idle := mcpServer(nil, abs(bin+"bmcp"), "--mcp", child+" {cdp_endpoint}")
	idle.call("tools/list", "{}")
	time.Sleep(2 * time.Second)
	pids := []int{idle.cmd.Process.Pid}
	for _, line := range strings.Fields(output("pgrep", "-P", fmt.Sprint(pids[0]), "-x", "bproxy")) {
		var pid int
		fmt.Sscan(line, &pid)
		pids = append(pids, pid)
	}
	total, used := 0.0, 0.0
	for _, pid := range pids {
		total += rss(pid)
		used -= cpu(pid)
	}
	time.Sleep(20 * time.Second)
	for _, pid := range pids {
		used += cpu(pid)
	}
	idle.stop()
	row("bmcp and bproxy, idle, no browser: memory, Rss; CPU in 20 s", fmt.Sprintf("%.1f MiB, %.0f ms", total, used),
		"≤ 32 MiB, 0")
}

func abs(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return wd + "/" + path
}
