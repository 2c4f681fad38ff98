//go:build linux

package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Every byte of a call and of its result goes through as it is, and what runs
// at the end is nothing.
func TestMCPRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+fake())
	names := m.tools()
	if i := slices.Index(names, "echo"); i < 6 || names[0] != "coordinator_list_browsers" {
		t.Errorf(`got %v, want 6 or more tools before those of the children, "coordinator_list_browsers" first`, names)
	}
	list := m.call("tools/list", "{}").line
	// Without what bmcp adds.
	list = regexp.MustCompile(`,"session_id":\{"type":"string","description":"[^"]*"\}`).ReplaceAllString(list, "")
	if !strings.Contains(list, `"description":"does <echo>",`+
		`"inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",`+
		`"properties":{"n":{"type":"number","x-vendor":1}},"additionalProperties":false},"x-unknown":{"kept":1.0}}`) {
		t.Errorf("a tool is not as its child has it: %s", list)
	}
	args := `{"name":"echo","arguments":{"n":1.10,"big":123456789012345678901234567890,"u":"\u00e9<\/>"},` +
		`"_meta":{"progressToken":7,"x":[]},"odd":null}`
	r := m.call("tools/call", args)
	want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"echo"},`+
		`{"type":"x-unknown","v":1e300}],"structuredContent":{"params":%s},"precise":12345678901234567890.10,`+
		`"_meta":{"a":1}}}`+"\n", r.ID, args)
	if r.line != want {
		t.Errorf("got  %s\nwant %s", r.line, want)
	}
	if r := m.tool("error", "{}"); r.Error == nil || r.Error.Code != -32042 || string(r.Error.Data) != `{"why":[1,2]}` {
		t.Errorf(`got %s, want the error -32042 with the data '{"why":[1,2]}'`, r.line)
	}
	if r := m.tool("nonesuch", "{}"); r.Error == nil || r.Error.Code != -32602 ||
		!strings.Contains(r.Error.Message, "Unknown tool: nonesuch") {
		t.Errorf(`got %s, want the error -32602, "Unknown tool: nonesuch"`, r.line)
	}
	// Progress comes before the answer, all of it and in order.
	id := m.start("tools/call", `{"name":"progress","arguments":{"n":150},"_meta":{"progressToken":"tok"}}`)
	for i := range 150 {
		if r := m.next(); r.Method != "notifications/progress" ||
			string(r.Params) != fmt.Sprintf(`{"progressToken":"tok","progress":%d}`, i) {
			t.Fatalf("%d: %s", i, r.line)
		}
	}
	if r := m.next(); string(r.ID) != id {
		t.Errorf("got %s, want the answer to %s", r.line, id)
	}
	// What a child asks the host.
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		id := m.startTool("ask", `{"method":"`+method+`","params":{"x":1.50}}`)
		ask := m.next()
		if ask.Method != method || string(ask.Params) != `{"x":1.50}` {
			t.Fatalf(`got %s, want %s with {"x":1.50}`, ask.line, method)
		}
		m.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"answer":"yes"}}`, ask.ID))
		if a := m.answer(id).text(t); !strings.Contains(a, `"result":{"answer":"yes"}`) {
			t.Errorf("%s\nlacks %q", a, `"result":{"answer":"yes"}`)
		}
	}
	if a := m.tool("ask", `{"method":"ping"}`).text(t); !strings.Contains(a, `"result":{}`) {
		t.Errorf("%s\nlacks %q", a, `"result":{}`)
	}
	for method, want := range map[string]string{
		"resources/list": `{"resources":[{"uri":"fake://a","name":"a"}]}`,
		"prompts/list":   `{"prompts":[{"name":"greet"}]}`,
		"resources/read": `{"contents":[{"uri":"fake://a","text":"the text"}]}`, "ping": "{}", "logging/setLevel": "{}",
	} {
		if r := m.call(method, `{"uri":"fake://a","level":"info"}`); string(r.Result) != want {
			t.Errorf("%s: %s", method, r.line)
		}
	}
	if size := len(m.tool("big", `{"n":16777216}`).text(t)); size != 16<<20 {
		t.Errorf("%d bytes, want %d", size, 16<<20)
	}
	if r := m.tool("env", "{}").text(t); !strings.HasPrefix(r, "http://127.0.0.1:") ||
		strings.Fields(r)[0] != strings.Fields(r)[1] {
		t.Errorf("got %s, want the same address of this machine twice", r)
	}
	// At the end of the host's messages what is asked is answered first.
	id = m.startTool("sleep", `{"ms":300}`)
	m.in.Close()
	if r := m.answer(id).text(t); r != "slept" {
		t.Errorf("%q, want %q", r, "slept")
	}
	m.wait()
	w.clean()
}

// A real browser, by way of a real child, whatever dies meanwhile.
func TestMCPOnRealBrowsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	m := w.startMCP([]string{"HOME=" + w.dir}, "--mcp", site+"/playwright-mcp", "--mcp",
		site+"/chrome-devtools-mcp --no-usage-statistics --no-performance-crux")
	m.greet("{}")
	m.lists("browser_navigate", "navigate_page", "coordinator_status")
	type st struct {
		Running bool
		Port    int `json:"proxy_port"`
		Browser struct{ Instance struct{ PID int } }
	}
	status := func() (s st) {
		json.Unmarshal([]byte(m.tool("coordinator_status", "{}").text(t)), &s)
		return s
	}
	if s := status(); s.Running {
		t.Errorf("a browser runs before it is needed: %+v", s)
	}
	load := func() {
		t.Helper()
		if r := m.tool("browser_navigate", `{"url":"data:text/html,<title>one</title>"}`).text(t); !strings.Contains(r,
			"Page Title: one") {
			t.Errorf(`got %s, want "Page Title: one"`, r)
		}
	}
	load()
	if r := m.tool("list_pages", "{}").text(t); !strings.Contains(r, "<title>one</title>") {
		t.Errorf("the two do not share a browser: %s", r)
	}
	first := status()
	// Killed between calls.
	syscall.Kill(first.Browser.Instance.PID, syscall.SIGKILL)
	until(t, "its end is seen", func() bool { return !status().Running })
	load()
	second := status()
	if second.Port != first.Port || second.Browser.Instance.PID == first.Browser.Instance.PID {
		t.Errorf("%+v, then %+v", first, second)
	}
	// During a call, which fails then; it would never end.
	called := make(chan struct{}, 1)
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/called" {
			called <- struct{}{}
		}
	}))
	defer page.Close()
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, page.URL))
	id := m.startTool("browser_evaluate", `{"function":"() => { fetch('/called'); return new Promise(() => {}) }"}`)
	select {
	case <-called:
	case <-time.After(patience):
		t.Fatal("the page does not run the function")
	}
	syscall.Kill(second.Browser.Instance.PID, syscall.SIGKILL)
	if r := m.answer(id).tool(t); !r.IsError {
		t.Errorf("the answer to a call whose browser was killed: %+v, want an error", r)
	}
	load()
	// The proxy under it.
	syscall.Kill(w.state().Proxies[0].Process.PID, syscall.SIGKILL)
	until(t, "there is another one", func() bool {
		return strings.Contains(m.tool("browser_navigate", `{"url":"data:text/html,<title>two</title>"}`).text(t),
			"Page Title: two")
	})
	bulk := m.tool("browser_execute_bulk", `{"commands":[`+
		`{"tool":"browser_navigate","args":{"url":"data:text/html,<title>three</title>"}},`+
		`{"tool":"browser_tabs","args":{"action":"list"},"return_result":true}]}`).tool(t)
	if bulk.IsError || bulk.Struct["success"] != true || !strings.Contains(fmt.Sprint(bulk.Struct["results"]),
		"three") {
		t.Errorf(`got %+v, want success and "three"`, bulk)
	}
	if r := m.tool("coordinator_launch_browser", `{"browserType":"brave"}`).tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "brave") {
		t.Errorf(`got %+v, want an error with "brave"`, r)
	}
	if r := m.tool("coordinator_launch_browser", `{"headless":false}`).tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "no display") ||
		!strings.HasSuffix(r.Content[0].Text, " (with headless true it needs none)") {
		t.Errorf(`got %+v, want an error with "no display", " (with headless true it needs none)" at the end`, r)
	}
	if r := m.tool("coordinator_stop_browser", "{}").tool(t); r.IsError || r.Struct["running"] != false {
		t.Errorf("got %+v, want no error, and that none runs", r)
	}
	if r := m.tool("coordinator_list_browsers", "{}").text(t); !strings.Contains(r, `"type":"chromium"`) {
		t.Errorf("%s\nlacks %q", r, `"type":"chromium"`)
	}
	m.end()
	w.clean()
}

// The SDK's client as the host, by standard streams and by HTTP.
func TestMCPHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clients, err := filepath.Abs("../scripts/clients")
	if err != nil {
		t.Fatal(err)
	}
	env := slices.Concat(w.env, []string{"HOME=" + w.dir, "XDG_CACHE_HOME=" + w.dir})
	host := func(running bool, argv ...string) {
		c := w.cmd("node", append([]string{clients + "/host.mjs"}, argv...)...)
		c.Env, c.Dir = env, w.dir
		var errs syncBuffer
		c.Stderr = &errs
		out, err := c.Output()
		var got struct {
			Server, Page, Why string
			Tools, Asked      int
			Running, Success  bool
		}
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%v: %s\n%s", err, out, errs.String())
		}
		if got.Server != "bmcp" || got.Tools < 30 || got.Running != running || got.Asked == 0 ||
			!strings.Contains(got.Page, "Page Title: host") || !got.Success || !strings.Contains(got.Why, "enough") {
			t.Errorf("%+v, want bmcp with 30 tools or more, that all that was done worked, and running: %v", got,
				running)
		}
	}
	playwright := clients + "/node_modules/.bin/playwright-mcp"
	host(false, bin+"/bmcp", "--mcp", playwright)
	w.clean()

	w.run("bmcp", "--http", "0.0.0.0:0").wants(t, 64, "--token-file")
	url, stop := w.serveMCP(nil, "--mcp", playwright)
	host(false, url)
	host(true, url) // the browser is the server's
	// Two sessions with the same IDs, each with its own answers.
	post := func(session, body string) (string, http.Header) {
		t.Helper()
		headers := map[string]string{}
		if session != "" {
			headers["Mcp-Session-Id"] = session
		}
		code, h, answer := post(t, url, headers, body)
		return fmt.Sprint(code, " ", answer), h
	}
	const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	body, one := post("", greeting)
	_, two := post("", greeting)
	a, b := one.Get("Mcp-Session-Id"), two.Get("Mcp-Session-Id")
	if a == "" || a == b || !strings.HasPrefix(body, "200 id: 1-1\nevent: message\ndata: {") {
		t.Error(a, b, body)
	}
	for _, c := range []struct{ session, body, want string }{
		{a, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "202 "},
		{a, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"id":1,"result":{}`},
		{b, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"id":1,"result":{}`},
		{"", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "400 "},
		{"nonesuch", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "404 "},
		{a, "garbage", "400 "},
		// its headers are missing
		{"", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":` + stateless + `}}`, `"code":-32020`},
	} {
		if got, _ := post(c.session, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.300s, want %s", c.body, got, c.want)
		}
	}
	r, _ := http.NewRequest("DELETE", url, nil)
	r.Header.Set("Mcp-Session-Id", a)
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 204 {
		t.Errorf("%+v, %v, want 204", x, err)
	}
	if got, _ := post(a, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); !strings.HasPrefix(got, "404 ") {
		t.Errorf("%s\ndoes not begin with %q", got, "404 ")
	}
	r, _ = http.NewRequest("POST", url, strings.NewReader(greeting))
	r.Header.Set("Origin", "http://evil.example")
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 403 {
		t.Errorf("a web page gets %+v, %v", x, err)
	}
	stop()
	w.clean()
}

// With pools a call has an instance of its own, and its result says which.
func TestMCPPools(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"PW_MCP_PROXY_BROWSER=" + bin + "/fakebrowser", "PW_MCP_PROXY_HEALTH_INTERVAL=1h",
		"PW_MCP_PROXY_AFFINITY=call", "PW_MCP_PROXY__A_INSTANCES=3", "PW_MCP_PROXY__A_IS_DEFAULT=1",
		"PW_MCP_PROXY__A__2_ALIAS=last", "PW_MCP_PROXY__B_INSTANCES=1"}, "--mcp", "kid="+fake())
	if list := m.call("tools/list", "{}").line; !strings.Contains(list, `"browser_pool":{"type":"string"`) ||
		!strings.Contains(list, "browser_pool_status") || strings.Contains(list, "coordinator_launch") {
		t.Errorf("%.3000s", list)
	}
	if r := m.tool("echo", `{"browser_pool":"A","browser_instance":"last","n":1}`); !strings.Contains(r.line,
		`"arguments":{"n":1}`) || !strings.Contains(r.line, `"btools/pool":"A"`) ||
		!strings.Contains(r.line, `"btools/instance":"2"`) || !strings.Contains(r.line, `"a":1`) ||
		!strings.Contains(r.line, "This result is from instance 2 of pool A.") {
		t.Errorf(`got %s, want '"arguments":{"n":1}' and '"btools/pool":"A"' and '"btools/instance":"2"' and '"a":1' `+
			`and "This result is from instance 2 of pool A."`, r.line)
	}
	// Three at once, on three instances.
	for range 3 {
		m.startTool("sleep", `{"ms":500}`)
	}
	m.call("ping", "{}") // is answered before them
	seen := map[string]bool{}
	for range 3 {
		r := m.next()
		seen[fmt.Sprint(r.tool(t).Meta["btools/instance"])] = true
	}
	if len(seen) != 3 {
		t.Error("three calls at once are on", seen)
	}
	type bulk struct {
		Success  bool
		Executed int `json:"executed_count"`
		Results  []*toolResult
		Errors   []struct {
			Index int
			Error string
		}
		Stopped *int `json:"stopped_at"`
	}
	pool := ""
	run := func(args string) (b bulk) {
		t.Helper()
		x := m.tool("browser_execute_bulk", args).tool(t)
		pool, _ = x.Meta["btools/pool"].(string)
		raw, _ := json.Marshal(x.Struct)
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatal(err, string(raw))
		}
		return b
	}
	b := run(`{"commands":[{"tool":"env","return_result":true},{"tool":"echo"},{"tool":"env","return_result":true}]}`)
	if !b.Success || b.Executed != 3 || len(b.Results) != 3 || b.Results[1] != nil ||
		b.Results[0].Content[0].Text != b.Results[2].Content[0].Text {
		t.Errorf("%+v, want 3 commands, with the same result of the first and the last", b)
	}
	b = run(`{"commands":[{"tool":"echo"},{"tool":"error"},{"tool":"echo"}],"browser_pool":"B"}`)
	if pool != "B" || b.Success || b.Executed != 2 || b.Stopped == nil || *b.Stopped != 1 || b.Errors[0].Index != 1 ||
		b.Errors[0].Error != "refused" {
		t.Errorf("pool %s: %+v, want 2 commands in pool B, stopped at index 1: refused", pool, b)
	}
	b = run(`{"commands":[{"tool":"nonesuch"},{"tool":"env"}],"stop_on_error":false,"return_all_results":true}`)
	if b.Success || b.Executed != 2 || b.Stopped != nil || b.Results[1] == nil {
		t.Errorf("%+v, want 2 commands, of which one failed, and the result of the second", b)
	}
	for args, want := range map[string]string{`{"browser_instance":0}`: "0", `{"browser_instance":1}`: "1",
		`{"browser_instance":"0"}`: "0"} {
		if r := m.tool("echo", args).tool(t); r.Meta["btools/instance"] != want {
			t.Errorf("%s is on %v", args, r.Meta)
		}
	}
	if r := m.tool("echo", `{"browser_instance":[1]}`).tool(t); !r.IsError {
		t.Errorf("got %+v, want an error", r)
	}
	if r := m.tool("echo", `{"browser_pool":"C"}`).tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, `no pool is named "C"`) {
		t.Errorf(`got %+v, want an error with 'no pool is named "C"'`, r)
	}
	until(t, "no lease is left", func() bool {
		var s poolStatus
		json.Unmarshal([]byte(m.tool("browser_pool_status", "{}").text(t)), &s)
		return s.Summary.Total == 4 && s.Summary.Leased == 0
	})
	// The service is killed under it.
	pids := w.state()
	if len(pids.Pools) != 1 {
		t.Fatalf("got %+v, want 1 pool", pids)
	}
	syscall.Kill(pids.Pools[0].Process.PID, syscall.SIGKILL)
	if r := m.tool("echo", "{}"); r.tool(t).IsError {
		t.Errorf("got %s, want no error", r.line)
	}
	m.end()
	w.clean()
}

// Children that are slow, missing, or die.
func TestMCPBadChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// A tool that two have; one that can't be run, one that ends at once.
	m := w.mcp([]string{"FAKE_TOOLS=same,crash"}, "--mcp", "a="+fake(), "--mcp", "b="+fake(), "--mcp",
		"gone=/nonexistent/server", "--mcp", "sick=sh -c 'FAKE=crash exec "+bin+"/fakechild'")
	if names := m.tools(); !slices.Contains(names, "same") || !slices.Contains(names, "b__same") {
		t.Errorf(`got %v, want "same", "b__same"`, names)
	}
	if r := m.tool("b__same", "{}"); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	status := m.tool("coordinator_status", "{}").text(t)
	for _, want := range []string{"cannot start child gone", "b__same: there is one already"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	// A crash is told with its last words; the next call has a new child.
	if r := m.tool("crash", "{}").tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "child a ended (exit status 7): out of luck") {
		t.Errorf(`got %+v, want an error with "child a ended (exit status 7): out of luck"`, r)
	}
	if r := m.tool("same", "{}").tool(t); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	m.tool("crash", "{}")
	if r := m.tool("same", "{}").tool(t); !r.IsError || !strings.Contains(r.Content[0].Text, "started again in") {
		t.Errorf("a child that crashes again and again: %+v", r)
	}
	m.end()

	// Nonsense on its output, and deafness.
	m = w.mcp(nil, "--mcp", "a="+fake())
	for tool, want := range map[string]string{"wrongid": "right", "twice": "once", "garbage": "clean"} {
		if r := m.tool(tool, "{}").text(t); r != want {
			t.Errorf("%s: %s", tool, r)
		}
	}
	if r := m.tool("flood", `{"n":20000}`).text(t); r != "dry" {
		t.Errorf("%q, want %q", r, "dry")
	}
	// A change of its tools is told, and a storm of them is not.
	m.tools()
	id := m.startTool("change", `{"names":["new"]}`)
	changes := 0
	for done := false; changes == 0 || !done; {
		r := m.next()
		done = done || string(r.ID) == id
		if r.Method == "notifications/tools/list_changed" {
			changes++
		}
	}
	if names := m.tools(); !slices.Contains(names, "new") || changes > 3 {
		t.Errorf("%d changes were told, and the tools are %v; want 3 at most, and new", changes, names)
	}
	silent := m.startTool("silent", "{}")
	if m.call("ping", "{}").Error != nil {
		t.Error("a silent child holds up a ping")
	}
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + silent +
		`,"reason":"enough"}}`)
	until(t, "the child hears of it", func() bool { return strings.Contains(m.errs.String(), `"reason":"enough"`) })
	pid := 0
	fmt.Sscan(m.tool("fork", "{}").text(t), &pid)
	m.startTool("deaf", "{}")
	for range 5 {
		m.startTool("echo", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	}
	if r := m.tool("coordinator_status", "{}").tool(t); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.wait()
	until(t, "what it has started is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	w.clean()
}

// The list of the last run is served until the child has said its own.
func TestMCPCachedList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kids := func() (n int) {
		for _, p := range w.ours() {
			if strings.Contains(p, " "+bin+"/fakechild ") && !strings.Contains(p, "bmcp hold") {
				n++
			}
		}
		return n
	}
	m := w.mcp(nil, "--mcp", "a="+fake())
	if names := m.tools(); !slices.Contains(names, "echo") || kids() != 1 {
		t.Error(names, w.ours())
	}
	m.end()
	// The child starts at its first call; where browsers are is there before.
	m = w.mcp(nil, "--mcp", "a="+fake())
	if names := m.tools(); !slices.Contains(names, "echo") {
		t.Errorf(`got %v, want "echo"`, names)
	}
	until(t, "the proxy is there", func() bool { return len(w.state().Proxies) == 1 })
	if kids() != 0 {
		t.Errorf("it runs before it is called: %q", w.ours())
	}
	until(t, "the status has the proxy and the cached list", func() bool {
		status := m.tool("coordinator_status", "{}").text(t)
		return strings.Contains(status, `"cached":true`) && !strings.Contains(status, `"proxy_port":null`)
	})
	if r := m.tool("echo", "{}"); r.tool(t).IsError || kids() != 1 {
		t.Error(r.line, w.ours())
	}
	m.end()
	m = w.mcp([]string{"FAKE=silent"}, "--mcp", "a="+fake())
	began := time.Now()
	// A list that is not known is waited for 20 s.
	if names := m.tools(); !slices.Contains(names, "echo") || time.Since(began) >= 20*time.Second {
		t.Errorf("%v after %v, want echo at once", names, time.Since(began))
	}
	m.startTool("echo", "{}")
	until(t, "the status speaks of it", func() bool {
		return strings.Contains(m.tool("coordinator_status", "{}").text(t), "child a has not answered for ")
	})
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.wait()
	m = w.mcp([]string{"FAKE=many"}, "--mcp", "a="+fake())
	m.tools()
	id := m.startTool("tool_999", "{}")                       // which only the child knows
	for told, answered := false, false; !told || !answered; { // in either order
		switch r := m.next(); {
		case r.Method == "notifications/tools/list_changed":
			told = true
		case string(r.ID) == id:
			if answered = true; r.Error != nil {
				t.Error(r.line)
			}
		}
	}
	if names := m.tools(); len(names) < 1000 {
		t.Errorf("got %d tools, want 1000 or more", len(names))
	}
}

// Hosts that speak badly: every request is answered once, and nothing else.
func TestMCPBadHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "a="+fake())
	for line, want := range map[string]int{
		"garbage": -32700, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":}}`: -32700, "[]": -32600,
		"42": -32600, `{"id":1}`: -32600,
		`{"id":{},"method":"ping"}`: -32600, `{"id":1,"method":7}`: -32600,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:    -32600,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`: -32600, // before it has initialized
	} {
		m.send(line)
		if r := m.next(); r.Error == nil || r.Error.Code != want {
			t.Errorf("%s: %s", line, r.line)
		}
	}
	m.greet("{}")
	for _, id := range []string{"0", "-1", "1.5", `""`, `"ü\n"`, "123456789012345678901234567890"} {
		m.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo"}}`)
		if r := m.next(); string(r.ID) != id || r.Error != nil {
			t.Errorf("%s: %.300s", id, r.line)
		}
	}
	if r := m.call("nonesuch/method", "{}"); r.Error == nil || r.Error.Code != -32601 {
		t.Errorf("got %v, want the error -32601", r.line)
	}
	// Two with one ID: the first one is answered in its time.
	m.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":300}}}`)
	m.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	if a, b := m.next(), m.next(); a.Error == nil || a.Error.Code != -32600 || b.Error != nil {
		t.Errorf("got %s and %s, want -32600 for one, and the other's answer", a.line, b.line)
	}
	// Cancelled before, during and after; and what is asked of it by nobody.
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
	m.send(`{"jsonrpc":"2.0","id":78,"result":{}}`)
	m.send(`{"jsonrpc":"2.0","method":"notifications/nonesuch"}`)
	// A host without sampling is asked for none.
	if r := m.tool("ask", `{"method":"sampling/createMessage"}`).text(t); !strings.Contains(r,
		"the host has no sampling") {
		t.Errorf(`got %s, want "the host has no sampling"`, r)
	}
	// A long line, and half of one at the end.
	m.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"tool","arguments":{"x":"` +
		strings.Repeat("x", 64<<20) + `"}}}`)
	if r := m.next(); string(r.ID) != "6" {
		t.Errorf("%.200s", r.line)
	}
	// The stateless protocol has no greeting.
	r := m.call("tools/list", `{"_meta":`+stateless+`}`)
	for _, want := range []string{`"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`} {
		if !strings.Contains(r.line, want) {
			t.Errorf("no %s in %.300s", want, r.line)
		}
	}
	if r := m.call("server/discover", `{"_meta":`+stateless+`}`); r.Error != nil ||
		!strings.Contains(r.line, "2026-07-28") {
		t.Errorf(`got %s, want no error, and "2026-07-28"`, r.line)
	}
	io.WriteString(m.in, `{"jsonrpc":"2.0","id":9,"met`)
	m.in.Close()
	if r := m.next(); r.Error == nil || r.Error.Code != -32700 {
		t.Errorf("got %s, want the error -32700", r.line)
	}
	m.wait()
	w.clean()
}

// A host that does not read its answers holds up no end, however many wait.
func TestMCPHostThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cmd("bmcp", "--mcp", "a="+fake())
	c.Env = slices.Concat(w.env, []string{"XDG_CACHE_HOME=" + w.dir + "/cache", "BTOOLS_BROWSER=" + bin +
		"/fakebrowser"})
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReaderSize(out, 16)
	say := func(line string) { io.WriteString(in, line+"\n") }
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"t","version":"1"}}}`)
	lines.ReadString('\n')
	for id := 2; id < 5; id++ { // more than may wait
		say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big",`+
			`"arguments":{"n":33554432}}}`, id))
	}
	lines.ReadString(':') // the answer has begun, and nobody reads on
	c.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Process.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("it does not end")
		c.Process.Kill()
		<-done
	}
	w.clean()
}

// Whatever is killed, nothing is left when the host is gone; and as long as
// it is there, the next call works.
func TestMCPDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.mcp([]string{"FAKE=stubborn"}, "--mcp", "a="+fake())
	works := func() {
		t.Helper()
		until(t, "a call works", func() bool { return !m.tool("env", "{}").tool(t).IsError })
	}
	works()
	m.cmd.Process.Kill()
	m.cmd.Wait()
	w.clean()
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	for i := range rounds {
		env := []string{"FAKE=" + []string{"stubborn", "parent"}[i%2]}
		if i%4 >= 2 {
			env = append(env, "PW_MCP_PROXY__P_INSTANCES=1", "PW_MCP_PROXY__P_IS_DEFAULT=true")
		}
		m = w.mcp(env, "--mcp", "a="+fake())
		works()
		victims := w.ours()
		if len(victims) < 6 { // bmcp, hold, the child, bproxy, blaunch, the browser
			t.Fatalf("only %v run", victims)
		}
		pid := 0
		victim := victims[rand.IntN(len(victims))]
		fmt.Sscan(victim, &pid)
		t.Logf("round %d: %.60s is killed", i, victim)
		syscall.Kill(pid, syscall.SIGKILL)
		if pid != m.cmd.Process.Pid {
			works()
		}
		m.end()
		w.clean()
	}
}
