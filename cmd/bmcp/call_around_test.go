//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "btools/lib/cmdtest"
)

// callServices are the processes of the services of bmcp call.
func callServices(w *World) (pids []int) {
	w.T.Helper()
	var f struct {
		Calls []struct{ Process struct{ PID int } }
	}
	b, _ := os.ReadFile(w.Dir + "/state/state.json")
	if err := json.Unmarshal(b, &f); err != nil {
		w.T.Fatal(err)
	}
	for _, s := range f.Calls {
		pids = append(pids, s.Process.PID)
	}
	return pids
}

// A service for several callers holds nothing of one: a session has the environment and the directory of the call that
// begins it, and is found from others.
func TestCallSurroundings(t *testing.T) {
	t.Parallel()
	w := New(t)
	dirs := map[string]string{}
	for _, name := range []string{"gone", "A", "B"} {
		dirs[name] = w.Dir + "/" + name
		os.Mkdir(dirs[name], 0o700)
	}
	in := func(dir string, env string, args ...string) *exec.Cmd {
		c := w.With(env).Cmd("bmcp", append([]string{"call"}, args...)...)
		c.Dir = dir
		return c
	}
	says := func(c *exec.Cmd, want string) {
		t.Helper()
		if out, err := c.Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, it says %s, not %s", c.Args, err, out, want)
		}
	}
	// The services of the first two callers hold the secret of one, and a directory that is deleted later.
	first := in(dirs["A"], "TOKEN=of-A", "--session=a", "none")
	lock, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	first.ExtraFiles = []*os.File{held} // as of flock: it is free once the command has ended
	first.Run()
	held.Close()
	lock.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := lock.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the service holds a descriptor of the shell: %v", err)
	}
	in(dirs["B"], "TMPDIR="+dirs["gone"], "--session=gone", "none").Run()
	os.Remove(dirs["gone"])

	child := "--mcp=" + FakeChild()
	says(in(dirs["B"], "TOKEN=of-B", "--session=b", child, "where"), dirs["B"])
	says(in(dirs["A"], "TOKEN=of-A", "--session=b", "where"), dirs["B"])
	var environments []string
	programs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range programs {
		if path, err := os.Readlink(exe); err == nil && path == Bin+"/fakechild" {
			env, _ := os.ReadFile(filepath.Dir(exe) + "/environ")
			if strings.Contains(string(env), "BTOOLS_STATE="+w.Dir) {
				environments = append(environments, string(env))
			}
		}
	}
	if len(environments) != 1 || !strings.Contains(environments[0], "TOKEN=of-B") {
		t.Errorf("the children have %q", environments)
	}

	// A browser of all needs nothing of this, and gets none of it. Files are those of each call's directory.
	says(in(dirs["A"], "TOKEN=of-A", "--session=a", "evaluate", "6 * 7"), "42")
	says(in(dirs["B"], "TOKEN=of-B", "--session=d", "evaluate", "6 * 7"), "42")
	if b := w.Browsers(); len(b) != 2 {
		t.Errorf("%d browsers run", len(b))
	}
	pids := callServices(w)
	if len(pids) != 3 {
		t.Fatalf("the services are %v", pids)
	}
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
	if strings.Contains(string(env), "TOKEN") || !strings.Contains(string(env), "TMPDIR="+w.Dir) {
		t.Errorf("the service without programs has %q", env)
	}
	var all sync.WaitGroup
	for n := range 6 {
		for _, name := range []string{"A", "B"} {
			c := in(dirs[name], "", "--session=d", "take_screenshot", fmt.Sprintf("filename=%s%d.png", name, n))
			all.Go(func() {
				if err := c.Run(); err != nil {
					t.Errorf("%q: %v", c.Args, err)
				}
			})
		}
	}
	all.Wait()
	for _, name := range []string{"A", "B"} {
		if files, _ := filepath.Glob(dirs[name] + "/" + name + "*.png"); len(files) != 6 {
			t.Errorf("in %s are %q", name, files)
		}
	}

	if s := callSessions(w); len(s) != 4 {
		t.Errorf("the sessions are %+v", s)
	}
	w.Run("bmcp", "end", "b").Exits(t, 0, "")
	w.Run("bmcp", "end", "b").Exits(t, 69, "no session named b")
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
	w.Clean()
}
