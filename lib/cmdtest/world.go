//go:build linux

package cmdtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// World is one test's own state file, temporary directory and environment.
type World struct {
	T   *testing.T
	Dir string
	Env []string

	said *said
}

// said are the files with what programs have said on standard error, in the
// order of their start.
type said struct {
	mu    sync.Mutex
	files []*os.File
}

// New makes a world, and asserts at the test's end that nothing is left of it. If
// the test has failed, it says what the state file and the programs said.
func New(t *testing.T) *World {
	dir, err := shortDir()
	if err == nil { // for those that find what is left of it
		err = os.WriteFile(dir+"/test", []byte(t.Name()), 0o600)
		os.Mkdir(dir+"/said", 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &World{T: t, Dir: dir, said: &said{}}
	for _, kv := range os.Environ() {
		k, _, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"CHROME_PATH", "XDG_RUNTIME_DIR", "CI", "DISPLAY", "TMPDIR"}, k) &&
			!strings.HasPrefix(k, "BTOOLS_") {
			w.Env = append(w.Env, kv)
		}
	}
	w.Env = append(w.Env, "BTOOLS_STATE="+dir+"/state/state.json", "TMPDIR="+dir, "PATH="+Bin+":"+os.Getenv("PATH"),
		"CI=true",
		// The browser that costs least: tests name another kind where it matters.
		"BTOOLS_BROWSER=chrome-headless-shell",
		// Else a program that is built for -race waits a second at its end.
		"GORACE=atexit_sleep_ms=0 halt_on_error=1")
	t.Cleanup(func() {
		w.tell()
		if left, _ := filepath.Glob(dir + "/btools-*"); len(left) > 0 || len(w.State().Instances) > 0 {
			w.Run("blaunch", "stop", "--all", "--force")
			w.Run("blaunch", "gc")
		}
		w.Clean()
		os.RemoveAll(dir)
	})
	return w
}

// made counts the worlds of a package.
var made atomic.Int64

// shortDir makes a directory with a short name: sockets lie in it.
func shortDir() (string, error) {
	for {
		dir := fmt.Sprintf("%s/w%d", os.TempDir(), made.Add(1))
		if err := os.Mkdir(dir, 0o700); !os.IsExist(err) {
			return dir, err
		}
	}
}

// tell logs what explains a failure.
func (w *World) tell() {
	if !w.T.Failed() {
		return
	}
	state, _ := os.ReadFile(w.Dir + "/state/state.json")
	w.T.Logf("the state file of %s: %s", w.Dir, state)
	for _, f := range w.said.files {
		text, _ := os.ReadFile(f.Name())
		w.T.Logf("%s says:\n%s", filepath.Base(f.Name()), text[max(0, len(text)-16<<10):])
	}
}

// Cmd is a program that is to be started in the world, one of ours by its name
// alone. What it says on standard error is logged if the test fails.
func (w *World) Cmd(name string, args ...string) *exec.Cmd {
	w.T.Helper()
	c := w.cmd(name, args...)
	f, err := os.CreateTemp(w.Dir+"/said", filepath.Base(name)+"-")
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { f.Close() })
	w.said.mu.Lock()
	defer w.said.mu.Unlock()
	w.said.files = append(w.said.files, f)
	c.Stderr = f
	return c
}

// Start starts a program.
func Start(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
}

// StartRead starts a program whose output is read.
func StartRead(t *testing.T, c *exec.Cmd) io.ReadCloser {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	Start(t, c)
	return out
}

// StopAtEnd has the end of the test stop a program, if it still runs then, and log what
// it has said, if the test has failed.
func StopAtEnd(t *testing.T, c *exec.Cmd, said fmt.Stringer, stop func()) {
	t.Cleanup(func() {
		if c.ProcessState == nil {
			stop()
		}
		if t.Failed() {
			t.Logf("%s, %v, says:\n%s", filepath.Base(c.Path), c.ProcessState, said)
		}
	})
}

// Terminate ends a program by SIGTERM.
func Terminate(c *exec.Cmd) error {
	c.Process.Signal(syscall.SIGTERM)
	return c.Wait()
}

// startRecord starts a program until it has printed its record, and stops it at the
// test's end.
func startRecord(t *testing.T, c *exec.Cmd, said *SyncBuffer, stop func(), record any) {
	t.Helper()
	c.Stderr = said
	if err := json.NewDecoder(StartRead(t, c)).Decode(record); err != nil {
		c.Wait()
		t.Fatalf("no record: %v\n%s", err, said)
	}
	StopAtEnd(t, c, said, stop)
}

// Combined runs a program, and returns what it says on both streams.
func Combined(c *exec.Cmd) ([]byte, error) {
	c.Stderr = nil
	return c.CombinedOutput()
}

func (w *World) cmd(name string, args ...string) *exec.Cmd {
	path := name
	if p := filepath.Join(Bin, name); !strings.Contains(name, "/") {
		if _, err := os.Stat(p); err == nil {
			path = p
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), hung())
	w.T.Cleanup(cancel)
	launches := len(args) == 0 || strings.HasPrefix(args[0], "-")
	if launches && (name == "blaunch" || name == "bproxy") {
		args = append([]string{"--timeout", Patience.String()}, args...) // a later one overrides it
	}
	if launches && name == "blaunch" { // a test that is killed cannot stop it
		args = append([]string{"--bind-pid", strconv.Itoa(os.Getpid())}, args...)
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Env = w.Env
	c.WaitDelay = Patience // whoever it has left its standard error to
	return c
}

// Patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const Patience = time.Minute

// hung is how long a program may run: a test whose program hangs fails under
// its own name, and the others still run before go test ends them all. With LONG=1
// the official suite for MCP takes five minutes beside four busy processes.
func hung() time.Duration {
	if IsLong {
		return 9 * time.Minute
	}
	return 8 * time.Minute
}

// Run runs a program without input.
func (w *World) Run(name string, args ...string) Result { return w.Pipe("", name, args...) }

// Pipe runs a program with input on a pipe, or none if it is "".
func (w *World) Pipe(input, name string, args ...string) Result {
	w.T.Helper()
	c := w.cmd(name, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if input != "" {
		c.Stdin = strings.NewReader(input)
	}
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.T.Fatalf("%s %v: %v", name, args, err)
	}
	code := c.ProcessState.ExitCode()
	if ws := c.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return Result{out.String(), errs.String(), code}
}

// Result is what a program has printed, and its exit code.
type Result struct {
	Out, Err string
	Code     int
}

// Exits asserts an exit code, a part of the messages, and silence on standard
// output.
func (r Result) Exits(t *testing.T, code int, message string) {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Err, message) {
		t.Errorf("exit %d, want %d; messages:\n%swant %q", r.Code, code, r.Err, message)
	}
	if code != 0 && r.Out != "" {
		t.Errorf("standard output is not silent: %s", r.Out)
	}
}

// Record is a record of a browser.
type Record struct {
	Browser  struct{ Type, Path, Version string }
	Port     int
	X        int
	Instance struct {
		ID, Protocol, Host string
		PID                int
		SupervisorPID      int `json:"supervisor_pid"`
		Port               int
		HTTPURL            string `json:"http_url"`
		WSURL              string `json:"ws_url"`
		UserDataDir        string `json:"user_data_dir"`
		Temporary          bool
	}
}

// Parse reads the record that a program has printed; without one the test ends.
func Parse(t *testing.T, r Result) Record {
	t.Helper()
	var x Record
	if err := json.Unmarshal([]byte(r.Out), &x); err != nil || r.Code != 0 {
		t.Fatalf("exit %d, no record: %q\n%s", r.Code, r.Out, r.Err)
	}
	return x
}

// Fake launches the fake browser.
func (w *World) Fake(what string, args ...string) Result {
	common := []string{"--browser", Bin + "/fakebrowser", "--env", "FAKE=" + what, "--stop-timeout", "300ms"}
	return w.Run("blaunch", append(common, args...)...)
}

// Until waits for a condition.
func Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(Patience)
	for pause := 10 * time.Millisecond; !ok(); pause = min(pause*5/4, 200*time.Millisecond) { // many start a program
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(pause)
	}
}

// Processes lists the processes that belong to this test's browsers and
// supervisors: their environment names its directory.
func (w *World) Processes() []string {
	var found []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		env, err := os.ReadFile(p + "/environ")
		if err != nil || !bytes.Contains(env, []byte("BTOOLS_STATE="+w.Dir+"/")) {
			continue
		}
		if stat, err := os.ReadFile(p + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline")
		found = append(found, filepath.Base(p)+" "+strings.ReplaceAll(string(args), "\x00", " "))
	}
	return found
}

// Browsers are the process IDs of the browsers that run. A process that a browser starts
// looks like it until its own program begins.
func (w *World) Browsers() []string {
	var pids []string
	for _, o := range w.Processes() {
		if strings.Contains(o, "--user-data-dir") && !strings.Contains(o, "--type=") {
			pids = append(pids, strings.Fields(o)[0])
		}
	}
	all := slices.Clone(pids)
	return slices.DeleteFunc(pids, func(pid string) bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err != nil || slices.Contains(all, strings.Fields(rest)[1])
	})
}

// State reads the entries of the state file.
func (w *World) State() (f struct {
	Instances []struct {
		ID                  string
		Supervisor, Browser struct{ PID int }
	}
	Proxies, Pools, Calls []struct {
		Process struct{ PID int }
		Control string
		Names   []string
	}
}) {
	b, _ := os.ReadFile(w.Dir + "/state/state.json")
	json.Unmarshal(b, &f)
	return f
}

// Clean asserts that nothing is left: no process, directory or entry.
func (w *World) Clean() {
	w.T.Helper()
	end := time.Now().Add(Patience)
	for pause := 10 * time.Millisecond; len(w.Processes()) > 0 && time.Now().Before(end); pause = min(pause*5/4,
		200*time.Millisecond) {
		time.Sleep(pause)
	}
	if left := w.Processes(); len(left) > 0 {
		w.T.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	}
	if dirs, _ := filepath.Glob(w.Dir + "/btools-*"); len(dirs) > 0 {
		w.T.Errorf("directories are left: %v", dirs)
	}
	if dirs, _ := filepath.Glob(w.Dir + "/org.chromium*"); len(dirs) > 0 {
		w.T.Errorf("directories are left: %v", dirs)
	}
	if b, err := os.ReadFile(w.Dir + "/state/state.json"); err == nil {
		var f struct{ Instances []json.RawMessage }
		if err := json.Unmarshal(b, &f); err == nil && len(f.Instances) > 0 {
			w.T.Errorf("entries are left: %s", b)
		}
	}
}

// Boot identifies the boot and the PID namespace, as the state file does.
func Boot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(b)) + "/" + strings.Trim(ns, "pid:[]")
}

// SyncBuffer is what a program that runs has said so far.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// WriteFile writes a file, and the directories above it.
func WriteFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(name[:strings.LastIndexByte(name, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Get asks an endpoint and returns its answer. Headers are as in HTTP: "Host: a".
func Get(t *testing.T, method, url string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// IsLong is whether tests run all their rounds: LONG=1.
var IsLong = os.Getenv("LONG") != ""

// Long skips a test that shows with other clients or in another place what a
// shorter one shows; make test LONG=1 runs it. The whole suite has to fit into
// the time of CI.
func Long(t *testing.T) {
	t.Helper()
	if !IsLong {
		t.Skip("make test LONG=1 runs it")
	}
}

// KillHibernated kills a program with hibernated sessions, and asserts that they leave nothing.
func (w *World) KillHibernated(cmd *exec.Cmd) {
	w.T.Helper()
	if all, _ := filepath.Glob(w.Dir + "/btools-run_*/hibernated-*"); len(all) != 1 {
		w.T.Errorf("the hibernated session is in %q, want one file", all)
	}
	cmd.Process.Kill()
	cmd.Wait()
	Until(w.T, "the directory is gone", func() bool {
		w.Run("blaunch", "gc")
		return len(w.Dirs()) == 0
	})
	w.Clean()
}

// Display starts an X server and returns its name; the test is skipped where
// there is none.
func Display(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("Xvfb")
	if err != nil {
		t.Skip("Xvfb is not installed")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x := exec.Command(path, "-displayfd", "3", "-screen", "0", "1280x1024x24", "-nolisten", "tcp")
	x.ExtraFiles = []*os.File{w}
	err = x.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.Process.Kill()
		x.Wait()
	})
	number, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal("Xvfb has no display")
	}
	return ":" + strings.TrimSpace(number)
}

// FakeWindows puts on PATH what WSL has of Windows, played by programs of this
// system: blaunch.exe is blaunch, and fakes say what the others do.
func (w *World) FakeWindows() *World {
	w.T.Helper()
	bin, drive := filepath.Join(w.Dir, "windows"), filepath.Join(w.Dir, "c")
	os.MkdirAll(drive+"/nodejs/node_modules/npm/bin", 0o755)
	os.Mkdir(bin, 0o755)
	for path, text := range map[string]string{
		drive + "/nodejs/node_modules/npm/bin/npx-cli.js": "",
		drive + "/nodejs/node.exe": "#!/bin/sh\nprintf '%s\\n' \"$@\" >'" + w.Dir +
			"/node-args'\nexec fakechild\n",
		bin + "/cmd.exe": "#!/bin/sh\nprintf 'C:\\\\nodejs\\\\node.exe\\r\\n'\n",
		bin + "/wslpath": `#!/bin/sh
case $1 in
-w) case $2 in ` + drive + `*) printf '%s\n' "C:${2#` + drive + `}";;
	*) printf '%s\n' "//wsl.localhost/Test$2";; esac | tr / '\\';;
-u) printf '%s\n' "$2" | tr '\\' / | sed 's|^C:|` + drive + `|';;
esac
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			w.T.Fatal(err)
		}
	}
	return w.With("WSL_DISTRO_NAME=Test", "PATH="+bin+":"+w.Path())
}

// With returns the same world with more variables.
func (w *World) With(env ...string) *World {
	with := *w
	with.Env = append(slices.Clone(w.Env), env...)
	return &with
}

// OtherUser makes a home for another user, 65534, who may run these programs in the
// world's directory bin, and nothing else of ours. It skips the test unless root runs
// it.
func (w *World) OtherUser(programs ...string) (home string, as *syscall.SysProcAttr) {
	w.T.Helper()
	if os.Getuid() != 0 {
		w.T.Skip("it runs programs as another user")
	}
	const nobody = 65534
	home = w.Dir + "/home"
	if err := errors.Join(os.Chmod(w.Dir, 0o755), os.Mkdir(home, 0o755), os.Chown(home, nobody, nobody)); err != nil {
		w.T.Fatal(err)
	}
	for _, name := range programs {
		b, err := os.ReadFile(Bin + "/" + name)
		if err != nil {
			w.T.Fatal(err)
		}
		WriteFile(w.T, w.Dir+"/bin/"+name, string(b))
	}
	return home, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// NotifySocket opens a socket for what a program tells systemd; told asserts what comes next.
func (w *World) NotifySocket() (path string, told func(want ...string)) {
	w.T.Helper()
	path = w.Dir + "/notify"
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { l.Close() })
	said := make(chan string, 10000) // systemd reads at once, too: the socket itself holds ten
	go func() {
		defer close(said)
		for b := make([]byte, 100); ; {
			n, err := l.Read(b)
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	return path, func(want ...string) {
		w.T.Helper()
		for late := time.After(Patience); len(want) > 0; {
			got := ""
			select {
			case got = <-said:
			case <-late:
			}
			if got == want[0] {
				want = want[1:]
			} else if got != "WATCHDOG=1" {
				w.T.Fatalf("systemd is told %q, want %q", got, want[0])
			}
		}
	}
}

// Unit are the settings in the files of a systemd unit; those of a later file count.
func Unit(t *testing.T, files ...string) map[string]string {
	t.Helper()
	unit := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(Root + "/scripts/systemd/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				unit[name] = value
			}
		}
	}
	return unit
}

// Path is PATH.
func (w *World) Path() (path string) {
	for _, kv := range w.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	return path
}

// CountAwake returns how many sessions of the one bproxy have pages.
func (w *World) CountAwake() (n int) {
	for line := range strings.Lines(w.Run("bproxy", "session", "list", "-f", "session.name,session.hibernated").Out) {
		if !strings.Contains(line, "true") {
			n++
		}
	}
	return n
}

// Node runs a client of scripts/clients, which says that it is done.
func (w *World) Node(script string, args ...string) {
	w.T.Helper()
	dir := Clients(w.T)
	c := w.Cmd("node", append([]string{filepath.Join(dir, script)}, args...)...)
	if out, err := Combined(c); err != nil || string(out) != "done\n" {
		w.T.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// Events are the events that a command prints.
func (w *World) Events(program string, args ...string) *SyncBuffer {
	w.T.Helper()
	out := &SyncBuffer{}
	c := w.Cmd(program, append([]string{"watch", "-f", "event.event,event.why"}, args...)...)
	c.Stdout = out
	Start(w.T, c)
	w.T.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return out
}

// Downloads waits until a session or lease has n downloads, none of which is in
// progress, and returns their names, states and reasons.
func (w *World) Downloads(program, of string, n int) (got string) {
	w.T.Helper()
	Until(w.T, fmt.Sprint(n, " downloads"), func() bool {
		r := w.Run(program, "downloads", of, "-f", "download.name,download.state,download.why")
		r.Exits(w.T, 0, "")
		got = strings.ReplaceAll(r.Out, "\t", " ")
		return strings.Count(got, "\n") == n && !strings.Contains(got, "in_progress")
	})
	return got
}

// Dirs are the temporary directories of programs.
func (w *World) Dirs() []string {
	all, _ := filepath.Glob(w.Dir + "/btools-run_*")
	return all
}

// ReleaseAnother makes an event.
func ReleaseAnother(w *World, p *Pool) bool {
	w.Run("bpool", "drain").Exits(w.T, 0, "")
	w.Run("bpool", "drain", "--off").Exits(w.T, 0, "")
	return false
}

// SmallDisk is a directory with room for 256 KiB; fill leaves so much of it.
func (w *World) SmallDisk() (dir string, fill func(left int)) {
	w.T.Helper()
	dir = w.Dir + "/full"
	os.Mkdir(dir, 0o700)
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		w.T.Skipf("cannot mount: %v", err)
	}
	w.T.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir, func(left int) { os.WriteFile(dir+"/ballast", make([]byte, 256<<10-left), 0o600) }
}
