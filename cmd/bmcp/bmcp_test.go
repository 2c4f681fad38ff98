//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// Every byte of a call and of its result goes through as it is, and what runs
// at the end is nothing.
func TestMCPRelay(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	names := m.Tools()
	if i := slices.Index(names, "echo"); i < 6 || names[0] != "coordinator_list_browsers" {
		t.Errorf(`got %v, want 6 or more tools before those of the children, "coordinator_list_browsers" first`, names)
	}
	list := m.Call("tools/list", "{}").Line
	// Without what bmcp adds.
	list = regexp.MustCompile(`,"session_id":\{"type":"string","description":"[^"]*"\}`).ReplaceAllString(list, "")
	if !strings.Contains(list, `"description":"does <echo>",`+
		`"inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",`+
		`"properties":{"n":{"type":"number","x-vendor":1}},"additionalProperties":false},"x-unknown":{"kept":1.0}}`) {
		t.Errorf("a tool is not as its child has it: %s", list)
	}
	args := `{"name":"echo","arguments":{"n":1.10,"big":123456789012345678901234567890,"u":"\u00e9<\/>"},` +
		`"_meta":{"progressToken":7,"x":[]},"odd":null}`
	r := m.Call("tools/call", args)
	want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"echo"},`+
		`{"type":"x-unknown","v":1e300}],"structuredContent":{"params":%s},"precise":12345678901234567890.10,`+
		`"_meta":{"a":1}}}`+"\n", r.ID, args)
	if r.Line != want {
		t.Errorf("got  %s\nwant %s", r.Line, want)
	}
	if r := m.Tool("error", "{}"); r.Error == nil || r.Error.Code != -32042 || string(r.Error.Data) != `{"why":[1,2]}` {
		t.Errorf(`got %s, want the error -32042 with the data '{"why":[1,2]}'`, r.Line)
	}
	for _, c := range [][2]string{{"logging/setLevel", `{"level":"loud"}`}, {"tools/list", `{"cursor":"2"}`}} {
		if r := m.Call(c[0], c[1]); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("%s %s: got %s, want the error -32602", c[0], c[1], r.Line)
		}
	}
	if r := m.Tool("nonesuch", "{}"); r.Error == nil || r.Error.Code != -32602 ||
		!strings.Contains(r.Error.Message, "Unknown tool: nonesuch") {
		t.Errorf(`got %s, want the error -32602, "Unknown tool: nonesuch"`, r.Line)
	}
	// Progress comes before the answer, all of it and in order.
	id := m.Start("tools/call", `{"name":"progress","arguments":{"n":150},"_meta":{"progressToken":"tok"}}`)
	for i := range 150 {
		if r := m.Next(); r.Method != "notifications/progress" ||
			string(r.Params) != fmt.Sprintf(`{"progressToken":"tok","progress":%d}`, i) {
			t.Fatalf("%d: %s", i, r.Line)
		}
	}
	if r := m.Next(); string(r.ID) != id {
		t.Errorf("got %s, want the answer to %s", r.Line, id)
	}
	// What a child asks the host.
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		id := m.StartTool("ask", `{"method":"`+method+`","params":{"x":1.50}}`)
		ask := m.Next()
		if ask.Method != method || string(ask.Params) != `{"x":1.50}` {
			t.Fatalf(`got %s, want %s with {"x":1.50}`, ask.Line, method)
		}
		m.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"answer":"yes"}}`, ask.ID))
		if a := m.Answer(id).Text(t); !strings.Contains(a, `"result":{"answer":"yes"}`) {
			t.Errorf("%s\nlacks %q", a, `"result":{"answer":"yes"}`)
		}
	}
	if a := m.Tool("ask", `{"method":"ping"}`).Text(t); !strings.Contains(a, `"result":{}`) {
		t.Errorf("%s\nlacks %q", a, `"result":{}`)
	}
	for method, want := range map[string]string{
		"resources/list": `{"resources":[{"uri":"fake://a","name":"a"}]}`,
		"prompts/list":   `{"prompts":[{"name":"greet"}]}`,
		"resources/read": `{"contents":[{"uri":"fake://a","text":"the text"}]}`, "ping": "{}", "logging/setLevel": "{}",
	} {
		if r := m.Call(method, `{"uri":"fake://a","level":"info"}`); string(r.Result) != want {
			t.Errorf("%s: %s", method, r.Line)
		}
	}
	if size := len(m.Tool("big", `{"n":16777216}`).Text(t)); size != 16<<20 {
		t.Errorf("%d bytes, want %d", size, 16<<20)
	}
	if r := m.Tool("env", "{}").Text(t); !strings.HasPrefix(r, "http://127.0.0.1:") ||
		strings.Fields(r)[0] != strings.Fields(r)[1] {
		t.Errorf("got %s, want the same address of this machine twice", r)
	}
	// At the end of the host's messages what is asked is answered first.
	id = m.StartTool("sleep", `{"ms":300}`)
	m.In.Close()
	if r := m.Answer(id).Text(t); r != "slept" {
		t.Errorf("%q, want %q", r, "slept")
	}
	m.Wait()
	w.Clean()
}

// With pools a call has an instance of its own, and its result says which.
func TestMCPPools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY_HEALTH_INTERVAL=1h",
		"PW_MCP_PROXY_AFFINITY=call", "PW_MCP_PROXY__A_INSTANCES=3", "PW_MCP_PROXY__A_IS_DEFAULT=1",
		"PW_MCP_PROXY__A__2_ALIAS=last", "PW_MCP_PROXY__B_INSTANCES=1"}, "--mcp", "kid="+cmdtest.FakeChild())
	if list := m.Call("tools/list", "{}").Line; !strings.Contains(list, `"browser_pool":{"type":"string"`) ||
		!strings.Contains(list, "browser_pool_status") || strings.Contains(list, "coordinator_launch") {
		t.Errorf("%.3000s", list)
	}
	if r := m.Tool("echo", `{"browser_pool":"A","browser_instance":"last","n":1}`); !strings.Contains(r.Line,
		`"arguments":{"n":1}`) || !strings.Contains(r.Line, `"btools/pool":"A"`) ||
		!strings.Contains(r.Line, `"btools/instance":"2"`) || !strings.Contains(r.Line, `"a":1`) ||
		!strings.Contains(r.Line, "This result is from instance 2 of pool A.") {
		t.Errorf(`got %s, want '"arguments":{"n":1}' and '"btools/pool":"A"' and '"btools/instance":"2"' and '"a":1' `+
			`and "This result is from instance 2 of pool A."`, r.Line)
	}
	// Three at once, on three instances.
	for range 3 {
		m.StartTool("sleep", `{"ms":500}`)
	}
	m.Call("ping", "{}") // is answered before them
	seen := map[string]bool{}
	for range 3 {
		r := m.Next()
		seen[fmt.Sprint(r.Tool(t).Meta["btools/instance"])] = true
	}
	if len(seen) != 3 {
		t.Error("three calls at once are on", seen)
	}
	type bulk struct {
		Success  bool
		Executed int `json:"executed_count"`
		Results  []*cmdtest.ToolResult
		Errors   []struct {
			Index int
			Error string
		}
		Stopped *int `json:"stopped_at"`
	}
	pool := ""
	run := func(args string) (b bulk) {
		t.Helper()
		x := m.Tool("browser_execute_bulk", args).Tool(t)
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
		if r := m.Tool("echo", args).Tool(t); r.Meta["btools/instance"] != want {
			t.Errorf("%s is on %v", args, r.Meta)
		}
	}
	if r := m.Tool("echo", `{"browser_instance":[1]}`).Tool(t); !r.IsError {
		t.Errorf("got %+v, want an error", r)
	}
	m.Tool("echo", `{"browser_pool":"C"}`).MustFail(t, `no pool is named "C"`)
	cmdtest.Until(t, "no lease is left", func() bool {
		var s cmdtest.PoolStatus
		json.Unmarshal([]byte(m.Tool("browser_pool_status", "{}").Text(t)), &s)
		return s.Summary.Total == 4 && s.Summary.Leased == 0
	})
	// The service is killed under it.
	pids := w.State()
	if len(pids.Pools) != 1 {
		t.Fatalf("got %+v, want 1 pool", pids)
	}
	syscall.Kill(pids.Pools[0].Process.PID, syscall.SIGKILL)
	m.Tool("echo", "{}").MustSucceed(t)
	m.End()
	w.Clean()
}

// Children that are slow, missing, or die.
func TestMCPBadChildren(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	// A tool that two have; one that can't be run, one that ends at once.
	m := w.MCP([]string{"FAKE_TOOLS=same,crash"}, "--mcp", "a="+cmdtest.FakeChild(), "--mcp",
		"b="+cmdtest.FakeChild(), "--mcp",
		"gone="+w.Dir+"/none", "--mcp", "sick=sh -c 'FAKE=crash exec "+cmdtest.Bin+"/fakechild'")
	if names := m.Tools(); !slices.Contains(names, "same") || !slices.Contains(names, "b__same") {
		t.Errorf(`got %v, want "same", "b__same"`, names)
	}
	m.Tool("b__same", "{}").MustSucceed(t)
	status := m.Tool("coordinator_status", "{}").Text(t)
	for _, want := range []string{"cannot start child gone", "b__same: there is one already"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	// A crash is told with its last words; the next call has a new child.
	m.Tool("crash", "{}").MustFail(t, "child a ended (exit status 7): out of luck")
	m.Tool("same", "{}").MustSucceed(t)
	m.Tool("crash", "{}")
	m.Tool("same", "{}").MustFail(t, "started again in") // a child that crashes again and again
	m.End()

	// Noise on its standard error, and deafness.
	m = w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	if r := m.Tool("flood", `{"n":20000}`).Text(t); r != "dry" {
		t.Errorf("%q, want %q", r, "dry")
	}
	silent := m.StartTool("silent", "{}")
	if m.Call("ping", "{}").Error != nil {
		t.Error("a silent child holds up a ping")
	}
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + silent +
		`,"reason":"enough"}}`)
	cmdtest.Until(t, "the child hears of it", func() bool {
		return strings.Contains(m.Errs.String(),
			`"reason":"enough"`)
	})
	pid := 0
	fmt.Sscan(m.Tool("fork", "{}").Text(t), &pid)
	m.StartTool("deaf", "{}")
	for range 5 {
		m.StartTool("echo", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	}
	m.Tool("coordinator_status", "{}").MustSucceed(t)
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Wait()
	cmdtest.Until(t, "what it has started is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	w.Clean()
}

// The list of the last run is served until the child has said its own.
func TestMCPCachedList(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	kids := func() (n int) {
		for _, p := range w.Processes() {
			if strings.Contains(p, " "+cmdtest.Bin+"/fakechild ") && !strings.Contains(p, "bmcp hold") {
				n++
			}
		}
		return n
	}
	m := w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	if names := m.Tools(); !slices.Contains(names, "echo") || kids() != 1 {
		t.Error(names, w.Processes())
	}
	m.End()
	// The child starts at its first call; where browsers are is there before.
	m = w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	if status := m.Tool("coordinator_status", "{}").Text(t); strings.Contains(status, `"proxy_port":null`) {
		t.Errorf("the first status: %s", status)
	}
	if names := m.Tools(); !slices.Contains(names, "echo") {
		t.Errorf(`got %v, want "echo"`, names)
	}
	cmdtest.Until(t, "the proxy is there", func() bool { return len(w.State().Proxies) == 1 })
	if kids() != 0 {
		t.Errorf("it runs before it is called: %q", w.Processes())
	}
	cmdtest.Until(t, "the status has the cached list", func() bool {
		return strings.Contains(m.Tool("coordinator_status", "{}").Text(t), `"cached":true`)
	})
	if r := m.Tool("echo", "{}"); r.Tool(t).IsError || kids() != 1 {
		t.Error(r.Line, w.Processes())
	}
	m.End()
	m = w.MCP([]string{"FAKE=silent"}, "--mcp", "a="+cmdtest.FakeChild())
	began := time.Now()
	// A list that is not known is waited for 20 s.
	if names := m.Tools(); !slices.Contains(names, "echo") || time.Since(began) >= 20*time.Second {
		t.Errorf("%v after %v, want echo at once", names, time.Since(began))
	}
	m.StartTool("echo", "{}")
	cmdtest.Until(t, "the status speaks of it", func() bool {
		return strings.Contains(m.Tool("coordinator_status", "{}").Text(t), "child a has not answered for ")
	})
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Wait()
	m = w.MCP([]string{"FAKE=many"}, "--mcp", "a="+cmdtest.FakeChild())
	m.Tools()
	id := m.StartTool("tool_999", "{}")                       // which only the child knows
	for told, answered := false, false; !told || !answered; { // in either order
		switch r := m.Next(); {
		case r.Method == "notifications/tools/list_changed":
			told = true
		case string(r.ID) == id:
			if answered = true; r.Error != nil {
				t.Error(r.Line)
			}
		}
	}
	if names := m.Tools(); len(names) < 1000 {
		t.Errorf("got %d tools, want 1000 or more", len(names))
	}
}

// Hosts that speak badly: every request is answered once, and nothing else.
func TestMCPBadHosts(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.StartMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp", "a="+cmdtest.FakeChild())
	for line, want := range map[string]int{
		"garbage": -32700, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":}}`: -32700, "[]": -32600,
		"42": -32600, `{"id":1}`: -32600,
		`{"id":{},"method":"ping"}`: -32600, `{"id":1,"method":7}`: -32600,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:    -32600,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`: -32600, // before it has initialized
	} {
		m.Send(line)
		if r := m.Next(); r.Error == nil || r.Error.Code != want {
			t.Errorf("%s: %s", line, r.Line)
		}
	}
	m.Initialize("{}")
	for _, id := range []string{"0", "-1", "1.5", `""`, `"ü\n"`, "123456789012345678901234567890"} {
		m.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo"}}`)
		if r := m.Next(); string(r.ID) != id || r.Error != nil {
			t.Errorf("%s: %.300s", id, r.Line)
		}
	}
	if r := m.Call("nonesuch/method", "{}"); r.Error == nil || r.Error.Code != -32601 {
		t.Errorf("got %v, want the error -32601", r.Line)
	}
	// Two with one ID: the first one is answered in its time.
	m.Send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":300}}}`)
	m.Send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	if a, b := m.Next(), m.Next(); a.Error == nil || a.Error.Code != -32600 || b.Error != nil {
		t.Errorf("got %s and %s, want -32600 for one, and the other's answer", a.Line, b.Line)
	}
	// Cancelled before, during and after; and what is asked of it by nobody.
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
	m.Send(`{"jsonrpc":"2.0","id":78,"result":{}}`)
	m.Send(`{"jsonrpc":"2.0","method":"notifications/nonesuch"}`)
	// A host without sampling is asked for none.
	if r := m.Tool("ask", `{"method":"sampling/createMessage"}`).Text(t); !strings.Contains(r,
		"the host has no sampling") {
		t.Errorf(`got %s, want "the host has no sampling"`, r)
	}
	// A long line, and half of one at the end.
	m.Send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"tool","arguments":{"x":"` +
		strings.Repeat("x", 64<<20) + `"}}}`)
	if r := m.Next(); string(r.ID) != "6" {
		t.Errorf("%.200s", r.Line)
	}
	// The stateless protocol has no greeting.
	r := m.Call("tools/list", `{"_meta":`+cmdtest.Stateless+`}`)
	for _, want := range []string{`"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`} {
		if !strings.Contains(r.Line, want) {
			t.Errorf("no %s in %.300s", want, r.Line)
		}
	}
	if r := m.Call("server/discover", `{"_meta":`+cmdtest.Stateless+`}`); r.Error != nil ||
		!strings.Contains(r.Line, "2026-07-28") {
		t.Errorf(`got %s, want no error, and "2026-07-28"`, r.Line)
	}
	io.WriteString(m.In, `{"jsonrpc":"2.0","id":9,"met`)
	m.In.Close()
	if r := m.Next(); r.Error == nil || r.Error.Code != -32700 {
		t.Errorf("got %s, want the error -32700", r.Line)
	}
	m.Wait()
	w.Clean()
}

// A host that does not read its answers holds up no end, however many wait.
func TestMCPHostThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	c := w.Cmd("bmcp", "--mcp", "a="+cmdtest.FakeChild())
	c.Env = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "BTOOLS_BROWSER=" + cmdtest.Bin +
		"/fakebrowser"})
	in, _ := c.StdinPipe()
	out := cmdtest.StartRead(t, c)
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
	case <-time.After(cmdtest.Patience):
		t.Error("it does not end")
		c.Process.Kill()
		<-done
	}
	w.Clean()
}

// Whatever is killed, nothing is left when the host is gone; and as long as
// it is there, the next call works.
func TestMCPDeath(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"FAKE=stubborn"}, "--mcp", "a="+cmdtest.FakeChild())
	works := func() {
		t.Helper()
		cmdtest.Until(t, "a call works", func() bool { return !m.Tool("env", "{}").Tool(t).IsError })
	}
	works()
	m.Cmd.Process.Kill()
	m.Cmd.Wait()
	w.Clean()
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("ROUNDS")); err == nil {
		rounds = n
	}
	for i := range rounds {
		env := []string{"FAKE=" + []string{"stubborn", "parent"}[i%2]}
		if i%4 >= 2 {
			env = append(env, "PW_MCP_PROXY__P_INSTANCES=1", "PW_MCP_PROXY__P_IS_DEFAULT=true")
		}
		m = w.MCP(env, "--mcp", "a="+cmdtest.FakeChild())
		works()
		victims := w.Processes()
		if len(victims) < 6 { // bmcp, hold, the child, bproxy, blaunch, the browser
			t.Fatalf("only %v run", victims)
		}
		pid := 0
		victim := victims[rand.IntN(len(victims))]
		fmt.Sscan(victim, &pid)
		t.Logf("round %d: %.60s is killed", i, victim)
		syscall.Kill(pid, syscall.SIGKILL)
		if pid != m.Cmd.Process.Pid {
			works()
		}
		m.End()
		w.Clean()
	}
}
