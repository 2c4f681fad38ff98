//go:build linux

package main_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"btools/lib/cmdtest"
)

// The tools of NATS see the hosts that bpool hosts lists, as instances of one service: they ask it by the subjects of
// $SRV.
func TestHostsAsServices(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 3, "LAUNCH=false", "_A_INSTANCES=2", "_B_INSTANCES=1", "_A_IS_DEFAULT=1")
	cmdtest.Until(t, "three hosts are found", func() bool { return len(listHosts(client)) == 3 })
	c, err := nats.Connect(s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(subject string, n int) (all [][]byte) {
		t.Helper()
		inbox := nats.NewInbox()
		answers, err := c.SubscribeSync(inbox)
		if err == nil {
			err = c.PublishRequest(subject, inbox, nil)
		}
		for err == nil && len(all) < n {
			var m *nats.Msg
			if m, err = answers.NextMsg(cmdtest.Patience); err == nil {
				all = append(all, m.Data)
			}
		}
		if err != nil {
			t.Fatalf("%s: %d answers, %v", subject, len(all), err)
		}
		return all
	}
	names := map[string][]string{}
	for _, b := range ask("$SRV.PING.bpool", 3) {
		var p micro.Ping
		if json.Unmarshal(b, &p) != nil || p.Type != micro.PingResponseType || p.Name != "bpool" || p.ID == "" {
			t.Errorf("a ping's answer: %s", b)
		}
		names["ping"] = append(names["ping"], p.Metadata["host"])
		one := ask("$SRV.INFO.bpool."+p.ID, 1)[0]
		var i micro.Info
		if json.Unmarshal(one, &i) != nil || i.ID != p.ID || len(i.Endpoints) != 2 || i.Metadata["host"] == "" ||
			!strings.HasPrefix(i.Metadata["url"], "http://127.0.0.1:") {
			t.Errorf("the info of one: %s", one)
		}
	}
	for _, b := range ask("$SRV.STATS.bpool", 3) {
		var st micro.Stats
		if json.Unmarshal(b, &st) != nil || len(st.Endpoints) != 2 {
			t.Errorf("statistics: %s", b)
		}
		names["stats"] = append(names["stats"], st.Metadata["host"])
	}
	ask("$SRV.PING", 3) // of all services
	for _, h := range listHosts(client) {
		names["bpool hosts"] = append(names["bpool hosts"], h.Host.Name)
	}
	for what, got := range names {
		if slices.Sort(got); !slices.Equal(got, []string{"host0", "host1", "host2"}) {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// With a gateway on this machine bpool hosts tells which hosts it does not reach, and which have leases and are not
// found.
func TestStatesOfHosts(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 1, "LAUNCH=false", "_A_INSTANCES=1")
	cmdtest.Until(t, "the host is found", func() bool { return len(listHosts(client)) == 1 })
	g := gatewayOf(w, s)
	on := g.W.With("BTOOLS_POOL_NATS=" + s.url())
	state := func(host, want string) {
		t.Helper()
		cmdtest.Until(t, host+" is "+want, func() bool {
			return slices.ContainsFunc(listHosts(on), func(h hostRow) bool {
				return h.Host.Name == host && h.Host.State == want
			})
		})
	}
	state("host0", "up")
	l := g.Lease("A")
	deaf := w.With("BTOOLS_STATE=" + w.Dir + "/deaf.json") // gateways cannot connect to it
	deaf.WebPool([]string{"--token-file", w.Dir + "/tokens", "--nats", s.url(), "--socket", w.Dir + "/deaf.sock",
		"--public-url", "http://127.0.0.1:1"}, "NATS_NAME=deaf", "LAUNCH=false", "_A_INSTANCES=1")
	state("deaf", "up")
	g.W.Run("bpool", "lease", "A", "--timeout", "200ms", "--", "true").Exits(t, 75, "deaf cannot be reached")
	state("deaf", "suspect")
	all[0].Cmd.Process.Signal(syscall.SIGSTOP)
	state("host0", "no NATS")
	all[0].Cmd.Process.Signal(syscall.SIGCONT)
	state("host0", "up")
	on.Run("bpool", "drain", "--host", "deaf").Exits(t, 0, "")
	state("deaf", "draining")
	g.W.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
}

// A reload says that the keys of NATS have changed, which an upgrade applies.
func TestReloadOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	config, pools := w.Dir+"/pool.toml", "[pool.A]\ninstances = 1\nlaunch = false\n"
	cmdtest.WriteFile(t, config, pools)
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+"\n")
	on := w.With("BTOOLS_STATE=" + w.Dir + "/host.json")
	on.WebPool([]string{"--config", config, "--token-file", w.Dir + "/tokens"})
	t.Cleanup(func() { stopService(t, w.Dir+"/host.json") })
	if strings.Contains(on.Run("bpool", "reload").Err, "have changed") {
		t.Error("no key has changed")
	}
	cmdtest.WriteFile(t, config, "nats = \""+s.url()+"\"\n"+pools)
	on.Run("bpool", "reload").Exits(t, 0, "keys of NATS or of hosts have changed, which bpool upgrade applies")
	on.Run("bpool", "upgrade").Exits(t, 0, "")
	client := w.With("BTOOLS_POOL_NATS=" + s.url())
	cmdtest.Until(t, "the host is found", func() bool { return len(listHosts(client)) == 1 })
}
