//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/tools/tasks"
)

// agent uses the tools of a bmcp.
type agent struct {
	t *testing.T
	m *cmdtest.MCP
}

// call calls a tool, which has to answer.
func (a agent) call(name, format string, args ...any) (x cmdtest.ToolResult) {
	a.t.Helper()
	began := time.Now()
	raw, err := a.m.Result(name, fmt.Sprintf(format, args...))
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
func (a agent) wants(isError bool, text, name, format string, args ...any) cmdtest.ToolResult {
	a.t.Helper()
	x := a.call(name, format, args...)
	if x.IsError != isError || !strings.Contains(x.Text(), text) {
		a.t.Errorf("%s %s: want %q, error %v; got error %v:\n%.3000s", name, fmt.Sprintf(format, args...), text,
			isError, x.IsError, x.Text())
	}
	return x
}

// The tools do the tasks of the suite: all of them with LONG=1, else each third one;
// TestTasks of lib/tools does the others.
func TestBuiltinTasks(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := tasks.Serve()
	defer site.Close()
	m := w.Builtin()
	for n, task := range tasks.All() {
		t.Run(task.Name, func(t *testing.T) {
			if n%3 > 0 {
				cmdtest.Long(t)
			}
			if err := site.Solve(task, m.Result, m.Cmd.Dir); err != nil {
				t.Errorf("%s\n%v", task.About, err)
				m.End() // what it has open is not for the next task
				m = w.Builtin()
				return
			}
			agent{t, m}.wants(false, "", "browser_tabs", `{"action":"new"}`)
			agent{t, m}.wants(false, "", "browser_tabs", `{"action":"close","index":0}`)
		})
	}
}
