//go:build linux

package main_test

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

	"btools/lib/cmdtest"
)

func TestPipelineOnRealBrowsers(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"chromium", "chrome-headless-shell", "firefox"} {
		t.Run(typ, func(t *testing.T) {
			w := cmdtest.New(t)
			if home := w.Dir + "/home"; typ == "firefox" { // Chromium makes ~/.cache/dconf, whatever the profile is
				os.Mkdir(home, 0o700)
				w.Env = append(w.Env, "HOME="+home)
				defer func() {
					if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
						t.Errorf("it has left %v in the home directory, %v", left, err)
					}
				}()
			}
			x := cmdtest.Parse(t, w.Run("sh", "-c", "bport | bfind --type "+typ+" | blaunch --timeout 60s"))
			if x.Browser.Type != typ || x.Browser.Version == "" || x.Instance.Port != x.Port ||
				x.Instance.Host != "127.0.0.1" {
				t.Errorf("record: %+v", x)
			}
			if l := cmdtest.Parse(t, w.Run("blaunch", "list")); l.Instance != x.Instance {
				t.Errorf("list says %+v, not %+v", l, x)
			}
			w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
			w.Clean()
			w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "is not running")
		})
	}
}

// A variable that sets a flag of blaunch is no flag before its commands.
func TestEnvironmentSetsFlags(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "BTOOLS_LOG_LEVEL=warn", "BTOOLS_BROWSER="+cmdtest.Bin+"/fakebrowser")
	x := cmdtest.Parse(t, w.Run("blaunch"))
	if x.Browser.Path != cmdtest.Bin+"/fakebrowser" {
		t.Errorf("the browser is %+v, want the fake one", x.Browser)
	}
	r := w.Run("blaunch", "stop", "--all")
	r.Exits(t, 0, "")
	if r.Err != "" {
		t.Errorf("not quiet: %s", r.Err)
	}
}

// Each thing that holds the browser is killed; what is left must go.
func TestDeathOnRealBrowser(t *testing.T) {
	t.Parallel()
	kill := func(pid int) { syscall.Kill(pid, syscall.SIGKILL) }
	t.Run("browser", func(t *testing.T) {
		w := cmdtest.New(t)
		kill(cmdtest.Parse(t, w.Run("blaunch")).Instance.PID)
		w.Clean()
	})
	t.Run("supervisor", func(t *testing.T) {
		for _, typ := range []string{"chromium", "firefox"} {
			w := cmdtest.New(t)
			kill(cmdtest.Parse(t, w.Run("blaunch", "--timeout", "60s", "--browser", typ)).Instance.SupervisorPID)
			cmdtest.Until(t, "the browser ends with its supervisor", func() bool { return len(w.Processes()) == 0 })
			if r := w.Run("blaunch", "gc"); !strings.Contains(r.Out, w.Dir+"/btools-inst_") {
				t.Errorf("gc does not say what it swept: %+v", r)
			}
			w.Clean()
		}
	})
	t.Run("caller", func(t *testing.T) {
		w := cmdtest.New(t)
		c := w.Cmd("blaunch", "--", "sleep", "1000")
		cmdtest.Start(t, c)
		cmdtest.Until(t, "the command runs", func() bool {
			return strings.Contains(strings.Join(w.Processes(), "\n"), "sleep 1000")
		})
		kill(c.Process.Pid)
		c.Wait()
		w.Clean()
	})
}

// A launch is killed at many moments, its parts by turns.
func TestKilledDuringLaunch(t *testing.T) {
	t.Parallel()
	step := 80
	if cmdtest.IsLong {
		step = 32
	}
	for _, who := range []string{"caller", "supervisor"} {
		w := cmdtest.New(t)
		for ms := 0; ms < 320; ms += step {
			c := w.Cmd("blaunch")
			out := cmdtest.StartRead(t, c)
			time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is what varies
			if who == "caller" {
				c.Process.Kill()
			} else {
				for _, p := range w.Processes() {
					if strings.Contains(p, "supervise") {
						pid, _ := strconv.Atoi(strings.Fields(p)[0])
						syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			}
			io.Copy(io.Discard, out)
			c.Wait()
			w.Run("blaunch", "stop", "--all")
		}
		w.Run("blaunch", "gc")
		w.Clean()
	}
}

func TestInterruptedDuringLaunch(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, mode := range [][]string{{}, {"--wait"}, {"--", "true"}} {
		c := w.Cmd("blaunch", append([]string{"--browser", cmdtest.Bin + "/fakebrowser", "--env", "FAKE=hang"},
			mode...)...)
		cmdtest.Start(t, c)
		cmdtest.Until(t, "the browser was started", func() bool {
			return strings.Contains(strings.Join(w.Processes(), "\n"), "--user-data-dir")
		})
		c.Process.Signal(syscall.SIGINT)
		c.Wait()
		if got := c.ProcessState.ExitCode(); got != 130 {
			t.Errorf("blaunch %v: exit %d, want 130", mode, got)
		}
		w.Clean()
	}
}

func TestWaitAndBind(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		c := w.Cmd("blaunch", "--wait")
		out := cmdtest.StartRead(t, c)
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Process.Signal(sig)
		if err := c.Wait(); err != nil {
			t.Errorf("told to stop by %v, --wait ends with %v", sig, err)
		}
		w.Clean()
	}

	// The shell's end is the browser's.
	r := w.Run("sh", "-c", "blaunch --bind-pid $$")
	cmdtest.Parse(t, r)
	w.Clean()
	end, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := w.Cmd("blaunch", "--no-input", "--bind-fd", "3", "-f", "instance.id")
	c.ExtraFiles = []*os.File{end}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.Processes()); n == 0 {
		t.Error("the browser ended before the descriptor")
	}
	end.Close()
	other.Close()
	w.Clean()
	cmdtest.Parse(t, w.Run("blaunch", "--ttl", "100ms"))
	w.Clean()
}

func TestCommand(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Pipe("in", "blaunch", "--", "sh", "-c",
		`cat; echo "$1 $2 $3 $BTOOLS_PORT $BTOOLS_CDP_URL $BTOOLS_WS_URL"; exit 7`, "sh", "{cdp_port}",
		"{cdp_endpoint}",
		"{ws_endpoint}")
	f := strings.Fields(r.Out)
	if r.Code != 7 || len(f) != 6 || f[0] != "in"+f[3] || f[1] != f[4] || f[2] != f[5] ||
		!strings.HasPrefix(f[5], "ws://127.0.0.1:"+f[3]+"/devtools/browser/") {
		t.Errorf("%+v; want exit 7, and the same port and address in arguments and environment", r)
	}
	w.Clean()
	w.Run("blaunch", "--", "sh", "-c", "kill -9 $$").Exits(t, 137, "")
	w.Run("blaunch", "--", w.Dir+"/none").Exits(t, 127, "not found")
	w.Run("blaunch", "--", "/etc/passwd").Exits(t, 126, "permission denied")
	w.Run("blaunch", "--").Exits(t, 64, "no command")
	w.Clean()
	c := w.Cmd("blaunch", "--browser", cmdtest.Bin+"/fakebrowser", "--", "sh", "-c",
		`trap "exit 9" TERM; echo ready; while :; do sleep 0.01; done`)
	out, _ := c.StdoutPipe()
	c.Start()
	out.Read(make([]byte, 1))
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	if c.ProcessState.ExitCode() != 9 {
		t.Errorf("TERM is not forwarded: %v", c.ProcessState)
	}
	w.Clean()
}

// The shell gets its prompt back: the supervisor holds none of its files.
func TestHoldsNothingOfTheShell(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Run("sh", "-c",
		`x=$(blaunch 2>&1); echo "$x" | grep -c '"instance"'; blaunch | head -1 >/dev/null; blaunch list `+
			`-f instance.pid`)
	if n := len(strings.Fields(r.Out)); r.Code != 0 || n != 3 {
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
			w := cmdtest.New(t)
			w.Fake(c.fake, c.args...).Exits(t, c.code, c.message)
			w.Clean()
		})
	}
	for _, f := range []string{"stubborn", "daemon", "flood", "floodline"} {
		t.Run(f, func(t *testing.T) {
			w := cmdtest.New(t)
			x := cmdtest.Parse(t, w.Fake(f))
			w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
			w.Clean()
		})
	}
}

// A daemon that left the group and session of its browser survives the
// supervisor, and is found by its mark.
func TestSweepFindsDaemon(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Fake("daemon"))
	syscall.Kill(x.Instance.SupervisorPID, syscall.SIGKILL)
	cmdtest.Until(t, "the supervisor is gone", func() bool {
		return !strings.Contains(strings.Join(w.Processes(), "\n"), "supervise")
	})
	w.Run("bport").Exits(t, 0, "") // whoever takes the lock sweeps
	w.Clean()
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, p := range []string{"bport", "bfind", "blaunch"} {
		w.Pipe("garbage\n", p).Exits(t, 65, "line 1 of the input is not a record")
		w.Pipe("\x00\xff\x01\n", p).Exits(t, 65, "is not a record")
		w.Pipe(strings.Repeat("x", 2<<20), p).Exits(t, 65, "longer than 1048576 bytes")
		w.Pipe(`{"v":99}`, p).Exits(t, 65, "update btools")
		w.Run(p, "--nonsense").Exits(t, 64, "see "+p+" --help")
		w.Run(p, "-f", "instance.nonsense").Exits(t, 64, "no record has a field")
		w.Run(p, "--output", "xml").Exits(t, 64, "--output is json or table")
	}
	w.Pipe(`{"browser":{"type":"chrome"}}`, "blaunch").Exits(t, 65, "has no path")
	w.Pipe(`{"browser":7}`, "blaunch").Exits(t, 65, "browser")
	w.Pipe(`{"port":"x"}`, "blaunch").Exits(t, 65, "port")
	w.Run("blaunch", "lst").Exits(t, 64, "did you mean list?")
	w.Run("blaunch", "--headless", "list").Exits(t, 64, "put it first")
	w.Run("blaunch", "stop", "nonsense").Exits(t, 64, "is not the ID of a browser")
	w.Run("blaunch", "--browser", "brave").Exits(t, 69, "no brave is installed")
	w.Run("blaunch", "--browser", "/etc/passwd").Exits(t, 69, "not executable")
	w.Run("blaunch", "--window-size", "big").Exits(t, 64, "--window-size")
	w.Run("blaunch", "--bind-pid", "999999999").Exits(t, 64, "no such process")
	w.Run("bfind", "--path", w.Dir+"/none").Exits(t, 69, "no such file")
	w.Run("bport", "--range", "9-1").Exits(t, 64, "--range")
	w.Run("bport", "--reserve", "25h").Exits(t, 64, "--reserve is 0s to 24h")
	w.Run("sh", "-c", "ulimit -n 5; exec bport").Exits(t, 1, "hint: allow more open files")
	w.Run("bproxy", "har", w.Dir).Exits(t, 65, "there are no traces in "+w.Dir)
	w.Clean()
}

func TestRecordPassesThrough(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Pipe(`{"x":12345678901234567890123,"v":1}`+"\n", "sh", "-c", "bport | bfind --type chromium")
	if !strings.HasPrefix(r.Out, `{"x":12345678901234567890123,"v":1,"port":`) ||
		!strings.Contains(r.Out, `,"browser":{"type":"chromium"`) {
		t.Errorf("%+v, want the record's own members first, as they were", r)
	}
}

func TestPortTakenAndProfileInUse(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch", "--profile", w.Dir+"/p "))
	if _, err := os.Stat(w.Dir + "/p"); err == nil {
		t.Error("its profile has another name: Chrome trims its arguments")
	}
	w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
	x = cmdtest.Parse(t, w.Run("blaunch", "--profile", w.Dir+"/p"))
	w.Run("blaunch", "--port", fmt.Sprint(x.Instance.Port)).Exits(t, 75,
		fmt.Sprintf("port %d is taken", x.Instance.Port))
	w.Run("blaunch", "--profile", w.Dir+"/p").Exits(t, 75, "blaunch stop "+x.Instance.ID)
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
	w.Clean()
	theirs := cmdtest.Parse(t, w.Run("blaunch", append(fakeArgs(""), "--profile", w.Dir+"/q", "--owner", "bmcp 7")...))
	r := w.Run("blaunch", append(fakeArgs(""), "--profile", w.Dir+"/q")...)
	if r.Exits(t, 75, " for bmcp 7"); strings.Contains(r.Err, "blaunch stop") || !strings.Contains(r.Err, "--state") {
		t.Errorf("whoever wants the profile of another program is advised %s", r.Err)
	}
	w.Run("blaunch", "stop", theirs.Instance.ID).Exits(t, 0, "")
	// A container that is gone has left Chrome's lock behind, also one with this
	// host's name, where the number is now a program's that is not a browser.
	host, _ := os.Hostname()
	for _, lock := range []string{"elsewhere-1", fmt.Sprintf("%s-%d", host, os.Getpid())} {
		os.Symlink(lock, w.Dir+"/p/SingletonLock")
		x = cmdtest.Parse(t, w.Run("blaunch", "--profile", w.Dir+"/p"))
		w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
	}
	if _, err := os.Stat(w.Dir + "/p/Default"); err != nil {
		t.Errorf("the profile is not kept: %v", err)
	}
}

func TestStateFaults(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	file := w.Dir + "/state/state.json"
	x := cmdtest.Parse(t, w.Fake(""))
	for _, bad := range []string{"garbage", `{"v":1,"instances":[{"id`, "", "\x00"} {
		for _, do := range []func(){
			func() { os.WriteFile(file, []byte(bad), 0o600) },
			func() { w.Run("bport").Exits(t, 0, "is damaged") },
			func() { os.RemoveAll(w.Dir + "/state") },
		} {
			do()
			if l := cmdtest.Parse(t, w.Run("blaunch", "list")); l.Instance != x.Instance {
				t.Errorf("the browser is lost with the file %q", bad)
			}
		}
		w.Run("bport").Exits(t, 0, "")
	}
	os.RemoveAll(w.Dir + "/state")
	w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
	w.Clean()
	os.WriteFile(file, []byte(`{"v":2}`), 0o600)
	w.Run("bport").Exits(t, 78, "newer btools")
	w.Run("blaunch").Exits(t, 78, "newer btools")
	// A recycled pid: a living process, another start time.
	os.WriteFile(file, fmt.Appendf(nil,
		`{"v":1,"instances":[{"id":"inst_1_aaaaaa","supervisor":{"pid":%d,"start":1,"boot":%q},"dirs":["/etc"]}]}`,
		os.Getpid(), cmdtest.Boot()), 0o600)
	w.Run("bport").Exits(t, 0, "refused to delete")
	os.Remove(file)
	os.Chown(w.Dir+"/state", 12345, 12345)
	w.Run("bport").Exits(t, 78, "belongs to another user")
	os.Chown(w.Dir+"/state", 0, 0)
}

func TestClosedStreams(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("sh", "-c", "blaunch >/dev/full").Exits(t, 1, "cannot write the result")
	w.Clean()
	if r := w.Run("sh", "-c", "blaunch <&- 2>&- | grep -c instance"); r.Out != "1\n" {
		t.Errorf("with closed descriptors: %+v, want a record", r)
	}
	w.Run("sh", "-c", "bport >/dev/full").Exits(t, 1, "cannot write the result")
}

func TestPortsAreDistinct(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range 60 {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r := w.Run("bport", "-n", "5", "-f", "port")
			mu.Lock()
			defer mu.Unlock()
			for _, p := range strings.Fields(r.Out) {
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
	r := w.Run("bport", "-n", "3", "--range", "47001-47002")
	r.Exits(t, 75, "no free port left in 47001-47002")
}
