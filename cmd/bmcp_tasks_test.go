//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/tools/tasks"
)

// agent uses the tools of a bmcp.
type agent struct {
	t *testing.T
	m *mcp
}

// result calls a tool and returns its result, as MCP has it.
func (m *mcp) result(name, args string) (json.RawMessage, error) {
	id := m.startTool(name, args)
	for late := time.After(2 * patience); ; {
		select {
		case line, ok := <-m.lines:
			var r rpc
			if !ok || json.Unmarshal([]byte(line), &r) != nil {
				return nil, fmt.Errorf("bmcp has ended or writes no JSON: %.200q", line)
			}
			switch {
			case r.Method == "" && string(r.ID) == id && r.Error != nil:
				return nil, fmt.Errorf("error %d: %s", r.Error.Code, r.Error.Message)
			case r.Method == "" && string(r.ID) == id:
				return r.Result, nil
			}
		case <-late:
			return nil, fmt.Errorf("no answer within %v", 2*patience)
		}
	}
}

// call calls a tool, which has to answer.
func (a agent) call(name, format string, args ...any) (x toolResult) {
	a.t.Helper()
	began := time.Now()
	raw, err := a.m.result(name, fmt.Sprintf(format, args...))
	if took := time.Since(began); took > 2*time.Second {
		a.t.Logf("%s took %v: %.500s", name, took, raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, &x)
	}
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	return x
}

// wants calls a tool whose result has to have a text, and is an error or not.
func (a agent) wants(isError bool, text, name, format string, args ...any) toolResult {
	a.t.Helper()
	x := a.call(name, format, args...)
	if x.IsError != isError || !strings.Contains(x.text(), text) {
		a.t.Errorf("%s %s: want %q, error %v; got error %v:\n%.3000s", name, fmt.Sprintf(format, args...), text,
			isError, x.IsError, x.text())
	}
	return x
}

// The tools do all tasks of the suite.
func TestBuiltinTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := tasks.Serve()
	defer site.Close()
	m := w.builtin()
	for _, task := range tasks.All() {
		t.Run(task.Name, func(t *testing.T) {
			if err := site.Solve(task, m.result, m.cmd.Dir); err != nil {
				t.Errorf("%s\n%v", task.About, err)
				m.end() // what it has open is not for the next task
				m = w.builtin()
				return
			}
			agent{t, m}.wants(false, "", "browser_close", "{}")
		})
	}
}
