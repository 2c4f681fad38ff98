//go:build linux

package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A child whose lists never end is told of, and keeps nobody from the lists of
// others.
func TestEndlessLists(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "well="+fake(), "--mcp", "endless=sh -c 'FAKE=endless exec "+bin+"/fakechild'")
	if names := m.tools(); !slices.Contains(names, "echo") ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "endless") }) {
		t.Errorf("got %v, want echo and no tool of endless", names)
	}
	until(t, "the status tells of it", func() bool {
		return strings.Contains(m.tool("coordinator_status", "{}").text(t),
			"child endless has more than 1000 pages of tools")
	})
	if r := m.call("resources/list", "{}"); string(r.Result) != `{"resources":[{"uri":"fake://a","name":"a"}]}` {
		t.Errorf("%.300s", r.line)
	}
	m.end()
	w.clean()
}

// Images of results that a bulk call returns are images, not text; those of
// others are not there.
func TestMCPBulkImages(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"FAKE_TOOLS=image,echo"}, "--mcp", "a="+fake())
	r := m.tool("browser_execute_bulk", `{"commands":[{"tool":"image"},{"tool":"echo","return_result":true},`+
		`{"tool":"image","return_result":true},{"tool":"image","return_result":true}]}`)
	const image = `{"type":"image","data":"aW1hZ2U=","mimeType":"image/png","x-unknown":1.0}`
	if strings.Count(r.line, image+","+image+"]") != 1 || strings.Count(r.line, "aW1hZ2U=") != 2 {
		t.Errorf("got %s, want the 2 images that were asked for, as they were", r.line)
	}
	x := r.tool(t)
	results := fmt.Sprint(x.Struct["results"])
	if x.Struct["success"] != true || len(x.Content) != 3 || !strings.Contains(results, "shot") ||
		!strings.Contains(results, "image: item 2") || !strings.Contains(results, "image: item 3") {
		t.Errorf(`got %s, want success, 3 items of content, "shot", "image: item 2", "image: item 3"`, r.line)
	}
	m.end()
	w.clean()
}

// A command of a bulk call runs on the call's browser, or not at all: what it
// says of another one is neither passed over nor passed on.
func TestMCPBulkPlaces(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"PW_MCP_PROXY_BROWSER=" + bin + "/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__B_INSTANCES=1"}, "--mcp", "a="+fake())
	for _, c := range []struct{ place, args, refused string }{
		{`"browser_instance":"0",`, `{"browser_instance":"1"}`, "give browser_instance to browser_execute_bulk"},
		{`"browser_instance":"1",`, `{"browser_instance":0}`, "give browser_instance to browser_execute_bulk"},
		{``, `{"browser_pool":"B"}`, "give browser_pool to browser_execute_bulk"},
		{`"browser_instance":"1",`, `{"browser_instance":[1]}`, "browser_instance is a text"},
		{`"browser_instance":"1","browser_pool":"A",`, `{"browser_instance":"1","browser_pool":"A","n":1}`, ""},
		{`"browser_instance":"1",`, `{"browser_instance":1,"n":1}`, ""},
		{`"browser_pool":"B",`, `{"browser_instance":"0","n":1}`, ""},
	} {
		r := m.tool("browser_execute_bulk",
			`{`+c.place+`"commands":[{"tool":"echo","args":`+c.args+`,"return_result":true}]}`)
		x := r.tool(t)
		if c.refused != "" {
			if x.Struct["success"] != false || !strings.Contains(r.line, c.refused) {
				t.Errorf("%s%s: %s", c.place, c.args, r.line)
			}
			continue
		}
		if x.Struct["success"] != true || !strings.Contains(r.line, `"arguments":{"n":1}`) ||
			!strings.Contains(c.place, fmt.Sprint(x.Meta["btools/instance"])) &&
				!strings.Contains(c.place, fmt.Sprint(x.Meta["btools/pool"])) {
			t.Errorf("%s%s: %s", c.place, c.args, r.line)
		}
	}
	m.end()
	w.clean()
}

// Without pools, bulk calls have no arguments for them; with --no-bulk there
// are none.
func TestMCPNoBulk(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "a="+fake())
	if list := m.call("tools/list", "{}").line; !strings.Contains(list, `"browser_execute_bulk"`) ||
		strings.Contains(list, "browser_pool") || strings.Contains(list, "browser_instance") {
		t.Errorf("%.3000s", list)
	}
	m.end()
	m = w.mcp(nil, "--mcp", "a="+fake(), "--no-bulk")
	if names := m.tools(); slices.Contains(names, "browser_execute_bulk") {
		t.Errorf(`got %v, want no "browser_execute_bulk"`, names)
	}
	if r := m.tool("browser_execute_bulk", `{"commands":[{"tool":"echo"}]}`); r.Error == nil ||
		!strings.Contains(r.line, "Unknown tool") {
		t.Errorf(`got %v, want an error with "Unknown tool"`, r.line)
	}
	m.end()
	w.clean()
}

// Calls that a host sends at once reach the child in that order, whatever each
// has to wait for first.
func TestMCPCallsInOrder(t *testing.T) {
	pool := func(instances, affinity string) []string {
		return []string{"PW_MCP_PROXY_BROWSER=" + bin + "/fakebrowser", "PW_MCP_PROXY__A_IS_DEFAULT=1",
			"PW_MCP_PROXY__A_INSTANCES=" + instances, "PW_MCP_PROXY_AFFINITY=" + affinity}
	}
	for name, env := range map[string][]string{"one browser": nil, "a lease each": pool("1", "call"),
		"a lease for all": pool("3", "session")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.mcp(append(env, "FAKE_TOOLS=echo,order"), "--mcp", "a="+fake())
			for round := range 4 { // first all is cold, then nothing
				const calls = 8
				var want []string
				open := map[string]bool{}
				for n := range calls {
					open[m.startTool("echo", fmt.Sprintf(`{"n":%d}`, round*calls+n))] = true
					want = append(want, fmt.Sprintf(`"n":%d}`, round*calls+n))
				}
				for len(open) > 0 {
					if r := m.next(); open[string(r.ID)] {
						if r.Error != nil || r.tool(t).IsError {
							t.Fatalf("got %v, want no error", r.line)
						}
						delete(open, string(r.ID))
					}
				}
				at := 0
				order := m.tool("order", "{}").text(t)
				for _, n := range want {
					i := strings.Index(order[at:], n)
					if i < 0 {
						t.Fatalf("round %d: no %s in its place in\n%s", round, n, order)
					}
					at += i
				}
			}
			m.end()
			w.clean()
		})
	}
}

// A call that is cancelled while it waits holds up none that comes after it.
func TestMCPCancelledInTurn(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"PW_MCP_PROXY_BROWSER=" + bin + "/fakebrowser", "PW_MCP_PROXY__A_IS_DEFAULT=1",
		"PW_MCP_PROXY__A_INSTANCES=1", "PW_MCP_PROXY_AFFINITY=call"}, "--mcp", "a="+fake())
	m.tools()
	slow := m.startTool("sleep", `{"ms":1000}`)
	waits := m.startTool("echo", `{"n":1}`)
	last := m.startTool("echo", `{"n":2}`)
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + waits + `}}`)
	if r := m.answer(slow); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	if r := m.answer(last); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	until(t, "no lease is left", func() bool {
		return strings.Contains(m.tool("browser_pool_status", "{}").line, `"leased_instances":0`)
	})
	m.end()
	w.clean()
}

// A resource is its child's that lists it now, not that of the one that did
// once.
func TestOwnersOfItems(t *testing.T) {
	w := newWorld(t)
	has := func(child, uris string) { os.WriteFile(w.dir+"/"+child, []byte(uris), 0o600) }
	as := func(child string) string {
		return child + "=sh -c 'FAKE_RESOURCES=" + w.dir + "/" + child + " exec " + bin + "/fakechild'"
	}
	has("a", "fake://moves fake://both")
	has("b", "fake://both fake://gone")
	m := w.mcp(nil, "--mcp", as("a"), "--mcp", as("b"))
	for range 2 {
		if r := m.call("resources/list", "{}"); string(r.Result) != `{"resources":[{"uri":"fake://moves"},`+
			`{"uri":"fake://both"},{"uri":"fake://gone"}]}` {
			t.Errorf("got %s, want moves, both and gone", r.line)
		}
	}
	has("a", "")
	has("b", "fake://both fake://moves")
	if r := m.call("resources/list", "{}"); string(r.Result) != `{"resources":[{"uri":"fake://both"},`+
		`{"uri":"fake://moves"}]}` {
		t.Errorf("got %s, want both and moves", r.line)
	}
	// The last one is nobody's: the first is asked.
	for uri, want := range map[string]string{"fake://both": "/b", "fake://moves": "/b", "fake://gone": "/a"} {
		if r := m.call("resources/read", `{"uri":"`+uri+`"}`); !strings.Contains(r.line, w.dir+want+`"`) {
			t.Errorf("%s: %s", uri, r.line)
		}
	}
	m.end()
	w.clean()
}

// A greeting that is refused is not the host's: children get the one after it.
func TestMCPRefusedGreeting(t *testing.T) {
	w := newWorld(t)
	m := w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "a="+fake())
	if r := m.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"test",`+
		`"version":"1"}}`); r.Error == nil {
		t.Errorf("got %v, want an error", r.line)
	}
	if r := m.call("tools/list", "{}"); r.Error == nil || r.Error.Code != -32600 {
		t.Errorf("got %v, want the error -32600", r.line)
	}
	m.greet(`{"roots":{}}`)
	id := m.startTool("ask", `{"method":"roots/list"}`)
	ask := m.next()
	for ask.Method == "notifications/tools/list_changed" {
		ask = m.next()
	}
	if ask.Method != "roots/list" {
		t.Fatalf(`got %v, want the method "roots/list"`, ask.line)
	}
	m.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, ask.ID))
	if r := m.answer(id); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	m.end()
	w.clean()
}

// What a child asks is asked of the host whose call it is about, or of nobody:
// not of the next one when the call is cancelled, or when its host is asked
// something already.
func TestOnlyTheRightHostIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser",
		"FAKE_TOOLS=ask,sleep,questions,silent,order"}, "--mcp", "kid="+fake())
	start := func(ctx context.Context, tool, args, more string) chan string {
		answer := make(chan string, 1)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,`+
			`"_meta":%s%s}}`, tool, args, stateless, more)
		r, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
		for name, value := range map[string]string{"Accept": "application/json, text/event-stream",
			"Content-Type": "application/json", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
			"Mcp-Name": tool} {
			r.Header.Set(name, value)
		}
		go func() {
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer a.Body.Close()
			b, _ := io.ReadAll(a.Body)
			answer <- string(b)
		}()
		return answer
	}
	ctx := context.Background()
	if b := <-start(ctx, "sleep", "{}", ""); !strings.Contains(b, "slept") {
		t.Fatalf(`got %s, want "slept"`, b)
	}
	called := func(args string) {
		t.Helper()
		until(t, "the call is there: "+args, func() bool {
			return strings.Contains(<-start(ctx, "order", "{}", ""),
				args)
		})
	}
	// Its host has gone, and it asks all the same, while another one calls.
	gone, leave := context.WithCancel(ctx)
	a := start(gone, "ask", `{"method":"elicitation/create","ms":1500,"params":{"message":"SECRET"}}`, "")
	called("SECRET")
	leave()
	<-a
	if b := <-start(ctx, "sleep", `{"ms":2000}`, ""); !strings.Contains(b, "slept") || strings.Contains(b, "SECRET") {
		t.Errorf(`got %s, want "slept" without "SECRET"`, b)
	}
	// Its host is asked something already, and it asks more.
	a = start(ctx, "questions", `{"method":"elicitation/create","n":2,"ms":700,"open":0}`, "")
	asked := <-a
	if !strings.Contains(asked, "question 0") || !strings.Contains(asked, "input_required") {
		t.Fatalf(`got %s, want "question 0" and "input_required"`, asked)
	}
	if b := <-start(ctx, "sleep", `{"ms":1500}`, ""); !strings.Contains(b, "slept") || strings.Contains(b, "question") {
		t.Errorf(`got %s, want "slept" without "question"`, b)
	}
	var parked struct{ Result required }
	json.Unmarshal([]byte(asked), &parked)
	again := fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept"}}`, parked.Result.State,
		parked.Result.key())
	if b := <-start(ctx, "questions", `{}`, again); !strings.Contains(b, "question 1") ||
		!strings.Contains(b, "input_required") {
		t.Errorf(`got %s, want "question 1" and "input_required"`, b)
	}
	// A host alone is asked, whatever was cancelled before: by a new process, as
	// the one before never answers.
	gone, leave = context.WithCancel(ctx)
	a = start(gone, "silent", `{"u":"UNHEARD"}`, "")
	called("UNHEARD")
	leave()
	<-a
	until(t, "a host alone is asked", func() bool {
		return strings.Contains(<-start(ctx, "ask", `{"method":"elicitation/create","params":{"message":"name?"}}`, ""),
			"name?")
	})
	stop()
	w.clean()
}

// A child that asks without end, and a host that answers nothing: what is kept
// is bounded.
func TestEndlessQuestions(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"FAKE_TOOLS=questions"}, "--mcp", "kid="+fake())
	id := m.startTool("questions", `{"method":"roots/list","n":1000,"open":64}`)
	questions := 0
	r := m.next()
	for ; string(r.ID) != id; r = m.next() {
		if r.Method == "roots/list" {
			questions++
		}
	}
	if got := r.text(t); questions != 64 || got != "936" {
		t.Errorf("%d questions, %s refused", questions, got)
	}
	m.end()
	m = w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser", "FAKE_TOOLS=questions"}, "--mcp", "kid="+fake())
	var q required
	r = m.call("tools/call",
		`{"name":"questions","arguments":{"method":"elicitation/create","n":1000},"_meta":`+stateless+`}`)
	if r.into(t, &q); len(q.Requests) == 0 || len(q.Requests) > 64 {
		t.Errorf("%d questions: %.500s", len(q.Requests), r.line)
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.wait()
	w.clean()
}

// A child that has closed its input is told of as that, and is started again.
func TestCallOfAChildThatHasClosedItsInput(t *testing.T) {
	w := newWorld(t)
	m := w.mcp([]string{"FAKE_TOOLS=shut,echo,crash"}, "--mcp", "kid="+fake())
	m.tool("shut", "{}")
	if r := m.tool("echo", "{}").tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "child kid has closed its input") {
		t.Errorf(`got %+v, want an error with "child kid has closed its input"`, r)
	}
	until(t, "it is started again", func() bool { return !m.tool("echo", "{}").tool(t).IsError })
	// One that has just ended is told of with its last words.
	m.startTool("crash", "{}")
	var ids []string
	for range 20 {
		ids = append(ids, m.startTool("echo", `{"x":"`+strings.Repeat("x", 1<<16)+`"}`))
	}
	for range ids {
		r := m.next()
		for r.Method != "" {
			r = m.next()
		}
		if strings.Contains(r.line, "does not read") {
			t.Errorf("%.300s", r.line)
		}
	}
	m.cmd.Process.Signal(syscall.SIGTERM)
	m.wait()
	w.clean()
}

// Children may list other tools to other hosts. None takes them away from
// another, and the list of one host is not that of the next one for long, be
// it of the same bmcp or of the next.
func TestMCPToolsOfSeveralHosts(t *testing.T) {
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser", "FAKE=bycaps", "FAKE_TOOLS=echo"},
		"--mcp", "kid="+fake())
	last := 0
	ask := func(session, method, params string) (http.Header, string) {
		t.Helper()
		last++
		_, h, b := post(t, url, map[string]string{"Mcp-Session-Id": session},
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, last, method, params))
		return h, b
	}
	greet := func(capabilities string) (session string) {
		t.Helper()
		h, _ := ask("", "initialize",
			`{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"test",`+
				`"version":"1"}}`)
		session = h.Get("Mcp-Session-Id")
		post(t, url, map[string]string{"Mcp-Session-Id": session},
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return session
	}
	lists := func(session string) bool {
		_, b := ask(session, "tools/list", "{}")
		return strings.Contains(b, `"needs_elicitation"`)
	}
	a, b := greet(`{"elicitation":{}}`), ""
	until(t, "one host has it", func() bool { return lists(a) })
	b = greet("{}")
	until(t, "the other one has not, without a call", func() bool { return !lists(b) })
	ask(b, "tools/call", `{"name":"echo"}`)
	if _, r := ask(a, "tools/call", `{"name":"needs_elicitation"}`); !strings.Contains(r,
		`"text":"needs_elicitation"`) ||
		!lists(a) || lists(b) {
		t.Errorf("got %s; want the question at the host that can be asked, and its tool there alone", r)
	}
	stop()
	for range 2 {
		m := w.mcp([]string{"FAKE=bycaps", "FAKE_TOOLS=echo"}, "--mcp", "kid="+fake())
		until(t, "the next one has it", func() bool { return slices.Contains(m.tools(), "needs_elicitation") })
		m.end()
	}
	w.clean()
}
