//go:build linux

package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/pool/bus"
	"btools/lib/pool/gateway"
)

// natsFiles copies the files of scripts/nats to a directory. Their users are hosts and gateways of some names there,
// with permissions like those of vm1 and ci, and the password "secret". Without names nobody needs one.
func natsFiles(w *cmdtest.World, hosts []string, gateways ...string) (dir string) {
	w.T.Helper()
	dir = w.Dir + "/nats"
	all, err := filepath.Glob(cmdtest.Root + "/scripts/nats/*.conf")
	if err != nil || os.Mkdir(dir, 0o700) != nil {
		w.T.Fatal(err)
	}
	text := ""
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			w.T.Fatal(err)
		}
		text += string(b)
		cmdtest.WriteFile(w.T, dir+"/"+filepath.Base(path), string(b))
	}
	users, entries := "", ""
	for kind, names := range map[string][]string{"host_vm1": hosts, "gateway_ci": gateways} {
		block := regexp.MustCompile(`(?ms)^` + kind + `: .*?^}`).FindString(text)
		for _, name := range names {
			_, old, _ := strings.Cut(kind, "_")
			users += strings.ReplaceAll(block, old, name) + "\n"
			entries += fmt.Sprintf("{ user: %s, password: secret, permissions: $%s }\n", name,
				strings.Replace(kind, old, name, 1))
		}
	}
	if entries != "" {
		users += "authorization: { users: [\n" + entries + "] }\n"
		cmdtest.WriteFile(w.T, w.Dir+"/secret", "secret\n")
	}
	cmdtest.WriteFile(w.T, dir+"/users.conf", users)
	return dir
}

// asUser returns what has a program connect to a server as a user of natsFiles.
func asUser(w *cmdtest.World, s *natsServer, user string) []string {
	return []string{"BTOOLS_POOL_NATS=" + s.url(), "PW_MCP_PROXY_NATS_USER=" + user,
		"PW_MCP_PROXY_NATS_PASSWORD_FILE=" + w.Dir + "/secret", "PW_MCP_PROXY_HOSTS_TOKEN=" + ciToken}
}

// natsCluster starts servers of one cluster, which connect to each other or, with routes, to the addresses that those
// say for the servers of some addresses. The first result stands for all of them.
func natsCluster(w *cmdtest.World, n int, routes func(addresses []string) [][]string) (any *natsServer,
	each []*natsServer) {
	w.T.Helper()
	dir := natsFiles(w, nil)
	var addresses []string
	for range n {
		addresses = append(addresses, cmdtest.Address(w.T))
	}
	to, args := slices.Repeat([][]string{addresses}, n), []string{"-c", dir + "/three.conf"}
	if routes != nil {
		// A client that loses its server for a moment, as on a busy machine, stays with it: its half has no other one.
		to, args = routes(addresses), append(args, "--no_advertise")
	}
	var all []string
	for i := range n {
		list := ""
		for _, addr := range to[i] {
			list += "nats://route:secret@" + addr + ", "
		}
		s := startNATSWith(w.T, []string{"BTOOLS_ROUTE_PASSWORD=secret", "BTOOLS_NATS_LISTEN=127.0.0.1:0",
			"BTOOLS_NATS_REGION=local", fmt.Sprint("BTOOLS_NATS_SERVER=n", i), "BTOOLS_NATS_CLUSTER=" + addresses[i],
			"BTOOLS_NATS_ROUTES=[" + list + "]"}, args...)
		each = append(each, s)
		all = append(all, s.addr)
	}
	return &natsServer{t: w.T, addr: strings.Join(all, ",nats://")}, each
}

// natsRegions starts a server of each of two regions, eu and us, which are joined, and a leafnode of the first.
func natsRegions(w *cmdtest.World, dir string) (all map[string]*natsServer) {
	w.T.Helper()
	var a [6]string // of each region: for its cluster, the other region, and leafnodes
	for i := range a {
		a[i] = cmdtest.Address(w.T)
	}
	gateways := fmt.Sprintf(`[{name: eu, url: "nats://region:secret@%s"}, {name: us, url: "nats://region:secret@%s"}]`,
		a[1], a[4])
	secrets := []string{"BTOOLS_ROUTE_PASSWORD=secret", "BTOOLS_GATEWAY_PASSWORD=secret", "BTOOLS_LEAF_PASSWORD=secret",
		"BTOOLS_NATS_LISTEN=127.0.0.1:0"}
	all = map[string]*natsServer{}
	for i, name := range []string{"eu", "us"} {
		a := a[3*i:]
		all[name] = startNATSWith(w.T, append(secrets, "BTOOLS_NATS_SERVER="+name, "BTOOLS_NATS_REGION="+name,
			"BTOOLS_NATS_CLUSTER="+a[0], "BTOOLS_NATS_ROUTES=[]", "BTOOLS_NATS_GATEWAY="+a[1],
			"BTOOLS_NATS_GATEWAYS="+gateways, "BTOOLS_NATS_LEAFNODES="+a[2]), "-c", dir+"/region.conf")
	}
	all["leaf"] = startNATSWith(w.T, append(secrets, "BTOOLS_NATS_SERVER=leaf",
		fmt.Sprintf("BTOOLS_NATS_LEAF_OF=%q", "nats://leaf:secret@"+a[2])), "-c", dir+"/leaf.conf")
	return all
}

// gatewayAt returns a gateway in this process, which is connected to a server as a user of natsFiles.
func gatewayAt(w *cmdtest.World, user string, regions []string, server *natsServer) *gateway.Gateway {
	w.T.Helper()
	var changed func(up bool)
	var mu sync.Mutex
	keys := bus.Keys{Name: user, User: user, PasswordFile: w.Dir + "/secret"}
	if _, err := os.Stat(keys.PasswordFile); err != nil {
		keys.User = ""
	}
	keys.Servers = strings.Split(server.url(), ",")
	log := slog.New(slog.DiscardHandler)
	n, err := bus.Connect(keys, log, func(up bool) {
		mu.Lock()
		defer mu.Unlock()
		if changed != nil {
			changed(up)
		}
	})
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g, err := gateway.New(ctx, gateway.Options{Bus: n, Down: n.Down, User: user, Regions: regions,
		FarAfter: 200 * time.Millisecond, Token: func() (string, error) { return ciToken, nil },
		HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, Log: log})
	if err != nil {
		w.T.Fatal(err)
	}
	mu.Lock()
	changed = g.Changed
	mu.Unlock()
	w.T.Cleanup(func() {
		stop()
		g.Wait()
		n.Close()
	})
	if err := n.Await(ctx, cmdtest.Patience); err != nil {
		w.T.Fatal(err)
	}
	return g
}

// hostAt starts a host with a name, which is connected to a server.
func hostAt(w *cmdtest.World, s *natsServer, name string, vars ...string) *cmdtest.Pool {
	w.T.Helper()
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(w.T, tokens, "ci "+ciToken+" trust\n")
	return w.With("BTOOLS_STATE="+w.Dir+"/"+name+".json").WebPool([]string{"--token-file", tokens, "--nats", s.url(),
		"--socket", w.Dir + "/" + name}, append([]string{"NATS_NAME=" + name}, vars...)...)
}

// Two regions, each with a server of its own, and a leafnode of the first: a request gets a browser behind its own
// server while there is one, then one of its region, and 200 ms after there is none, one of the next region.
func TestRegionsOfServers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const room = 1000
	servers := natsRegions(w, natsFiles(w, []string{"eu0", "leaf0", "us0"}, "ci"))
	for _, at := range []string{"eu", "leaf", "us"} {
		hostAt(w.With(asUser(w, servers[at], at+"0")...), servers[at], at+"0", "LAUNCH=false",
			"NATS_REGION="+strings.Replace(at, "leaf", "eu", 1), fmt.Sprint("_A_INSTANCES=", room))
	}
	client := w.With(append(asUser(w, servers["leaf"], "ci"), "PW_MCP_PROXY_NATS_REGIONS=eu us")...)
	cmdtest.Until(t, "all hosts are found from the leafnode", func() bool { return free(client) == 3*room })
	leases := func(at string, n int) (hosts map[string]int, longest time.Duration) {
		t.Helper()
		g := gatewayAt(w, "ci", []string{"eu", "us"}, servers[at])
		hosts = map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for k := range 10 {
			all.Go(func() {
				for range n/10 + min(1, max(0, n%10-k)) {
					began := time.Now()
					l, err := g.Lease(t.Context(), gateway.Request{Pool: "A", Timeout: cmdtest.Patience})
					if err != nil {
						t.Error(err)
						return
					}
					t.Cleanup(func() { l.Release(context.Background()) })
					mu.Lock()
					hosts[l.Host()]++
					longest = max(longest, time.Since(began))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return hosts, longest
	}
	for _, at := range []string{"leaf", "eu"} {
		hosts, longest := leases(at, room)
		if want := map[string]int{at + "0": room}; !maps.Equal(hosts, want) {
			t.Errorf("from %s: %v, not %v", at, hosts, want)
		}
		t.Logf("from %s: %v, the slowest after %v", at, hosts, longest)
	}
	hosts, longest := leases("leaf", 10)
	if hosts["us0"] != 10 || longest < 200*time.Millisecond || longest > 2*time.Second {
		t.Errorf("when the region is full: %v, the slowest after %v", hosts, longest)
	}
	t.Logf("far: %v, the slowest after %v", hosts, longest)
	client.Run("bpool", "lease", "--region", "us", "A", "--", "true").Exits(t, 0, "")
}

// With place = "first", the last of five hosts is idle when there is less to do.
func TestPlaceOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	client, _ := hosts(w, startNATS(t), 5)
	client = client.With("PW_MCP_PROXY_PLACE=first")
	cmdtest.Until(t, "five hosts are found", func() bool { return free(client) == 5 })
	idle := func() (names string) {
		for _, h := range listHosts(client) {
			if h.Host.Free > 0 {
				names += h.Host.Name + " "
			}
		}
		return names
	}
	var held []*command
	for range 4 {
		held = append(held, hold(client))
	}
	if got := idle(); got != "host4 " {
		t.Errorf("after four requests %sare idle", got)
	}
	for _, c := range held[:3] {
		c.cmd.Process.Signal(syscall.SIGTERM)
		c.ends(0, "")
	}
	cmdtest.Until(t, "three hosts are free again", func() bool { return free(client) == 4 })
	for k := range 2 {
		hold(client)
		if got, want := idle(), fmt.Sprintf("%shost2 host4 ", []string{"host1 ", ""}[k]); got != want {
			t.Errorf("%sare idle, not %s", got, want)
		}
	}
}

// useLeases uses leases all the time, until check asserts that none has ended or lost its connection.
func useLeases(t *testing.T, held ...*command) (check func()) {
	t.Helper()
	f := &traffic{t: t, stop: make(chan struct{})}
	for _, c := range held {
		f.ask(c.lease())
	}
	return func() {
		t.Helper()
		f.end()
		for _, c := range held {
			if c.hasEnded() {
				t.Errorf("a lease has ended: %s", &c.errs)
			}
		}
	}
}

// waiting returns the number of places in the queues of all hosts.
func waiting(w *cmdtest.World) (n int) {
	for _, h := range listHosts(w) {
		n += h.Host.Waiting
	}
	return n
}

// end ends the command of a lease.
func (c *command) end() {
	c.t.Helper()
	c.cmd.Process.Signal(syscall.SIGTERM)
	c.ends(0, "")
}

// Without the only server, leases go on, a service leases its own browsers, and requests for others wait or say what
// is wrong. When the server is back, they stand in the queues again, and are served by their age.
func TestNoServerOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	monitor := cmdtest.Address(t)
	s := startNATS(t, "-m", monitor[strings.Index(monitor, ":")+1:])
	s.kill() // hosts start without
	client, _ := hosts(w, s, 2)
	early := begin(client, "lease", "--", "echo", "got it")
	s.start()
	early.ends(0, "got it")
	own := gatewayOf(w, s, "LAUNCH=false", "_B_INSTANCES=1")
	cmdtest.Until(t, "two hosts are found", func() bool { return free(client) == 2 })
	held := []*command{hold(client), hold(client)}
	check := useLeases(t, held...)
	var waits []*command
	wait := func() { waits = append(waits, begin(client, "lease", "--wait")) }
	for n := range 3 {
		wait()
		cmdtest.Until(t, "a request waits in two queues", func() bool { return waiting(client) == 2*(n+1) })
	}
	s.kill()
	killed := time.Now()
	r := client.Run("bpool", "lease", "--timeout", "300ms", "--", "true")
	if text := regexp.MustCompile(`no NATS server has answered for [\d.]+m?s: .*connection refused`); r.Code != 75 ||
		!text.MatchString(r.Err) {
		t.Errorf("%+v", r)
	}
	own.W.Run("bpool", "lease", "B", "--", "true").Exits(t, 0, "")
	wait()
	down, most := 2*time.Second, 6*time.Second // with the programs that look
	if cmdtest.IsLong {
		down, most = 10*time.Second, 2*time.Second
	}
	time.Sleep(time.Until(killed.Add(down)))
	s.start()
	back := time.Now()
	cmdtest.Until(t, "2 hosts, 2 leases, 4 requests and a gateway are connected again", func() bool {
		_, got := cmdtest.Get(t, "GET", "http://"+monitor+"/varz")
		return strings.Contains(got, `"connections": 9,`)
	})
	connected := time.Now()
	cmdtest.Until(t, "all requests wait in two queues again", func() bool { return waiting(client) == 8 })
	took, then := connected.Sub(back), time.Since(connected)
	if t.Logf("connected after %v, in line after %v more", took, then); took > most+time.Second || then > most {
		t.Error("that is late")
	}
	check()
	for k, h := range append(held, waits[:2]...) {
		h.end()
		cmdtest.Until(t, "the oldest has the lease", func() bool { return waits[k].at() != "" })
		for _, later := range waits[k+1:] {
			if later.at() != "" {
				t.Error("a request has overtaken an older one")
			}
		}
	}
}

// Three servers are killed and replaced, one after the other: new leases are granted all the time, and no lease ends
// or loses a connection.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	leases := 3
	if cmdtest.IsLong {
		leases = 50
	}
	all, each := natsCluster(w, 3, nil)
	client, _ := hosts(w, all, 3, fmt.Sprint("_A_INSTANCES=", (leases+11)/3))
	whole := func() {
		t.Helper()
		for _, s := range each {
			cmdtest.Until(t, "three hosts are found by each server", func() bool {
				return len(listHosts(client.With("BTOOLS_POOL_NATS="+s.url()))) == 3
			})
		}
	}
	whole()
	var held []*command
	for range leases {
		held = append(held, hold(client, "A"))
	}
	check := useLeases(t, held...)
	g := gatewayAt(w, "stream", []string{"local"}, all)
	var mu sync.Mutex
	var clients sync.WaitGroup
	var gap time.Duration // without a grant, the longest
	last, granted := time.Now(), 0
	ctx, stop := context.WithCancel(t.Context())
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				l, err := g.Lease(t.Context(), gateway.Request{Pool: "A", Timeout: cmdtest.Patience})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				gap, last = max(gap, time.Since(last)), time.Now()
				granted++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				l.Release(t.Context())
			}
		})
	}
	without := func(what string, while, most time.Duration) {
		t.Helper()
		mu.Lock()
		gap, last = 0, time.Now()
		mu.Unlock()
		time.Sleep(while)
		mu.Lock()
		defer mu.Unlock()
		if gap = max(gap, time.Since(last)); gap > most {
			t.Errorf("%s: no lease was granted for %v", what, gap)
		}
		t.Logf("%s: %d leases; none for %v", what, granted, gap)
	}
	for i, s := range each {
		if i == 0 {
			s.kill()
		} else {
			s.cmd.Process.Signal(syscall.SIGTERM)
			s.cmd.Wait()
		}
		without("a server has ended", time.Second, 3*time.Second)
		s.start()
		whole()
	}
	if cmdtest.IsLong {
		for _, s := range each {
			s.cmd.Process.Signal(syscall.SIGSTOP)
			without("a server is stopped", 20*time.Second, 8*time.Second)
			s.cmd.Process.Signal(syscall.SIGCONT)
			whole()
		}
	}
	stop()
	clients.Wait()
	check()
}

// sever cuts a link, and ends its connections.
func (l *link) sever() {
	l.set(true, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// When a cluster is cut in two, each half leases its own hosts, and leases across the cut go on. When it is one again,
// requests find all hosts.
func TestCutCluster(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	var between *link
	_, each := natsCluster(w, 2, func(addresses []string) [][]string {
		between = newLink(t, addresses[0])
		return [][]string{nil, {between.listener.Addr().String()}}
	})
	var at []*cmdtest.World
	for i, s := range each {
		hostAt(w, s, fmt.Sprint("host", i), "_A_INSTANCES=2")
		at = append(at, w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken))
	}
	finds := func(n int) {
		t.Helper()
		var found [2]int
		defer func() {
			if t.Failed() {
				t.Log("the halves find hosts:", found)
			}
		}()
		cmdtest.Until(t, fmt.Sprintf("each half finds %d hosts", n), func() bool {
			found = [2]int{len(listHosts(at[0])), len(listHosts(at[1]))}
			return found == [2]int{n, n}
		})
	}
	finds(2)
	held := map[string][]*command{} // by the first half, of each host
	for range 4 {
		c := hold(at[0], "A")
		host := c.lease().Lease.Host
		held[host] = append(held[host], c)
	}
	check := useLeases(t, held["host0"][1], held["host1"][1])
	first := begin(at[0], "lease", "A", "--wait")
	cmdtest.Until(t, "a request waits at both hosts", func() bool { return waiting(at[0]) == 2 })
	second := begin(at[1], "lease", "A", "--wait")
	cmdtest.Until(t, "another one waits, too", func() bool { return waiting(at[1]) == 4 })
	if cmdtest.IsLong { // the servers find out
		between.set(true, true)
	} else {
		between.sever()
	}
	finds(1)
	gets := func(c *command, host string) {
		t.Helper()
		cmdtest.Until(t, "a request gets "+host, func() bool { return c.lease().Lease.Host == host })
	}
	held["host1"][0].end()
	gets(second, "host1")
	at[0].Run("bpool", "lease", "--timeout", "500ms", "A", "--", "true").Exits(t, 75, "none of the hosts")
	held["host0"][0].end()
	gets(first, "host0")
	between.set(false, false)
	finds(2)
	third := begin(at[0], "lease", "A", "--wait")
	cmdtest.Until(t, "a request waits beyond the cut again", func() bool {
		return slices.ContainsFunc(listHosts(at[0]), func(h hostRow) bool {
			return h.Host.Name == "host1" && h.Host.Waiting == 1
		})
	})
	second.end()
	gets(third, "host1")
	check()
}
