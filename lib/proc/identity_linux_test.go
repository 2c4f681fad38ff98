package proc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A test that needs a program of its own runs this one again: what it is to
// do is named by this variable.
const role = "BTOOLS_PROC_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "tied":
		c := exec.Command("sleep", "1000")
		ended, err := StartTied(c, syscall.SIGKILL)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.Process.Pid)
		<-ended
	case "inherited":
		look := func() {
			err := exec.Command("test", "-e", "/proc/self/fd/3").Run()
			fmt.Println("handed on:", err == nil)
		}
		look()
		hidden := HideInherited()
		look()
		hidden.Show()
		look()
	case "childless":
		fmt.Println(Childless())
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			fmt.Println(err)
		}
		fmt.Println(Childless())
		c.Process.Kill()
		c.Wait()
		fmt.Println(Childless())
	}
}

// again is this program in a role.
func again(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), role+"="+what)
	return c
}

// sleeper starts a process that ends with the test.
func sleeper(t *testing.T, env ...string) (*exec.Cmd, Identity) {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.Env = append(os.Environ(), env...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	id, err := Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return c, id
}

// A number alone names nobody: the start time and the boot do.
func TestIdentity(t *testing.T) {
	c, id := sleeper(t)
	boot, namespace, _ := strings.Cut(id.Boot, "/")
	for _, x := range []struct {
		what         string
		id           Identity
		alive, local bool
	}{
		{"a process", id, true, true},
		{"another process with its number", Identity{id.PID, id.Start + 1, id.Boot}, false, true},
		{"one of an earlier boot", Identity{id.PID, id.Start, "another/" + namespace}, false, false},
		{"one of another PID namespace", Identity{id.PID, id.Start, boot + "/1"}, true, false},
		{"nobody", Identity{0, 0, id.Boot}, false, true},
	} {
		if alive, local := x.id.Alive(), x.id.Local(); alive != x.alive || local != x.local {
			t.Errorf("%s: alive %v, local %v; want %v, %v", x.what, alive, local, x.alive, x.local)
		}
		if x.what == "a process" {
			continue
		}
		if err := x.id.Signal(syscall.SIGKILL); err != ErrGone {
			t.Errorf("%s is sent a signal: %v, want %v", x.what, err, ErrGone)
		}
		if !x.alive {
			if err := x.id.Wait(t.Context()); err != nil {
				t.Errorf("the end of %s is waited for: %v", x.what, err)
			}
		}
	}
	elsewhere := Identity{id.PID, id.Start, boot + "/1"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := elsewhere.Wait(ctx); err != context.Canceled {
		t.Errorf("the end of one of another PID namespace: %v, want it waited for", err)
	}
	if !id.Alive() {
		t.Fatal("somebody else's signal has ended it")
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := id.Wait(t.Context()); err != nil || id.Alive() {
		t.Errorf("killed, and not waited for by its parent, it is alive: %v, %v", id.Alive(), err)
	}
	if _, err := Of(id.PID); err != ErrGone { // a zombie
		t.Errorf("its identity: %v, want %v", err, ErrGone)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil && err != ErrGone {
		t.Errorf("a signal to a zombie: %v", err)
	}
	c.Wait()
	for _, pid := range []int{c.Process.Pid, 0, -1} {
		if _, err := Of(pid); err != ErrGone {
			t.Errorf("the identity of %d: %v, want %v", pid, err, ErrGone)
		}
	}
}

func TestStartTime(t *testing.T) {
	const tick = 20 * time.Millisecond
	before := time.Now().Add(-tick)
	_, id := sleeper(t)
	after := time.Now().Add(tick)
	if got, ok := StartTime(id); !ok || got.Before(before) || got.After(after) {
		t.Errorf("it began at %v, want from %v to %v", got, before, after)
	}
}

// All with the mark are killed, whoever their parents are, and nobody else.
func TestKillMarked(t *testing.T) {
	mark := "BTOOLS_INSTANCE=inst_" + strconv.Itoa(os.Getpid()) + "_x"
	_, one := sleeper(t, mark)
	_, other := sleeper(t, mark+"y")
	c := exec.Command("sh", "-c", "setsid sh -c 'trap : TERM HUP; while :; do sleep 0.01; done' >/dev/null "+
		"2>&1 & echo $!")
	c.Env = append(os.Environ(), mark)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	killed, err := KillMarked(mark, "", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, pid := range killed {
		if seen[pid] {
			t.Errorf("%d is listed twice in %v", pid, killed)
		}
		seen[pid] = true
	}
	if !seen[one.PID] || one.Alive() {
		t.Errorf("%d has the mark: killed %v, alive %v", one.PID, killed, one.Alive())
	}
	if _, err := Of(pid); !seen[pid] || err != ErrGone {
		t.Errorf("%d has the mark and no parent: killed %v, its identity: %v", pid, killed, err)
	}
	if seen[other.PID] || !other.Alive() {
		t.Errorf("%d has another mark: killed %v, alive %v", other.PID, killed, other.Alive())
	}
	if killed, err := KillMarked(mark, "", 0); len(killed) > 0 || err != nil {
		t.Errorf("once more: killed %v, %v; want nobody", killed, err)
	}
}

// The kernel ends what is tied to a program that is killed, and not before.
func TestStartTied(t *testing.T) {
	c := again(t, "tied")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	id, err := Of(pid)
	if err != nil {
		t.Fatalf("the command has ended before: %v", err)
	}
	c.Process.Kill()
	c.Wait()
	if err := id.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := StartTied(exec.Command(t.TempDir()+"/none"), syscall.SIGKILL); err == nil {
		t.Error("what does not exist was started")
	}
}

// A descriptor of the shell's goes to nobody while it is hidden.
func TestHideInherited(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := again(t, "inherited")
	c.ExtraFiles = []*os.File{null}
	out, err := c.Output()
	if want := "handed on: true\nhanded on: false\nhanded on: true\n"; err != nil || string(out) != want {
		t.Errorf("%v:\n%swant\n%s", err, out, want)
	}
}

func TestChildless(t *testing.T) {
	if out, err := again(t, "childless").Output(); err != nil || string(out) != "true\nfalse\ntrue\n" {
		t.Errorf("before, with and after a child: %q, %v; want true, false, true", out, err)
	}
}
