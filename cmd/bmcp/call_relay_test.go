//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "btools/lib/cmdtest"
)

// A command line that the service runs prints, saves and exits as one that the program itself runs, and the program
// initialises no library for it.
func TestCallRelayed(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	called(w, "--session", "s", "navigate", site+"/a")
	other := w.With("LC_ALL=C") // has a service of its own, so that the program makes the call
	for _, args := range [][]string{
		{"evaluate", "() => 'a\\\\b\\x00\\x1b\\n日本語'"},
		{"--raw", "evaluate", "() => [1, 'x']"},
		{"--raw", "evaluate", "() => ''"},
		{"-o", "json", "evaluate", "1 + 1"},
		{"--save", "-", "fetch", site + "/data"},
		{"evaluate", "() => nothing()"},
		{"click", "e999"},
		{"evaluat", "1"},
		{"--nothing", "evaluate", "1"},
		{"--bind-pid", "x", "evaluate", "1"},
		{"wait_for", "2.5"}, // so long that the program looks whether the service lives
		{"--save", "/dev/stdout", "evaluate", "1 + 1"},
		{"evaluate", "--help"},
	} {
		args = append([]string{"call", "--session", "s"}, args...)
		ours, theirs := w.Run("bmcp", args...), other.Run("bmcp", args...)
		if ours.Code != theirs.Code || ours.Out != theirs.Out || ours.Err != theirs.Err {
			t.Errorf("%q: exit %d\n%q\n%q\nthe program itself: exit %d\n%q\n%q", args, ours.Code, ours.Out, ours.Err,
				theirs.Code, theirs.Out, theirs.Err)
		}
	}
	dir := t.TempDir()
	c := w.With("BTOOLS_SESSION=s").Cmd("bmcp", "call", "--save", "page.png", "take_screenshot")
	c.Dir = dir
	if out, err := c.Output(); err != nil || string(out) != "page.png\n" {
		t.Errorf("a screenshot: %v, %q", err, out)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "page.png")); !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("its file begins with %.8q", b)
	}
	traced := w.With("GODEBUG=inittrace=1")
	traced.Run("bmcp", "call", "--session", "traced", "evaluate", "1 + 1").Exits(t, 0, "") // has the service started
	c = traced.Cmd("bmcp", "call", "--session", "traced", "evaluate", "1 + 1")
	var said strings.Builder
	c.Stderr = &said
	if out, err := c.Output(); err != nil || string(out) != "2\n" {
		t.Errorf("evaluate: %v, %q", err, out)
	}
	if !strings.Contains(said.String(), "init os ") || strings.Contains(said.String(), "readability") {
		t.Errorf("evaluate initialises\n%s", said.String())
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

// A service that is killed in a call is told of, as soon as it has ended.
func TestCallRelayedUntilDeath(t *testing.T) {
	t.Parallel()
	w := New(t)
	called(w, "--session", "s", "evaluate", "1")
	c := w.Cmd("bmcp", "call", "--session", "s", "evaluate", "() => new Promise(() => {})")
	var said SyncBuffer
	c.Stderr = &said
	Start(t, c)
	Until(t, "the call runs", func() bool { return strings.Contains(w.Run("bmcp", "sessions").Out, `"calls":1`) })
	for _, s := range w.State().Calls {
		syscall.Kill(s.Process.PID, syscall.SIGKILL)
	}
	if c.Wait(); c.ProcessState.ExitCode() != 75 || !strings.Contains(said.String(), "has ended during this call") {
		t.Errorf("exit %d\n%s", c.ProcessState.ExitCode(), said.String())
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
