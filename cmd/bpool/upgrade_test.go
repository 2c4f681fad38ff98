//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/proc"
	"btools/lib/websocket"
)

// upgradable is a service whose program is a file of the test's.
type upgradable struct {
	t       *testing.T
	w       *cmdtest.World
	bin     string
	cmd     *exec.Cmd
	records *json.Decoder // of its processes
	pids    []int         // of them
	socket  string
	http    string
}

// prepareUpgradable installs the programs of a service.
func prepareUpgradable(w *cmdtest.World) *upgradable {
	w.T.Helper()
	u := &upgradable{t: w.T, w: w, bin: w.Dir + "/bin"}
	os.Mkdir(u.bin, 0o700)
	for _, name := range []string{"bpool", "blaunch"} {
		u.install(name, cmdtest.Bin+"/"+name)
	}
	return u
}

// startUpgradable starts a service with these variables, without their prefix.
func startUpgradable(w *cmdtest.World, args []string, vars ...string) *upgradable {
	w.T.Helper()
	u := prepareUpgradable(w)
	args = append([]string{"serve", "--stop-timeout", "1s", "--drain-timeout", "0s"}, args...)
	u.cmd = w.Cmd(u.bin+"/bpool", args...)
	for _, v := range append([]string{"BROWSER=chrome-headless-shell"}, vars...) {
		u.cmd.Env = append(u.cmd.Env, "PW_MCP_PROXY_"+v)
	}
	u.start()
	return u
}

// start starts cmd.
func (u *upgradable) start() {
	u.t.Helper()
	u.records = json.NewDecoder(cmdtest.StartRead(u.t, u.cmd))
	u.next()
	u.t.Cleanup(func() {
		for _, pid := range u.pids {
			syscall.Kill(pid, syscall.SIGTERM)
		}
		u.cmd.Process.Wait()
		u.awaitEnd(u.pids...)
	})
}

// install replaces a program by a file.
func (u *upgradable) install(name, file string) {
	u.t.Helper()
	if out, err := exec.Command("sh", "-c", `cp "$0" "$1.new" && mv "$1.new" "$1"`, file,
		u.bin+"/"+name).CombinedOutput(); err != nil {
		u.t.Fatalf("%s", out)
	}
}

// installScript replaces bpool by a shell script.
func (u *upgradable) installScript(text string) {
	u.t.Helper()
	cmdtest.WriteFile(u.t, u.w.Dir+"/script", "#!/bin/sh\n"+text+"\n")
	os.Chmod(u.w.Dir+"/script", 0o755)
	u.install("bpool", u.w.Dir+"/script")
}

// next reads the record of the next process.
func (u *upgradable) next() {
	u.t.Helper()
	var x struct {
		Service struct {
			PID    int
			Socket string
			HTTP   string `json:"http_url"`
		}
	}
	if err := u.records.Decode(&x); err != nil {
		u.t.Fatalf("no record: %v", err)
	}
	u.pids = append(u.pids, x.Service.PID)
	u.socket, u.http = x.Service.Socket, x.Service.HTTP
}

// pid returns the process that has the control socket.
func (u *upgradable) pid() int { return u.pids[len(u.pids)-1] }

func (u *upgradable) upgrade() {
	u.t.Helper()
	u.w.Run("bpool", "upgrade").Exits(u.t, 0, "the service has the pid")
	u.next()
}

// awaitEnd waits until processes have ended.
func (u *upgradable) awaitEnd(pids ...int) {
	u.t.Helper()
	for _, pid := range pids {
		cmdtest.Until(u.t, fmt.Sprint("process ", pid, " has ended"), func() bool {
			_, err := proc.Of(pid)
			return err == proc.ErrGone
		})
	}
}

// traffic asks browsers until it is stopped.
type traffic struct {
	t       *testing.T
	stop    chan struct{}
	running sync.WaitGroup
	answers atomic.Int64
}

// ask asks the browser of a lease again and again.
func (f *traffic) ask(l cmdtest.Leased) {
	f.t.Helper()
	conn, err := websocket.Dial(f.t.Context(), l.Instance.WSURL)
	if err != nil {
		f.t.Fatal(err)
	}
	f.running.Go(func() {
		defer conn.Close(websocket.Normal, "")
		for n := 1; ; n++ {
			want := fmt.Sprintf(`{"id":%d,`, n)
			if err := conn.Write([]byte(want + `"method":"Browser.getVersion"}`)); err != nil {
				f.t.Errorf("%s: %v", l.Lease.ID, err)
				return
			}
			for got := ""; !strings.HasPrefix(got, want); {
				m, err := conn.Next()
				if err != nil {
					f.t.Errorf("%s: %v", l.Lease.ID, err)
					return
				}
				b, _ := m.Bytes()
				got = string(b)
			}
			f.answers.Add(1)
			select {
			case <-f.stop:
				return
			case <-time.After(40 * time.Millisecond):
			}
		}
	})
}

// end stops it, and returns how many answers have come.
func (f *traffic) end() int64 {
	close(f.stop)
	f.running.Wait()
	return f.answers.Load()
}

// hold starts a program that holds a lease.
func (u *upgradable) hold(pool string) (c *exec.Cmd, l cmdtest.Leased) {
	u.t.Helper()
	c = u.w.Cmd("bpool", append([]string{"lease", "--wait"}, strings.Fields(pool)...)...)
	if err := json.NewDecoder(cmdtest.StartRead(u.t, c)).Decode(&l); err != nil {
		u.t.Fatal(err)
	}
	return c, l
}

// No lease is lost and no connection is cut by upgrades, and the processes of before end with their leases.
func TestUpgradeKeepsLeases(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	first, upgrades := 4, 3
	if cmdtest.IsLong {
		first, upgrades = 28, 10 // 50 leases
	}
	u := startUpgradable(w, []string{"--http", "0"}, fmt.Sprint("_A_INSTANCES=", first), "_A_ISOLATION=context",
		"_A_IS_DEFAULT=1", "_B_INSTANCES=2")
	f := &traffic{t: t, stop: make(chan struct{})}
	var holders []*exec.Cmd
	lease := func(pools ...string) {
		for _, pool := range pools {
			c, l := u.hold(pool)
			holders = append(holders, c)
			f.ask(l)
		}
	}
	lease("B", "B")
	for range first {
		lease("A")
	}
	longest := f.watch("unix", u.socket, `{"id":1,"method":"ping"}`+"\n")
	longestHTTP := f.watch("tcp", strings.TrimPrefix(u.http, "http://"),
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for range upgrades {
		u.upgrade()
		lease("A", "B")
	}
	before := f.answers.Load()
	cmdtest.Until(t, "all go on", func() bool { return f.answers.Load() > before+int64(10*len(holders)) })
	if got := w.Run("bpool", "status", "-f", "summary.leased_instances").Out; got != fmt.Sprintln(len(holders)) {
		t.Errorf("the status has %s leases, not %d", got, len(holders))
	}
	for _, pid := range u.pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		t.Logf("process %d: %s", pid, regexp.MustCompile(`(Rss|Pss|Private_Dirty): .*`).FindAll(b, -1))
	}
	if n := f.end(); n == 0 {
		t.Error("no traffic")
	} else {
		t.Logf("%d leases, %d upgrades, %d answers; longest time to an answer %v, by HTTP %v", len(holders), upgrades,
			n, time.Duration(longest.Load()), time.Duration(longestHTTP.Load()))
	}
	for _, c := range holders {
		if err := cmdtest.Terminate(c); err != nil {
			t.Errorf("a holder: %v", err)
		}
	}
	u.awaitEnd(u.pids[:len(u.pids)-1]...)
	if st := w.State(); len(st.Pools) != 1 {
		t.Errorf("the state file lists %+v", st.Pools)
	}
	syscall.Kill(u.pid(), syscall.SIGTERM)
	u.awaitEnd(u.pid())
	if _, err := os.Stat(u.socket); err == nil {
		t.Error("the control socket is left")
	}
}

// watch makes a request again and again, each on a new connection, and returns the longest time that one took.
func (f *traffic) watch(network, addr, request string) *atomic.Int64 {
	longest := &atomic.Int64{}
	ask := func() error {
		c, err := net.Dial(network, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(cmdtest.Patience))
		if _, err = io.WriteString(c, request); err == nil {
			_, err = io.ReadFull(c, make([]byte, 10))
		}
		return err
	}
	f.running.Go(func() {
		for {
			began := time.Now()
			if err := ask(); err != nil {
				f.t.Errorf("%s: %v", addr, err)
			}
			longest.Store(max(longest.Load(), int64(time.Since(began))))
			select {
			case <-f.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return longest
}

// The successor answers for the leases of before, and ends them when it is told to stop.
func TestUpgradeRelays(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" max=2\nother "+otherToken+"\n")
	os.Chmod(tokens, 0o600)
	u := startUpgradable(w, []string{"--http", "0", "--token-file", tokens}, "_A_INSTANCES=3",
		"_A_ISOLATION=context", "_A_IS_DEFAULT=1")
	ci := webClient{t, u.http, ciToken}
	mine := w.Run("bpool", "lease", "-f", "lease.id").Out
	mine = strings.TrimSpace(mine)
	web := ci.lease(`{"holder":"nightly"}`)
	u.upgrade()
	if u.http != ci.at {
		t.Errorf("the successor has %s, not %s", u.http, ci.at)
	}
	if got := w.Run("bpool", "renew", mine, "--ttl", "1h", "-f", "lease.id"); got.Out != mine+"\n" {
		t.Errorf("renew: %+v", got)
	}
	w.Run("bpool", "renew", "lease_1_aaaaaaaaaaaaaaaa").Exits(t, 69, "there is no lease")
	w.Run("bpool", "release", "lease_1_aaaaaaaaaaaaaaaa").Exits(t, 0, "there is no lease")
	w.Run("bpool", "state", "save", "work", "--from", mine).Exits(t, 0, "")
	if code, b := cmdtest.Get(t, "GET", web.Instance.HTTPURL+"/json/version"); code != 200 ||
		!strings.Contains(b, web.Instance.WSURL) {
		t.Errorf("/json/version: %d %s", code, b)
	}
	if got := cmdtest.AskOnce(t, web.Instance.WSURL, "Target.getTargets", "{}"); !strings.Contains(got, "about:blank") {
		t.Errorf("its targets are %s", got)
	}
	wrong := strings.Replace(web.Instance.HTTPURL, web.Lease.ID+".", web.Lease.ID+".x", 1)
	if code, b := cmdtest.Get(t, "GET", wrong+"/json/version"); code/100 != 4 {
		t.Errorf("with another secret: %d %s", code, b)
	}
	if code, b := ci.do("/leases", ""); code != 200 || !strings.Contains(b, web.Instance.WSURL) {
		t.Errorf("its leases: %d %s", code, b)
	}
	second := ci.lease(`{}`)
	if code, b := ci.do("/lease", `{"timeout":"0s"}`); code == 200 {
		t.Errorf("a third lease of a token with max=2: %s", b)
	}
	ci.do("/release", fmt.Sprintf(`{"lease":%q}`, second.Lease.ID))
	other := webClient{t, u.http, otherToken}
	if _, b := other.do("/leases", ""); strings.TrimSpace(b) != "[]" {
		t.Errorf("another's leases: %s", b)
	}
	named := fmt.Sprintf(`{"lease":%q}`, web.Lease.ID)
	for _, path := range []string{"/renew", "/release"} {
		if code, b := other.do(path, named); code != 404 {
			t.Errorf("%s of another's lease: %d %s", path, code, b)
		}
		if code, b := ci.do(path, named); code != 200 || !strings.Contains(b, web.Lease.ID) {
			t.Errorf("%s: %d %s", path, code, b)
		}
	}
	if code, b := cmdtest.Get(t, "GET", web.Instance.HTTPURL+"/json/version"); code != 410 {
		t.Errorf("after its end: %d %s", code, b)
	}
	// Who waits in the one gets a lease of the next.
	c, _ := u.hold("A")
	d, _ := u.hold("A")
	e, _ := u.hold("A")
	waiting := w.Cmd("bpool", "lease", "--timeout", "1m", "-f", "lease.id")
	out := cmdtest.StartRead(t, waiting)
	answers := make(chan string, 2)
	go func() {
		code, b := ci.do("/lease", `{"timeout":"1m","holder":"late"}`)
		answers <- fmt.Sprint(code, " ", b)
	}()
	connected := make(chan error, 1)
	var conn *websocket.Conn
	go func() {
		var err error
		conn, err = websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(u.http, "http")+"/connect?timeout=1m&token="+
			ciToken)
		connected <- err
	}()
	cmdtest.Until(t, "three wait", func() bool {
		return w.Run("bpool", "status", "-f", "summary.waiting").Out == "3\n"
	})
	u.upgrade()
	if b, _ := io.ReadAll(out); waiting.Wait() != nil || !strings.HasPrefix(string(b), "lease_") {
		t.Errorf("who waits at the socket gets %q", b)
	}
	if got := <-answers; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, u.http+"/lease/lease_") {
		t.Errorf("who waits by HTTP gets %s", got)
	}
	if err := <-connected; err != nil {
		t.Fatalf("a WebSocket that waits: %v", err)
	}
	for _, c := range []*exec.Cmd{c, d, e} {
		cmdtest.Terminate(c)
	}
	time.Sleep(2 * time.Second) // the process of before has no leases, but the WebSocket
	if err := conn.Write([]byte(`{"id":1,"method":"Browser.getVersion"}`)); err != nil {
		t.Error(err)
	}
	if _, err := conn.Next(); err != nil {
		t.Errorf("the WebSocket that had waited is closed: %v", err)
	}
	conn.Close(websocket.Normal, "")
	u.awaitEnd(u.pids[1])
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	mine = strings.TrimSpace(w.Run("bpool", "lease", "-f", "lease.id").Out)
	c, _ = u.hold("A")
	u.upgrade()
	if got := w.Run("bpool", "release", "--all").Out; strings.Count(got, "\n") != 2 || !strings.Contains(got, mine) {
		t.Errorf("all leases: %s", got)
	}
	c.Wait()
	u.awaitEnd(u.pids[:3]...)
	u.hold("A")
	u.upgrade()
	syscall.Kill(u.pid(), syscall.SIGTERM) // the process of before as well
	u.awaitEnd(u.pids[3:]...)
	if left := w.Processes(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}

// A successor that is not ready changes nothing.
func TestUpgradeFails(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	config := w.Dir + "/pool.toml"
	cmdtest.WriteFile(t, config, "[pool.A]\ninstances = 1\nis_default = true\nlaunch = false\n")
	u := startUpgradable(w, []string{"--config", config, "--http", "0"})
	l := w.Run("bpool", "lease", "-f", "lease.id").Out
	goesOn := func(what string) {
		t.Helper()
		if got := w.Run("bpool", "renew", strings.TrimSpace(l), "-f", "lease.id"); got.Out != l {
			t.Errorf("%s: the lease is gone: %+v", what, got)
		}
		if code, _ := cmdtest.Get(t, "GET", u.http+"/healthz"); code != 200 {
			t.Errorf("%s: HTTP %d", what, code)
		}
		cmdtest.Until(t, "the service alone is left", func() bool { return len(w.Processes()) == 1 })
	}
	goesOn("at first")

	cmdtest.WriteFile(t, config, "[pool.A]\ninstances = 0\n")
	w.Run("bpool", "upgrade").Exits(t, 78, "this service goes on: the configuration is not valid")
	goesOn("with an invalid configuration")
	cmdtest.WriteFile(t, config, "[pool.A]\ninstances = 1\nis_default = true\nlaunch = false\n")

	u.installScript("exit 3")
	w.Run("bpool", "upgrade").Exits(t, 1, "exit status 3")
	goesOn("with a program that ends")
	cmdtest.WriteFile(t, u.bin+"/bpool", "no program")
	w.Run("bpool", "upgrade").Exits(t, 1, "exec format error")
	goesOn("with a file that is no program")
	os.Remove(u.bin + "/bpool")
	w.Run("bpool", "upgrade").Exits(t, 1, "no such file")
	goesOn("without its program")

	// One that is killed before it is ready; a second upgrade meanwhile.
	real := cmdtest.Bin + "/bpool"
	sleeping := `case $BTOOLS_SUCCESSOR in
*between*) exec bash -c 'exec -a "$0" ` + real + ` "$@"' "$0" "$@" ;;
esac
exec sleep 1000`
	u.installScript(sleeping)
	first := w.Cmd("bpool", "upgrade")
	var said strings.Builder
	first.Stderr = &said
	cmdtest.Start(t, first)
	sleeps := ""
	cmdtest.Until(t, "the successor has started", func() bool {
		for _, p := range w.Processes() {
			if strings.HasSuffix(strings.TrimSpace(p), "sleep 1000") {
				sleeps = strings.Fields(p)[0]
			}
		}
		return sleeps != ""
	})
	w.Run("bpool", "upgrade").Exits(t, 75, "an upgrade is under way")
	exec.Command("kill", "-9", sleeps).Run()
	if first.Wait(); first.ProcessState.ExitCode() != 1 || !strings.Contains(said.String(), "before it was ready") {
		t.Errorf("of a successor that is killed: %s", said.String())
	}
	goesOn("after a successor that was killed")

	// One that belongs to a program.
	private := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("sh", "-c", `exec bpool serve --bind-fd 3 --socket "$0" 3<&0`,
		w.Dir+"/private.sock")}
	owner, err := private.Cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	private.Cmd.Env = append(private.Cmd.Env, "PW_MCP_PROXY_LAUNCH=false")
	private.Start()
	w.Run("bpool", "upgrade", "--socket", private.Socket).Exits(t, 64, "the service ends with the program that runs it")
	owner.Close()
	private.Cmd.Wait()

	// With its path deleted, the socket is made again by the successor.
	u.install("bpool", real)
	os.Remove(u.socket)
	w.Run("bpool", "upgrade").Exits(t, 69, "")
	cmdtest.Until(t, "the socket is there again", func() bool { _, err := os.Stat(u.socket); return err == nil })
	u.upgrade()
	if code, _ := cmdtest.Get(t, "GET", u.http+"/healthz"); code != 200 {
		t.Errorf("after the upgrade: HTTP %d", code)
	}
	w.Run("bpool", "lease", "--timeout", "0").Exits(t, 0, "")

	// Told to stop during an upgrade, both end.
	u.installScript(sleeping)
	again := w.Cmd("bpool", "upgrade")
	cmdtest.Start(t, again)
	cmdtest.Until(t, "the successor has started", func() bool {
		return slices.ContainsFunc(w.Processes(), func(p string) bool { return strings.Contains(p, "sleep 1000") })
	})
	syscall.Kill(u.pid(), syscall.SIGTERM)
	again.Wait()
	cmdtest.Until(t, "nothing is left", func() bool { return len(w.Processes()) == 0 })
}

// Whoever is killed during an upgrade, a service is left.
func TestUpgradeUnderDeath(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u := startUpgradable(w, nil, "_A_INSTANCES=2", "_A_ISOLATION=context", "_A_IS_DEFAULT=1")
	f := &traffic{t: t, stop: make(chan struct{})}
	c, l := u.hold("A")
	f.ask(l)
	u.upgrade()
	syscall.Kill(u.pid(), syscall.SIGKILL) // the successor: the lease of before goes on
	u.awaitEnd(u.pid())
	before := f.answers.Load()
	cmdtest.Until(t, "the lease goes on", func() bool { return f.answers.Load() > before+10 })
	next := w.Cmd(u.bin+"/bpool", "serve", "--drain-timeout", "0s")
	next.Env = u.cmd.Env
	cmdtest.StartRead(t, next).Read(make([]byte, 1))
	w.Run("bpool", "lease", "--timeout", "0").Exits(t, 0, "")
	if f.end() == 0 || cmdtest.Terminate(c) != nil {
		t.Error("the holder of a lease of before")
	}
	u.awaitEnd(u.pids[0])

	w.Run("bpool", "upgrade").Exits(t, 0, "")
	next.Process.Kill() // the process of before, with a lease
	next.Process.Wait()
	w.Run("bpool", "lease").Exits(t, 0, "")
	for _, p := range w.Processes() {
		if strings.Contains(p, "bpool serve") {
			exec.Command("kill", strings.Fields(p)[0]).Run()
		}
	}
	cmdtest.Until(t, "nothing is left", func() bool { return len(w.Processes()) == 0 })
	w.Run("blaunch", "gc")
}

// A reload is an upgrade if another program is installed. Systemd is told of the successor, and keeps its socket.
func TestUpgradeByReload(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	f := systemdSocket(w)
	notify, told := w.NotifySocket()
	u := prepareUpgradable(w)
	u.cmd = w.Cmd("sh", "-c",
		`export LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET="$0" WATCHDOG_USEC=100000; exec "$1" serve`,
		notify, u.bin+"/bpool")
	u.cmd.Env = append(u.cmd.Env, "PW_MCP_PROXY_LAUNCH=false")
	u.cmd.ExtraFiles = []*os.File{f}
	u.start()
	told("READY=1")
	lease := strings.TrimSpace(w.Run("bpool", "lease", "-f", "lease.id").Out)
	w.Run("bpool", "reload").Exits(t, 0, "the configuration was reloaded")
	u.install("bpool", cmdtest.Bin+"/bpool")
	w.Run("bpool", "reload").Exits(t, 0, "the service has the pid")
	u.next()
	told(fmt.Sprint("MAINPID=", u.pid()), "READY=1", "WATCHDOG=1", "WATCHDOG=1")
	w.Run("bpool", "reload").Exits(t, 0, "the configuration was reloaded")
	u.install("bpool", cmdtest.Bin+"/bpool")
	syscall.Kill(u.pid(), syscall.SIGHUP)
	u.next()
	told(fmt.Sprint("MAINPID=", u.pid()), "READY=1", "WATCHDOG=1")
	w.Run("bpool", "release", lease).Exits(t, 0, "")
	u.awaitEnd(u.pids[:2]...)
	syscall.Kill(u.pid(), syscall.SIGTERM)
	u.awaitEnd(u.pid())
	if _, err := os.Stat(w.Dir + "/state/bpool.sock"); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}
}

// The leases of before have a bound.
func TestRetireTimeout(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u := startUpgradable(w, []string{"--retire-timeout", "5s"}, "LAUNCH=false")
	c, _ := u.hold("")
	events := w.Events("bpool")
	cmdtest.Until(t, "the events are watched", func() bool {
		w.Run("bpool", "drain")
		w.Run("bpool", "drain", "--off")
		return strings.Contains(events.String(), "drained")
	})
	u.upgrade()
	w.Run("bpool", "lease", "--", "true").Exits(t, 0, "")
	cmdtest.Until(t, "events of the successor", func() bool { return strings.Contains(events.String(), "leased") })
	u.awaitEnd(u.pids[0])
	if c.Wait(); c.ProcessState.ExitCode() != 69 {
		t.Errorf("the holder ends with %v", c.ProcessState)
	}
	w.Run("bpool", "lease", "--timeout", "0").Exits(t, 0, "")
}

// The metrics are those of all processes, and count what the ones of before have done after their end, too.
func TestUpgradeMetrics(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u := startUpgradable(w, []string{"--http", "0"}, "_A_INSTANCES=2", "_A_LAUNCH=false", "_A_IS_DEFAULT=1")
	has := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			_, b := cmdtest.Get(t, "GET", u.http+"/metrics")
			if !strings.Contains(b, "\n"+line+"\n") {
				t.Errorf("%s is not in %s", line, regexp.MustCompile(`(?m)^bpool_lease.*`).FindAllString(b, -1))
			}
		}
	}
	release := func() {
		w.Run("bpool", "release", strings.TrimSpace(w.Run("bpool", "lease", "-f", "lease.id").Out)).Exits(t, 0, "")
	}
	const released, gone = `bpool_leases_ended_total{pool="A",reason="released"} `,
		`bpool_leases_ended_total{pool="A",reason="holder_gone"} `
	release()
	c, _ := u.hold("A")
	has(released+"1", gone+"0", `bpool_leases{pool="A"} 1`, `bpool_lease_hold_seconds_count{pool="A"} 1`)
	u.upgrade()
	release()
	has(released+"2", gone+"0", `bpool_leases{pool="A"} 1`, `bpool_lease_hold_seconds_count{pool="A"} 2`)
	u.upgrade()
	release()
	has(released+"3", `bpool_leases{pool="A"} 1`, `bpool_lease_wait_seconds_bucket{pool="A",le="+Inf"} 4`)
	cmdtest.Terminate(c)
	u.awaitEnd(u.pids[:2]...)
	has(released+"3", gone+"1", `bpool_leases{pool="A"} 0`, `bpool_lease_hold_seconds_count{pool="A"} 4`,
		`bpool_lease_wait_seconds_bucket{pool="A",le="+Inf"} 4`)
	u.upgrade()
	has(released+"3", gone+"1")
}

// An agent keeps its page over an upgrade, and gets the next one of the successor.
func TestUpgradeUnderAgents(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u := startUpgradable(w, nil, "_A_INSTANCES=2", "_A_ISOLATION=context", "_A_IS_DEFAULT=1", "_A_AFFINITY=session")
	site := cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		io.WriteString(rw, "<title>page "+r.URL.Path+"</title><p>Text</p>")
	})
	old := w.Builtin("--pool")
	old.MustTool("browser_navigate", `{"url":%q}`, site+"/old")
	for range 2 {
		u.upgrade()
		if got := old.MustTool("browser_snapshot", `{}`).Text(); !strings.Contains(got, "page /old") {
			t.Errorf("after an upgrade the agent sees %s", got)
		}
	}
	fresh := w.Builtin("--pool")
	fresh.MustTool("browser_navigate", `{"url":%q}`, site+"/new")
	if got := w.Run("bpool", "status", "-f", "summary.leased_instances").Out; got != "2\n" {
		t.Errorf("%s are leased", got)
	}
	old.End()
	u.awaitEnd(u.pids[:2]...)
	if got := fresh.MustTool("browser_snapshot", `{}`).Text(); !strings.Contains(got, "page /new") {
		t.Errorf("the other agent sees %s", got)
	}
	fresh.End()
}
