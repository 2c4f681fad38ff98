//go:build linux

package cmd_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"btools/lib/proc"
)

func TestPoolOnRealBrowsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("BROWSER=chromium", "_A_INSTANCES=2", "_A_IS_DEFAULT=true", "_A__1_ALIAS=second", "_F_INSTANCES=1",
		"_F_BROWSER=firefox", "_F_TIMEOUT=60000")
	l := p.lease("--instance", "second")
	if l.Lease.Pool != "A" || l.Lease.Instance != "1" || l.Lease.Alias != "second" {
		t.Errorf("lease --instance second: %+v, want instance 1 of pool A", l.Lease)
	}
	at := strings.TrimPrefix(l.Instance.HTTPURL, "http://") + "/devtools/browser/"
	if _, v := get(t, "GET", l.Instance.HTTPURL+"/json/version"); !strings.Contains(v, at) {
		t.Errorf("/json/version: %s, want the lease's address %s", v, at)
	}
	// A browser that dies comes back behind the same endpoint and lease.
	syscall.Kill(l.Instance.PID, syscall.SIGKILL)
	until(t, "the browser is back", func() bool {
		i := p.status().Pools[0].Instances[1]
		return i.Status == "healthy" && i.PID != l.Instance.PID && i.Lease == l.Lease.ID && i.Restarts == 1
	})
	if code, _ := get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("status %d, want 200", code)
	}
	if f := p.lease("F"); !strings.HasSuffix(f.Instance.WSURL, "/session") {
		t.Errorf("a Firefox has the address %s, want one that ends in /session", f.Instance.WSURL)
	}
	p.stop()
	w.clean()
}

func TestPoolLeases(t *testing.T) {
	w := newWorld(t)
	w.run("bpool", "lease").wants(t, 69, "no bpool service runs (looked in "+w.dir+"/state/state.json)")
	p := w.pool("_A_INSTANCES=3", "_A_IS_DEFAULT=1", "_A__2_ALIAS=last", "_A_LEASE_TIMEOUT=200ms", "_A_QUEUE_LIMIT=1",
		"_B_INSTANCES=1")
	if s := p.status().Summary; s.Total != 4 || s.Healthy != 4 || s.Available != 4 || s.Leased != 0 {
		t.Errorf("%+v, want 4 instances, all healthy and available", s)
	}
	w.run("bpool", "lease", "CC").wants(t, 69, `no pool is named "CC": there are A, B`)
	w.run("bpool", "lease", "a").wants(t, 69, `no pool is named "a": did you mean A?`)
	w.run("bpool", "lease", "--instance", "3").wants(t, 69, `pool A has no instance "3": it has 0 to 2 and last`)
	w.run("bpool", "status", "C").wants(t, 69, "no pool is named")

	// An ID and its alias are one instance.
	l := p.lease("--instance", "last")
	w.run("bpool", "lease", "--instance", "2").wants(t, 75, "none came free within 200ms")
	w.run("bpool", "lease", "--instance", "2", "--timeout", "0").wants(t, 75, "none is free")
	// Other requests are not held up; the instance that was returned first goes
	// first.
	a, b := p.lease(), p.lease()
	w.run("bpool", "release", b.Lease.ID, a.Lease.ID).wants(t, 0, "")
	if x, y := p.lease(), p.lease(); x.Lease.Instance != b.Lease.Instance || y.Lease.Instance != a.Lease.Instance {
		t.Errorf("%s %s, want %s %s", x.Lease.Instance, y.Lease.Instance, b.Lease.Instance, a.Lease.Instance)
	}
	// One request waits, and the queue is full.
	c := w.cmd("bpool", "lease", "--timeout", "1m", "-f", "lease.instance")
	var got strings.Builder
	c.Stdout = &got
	c.Start()
	until(t, "one waits", func() bool { return p.status().Summary.Waiting == 1 })
	w.run("bpool", "lease").wants(t, 75, "the queue is full (1 waiting)")
	w.run("bpool", "release", l.Lease.ID).wants(t, 0, "")
	c.Wait()
	if got.String() != "2\n" {
		t.Errorf("who waits gets %q", got.String())
	}
	// Releasing a lease that has ended is not an error; releasing an unknown
	// one changes nothing.
	w.run("bpool", "release", l.Lease.ID, "lease_1_x").wants(t, 0, "there is no lease")
	w.run("bpool", "renew", l.Lease.ID).wants(t, 69, "there is no lease")
	if s := p.status().Summary; s.Leased != 3 {
		t.Errorf("%+v, want 3 leased", s)
	}
	w.run("bpool", "release").wants(t, 64, "name the leases")
	w.run("bpool", "release", "--all").wants(t, 0, "")
	if s := p.status().Summary; s.Leased != 0 || s.Available != 4 {
		t.Errorf("after release --all: %+v, want 4 available and none leased", s)
	}
	for _, line := range []string{"bpool lease B | bpool release -f lease.id",
		"bpool lease B -f lease.id | bpool release -f lease.id"} {
		if r := w.run("sh", "-c", line); r.code != 0 || !strings.HasPrefix(r.out, "lease_") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// A lease ends with whoever holds it, and with its time; its connections too.
func TestPoolLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	free := func(t *testing.T) {
		t.Helper()
		until(t, "the lease has ended", func() bool { return p.status().Summary.Leased == 0 })
	}
	t.Run("with its command", func(t *testing.T) {
		r := w.run("bpool", "lease", "--", "sh", "-c",
			`bpool status -f summary.leased_instances; echo "$BTOOLS_CDP_URL"; exit 7`)
		if f := strings.Fields(r.out); r.code != 7 || len(f) != 2 || f[0] != "1" ||
			!strings.HasPrefix(f[1], "http://127.0.0.1:") {
			t.Errorf("%+v; want exit 7, 1 leased instance and its address", r)
		}
		free(t)
	})
	t.Run("with the holder that is killed", func(t *testing.T) {
		c := w.cmd("bpool", "lease", "--wait")
		out, _ := c.StdoutPipe()
		c.Start()
		bufio.NewReader(out).ReadString('\n')
		if p.status().Summary.Leased != 1 {
			t.Error("--wait does not hold")
		}
		c.Process.Kill()
		c.Wait()
		free(t)
	})
	t.Run("after --ttl, of which CMD and its user are told", func(t *testing.T) {
		w.run("bpool", "lease", "--ttl", "300ms", "--", "sleep", "1000").wants(t, 143,
			"the lease has expired (time to live 300ms): stopping sleep")
		w.run("bpool", "lease", "--ttl", "300ms", "--wait", "-f", "lease.x").wants(t, 64, "no record has a field")
		r := w.run("bpool", "lease", "--ttl", "300ms", "--wait")
		if r.code != 69 || !strings.Contains(r.err, "the lease has expired (time to live 300ms)") {
			t.Errorf("lease --wait: %+v, want exit 69 and that the lease has expired", r)
		}
	})
	t.Run("if its record cannot be printed: nobody knows of it", func(t *testing.T) {
		w.run("sh", "-c", "bpool lease >/dev/full").wants(t, 1, "cannot write the result")
		free(t)
		nobody, pipe, _ := os.Pipe()
		nobody.Close()
		c := w.cmd("bpool", "lease")
		c.Stdout = pipe
		if c.Run(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
			t.Errorf("%v, want an end by SIGPIPE", c.ProcessState)
		}
		pipe.Close()
		free(t)
	})
	t.Run("of a command whose browser was replaced", func(t *testing.T) {
		c := w.cmd("bpool", "lease", "--", "cat")
		var errs syncBuffer
		c.Stderr = &errs
		in, _ := c.StdinPipe()
		c.Start()
		until(t, "it is leased", func() bool { return p.status().Summary.Leased == 1 })
		syscall.Kill(p.status().Pools[0].Instances[0].PID, syscall.SIGKILL)
		until(t, "its terminal says so at once", func() bool {
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
		p.lease("--bind-pid", fmt.Sprint(sleep.Process.Pid))
		sleep.Process.Kill()
		sleep.Wait()
		free(t)
	})
	t.Run("after --ttl, and its connections with it", func(t *testing.T) {
		l := p.lease("--ttl", "300ms")
		conn, err := net.Dial("tcp", strings.TrimPrefix(l.Instance.HTTPURL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		closed(t, conn)
		free(t)
	})
	t.Run("not before the time of its renewal", func(t *testing.T) {
		l := p.lease("--ttl", "1m")
		renewed := time.Now()
		w.run("bpool", "renew", "--ttl", "1h", l.Lease.ID).wants(t, 0, "")
		got := p.status().Pools[0].Instances[0].LeaseExpires
		if got.Before(renewed.Add(time.Hour).Truncate(time.Second)) {
			t.Errorf("a lease that was renewed at %v for 1h expires at %v", renewed, got)
		}
		w.run("bpool", "release", "--all")
	})
	t.Run("of another, for which a request waits that is killed", func(t *testing.T) {
		p.lease()
		c := w.cmd("bpool", "lease", "--timeout", "1m")
		var errs syncBuffer
		c.Stderr = &errs
		c.Start()
		until(t, "one waits", func() bool { return p.status().Summary.Waiting == 1 })
		until(t, "it says for whom", func() bool {
			return strings.Contains(errs.String(), "waiting for pool A: 1 of 1 leased, by ")
		})
		c.Process.Kill()
		c.Wait()
		until(t, "nobody waits", func() bool { return p.status().Summary.Waiting == 0 })
		w.run("bpool", "release", "--all")
	})
	t.Run("with the bproxy whose launcher it is", func(t *testing.T) {
		q := w.proxy("--launch", "exec bpool lease --wait")
		if code, body := get(t, "GET", q.url+"/json/version"); code != 200 || p.status().Summary.Leased != 1 {
			t.Errorf("%d %s, want 200 from 1 leased instance", code, body)
		}
		q.stop()
		free(t)
		q = w.proxy("--launch", "bpool lease --wait")
		get(t, "GET", q.url+"/json/version")
		q.cmd.Process.Kill()
		q.cmd.Wait()
		free(t)
	})
}

func TestPoolHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_HEALTH_INTERVAL=100ms",
		"_A_HEALTH_TIMEOUT=2s")
	i := p.status().Pools[0].Instances[0]
	syscall.Kill(i.PID, syscall.SIGSTOP) // it hangs
	until(t, "another one has taken its place", func() bool {
		now := p.status().Pools[0].Instances[0]
		return now.Status == "healthy" && now.PID != i.PID
	})
	p.stop()
	w.clean()

	p = w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_RESTART=never", "_A_ISOLATED=true", "_B_INSTANCES=1",
		"_B_MAX_USES=2")
	l := p.lease("A")
	w.run("bpool", "release", l.Lease.ID)
	until(t, "the next lease has a fresh browser", func() bool {
		for _, i := range p.status().Pools[0].Instances {
			if i.ID == l.Lease.Instance {
				return i.Status == "healthy" && i.PID != l.Instance.PID
			}
		}
		return false
	})
	first := p.lease("B")
	w.run("bpool", "release", first.Lease.ID)
	if again := p.lease("B"); again.Instance.PID != first.Instance.PID {
		t.Error("a browser is replaced before its last use")
	}
	w.run("bpool", "release", "--all")
	until(t, "it is replaced after that", func() bool {
		i := p.status().Pools[1].Instances[0]
		return i.Status == "healthy" && i.PID != first.Instance.PID
	})
	for _, i := range p.status().Pools[0].Instances {
		syscall.Kill(i.PID, syscall.SIGKILL)
	}
	until(t, "all have failed", func() bool { return p.status().Summary.Failed == 2 })
	w.run("bpool", "lease").wants(t, 69,
		"Default pool 'A' has no healthy instances. Specify explicit pool or restart failed instances.")
	p.lease("B")
}

func TestPoolDeath(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	r := w.run("bpool", "serve")
	r.wants(t, 75, fmt.Sprintf("already: the bpool service with pid %d", p.cmd.Process.Pid))
	r.wants(t, 75, "bpool serve --socket FILE runs another one")
	waiter := func() (*exec.Cmd, *strings.Builder) {
		c := w.cmd("bpool", "lease", "--timeout", "1m")
		var errs strings.Builder
		c.Stderr = &errs
		c.Start()
		return c, &errs
	}
	p.lease()
	p.lease()
	c, errs := waiter()
	until(t, "one waits", func() bool { return p.status().Summary.Waiting == 1 })
	p.stop()
	if c.Wait(); c.ProcessState.ExitCode() != 75 || !strings.Contains(errs.String(), "the service is stopping") {
		t.Errorf("who waits is told %s", errs.String())
	}
	w.clean()

	p = w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	p.lease("--instance", "0")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	until(t, "its browsers end", func() bool { return len(w.ours()) == 0 })
	w.run("blaunch", "gc") // a fake browser may be gone before the service is, whose directory stays then
	w.clean()
	w.run("bpool", "status").wants(t, 69, "no bpool service")
	// A service of another PID namespace that has ended is not running.
	file := w.dir + "/state/state.json"
	b, _ := os.ReadFile(file)
	boot, _, _ := strings.Cut(proc.Boot(), "/")
	stale := `"pools":[{"process":{"pid":7,"start":1,"boot":"` + boot + `/1"},"control":"` + w.dir +
		`/state/gone.sock","names":["A"]}]`
	os.WriteFile(file, bytes.Replace(b, []byte(`"pools":[]`), []byte(stale), 1), 0o600)
	if n := len(w.state().Pools); n != 1 {
		t.Fatal(n, "services are listed")
	}
	w.run("bpool", "status").wants(t, 69, "no bpool service runs")
	p = w.pool() // takes over its socket
	if s := p.status().Summary; s.Total != 1 || s.Healthy != 1 || s.Leased != 0 {
		t.Errorf("the next service has %+v, want 1 instance that is healthy and free", s)
	}
}

// A browser that is replaced under a lease has had its use, and one that a
// failed instance's holder has had launched is not the next one's.
func TestPoolUsesAreCounted(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_MAX_USES=1", "_B_INSTANCES=1", "_B_ISOLATED=true",
		"_B_RESTART=never")
	l := p.lease()
	syscall.Kill(l.Instance.PID, syscall.SIGKILL)
	back := 0
	until(t, "the browser is back", func() bool {
		i := p.status().Pools[0].Instances[0]
		back = i.PID
		return i.Status == "healthy" && i.PID != l.Instance.PID && i.Uses == 1
	})
	w.run("bpool", "release", l.Lease.ID)
	until(t, "it is replaced after the lease", func() bool {
		i := p.status().Pools[0].Instances[0]
		return i.Status == "healthy" && i.PID != back && i.PID != 0
	})
	b := p.lease("B")
	syscall.Kill(b.Instance.PID, syscall.SIGKILL)
	until(t, "it has failed", func() bool { return p.status().Summary.Failed == 1 })
	get(t, "GET", b.Instance.HTTPURL+"/json/version") // launches another one
	w.run("bpool", "release", b.Lease.ID)
	w.run("bpool", "lease", "B").wants(t, 69, "no healthy instances")
	used := strings.Fields(w.run("blaunch", "list", "-f", "instance.pid").out)
	w.run("bpool", "restart", "B").wants(t, 0, "")
	until(t, "it is well", func() bool {
		i := p.status().Pools[1].Instances[0]
		return i.Status == "healthy" && i.PID != 0
	})
	if again := p.lease("B"); slices.Contains(used, strconv.Itoa(again.Instance.PID)) {
		t.Error("a browser that somebody has used is leased as a fresh one")
	}
}

// A profile is for one browser at a time: of a pool, and of what was one before
// a reload.
func TestPoolProfiles(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/pool.toml"
	write := func(text string) {
		os.WriteFile(file, []byte("browser = \""+bin+"/fakebrowser\"\nhealth_interval = \"1h\"\n"+
			"[pool.A]\ninstances = 1\nis_default = true\nuser_data_dir = \""+w.dir+"/./profile/\"\n"+
			"restart = \"never\"\n"+text), 0o600)
	}
	write("")
	p := &pool{t: t, w: w, cmd: w.cmd("bpool", "serve", "--config", file, "--drain-timeout", "0s",
		"--stop-timeout", "300ms")}
	p.start()
	w.run("bpool", "scale", "A", "2").wants(t, 78, "is set for both A/0 and A/1")
	l := p.lease()
	write("timeout = 20000\n")
	w.run("bpool", "reload").wants(t, 0, "")
	if s := p.status(); s.Summary.Leased != 1 || len(s.Pools[0].Instances) != 2 ||
		s.Pools[0].Instances[0].Status != "starting" || s.Pools[0].Instances[1].Status != "draining" {
		t.Errorf("%+v, want 1 lease and the instances starting and draining", s)
	}
	w.run("bpool", "release", l.Lease.ID).wants(t, 0, "")
	until(t, "the new one has the profile", func() bool {
		return p.status().Summary.Healthy == 1 && len(p.status().Pools[0].Instances) == 1
	})
	p.stop()
	w.clean()
}

// A lease that is held may end in its time, and nobody gets another one.
func TestPoolDrainsAtTheEnd(t *testing.T) {
	w := newWorld(t)
	for _, command := range [][]string{{"status"}, {"lease"}, {"lease", "--", "true"}, {"release", "x"},
		{"release", "--all"}, {"renew", "x"}, {"restart", "A"}, {"scale", "A", "2"}, {"drain"}, {"reload"}, {"watch"}} {
		w.run("bpool", command...).wants(t, 69, "hint: start one with bpool serve")
	}
	p := &pool{t: t, w: w, cmd: w.cmd("bpool", "serve", "--drain-timeout", "1m")}
	p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_LAUNCH=false")
	p.start()
	holder := w.cmd("bpool", "lease", "--", "cat")
	in, _ := holder.StdinPipe()
	holder.Start()
	until(t, "it is held", func() bool { return p.status().Summary.Leased == 1 })
	p.cmd.Process.Signal(syscall.SIGTERM)
	until(t, "no lease is given", func() bool { return w.run("bpool", "lease").code == 75 })
	until(t, "it says for whom it waits", func() bool {
		return strings.Contains(p.errs.String(), fmt.Sprintf("stopping: waiting up to 1m0s for 1 lease (cat (%d) for ",
			holder.Process.Pid))
	})
	if s := p.status(); s.Summary.Leased != 1 {
		t.Errorf("%+v, want 1 leased", s.Summary)
	}
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TERM does not wait for a launch that hangs.
func TestPoolStoppedDuringStart(t *testing.T) {
	w := newWorld(t)
	heard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	c := w.cmd("bpool", "serve", "--stop-timeout", "300ms")
	c.Env = append(c.Env, "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser", "PW_MCP_PROXY_TIMEOUT=600000", "FAKE=hang",
		"NOTIFY_SOCKET="+w.dir+"/notify")
	var out, errs syncBuffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the launch is under way", func() bool { return len(w.state().Instances) == 1 })
	until(t, "it says what it waits for", func() bool {
		return strings.Contains(errs.String(), "starting: 0 of 1 instances are up")
	})
	c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil || out.String() != "" {
		t.Error(err, out.String())
	}
	w.clean()
	b := make([]byte, 100)
	heard.SetReadDeadline(time.Now().Add(patience))
	if n, err := heard.Read(b); string(b[:n]) != "STOPPING=1" {
		t.Errorf("systemd is told %q, %v", b[:n], err)
	}
}

// What is no request does no harm.
func TestPoolBadClients(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	silent, err := net.Dial("unix", p.sock)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, text := range []string{"garbage\n", "{\"id\":1", "", "{\"id\":1,\"method\":\"lease\",\"params\":[]}\n",
		"{\"id\":1,\"method\":\"steal\"}\n", strings.Repeat("x", 100<<20)} {
		c, err := net.Dial("unix", p.sock)
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
	p.lease()
}

// How the service is, by HTTP: for programs of this machine only.
func TestPoolHTTP(t *testing.T) {
	w := newWorld(t)
	os.WriteFile(w.dir+"/token", []byte("secret\n"), 0o600)
	w.run("bpool", "serve", "--http", "0.0.0.0:0").wants(t, 64, "--token-file")
	p := &pool{t: t, w: w, cmd: w.cmd("bpool", "serve", "--http", "127.0.0.1:0", "--stop-timeout", "300ms",
		"--drain-timeout", "0s")}
	p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__A_RESTART=never")
	p.start()
	w.run("bpool", "serve", "--socket", w.dir+"/other.sock", "--http", strings.TrimPrefix(p.http, "http://")).wants(t,
		75,
		"is taken")
	l := p.lease()
	if code, body := get(t, "GET", p.http+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d %s", code, body)
	}
	var s poolStatus
	if _, body := get(t, "GET", p.http+"/status?pool=A"); json.Unmarshal([]byte(body), &s) != nil ||
		s.Summary.Leased != 1 {
		t.Errorf("/status?pool=A: %s, want 1 leased", body)
	}
	if code, body := get(t, "GET", p.http+"/status?pool=B"); code != 404 || !strings.Contains(body, "pool_not_found") {
		t.Errorf("%d %s", code, body)
	}
	w.run("bpool", "release", l.Lease.ID)
	_, metrics := get(t, "GET", p.http+"/metrics")
	for _, want := range []string{`bpool_instances{pool="A",state="healthy"} 2`, `bpool_leases{pool="A"} 0`,
		`bpool_launches_total{pool="A"} 2`,
		`bpool_restarts_total{pool="A"} 0`, `bpool_lease_hold_seconds_count{pool="A"} 1`,
		`bpool_lease_wait_seconds_count{pool="A"} 1`, "go_goroutines"} {
		if !strings.Contains(metrics, want+"\n") && !strings.Contains(metrics, want+" ") {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	if code, _ := get(t, "POST", p.http+"/status"); code != 405 {
		t.Errorf("status %d, want 405", code)
	}
	r, _ := http.NewRequest("GET", p.http+"/status", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if a, err := http.DefaultClient.Do(r); err != nil || a.StatusCode != 403 {
		t.Errorf("a web page gets %+v, %v", a, err)
	}
	for _, i := range p.status().Pools[0].Instances {
		syscall.Kill(i.PID, syscall.SIGKILL)
	}
	until(t, "it says that it is not well", func() bool {
		code, body := get(t, "GET", p.http+"/healthz")
		return code == 503 && strings.Contains(body, "pool A has no healthy instances")
	})
}

// Who waits is told when there is nothing left to wait for, but not when a
// browser is only being replaced.
func TestPoolWaitersOfTheDead(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_B_INSTANCES=1", "_B_RESTART=never")
	for _, pool := range []string{"A", "B"} {
		l := p.lease(pool)
		waiter := make(chan result)
		go func() { waiter <- w.run("bpool", "lease", "--timeout", "1m", pool) }()
		until(t, "one waits", func() bool { return p.status().Summary.Waiting == 1 })
		syscall.Kill(l.Instance.PID, syscall.SIGKILL)
		if pool == "B" {
			(<-waiter).wants(t, 69, "Pool 'B' has no healthy instances. Specify another pool or restart "+
				"failed instances.")
			continue
		}
		until(t, "the browser is back", func() bool {
			i := p.status().Pools[0].Instances[0]
			return i.Status == "healthy" && i.PID != l.Instance.PID
		})
		w.run("bpool", "release", l.Lease.ID).wants(t, 0, "")
		(<-waiter).wants(t, 0, "")
	}
}

// A full disk keeps browsers from being launched, not the service from
// answering; with room again they are.
func TestPoolOnAFullDisk(t *testing.T) {
	w := newWorld(t)
	full, fill := w.smallDisk()
	env := w.env
	w.env = append(env, "TMPDIR="+full)
	fill(0)
	p := w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	w.env = env
	w.run("bpool", "lease", "--timeout", "0").wants(t, 69, "Default pool 'A' has no healthy instances")
	if s := p.status(); s.Summary.Failed != 2 || !strings.Contains(s.Pools[0].Instances[0].Health.Error,
		"no space left") {
		t.Errorf("%+v, want 2 failed instances, and the error: no space left", s)
	}
	os.Remove(full + "/ballast")
	w.run("bpool", "restart", "A").wants(t, 0, "")
	until(t, "there are browsers", func() bool { return p.status().Summary.Healthy == 2 })
	p.lease()
	p.stop()
	w.clean()
}

// Why a browser can't be launched is told once, with what to do, and by whoever
// is asked for a lease.
func TestPoolWithoutADisplay(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "FAKE=nodisplay")
	p := w.pool("_A_INSTANCES=1", "_A_RESTART=never")
	const why = "there is no display to open a window on"
	until(t, "it says so", func() bool { return strings.Contains(p.errs.String(), "pool A: 1 of 1 failed: "+why) })
	if s := p.errs.String(); strings.Count(s, why) != 2 ||
		!strings.Contains(s,
			"bpool: no browser: cannot launch: fakebrowser exited with code 1 before its endpoint answered: "+why) ||
		!strings.Contains(s, `hint="leave out --no-headless`) {
		t.Errorf("messages:\n%s\nwant the reason %q twice, with its hint", s, why)
	}
	r := w.run("bpool", "lease")
	r.wants(t, 69,
		"Default pool 'A' has no healthy instances. Specify explicit pool or restart failed instances. "+
			"(1 of 1 failed: "+why+", not retried (RESTART=never))")
	r.wants(t, 69, "hint: bpool status A shows them; bpool restart A retries at once")
}

// The table for people: on a terminal, with colors unless they are refused.
func TestPoolStatusForPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "LAUNCH=false", "_B_INSTANCES=1", "_B_LAUNCH=true",
		"_B_BROWSER=/nonexistent", "_B_RESTART=never")
	l := p.lease("--bind-pid", fmt.Sprint(os.Getpid()))
	env := w.env
	w.env = append(env, "COLUMNS=80")
	out := w.run("bpool", "status", "--output", "table").out
	for _, line := range strings.Split(out, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	id := l.Lease.ID
	for _, want := range []string{"STATE    HOLDER", fmt.Sprintf(" (%d)", os.Getpid()), "…" + id[len(id)-6:] + "\n",
		"\n    cannot use /nonexistent: no such browser: there is no such file\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("misses %q in\n%s", want, out)
		}
	}
	if out := w.run("bpool", "status", "--output", "table", "--wide").out; !strings.Contains(out, id) ||
		!strings.Contains(out, "ENDPOINT") {
		t.Errorf("status --wide:\n%s\nwant the column ENDPOINT and the lease %s", out, id)
	}
	w.env = env
	terminal := func(line string) string {
		c := w.cmd("script", "-qec", line, "/dev/null")
		c.Env = append(c.Env, "TERM=xterm")
		b, _ := c.CombinedOutput()
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
	w.run("bpool", "status", "--watch").wants(t, 64, "--watch needs a terminal")
}

// Under load, while browsers die and the pool is scaled, drained and reloaded,
// nobody shares an instance and everybody is answered. SOAK is for how long.
func TestPoolUnderLoad(t *testing.T) {
	t.Parallel()
	soak, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		soak = 5 * time.Second
	}
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=4", "_A_IS_DEFAULT=1")
	end := time.Now().Add(soak)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(50 * time.Millisecond)
			instances := p.status().Pools[0].Instances
			switch n := rand.IntN(10); {
			case n < 7:
				if i := instances[rand.IntN(len(instances))]; i.PID > 1 {
					syscall.Kill(i.PID, syscall.SIGKILL)
				}
			case n < 8:
				w.run("bpool", "scale", "A", fmt.Sprint(2+rand.IntN(4))).wants(t, 0, "")
			case n < 9:
				w.run("bpool", "drain", "A").wants(t, 0, "")
				w.run("bpool", "drain", "--off").wants(t, 0, "")
			default:
				w.run("bpool", "reload").wants(t, 0, "")
			}
		}
	})
	for range 32 {
		all.Go(func() {
			for time.Now().Before(end) {
				// A second browser in the directory would fail.
				r := w.run("bpool", "lease", "--timeout", "1m", "--", "sh", "-c",
					`d=$TMPDIR/held-$BTOOLS_PORT; mkdir "$d" && sleep 0.02 && rmdir "$d"`)
				if r.code != 0 {
					t.Errorf("an instance was leased twice: %+v", r)
				}
			}
		})
	}
	all.Wait()
	w.run("bpool", "reload").wants(t, 0, "")
	w.run("bpool", "restart", "A").wants(t, 0, "") // failed instances too
	until(t, "all is well again", func() bool {
		s := p.status().Summary
		return s.Total == 4 && s.Available == 4 && s.Waiting == 0 && s.Leased == 0
	})
	p.stop()
	w.clean()
}

func TestPoolCheck(t *testing.T) {
	w := newWorld(t)
	os.WriteFile(w.dir+"/pool.toml", []byte("headless = false\n[pool.A]\ninstances = 2\n"), 0o600)
	w.env = append(w.env, "PW_MCP_PROXY__A__1_BROWSER=brave")
	const fields = "setting.instance,setting.key,setting.value,setting.source"
	brave := "1\tBROWSER\tbrave\tinstance, PW_MCP_PROXY__A__1_BROWSER\n"
	headless := "\tHEADLESS\tfalse\tglobal, " + w.dir + "/pool.toml: headless\n"
	instances := "\tINSTANCES\t2\tpool, " + w.dir + "/pool.toml: pool.A.instances\n"
	r := w.run("bpool", "check", "--config", w.dir+"/pool.toml", "-f", fields)
	if r.out != instances+headless+brave {
		t.Errorf("what is set:\n%s", r.out)
	}
	r.wants(t, 0,
		"warning: pool A: no brave is installed, so instance 1 can't be launched; bfind lists the installed browsers")
	r = w.run("bpool", "check", "--all", "--config", w.dir+"/pool.toml", "-f", fields)
	for _, want := range []string{brave, "0" + headless, "1" + headless, instances, "0\tTIMEOUT\t30000\tdefault\n",
		"\tIS_DEFAULT\ttrue\tdefault of the only pool\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("misses %q in\n%s", want, r.out)
		}
	}
	env := w.env
	w.env = append(env, "PW_MCP_PROXY_INSTANCES=2", "PW_MCP_PROXY__A_HEADLES=1")
	for _, command := range []string{"check", "serve"} {
		r := w.run("bpool", command, "--config", w.dir+"/pool.toml")
		r.wants(t, 78, "INSTANCES defined globally")
		r.wants(t, 78, "did you mean HEADLESS?")
		r.wants(t, 78, "hint: bpool.toml(5) describes each key")
	}
	w.run("bpool").wants(t, 64, "name a command")
	// A file of variables is read only if it is named, and may be written for
	// several programs. The environment takes precedence.
	os.WriteFile(w.dir+"/.env", []byte("# .env\nSECRET='x y'\nexport PW_MCP_PROXY_TIMEOUT=30000\n"+
		"PW_MCP_PROXY__A_INSTANCES=3\nPW_MCP_PROXY__A__1_BROWSER=chrome\n"), 0o600)
	c := w.cmd("bpool", "check", "-f", fields, "--env-file", ".env")
	c.Dir, c.Env = w.dir, env
	b, err := c.Output()
	if want := "\tTIMEOUT\t30000\tglobal, .env:3: PW_MCP_PROXY_TIMEOUT\n"; err != nil ||
		!strings.Contains(string(b), want) || !strings.Contains(string(b), brave) ||
		!strings.Contains(string(b), "\tINSTANCES\t3\tpool, .env:4: ") {
		t.Errorf("%s, %v", b, err)
	}
	c = w.cmd("bpool", "check")
	c.Dir, c.Env = w.dir, env
	if b, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 78 ||
		!strings.Contains(string(b), "Pool missing INSTANCES") {
		t.Errorf("it is read unasked: %s", b)
	}
	w.run("bpool", "serve", "--env-file", w.dir+"/none").wants(t, 78, "none: no such file or directory")
	// Nothing is configured: the best installed browser is used.
	w.env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PW_MCP_PROXY_") })
	if r := w.run("bpool", "check", "--all", "-f", fields); !strings.Contains(r.out,
		"0\tBROWSER\t\tdefault: the best installed browser\n") || r.err != "" {
		t.Errorf("check --all: %+v, want BROWSER with its default", r)
	}
}

// Bmcp takes the same file, and hands it on to its bpool.
func TestMCPEnvFile(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/.env"
	os.WriteFile(file,
		[]byte("PW_MCP_PROXY__FILES_INSTANCES=2\nexport PW_MCP_PROXY_LAUNCH=false\nPW_MCP_PROXY_HEADLESS=true\n"),
		0o600)
	m := w.mcp([]string{"PW_MCP_PROXY_HEADLESS=false"}, "--no-child", "--env-file", file)
	if r := m.tool("browser_pool_status", "{}"); !strings.Contains(r.line, "FILES") ||
		!strings.Contains(r.line, `"total_instances":2`) || !strings.Contains(r.line, `"headless":false`) {
		t.Errorf("browser_pool_status: %s, want pool FILES with 2 instances that are not headless", r.line)
	}
	m.end()
	w.run("bmcp", "--env-file", w.dir+"/none").wants(t, 78, "no such file")
	os.WriteFile(file, []byte("PW_MCP_PROXY__FILES_INSTANCE=2\n"), 0o600)
	w.run("bmcp", "--env-file", file).wants(t, 78, "did you mean INSTANCES? ("+file+":1: ")
}

// The configurations of variables that bpool.toml(5) shows are valid.
func TestPoolExamples(t *testing.T) {
	b, err := os.ReadFile("../man/bpool.toml.5")
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
	w := newWorld(t)
	env := w.env
	for _, e := range examples {
		w.env = append(env[:len(env):len(env)], e...)
		if r := w.run("bpool", "check"); r.code != 0 {
			t.Errorf("%v: %+v", e, r)
		}
	}
}

// Without any configuration there is one instance, of the best browser, and
// what is left to its first connection is known to speak what it will.
func TestPoolUnconfigured(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "BTOOLS_BROWSER="+bin+"/fakebrowser")
	p := &pool{t: t, w: w, cmd: w.cmd("bpool", "serve", "--drain-timeout", "0s")}
	p.start()
	i := p.status().Pools[0].Instances[0]
	if i.Browser != "chromium" || i.Status != "healthy" { // which an unknown name counts as
		t.Errorf("%+v, want a healthy chromium", i)
	}
	if n := w.run("blaunch", "list", "-f", "instance.owner").out; n != "bpool DEFAULT/0\n" {
		t.Errorf("its browser is that of %q", n)
	}
	w.run("bpool", "lease", "--instance", "7").wants(t, 69, `pool DEFAULT has no instance "7": it has 0`+"\n")
	p.stop()
	w.run("cp", bin+"/fakebrowser", w.dir+"/firefox").wants(t, 0, "")
	p = w.pool("BROWSER="+w.dir+"/firefox", "START=lazy")
	r := w.run("bpool", "lease", "-f", "instance.protocol,instance.ws_url")
	if !strings.HasPrefix(r.out, "bidi\tws://") || !strings.HasSuffix(r.out, "/session\n") {
		t.Errorf("%+v, want bidi and an address that ends in /session", r)
	}
}

func TestPoolLazyAndIdle(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_START=lazy", "_A_IDLE_TIMEOUT=300ms")
	if i := p.status().Pools[0].Instances[0]; i.PID != 0 || i.Status != "healthy" {
		t.Errorf("%+v, want a healthy instance without a process", i)
	}
	l := p.lease()
	for range 2 {
		if code, _ := get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
			t.Errorf("status %d, want 200", code)
		}
		until(t, "the idle browser is stopped", func() bool {
			i := p.status().Pools[0].Instances[0]
			return i.PID == 0 && i.Status == "healthy" && i.Restarts == 0 && i.Lease == l.Lease.ID
		})
	}
}

func TestPoolRestartDrainWatch(t *testing.T) {
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_LEASE_TIMEOUT=100ms")
	c := w.cmd("bpool", "watch", "-f", "event.event,event.instance,event.lease")
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
		for end := time.After(patience); ; {
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
	until(t, "it watches", func() bool {
		w.run("bpool", "release", p.lease().Lease.ID)
		return len(lines) > 0
	})
	l := p.lease()
	seen("leased\t" + l.Lease.Instance + "\t" + l.Lease.ID)
	w.run("bpool", "restart", "A/"+l.Lease.Instance).wants(t, 0, "restarting 1 browser of A/")
	seen("restarted\t" + l.Lease.Instance)
	seen("healthy\t" + l.Lease.Instance)
	if i := p.status(); i.Summary.Leased != 1 {
		t.Errorf("a restart ends the lease: %+v", i)
	}
	w.run("bpool", "drain", "A").wants(t, 0, "pool A (2 instances): no more leases are granted until bpool drain --off")
	seen("drained")
	w.run("bpool", "lease").wants(t, 75, "none came free")
	if i := p.status().Pools[0].Instances[1]; i.Status != "draining" {
		t.Errorf("%+v, want a draining one", i)
	}
	w.run("bpool", "drain", "--off").wants(t, 0, "all pools (2 instances): leases are granted again")
	p.lease()
	w.run("bpool", "release", l.Lease.ID).wants(t, 0, "")
	seen("released\t" + l.Lease.Instance)
	p.lease("--ttl", "50ms")
	seen("expired")
	w.run("bpool", "restart", "B").wants(t, 69, "no pool is named")
	w.run("bpool", "restart").wants(t, 64, "name the pool")
	p.stop()
}

// A new configuration is taken over live; one that is wrong changes nothing.
func TestPoolReloadAndScale(t *testing.T) {
	w := newWorld(t)
	file := w.dir + "/pool.toml"
	write := func(text string) { os.WriteFile(file, []byte("browser = \""+bin+"/fakebrowser\"\n"+text), 0o600) }
	write("[pool.A]\ninstances = 2\nis_default = true\n[pool.B]\ninstances = 1\n")
	p := &pool{t: t, w: w, cmd: w.cmd("bpool", "serve", "--config", file, "--drain-timeout", "0s")}
	p.start()
	l, b := p.lease("--instance", "0"), p.lease("B")
	other := p.status().Pools[0].Instances[1]

	write("[pool.A]\ninstances = -1\n")
	w.run("bpool", "reload").wants(t, 78, `instances is "-1"`)
	if s := p.status().Summary; s.Total != 3 || s.Leased != 2 {
		t.Errorf("after a reload that was refused: %+v, want 3 instances, 2 leased", s)
	}
	// Instance 1 changes, 2 is new, pool B is removed.
	write("[pool.A]\ninstances = 3\nis_default = true\n[pool.A.instance.1]\nalias = \"x\"\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	until(t, "it is reloaded", func() bool { return p.status().Summary.Healthy == 3 })
	s := p.status()
	if i := s.Pools[0].Instances; len(s.Pools) != 1 || i[0].PID != l.Instance.PID || i[0].Lease != l.Lease.ID ||
		i[1].PID == other.PID {
		t.Errorf("after a reload: %+v, want pool A alone, instance 0 with its lease %s, and instance 1 anew", s,
			l.Lease.ID)
	}
	// A removed instance lives as long as its lease.
	if code, _ := get(t, "GET", b.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("status %d, want 200", code)
	}
	w.run("bpool", "release", b.Lease.ID).wants(t, 0, "")
	until(t, "its browser is stopped", func() bool { return syscall.Kill(b.Instance.PID, 0) != nil })

	w.run("bpool", "scale", "A", "5").wants(t, 0, "")
	until(t, "there are more", func() bool { return p.status().Summary.Healthy == 5 })
	w.run("bpool", "scale", "A", "1").wants(t, 0, "pool A has 1 instance until the configuration is reloaded")
	if s := p.status(); s.Summary.Total != 1 || s.Pools[0].Instances[0].Lease != l.Lease.ID {
		t.Errorf("%+v, want 1 instance, with the lease %s", s, l.Lease.ID)
	}
	w.run("bpool", "scale", "A", "0").wants(t, 64, "1 to 10000")
	w.run("bpool", "scale", "C", "1").wants(t, 69, "no pool is named")
	until(t, "the others are stopped", func() bool { return len(w.state().Instances) == 1 })
	// The size set by scale is reset, and the state file lists the pools again.
	write("[pool.A]\ninstances = 3\nis_default = true\n[pool.D]\ninstances = 1\n")
	w.run("bpool", "reload").wants(t, 0,
		"the configuration was reloaded; pool A has 3 instances again (bpool scale had set 1)")
	until(t, "the new names are listed", func() bool {
		return slices.Equal(w.state().Pools[0].Names,
			[]string{"A", "D"})
	})
	// The socket and the entry of the service are deleted.
	os.RemoveAll(w.dir + "/state")
	p.cmd.Process.Signal(syscall.SIGHUP)
	until(t, "it is found again", func() bool {
		return w.run("bpool", "status").code == 0 && slices.Equal(w.state().Pools[0].Names, []string{"A", "D"})
	})
	p.stop()
	w.clean()
}

// What systemd does: it holds the control socket, hears that the service is
// ready, and that it is well.
func TestPoolSystemd(t *testing.T) {
	w := newWorld(t)
	os.Mkdir(w.dir+"/state", 0o700)
	l, err := net.Listen("unix", w.dir+"/state/bpool.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, _ := l.(*net.UnixListener).File()
	defer f.Close()
	heard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	p := &pool{t: t, w: w,
		cmd: w.cmd("sh", "-c", `export LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET="$0" WATCHDOG_USEC=100000; `+
			`exec bpool serve`,
			w.dir+"/notify")}
	p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser")
	p.cmd.ExtraFiles = []*os.File{f}
	asked := make(chan result)
	go func() { asked <- w.run("bpool", "status", "-f", "summary.total_instances") }() // it waits for the service
	p.start()
	if r := <-asked; r.out != "1\n" {
		t.Errorf("who asks before the service is there: %+v", r)
	}
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		b := make([]byte, 100)
		heard.SetReadDeadline(time.Now().Add(patience))
		if n, err := heard.Read(b); string(b[:n]) != want {
			t.Errorf("told %q, %v, not %q", b[:n], err, want)
		}
	}
	if p.sock != w.dir+"/state/bpool.sock" || p.status().Summary.Healthy != 1 {
		t.Errorf("%s %+v", p.sock, p.status())
	}
	p.stop()
	if _, err := os.Stat(p.sock); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}
}
