package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// taskHost is a host whose child has the tools echo, hang, which does not answer until
// the test does, and ask, which runs as a task of its own and asks the host.
type taskHost struct {
	*fixture
	mu    sync.Mutex
	calls []json.RawMessage // of hang, by their IDs at the child
	gone  []string          // those that were cancelled
	last  int
}

func newTaskHost(t *testing.T) *taskHost {
	h := &taskHost{}
	h.fixture = newFixture(t, func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
		switch {
		case m.Method == "tools/list":
			const schema = `"inputSchema":{"type":"object"}`
			return `{"tools":[{"name":"echo",` + schema + `},{"name":"hang",` + schema + `},{"name":"ask",` + schema +
				`,"execution":{"taskSupport":"optional"}}]}`, nil
		case m.Method == "notifications/cancelled":
			h.mu.Lock()
			h.gone = append(h.gone, string(jsonrpc.Get(m.Params, "requestId")))
			h.mu.Unlock()
		case m.IsResponse():
			h.mu.Lock()
			id := h.calls[len(h.calls)-1]
			h.mu.Unlock()
			child.say(string(jsonrpc.Response(id, json.RawMessage(`{"content":[{"type":"text","text":"it says `+
				jsonrpc.GetString(m.Result, "action")+`"}]}`))))
		case m.Method != "tools/call":
		case jsonrpc.GetString(m.Params, "name") == "echo":
			return `{"content":[{"type":"text","text":"echo"}]}`, nil
		default:
			h.mu.Lock()
			h.calls = append(h.calls, slices.Clone(m.ID))
			h.mu.Unlock()
			if jsonrpc.GetString(m.Params, "name") == "ask" {
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"name?"}}`)
			}
		}
		return wellBehaved(func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) { return "", nil })(child, m)
	})
	return h
}

// hanging is how many calls of hang are open or were.
func (h *taskHost) hanging() int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// answers answers the call of hang that came last.
func (h *taskHost) answers() {
	h.mu.Lock()
	id := h.calls[len(h.calls)-1]
	h.mu.Unlock()
	h.latest().say(string(jsonrpc.Response(id, json.RawMessage(`{"content":[]}`))))
	synctest.Wait()
}

// send sends a request and returns its ID.
func (h *taskHost) send(s *Host, method, params string) string {
	h.last++
	s.Handle(jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, h.last, method,
		params)))
	synctest.Wait()
	return fmt.Sprint(h.last)
}

// answer is the answer to a request, nil if there is none yet. Others stay.
func (h *taskHost) answer(id string) *jsonrpc.Message {
	synctest.Wait()
	h.fixture.mu.Lock()
	defer h.fixture.mu.Unlock()
	for _, line := range h.said {
		if m, err := jsonrpc.Parse([]byte(line)); err == nil && m.IsResponse() && string(m.ID) == id {
			return m
		}
	}
	return nil
}

// call is the result of a request, or its error.
func (h *taskHost) call(method, params string) string {
	h.t.Helper()
	m := h.answer(h.send(h.Host, method, params))
	if m == nil {
		h.t.Fatalf("%s %s is not answered", method, params)
	}
	return string(m.Result) + string(m.Error)
}

// bulk has commands executed as a task, and returns its ID.
func (h *taskHost) bulk(more string, tools ...string) string {
	h.t.Helper()
	var commands []string
	for _, tool := range tools {
		commands = append(commands, fmt.Sprintf(`{"tool":%q}`, tool))
	}
	got := h.call("tools/call", fmt.Sprintf(`{"name":"browser_execute_bulk","arguments":{"commands":[%s]%s},"task":{}}`,
		strings.Join(commands, ","), more))
	id := jsonrpc.GetString(json.RawMessage(got), "task", "taskId")
	if id == "" {
		h.t.Fatalf("no task: %s", got)
	}
	return id
}

func about(id string) string { return `{"taskId":"` + id + `"}` }

// is checks what tasks/get says of a task.
func (h *taskHost) is(id string, want ...string) {
	h.t.Helper()
	got := h.call("tasks/get", about(id))
	for _, part := range want {
		if !strings.Contains(got, part) {
			h.t.Errorf("%s, want %s", got, part)
		}
	}
}

func TestTaskOfBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		if got := h.call("tools/list", "{}"); strings.Count(got, `"execution":{"taskSupport":"optional"}`) != 2 {
			t.Errorf("%s, want two tools that run as tasks", got)
		}
		id := h.bulk("", "echo", "hang", "echo")
		h.is(id, `"status":"working"`, "command 2 of 3", "1 success, 1 running, 1 pending", `"ttl":3600000`)
		waits := h.send(h.Host, "tasks/result", about(id))
		if m := h.answer(waits); m != nil {
			t.Errorf("the result is there too early: %s", m.Raw)
		}
		h.answers()
		h.is(id, `"status":"completed"`, `"statusMessage":"3 success"`)
		again := h.call("tasks/result", about(id))
		got := string(h.answer(waits).Result)
		if got != again || !strings.Contains(got, `"states":["success","success","success"]`) ||
			!strings.Contains(got, `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`) {
			t.Errorf("%s and %s, want the result with the states and the task, twice", got, again)
		}
		if got := h.call("tasks/cancel", about(id)); !strings.Contains(got, "-32602") ||
			!strings.Contains(got, "completed already") {
			t.Errorf("cancelled after its end: %s", got)
		}
		time.Sleep(taskTTL - time.Second)
		h.is(id, `"status":"completed"`)
		time.Sleep(time.Second)
		h.is(id, "-32602", "there is no task")
		if got := h.call("tools/call", `{"name":"echo","task":{}}`); !strings.Contains(got, "-32601") {
			t.Errorf("a tool that does not run as a task: %s", got)
		}
		got = h.call("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"echo"}]}}`)
		if strings.Contains(got, "states") || !strings.Contains(got, `"success":true`) {
			t.Errorf("without a task: %s", got)
		}
	})
}

func TestTaskTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		for ttl, want := range map[string]string{"5000": `"ttl":5000`, "null": `"ttl":3600000`, "0": `"ttl":0`,
			"1e12": `"ttl":3600000`, "-1": "-32602", `"1"`: "-32602"} {
			if got := h.call("tools/call", `{"name":"browser_execute_bulk","task":{"ttl":`+ttl+
				`},"arguments":{"commands":[{"tool":"echo"}]}}`); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", ttl, got, want)
			}
		}
		time.Sleep(4 * time.Second)
		if got := h.call("tasks/list", "{}"); strings.Count(got, `"taskId"`) != 3 {
			t.Errorf("%s, want three tasks", got)
		}
		time.Sleep(time.Second)
		if got := h.call("tasks/list", "{}"); strings.Count(got, `"taskId"`) != 2 {
			t.Errorf("%s, want two tasks", got)
		}
		if got := h.call("tasks/list", `{"cursor":"x"}`); !strings.Contains(got, "-32602") {
			t.Errorf("a wrong cursor: %s", got)
		}
	})
}

// Tasks on one browser run one after the other; so many may wait, and one that was
// cancelled makes way at once.
func TestTasksQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		first := h.bulk("", "hang", "echo", "echo")
		var others []string
		for range maxQueuedTasks {
			others = append(others, h.bulk("", "hang"))
		}
		if got := h.call("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"echo"}]},`+
			`"task":{}}`); !strings.Contains(got, "limit 100") {
			t.Errorf("one more: %s", got)
		}
		if n := h.hanging(); n != 1 {
			t.Errorf("%d are executed", n)
		}
		h.is(others[99], `"status":"working"`, "waits for 100 before it")
		if got := h.call("tasks/cancel", about(others[0])); !strings.Contains(got, `"status":"cancelled"`) {
			t.Errorf("cancelled while it waits: %s", got)
		}
		if got := h.call("tasks/result", about(others[0])); !strings.Contains(got, `"states":["skipped"]`) {
			t.Errorf("its result: %s", got)
		}
		if got := h.call("tasks/cancel", about(first)); !strings.Contains(got, `"status":"cancelled"`) {
			t.Errorf("cancelled while it is executed: %s", got)
		}
		got := h.call("tasks/result", about(first))
		if !strings.Contains(got, `"states":["error","skipped","skipped"]`) ||
			!strings.Contains(got, "the task was cancelled") {
			t.Errorf("its result: %s", got)
		}
		if h.hanging(); len(h.gone) != 1 {
			t.Errorf("the child is told of %d calls that are cancelled, want 1", len(h.gone))
		}
		h.is(others[1], "command 1 of 1", `"status":"working"`)
		h.is(others[2], "waits for 1 before it")
		if n := h.hanging(); n != 2 {
			t.Errorf("%d were executed", n)
		}
		var told []string
		for _, line := range h.heard() {
			if strings.Contains(line, `"notifications/tasks/status"`) && strings.Contains(line, first) {
				m, _ := jsonrpc.Parse([]byte(line))
				told = append(told, jsonrpc.GetString(m.Params, "status"))
			}
		}
		if !slices.Equal(told, []string{"working", "cancelled"}) {
			t.Errorf("the host is told %v", told)
		}
	})
}

func TestTaskCommandIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		id := h.bulk(`,"stop_on_error":false`, "hang", "echo")
		time.Sleep(commandTimeout - time.Second)
		h.is(id, "command 1 of 2")
		time.Sleep(2 * time.Second)
		h.is(id, `"status":"completed"`, "1 success, 1 error")
		if got := h.call("tasks/result", about(id)); !strings.Contains(got, "it did not end within 1m0s") ||
			!strings.Contains(got, `"states":["error","success"]`) {
			t.Errorf("%s", got)
		}
	})
}

// mortal are claims on a browser that may end, or whose lease may.
type mortal struct {
	source.Browsers
	Browser      source.Browser
	died, lapsed chan struct{}
}

func (m *mortal) TryTake(source.BrowserRef) *source.Lease {
	return &source.Lease{Browser: m.Browser, Died: m.died, Lapse: func() <-chan struct{} { return m.lapsed },
		Release: func() {}}
}

func (m *mortal) Take(context.Context, source.BrowserRef) (*source.Lease, error) {
	return m.TryTake(source.BrowserRef{}), nil
}

// A browser that has ended, or whose lease has, fails the task that uses it, and those
// that wait for it, at once. The next one has another.
func TestTasksOfBrowserThatEnds(t *testing.T) {
	for name, end := range map[string]func(*mortal){
		"browser": func(m *mortal) { close(m.died) }, "lease": func(m *mortal) { close(m.lapsed) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newTaskHost(t)
				at := &mortal{Browsers: h.browsers, died: make(chan struct{}), lapsed: make(chan struct{})}
				h.browsers, h.server.Children[0] = at, driver
				h.shakeHands()
				first, second := h.bulk("", "echo", "hang", "echo"), h.bulk("", "echo")
				end(at)
				synctest.Wait()
				h.is(first, `"status":"failed"`, `"statusMessage":"INSTANCE_DISCONNECTED`)
				h.is(second, `"status":"failed"`, `"statusMessage":"INSTANCE_DISCONNECTED`)
				got := h.call("tasks/result", about(first))
				if !strings.Contains(got, `"states":["success","error","skipped"]`) ||
					!strings.Contains(got, `"isError":true`) {
					t.Errorf("%s", got)
				}
				at.died, at.lapsed = make(chan struct{}), make(chan struct{})
				h.is(h.bulk("", "echo"), `"status":"completed"`)
			})
		})
	}
}

// A child that reports the end of its browser before that is known is not believed to
// have another trouble.
func TestTaskWhoseChildKnowsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		at := &mortal{Browsers: h.browsers, died: make(chan struct{}), lapsed: make(chan struct{})}
		h.browsers, h.server.Children[0] = at, driver
		h.shakeHands()
		id := h.bulk(`,"stop_on_error":false`, "hang", "echo")
		h.latest().say(string(jsonrpc.Response(h.calls[0], faultResult(errors.New("target closed")))))
		synctest.Wait()
		time.Sleep(disconnectDelay / 2)
		close(at.died)
		synctest.Wait()
		h.is(id, `"status":"failed"`, `"statusMessage":"INSTANCE_DISCONNECTED`)
	})
}

// Tasks are their host's own, and end with its session.
func TestTasksOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.shakeHands()
		first, second := h.bulk("", "hang"), h.bulk("", "echo")
		other := &fixture{Host: h.Host, t: t} // its messages are those of the session below
		s := h.server.NewHost(func(_ json.RawMessage, _ bool, message []byte) {
			other.mu.Lock()
			defer other.mu.Unlock()
			other.said = append(other.said, string(message))
		}, false)
		last := func() string {
			all := other.heard()
			return all[len(all)-1]
		}
		s.Handle(jsonrpc.Parse([]byte(hello)))
		time.Sleep(time.Second)
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			h.send(s, method, about(first))
			if got := last(); !strings.Contains(got, "-32602") || !strings.Contains(got, "there is no task") {
				t.Errorf("%s of another session: %s", method, got)
			}
		}
		h.send(s, "tasks/list", "{}")
		if got := last(); !strings.Contains(got, `"tasks":[]`) {
			t.Errorf("the list of another session: %s", got)
		}
		s.Close()
		one, two := h.send(h.Host, "tasks/result", about(first)), h.send(h.Host, "tasks/result", about(second))
		h.Host.Close()
		for _, id := range []string{one, two} {
			if m := h.answer(id); m == nil || !strings.Contains(string(m.Raw), "the session has ended") {
				t.Errorf("the result after the end: %v", m)
			}
		}
		h.server.tasks.Do(func(all *taskTable) {
			if left, _, _ := all.List(h.name, "", 9, time.Now()); len(left) > 0 {
				t.Errorf("%d tasks are left", len(left))
			}
		})
	})
}

// Protocols before it have no tasks.
func TestNoTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		h.ask(strings.Replace(hello, mcp.Legacy, "2025-06-18", 1))
		time.Sleep(time.Second)
		if m := h.answer(`"hello"`); jsonrpc.Get(m.Result, "capabilities", "tasks") != nil {
			t.Errorf("%s, want no tasks", m.Raw)
		}
		h.call("tools/list", "{}")
		if got := h.call("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"echo"}]},`+
			`"task":{}}`); !strings.Contains(got, `"success":true`) {
			t.Errorf("%s, want the result", got)
		}
	})
}
