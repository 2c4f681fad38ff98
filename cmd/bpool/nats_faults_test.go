//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/pool/bus"
)

// link is how connections reach a server. It can be cut: bytes wait then until it is whole again.
type link struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	heal  *sync.Cond
	to    string
	cut   [2]bool // to the server, and from it
	conns map[net.Conn]bool
	over  bool
	seen  func([]byte) // what goes to the server; nil: nobody looks
}

// newLink opens a link, which ends with the test.
func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, conns: map[net.Conn]bool{}}
	l.heal = sync.NewCond(&l.mu)
	l.running.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.mu.Lock()
		l.over = true
		for c := range l.conns {
			c.Close()
		}
		l.heal.Broadcast()
		l.mu.Unlock()
		l.running.Wait()
	})
	return l
}

func (l *link) url(scheme string) string { return scheme + "://" + l.listener.Addr().String() }

// lead has further connections reach another server.
func (l *link) lead(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// set cuts the directions to the server and from it, or heals them.
func (l *link) set(there, back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = [2]bool{there, back}
	l.heal.Broadcast()
}

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() {
			defer c.Close()
			l.pass(0) // the first packet of a connection is one, too
			l.mu.Lock()
			to := l.to
			l.mu.Unlock()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			l.mu.Lock()
			over := l.over
			l.conns[c], l.conns[server] = true, true
			l.mu.Unlock()
			if over {
				return
			}
			var both sync.WaitGroup
			both.Go(func() { l.copy(server, c, 0) })
			l.copy(c, server, 1)
			both.Wait()
			l.mu.Lock()
			delete(l.conns, c)
			delete(l.conns, server)
			l.mu.Unlock()
		})
	}
}

// pass waits while a direction is cut.
func (l *link) pass(way int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut[way] && !l.over {
		l.heal.Wait()
	}
}

func (l *link) copy(to, from net.Conn, way int) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		l.mu.Lock()
		seen := l.seen
		l.mu.Unlock()
		if way == 0 && seen != nil {
			seen(b[:n])
		}
		l.pass(way)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// farHost is a host that is reached by links.
type farHost struct {
	*cmdtest.Pool
	w         *cmdtest.World
	name      string
	args      []string
	vars      []string
	web, nats *link
}

// newFarHost starts a host that is reached by links.
func newFarHost(w *cmdtest.World, s *natsServer, name string, vars ...string) *farHost {
	w.T.Helper()
	h := &farHost{w: w.With("BTOOLS_STATE=" + w.Dir + "/" + name + ".json"), name: name, web: newLink(w.T, ""),
		nats: newLink(w.T, s.addr), vars: append([]string{"NATS_NAME=" + name}, vars...)}
	cmdtest.WriteFile(w.T, w.Dir+"/tokens", "ci "+ciToken+" trust\n")
	h.args = []string{"--token-file", w.Dir + "/tokens", "--nats", h.nats.url("nats"), "--socket",
		w.Dir + "/" + name + ".sock", "--public-url", h.web.url("http")}
	h.start()
	return h
}

func (h *farHost) start() {
	h.w.T.Helper()
	h.Pool = h.w.WebPool(h.args, h.vars...)
	h.web.lead(strings.TrimPrefix(h.HTTP, "http://"))
}

// A host that NATS reaches and HTTPS does not costs a request a second: it goes on without that host. After three
// offers that two gateways could not use the host offers nothing.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "LAUNCH=false")
	held := hold(client)
	hole := newFarHost(w, s, "hole", "LAUNCH=false", "_DEFAULT_INSTANCES=4")
	hole.web.set(true, false)
	to := newLink(t, s.addr)
	asked := regexp.MustCompile(`PUB btools\.v1\.local\.free\.DEFAULT\.any\.\S+\.(\w+) .*\r\n(\{.*\})\r\n`)
	var mu sync.Mutex
	first, without := map[string]time.Time{}, map[string]time.Duration{}
	see := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range asked.FindAllSubmatch(b, -1) {
			of := string(m[1])
			if first[of].IsZero() {
				first[of] = time.Now()
			}
			if without[of] == 0 && strings.Contains(string(m[2]), `"not":["hole"]`) {
				without[of] = time.Since(first[of])
			}
		}
	}
	to.mu.Lock()
	to.seen = see
	to.mu.Unlock()
	far := client.With("BTOOLS_POOL_NATS=" + to.url("nats"))
	var all []*command
	for range 3 {
		all = append(all, begin(far, "lease", "--", "echo", "leased"))
	}
	admin := connect(t, s)
	cmdtest.Until(t, "the host offers nothing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := admin.Request(ctx, bus.FreeSubject("local", "DEFAULT", bus.Any, "test", "test"),
			bus.Ask{Pool: "DEFAULT", Not: []string{"hole"}}, &bus.Offer{})
		return errors.Is(err, bus.ErrNobody)
	})
	held.cmd.Process.Signal(syscall.SIGTERM)
	for _, c := range all {
		c.ends(0, "leased")
	}
	mu.Lock()
	defer mu.Unlock()
	t.Log("commands ask without the host after", slices.Collect(maps.Values(without)))
	for of := range first {
		if d := without[of]; d < time.Second || d > 5*time.Second { // on a busy machine
			t.Errorf("a command asks without the host after %v", d)
		}
	}
}

// connect connects to a server.
func connect(t *testing.T, s *natsServer) *bus.NATS {
	t.Helper()
	n, err := bus.Connect(bus.Keys{Servers: []string{s.url()}, Name: "test"}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// Beside a host that cannot be reached there are nine of ten leases that there are without it, whether commands are
// gateways or services are.
func TestRateBesideABlackHole(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("LONG=1 runs it")
	}
	rate := func(hole, services bool) float64 {
		w := cmdtest.New(t)
		s := startNATS(t)
		client, _ := hosts(w, s, 3, "LAUNCH=false", "_DEFAULT_INSTANCES=4")
		if hole {
			newFarHost(w, s, "hole", "LAUNCH=false", "_DEFAULT_INSTANCES=4").web.set(true, false)
		}
		cmdtest.Until(t, "the hosts are found", func() bool { return free(client) >= 12 })
		on := []*cmdtest.World{client, client}
		if services {
			for i := range on {
				name := fmt.Sprint(w.Dir, "/gateway", i)
				on[i] = w.With("BTOOLS_STATE=" + name + ".json")
				on[i].ServePool([]string{"--nats", s.url(), "--socket", name}, "HOSTS_TOKEN="+ciToken,
					fmt.Sprint("NATS_NAME=gateway", i))
				on[i] = on[i].With("BTOOLS_POOL_SOCKET=" + name)
			}
		}
		var clients sync.WaitGroup
		var n atomic.Int64
		began := time.Now()
		for i := range 20 {
			clients.Go(func() {
				for time.Since(began) < 40*time.Second {
					if r := on[i%2].Run("bpool", "lease", "--", "sleep", "1"); r.Code == 0 {
						n.Add(1)
					} else {
						t.Errorf("%+v", r)
					}
				}
			})
		}
		clients.Wait()
		return float64(n.Load()) / time.Since(began).Seconds()
	}
	for _, services := range []bool{false, true} {
		without, with := rate(false, services), rate(true, services)
		t.Logf("services %v: %.2f leases/s, beside a black hole %.2f", services, without, with)
		if with < 0.9*without {
			t.Error("too few")
		}
	}
}

// Two hosts of one name that meet later, as no server has answered when they started, say so both.
func TestHostsOfOneName(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	s.kill()
	_, all := hosts(w, s, 2, "LAUNCH=false", "NATS_NAME=same")
	s.start()
	for i, p := range all {
		cmdtest.Until(t, "a host says that another one has its name", func() bool {
			return strings.Contains(p.Errs.String(), "another host is called same: that at "+all[1-i].HTTP)
		})
	}
}

// A server that cannot be used is named with the reason: one without an address, one that is something else, one that
// says nothing, one whose users may do other things only. A service starts all the same, and says so.
func TestBadServersOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	cmdtest.WriteFile(t, w.Dir+"/small", "max_payload: 1KB\n")
	cmdtest.WriteFile(t, w.Dir+"/jetstream", `authorization: { users: [ { user: u, password: p, permissions:
		{ publish: "$JS.API.>", subscribe: "_INBOX.u.>" } } ] }`)
	cmdtest.WriteFile(t, w.Dir+"/password", "p")
	small, jetStream := startNATS(t, "-c", w.Dir+"/small"), startNATS(t, "-c", w.Dir+"/jetstream")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	html := strings.TrimPrefix(cmdtest.TitledSite(t), "http://")
	client, host := hosts(w, s, 1, "LAUNCH=false")
	lease := func(servers string, vars ...string) cmdtest.Result {
		on := client.With(append(vars, "BTOOLS_POOL_NATS="+servers)...)
		return on.Run("bpool", "lease", "--timeout", "700ms", "--", "echo", "leased")
	}
	var all sync.WaitGroup
	for servers, text := range map[string]string{
		"nats://none.invalid:4222":          "none.invalid",
		"nats://" + html:                    "no NATS server has answered",
		"nats://" + silent.Addr().String():  "no NATS server has answered",
		"nats://127.0.0.1:1":                "connection refused",
		"nats://127.0.0.1:1," + small.url(): "max_payload must be 8192 or more",
	} {
		all.Go(func() { lease(servers).Exits(t, 75, text) })
	}
	for _, name := range []string{"*", ">", "DEFAULT.any", "DEFAULT "} { // no pool is called so
		all.Go(func() {
			client.Run("bpool", "lease", "--timeout", "100ms", name, "--", "true").
				Exits(t, 75, "instance of pool "+name+":")
		})
	}
	all.Wait()
	lease(jetStream.url(), "PW_MCP_PROXY_NATS_USER=u", "PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/password").
		Exits(t, 78, `Permissions Violation for Publish to "btools.v1.local.free.DEFAULT.any.u.`)
	if r := lease("nats://none.invalid:4222,nats://127.0.0.1:1," + s.url()); r.Out != "leased\n" {
		t.Errorf("with one good server of three: %+v", r)
	}
	if n, said := free(client), host[0].Errs.String(); n != 1 || strings.Contains(said, "error") {
		t.Errorf("%d are free; the host says %s", n, said)
	}
	tokens := w.Dir + "/tokens"
	later := w.WebPool([]string{"--token-file", tokens, "--nats", "nats://" + silent.Addr().String(), "--socket",
		w.Dir + "/later"}, "LAUNCH=false")
	cmdtest.Until(t, "the service says that no server answers", func() bool {
		return strings.Contains(later.Errs.String(), "no NATS server has answered for 2s")
	})
}

// A server whose name has no address yet is found when it has one.
func TestNATSNameThatResolvesLater(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give a process another /etc/hosts")
	}
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "LAUNCH=false")
	file := w.Dir + "/hosts"
	cmdtest.WriteFile(t, file, "127.0.0.1 localhost\n")
	_, port, _ := net.SplitHostPort(s.addr)
	c := client.Cmd("unshare", "-m", "sh", "-c",
		`mount --bind "$0" /etc/hosts && exec bpool lease -- echo leased`, file)
	c.Env = append(c.Env, "BTOOLS_POOL_NATS=nats://later.test:"+port)
	out := cmdtest.StartRead(t, c)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "127.0.0.1 later.test")
	f.Close()
	b, _ := io.ReadAll(out)
	if err := c.Wait(); err != nil || string(b) != "leased\n" {
		t.Errorf("%v: %s", err, b)
	}
}

// judge knows which lease has used which browser last.
type judge struct {
	t *testing.T

	mu      sync.Mutex
	current map[string]string               // lease, by browser
	former  map[string]map[string]time.Time // when another one has used the browser, by browser and lease
	uses    int
}

// used notes that a lease has used a browser by a request that began at a time.
func (j *judge) used(browser, lease string, began time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.uses++
	last := j.current[browser]
	if last == lease {
		return
	}
	if j.former[browser] == nil {
		j.former[browser] = map[string]time.Time{}
	}
	if since, was := j.former[browser][lease]; was {
		if began.After(since) {
			j.t.Errorf("%s has used %s, %v after %s", lease, browser, began.Sub(since), last)
		}
		return
	}
	j.former[browser][last] = time.Now()
	j.current[browser] = lease
}

// faults is hosts, a server, a gateway and clients that fail.
type faults struct {
	t       *testing.T
	w       *cmdtest.World
	server  *natsServer
	hosts   []*farHost
	gateway *cmdtest.Pool
	args    []string // of the gateway
	links   []*link
	client  *cmdtest.World // of commands that are gateways
	judge   *judge
	most    time.Duration // of a fault

	mu    sync.Mutex
	busy  map[any]bool // what has a fault
	codes map[int]int  // with which commands have ended
	over  chan struct{}
}

// lease leases as a client of the gateway or of its own, uses the browser for a while, and ends well or is killed.
func (f *faults) lease(own bool) {
	on := f.client
	if !own {
		on = f.w.With("BTOOLS_STATE="+f.w.Dir+"/gateway.json", "BTOOLS_POOL_SOCKET="+f.w.Dir+"/gateway.sock")
	}
	c := &command{t: f.t, cmd: on.Cmd("bpool", "lease", "--wait", "--timeout", "20s", "A"), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errs
	if err := c.cmd.Start(); err != nil {
		f.t.Error(err)
		return
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	for c.at() == "" && !c.hasEnded() {
		time.Sleep(10 * time.Millisecond)
	}
	until := time.Now().Add(rand.N(f.most))
	if rand.N(4) == 0 { // beyond all faults
		until = time.Now().Add(2 * f.most)
	}
	if own && c.at() != "" && rand.N(5) == 0 { // it does not know then that its lease has ended
		c.cmd.Process.Signal(syscall.SIGSTOP)
		time.AfterFunc(rand.N(f.most), func() { c.cmd.Process.Signal(syscall.SIGCONT) })
	}
	user := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: rand.N(2) == 0}}
	defer user.CloseIdleConnections()
	for l := c.lease(); time.Now().Before(until) && !c.hasEnded(); time.Sleep(50 * time.Millisecond) {
		began := time.Now()
		resp, err := user.Get(l.Instance.HTTPURL + "/json/version")
		if err != nil {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var v struct {
			WS string `json:"webSocketDebuggerUrl"`
		}
		if err == nil && resp.StatusCode == 200 && json.Unmarshal(b, &v) == nil {
			f.judge.used(path.Base(v.WS), l.Lease.ID, began)
		}
	}
	if own && rand.N(6) == 0 {
		c.cmd.Process.Signal(syscall.SIGKILL)
	} else {
		c.cmd.Process.Signal(syscall.SIGTERM)
	}
	<-c.ended
	code := c.cmd.ProcessState.ExitCode()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.codes[code]++
	killed := code == 1 && !own && strings.Contains(c.errs.String(), "no answer") // with the gateway
	if !killed && !slices.Contains([]int{-1, 0, 69, 75, 143}, code) {
		f.t.Errorf("a lease has ended with %d: %s", code, &c.errs)
	}
}

// disturb has something fail for a while. It reports whether there was something that had no fault.
func (f *faults) disturb(all *sync.WaitGroup) bool {
	h := f.hosts[rand.N(len(f.hosts))]
	while := rand.N(f.most-f.most/20) + f.most/20
	var of any
	var what string
	var begin, end func()
	kill := func(c **exec.Cmd) func() {
		return func() {
			(*c).Process.Kill()
			(*c).Wait()
		}
	}
	stop := func(c **exec.Cmd, s syscall.Signal) func() { return func() { (*c).Process.Signal(s) } }
	cut := func(l *link) {
		there := rand.N(2) == 0
		of, begin, end = l, func() { l.set(there, !there) }, func() { l.set(false, false) }
	}
	switch rand.N(9) {
	case 0:
		while = rand.N(min(f.most, 3*time.Second))
		of, what, begin, end = h, "a host is killed", kill(&h.Cmd), h.start
	case 1:
		of, what, begin, end = h, "a host stops", stop(&h.Cmd, syscall.SIGSTOP), stop(&h.Cmd, syscall.SIGCONT)
	case 2:
		while = rand.N(min(f.most, 3*time.Second))
		of, what, begin, end = f.server, "the server is killed", f.server.kill, f.server.start
	case 3:
		of, what = f.server, "the server stops"
		begin, end = stop(&f.server.cmd, syscall.SIGSTOP), stop(&f.server.cmd, syscall.SIGCONT)
	case 4:
		while = rand.N(min(f.most, 3*time.Second))
		of, what, begin, end = f.gateway, "the gateway is killed", kill(&f.gateway.Cmd), f.startGateway
	case 5:
		of, what = f.gateway, "the gateway stops"
		begin, end = stop(&f.gateway.Cmd, syscall.SIGSTOP), stop(&f.gateway.Cmd, syscall.SIGCONT)
	case 6, 7:
		what = "HTTPS of a host is cut"
		cut(h.web)
	case 8:
		what = "a connection to NATS is cut"
		cut(f.links[rand.N(len(f.links))])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[of] {
		return false
	}
	f.busy[of] = true
	f.t.Logf("%s for %v", what, while.Round(time.Millisecond))
	begin()
	all.Go(func() {
		time.Sleep(while)
		end()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.busy, of)
	})
	return true
}

// startGateway starts the service that is a gateway.
func (f *faults) startGateway() {
	on := f.w.With("BTOOLS_STATE=" + f.w.Dir + "/gateway.json")
	*f.gateway = *on.ServePool(f.args, "HOSTS_TOKEN="+ciToken, "NATS_NAME=gateway")
}

// Whatever is killed, stops or is cut off: no two holders reach a browser, no lease is left that nobody ends, and no
// browser without an owner.
func TestFaultsOfProcesses(t *testing.T) {
	t.Parallel()
	rounds, each, most := 1, 8, 1500*time.Millisecond
	if os.Getenv("LONG") != "" {
		rounds, each, most = 5, 40, 20*time.Second
	}
	w := cmdtest.New(t)
	f := &faults{t: t, w: w, server: startNATS(t), most: most, busy: map[any]bool{}, codes: map[int]int{}}
	f.judge = &judge{t: t, current: map[string]string{}, former: map[string]map[string]time.Time{}}
	for i := range 3 {
		f.hosts = append(f.hosts, newFarHost(w, f.server, fmt.Sprint("host", i), "_A_INSTANCES=2"))
		f.links = append(f.links, f.hosts[i].nats)
	}
	ofGateway, ofCommands := newLink(t, f.server.addr), newLink(t, f.server.addr)
	f.links = append(f.links, ofGateway, ofCommands)
	f.args = []string{"--nats", ofGateway.url("nats"), "--socket", w.Dir + "/gateway.sock"}
	f.gateway = &cmdtest.Pool{}
	f.startGateway()
	f.client = w.With("BTOOLS_POOL_NATS="+ofCommands.url("nats"), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken)
	near := w.With("BTOOLS_POOL_NATS="+f.server.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken)
	cmdtest.Until(t, "the hosts are found", func() bool { return free(near) == 6 })
	for round := range rounds {
		f.over = make(chan struct{})
		var clients, healing sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				for {
					select {
					case <-f.over:
						return
					default:
						f.lease(i%2 == 0)
					}
				}
			})
		}
		for n := 0; n < each; {
			if f.disturb(&healing) {
				n++
			}
			time.Sleep(rand.N(most / 5))
		}
		healing.Wait()
		close(f.over)
		clients.Wait()
		cmdtest.Until(t, "all leases have ended", func() bool { return free(near) == 6 })
		for _, h := range f.hosts {
			for _, i := range h.Status().Pools[0].Instances {
				if i.Lease != "" {
					t.Errorf("%s has a lease that nobody ends: %+v", h.name, i)
				}
			}
		}
		t.Logf("round %d: %d uses of %d browsers; commands ended with %v", round, f.judge.uses, len(f.judge.current),
			f.codes)
		if t.Failed() {
			return
		}
	}
}

// trouble is a host with two browsers, and a command that has one of them.
type trouble struct {
	t      *testing.T
	server *natsServer
	host   *farHost
	client *cmdtest.World
	held   *command
	began  time.Time // of the fault
}

// ends asserts that the lease is lost at a time after the fault began, and that the host ends it at another one.
func (x *trouble) ends(after, most time.Duration) {
	x.t.Helper()
	x.held.ends(69, "has")
	if d := time.Since(x.began); d < after || d > most {
		x.t.Errorf("the lease is lost after %v, want %v to %v", d, after, most)
	}
	x.t.Logf("the lease is lost after %v", time.Since(x.began).Round(time.Millisecond))
}

// frees asserts that the host ends the lease until a time after the fault began.
func (x *trouble) frees(most time.Duration) {
	x.t.Helper()
	cmdtest.Until(x.t, "the host has ended the lease", func() bool {
		on := x.host.W.With("BTOOLS_POOL_SOCKET=" + x.host.Socket)
		return !strings.Contains(on.Run("bpool", "status").Out, x.held.id())
	})
	if d := time.Since(x.began); d > most {
		x.t.Errorf("the host ends the lease after %v, want %v", d, most)
	}
	x.t.Logf("the host has ended the lease after %v", time.Since(x.began).Round(time.Millisecond))
}

// goesOn asserts that the command has its browser for a while.
func (x *trouble) goesOn(while time.Duration) {
	x.t.Helper()
	for time.Since(x.began) < while {
		if code, _ := cmdtest.Get(x.t, "GET", x.held.at()+"/json/version"); code != 200 || x.held.hasEnded() {
			x.t.Fatalf("the lease is lost after %v: %s", time.Since(x.began), &x.held.errs)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// What a client sees of each fault, and when.
func TestRowsOfFaults(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("LONG=1 runs it")
	}
	const slack = 2 * time.Second // of a busy machine
	signal := func(c *exec.Cmd, s syscall.Signal) { c.Process.Signal(s) }
	cut := func(there, back bool, frees time.Duration) func(*trouble) {
		return func(x *trouble) {
			x.host.web.set(there, back)
			x.ends(5*time.Second, 8*time.Second+slack)
			x.frees(frees + slack)
		}
	}
	for name, row := range map[string]func(*trouble){
		"NATS is killed, back after 2 s": func(x *trouble) {
			x.server.kill()
			waits := begin(x.client, "lease", "A", "--", "echo", "leased")
			x.goesOn(2 * time.Second)
			x.server.start()
			x.began = time.Now()
			waits.ends(0, "leased")
			if d := time.Since(x.began); d > 2*time.Second+slack {
				x.t.Errorf("a new lease takes %v", d)
			}
			x.t.Logf("a new lease takes %v", time.Since(x.began).Round(time.Millisecond))
		},
		"NATS is killed": func(x *trouble) {
			x.server.kill()
			waits := begin(x.client, "lease", "--timeout", "3s", "A", "--", "true")
			waits.ends(75, "no NATS server has answered for")
			x.goesOn(15 * time.Second)
		},
		"a host without NATS": func(x *trouble) {
			x.host.nats.set(true, true)
			x.goesOn(20 * time.Second)
			x.client.Run("bpool", "lease", "--timeout", "2s", "A", "--", "true").Exits(x.t, 75, "")
			x.host.nats.set(false, false)
			x.client.Run("bpool", "lease", "A", "--", "true").Exits(x.t, 0, "")
		},
		"a host is killed, back after 2 s": func(x *trouble) {
			x.host.Cmd.Process.Kill()
			x.host.Cmd.Wait()
			time.Sleep(2 * time.Second)
			x.host.start()
			x.ends(2*time.Second, 3*time.Second+slack)
		},
		"a host is killed": func(x *trouble) {
			x.host.Cmd.Process.Kill()
			x.host.Cmd.Wait()
			x.ends(5*time.Second, 8*time.Second+slack)
			x.host.start() // which deletes what the last one has left
		},
		"a host stops": func(x *trouble) {
			signal(x.host.Cmd, syscall.SIGSTOP)
			defer signal(x.host.Cmd, syscall.SIGCONT)
			x.ends(5*time.Second, 8*time.Second+slack)
		},
		"HTTPS is cut to the host":   cut(true, false, 10*time.Second),
		"HTTPS is cut from the host": cut(false, true, 18*time.Second), // the gateway says for 8 s that it goes on
		"HTTPS is cut":               cut(true, true, 10*time.Second),
		"HTTPS is cut for 5 s": func(x *trouble) {
			x.host.web.set(true, true)
			time.AfterFunc(5*time.Second, func() { x.host.web.set(false, false) })
			x.goesOn(15 * time.Second) // the first request waits
		},
		"a gateway is killed": func(x *trouble) {
			signal(x.held.cmd, syscall.SIGKILL)
			x.frees(10*time.Second + slack)
		},
		"a gateway stops for 20 s": func(x *trouble) {
			signal(x.held.cmd, syscall.SIGSTOP)
			x.frees(12*time.Second + slack)
			time.Sleep(20*time.Second - time.Since(x.began))
			signal(x.held.cmd, syscall.SIGCONT)
			x.ends(20*time.Second, 20*time.Second+slack)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			x := &trouble{t: t, server: startNATS(t)}
			x.host = newFarHost(w, x.server, "host", "_A_INSTANCES=2")
			x.client = w.With("BTOOLS_POOL_NATS="+x.server.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken)
			x.held = hold(x.client, "A")
			x.began = time.Now()
			row(x)
		})
	}
}

// A gateway that wants a million times, takes each offer and leases none costs the host little memory, and others get
// leases meanwhile.
func TestGatewayThatWantsAll(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("LONG=1 runs it")
	}
	const wants = 1_000_000
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 1, "LAUNCH=false", "_A_INSTANCES=4")
	greedy := connect(t, s)
	var offers atomic.Int64
	_, err := greedy.Subscribe(bus.OfferSubject("local", "test", bus.All, "host0"), "", func(m *bus.Message) {
		offers.Add(1)
		m.Answer(bus.Answer{Yes: true, By: "test." + m.Tokens()[5]})
	})
	if err != nil {
		t.Fatal(err)
	}
	memory := func() (kb int) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", all[0].Cmd.Process.Pid))
		_, rss, _ := strings.Cut(string(b), "VmRSS:")
		fmt.Sscan(rss, &kb)
		return kb
	}
	before := memory()
	var over atomic.Bool
	var flood sync.WaitGroup
	flood.Go(func() {
		defer over.Store(true)
		for n := range wants {
			err := greedy.Publish(bus.HostSubject("local", "host0", "want", "test", fmt.Sprint("g", n%100)),
				bus.Want{Want: fmt.Sprint(n), Pool: "A", Age: 3_600_000, Timeout: 60_000})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	leased, worst := 0, time.Duration(0)
	for !over.Load() || leased < 3 {
		began := time.Now()
		client.Run("bpool", "lease", "A", "--", "true").Exits(t, 0, "")
		leased, worst = leased+1, max(worst, time.Since(began))
	}
	flood.Wait()
	t.Logf("%d wants, %d offers taken; %d leases of others, the slowest within %v; memory %d to %d KB", wants,
		offers.Load(), leased, worst.Round(time.Millisecond), before, memory())
	if more := memory() - before; more > 100<<10 || offers.Load() > 1000 {
		t.Errorf("%d KB more, %d offers", more, offers.Load())
	}
}
