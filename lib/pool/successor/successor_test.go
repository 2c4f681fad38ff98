//go:build linux

package successor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/proc"
)

// role names what this program is to do as a successor, or as a service that is killed.
const role = "BTOOLS_SUCCESSOR_TEST"

func TestMain(m *testing.M) {
	before, err := Inherit() // in the process in between it does not return
	switch what := os.Getenv(role); {
	case what == "":
		os.Exit(m.Run())
	case what == "dies": // a service that starts a successor, and ends before it says a word
		os.Setenv(role, "serves")
		l, _ := net.Listen("unix", os.Args[1])
		if _, err := Start(context.Background(), os.Args, os.Environ(), "note", []net.Listener{l}); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	case err != nil:
		fmt.Println(err)
	case what == "hangs":
		time.Sleep(time.Hour)
	case what == "fails":
		before.Fail(errors.New("no good"))
	case what == "serves":
		if err := before.Ready(context.Background()); err != nil {
			os.Exit(1)
		}
		for {
			c, err := before.Sockets[0].Accept()
			if err != nil {
				os.Exit(1)
			}
			word := before.Note
			select {
			case <-before.Launch:
				word += " launches"
			default:
			}
			io.WriteString(c, word)
			c.Close()
		}
	}
	os.Exit(0)
}

// start starts a successor that has a socket, in a role.
func start(t *testing.T, what string, within time.Duration) (h *Heir, l net.Listener, err error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if l, err = net.Listen("unix", dir+"/s"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithTimeoutCause(t.Context(), within, errors.New("it is not ready in time"))
	defer cancel()
	h, err = Start(ctx, []string{os.Args[0], dir + "/s"}, append(os.Environ(), role+"="+what), "note",
		[]net.Listener{l})
	return h, l, err
}

// ask returns what the process that has the socket says.
func ask(t *testing.T, path string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, _ := io.ReadAll(c)
	return string(b)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain:", what)
		}
	}
}

// children counts the processes with this role.
func children(what string) (n int) {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		env, _ := os.ReadFile("/proc/" + p.Name() + "/environ")
		if strings.Contains(string(env), role+"="+what) {
			n++
		}
	}
	return n
}

// The successor serves when it is told to, and is no child of the service.
func TestSuccessor(t *testing.T) {
	h, l, err := start(t, "serves", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Process.Signal(syscall.SIGKILL)
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.Process.PID)); err == nil &&
		strings.Contains(string(stat), fmt.Sprintf(") S %d ", os.Getpid())) {
		t.Error("it is a child of the service")
	}
	h.Serve()
	path := l.Addr().String()
	if got := ask(t, path); got != "note" {
		t.Errorf("it says %q", got)
	}
	h.Launch()
	until(t, "it launches", func() bool { return ask(t, path) == "note launches" })
	// The listener of this process does not block, though it was handed on.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	closed := make(chan struct{})
	go func() {
		l.Accept()
		close(closed)
	}()
	l.Close()
	<-closed
}

// Nothing is left of a successor that is not ready.
func TestSuccessorFails(t *testing.T) {
	for what, want := range map[string]string{"hangs": "not ready in time", "fails": "no good",
		"ends": "before it was ready"} {
		if _, _, err := start(t, what, 2*time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("one that %s: %v, want %s", what, err, want)
		}
		until(t, "nothing is left", func() bool { return children(what) == 0 })
	}
	h, l, err := start(t, "serves", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	h.Refuse()
	if err := h.Process.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	l.Close()
}

// A successor that has lost the service takes its place.
func TestServiceDies(t *testing.T) {
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p, err := os.StartProcess(os.Args[0], []string{os.Args[0], dir + "/s"},
		&os.ProcAttr{Env: append(os.Environ(), role+"=dies"), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	until(t, "the successor serves", func() bool {
		c, err := net.Dial("unix", dir+"/s")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		return string(b) == "note launches" || string(b) == "note"
	})
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		args, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if strings.Contains(string(args), dir+"/s") {
			var pid int
			fmt.Sscan(e.Name(), &pid)
			if id, err := proc.Of(pid); err == nil {
				id.Signal(syscall.SIGKILL)
			}
		}
	}
}
