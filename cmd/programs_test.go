//go:build linux

package cmd_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestPipelineOnRealBrowsers(t *testing.T) {
	for _, typ := range []string{"chromium", "chrome-headless-shell", "firefox"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t)
			x := parse(t, w.run("sh", "-c", "bport | bfind --type "+typ+" | blaunch --timeout 60s"))
			if x.Browser.Type != typ || x.Browser.Version == "" || x.Instance.Port != x.Port ||
				x.Instance.Host != "127.0.0.1" {
				t.Errorf("record: %+v", x)
			}
			if l := parse(t, w.run("blaunch", "list")); l.Instance != x.Instance {
				t.Errorf("list says %+v, not %+v", l, x)
			}
			w.run("blaunch", "stop", x.Instance.ID).wants(t, 0, "")
			w.clean()
			w.run("blaunch", "stop", x.Instance.ID).wants(t, 0, "is not running")
		})
	}
}

// A variable that sets a flag of blaunch is no flag before its commands.
func TestEnvironmentSetsFlags(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "BTOOLS_LOG_LEVEL=warn", "BTOOLS_BROWSER="+bin+"/fakebrowser")
	x := parse(t, w.run("blaunch"))
	if x.Browser.Path != bin+"/fakebrowser" {
		t.Errorf("the browser is %+v, want the fake one", x.Browser)
	}
	r := w.run("blaunch", "stop", "--all")
	r.wants(t, 0, "")
	if r.err != "" {
		t.Errorf("not quiet: %s", r.err)
	}
}

// Each thing that holds the browser is killed; what is left must go.
func TestDeathOnRealBrowser(t *testing.T) {
	kill := func(pid int) { syscall.Kill(pid, syscall.SIGKILL) }
	t.Run("browser", func(t *testing.T) {
		w := newWorld(t)
		kill(parse(t, w.run("blaunch")).Instance.PID)
		w.clean()
	})
	t.Run("supervisor", func(t *testing.T) {
		for _, typ := range []string{"chromium", "firefox"} {
			w := newWorld(t)
			kill(parse(t, w.run("blaunch", "--timeout", "60s", "--browser", typ)).Instance.SupervisorPID)
			until(t, "the browser ends with its supervisor", func() bool { return len(w.ours()) == 0 })
			if r := w.run("blaunch", "gc"); !strings.Contains(r.out, w.dir+"/btools-inst_") {
				t.Errorf("gc does not say what it swept: %+v", r)
			}
			w.clean()
		}
	})
	t.Run("caller", func(t *testing.T) {
		w := newWorld(t)
		c := w.cmd("blaunch", "--", "sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the command runs", func() bool {
			return strings.Contains(strings.Join(w.ours(), "\n"), "sleep 1000")
		})
		kill(c.Process.Pid)
		c.Wait()
		w.clean()
	})
}

// A launch is killed at many moments, its parts by turns.
func TestKilledDuringLaunch(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"caller", "supervisor"} {
		w := newWorld(t)
		for ms := 0; ms < 320; ms += 32 {
			c := w.cmd("blaunch")
			out, _ := c.StdoutPipe()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is what varies
			if who == "caller" {
				c.Process.Kill()
			} else {
				for _, p := range w.ours() {
					if strings.Contains(p, "supervise") {
						pid, _ := strconv.Atoi(strings.Fields(p)[0])
						syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			}
			io.Copy(io.Discard, out)
			c.Wait()
			w.run("blaunch", "stop", "--all")
		}
		w.run("blaunch", "gc")
		w.clean()
	}
}

func TestInterruptedDuringLaunch(t *testing.T) {
	w := newWorld(t)
	for _, mode := range [][]string{{}, {"--wait"}, {"--", "true"}} {
		c := w.cmd("blaunch", append([]string{"--browser", bin + "/fakebrowser", "--env", "FAKE=hang"}, mode...)...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the browser was started", func() bool {
			return strings.Contains(strings.Join(w.ours(), "\n"), "--user-data-dir")
		})
		c.Process.Signal(syscall.SIGINT)
		c.Wait()
		if got := c.ProcessState.ExitCode(); got != 130 {
			t.Errorf("blaunch %v: exit %d, want 130", mode, got)
		}
		w.clean()
	}
}

func TestWaitAndBind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		c := w.cmd("blaunch", "--wait")
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Process.Signal(sig)
		if err := c.Wait(); err != nil {
			t.Errorf("told to stop by %v, --wait ends with %v", sig, err)
		}
		w.clean()
	}

	// The shell's end is the browser's.
	r := w.run("sh", "-c", "blaunch --bind-pid $$")
	parse(t, r)
	w.clean()
	end, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := w.cmd("blaunch", "--no-input", "--bind-fd", "3", "-f", "instance.id")
	c.ExtraFiles = []*os.File{end}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.ours()); n == 0 {
		t.Error("the browser ended before the descriptor")
	}
	end.Close()
	other.Close()
	w.clean()
	parse(t, w.run("blaunch", "--ttl", "100ms"))
	w.clean()
}

func TestCommand(t *testing.T) {
	w := newWorld(t)
	r := w.pipe("in", "blaunch", "--", "sh", "-c",
		`cat; echo "$1 $2 $3 $BTOOLS_PORT $BTOOLS_CDP_URL $BTOOLS_WS_URL"; exit 7`, "sh", "{cdp_port}",
		"{cdp_endpoint}",
		"{ws_endpoint}")
	f := strings.Fields(r.out)
	if r.code != 7 || len(f) != 6 || f[0] != "in"+f[3] || f[1] != f[4] || f[2] != f[5] ||
		!strings.HasPrefix(f[5], "ws://127.0.0.1:"+f[3]+"/devtools/browser/") {
		t.Errorf("%+v; want exit 7, and the same port and address in arguments and environment", r)
	}
	w.clean()
	w.run("blaunch", "--", "sh", "-c", "kill -9 $$").wants(t, 137, "")
	w.run("blaunch", "--", "/nonexistent").wants(t, 127, "not found")
	w.run("blaunch", "--", "/etc/passwd").wants(t, 126, "permission denied")
	w.run("blaunch", "--").wants(t, 64, "no command")
	w.clean()
	c := w.cmd("blaunch", "--browser", bin+"/fakebrowser", "--", "sh", "-c",
		`trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done`)
	out, _ := c.StdoutPipe()
	c.Start()
	out.Read(make([]byte, 1))
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	if c.ProcessState.ExitCode() != 9 {
		t.Errorf("TERM is not forwarded: %v", c.ProcessState)
	}
	w.clean()
}

// The shell gets its prompt back: the supervisor holds none of its files.
func TestHoldsNothingOfTheShell(t *testing.T) {
	w := newWorld(t)
	r := w.run("sh", "-c",
		`x=$(blaunch 2>&1); echo "$x" | grep -c '"instance"'; blaunch | head -1 >/dev/null; blaunch list `+
			`-f instance.pid`)
	if n := len(strings.Fields(r.out)); r.code != 0 || n != 3 {
		t.Errorf("%+v, want 3 browsers", r)
	}
}

func TestFakeBrowsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fake, message string
		code          int
		args          []string
	}{
		{"exit", "I would rather not", 1, nil},
		{"nodisplay", "no display", 69, nil},
		{"hang", "no endpoint after 300ms", 75, []string{"--timeout", "300ms"}},
		{"mute", "no endpoint after 300ms", 75, []string{"--timeout", "300ms"}},
		{"noserver", "is taken", 75, nil},
		{"otherport", "connection refused", 1, nil},
		{"stranger", "another browser answers", 75, nil},
		{"forks", "exited with code 0 before its endpoint answered", 1, nil},
	} {
		t.Run(c.fake, func(t *testing.T) {
			w := newWorld(t)
			w.fake(c.fake, c.args...).wants(t, c.code, c.message)
			w.clean()
		})
	}
	for _, f := range []string{"stubborn", "daemon", "flood", "floodline"} {
		t.Run(f, func(t *testing.T) {
			w := newWorld(t)
			x := parse(t, w.fake(f))
			w.run("blaunch", "stop", x.Instance.ID).wants(t, 0, "")
			w.clean()
		})
	}
}

// A daemon that left the group and session of its browser survives the
// supervisor, and is found by its mark.
func TestSweepFindsDaemon(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.fake("daemon"))
	syscall.Kill(x.Instance.SupervisorPID, syscall.SIGKILL)
	until(t, "the supervisor is gone", func() bool {
		return !strings.Contains(strings.Join(w.ours(), "\n"), "supervise")
	})
	w.run("bport").wants(t, 0, "") // whoever takes the lock sweeps
	w.clean()
}

func TestBadInput(t *testing.T) {
	w := newWorld(t)
	for _, p := range []string{"bport", "bfind", "blaunch"} {
		w.pipe("garbage\n", p).wants(t, 65, "line 1 of the input is not a record")
		w.pipe("\x00\xff\x01\n", p).wants(t, 65, "is not a record")
		w.pipe(strings.Repeat("x", 2<<20), p).wants(t, 65, "longer than 1048576 bytes")
		w.pipe(`{"v":99}`, p).wants(t, 65, "update btools")
		w.run(p, "--nonsense").wants(t, 64, "see "+p+" --help")
		w.run(p, "-f", "instance.nonsense").wants(t, 64, "no record has a field")
		w.run(p, "--output", "xml").wants(t, 64, "--output is json or table")
	}
	w.pipe(`{"browser":{"type":"chrome"}}`, "blaunch").wants(t, 65, "has no path")
	w.pipe(`{"browser":7}`, "blaunch").wants(t, 65, "browser")
	w.pipe(`{"port":"x"}`, "blaunch").wants(t, 65, "port")
	w.run("blaunch", "lst").wants(t, 64, "did you mean list?")
	w.run("blaunch", "--headless", "list").wants(t, 64, "put it first")
	w.run("blaunch", "stop", "nonsense").wants(t, 64, "is not the ID of a browser")
	w.run("blaunch", "--browser", "brave").wants(t, 69, "no brave is installed")
	w.run("blaunch", "--browser", "/etc/passwd").wants(t, 69, "not executable")
	w.run("blaunch", "--window-size", "big").wants(t, 64, "--window-size")
	w.run("blaunch", "--bind-pid", "999999999").wants(t, 64, "no such process")
	w.run("bfind", "--path", "/nonexistent").wants(t, 69, "no such file")
	w.run("bport", "--range", "9-1").wants(t, 64, "--range")
	w.clean()
}

func TestRecordPassesThrough(t *testing.T) {
	w := newWorld(t)
	r := w.pipe(`{"x":12345678901234567890123,"v":1}`+"\n", "sh", "-c", "bport | bfind --type chromium")
	if !strings.HasPrefix(r.out, `{"x":12345678901234567890123,"v":1,"port":`) ||
		!strings.Contains(r.out, `,"browser":{"type":"chromium"`) {
		t.Errorf("%+v, want the record's own members first, as they were", r)
	}
}

func TestPortTakenAndProfileInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := parse(t, w.run("blaunch", "--profile", w.dir+"/p"))
	w.run("blaunch", "--port", fmt.Sprint(x.Instance.Port)).wants(t, 75,
		fmt.Sprintf("port %d is taken", x.Instance.Port))
	w.run("blaunch", "--profile", w.dir+"/p").wants(t, 75, "is in use by pid")
	w.run("blaunch", "stop", "--all").wants(t, 0, "")
	w.clean()
	// A container that is gone has left Chrome's lock behind.
	os.Symlink("elsewhere-1", w.dir+"/p/SingletonLock")
	parse(t, w.run("blaunch", "--profile", w.dir+"/p"))
	if _, err := os.Stat(w.dir + "/p/Default"); err != nil {
		t.Errorf("the profile is not kept: %v", err)
	}
}

func TestStateFaults(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/state/state.json"
	x := parse(t, w.fake(""))
	for _, bad := range []string{"garbage", `{"v":1,"instances":[{"id`, "", "\x00"} {
		os.WriteFile(file, []byte(bad), 0o600)
		w.run("bport").wants(t, 0, "is damaged")
		if l := parse(t, w.run("blaunch", "list")); l.Instance != x.Instance {
			t.Errorf("the browser is lost with the file %q", bad)
		}
	}
	os.RemoveAll(w.dir + "/state")
	w.run("bport").wants(t, 0, "")
	w.run("blaunch", "stop", x.Instance.ID).wants(t, 0, "")
	w.clean()
	os.WriteFile(file, []byte(`{"v":2}`), 0o600)
	w.run("bport").wants(t, 78, "newer btools")
	w.run("blaunch").wants(t, 78, "newer btools")
	// A recycled pid: a living process, another start time.
	os.WriteFile(file, fmt.Appendf(nil,
		`{"v":1,"instances":[{"id":"inst_1_aaaaaa","supervisor":{"pid":%d,"start":1,"boot":%q},"dirs":["/etc"]}]}`,
		os.Getpid(), boot()), 0o600)
	w.run("bport").wants(t, 0, "refused to delete")
	os.Remove(file)
	os.Chown(w.dir+"/state", 12345, 12345)
	w.run("bport").wants(t, 78, "belongs to another user")
	os.Chown(w.dir+"/state", 0, 0)
}

func TestClosedStreams(t *testing.T) {
	w := newWorld(t)
	w.run("sh", "-c", "blaunch >/dev/full").wants(t, 1, "cannot write the result")
	w.clean()
	if r := w.run("sh", "-c", "blaunch <&- 2>&- | grep -c instance"); r.out != "1\n" {
		t.Errorf("with closed descriptors: %+v, want a record", r)
	}
	w.run("sh", "-c", "bport >/dev/full").wants(t, 1, "cannot write the result")
}

func TestPortsAreDistinct(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range 60 {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := w.run("bport", "-n", "5", "-f", "port")
			mu.Lock()
			defer mu.Unlock()
			for _, p := range strings.Fields(r.out) {
				if seen[p] {
					t.Errorf("port %s was handed out twice", p)
				}
				seen[p] = true
			}
		})
	}
	wg.Wait()
	if len(seen) != 300 {
		t.Errorf("%d ports, want 300", len(seen))
	}
	r := w.run("bport", "-n", "3", "--range", "47001-47002")
	r.wants(t, 75, "no free port left in 47001-47002")
}
