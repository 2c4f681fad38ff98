//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	. "btools/lib/cmdtest"
)

// A line of a batch that is too long is refused by its number, and the lines after it are run.
func TestCallBatchLongLine(t *testing.T) {
	t.Parallel()
	w := New(t)
	long := strings.Repeat("x", 1<<20)
	for _, line := range []string{"evaluate " + long, "evaluate " + long[:1<<18] + strings.Repeat("<", 1<<18)} {
		r := w.Pipe("nothing\n"+line+"\nneither\n"+line, "bmcp", "call", "--batch")
		lines := strings.Split(strings.TrimSpace(r.Out), "\n")
		if len(lines) != 4 || r.Code != 64 || !strings.Contains(lines[1], "line 2 is too long") ||
			!strings.Contains(lines[2], `no tool \"neither\"`) || !strings.Contains(lines[3], "line 4 is too long") {
			t.Errorf("exit %d\n%.1000s%s", r.Code, r.Out, r.Err)
		}
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

// The name of a session has a rule, and an empty one, such as that of a variable that is not set, means none.
func TestCallSessionNames(t *testing.T) {
	t.Parallel()
	w := New(t)
	for _, name := range []string{"", "a\nb", "\x1b[2J", "../x", strings.Repeat("x", 65)} {
		for _, args := range [][]string{{"call", "--session", name, "snapshot"}, {"end", "--session", name},
			{"end", name}} {
			if r := w.Run("bmcp", args...); r.Code != 64 || !strings.Contains(r.Err, "is 1 to 64 letters") {
				t.Errorf("%q: exit %d: %s", args, r.Code, r.Err)
			}
		}
	}
	w.Env = append(w.Env, "BTOOLS_SESSION=")
	w.Run("bmcp", "end").Exits(t, 0, "there is no session to end")
}

// A tool of a child that could not be started is not there, and the error says why.
func TestCallOfMissingChild(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.Run("bmcp", "call", "--mcp", "/nothere/server", "tool").Exits(t, 69, `there is no tool "tool"; `)
	w.Run("bmcp", "end").Exits(t, 0, "")
}

// The exit code of a call says that there is no browser.
func TestCallWithoutBrowser(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.Run("bmcp", "call", "--browser", w.Dir+"/nothere", "snapshot").Exits(t, 69, "nothere")
	if r := w.Pipe("snapshot\n", "bmcp", "call", "--batch", "--browser", w.Dir+"/nothere"); r.Code != 69 {
		t.Errorf("a batch: exit %d\n%s", r.Code, r.Out)
	}
	w.Run("bmcp", "end").Exits(t, 0, "")
}

// Files of a directory whose name is not UTF-8 are those of a call in it.
func TestCallInOddDirectory(t *testing.T) {
	t.Parallel()
	w := New(t)
	dir := w.Dir + "/caf\xe9"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := w.Cmd("bmcp", "call", "take_screenshot", "filename=page.png")
	cmd.Dir = dir
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(dir + "/page.png"); err != nil {
		t.Error(err)
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
