//go:build linux

// Package cmd_test drives the built programs together, on real browsers, and
// on a fake one for what a real one can't be made to do.
//
// What more than one file of tests uses is in helpers_test.go, and in
// helpers_mcp_test.go what is about MCP hosts.
package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/websocket"
)

// bin holds the built programs and the fake browser.
var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bt-bin-")
	if err != nil {
		panic(err)
	}
	bin = dir
	// A signal that nohup has ignored is ignored by what we start as well; one
	// that is caught is not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	args := []string{"build", "-ldflags=-w", "-tags", "urfave_cli_no_docs", "-o", dir}
	if race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./bfind", "./bport", "./blaunch", "./bproxy", "./bpool", "./bmcp",
		"../scripts/fakebrowser", "../scripts/fakechild")...)
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is one test's own state file, temporary directory and environment.
type world struct {
	t   *testing.T
	dir string // short: sockets lie in it
	env []string
}

func newWorld(t *testing.T) *world {
	dir, err := os.MkdirTemp("/tmp", "bt-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir}
	for _, kv := range os.Environ() {
		k, _, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"CHROME_PATH", "XDG_RUNTIME_DIR", "CI", "DISPLAY", "TMPDIR"}, k) &&
			!strings.HasPrefix(k, "BTOOLS_") {
			w.env = append(w.env, kv)
		}
	}
	w.env = append(w.env, "BTOOLS_STATE="+dir+"/state/state.json", "TMPDIR="+dir, "PATH="+bin+":"+os.Getenv("PATH"),
		"CI=true",
		"GORACE=atexit_sleep_ms=0 halt_on_error=1") // a program that is built for -race else waits a second at its end
	t.Cleanup(func() {
		w.run("blaunch", "stop", "--all", "--force")
		w.run("blaunch", "gc")
		w.clean()
		os.RemoveAll(dir)
	})
	return w
}

func (w *world) cmd(name string, args ...string) *exec.Cmd {
	path := name
	if p := filepath.Join(bin, name); !strings.Contains(name, "/") {
		if _, err := os.Stat(p); err == nil {
			path = p
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	w.t.Cleanup(cancel)
	launches := len(args) == 0 || strings.HasPrefix(args[0], "-")
	if launches && (name == "blaunch" || name == "bproxy") {
		args = append([]string{"--timeout", patience.String()}, args...) // a later one overrides it
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Env = w.env
	c.WaitDelay = patience // whoever it has left its standard error to
	return c
}

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// hung is how long a program may run: a test whose program hangs fails under
// its own name, and the others still run. The official suite for MCP takes half of
// that beside four busy processes.
const hung = 10 * time.Minute

func (w *world) run(name string, args ...string) result { return w.pipe("", name, args...) }

// pipe runs a program with input on a pipe, or none if it is "".
func (w *world) pipe(input, name string, args ...string) result {
	w.t.Helper()
	c := w.cmd(name, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if input != "" {
		c.Stdin = strings.NewReader(input)
	}
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s %v: %v", name, args, err)
	}
	code := c.ProcessState.ExitCode()
	if ws := c.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return result{out.String(), errs.String(), code}
}

type result struct {
	out, err string
	code     int
}

// wants asserts an exit code, a part of the messages, and silence on standard
// output.
func (r result) wants(t *testing.T, code int, message string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.err, message) {
		t.Errorf("exit %d, want %d; messages:\n%swant %q", r.code, code, r.err, message)
	}
	if code != 0 && r.out != "" {
		t.Errorf("standard output is not silent: %s", r.out)
	}
}

type rec struct {
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

func parse(t *testing.T, r result) rec {
	t.Helper()
	var x rec
	if err := json.Unmarshal([]byte(r.out), &x); err != nil || r.code != 0 {
		t.Fatalf("exit %d, no record: %q\n%s", r.code, r.out, r.err)
	}
	return x
}

// fake launches the fake browser.
func (w *world) fake(what string, args ...string) result {
	common := []string{"--browser", bin + "/fakebrowser", "--env", "FAKE=" + what, "--stop-timeout", "300ms"}
	return w.run("blaunch", append(common, args...)...)
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// ours lists the processes that belong to this test's browsers and
// supervisors: their environment names its directory.
func (w *world) ours() []string {
	var found []string
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		env, err := os.ReadFile(p + "/environ")
		if err != nil || !bytes.Contains(env, []byte("BTOOLS_STATE="+w.dir+"/")) {
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

// browsers are the process IDs of the browsers that run.
func (w *world) browsers() (pids []string) {
	for _, o := range w.ours() {
		if strings.Contains(o, "--user-data-dir") && !strings.Contains(o, "--type=") {
			pids = append(pids, strings.Fields(o)[0])
		}
	}
	return pids
}

// own is the address of the one Chromium itself, past all sessions.
func (w *world) own() string {
	w.t.Helper()
	r := w.run("blaunch", "list", "-f", "instance.http_url")
	if urls := strings.Fields(r.out); r.code == 0 && len(urls) == 1 {
		return urls[0]
	}
	w.t.Fatalf("want one browser: %+v", r)
	return ""
}

// state reads the entries of the state file.
func (w *world) state() (f struct {
	Instances []struct {
		ID                  string
		Supervisor, Browser struct{ PID int }
	}
	Proxies, Pools []struct {
		Process struct{ PID int }
		Control string
		Names   []string
	}
}) {
	b, _ := os.ReadFile(w.dir + "/state/state.json")
	json.Unmarshal(b, &f)
	return f
}

// clean asserts that nothing is left: no process, directory or entry.
func (w *world) clean() {
	w.t.Helper()
	end := time.Now().Add(patience)
	for len(w.ours()) > 0 && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if left := w.ours(); len(left) > 0 {
		w.t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	}
	if dirs, _ := filepath.Glob(w.dir + "/btools-*"); len(dirs) > 0 {
		w.t.Errorf("directories are left: %v", dirs)
	}
	if dirs, _ := filepath.Glob(w.dir + "/org.chromium*"); len(dirs) > 0 {
		w.t.Errorf("directories are left: %v", dirs)
	}
	if b, err := os.ReadFile(w.dir + "/state/state.json"); err == nil {
		var f struct{ Instances []json.RawMessage }
		if err := json.Unmarshal(b, &f); err == nil && len(f.Instances) > 0 {
			w.t.Errorf("entries are left: %s", b)
		}
	}
}

func boot() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(b)) + "/" + strings.Trim(ns, "pid:[]")
}

// syncBuffer is what a program that runs has said so far.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// write writes a file, and the directories above it.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(name[:strings.LastIndexByte(name, '/')], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// get asks an endpoint and returns its answer.
func get(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
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

// proxy is a bproxy that runs.
type proxy struct {
	t    *testing.T
	w    *world
	cmd  *exec.Cmd
	errs syncBuffer
	addr string
	url  string
}

// proxy starts a bproxy; its end is the test's.
func (w *world) proxy(args ...string) *proxy {
	w.t.Helper()
	p := &proxy{t: w.t, w: w}
	p.cmd = w.cmd("bproxy", append([]string{"--no-input", "--health-timeout", patience.String()}, args...)...)
	p.start()
	return p
}

func (p *proxy) start() {
	p.t.Helper()
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	var x struct {
		Proxy struct {
			Port    int
			HTTPURL string `json:"http_url"`
		}
	}
	if err := json.NewDecoder(out).Decode(&x); err != nil {
		p.cmd.Wait()
		p.t.Fatalf("no record: %v\n%s", err, p.errs.String())
	}
	p.url, p.addr = x.Proxy.HTTPURL, "127.0.0.1:"+strconv.Itoa(x.Proxy.Port)
	p.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.stop()
		}
		if p.t.Failed() {
			p.t.Logf("bproxy says:\n%s", p.errs.String())
		}
	})
}

// stop has it end, and asserts that it does so well.
func (p *proxy) stop() {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("bproxy ended with %v", err)
	}
}

type status struct {
	Browser  struct{ Type string }
	Instance struct {
		ID        string
		PID, Port int
	}
	Status struct {
		State                string
		WebSockets, Launches int
		LastExit             string `json:"last_exit"`
		LastError            string `json:"last_error"`
	}
}

// do runs a command of bproxy on it.
func (p *proxy) do(args ...string) (s status) {
	p.t.Helper()
	r := p.w.run("bproxy", append(args, strings.TrimPrefix(p.addr, "127.0.0.1:"))...)
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || r.code != 0 {
		p.t.Fatalf("%v: exit %d %s", args, r.code, r.err)
	}
	return s
}

// socket opens a WebSocket, or what passes for one with the fake browser.
func (p *proxy) socket(path string, headers ...string) (net.Conn, *http.Response) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	head := "GET " + path + " HTTP/1.1\r\nHost: " + p.addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	return c, resp
}

// sessions are the names of the sessions that are there.
func (p *proxy) sessions() string {
	p.t.Helper()
	r := p.w.run("bproxy", "session", "list", "-f", "session.name")
	r.wants(p.t, 0, "")
	return strings.Join(strings.Fields(r.out), " ")
}

// pool is a bpool service that runs.
type pool struct {
	t    *testing.T
	w    *world
	cmd  *exec.Cmd
	errs syncBuffer
	sock string
	http string
}

// pool starts a service with these variables, without their prefix; its
// browsers are fake unless one says otherwise.
func (w *world) pool(vars ...string) *pool {
	w.t.Helper()
	p := &pool{t: w.t, w: w, cmd: w.cmd("bpool", "serve", "--stop-timeout", "300ms", "--drain-timeout", "0s")}
	p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser", "PW_MCP_PROXY_HEALTH_INTERVAL=1h",
		fmt.Sprintf("PW_MCP_PROXY_TIMEOUT=%d", patience.Milliseconds()))
	for _, v := range vars {
		p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_"+v)
	}
	p.start()
	return p
}

func (p *pool) start() {
	w := p.w
	w.t.Helper()
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var x struct {
		Service struct {
			Socket string
			HTTP   string `json:"http_url"`
		}
	}
	if err := json.NewDecoder(out).Decode(&x); err != nil {
		p.cmd.Wait()
		w.t.Fatalf("no record: %v\n%s", err, p.errs.String())
	}
	p.sock, p.http = x.Service.Socket, x.Service.HTTP
	w.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.stop()
		}
		if w.t.Failed() {
			w.t.Logf("bpool says:\n%s", p.errs.String())
		}
	})
}

func (p *pool) stop() {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("bpool ended with %v", err)
	}
}

type poolStatus struct {
	Pools []struct {
		Name      string
		Waiting   int
		Instances []struct {
			ID, Status, Lease string
			LeaseExpires      time.Time `json:"lease_expires_at"`
			Browser           string
			Leased            bool
			Uses, Restarts    int
			PID               int                    `json:"process_id"`
			Health            struct{ Error string } `json:"health_check"`
		}
	}
	Summary struct {
		Total     int `json:"total_instances"`
		Healthy   int `json:"healthy_instances"`
		Failed    int `json:"failed_instances"`
		Leased    int `json:"leased_instances"`
		Available int `json:"available_instances"`
		Waiting   int
	}
}

func (p *pool) status() (s poolStatus) {
	p.t.Helper()
	r := p.w.run("bpool", "status")
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || r.code != 0 {
		p.t.Fatalf("status: %+v", r)
	}
	return s
}

type leased struct {
	Instance struct {
		ID      string
		PID     int
		HTTPURL string `json:"http_url"`
		WSURL   string `json:"ws_url"`
	}
	Lease struct{ ID, Pool, Instance, Alias string }
}

// lease leases, and asserts that there is one.
func (p *pool) lease(args ...string) (l leased) {
	p.t.Helper()
	r := p.w.run("bpool", append([]string{"lease"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &l); err != nil || r.code != 0 {
		p.t.Fatalf("lease %v: %+v", args, r)
	}
	return l
}

// long skips a test that shows with other clients or in another place what a
// shorter one shows; make test LONG=1 runs it. The whole suite has to fit into
// the time of CI.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("LONG") == "" {
		t.Skip("make test LONG=1 runs it")
	}
}

// wire is a client of a browser, or of what passes for one.
type wire struct {
	t    *testing.T
	conn *websocket.Conn
	last int
	told []string // the events that came before answers
}

// dial connects to a WebSocket.
func dial(t *testing.T, url string) *wire {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &wire{t: t, conn: conn}
}

// ask has the browser do a command, and returns its answer.
func (c *wire) ask(method, params string) string {
	c.t.Helper()
	c.last++
	if err := c.conn.Write(fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, c.last, method, params)); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	for {
		m, err := c.conn.Next()
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		b, err := m.Bytes()
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		if strings.HasPrefix(string(b), fmt.Sprintf(`{"id":%d,`, c.last)) {
			return string(b)
		}
		c.told = append(c.told, string(b))
	}
}

// askUntilTold sends commands, so that the client is not idle, until an event has
// come.
func (c *wire) askUntilTold(method string) {
	c.t.Helper()
	until(c.t, method, func() bool {
		c.ask("Browser.getVersion", "{}")
		return slices.ContainsFunc(c.told, func(e string) bool { return strings.Contains(e, `"`+method+`"`) })
	})
}

// lost waits until the connection has ended.
func (c *wire) lost() {
	c.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := c.conn.Next(); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		c.t.Fatal("a client is still connected")
	}
}

// once connects, has a command done, and leaves.
func once(t *testing.T, url, method, params string) string {
	t.Helper()
	c := dial(t, url)
	defer c.conn.Close(websocket.Normal, "")
	return c.ask(method, params)
}

// golist is what go list prints of the programs' build, a line each.
func golist(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-tags", "urfave_cli_no_docs"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// programs are the names of the programs, each of which has its lists.
func programs(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, path := range golist(t, "./...") {
		if name, ok := strings.CutPrefix(path, "btools/cmd/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for what, list := range map[string]map[string][]string{"modules": modules, "never": never} {
		if have := slices.Sorted(maps.Keys(list)); !slices.Equal(have, names) {
			t.Errorf("%s are of %v, the programs are %v", what, have, names)
		}
	}
	return names
}
