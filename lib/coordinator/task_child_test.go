package coordinator

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// A tool of a child that says so runs as a task, too. What it asks is marked as the
// task's.
func TestTaskOfChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		got := h.call("tools/call", `{"name":"ask","task":{"ttl":60000}}`)
		id := jsonrpc.GetString(json.RawMessage(got), "task", "taskId")
		var question *jsonrpc.Message
		for _, line := range h.heard() {
			if m, _ := jsonrpc.Parse([]byte(line)); m.Method == "elicitation/create" {
				question = m
			}
		}
		if question == nil || jsonrpc.GetString(question.Params, "_meta", mcp.MetaTask, "taskId") != id {
			t.Fatalf("%v, want a question of task %s", question, id)
		}
		h.is(id, `"status":"input_required"`)
		h.ask(`{"jsonrpc":"2.0","id":` + string(question.ID) + `,"result":{"action":"accept"}}`)
		h.is(id, `"status":"completed"`)
		if got := h.call("tasks/result", about(id)); !strings.Contains(got, "it says accept") {
			t.Errorf("%s", got)
		}
	})
}

// What a tool's schema promises stays in its result, also if it runs as a task.
func TestTaskKeepsItsPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &taskHost{}
		behaves := wellBehaved(func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			return `{"content":[],"structuredContent":{"x":"` + strings.Repeat("a", 2*defaultMaxInline) + `"}}`, nil
		})
		h.fixture = newFixtureOf(t, Options{Large: Large{OfAll: true}}, kid{"c", func(p *fakeProgram,
			m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/list" {
				return `{"tools":[{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},` +
					`"execution":{"taskSupport":"optional"}}]}`, nil
			}
			return behaves(p, m)
		}})
		h.shakeHands()
		got := h.call("tools/call", `{"name":"echo","task":{}}`)
		got = h.call("tasks/result", about(jsonrpc.GetString(json.RawMessage(got), "task", "taskId")))
		if !strings.Contains(got, `"structuredContent"`) {
			t.Errorf("%s, want the structured content", got)
		}
	})
}

// A tool that its child runs as a task only is a task there, too.
func TestTaskOfChildThatInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &taskHost{}
		var result json.RawMessage // the ID of the request for it
		h.fixture = newFixture(t, func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			switch m.Method {
			case "initialize":
				return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{` +
					`"tools":{"call":{}}}}},"serverInfo":{"name":"c","version":"1"}}`, nil
			case "tools/list":
				return `{"tools":[{"name":"echo","inputSchema":{"type":"object"},` +
					`"execution":{"taskSupport":"required"}}]}`, nil
			case "tools/call":
				if jsonrpc.Get(m.Params, "task", "ttl") == nil {
					return "", jsonrpc.Errorf(jsonrpc.MethodNotFound, "it runs as a task only")
				}
				return `{"task":{"taskId":"theirs"}}`, nil
			case "tasks/result":
				h.mu.Lock()
				result = slices.Clone(m.ID)
				h.mu.Unlock()
			case "tasks/cancel":
				h.mu.Lock()
				h.gone = append(h.gone, jsonrpc.GetString(m.Params, "taskId"))
				h.mu.Unlock()
				return "{}", nil
			}
			return "", nil
		})
		h.shakeHands()
		create := func() string {
			got := h.call("tools/call", `{"name":"echo","task":{}}`)
			return jsonrpc.GetString(json.RawMessage(got), "task", "taskId")
		}
		id := create()
		h.is(id, `"status":"working"`)
		synctest.Wait()
		h.latest().say(string(jsonrpc.Response(result, json.RawMessage(
			`{"content":[{"type":"text","text":"done"}],"_meta":{"`+mcp.MetaTask+`":{"taskId":"theirs"},"a":1}}`))))
		synctest.Wait()
		h.is(id, `"status":"completed"`)
		if got := h.call("tasks/result", about(id)); !strings.Contains(got, `"text":"done"`) ||
			!strings.Contains(got, `"a":1`) || strings.Contains(got, "theirs") {
			t.Errorf("%s, want the child's result", got)
		}
		if h.call("tasks/cancel", about(create())); !slices.Equal(h.gone, []string{"theirs"}) {
			t.Errorf("the child is told to cancel %v", h.gone)
		}
	})
}

// Hosts of the stateless protocol that know the extension get tasks, and what these ask
// with them.
func TestTaskExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}`
		const knows = meta + `,"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
		with := func(id, more string) string { return `{"taskId":"` + id + `",` + more + "}" }
		if got := h.call("server/discover", "{"+knows+"}"); !strings.Contains(got,
			`"extensions":{"io.modelcontextprotocol/tasks":{}}`) || strings.Contains(got, `"tasks":{"list"`) {
			t.Errorf("%s, want the extension", got)
		}
		h.call("tools/list", "{"+knows+"}")
		time.Sleep(time.Second)
		bulk := `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"echo"}]},`
		if got := h.call("tools/call", bulk+meta+"}}}"); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("%s, want the result", got)
		}
		got := h.call("tools/call", bulk+knows+"}")
		id := jsonrpc.GetString(json.RawMessage(got), "taskId")
		if !strings.Contains(got, `"resultType":"task"`) || !strings.Contains(got, `"ttlMs":3600000`) {
			t.Errorf("%s, want a task", got)
		}
		if got := h.call("tasks/get", with(id, knows)); !strings.Contains(got, `"status":"completed"`) ||
			!strings.Contains(got, `"states":["success"]`) || strings.Contains(got, "related-task") {
			t.Errorf("%s, want the result", got)
		}
		for method, code := range map[string]string{"tasks/result": "-32601", "tasks/list": "-32601"} {
			if got := h.call(method, with(id, knows)); !strings.Contains(got, code) {
				t.Errorf("%s: %s, want %s", method, got, code)
			}
		}
		if got := h.call("tasks/get", with(id, meta+"}}")); !strings.Contains(got, "-32021") ||
			!strings.Contains(got, "requiredCapabilities") {
			t.Errorf("without the extension: %s", got)
		}
		if got := h.call("tasks/cancel", with(id, knows)); !strings.Contains(got, `"resultType":"complete"`) ||
			strings.Contains(got, "taskId") {
			t.Errorf("cancelled after its end: %s", got)
		}

		id = jsonrpc.GetString(json.RawMessage(h.call("tools/call", `{"name":"ask",`+knows+"}")), "taskId")
		time.Sleep(time.Second)
		got = h.call("tasks/get", with(id, knows))
		if !strings.Contains(got, `"status":"input_required"`) ||
			!strings.Contains(got, `"inputRequests":{"q":{"method":"elicitation/create"`) {
			t.Errorf("%s, want a question", got)
		}
		h.call("tasks/update", with(id, `"inputResponses":{"other":{}},`+knows))
		if got := h.call("tasks/get", with(id, knows)); !strings.Contains(got, `"status":"input_required"`) {
			t.Errorf("%s, want that it is still asked", got)
		}
		h.call("tasks/update", with(id, `"inputResponses":{"q":{"action":"accept"}},`+knows))
		if got := h.call("tasks/get", with(id, knows)); !strings.Contains(got, `"status":"completed"`) ||
			!strings.Contains(got, "it says accept") {
			t.Errorf("%s, want the result", got)
		}
		// Nobody answers this one.
		id = jsonrpc.GetString(json.RawMessage(h.call("tools/call", `{"name":"ask",`+knows+"}")), "taskId")
		time.Sleep(DefaultLimits.AwaitInput + time.Second)
		if got := h.call("tasks/get", with(id, knows)); !strings.Contains(got, "nobody has answered") {
			t.Errorf("%s, want its end", got)
		}
	})
}
