//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// A command of a bulk call runs on the call's browser, or not at all: what it
// says of another one is neither passed over nor passed on.
func TestMCPBulkPlaces(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__B_INSTANCES=1"}, "--mcp", "a="+cmdtest.FakeChild())
	for _, c := range []struct{ place, args, refused string }{
		{`"browser_instance":"0",`, `{"browser_instance":"1"}`, "give browser_instance to browser_execute_bulk"},
		{`"browser_instance":"1",`, `{"browser_instance":0}`, "give browser_instance to browser_execute_bulk"},
		{``, `{"browser_pool":"B"}`, "give browser_pool to browser_execute_bulk"},
		{`"browser_instance":"1",`, `{"browser_instance":[1]}`, "browser_instance is a text"},
		{`"browser_instance":"1","browser_pool":"A",`, `{"browser_instance":"1","browser_pool":"A","n":1}`, ""},
		{`"browser_instance":"1",`, `{"browser_instance":1,"n":1}`, ""},
		{`"browser_pool":"B",`, `{"browser_instance":"0","n":1}`, ""},
	} {
		r := m.Tool("browser_execute_bulk",
			`{`+c.place+`"commands":[{"tool":"echo","args":`+c.args+`,"return_result":true}]}`)
		x := r.Tool(t)
		if c.refused != "" {
			if x.Struct["success"] != false || !strings.Contains(r.Line, c.refused) {
				t.Errorf("%s%s: %s", c.place, c.args, r.Line)
			}
			continue
		}
		if x.Struct["success"] != true || !strings.Contains(r.Line, `"arguments":{"n":1}`) ||
			!strings.Contains(c.place, fmt.Sprint(x.Meta["btools/instance"])) &&
				!strings.Contains(c.place, fmt.Sprint(x.Meta["btools/pool"])) {
			t.Errorf("%s%s: %s", c.place, c.args, r.Line)
		}
	}
	m.End()
	w.Clean()
}

// Without pools, bulk calls have no arguments for them; with --no-bulk there
// are none.
func TestMCPNoBulk(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	if list := m.Call("tools/list", "{}").Line; !strings.Contains(list, `"browser_execute_bulk"`) ||
		strings.Contains(list, "browser_pool") || strings.Contains(list, "browser_instance") {
		t.Errorf("%.3000s", list)
	}
	m.End()
	m = w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild(), "--no-bulk")
	if names := m.Tools(); slices.Contains(names, "browser_execute_bulk") {
		t.Errorf(`got %v, want no "browser_execute_bulk"`, names)
	}
	if r := m.Tool("browser_execute_bulk", `{"commands":[{"tool":"echo"}]}`); r.Error == nil ||
		!strings.Contains(r.Line, "Unknown tool") {
		t.Errorf(`got %v, want an error with "Unknown tool"`, r.Line)
	}
	m.End()
	w.Clean()
}

// Calls that a host sends at once reach the child in that order, whatever each
// has to wait for first.
func TestMCPCallsInOrder(t *testing.T) {
	t.Parallel()
	pool := func(instances, affinity string) []string {
		return []string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY__A_IS_DEFAULT=1",
			"PW_MCP_PROXY__A_INSTANCES=" + instances, "PW_MCP_PROXY_AFFINITY=" + affinity}
	}
	for name, env := range map[string][]string{"one browser": nil, "a lease each": pool("1", "call"),
		"a lease for all": pool("3", "session")} {
		t.Run(name, func(t *testing.T) {
			w := cmdtest.New(t)
			m := w.MCP(append(env, "FAKE_TOOLS=echo,order"), "--mcp", "a="+cmdtest.FakeChild())
			for round := range 4 { // first all is cold, then nothing
				const calls = 8
				var want []string
				open := map[string]bool{}
				for n := range calls {
					open[m.StartTool("echo", fmt.Sprintf(`{"n":%d}`, round*calls+n))] = true
					want = append(want, fmt.Sprintf(`"n":%d}`, round*calls+n))
				}
				for len(open) > 0 {
					if r := m.Next(); open[string(r.ID)] {
						if r.Error != nil || r.Tool(t).IsError {
							t.Fatalf("got %v, want no error", r.Line)
						}
						delete(open, string(r.ID))
					}
				}
				at := 0
				order := m.Tool("order", "{}").Text(t)
				for _, n := range want {
					i := strings.Index(order[at:], n)
					if i < 0 {
						t.Fatalf("round %d: no %s in its place in\n%s", round, n, order)
					}
					at += i
				}
			}
			m.End()
			w.Clean()
		})
	}
}

// A call with arguments that its tool refuses takes no browser from others.
func TestMCPWrongArgumentsLeaseNothing(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=1"},
		"--mcp", "builtin")
	m.Tools()
	for args, want := range map[string]string{`{"urll":"about:blank"}`: "did you mean url?", `{}`: "url",
		`{"url":"about:blank","session_id":"a"}`: "with pools"} {
		m.MustFail(want, "browser_navigate", "%s", args)
	}
	if r := m.Tool("browser_pool_status", "{}"); !strings.Contains(r.Line, `"leased_instances":0`) {
		t.Errorf("a browser is leased: %s", r.Line)
	}
	m.End()
	w.Clean()
}

// A call that is cancelled while it waits holds up none that comes after it.
func TestMCPCancelledInTurn(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY__A_IS_DEFAULT=1",
		"PW_MCP_PROXY__A_INSTANCES=1", "PW_MCP_PROXY_AFFINITY=call"}, "--mcp", "a="+cmdtest.FakeChild())
	m.Tools()
	slow := m.StartTool("sleep", `{"ms":1000}`)
	waits := m.StartTool("echo", `{"n":1}`)
	last := m.StartTool("echo", `{"n":2}`)
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + waits + `}}`)
	m.Answer(slow).MustSucceed(t)
	m.Answer(last).MustSucceed(t)
	cmdtest.Until(t, "no lease is left", func() bool {
		return strings.Contains(m.Tool("browser_pool_status", "{}").Line, `"leased_instances":0`)
	})
	m.End()
	w.Clean()
}

// What a child asks is asked of the host whose call it is about, or of nobody:
// not of the next one when the call is cancelled, or when its host is asked
// something already.
func TestOnlyTheRightHostIsAsked(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser",
		"FAKE_TOOLS=ask,sleep,questions,silent,order"}, "--mcp", "kid="+cmdtest.FakeChild())
	start := func(ctx context.Context, tool, args, more string) chan string {
		answer := make(chan string, 1)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,`+
			`"_meta":%s%s}}`, tool, args, cmdtest.Stateless, more)
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
		cmdtest.Until(t, "the call is there: "+args, func() bool {
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
	var parked struct{ Result cmdtest.Required }
	json.Unmarshal([]byte(asked), &parked)
	again := fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept"}}`, parked.Result.State,
		parked.Result.Key())
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
	cmdtest.Until(t, "a host alone is asked", func() bool {
		return strings.Contains(<-start(ctx, "ask", `{"method":"elicitation/create","params":{"message":"name?"}}`, ""),
			"name?")
	})
	stop()
	w.Clean()
}

// A child that has closed its input is told of as that, and is started again.
func TestCallOfAChildThatHasClosedItsInput(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"FAKE_TOOLS=shut,echo,crash"}, "--mcp", "kid="+cmdtest.FakeChild())
	m.Tool("shut", "{}")
	m.Tool("echo", "{}").MustFail(t, "child kid has closed its input")
	cmdtest.Until(t, "it is started again", func() bool { return !m.Tool("echo", "{}").Tool(t).IsError })
	// One that has just ended is told of with its last words.
	m.StartTool("crash", "{}")
	var ids []string
	for range 20 {
		ids = append(ids, m.StartTool("echo", `{"x":"`+strings.Repeat("x", 1<<16)+`"}`))
	}
	for range ids {
		r := m.Next()
		for r.Method != "" {
			r = m.Next()
		}
		if strings.Contains(r.Line, "does not read") {
			t.Errorf("%.300s", r.Line)
		}
	}
	m.Cmd.Process.Signal(syscall.SIGTERM)
	m.Wait()
	w.Clean()
}

// Children may list other tools to other hosts. None takes them away from
// another, and the list of one host is not that of the next one for long, be
// it of the same bmcp or of the next.
func TestMCPToolsOfSeveralHosts(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser", "FAKE=bycaps",
		"FAKE_TOOLS=echo"},
		"--mcp", "kid="+cmdtest.FakeChild())
	lists := func(h *cmdtest.WebHost) bool {
		return strings.Contains(asks(h, "tools/list", "{}"), `"needs_elicitation"`)
	}
	a := cmdtest.NewWebHost(t, url)
	cmdtest.Until(t, "one host has it", func() bool { return lists(a) })
	b := cmdtest.InitializeWeb(t, url, "{}")
	cmdtest.Until(t, "the other one has not, without a call", func() bool { return !lists(b) })
	b.Tool("echo", "{}")
	if r := a.Tool("needs_elicitation", "{}").Text(); r != "needs_elicitation" || !lists(a) || lists(b) {
		t.Errorf("got %s; want the question at the host that can be asked, and its tool there alone", r)
	}
	stop()
	for range 2 {
		m := w.MCP([]string{"FAKE=bycaps", "FAKE_TOOLS=echo"}, "--mcp", "kid="+cmdtest.FakeChild())
		cmdtest.Until(t, "the next one has it", func() bool { return slices.Contains(m.Tools(), "needs_elicitation") })
		m.End()
	}
	w.Clean()
}
