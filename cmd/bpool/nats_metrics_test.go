//go:build linux

package main_test

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// hostMetrics is what only a service has that finds hosts by NATS, or is found.
var hostMetrics = regexp.MustCompile(`bpool_(nats_|asks_|offers_|wants|remote_|lease_lost_|moves_)`)

// Metrics tell of the connection, of offers, and of leases on other hosts, as long as there are some.
func TestMetricsByNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 1, "LAUNCH=false", "_A_INSTANCES=1")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
	on := w.With("BTOOLS_STATE=" + w.Dir + "/gateway.json")
	g := on.ServePool([]string{"--nats", s.url(), "--socket", w.Dir + "/gateway.sock", "--http", "0"},
		"HOSTS_TOKEN="+ciToken, "NATS_NAME=gateway")
	g.W = on.With("BTOOLS_POOL_SOCKET=" + g.Socket)
	metrics := func(p *cmdtest.Pool) string {
		_, text := webClient{t, p.HTTP, ciToken}.do("/metrics", "")
		return text
	}
	until := func(p *cmdtest.Pool, lines ...string) {
		t.Helper()
		for _, line := range lines {
			cmdtest.Until(t, line, func() bool { return strings.Contains(metrics(p), "\n"+line+"\n") })
		}
	}
	has := func(p *cmdtest.Pool, name string) bool { return strings.Contains(metrics(p), "\n"+name) }

	host := all[0]
	until(host, `bpool_nats_connected 1`, `bpool_nats_reconnects_total 0`, `bpool_nats_slow_total 0`, `bpool_wants 0`,
		`bpool_offers_total{result="accepted"} 0`, `bpool_offers_total{result="unreachable"} 0`)
	until(g, `bpool_nats_connected 1`, `bpool_asks_total{result="offer"} 0`, `bpool_lease_lost_total{reason="ended"} 0`)
	if has(host, "bpool_asks") || has(host, "bpool_remote") || has(g, "bpool_wants") || has(g, "bpool_offers") {
		t.Error("a host has metrics of a gateway, or a gateway has those of a host")
	}

	l := g.Lease("A")
	until(g, `bpool_remote_leases{host="host0"} 1`, `bpool_asks_total{result="offer"} 1`)
	until(host, `bpool_offers_total{result="accepted"} 1`)
	waits := begin(g.W, "lease", "A", "--wait")
	until(host, `bpool_wants 1`)
	until(g, `bpool_remote_waiting 1`)
	host.W.Run("bpool", "release", "--socket", host.Socket, l.Lease.ID).Exits(t, 0, "")
	until(g, `bpool_lease_lost_total{reason="ended"} 1`, `bpool_remote_waiting 0`)
	until(host, `bpool_offers_total{result="accepted"} 2`, `bpool_wants 0`)
	waits.cmd.Process.Signal(syscall.SIGTERM)
	cmdtest.Until(t, "the host has no lease", func() bool { return !has(g, "bpool_remote_leases") })

	s.kill()
	until(g, `bpool_nats_connected 0`)
	s.start()
	until(g, `bpool_nats_connected 1`, `bpool_nats_reconnects_total 1`)

	alone := w.WebPool(nil, "_A_INSTANCES=1", "LAUNCH=false")
	if found := hostMetrics.FindString(metrics(alone)); found != "" {
		t.Errorf("a service without NATS has %s", found)
	}
}
