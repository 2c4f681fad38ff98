//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// bulkTask has commands executed as a task, and returns its ID.
func bulkTask(m *cmdtest.MCP, more string, commands ...string) string {
	m.T.Helper()
	var x struct{ Task struct{ TaskID string } }
	m.Call("tools/call", fmt.Sprintf(`{"name":"browser_execute_bulk","arguments":{%s"commands":[%s]},"task":{}}`, more,
		strings.Join(commands, ","))).Into(m.T, &x)
	return x.Task.TaskID
}

// taskState is what tasks/get says.
type taskState struct{ Status, StatusMessage string }

func task(m *cmdtest.MCP, id string) (s taskState) {
	m.T.Helper()
	m.Call("tasks/get", `{"taskId":"`+id+`"}`).Into(m.T, &s)
	return s
}

// says waits until a task says something of itself.
func says(m *cmdtest.MCP, id, what string) {
	m.T.Helper()
	cmdtest.Until(m.T, "the task says "+what, func() bool {
		s := task(m, id)
		return strings.Contains(s.Status+": "+s.StatusMessage, what)
	})
}

// taskStates waits for the result of a task: the states of its commands.
func taskStates(m *cmdtest.MCP, id string) string {
	m.T.Helper()
	var states []string
	r := m.Call("tasks/result", `{"taskId":"`+id+`"}`).Tool(m.T)
	if related, _ := json.Marshal(r.Meta["io.modelcontextprotocol/related-task"]); string(related) !=
		`{"taskId":"`+id+`"}` {
		m.T.Errorf("the result of task %s is related to %s", id, related)
	}
	all, _ := r.Struct["states"].([]any)
	for _, state := range all {
		states = append(states, fmt.Sprint(state))
	}
	return strings.Join(states, " ")
}

// Commands of fakechild.
const (
	quick  = `{"tool":"echo"}`
	silent = `{"tool":"silent"}` // it never answers
)

// Tasks on one browser run one after the other, those on others beside them, and all
// end with their browser, or with the session_id that it is for.
func TestMCPBulkTasks(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	first, second := bulkTask(m, "", quick, silent, quick), bulkTask(m, "", quick, `{"tool":"nonesuch"}`, quick)
	beside := bulkTask(m, `"session_id":"a",`, quick)
	if got := taskStates(m, beside); got != "success" {
		t.Errorf("beside the others: %s", got)
	}
	says(m, first, "command 2 of 3")
	if s := task(m, second); s.Status != "working" || !strings.Contains(s.StatusMessage, "waits for 1 before it") {
		t.Errorf("%+v, want that it waits", s)
	}
	m.Tool("echo", "{}").MustSucceed(t) // a call that is no task does not wait
	var cancelled taskState
	m.Call("tasks/cancel", `{"taskId":"`+first+`"}`).Into(t, &cancelled)
	if again := m.Call("tasks/cancel", `{"taskId":"`+first+`"}`); cancelled.Status != "cancelled" ||
		again.Error == nil || again.Error.Code != -32602 {
		t.Errorf("%+v, and again %s, want an error", cancelled, again.Line)
	}
	if got := taskStates(m, first); got != "success error skipped" {
		t.Errorf("cancelled: %s", got)
	}
	if got := taskStates(m, second); got != "success error skipped" {
		t.Errorf("with an error: %s", got)
	}

	gone := bulkTask(m, `"session_id":"a",`, silent)
	says(m, gone, "command 1 of 1")
	first, second = bulkTask(m, "", silent, quick), bulkTask(m, "", quick)
	says(m, first, "command 1 of 2")
	m.Tool("coordinator_stop_browser", `{"session_id":"a"}`)
	says(m, gone, "failed: INSTANCE_DISCONNECTED")
	if s := task(m, first); s.Status != "working" {
		t.Errorf("a task on another browser: %+v", s)
	}
	pid, _ := strconv.Atoi(w.Browsers()[0])
	syscall.Kill(pid, syscall.SIGKILL)
	says(m, first, "failed: INSTANCE_DISCONNECTED")
	says(m, second, "failed: INSTANCE_DISCONNECTED")
	if a, b := taskStates(m, first), taskStates(m, second); a != "error skipped" || b != "skipped" {
		t.Errorf("their commands: %s; %s", a, b)
	}
	if got := taskStates(m, bulkTask(m, "", quick)); got != "success" {
		t.Errorf("with another browser: %s", got)
	}
	bulkTask(m, "", silent) // which does not keep bmcp from ending
	m.End()
	w.Clean()
}

// Of pools, each instance has tasks of its own. They end with its lease.
func TestMCPBulkTasksOfPool(t *testing.T) {
	t.Parallel()
	for _, affinity := range []string{"session", "call"} {
		t.Run(affinity, func(t *testing.T) {
			w := cmdtest.New(t)
			w.Pool("_A_INSTANCES=2", "_A_AFFINITY="+affinity, "_A_LEASE_TTL=1h")
			m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
			const zero, one = `"browser_instance":"0",`, `"browser_instance":"1",`
			first := bulkTask(m, zero, silent)
			says(m, first, "command 1 of 1")
			second := bulkTask(m, zero, quick)
			if got := taskStates(m, bulkTask(m, one, quick)); got != "success" {
				t.Errorf("on the other instance: %s", got)
			}
			if s := task(m, second); !strings.Contains(s.StatusMessage, "waits for 1") {
				t.Errorf("%+v, want that it waits", s)
			}
			w.Run("bpool", "release", "--all").Exits(t, 0, "")
			says(m, first, "failed: INSTANCE_DISCONNECTED")
			says(m, second, "failed: INSTANCE_DISCONNECTED")
			third := bulkTask(m, zero, quick, silent)
			says(m, third, "command 2 of 2")
			for _, o := range w.Browsers() {
				pid, _ := strconv.Atoi(o)
				syscall.Kill(pid, syscall.SIGKILL)
			}
			says(m, third, "failed: INSTANCE_DISCONNECTED")
			if got := taskStates(m, third); got != "success error" {
				t.Errorf("with another lease, and without a browser: %s", got)
			}
			m.End()
		})
	}
}

// asks sends a request of a host by HTTP, and returns the answer as text.
func asks(h *cmdtest.WebHost, method, params string) string {
	h.T.Helper()
	r, _ := h.Ask(method, params)
	return r.Line
}

// bulkTask has a command executed as a task, and returns what names it in requests.
func startBulkTask(h *cmdtest.WebHost, command string) (about string) {
	h.T.Helper()
	body := asks(h, "tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[`+command+`]},"task":{}}`)
	_, rest, _ := strings.Cut(body, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return `{"taskId":"` + id + `"}`
}

// Another host does not see a task, and a task ends with its host's session.
func TestMCPBulkTasksOfHosts(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp",
		"kid="+cmdtest.FakeChild())
	one, two := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
	one.AwaitTools("echo")
	about := startBulkTask(one, silent)
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		if body := asks(two, method, about); !strings.Contains(body, "-32602") ||
			!strings.Contains(body, "there is no task") {
			t.Errorf("%s of another host: %s", method, body)
		}
	}
	if body := asks(one, "tasks/get", about); !strings.Contains(body, `"status":"working"`) {
		t.Errorf("its own host is told %s", body)
	}
	if body := asks(two, "tasks/result", startBulkTask(two, quick)); !strings.Contains(body, `"states":["success"]`) {
		t.Errorf("on the browser of the other host: %s", body)
	}
	ended := make(chan string)
	go func() { ended <- asks(one, "tasks/result", about) }()
	cmdtest.Until(t, "the command runs", func() bool {
		return strings.Contains(asks(one, "tasks/get", about),
			"1 running")
	})
	one.EndSession()
	if body := <-ended; !strings.Contains(body, "the session has ended") && !strings.Contains(body, "no such session") {
		t.Errorf("the result after the end of the session: %s", body)
	}
	stop()
	w.Clean()
}

// Hosts that have one browser together wait for each other's tasks.
func TestMCPBulkTasksOfSharedBrowser(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--shared", "--mcp",
		"kid="+cmdtest.FakeChild())
	one, two := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
	one.AwaitTools("echo")
	first := startBulkTask(one, silent)
	cmdtest.Until(t, "the command runs", func() bool {
		return strings.Contains(asks(one, "tasks/get", first),
			"1 running")
	})
	second := startBulkTask(two, quick)
	if body := asks(two, "tasks/get", second); !strings.Contains(body, "waits for 1 before it") {
		t.Errorf("%s, want that it waits", body)
	}
	one.EndSession()
	if body := asks(two, "tasks/result", second); !strings.Contains(body, `"states":["success"]`) {
		t.Errorf("after the end of the other host: %s", body)
	}
	stop()
	w.Clean()
}
