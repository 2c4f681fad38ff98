//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// gatewayOf starts a service that leases from hosts of a server of NATS, as on a machine of its own.
func gatewayOf(w *cmdtest.World, s *natsServer, vars ...string) *cmdtest.Pool {
	w.T.Helper()
	on := w.With("BTOOLS_STATE=" + w.Dir + "/gateway.json")
	p := on.ServePool([]string{"--nats", s.url(), "--socket", w.Dir + "/gateway.sock"},
		append([]string{"HOSTS_TOKEN=" + ciToken, "NATS_NAME=gateway"}, vars...)...)
	p.W = on.With("BTOOLS_POOL_SOCKET=" + p.Socket)
	return p
}

// A service without pools leases from hosts for the clients of its machine.
func TestGateway(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 2, "_A_INSTANCES=1")
	cmdtest.Until(t, "two hosts are found", func() bool { return free(client) == 2 })
	g := gatewayOf(w, s)
	r := g.W.Run("bpool", "lease", "A", "--", "sh", "-c", "curl -sS {cdp_endpoint}/json/version; echo {ws_endpoint}")
	if !strings.Contains(r.Out, `"webSocketDebuggerUrl":"ws://127.0.0.1:`) ||
		!strings.Contains(r.Out, "}ws://127.0.0.1:") || r.Code != 0 || strings.TrimSpace(r.Err) != "" {
		t.Errorf("a command: %+v", r)
	}
	l := g.Lease("A")
	st := g.Status()
	if len(st.Pools) != 1 || st.Pools[0].Instances[0].Lease != l.Lease.ID || !strings.HasPrefix(l.Lease.Host, "host") {
		t.Errorf("%+v, %+v", l, st)
	}
	if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("the endpoint answers %d", code)
	}
	g.W.Run("bpool", "renew", l.Lease.ID).Exits(t, 0, "")
	g.W.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 410 {
		t.Errorf("the endpoint of a lease that has ended answers %d", code)
	}
	cmdtest.Until(t, "the lease has ended on its host", func() bool { return free(client) == 2 })
}
