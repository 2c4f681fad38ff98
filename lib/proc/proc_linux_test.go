package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What can't be found out for want of descriptors is no evidence of an end.
func TestOutOfDescriptors(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	self := Self()
	parent, err := Of(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		open = append(open, f)
	}
	_, ofErr := Of(os.Getppid())
	selfAlive, parentAlive := self.Alive(), parent.Alive()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	waitErr := parent.Wait(ctx)
	open[0].Close()
	open = open[1:]
	if !selfAlive || !parentAlive {
		t.Errorf("this process alive: %v, its parent: %v", selfAlive, parentAlive)
	}
	if errors.Is(ofErr, ErrGone) {
		t.Errorf("Of: %v", ofErr)
	}
	if waitErr == nil {
		t.Error("the wait for a living process's end is over")
	}
}

// A shell that somebody has open in an instance's directory is not the
// instance's; a helper of a browser there, which shows no environment, is.
func TestMarked(t *testing.T) {
	dir := t.TempDir()
	start := func(env []string, name string, args ...string) *exec.Cmd {
		c := exec.Command(name, args...)
		c.Dir, c.Env = dir, env
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	marked := start([]string{"BTOOLS_INSTANCE=inst_1_aaaaaa"}, sleep, "1000")
	shell := start([]string{"SHELL=/bin/sh"}, sleep, "1000")
	titled := start([]string{}, "/bin/sh", "-c", "kill -STOP $$", "--type=renderer")
	var got []int
	for _, id := range Marked("BTOOLS_INSTANCE=inst_1_aaaaaa", dir) {
		got = append(got, id.PID)
	}
	for _, c := range []struct {
		what string
		pid  int
		want bool
	}{{"one with the mark", marked.Process.Pid, true},
		{"a program of somebody in the directory", shell.Process.Pid, false}, {"a helper", titled.Process.Pid, true}} {
		found := false
		for _, pid := range got {
			found = found || pid == c.pid
		}
		if found != c.want {
			t.Errorf("%s (%d) found: %v, want %v: %v", c.what, c.pid, found, c.want, got)
		}
	}
}

func TestIsEnvironment(t *testing.T) {
	for env, want := range map[string]bool{
		"SHELL=/bin/bash\x00TERM=xterm\x00": true, "": false, "--type=zygote --x=1": false,
		"omium/chromium --type=renderer\x00\x00": false, "\x00\x00A=b": false, "_=x": true,
	} {
		if got := isEnvironment([]byte(env)); got != want {
			t.Errorf("isEnvironment(%q) = %v", env, got)
		}
	}
}

// Grandchildren that have left the group and the session are killed too, and
// nobody else.
func TestKillDescendants(t *testing.T) {
	if err := Subreaper(); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("/bin/sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	KillDescendants()
	if err := id.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if !Self().Alive() {
		t.Error("this process is gone")
	}
}
