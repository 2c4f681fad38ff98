//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// bulkTask has commands executed as a task, and returns its ID.
func (m *mcp) bulkTask(more string, commands ...string) string {
	m.t.Helper()
	var x struct{ Task struct{ TaskID string } }
	m.call("tools/call", fmt.Sprintf(`{"name":"browser_execute_bulk","arguments":{%s"commands":[%s]},"task":{}}`, more,
		strings.Join(commands, ","))).into(m.t, &x)
	return x.Task.TaskID
}

// taskState is what tasks/get says.
type taskState struct{ Status, StatusMessage string }

func (m *mcp) task(id string) (s taskState) {
	m.t.Helper()
	m.call("tasks/get", `{"taskId":"`+id+`"}`).into(m.t, &s)
	return s
}

// says waits until a task says something of itself.
func (m *mcp) says(id, what string) {
	m.t.Helper()
	until(m.t, "the task says "+what, func() bool {
		s := m.task(id)
		return strings.Contains(s.Status+": "+s.StatusMessage, what)
	})
}

// taskStates waits for the result of a task: the states of its commands.
func (m *mcp) taskStates(id string) string {
	m.t.Helper()
	var states []string
	r := m.call("tasks/result", `{"taskId":"`+id+`"}`).tool(m.t)
	if related, _ := json.Marshal(r.Meta["io.modelcontextprotocol/related-task"]); string(related) !=
		`{"taskId":"`+id+`"}` {
		m.t.Errorf("the result of task %s is related to %s", id, related)
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
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+fake())
	first, second := m.bulkTask("", quick, silent, quick), m.bulkTask("", quick, `{"tool":"nonesuch"}`, quick)
	beside := m.bulkTask(`"session_id":"a",`, quick)
	if got := m.taskStates(beside); got != "success" {
		t.Errorf("beside the others: %s", got)
	}
	m.says(first, "command 2 of 3")
	if s := m.task(second); s.Status != "working" || !strings.Contains(s.StatusMessage, "waits for 1 before it") {
		t.Errorf("%+v, want that it waits", s)
	}
	if r := m.tool("echo", "{}").tool(t); r.IsError { // a call that is no task does not wait
		t.Errorf("%+v", r)
	}
	var cancelled taskState
	m.call("tasks/cancel", `{"taskId":"`+first+`"}`).into(t, &cancelled)
	if again := m.call("tasks/cancel", `{"taskId":"`+first+`"}`); cancelled.Status != "cancelled" ||
		again.Error == nil || again.Error.Code != -32602 {
		t.Errorf("%+v, and again %s, want an error", cancelled, again.line)
	}
	if got := m.taskStates(first); got != "success error skipped" {
		t.Errorf("cancelled: %s", got)
	}
	if got := m.taskStates(second); got != "success error skipped" {
		t.Errorf("with an error: %s", got)
	}

	gone := m.bulkTask(`"session_id":"a",`, silent)
	m.says(gone, "command 1 of 1")
	first, second = m.bulkTask("", silent, quick), m.bulkTask("", quick)
	m.says(first, "command 1 of 2")
	m.tool("coordinator_stop_browser", `{"session_id":"a"}`)
	m.says(gone, "failed: INSTANCE_DISCONNECTED")
	if s := m.task(first); s.Status != "working" {
		t.Errorf("a task on another browser: %+v", s)
	}
	pid, _ := strconv.Atoi(w.browsers()[0])
	syscall.Kill(pid, syscall.SIGKILL)
	m.says(first, "failed: INSTANCE_DISCONNECTED")
	m.says(second, "failed: INSTANCE_DISCONNECTED")
	if a, b := m.taskStates(first), m.taskStates(second); a != "error skipped" || b != "skipped" {
		t.Errorf("their commands: %s; %s", a, b)
	}
	if got := m.taskStates(m.bulkTask("", quick)); got != "success" {
		t.Errorf("with another browser: %s", got)
	}
	m.bulkTask("", silent) // which does not keep bmcp from ending
	m.end()
	w.clean()
}

// Of pools, each instance has tasks of its own. They end with its lease.
func TestMCPBulkTasksOfPool(t *testing.T) {
	t.Parallel()
	for _, affinity := range []string{"session", "call"} {
		t.Run(affinity, func(t *testing.T) {
			w := newWorld(t)
			w.pool("_A_INSTANCES=2", "_A_AFFINITY="+affinity, "_A_LEASE_TTL=1h")
			m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
			const zero, one = `"browser_instance":"0",`, `"browser_instance":"1",`
			first := m.bulkTask(zero, silent)
			m.says(first, "command 1 of 1")
			second := m.bulkTask(zero, quick)
			if got := m.taskStates(m.bulkTask(one, quick)); got != "success" {
				t.Errorf("on the other instance: %s", got)
			}
			if s := m.task(second); !strings.Contains(s.StatusMessage, "waits for 1") {
				t.Errorf("%+v, want that it waits", s)
			}
			w.run("bpool", "release", "--all").wants(t, 0, "")
			m.says(first, "failed: INSTANCE_DISCONNECTED")
			m.says(second, "failed: INSTANCE_DISCONNECTED")
			third := m.bulkTask(zero, quick, silent)
			m.says(third, "command 2 of 2")
			for _, o := range w.browsers() {
				pid, _ := strconv.Atoi(o)
				syscall.Kill(pid, syscall.SIGKILL)
			}
			m.says(third, "failed: INSTANCE_DISCONNECTED")
			if got := m.taskStates(third); got != "success error" {
				t.Errorf("with another lease, and without a browser: %s", got)
			}
			m.end()
		})
	}
}

// asks sends a request of a host by HTTP, and returns the answer as text.
func (h *webHost) asks(method, params string) string {
	h.t.Helper()
	_, _, body := post(h.t, h.url, map[string]string{"Mcp-Session-Id": h.session},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, method, method, params))
	return body
}

// bulkTask has a command executed as a task, and returns what names it in requests.
func (h *webHost) bulkTask(command string) (about string) {
	h.t.Helper()
	body := h.asks("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[`+command+`]},"task":{}}`)
	_, rest, _ := strings.Cut(body, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return `{"taskId":"` + id + `"}`
}

// Another host does not see a task, and a task ends with its host's session.
func TestMCPBulkTasksOfHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	one, two := newWebHost(t, url), newWebHost(t, url)
	one.lists("echo")
	about := one.bulkTask(silent)
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
		if body := two.asks(method, about); !strings.Contains(body, "-32602") ||
			!strings.Contains(body, "there is no task") {
			t.Errorf("%s of another host: %s", method, body)
		}
	}
	if body := one.asks("tasks/get", about); !strings.Contains(body, `"status":"working"`) {
		t.Errorf("its own host is told %s", body)
	}
	if body := two.asks("tasks/result", two.bulkTask(quick)); !strings.Contains(body, `"states":["success"]`) {
		t.Errorf("on the browser of the other host: %s", body)
	}
	ended := make(chan string)
	go func() { ended <- one.asks("tasks/result", about) }()
	until(t, "the command runs", func() bool { return strings.Contains(one.asks("tasks/get", about), "1 running") })
	one.leaves()
	if body := <-ended; !strings.Contains(body, "the session has ended") && !strings.Contains(body, "no such session") {
		t.Errorf("the result after the end of the session: %s", body)
	}
	stop()
	w.clean()
}

// Hosts that have one browser together wait for each other's tasks.
func TestMCPBulkTasksOfSharedBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--shared", "--mcp", "kid="+fake())
	one, two := newWebHost(t, url), newWebHost(t, url)
	one.lists("echo")
	first := one.bulkTask(silent)
	until(t, "the command runs", func() bool { return strings.Contains(one.asks("tasks/get", first), "1 running") })
	second := two.bulkTask(quick)
	if body := two.asks("tasks/get", second); !strings.Contains(body, "waits for 1 before it") {
		t.Errorf("%s, want that it waits", body)
	}
	one.leaves()
	if body := two.asks("tasks/result", second); !strings.Contains(body, `"states":["success"]`) {
		t.Errorf("after the end of the other host: %s", body)
	}
	stop()
	w.clean()
}

// The SDK's client, by standard streams and by HTTP, with a real browser.
func TestMCPBulkTaskOfSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clients, err := filepath.Abs("../scripts/clients")
	if err != nil {
		t.Fatal(err)
	}
	host := func(argv ...string) {
		t.Helper()
		c := exec.Command(node(t), append([]string{clients + "/task.mjs"}, argv...)...)
		c.Env, c.Dir = slices.Concat(w.env, []string{"HOME=" + w.dir, "XDG_CACHE_HOME=" + w.dir}), w.dir
		var errs syncBuffer
		c.Stderr = &errs
		out, err := c.Output()
		var got struct {
			Offers                     bool
			Support, Last, Page, Error string
			TTL                        int
			States, Rest, Listed       []string
		}
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%v: %s\n%s", err, out, errs.String())
		}
		if !got.Offers || got.Support != "optional" || got.TTL != 60_000 || got.Last != "completed" ||
			!slices.Equal(got.States, []string{"success", "success"}) || !strings.Contains(got.Page, "by a task") ||
			!strings.Contains(got.Error, "was cancelled") || !slices.Equal(got.Rest, []string{"error", "skipped"}) ||
			!slices.Equal(got.Listed, []string{"completed", "cancelled"}) {
			t.Errorf("%+v, want one task that is completed and one that is cancelled", got)
		}
	}
	host(bin + "/bmcp")
	url, stop := w.serveMCP(nil)
	host(url)
	stop()
	w.clean()
}
