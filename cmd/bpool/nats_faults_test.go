//go:build linux

package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// Beside a host that cannot be reached commands get nine of ten leases that they get without it.
func TestRateBesideABlackHole(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("LONG=1 runs it")
	}
	rate := func(hole bool) float64 {
		w := cmdtest.New(t)
		s := startNATS(t)
		client, _ := hosts(w, s, 3, "LAUNCH=false", "_DEFAULT_INSTANCES=4")
		if hole {
			newFarHost(w, s, "hole", "LAUNCH=false", "_DEFAULT_INSTANCES=4").web.set(true, false)
		}
		cmdtest.Until(t, "the hosts are found", func() bool { return free(client) >= 12 })
		var clients sync.WaitGroup
		var mu sync.Mutex
		n := 0
		began := time.Now()
		for range 20 {
			clients.Go(func() {
				for time.Since(began) < time.Minute {
					if r := client.Run("bpool", "lease", "--", "sleep", "1"); r.Code == 0 {
						mu.Lock()
						n++
						mu.Unlock()
					}
				}
			})
		}
		clients.Wait()
		return float64(n) / time.Since(began).Seconds()
	}
	without, with := rate(false), rate(true)
	t.Logf("%.2f leases/s, beside a black hole %.2f", without, with)
	if with < 0.9*without {
		t.Error("too few")
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
	client, all := hosts(w, s, 1, "LAUNCH=false")
	lease := func(servers string, vars ...string) cmdtest.Result {
		return client.With(append(vars, "BTOOLS_POOL_NATS="+servers)...).Run("bpool", "lease", "--timeout", "700ms", "--",
			"echo", "leased")
	}
	for servers, text := range map[string]string{
		"nats://none.invalid:4222":          "none.invalid",
		"nats://" + html:                    "no NATS server has answered",
		"nats://" + silent.Addr().String():  "no NATS server has answered",
		"nats://127.0.0.1:1":                "connection refused",
		"nats://127.0.0.1:1," + small.url(): "max_payload must be 8192 or more",
	} {
		lease(servers).Exits(t, 75, text)
	}
	lease(jetStream.url(), "PW_MCP_PROXY_NATS_USER=u", "PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/password").
		Exits(t, 78, `Permissions Violation for Publish to "btools.v1.local.free.DEFAULT.any.u.`)
	if r := lease("nats://none.invalid:4222,nats://127.0.0.1:1," + s.url()); r.Out != "leased\n" {
		t.Errorf("with one good server of three: %+v", r)
	}
	for _, name := range []string{"*", ">", "DEFAULT.any", "DEFAULT "} { // no pool is called so
		client.Run("bpool", "lease", "--timeout", "100ms", name, "--", "true").Exits(t, 75, "instance of pool "+name+":")
	}
	if n, said := free(client), all[0].Errs.String(); n != 1 || strings.Contains(said, "error") {
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
	c := client.Cmd("unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec bpool lease -- echo leased`, file)
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
