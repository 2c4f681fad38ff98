//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"btools/lib/cmdtest"
	"btools/lib/proc"
)

func TestPoolOnRealBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("BROWSER=chromium", "_A_INSTANCES=2", "_A_IS_DEFAULT=true", "_A__1_ALIAS=second", "_F_INSTANCES=1",
		"_F_BROWSER=firefox", "_F_TIMEOUT=60000")
	l := p.Lease("--instance", "second")
	if l.Lease.Pool != "A" || l.Lease.Instance != "1" || l.Lease.Alias != "second" {
		t.Errorf("lease --instance second: %+v, want instance 1 of pool A", l.Lease)
	}
	at := strings.TrimPrefix(l.Instance.HTTPURL, "http://") + "/devtools/browser/"
	if _, v := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); !strings.Contains(v, at) {
		t.Errorf("/json/version: %s, want the lease's address %s", v, at)
	}
	// A browser that dies comes back behind the same endpoint and lease.
	syscall.Kill(l.Instance.PID, syscall.SIGKILL)
	cmdtest.Until(t, "the browser is back", func() bool {
		i := p.Status().Pools[0].Instances[1]
		return i.Status == "healthy" && i.PID != l.Instance.PID && i.Lease == l.Lease.ID && i.Restarts == 1
	})
	if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("status %d, want 200", code)
	}
	if f := p.Lease("F"); !strings.HasSuffix(f.Instance.WSURL, "/session") {
		t.Errorf("a Firefox has the address %s, want one that ends in /session", f.Instance.WSURL)
	}
	p.Stop()
	w.Clean()
}

func TestPoolLeases(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bpool", "lease", "--timeout", "0").Exits(t, 69,
		"no bpool service runs (looked in "+w.Dir+"/state/state.json)")
	early := w.Cmd("bpool", "lease", "B", "-f", "lease.id")
	said, _ := early.StdoutPipe()
	early.Start()
	p := w.Pool("_A_INSTANCES=3", "_A_IS_DEFAULT=1", "_A__2_ALIAS=last", "_A_LEASE_TIMEOUT=200ms", "_A_QUEUE_LIMIT=1",
		"_B_INSTANCES=1")
	id, _ := io.ReadAll(said)
	early.Wait()
	w.Run("bpool", "release", strings.TrimSpace(string(id))).Exits(t, 0, "") // of before the service was there
	if s := p.Status().Summary; s.Total != 4 || s.Healthy != 4 || s.Available != 4 || s.Leased != 0 {
		t.Errorf("%+v, want 4 instances, all healthy and available", s)
	}
	w.Run("bpool", "lease", "CC").Exits(t, 69, `no pool is named "CC": there are A, B`)
	w.Run("bpool", "lease", "a").Exits(t, 69, `no pool is named "a": did you mean A?`)
	w.Run("bpool", "lease", "--instance", "3").Exits(t, 69, `pool A has no instance "3": it has 0 to 2 and last`)
	w.Run("bpool", "status", "C").Exits(t, 69, "no pool is named")

	// An ID and its alias are one instance.
	l := p.Lease("--instance", "last")
	w.Run("bpool", "lease", "--instance", "2").Exits(t, 75, "none came free within 200ms")
	w.Run("bpool", "lease", "--instance", "2", "--timeout", "0").Exits(t, 75, "none is free")
	// Other requests are not held up; the instance that was returned first goes
	// first.
	a, b := p.Lease(), p.Lease()
	w.Run("bpool", "release", b.Lease.ID, a.Lease.ID).Exits(t, 0, "")
	if x, y := p.Lease(), p.Lease(); x.Lease.Instance != b.Lease.Instance || y.Lease.Instance != a.Lease.Instance {
		t.Errorf("%s %s, want %s %s", x.Lease.Instance, y.Lease.Instance, b.Lease.Instance, a.Lease.Instance)
	}
	// One request waits, and the queue is full.
	c := w.Cmd("bpool", "lease", "--timeout", "1m", "-f", "lease.instance")
	var got strings.Builder
	c.Stdout = &got
	c.Start()
	cmdtest.Until(t, "one waits", func() bool { return p.Status().Summary.Waiting == 1 })
	w.Run("bpool", "lease").Exits(t, 75, "the queue is full (1 waiting)")
	r := w.Run("bpool", "release", l.Lease.ID)
	if want := fmt.Sprintf(`{"v":1,"lease":{"id":%q}}`+"\n", l.Lease.ID); r.Code != 0 || r.Out != want {
		t.Errorf("released %s, want %s", r.Out, want)
	}
	c.Wait()
	if got.String() != "2\n" {
		t.Errorf("who waits gets %q", got.String())
	}
	// Releasing a lease that has ended is not an error; releasing an unknown
	// one changes nothing.
	w.Run("bpool", "release", l.Lease.ID, "lease_1_x").Exits(t, 0, "there is no lease")
	w.Run("bpool", "renew", l.Lease.ID).Exits(t, 69, "there is no lease")
	if s := p.Status().Summary; s.Leased != 3 {
		t.Errorf("%+v, want 3 leased", s)
	}
	w.Run("bpool", "release").Exits(t, 64, "name the leases")
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	if s := p.Status().Summary; s.Leased != 0 || s.Available != 4 {
		t.Errorf("after release --all: %+v, want 4 available and none leased", s)
	}
	for _, line := range []string{"bpool lease B | bpool release -f lease.id",
		"bpool lease B -f lease.id | bpool release -f lease.id"} {
		if r := w.Run("sh", "-c", line); r.Code != 0 || !strings.HasPrefix(r.Out, "lease_") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A lease ends with whoever holds it, and with its time; its connections too.
func TestPoolLeaseEnds(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	free := func(t *testing.T) {
		t.Helper()
		cmdtest.Until(t, "the lease has ended", func() bool { return p.Status().Summary.Leased == 0 })
	}
	t.Run("with its command", func(t *testing.T) {
		r := w.Run("bpool", "lease", "--", "sh", "-c",
			`bpool status -f summary.leased_instances; echo "$BTOOLS_CDP_URL"; exit 7`)
		if f := strings.Fields(r.Out); r.Code != 7 || len(f) != 2 || f[0] != "1" ||
			!strings.HasPrefix(f[1], "http://127.0.0.1:") {
			t.Errorf("%+v; want exit 7, 1 leased instance and its address", r)
		}
		free(t)
	})
	t.Run("with the holder that is killed", func(t *testing.T) {
		c := w.Cmd("bpool", "lease", "--wait")
		out, _ := c.StdoutPipe()
		c.Start()
		bufio.NewReader(out).ReadString('\n')
		if p.Status().Summary.Leased != 1 {
			t.Error("--wait does not hold")
		}
		c.Process.Kill()
		c.Wait()
		free(t)
	})
	t.Run("after --ttl, of which CMD and its user are told", func(t *testing.T) {
		w.Run("bpool", "lease", "--ttl", "300ms", "--", "sleep", "1000").Exits(t, 143,
			"the lease has expired (time to live 300ms): stopping sleep")
		w.Run("bpool", "lease", "--ttl", "300ms", "--wait", "-f", "lease.x").Exits(t, 64, "no record has a field")
		r := w.Run("bpool", "lease", "--ttl", "300ms", "--wait")
		if r.Code != 69 || !strings.Contains(r.Err, "the lease has expired (time to live 300ms)") {
			t.Errorf("lease --wait: %+v, want exit 69 and that the lease has expired", r)
		}
	})
	t.Run("if its record cannot be printed: nobody knows of it", func(t *testing.T) {
		w.Run("sh", "-c", "bpool lease >/dev/full").Exits(t, 1, "cannot write the result")
		free(t)
		nobody, pipe, _ := os.Pipe()
		nobody.Close()
		c := w.Cmd("bpool", "lease")
		c.Stdout = pipe
		if c.Run(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
			t.Errorf("%v, want an end by SIGPIPE", c.ProcessState)
		}
		pipe.Close()
		free(t)
	})
	t.Run("of a command whose browser was replaced", func(t *testing.T) {
		c := w.Cmd("bpool", "lease", "--", "cat")
		var errs cmdtest.SyncBuffer
		c.Stderr = &errs
		in, _ := c.StdinPipe()
		c.Start()
		cmdtest.Until(t, "it is leased", func() bool { return p.Status().Summary.Leased == 1 })
		syscall.Kill(p.Status().Pools[0].Instances[0].PID, syscall.SIGKILL)
		cmdtest.Until(t, "its terminal says so at once", func() bool {
			return strings.Contains(errs.String(), "bpool: warning: the browser of A/0 is gone: ") &&
				strings.Contains(errs.String(), "; a new browser replaces it; its pages are lost")
		})
		in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		free(t)
	})
	t.Run("with the process of --bind-pid", func(t *testing.T) {
		sleep := exec.Command("sleep", "1000")
		sleep.Start()
		p.Lease("--bind-pid", fmt.Sprint(sleep.Process.Pid))
		sleep.Process.Kill()
		sleep.Wait()
		free(t)
	})
	t.Run("after --ttl, and its connections with it", func(t *testing.T) {
		l := p.Lease("--ttl", "1m")
		conn, err := net.Dial("tcp", strings.TrimPrefix(l.Instance.HTTPURL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the browser does not answer: %v", err)
		}
		w.Run("bpool", "renew", "--ttl", "300ms", l.Lease.ID).Exits(t, 0, "")
		cmdtest.AwaitClosed(t, conn)
		free(t)
	})
	t.Run("not before the time of its renewal", func(t *testing.T) {
		l := p.Lease("--ttl", "1m")
		renewed := time.Now()
		w.Run("bpool", "renew", "--ttl", "1h", l.Lease.ID).Exits(t, 0, "")
		got := p.Status().Pools[0].Instances[0].LeaseExpires
		if got.Before(renewed.Add(time.Hour).Truncate(time.Second)) {
			t.Errorf("a lease that was renewed at %v for 1h expires at %v", renewed, got)
		}
		w.Run("bpool", "release", "--all")
	})
	t.Run("of another, for which a request waits that is killed", func(t *testing.T) {
		p.Lease()
		c := w.Cmd("bpool", "lease", "--timeout", "1m")
		var errs cmdtest.SyncBuffer
		c.Stderr = &errs
		c.Start()
		cmdtest.Until(t, "one waits", func() bool { return p.Status().Summary.Waiting == 1 })
		cmdtest.Until(t, "it says for whom", func() bool {
			return strings.Contains(errs.String(), "waiting for pool A: 1 of 1 leased, by ")
		})
		c.Process.Kill()
		c.Wait()
		cmdtest.Until(t, "nobody waits", func() bool { return p.Status().Summary.Waiting == 0 })
		w.Run("bpool", "release", "--all")
	})
	t.Run("with the bproxy whose launcher it is", func(t *testing.T) {
		q := w.Proxy("--launch", "exec bpool lease --wait")
		if code, body := cmdtest.Get(t, "GET", q.URL+"/json/version"); code != 200 || p.Status().Summary.Leased != 1 {
			t.Errorf("%d %s, want 200 from 1 leased instance", code, body)
		}
		q.Stop()
		free(t)
		q = w.Proxy("--launch", "bpool lease --wait")
		cmdtest.Get(t, "GET", q.URL+"/json/version")
		q.Cmd.Process.Kill()
		q.Cmd.Wait()
		free(t)
	})
}

func TestPoolHealth(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_HEALTH_INTERVAL=100ms",
		"_A_HEALTH_TIMEOUT=300ms")
	i := p.Status().Pools[0].Instances[0]
	syscall.Kill(i.PID, syscall.SIGSTOP) // it hangs
	cmdtest.Until(t, "another one has taken its place", func() bool {
		now := p.Status().Pools[0].Instances[0]
		return now.Status == "healthy" && now.PID != i.PID
	})
	p.Stop()
	w.Clean()

	p = w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_RESTART=never", "_A_ISOLATED=true", "_B_INSTANCES=1",
		"_B_MAX_USES=2")
	l := p.Lease("A")
	w.Run("bpool", "release", l.Lease.ID)
	cmdtest.Until(t, "the next lease has a fresh browser", func() bool {
		for _, i := range p.Status().Pools[0].Instances {
			if i.ID == l.Lease.Instance {
				return i.Status == "healthy" && i.PID != l.Instance.PID
			}
		}
		return false
	})
	first := p.Lease("B")
	w.Run("bpool", "release", first.Lease.ID)
	if again := p.Lease("B"); again.Instance.PID != first.Instance.PID {
		t.Error("a browser is replaced before its last use")
	}
	w.Run("bpool", "release", "--all")
	cmdtest.Until(t, "it is replaced after that", func() bool {
		i := p.Status().Pools[1].Instances[0]
		return i.Status == "healthy" && i.PID != first.Instance.PID
	})
	for _, i := range p.Status().Pools[0].Instances {
		syscall.Kill(i.PID, syscall.SIGKILL)
	}
	cmdtest.Until(t, "all have failed", func() bool { return p.Status().Summary.Failed == 2 })
	w.Run("bpool", "lease").Exits(t, 69,
		"Default pool 'A' has no healthy instances. Specify explicit pool or restart failed instances.")
	p.Lease("B")
}

func TestPoolDeath(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	r := w.Run("bpool", "serve")
	r.Exits(t, 75, fmt.Sprintf("already: the bpool service with pid %d", p.Cmd.Process.Pid))
	r.Exits(t, 75, "bpool serve --socket FILE runs another one")
	waiter := func(args ...string) (*exec.Cmd, *strings.Builder) {
		c := w.Cmd("bpool", append([]string{"lease", "--timeout", "1m"}, args...)...)
		var errs strings.Builder
		c.Stderr = &errs
		c.Start()
		return c, &errs
	}
	p.Lease()
	p.Lease()
	c, errs := waiter()
	short := w.Cmd("bpool", "lease")
	var said strings.Builder
	short.Stderr = &said
	cmdtest.Start(t, short)
	cmdtest.Until(t, "two wait", func() bool { return p.Status().Summary.Waiting == 2 })
	p.Stop()
	// Nobody starts another one in time.
	if short.Wait(); short.ProcessState.ExitCode() != 75 ||
		!strings.Contains(said.String(), "the service is stopping") {
		t.Errorf("who waits without a timeout is told %s", said.String())
	}
	// But within the time that the other one has.
	p = w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	if c.Wait(); c.ProcessState.ExitCode() != 0 ||
		!strings.Contains(errs.String(), "the service is stopping: waiting for the next one") {
		t.Errorf("who waits for the next service is told %s", errs.String())
	}
	// While the service drains, a request waits for the next one, too.
	drains := w.Cmd("bpool", "serve", "--socket", w.Dir+"/drains.sock", "--drain-timeout", "1m")
	drains.Env = append(drains.Env, "PW_MCP_PROXY_LAUNCH=false")
	serving := &cmdtest.Pool{T: t, W: w, Cmd: drains}
	serving.Start()
	held := w.Run("bpool", "lease", "--socket", serving.Socket, "-f", "lease.id").Out
	drains.Process.Signal(syscall.SIGTERM)
	cmdtest.Until(t, "it drains", func() bool { return strings.Contains(serving.Errs.String(), "stopping: waiting") })
	w.Run("bpool", "lease", "--socket", serving.Socket, "--timeout", "0").Exits(t, 75, "the service is stopping")
	c, errs = waiter("--socket", serving.Socket)
	w.Run("bpool", "release", "--socket", serving.Socket, strings.TrimSpace(held)).Exits(t, 0, "")
	drains.Wait()
	next := w.Cmd("bpool", "serve", "--socket", serving.Socket, "--drain-timeout", "0s")
	next.Env = append(next.Env, "PW_MCP_PROXY_LAUNCH=false")
	(&cmdtest.Pool{T: t, W: w, Cmd: next}).Start()
	if c.Wait(); c.ProcessState.ExitCode() != 0 {
		t.Errorf("who waits during the drain is told %s", errs.String())
	}
	cmdtest.Terminate(next)

	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	cmdtest.Until(t, "its browsers end", func() bool { return len(w.Processes()) == 0 })
	w.Run("blaunch", "gc") // a fake browser may be gone before the service is, whose directory stays then
	w.Clean()
	w.Run("bpool", "status").Exits(t, 69, "no bpool service")
	// A service of another PID namespace that has ended is not running.
	file := w.Dir + "/state/state.json"
	b, _ := os.ReadFile(file)
	boot, _, _ := strings.Cut(proc.Boot(), "/")
	stale := `"pools":[{"process":{"pid":7,"start":1,"boot":"` + boot + `/1"},"control":"` + w.Dir +
		`/state/gone.sock","names":["A"]}]`
	os.WriteFile(file, bytes.Replace(b, []byte(`"pools":[]`), []byte(stale), 1), 0o600)
	if n := len(w.State().Pools); n != 1 {
		t.Fatal(n, "services are listed")
	}
	w.Run("bpool", "status").Exits(t, 69, "no bpool service runs")
	p = w.Pool() // takes over its socket
	if s := p.Status().Summary; s.Total != 1 || s.Healthy != 1 || s.Leased != 0 {
		t.Errorf("the next service has %+v, want 1 instance that is healthy and free", s)
	}
}

// A browser that is replaced under a lease has had its use, and one that a
// failed instance's holder has had launched is not the next one's.
func TestPoolUsesAreCounted(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_MAX_USES=1", "_B_INSTANCES=1", "_B_ISOLATED=true",
		"_B_RESTART=never")
	l := p.Lease()
	syscall.Kill(l.Instance.PID, syscall.SIGKILL)
	back := 0
	cmdtest.Until(t, "the browser is back", func() bool {
		i := p.Status().Pools[0].Instances[0]
		back = i.PID
		return i.Status == "healthy" && i.PID != l.Instance.PID && i.Uses == 1
	})
	w.Run("bpool", "release", l.Lease.ID)
	cmdtest.Until(t, "it is replaced after the lease", func() bool {
		i := p.Status().Pools[0].Instances[0]
		return i.Status == "healthy" && i.PID != back && i.PID != 0
	})
	b := p.Lease("B")
	syscall.Kill(b.Instance.PID, syscall.SIGKILL)
	cmdtest.Until(t, "it has failed", func() bool { return p.Status().Summary.Failed == 1 })
	cmdtest.Get(t, "GET", b.Instance.HTTPURL+"/json/version") // launches another one
	w.Run("bpool", "release", b.Lease.ID)
	w.Run("bpool", "lease", "B").Exits(t, 69, "no healthy instances")
	used := strings.Fields(w.Run("blaunch", "list", "-f", "instance.pid").Out)
	w.Run("bpool", "restart", "B").Exits(t, 0, "")
	cmdtest.Until(t, "it is well", func() bool {
		i := p.Status().Pools[1].Instances[0]
		return i.Status == "healthy" && i.PID != 0
	})
	if again := p.Lease("B"); slices.Contains(used, strconv.Itoa(again.Instance.PID)) {
		t.Error("a browser that somebody has used is leased as a fresh one")
	}
}

// A profile is for one browser at a time: of a pool, and of what was one before
// a reload.
func TestPoolProfiles(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	file := w.Dir + "/pool.toml"
	write := func(text string) {
		os.WriteFile(file, []byte("browser = \""+cmdtest.Bin+"/fakebrowser\"\nhealth_interval = \"1h\"\n"+
			"[pool.A]\ninstances = 1\nis_default = true\nuser_data_dir = \""+w.Dir+"/./profile/\"\n"+
			"restart = \"never\"\n"+text), 0o600)
	}
	write("")
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--config", file, "--drain-timeout", "0s",
		"--stop-timeout", "300ms")}
	p.Start()
	w.Run("bpool", "scale", "A", "2").Exits(t, 78, "is set for both A/0 and A/1")
	l := p.Lease()
	write("timeout = 20000\n")
	w.Run("bpool", "reload").Exits(t, 0, "")
	if s := p.Status(); s.Summary.Leased != 1 || len(s.Pools[0].Instances) != 2 ||
		s.Pools[0].Instances[0].Status != "starting" || s.Pools[0].Instances[1].Status != "draining" {
		t.Errorf("%+v, want 1 lease and the instances starting and draining", s)
	}
	w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "the new one has the profile", func() bool {
		return p.Status().Summary.Healthy == 1 && len(p.Status().Pools[0].Instances) == 1
	})
	p.Stop()
	w.Clean()
}

// A lease that is held may end in its time, and nobody gets another one.
func TestPoolDrainsAtTheEnd(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, command := range [][]string{{"status"}, {"lease"}, {"lease", "--", "true"}, {"release", "x"},
		{"release", "--all"}, {"renew", "x"}, {"restart", "A"}, {"scale", "A", "2"}, {"drain"}, {"reload"}, {"watch"}} {
		w.Run("bpool", command...).Exits(t, 69, "hint: start one with bpool serve")
	}
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--drain-timeout", "1m")}
	p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_LAUNCH=false")
	p.Start()
	holder := w.Cmd("bpool", "lease", "--", "cat")
	in, _ := holder.StdinPipe()
	holder.Start()
	cmdtest.Until(t, "it is held", func() bool { return p.Status().Summary.Leased == 1 })
	p.Cmd.Process.Signal(syscall.SIGTERM)
	cmdtest.Until(t, "no lease is given", func() bool { return w.Run("bpool", "lease", "--timeout", "0").Code == 75 })
	cmdtest.Until(t, "it says for whom it waits", func() bool {
		return strings.Contains(p.Errs.String(), fmt.Sprintf("stopping: waiting up to 1m0s for 1 lease (cat (%d) for ",
			holder.Process.Pid))
	})
	if s := p.Status(); s.Summary.Leased != 1 {
		t.Errorf("%+v, want 1 leased", s.Summary)
	}
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if err := p.Cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TERM does not wait for a launch that hangs.
func TestPoolStoppedDuringStart(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	socket, told := w.NotifySocket()
	c := w.Cmd("bpool", "serve", "--stop-timeout", "300ms")
	c.Env = append(c.Env, "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY_TIMEOUT=600000",
		"FAKE=hang", "NOTIFY_SOCKET="+socket)
	var out, errs cmdtest.SyncBuffer
	c.Stdout, c.Stderr = &out, &errs
	cmdtest.Start(t, c)
	cmdtest.Until(t, "the launch is under way", func() bool { return len(w.State().Instances) == 1 })
	cmdtest.Until(t, "it says what it waits for", func() bool {
		return strings.Contains(errs.String(), "starting: 0 of 1 instances are up")
	})
	c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil || out.String() != "" {
		t.Error(err, out.String())
	}
	w.Clean()
	told("STOPPING=1")
}

// What is no request does no harm.
func TestPoolBadClients(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	silent, err := net.Dial("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, text := range []string{"garbage\n", "{\"id\":1", "", "{\"id\":1,\"method\":\"hold\",\"params\":[]}\n",
		"{\"id\":1,\"method\":\"steal\"}\n", strings.Repeat("x", 100<<20)} {
		c, err := net.Dial("unix", p.Socket)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		c.(*net.UnixConn).CloseWrite()
		b, _ := io.ReadAll(c)
		if strings.HasSuffix(text, "\n") && !strings.Contains(string(b), `"code":"`) {
			t.Errorf("%.30q is answered by %q", text, b)
		}
		c.Close()
	}
	p.Lease()
}

// How the service is, by HTTP: for programs of this machine only.
func TestPoolHTTP(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/token", []byte("secret\n"), 0o600)
	w.Run("bpool", "serve", "--http", "0.0.0.0:0").Exits(t, 64, "--token-file")
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--http", "127.0.0.1:0", "--stop-timeout", "300ms",
		"--drain-timeout", "0s")}
	p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__A_RESTART=never")
	p.Start()
	w.Run("bpool", "serve", "--socket", w.Dir+"/other.sock", "--http", strings.TrimPrefix(p.HTTP, "http://")).Exits(t,
		75,
		"is taken")
	l := p.Lease()
	if code, body := cmdtest.Get(t, "GET", p.HTTP+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d %s", code, body)
	}
	var s cmdtest.PoolStatus
	if _, body := cmdtest.Get(t, "GET", p.HTTP+"/status?pool=A"); json.Unmarshal([]byte(body), &s) != nil ||
		s.Summary.Leased != 1 {
		t.Errorf("/status?pool=A: %s, want 1 leased", body)
	}
	if code, body := cmdtest.Get(t, "GET", p.HTTP+"/status?pool=B"); code != 404 || !strings.Contains(body,
		"pool_not_found") {
		t.Errorf("%d %s", code, body)
	}
	w.Run("bpool", "release", l.Lease.ID)
	_, metrics := cmdtest.Get(t, "GET", p.HTTP+"/metrics")
	for _, want := range []string{`bpool_instances{pool="A",state="healthy"} 2`, `bpool_leases{pool="A"} 0`,
		`bpool_launches_total{pool="A"} 2`,
		`bpool_restarts_total{pool="A",reason="crash"} 0`, `bpool_lease_hold_seconds_count{pool="A"} 1`,
		`bpool_lease_wait_seconds_count{pool="A"} 1`, "go_goroutines"} {
		if !strings.Contains(metrics, want+"\n") && !strings.Contains(metrics, want+" ") {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	if code, _ := cmdtest.Get(t, "POST", p.HTTP+"/status"); code != 405 {
		t.Errorf("status %d, want 405", code)
	}
	if code, _ := cmdtest.Get(t, "GET", p.HTTP+"/status", "Sec-Fetch-Site: cross-site"); code != 403 {
		t.Errorf("a web page gets %d", code)
	}
	for _, i := range p.Status().Pools[0].Instances {
		syscall.Kill(i.PID, syscall.SIGKILL)
	}
	cmdtest.Until(t, "it says that it is not well", func() bool {
		code, body := cmdtest.Get(t, "GET", p.HTTP+"/healthz")
		return code == 503 && strings.Contains(body, "pool A has no healthy instances")
	})
}

// Who waits is told when there is nothing left to wait for, but not when a
// browser is only being replaced.
func TestPoolWaitersOfTheDead(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_B_INSTANCES=1", "_B_RESTART=never")
	for _, pool := range []string{"A", "B"} {
		l := p.Lease(pool)
		waiter := make(chan cmdtest.Result)
		go func() { waiter <- w.Run("bpool", "lease", "--timeout", "1m", pool) }()
		cmdtest.Until(t, "one waits", func() bool { return p.Status().Summary.Waiting == 1 })
		syscall.Kill(l.Instance.PID, syscall.SIGKILL)
		if pool == "B" {
			(<-waiter).Exits(t, 69, "Pool 'B' has no healthy instances. Specify another pool or restart "+
				"failed instances.")
			continue
		}
		cmdtest.Until(t, "the browser is back", func() bool {
			i := p.Status().Pools[0].Instances[0]
			return i.Status == "healthy" && i.PID != l.Instance.PID
		})
		w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
		(<-waiter).Exits(t, 0, "")
	}
}

// A full disk keeps browsers from being launched, not the service from
// answering; with room again they are.
func TestPoolOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	full, fill := w.SmallDisk()
	env := w.Env
	w.Env = append(env, "TMPDIR="+full)
	fill(0)
	p := w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_RESTART=never")
	w.Env = env
	w.Run("bpool", "lease", "--timeout", "0").Exits(t, 69, "Default pool 'A' has no healthy instances")
	if s := p.Status(); s.Summary.Failed != 2 || !strings.Contains(s.Pools[0].Instances[0].Health.Error,
		"no space left") {
		t.Errorf("%+v, want 2 failed instances, and the error: no space left", s)
	}
	os.Remove(full + "/ballast")
	w.Run("bpool", "restart", "A").Exits(t, 0, "")
	cmdtest.Until(t, "there are browsers", func() bool { return p.Status().Summary.Healthy == 2 })
	p.Lease()
	p.Stop()
	w.Clean()
}

// Why a browser can't be launched is told once, with what to do, and by whoever
// is asked for a lease.
func TestPoolWithoutADisplay(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "FAKE=nodisplay")
	p := w.Pool("_A_INSTANCES=1", "_A_RESTART=never")
	const why = "there is no display to open a window on"
	cmdtest.Until(t, "it says so", func() bool {
		return strings.Contains(p.Errs.String(),
			"pool A: 1 of 1 failed: "+why)
	})
	if s := p.Errs.String(); strings.Count(s, why) != 2 ||
		!strings.Contains(s,
			"bpool: no browser: cannot launch: fakebrowser exited with code 1 before its endpoint answered: "+why) ||
		!strings.Contains(s, `hint="leave out --no-headless`) {
		t.Errorf("messages:\n%s\nwant the reason %q twice, with its hint", s, why)
	}
	r := w.Run("bpool", "lease")
	r.Exits(t, 69,
		"Default pool 'A' has no healthy instances. Specify explicit pool or restart failed instances. "+
			"(1 of 1 failed: "+why+", not retried (RESTART=never))")
	r.Exits(t, 69, "hint: bpool status A shows them; bpool restart A retries at once")
}

// The table for people: on a terminal, with colors unless they are refused.
func TestPoolStatusForPeople(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "LAUNCH=false", "_B_INSTANCES=1", "_B_LAUNCH=true",
		"_B_BROWSER="+w.Dir+"/none", "_B_RESTART=never")
	l := p.Lease("--bind-pid", fmt.Sprint(os.Getpid()))
	env := w.Env
	w.Env = append(env, "COLUMNS=80")
	out := w.Run("bpool", "status", "--output", "table").Out
	for _, line := range strings.Split(out, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	id := l.Lease.ID
	for _, want := range []string{"STATE    HOLDER", fmt.Sprintf(" (%d)", os.Getpid()), "…" + id[len(id)-6:] + "\n",
		"\n    cannot use " + w.Dir + "/none: no such browser: there is no such file\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("misses %q in\n%s", want, out)
		}
	}
	if out := w.Run("bpool", "status", "--output", "table", "--wide").Out; !strings.Contains(out, id) ||
		!strings.Contains(out, "ENDPOINT") || !strings.Contains(out, "BY     HELD") ||
		!strings.Contains(out, " uid:") || !strings.Contains(out, "RESTARTS  MEMORY") ||
		!regexp.MustCompile(`EXPIRES .*\n.*[0-9]:[0-9]`).MatchString(out) {
		t.Errorf("status --wide:\n%s\nwant the columns of monitoring, ENDPOINT and the lease %s", out, id)
	}
	w.Env = env
	terminal := func(line string) string {
		c := w.Cmd("script", "-qec", line, "/dev/null")
		c.Env = append(c.Env, "TERM=xterm")
		b, _ := cmdtest.Combined(c)
		return string(b)
	}
	if out := terminal("bpool status"); !strings.Contains(out, "\x1b[32mhealthy\x1b[39m") {
		t.Errorf("status on a terminal: %q, want healthy in green", out)
	}
	if out := terminal("NO_COLOR=1 bpool status"); strings.Contains(out, "\x1b") || !strings.Contains(out, "healthy") {
		t.Errorf("status with NO_COLOR: %q, want healthy without a color", out)
	}
	if out := terminal("timeout 3 bpool status --watch"); strings.Count(out,
		"2 healthy, 1 failed, 1 leased, 1 available; 0 waiting") < 2 {
		t.Errorf("status --watch: %q, want its summary more than once", out)
	}
	w.Run("bpool", "status", "--watch").Exits(t, 64, "--watch needs a terminal")
}

// Under load, while browsers die and the pool is scaled, drained and reloaded,
// nobody shares an instance and everybody is answered. SOAK is for how long.
func TestPoolUnderLoad(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	soak, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		soak = 5 * time.Second
	}
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=4", "_A_IS_DEFAULT=1")
	end := time.Now().Add(soak)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
			instances := p.Status().Pools[0].Instances
			switch n := rand.IntN(10); {
			case n < 7:
				if i := instances[rand.IntN(len(instances))]; i.PID > 1 {
					syscall.Kill(i.PID, syscall.SIGKILL)
				}
			case n < 8:
				w.Run("bpool", "scale", "A", fmt.Sprint(2+rand.IntN(4))).Exits(t, 0, "")
			case n < 9:
				w.Run("bpool", "drain", "A").Exits(t, 0, "")
				w.Run("bpool", "drain", "--off").Exits(t, 0, "")
			default:
				w.Run("bpool", "reload").Exits(t, 0, "")
			}
		}
	})
	for range 32 {
		all.Go(func() {
			for time.Now().Before(end) {
				// A second browser in the directory would fail.
				r := w.Run("bpool", "lease", "--timeout", "1m", "--", "sh", "-c",
					`d=$TMPDIR/held-$BTOOLS_PORT; mkdir "$d" && sleep 0.02 && rmdir "$d"`)
				if r.Code != 0 {
					t.Errorf("an instance was leased twice: %+v", r)
				}
			}
		})
	}
	all.Wait()
	w.Run("bpool", "reload").Exits(t, 0, "")
	w.Run("bpool", "restart", "A").Exits(t, 0, "") // failed instances too
	cmdtest.Until(t, "all is well again", func() bool {
		s := p.Status().Summary
		return s.Total == 4 && s.Available == 4 && s.Waiting == 0 && s.Leased == 0
	})
	p.Stop()
	w.Clean()
}

func TestPoolCheck(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/pool.toml", []byte("headless = false\n[pool.A]\ninstances = 2\n"), 0o600)
	w.Env = append(w.Env, "PW_MCP_PROXY__A__1_BROWSER=brave")
	const fields = "setting.instance,setting.key,setting.value,setting.source"
	brave := "1\tBROWSER\tbrave\tinstance, PW_MCP_PROXY__A__1_BROWSER\n"
	headless := "\tHEADLESS\tfalse\tglobal, " + w.Dir + "/pool.toml: headless\n"
	instances := "\tINSTANCES\t2\tpool, " + w.Dir + "/pool.toml: pool.A.instances\n"
	r := w.Run("bpool", "check", "--config", w.Dir+"/pool.toml", "-f", fields)
	if r.Out != instances+headless+brave {
		t.Errorf("what is set:\n%s", r.Out)
	}
	r.Exits(t, 0,
		"warning: pool A: no brave is installed, so instance 1 can't be launched; bfind lists the installed browsers")
	r = w.Run("bpool", "check", "--all", "--config", w.Dir+"/pool.toml", "-f", fields)
	for _, want := range []string{brave, "0" + headless, "1" + headless, instances, "0\tTIMEOUT\t30000\tdefault\n",
		"\tIS_DEFAULT\ttrue\tdefault of the only pool\n"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("misses %q in\n%s", want, r.Out)
		}
	}
	cmdtest.WriteFile(t, w.Dir+"/gateway.toml", "nats = \"nats://127.0.0.1:1\"\nhosts_token = \"x\"\n")
	gateway := w.With("PW_MCP_PROXY__A__1_BROWSER=")
	if r := gateway.Run("bpool", "check", "--config", w.Dir+"/gateway.toml", "-f", "setting.pool,setting.key"); r.Out !=
		"\tNATS\n\tHOSTS_TOKEN\n" {
		t.Errorf("a service that only leases from other hosts has %s", r.Out)
	}
	env := w.Env
	w.Env = append(env, "PW_MCP_PROXY_INSTANCES=2", "PW_MCP_PROXY__A_HEADLES=1")
	for _, command := range []string{"check", "serve"} {
		r := w.Run("bpool", command, "--config", w.Dir+"/pool.toml")
		r.Exits(t, 78, "INSTANCES defined globally")
		r.Exits(t, 78, "did you mean HEADLESS?")
		r.Exits(t, 78, "hint: bpool.toml(5) describes each key")
	}
	w.Run("bpool").Exits(t, 64, "name a command")
	// A file of variables is read only if it is named, and may be written for
	// several programs. The environment takes precedence.
	os.WriteFile(w.Dir+"/.env", []byte("# .env\nSECRET='x y'\nexport PW_MCP_PROXY_TIMEOUT=30000\n"+
		"PW_MCP_PROXY__A_INSTANCES=3\nPW_MCP_PROXY__A__1_BROWSER=chrome\n"), 0o600)
	c := w.Cmd("bpool", "check", "-f", fields, "--env-file", ".env")
	c.Dir, c.Env = w.Dir, env
	b, err := c.Output()
	if want := "\tTIMEOUT\t30000\tglobal, .env:3: PW_MCP_PROXY_TIMEOUT\n"; err != nil ||
		!strings.Contains(string(b), want) || !strings.Contains(string(b), brave) ||
		!strings.Contains(string(b), "\tINSTANCES\t3\tpool, .env:4: ") {
		t.Errorf("%s, %v", b, err)
	}
	c = w.Cmd("bpool", "check")
	c.Dir, c.Env = w.Dir, env
	if b, _ := cmdtest.Combined(c); c.ProcessState.ExitCode() != 78 ||
		!strings.Contains(string(b), "Pool missing INSTANCES") {
		t.Errorf("it is read unasked: %s", b)
	}
	w.Run("bpool", "serve", "--env-file", w.Dir+"/none").Exits(t, 78, "none: no such file or directory")
	// Nothing is configured: the best installed browser is used.
	w.Env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PW_MCP_PROXY_") })
	if r := w.Run("bpool", "check", "--all", "-f", fields); !strings.Contains(r.Out,
		"0\tBROWSER\t\tdefault: the best installed browser\n") || r.Err != "" {
		t.Errorf("check --all: %+v, want BROWSER with its default", r)
	}
}

// The configurations of variables that bpool.toml(5) shows are valid.
func TestPoolExamples(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(cmdtest.Root + "/man/bpool.toml.5")
	if err != nil {
		t.Fatal(err)
	}
	var examples [][]string
	for _, text := range strings.Split(string(b), ".Bd -literal -offset indent\n")[1:] {
		if text, _, _ = strings.Cut(text, "\n.Ed"); strings.HasPrefix(text, "PW_MCP_PROXY_") {
			examples = append(examples, strings.Split(strings.ReplaceAll(text, "'", ""), "\n"))
		}
	}
	if len(examples) != 6 {
		t.Errorf("%d configurations", len(examples))
	}
	w := cmdtest.New(t)
	env := w.Env
	for _, e := range examples {
		w.Env = append(env[:len(env):len(env)], e...)
		if r := w.Run("bpool", "check"); r.Code != 0 {
			t.Errorf("%v: %+v", e, r)
		}
	}
}

// Without any configuration there is one instance, of the best browser, and
// what is left to its first connection is known to speak what it will.
func TestPoolUnconfigured(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "BTOOLS_BROWSER="+cmdtest.Bin+"/fakebrowser")
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--drain-timeout", "0s")}
	p.Start()
	i := p.Status().Pools[0].Instances[0]
	if i.Browser != "chromium" || i.Status != "healthy" { // which an unknown name counts as
		t.Errorf("%+v, want a healthy chromium", i)
	}
	if n := w.Run("blaunch", "list", "-f", "instance.owner").Out; n != "bpool DEFAULT/0\n" {
		t.Errorf("its browser is that of %q", n)
	}
	w.Run("bpool", "lease", "--instance", "7").Exits(t, 69, `pool DEFAULT has no instance "7": it has 0`+"\n")
	p.Stop()
	w.Run("cp", cmdtest.Bin+"/fakebrowser", w.Dir+"/firefox").Exits(t, 0, "")
	p = w.Pool("BROWSER="+w.Dir+"/firefox", "START=lazy")
	r := w.Run("bpool", "lease", "-f", "instance.protocol,instance.ws_url")
	if !strings.HasPrefix(r.Out, "bidi\tws://") || !strings.HasSuffix(r.Out, "/session\n") {
		t.Errorf("%+v, want bidi and an address that ends in /session", r)
	}
}

func TestPoolLazyAndIdle(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_START=lazy", "_A_IDLE_TIMEOUT=300ms")
	if i := p.Status().Pools[0].Instances[0]; i.PID != 0 || i.Status != "healthy" {
		t.Errorf("%+v, want a healthy instance without a process", i)
	}
	l := p.Lease()
	for range 2 {
		if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
			t.Errorf("status %d, want 200", code)
		}
		cmdtest.Until(t, "the idle browser is stopped", func() bool {
			i := p.Status().Pools[0].Instances[0]
			return i.PID == 0 && i.Status == "healthy" && i.Restarts == 0 && i.Lease == l.Lease.ID
		})
	}
}

func TestPoolRestartDrainWatch(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_LEASE_TIMEOUT=100ms")
	c := w.Cmd("bpool", "watch", "-f", "event.event,event.instance,event.lease")
	out, _ := c.StdoutPipe()
	c.Start()
	defer c.Wait()
	defer c.Process.Kill()
	lines := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	seen := func(want string) {
		t.Helper()
		for end := time.After(cmdtest.Patience); ; {
			select {
			case l := <-lines:
				if strings.HasPrefix(l, want) {
					return
				}
			case <-end:
				t.Fatalf("no event %q", want)
			}
		}
	}
	cmdtest.Until(t, "it watches", func() bool {
		w.Run("bpool", "release", p.Lease().Lease.ID)
		return len(lines) > 0
	})
	l := p.Lease()
	seen("leased\t" + l.Lease.Instance + "\t" + l.Lease.ID)
	w.Run("bpool", "restart", "A/"+l.Lease.Instance).Exits(t, 0, "restarting A/"+l.Lease.Instance+" (1 instance)")
	seen("restarted\t" + l.Lease.Instance)
	seen("healthy\t" + l.Lease.Instance)
	if i := p.Status(); i.Summary.Leased != 1 {
		t.Errorf("a restart ends the lease: %+v", i)
	}
	w.Run("bpool", "drain", "A").Exits(t, 0, "pool A (2 instances): no more leases are granted until bpool drain --off")
	seen("drained")
	w.Run("bpool", "lease").Exits(t, 75, "none came free")
	if i := p.Status().Pools[0].Instances[1]; i.Status != "draining" {
		t.Errorf("%+v, want a draining one", i)
	}
	w.Run("bpool", "drain", "--off").Exits(t, 0, "all pools (2 instances): leases are granted again")
	p.Lease()
	w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	seen("released\t" + l.Lease.Instance)
	p.Lease("--ttl", "1s")
	seen("expired")
	waits := w.Cmd("bpool", "drain", "--wait")
	var said cmdtest.SyncBuffer
	waits.Stderr = &said
	cmdtest.Start(t, waits)
	cmdtest.Until(t, "it waits", func() bool { return strings.Contains(said.String(), "waiting for 1 lease (bpool") })
	w.Run("bpool", "drain", "A", "--wait", "--timeout", "10ms").Exits(t, 75,
		"not drained within 10ms, for 1 lease (bpool")
	w.Run("bpool", "drain", "--timeout", "1s").Exits(t, 64, "--timeout is for --wait")
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	if err := waits.Wait(); err != nil {
		t.Errorf("drain --wait ends with %v: %s", err, said.String())
	}
	w.Run("bpool", "restart", "B").Exits(t, 69, "no pool is named")
	w.Run("bpool", "restart").Exits(t, 64, "name the pool")
	p.Stop()
}

// A new configuration is taken over live; one that is wrong changes nothing.
func TestPoolReloadAndScale(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	file := w.Dir + "/pool.toml"
	write := func(text string) {
		os.WriteFile(file, []byte("browser = \""+cmdtest.Bin+"/fakebrowser\"\n"+text), 0o600)
	}
	write("[pool.A]\ninstances = 2\nis_default = true\n[pool.B]\ninstances = 1\n")
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--config", file, "--drain-timeout", "0s")}
	p.Start()
	l, b := p.Lease("--instance", "0"), p.Lease("B")
	other := p.Status().Pools[0].Instances[1]

	write("[pool.A]\ninstances = -1\n")
	w.Run("bpool", "reload").Exits(t, 78, `instances is "-1"`)
	if s := p.Status().Summary; s.Total != 3 || s.Leased != 2 {
		t.Errorf("after a reload that was refused: %+v, want 3 instances, 2 leased", s)
	}
	// Instance 1 changes, 2 is new, pool B is removed.
	write("[pool.A]\ninstances = 3\nis_default = true\n[pool.A.instance.1]\nalias = \"x\"\n")
	p.Cmd.Process.Signal(syscall.SIGHUP)
	cmdtest.Until(t, "it is reloaded", func() bool { return p.Status().Summary.Healthy == 3 })
	s := p.Status()
	if i := s.Pools[0].Instances; len(s.Pools) != 1 || i[0].PID != l.Instance.PID || i[0].Lease != l.Lease.ID ||
		i[1].PID == other.PID {
		t.Errorf("after a reload: %+v, want pool A alone, instance 0 with its lease %s, and instance 1 anew", s,
			l.Lease.ID)
	}
	// A removed instance lives as long as its lease.
	if code, _ := cmdtest.Get(t, "GET", b.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("status %d, want 200", code)
	}
	w.Run("bpool", "release", b.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "its browser is stopped", func() bool { return syscall.Kill(b.Instance.PID, 0) != nil })

	w.Run("bpool", "scale", "A", "5").Exits(t, 0, "")
	cmdtest.Until(t, "there are more", func() bool { return p.Status().Summary.Healthy == 5 })
	w.Run("bpool", "scale", "A", "1").Exits(t, 0, "pool A has 1 instance until the configuration is reloaded")
	if s := p.Status(); s.Summary.Total != 1 || s.Pools[0].Instances[0].Lease != l.Lease.ID {
		t.Errorf("%+v, want 1 instance, with the lease %s", s, l.Lease.ID)
	}
	w.Run("bpool", "scale", "A", "0").Exits(t, 64, "1 to 10000")
	w.Run("bpool", "scale", "C", "1").Exits(t, 69, "no pool is named")
	cmdtest.Until(t, "the others are stopped", func() bool { return len(w.State().Instances) == 1 })
	// The size set by scale is reset, and the state file lists the pools again.
	write("[pool.A]\ninstances = 3\nis_default = true\n[pool.D]\ninstances = 1\n")
	w.Run("bpool", "reload").Exits(t, 0,
		"the configuration was reloaded; pool A has 3 instances again (bpool scale had set 1)")
	cmdtest.Until(t, "the new names are listed", func() bool {
		return slices.Equal(w.State().Pools[0].Names,
			[]string{"A", "D"})
	})
	// The socket and the entry of the service are deleted.
	os.RemoveAll(w.Dir + "/state")
	p.Cmd.Process.Signal(syscall.SIGHUP)
	cmdtest.Until(t, "it is found again", func() bool {
		return w.Run("bpool", "status").Code == 0 && slices.Equal(w.State().Pools[0].Names, []string{"A", "D"})
	})
	p.Stop()
	w.Clean()
}

// systemdSocket opens the control socket as systemd does, and returns it for the service.
func systemdSocket(w *cmdtest.World) *os.File {
	w.T.Helper()
	os.Mkdir(w.Dir+"/state", 0o700)
	l, err := net.Listen("unix", w.Dir+"/state/bpool.sock")
	if err != nil {
		w.T.Fatal(err)
	}
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		f.Close()
		l.Close()
	})
	return f
}

// What systemd does: it holds the control socket, hears that the service is
// ready, and that it is well.
func TestPoolSystemd(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	f := systemdSocket(w)
	socket, told := w.NotifySocket()
	p := &cmdtest.Pool{T: t, W: w,
		Cmd: w.Cmd("sh", "-c", `export LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET="$0" WATCHDOG_USEC=100000; `+
			`exec bpool serve`,
			socket)}
	p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser")
	p.Cmd.ExtraFiles = []*os.File{f}
	asked := make(chan cmdtest.Result)
	go func() { asked <- w.Run("bpool", "status", "-f", "summary.total_instances") }() // it waits for the service
	p.Start()
	if r := <-asked; r.Out != "1\n" {
		t.Errorf("who asks before the service is there: %+v", r)
	}
	told("READY=1", "WATCHDOG=1", "WATCHDOG=1")
	if p.Socket != w.Dir+"/state/bpool.sock" || p.Status().Summary.Healthy != 1 {
		t.Errorf("%s %+v", p.Socket, p.Status())
	}
	p.Stop()
	if _, err := os.Stat(p.Socket); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}
}
