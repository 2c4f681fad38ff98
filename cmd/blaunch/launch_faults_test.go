//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/lifetime"
)

// fakeArgs are the arguments that launch the fake browser.
func fakeArgs(what string, args ...string) []string {
	return append([]string{"--browser", cmdtest.Bin + "/fakebrowser", "--env", "FAKE=" + what}, args...)
}

// The user's profile is saved on every way that a browser can end.
func TestProfileIsSaved(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, w *cmdtest.World, args []string){
		"stop": func(t *testing.T, w *cmdtest.World, args []string) {
			cmdtest.Parse(t, w.Run("blaunch", args...))
			w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
		},
		"the supervisor of a browser killed": func(t *testing.T, w *cmdtest.World, args []string) {
			x := cmdtest.Parse(t, w.Run("blaunch", args...))
			syscall.Kill(x.Instance.SupervisorPID, syscall.SIGKILL)
			cmdtest.Until(t, "the supervisor is gone", func() bool {
				return syscall.Kill(x.Instance.SupervisorPID,
					0) != nil
			})
			w.Run("bport").Exits(t, 0, "")
		},
		"the supervisor of a command killed": func(t *testing.T, w *cmdtest.World, args []string) {
			r := w.Run("blaunch",
				append(args, "--", "sh", "-c", `kill -9 $(blaunch list -f instance.supervisor_pid); sleep 1`)...)
			r.Exits(t, 1, "the supervisor of the browser ended: signal: killed")
		},
		"launch timed out": func(t *testing.T, w *cmdtest.World, args []string) {
			args[3] = "FAKE=saveslow"
			w.Run("blaunch", append(args, "--timeout", "5s")...).Exits(t, 75, "no endpoint after 5s")
		},
		"launch interrupted": func(t *testing.T, w *cmdtest.World, args []string) {
			args[3] = "FAKE=saveslow"
			c := w.Cmd("blaunch", append(args, "--wait")...)
			cmdtest.Start(t, c)
			cmdtest.Until(t, "the browser has started", func() bool {
				b, _ := os.ReadFile(w.Dir +
					"/log")
				return len(b) > 0
			})
			c.Process.Signal(syscall.SIGTERM)
			if c.Wait(); c.ProcessState.ExitCode() != 143 {
				t.Errorf("after SIGTERM: %v, want exit 143", c.ProcessState)
			}
		},
		"the record can't be printed": func(t *testing.T, w *cmdtest.World, args []string) {
			w.Run("sh", "-c", "exec blaunch --wait "+strings.Join(args, " ")+" >/dev/full").Exits(t, 1,
				"cannot write the result")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			end(t, w, fakeArgs("save", "--env", "FAKE_LOG="+w.Dir+"/log", "--profile", w.Dir+"/profile"))
			if b, _ := os.ReadFile(w.Dir + "/log"); !strings.HasSuffix(string(b), "saving\nsaved\n") {
				t.Errorf("the browser noted %q, want saving, saved", b)
			}
			w.Clean()
		})
	}
}

// A signal reaches the command once, and the command ends when it likes to.
func TestCommandIsToldOnce(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, sig := range []struct {
		name string
		syscall.Signal
	}{{"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"TERM", syscall.SIGTERM}} {
		// Not bash: it can lose a signal that comes just as a child has ended.
		c := w.Cmd("blaunch", append(fakeArgs(""), "--stop-timeout", "10s", "--", "sh", "-c",
			`for s in INT HUP TERM; do trap "echo $s; told=1" $s; done; echo ready
			for i in $(seq 1200); do [ "$told" ] && break; sleep 0.05; done
			for i in $(seq 10); do sleep 0.05; done; echo end`)...)
		var out cmdtest.SyncBuffer
		c.Stdout = &out
		cmdtest.Start(t, c)
		cmdtest.Until(t, "the command runs", func() bool { return strings.Contains(out.String(), "ready") })
		c.Process.Signal(sig.Signal)
		c.Wait()
		if want := "ready\n" + sig.name + "\nend\n"; out.String() != want || c.ProcessState.ExitCode() != 0 {
			t.Errorf("%s: the command printed %q and %v, want %q", sig.name, out.String(), c.ProcessState, want)
		}
		w.Clean()
	}
}

// A command that has heard a signal still ends with its owner.
func TestOwnerAfterSignal(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	owner := exec.Command("sleep", "1000")
	cmdtest.Start(t, owner)
	c := w.Cmd("blaunch", append(fakeArgs("", "--bind-pid", strconv.Itoa(owner.Process.Pid)), "--", "sh", "-c",
		`trap "echo INT" INT; trap "echo TERM; exit" TERM; echo ready; while :; do sleep 0.05; done`)...)
	var out cmdtest.SyncBuffer
	c.Stdout = &out
	cmdtest.Start(t, c)
	cmdtest.Until(t, "the command runs", func() bool { return strings.Contains(out.String(), "ready") })
	c.Process.Signal(syscall.SIGINT)
	cmdtest.Until(t, "the command was told", func() bool { return strings.Contains(out.String(), "INT") })
	owner.Process.Kill()
	owner.Wait()
	c.Wait()
	if want := "ready\nINT\nTERM\n"; out.String() != want {
		t.Errorf("the command printed %q, want %q", out.String(), want)
	}
	w.Clean()
}

// A terminal's Ctrl-C is the command's alone, however often it comes: the
// browser has its time to save.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	line := "exec blaunch " + strings.Join(fakeArgs("save", "--env", "FAKE_LOG="+w.Dir+"/log",
		"--profile", w.Dir+"/profile"), " ") +
		` -- sh -c 'trap "echo INT" INT; trap "echo TERM" TERM; echo ready
		while [ ! -e go ]; do sleep 0.05; done; echo end'`
	c := w.Cmd("script", "-qec", line, "/dev/null")
	c.Dir = w.Dir
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out cmdtest.SyncBuffer
	c.Stdout = &out
	cmdtest.Start(t, c)
	cmdtest.Until(t, "the command runs", func() bool { return strings.Contains(out.String(), "ready") })
	for n := 1; n <= 2; n++ {
		in.Write([]byte{3})
		cmdtest.Until(t, "the command was told", func() bool { return strings.Count(out.String(), "INT") == n })
		time.Sleep(lifetime.Burst)
	}
	os.WriteFile(w.Dir+"/go", nil, 0o600)
	err = c.Wait()
	got := strings.ReplaceAll(out.String(), "\r", "")
	if _, after, _ := strings.Cut(got, "ready\n"); err != nil ||
		strings.ReplaceAll(after, "^C", "") != "INT\nINT\nend\n" {
		t.Errorf("%v, the command printed %q", err, got)
	}
	if b, _ := os.ReadFile(w.Dir + "/log"); !strings.HasSuffix(string(b), "saving\nsaved\n") {
		t.Errorf("the browser noted %q, want saving, saved", b)
	}
	w.Clean()
}

// Whoever runs a command hears at once that its browser has ended.
func TestBrowserEndsUnderCommand(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	c := w.Cmd("blaunch", append(fakeArgs(""), "--", "sh", "-c",
		`kill -9 $(blaunch list -f instance.pid); while [ ! -e "$1" ]; do sleep 0.02; done`, "sh", w.Dir+"/go")...)
	var errs cmdtest.SyncBuffer
	c.Stderr = &errs
	cmdtest.Start(t, c)
	cmdtest.Until(t, "it is told", func() bool {
		return strings.Contains(errs.String(), "the browser ended while sh runs: the browser was killed by signal 9")
	})
	os.WriteFile(w.Dir+"/go", nil, 0o600)
	if c.Wait(); c.ProcessState.ExitCode() != 1 {
		t.Errorf("CMD without its browser: %v, want exit 1: %s", c.ProcessState, errs.String())
	}
	for _, after := range []string{"0", "0.02"} { // the end of CMD comes while what is left of it ends
		w.Run("blaunch", append(fakeArgs(""), "--", "sh", "-c",
			`kill -9 $(blaunch list -f instance.pid); sleep `+after)...).Exits(t, 1, "was killed by signal 9")
	}
	w.Run("blaunch", append(fakeArgs(""), "--ttl", "300ms", "--", "sleep", "1000")...).Exits(t, 143,
		"the browser's time to live (300ms) has expired: stopping sleep")
	w.Run("blaunch", append(fakeArgs(""), "--ttl", "300ms", "--wait")...).Exits(t, 0,
		"the browser's time to live (300ms) has expired: stopping it")
	w.Clean()
}

// A lock that somebody holds is waited for, but not deaf to signals.
func TestHeldLock(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bport").Exits(t, 0, "")
	lock, err := os.Open(w.Dir + "/state/state.lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var all []*exec.Cmd
	for _, args := range [][]string{append(fakeArgs("", "--wait"), "--no-input"), {"bproxy", "--no-input"},
		{"bpool", "serve", "--no-input"}} {
		name := "blaunch"
		if args[0][0] == 'b' {
			name, args = args[0], args[1:]
		}
		c := w.Cmd(name, args...)
		c.Stderr = &cmdtest.SyncBuffer{}
		cmdtest.Start(t, c)
		all = append(all, c)
	}
	for _, c := range all {
		lockWait := func() bool {
			open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Process.Pid))
			for _, f := range open {
				if to, _ := os.Readlink(f); to == lock.Name() {
					return true
				}
			}
			return false
		}
		cmdtest.Until(t, c.Args[0]+" waits for the lock", lockWait)
		c.Process.Signal(syscall.SIGTERM)
		c.Wait() // at the latest when the bound of the lock is over
		e := fmt.Sprint(c.Stderr)
		if !strings.Contains(e, "interrupted") && !strings.Contains(e, "it was told to stop") {
			t.Errorf("%s: %v, want it ended by TERM: %s", c.Args[0], c.ProcessState, e)
		}
	}
	lock.Close()
	w.Clean()
}

// Descriptors of a shell that the browser and its supervisor have no use for
// are not held open by them; the command gets them.
func TestInheritedDescriptors(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	launch := "blaunch " + strings.Join(fakeArgs(""), " ")
	w.Run("bash", "-c", `exec 9>"$1"; flock -n 9; `+launch+` >/dev/null`, "bash", w.Dir+"/lk")
	w.Run("flock", "-n", w.Dir+"/lk", "true").Exits(t, 0, "")
	if r := w.Run("bash", "-c", launch+` -- sh -c 'echo to 7 >&7' 7>&1`); r.Out != "to 7\n" {
		t.Errorf("descriptor 7 of CMD: %+v, want \"to 7\"", r)
	}
	w.Run("blaunch", append(fakeArgs(""), "--bind-fd", "57")...).Exits(t, 64, "is not open")
	w.Run("blaunch", append(fakeArgs(""), "--bind-fd", "0")...).Exits(t, 64, "it needs --no-input")
	w.Run("blaunch", append(fakeArgs(""), "--bind-fd", "2", "--no-input")...).Exits(t, 64, "3 or more, or 0")
	c := w.Cmd("blaunch", "--wait", "--no-input", "--bind-fd", "0", "--browser", cmdtest.Bin+"/fakebrowser", "-f",
		"instance.id")
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	c.Start()
	id, _ := bufio.NewReader(out).ReadString('\n')
	in.Close()
	if err := c.Wait(); err != nil || !strings.HasPrefix(id, "inst_") {
		t.Errorf("bound to standard input: %q, %v", id, err)
	}
	for args, says := range map[string]string{"--pipe-fd 57": "needs --wait", "--wait --pipe-fd 57": "is not a pipe",
		"--wait --pipe-fd 2": "3 or more", "--wait --port 0 --pipe-fd 57": "exclude each other"} {
		w.Run("blaunch", append(fakeArgs(""), strings.Fields(args)...)...).Exits(t, 64, says)
	}
	w.Run("sh", "-c", "exec blaunch --bind-fd 7 7</etc/passwd").Exits(t, 64, "is not a pipe, a socket or a terminal")
}

// Nothing of the working directory is run or read for want of a home.
func TestNoHome(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	evil := w.Dir + "/.cache/ms-playwright/chromium-1/chrome-linux/chrome"
	os.MkdirAll(filepath.Dir(evil), 0o700)
	os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+w.Dir+"/ran\n"), 0o700)
	os.MkdirAll(w.Dir+"/.config/btools", 0o700)
	os.WriteFile(w.Dir+"/.config/btools/pool.toml",
		[]byte("[pool.EVIL]\ninstances = 1\nis_default = true\nbrowser = '"+evil+"'\n"), 0o600)
	for _, home := range []string{"-u HOME", "HOME=.", "HOME="} {
		if r := w.Run("sh", "-c", "cd "+w.Dir+" && env "+home+" bfind"); strings.Contains(r.Out, ".cache") {
			t.Errorf("env %s bfind: %s", home, r.Out)
		}
		if r := w.Run("sh", "-c", "cd "+w.Dir+" && env "+home+" bpool check"); strings.Contains(r.Out+r.Err, "EVIL") {
			t.Errorf("env %s bpool check: %+v", home, r)
		}
	}
}

// The state is only kept where nobody else can change it.
func TestStateOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to play another user")
	}
	w := cmdtest.New(t)
	shared := w.Dir + "/shared"
	os.Mkdir(shared, 0o700)
	os.Chmod(shared, 0o777|os.ModeSticky)
	w.Run("env", "BTOOLS_STATE="+shared+"/state.json", cmdtest.Bin+"/bport").Exits(t, 78,
		"can be written by other users")
	// A link that another user put there is not followed.
	victim := w.Dir + "/victim"
	os.WriteFile(victim, []byte("precious"), 0o600)
	os.Mkdir(w.Dir+"/linked", 0o700)
	os.Symlink(victim, w.Dir+"/linked/state.json.new")
	w.Run("env", "BTOOLS_STATE="+w.Dir+"/linked/state.json", cmdtest.Bin+"/bport").Exits(t, 0, "")
	os.Symlink(victim, w.Dir+"/linked/other.lock")
	w.Run("env", "BTOOLS_STATE="+w.Dir+"/linked/other.json", cmdtest.Bin+"/bport").Exits(t, 78, "is not a regular file")
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("written through a link: %q", b)
	}
	// Another user's runtime directory counts as none.
	theirs := w.Dir + "/run"
	os.Mkdir(theirs, 0o700)
	os.Chown(theirs, 12345, 12345)
	w.Run("env", "-u", "BTOOLS_STATE", "XDG_RUNTIME_DIR="+theirs, cmdtest.Bin+"/bport").Exits(t, 0, "")
	if _, err := os.Stat(theirs + "/btools"); err == nil {
		t.Error("a directory was made in another user's runtime directory")
	}
	os.RemoveAll(w.Dir + "/btools-0")
}

// What is after "--" is the command's.
func TestFlagsOfTheCommand(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	record := `{"browser":{"type":"chromium","path":"` + cmdtest.Bin + `/fakebrowser"}}`
	for _, args := range [][]string{{"--browser", "nonesuch"}, {"--browser=nonesuch"}} {
		r := w.Pipe(record, "blaunch",
			append([]string{"-", "--", "sh", "-c", "blaunch list --no-input -f browser.path", "sh"}, args...)...)
		if r.Out != cmdtest.Bin+"/fakebrowser\n" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	r := w.Pipe(record, "blaunch", "-", "--arg", "--browser", "-f", "browser.path")
	if r.Out != cmdtest.Bin+"/fakebrowser\n" {
		t.Errorf("--arg --browser: %+v", r)
	}
}

// Paths that would become other paths on their way are refused.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("blaunch", fakeArgs("", "--profile", w.Dir+"/caf\xe9")...).Exits(t, 64, "is not valid UTF-8")
	w.Run("blaunch", fakeArgs("", "--arg", "--x=\xe9")...).Exits(t, 64, "is not valid UTF-8")
	for _, name := range []string{"TMPDIR", "BTOOLS_STATE"} {
		w.Run("env", name+"="+w.Dir+"/\xe9", cmdtest.Bin+"/bport").Exits(t, 64, name)
	}
	if left, _ := filepath.Glob(w.Dir + "/caf*"); len(left) > 0 {
		t.Errorf("made: %q", left)
	}
}

// A URL can't become an option of the browser, nor a relative path another.
func TestNamesOfThings(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("blaunch", fakeArgs("", "--url", "--renderer-cmd-prefix=evil")...).Exits(t, 64, "would take for an option")
	program, err := os.ReadFile(cmdtest.Bin + "/fakebrowser")
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.WriteFile(t, w.Dir+"/fakebrowser", string(program))
	rel := func(script string) cmdtest.Result { return w.Run("sh", "-c", "cd "+w.Dir+" && "+script) }
	if r := rel("bfind --path ./fakebrowser --first -f browser.path"); r.Out != w.Dir+"/fakebrowser\n" {
		t.Errorf("a relative --path: %+v, want an absolute one", r)
	}
	if r := rel("BTOOLS_BROWSER=./fakebrowser bfind --first -f browser.path"); r.Out != w.Dir+"/fakebrowser\n" {
		t.Errorf("a relative BTOOLS_BROWSER: %+v, want an absolute path", r)
	}
	r := rel("TMPDIR=tmp; mkdir $TMPDIR; export TMPDIR; blaunch --browser ./fakebrowser -f instance.user_data_dir")
	if !filepath.IsAbs(r.Out) {
		t.Errorf("with a relative TMPDIR: %+v, want an absolute profile", r)
	}
	r = w.Run("env", "BTOOLS_BROWSER="+w.Dir+"/none", cmdtest.Bin+"/blaunch", "--browser", "chrome-headless-shell",
		"-f", "browser.type")
	if r.Out != "chrome-headless-shell\n" {
		t.Errorf("--browser goes before BTOOLS_BROWSER: %+v", r)
	}
}

// A browser that can't be registered is stopped.
func TestUnregisteredBrowserIsStopped(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	browser := w.Dir + "/browser"
	// With the lock of the file: blaunch may be writing it.
	cmdtest.WriteFile(t, browser, "#!/bin/sh\n"+
		"flock \"${BTOOLS_STATE%/*}/state.lock\" sed -i 's/\"v\":1/\"v\":2/' \"$BTOOLS_STATE\""+
		"\nexec "+cmdtest.Bin+"/fakebrowser \"$@\"\n")
	w.Run("blaunch", "--browser", browser, "--env", "FAKE=slow").Exits(t, 78, "newer btools")
	os.Remove(w.Dir + "/state/state.json")
	w.Clean()
}

// What can't be cleaned up is tried and told once, not by each command.
func TestSweepFailsOnce(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bport").Exits(t, 0, "")
	os.WriteFile(w.Dir+"/state/state.json", fmt.Appendf(nil,
		`{"v":1,"instances":[{"id":"inst_1_aaaaaa","supervisor":{"pid":%d,"start":1,"boot":%q},"dirs":["/etc"]}]}`,
		os.Getpid(), cmdtest.Boot()), 0o600)
	w.Run("bport").Exits(t, 0, "refused to delete")
	if r := w.Run("bport"); r.Code != 0 || r.Err != "" {
		t.Errorf("the second one: %+v", r)
	}
	w.Run("blaunch", "gc").Exits(t, 0, "refused to delete")
	os.Remove(w.Dir + "/state/state.json")
}

// A browser of another state file lives on, whatever its directories lack.
func TestGCSparesTheLiving(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	long := w.Dir + "/a-rather-long-temporary-directory-as-ci-systems-have-it"
	os.Mkdir(long, 0o700)
	r := w.Run("env", append([]string{"TMPDIR=" + long, cmdtest.Bin + "/blaunch"}, fakeArgs("")...)...)
	x := cmdtest.Parse(t, r)
	old := time.Now().Add(-11 * 24 * time.Hour)
	gc := func() {
		t.Helper()
		for _, d := range []string{long, "/tmp", w.Dir} {
			dir := d + "/btools-" + x.Instance.ID
			os.Chtimes(dir, old, old)
		}
		w.Run("env", "BTOOLS_STATE="+w.Dir+"/b/state.json", "TMPDIR="+long, cmdtest.Bin+"/blaunch", "gc").Exits(t, 0,
			"")
		if err := syscall.Kill(x.Instance.PID, 0); err != nil {
			t.Errorf("the browser is gone: %v", err)
		}
	}
	gc()
	// A cleaner of old files was there.
	for _, d := range []string{long, "/tmp"} {
		files, _ := filepath.Glob(d + "/btools-" + x.Instance.ID + "/*")
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() {
				os.Remove(f)
			}
		}
	}
	gc()
	w.Run("blaunch", "stop", x.Instance.ID).Exits(t, 0, "")
	if left, _ := filepath.Glob("/tmp/btools-" + x.Instance.ID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	os.RemoveAll(long)
}

// What a lost state file does not name is swept once its supervisor is dead.
func TestGCSweepsTheDead(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Fake("daemon"))
	syscall.Kill(x.Instance.SupervisorPID, syscall.SIGKILL)
	cmdtest.Until(t, "the supervisor is gone", func() bool { return syscall.Kill(x.Instance.SupervisorPID, 0) != nil })
	os.RemoveAll(w.Dir + "/state")
	w.Run("blaunch", "gc").Exits(t, 0, "")
	w.Clean()
}

// systemd hears that the browser is ready, and that it stops.
func TestWaitTellsSystemd(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path, told := w.NotifySocket()
	c := w.Cmd("blaunch", fakeArgs("", "--wait")...)
	c.Env = append(c.Env, "NOTIFY_SOCKET="+path)
	cmdtest.Start(t, c)
	told("READY=1")
	c.Process.Signal(syscall.SIGTERM)
	told("STOPPING=1")
	c.Wait()
	w.Clean()
}

// A Firefox has no CDP endpoint to be told of.
func TestCommandWithFirefox(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("blaunch", "--browser", "firefox", "--", "true", "{cdp_endpoint}").Exits(t, 64,
		"Firefox speaks WebDriver BiDi, not CDP")
	r := w.Run("blaunch", "--browser", "firefox", "--timeout", "60s", "--", "sh", "-c",
		`echo "$BTOOLS_PROTOCOL [$BTOOLS_CDP_URL] $BTOOLS_WS_URL"`)
	if !strings.HasPrefix(r.Out, "bidi [] ws://127.0.0.1:") {
		t.Errorf("the environment of CMD with a Firefox: %+v, want bidi, no CDP address and a WebSocket", r)
	}
}

// The numbers of another PID namespace's /proc are nobody's here.
func TestForeignProc(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	if r := w.Run("unshare", "-pf", "true"); r.Code != 0 {
		t.Skip("no PID namespaces here: ", r.Err)
	}
	w.Run("unshare", append([]string{"-pf", cmdtest.Bin + "/blaunch"}, fakeArgs("")...)...).Exits(t, 1,
		"belongs to another PID namespace")
	w.Run("unshare", append([]string{"-pf", "--mount-proc", cmdtest.Bin + "/blaunch"},
		fakeArgs("", "-f", "instance.pid")...)...)
	cmdtest.Until(t, "all is gone", func() bool { return len(w.Processes()) == 0 })
	w.Run("blaunch", "gc").Exits(t, 0, "")
}

// A pipeline launches no other browser than the one asked for, and says so
// where it launches any at all.
func TestEmptyPipeline(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "BTOOLS_BROWSER=")
	w.Run("sh", "-c", "bfind --type brave | blaunch -").Exits(t, 65, "no record came on standard input")
	for _, script := range []string{"bfind --type brave | blaunch", "bfind --type brave | bport | blaunch"} {
		r := w.Run("sh", "-c", script+" -f browser.type")
		if r.Out != "chromium\n" || !strings.Contains(r.Err, "no brave found") ||
			!strings.Contains(r.Err, "no record came on standard input") {
			t.Errorf("%s: %+v", script, r)
		}
	}
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
}

// Browsers of other programs are theirs to stop.
func TestOwners(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	mine := cmdtest.Parse(t, w.Fake(""))
	theirs := cmdtest.Parse(t, w.Fake("", "--owner", "bpool A/0"))
	if r := w.Run("blaunch", "list", "--output", "table"); !strings.Contains(r.Out, "bpool A/0") {
		t.Errorf("list: %+v, want the owner bpool A/0", r)
	}
	r := w.Run("blaunch", "stop", "--all", "-f", "instance.id")
	if r.Code != 0 || r.Out != mine.Instance.ID+"\n" || !strings.Contains(r.Err, "left running for their owners: 1") {
		t.Errorf("stop --all: %+v, want %s alone stopped, and one left for its owner", r, mine.Instance.ID)
	}
	w.Run("blaunch", "stop", "--force").Exits(t, 64, "--force needs --all")
	r = w.Run("sh", "-c", "blaunch list -f instance.id | blaunch stop -f instance.id")
	if r.Out != theirs.Instance.ID+"\n" {
		t.Errorf("IDs on standard input: %+v", r)
	}
	w.Clean()
}

// Who has a port that is taken is told.
func TestWhoHasThePort(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Fake(""))
	w.Fake("", "--port", strconv.Itoa(x.Instance.Port)).Exits(t, 75,
		fmt.Sprintf("port %d is taken by the browser %s", x.Instance.Port, x.Instance.ID))
}

// The environment of a program that was started with nohup.
func TestNohup(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	c := w.Cmd("sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", cmdtest.Bin + "/blaunch", "--wait"},
		fakeArgs("")...)...)
	out := cmdtest.StartRead(t, c)
	out.Read(make([]byte, 1))
	c.Process.Signal(syscall.SIGHUP)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid)); err != nil ||
		!strings.Contains(string(b), "SigIgn:") {
		t.Errorf("a HUP that nohup ignores ended it: %v", err)
	}
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	r := w.Run("sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", cmdtest.Bin + "/blaunch"},
		append(fakeArgs(""), "--", "sh", "-c", "kill -HUP $PPID $$; echo alive")...)...)
	if r.Code != 0 || r.Out != "alive\n" {
		t.Errorf("a HUP that nohup ignores reached the command: %+v", r)
	}
	w.Clean()
}
