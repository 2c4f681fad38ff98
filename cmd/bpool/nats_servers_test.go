//go:build linux

package main_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
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
// with permissions like those of vm1 and ci, and the password "secret".
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
	cmdtest.WriteFile(w.T, dir+"/users.conf", users+"authorization: { users: [\n"+entries+"] }\n")
	cmdtest.WriteFile(w.T, w.Dir+"/secret", "secret\n")
	return dir
}

// asUser returns what has a program connect to a server as a user of natsFiles.
func asUser(w *cmdtest.World, s *natsServer, user string) []string {
	return []string{"BTOOLS_POOL_NATS=" + s.url(), "PW_MCP_PROXY_NATS_USER=" + user,
		"PW_MCP_PROXY_NATS_PASSWORD_FILE=" + w.Dir + "/secret", "PW_MCP_PROXY_HOSTS_TOKEN=" + ciToken}
}

// freeAddresses returns addresses at which nothing listens.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// natsRegions starts a server of each of two regions, eu and us, which are joined, and a leafnode of the first.
func natsRegions(w *cmdtest.World, dir string) (all map[string]*natsServer) {
	w.T.Helper()
	a := freeAddresses(w.T, 6) // of each region: for its cluster, the other region, and leafnodes
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

// gatewayAt returns a gateway in this process, which is connected to servers as a user of natsFiles.
func gatewayAt(w *cmdtest.World, user string, regions []string, servers ...*natsServer) *gateway.Gateway {
	w.T.Helper()
	var changed func(up bool)
	var mu sync.Mutex
	keys := bus.Keys{Name: user, User: user, PasswordFile: w.Dir + "/secret"}
	for _, s := range servers {
		keys.Servers = append(keys.Servers, s.url())
	}
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

// Two regions, each with a server of its own, and a leafnode of the first: a request gets a browser behind its own
// server while there is one, then one of its region, and 200 ms after there is none, one of the next region.
func TestRegionsOfServers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const room = 1000
	names := []string{"eu0", "leaf0", "us0"}
	servers := natsRegions(w, natsFiles(w, names, "ci"))
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+" trust\n")
	for i, at := range []string{"eu", "leaf", "us"} {
		on := w.With(append(asUser(w, servers[at], names[i]), "BTOOLS_STATE="+w.Dir+"/"+at+".json")...)
		on.WebPool([]string{"--token-file", w.Dir + "/tokens", "--socket", w.Dir + "/" + at}, "LAUNCH=false",
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
	if hosts["us0"] != 10 || longest < 200*time.Millisecond || longest > time.Second {
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
