//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"btools/lib/cmdtest"
)

// The metrics say why browsers were replaced and leases have ended, what memory browsers have, and which tokens lease.
func TestPoolMetrics(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path := w.Dir + "/tokens"
	if err := os.WriteFile(path, []byte("ci "+ciToken+" trust\nother "+otherToken+"\nadmin "+adminToken+" admin\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p := w.WebPool([]string{"--token-file", path}, "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_HANG_INSTANCES=1",
		"_HANG_HEALTH_INTERVAL=50ms", "_HANG_HEALTH_TIMEOUT=500ms", "_HEAVY_INSTANCES=1", "_HEAVY_HEALTH_INTERVAL=20ms",
		"_HEAVY_MAX_MEMORY=1MiB", "_USES_INSTANCES=1", "_USES_MAX_USES=1", "_OLD_INSTANCES=1", "_OLD_MAX_AGE=1ms")
	ci := webClient{t, p.HTTP, ciToken}
	metrics := func() string {
		code, b := webClient{t, p.HTTP, adminToken}.do("/metrics", "")
		if code != 200 {
			t.Fatal(code, b)
		}
		return b
	}
	until := func(line string) {
		t.Helper()
		cmdtest.Until(t, line, func() bool { return strings.Contains(metrics(), "\n"+line+"\n") })
	}
	cmdtest.Until(t, "the memory is known", func() bool {
		return regexp.MustCompile(`\nbpool_browser_memory_bytes\{pool="A"\} [1-9]`).MatchString(metrics())
	})
	for _, line := range []string{`bpool_restarts_total{pool="A",reason="crash"} 0`,
		`bpool_leases_ended_total{pool="A",reason="expired"} 0`, `bpool_token_leases{token="other"} 0`,
		`btools_build_info{version="` + strings.Fields(w.Run("bpool", "--version").Out)[1] + `"} 1`} {
		until(line)
	}
	pid := func() (pid int) {
		t.Helper()
		cmdtest.Until(t, "pool A has a browser", func() bool {
			pid = p.Status().Pools[0].Instances[0].PID
			return pid > 0
		})
		return pid
	}

	ci.lease(`{"pool":"A"}`)
	until(`bpool_token_leases{token="ci"} 1`)
	syscall.Kill(pid(), syscall.SIGKILL)
	until(`bpool_restarts_total{pool="A",reason="crash"} 1`)
	ci.do("/release", `{"all":true}`)
	until(`bpool_token_leases{token="ci"} 0`)
	until(`bpool_leases_ended_total{pool="A",reason="released"} 1`)
	pid()
	w.Run("bpool", "restart", "A").Exits(t, 0, "")
	until(`bpool_restarts_total{pool="A",reason="asked"} 1`)
	w.Run("bpool", "lease", "A", "--", "true").Exits(t, 0, "")
	until(`bpool_leases_ended_total{pool="A",reason="holder_gone"} 1`)
	w.Run("bpool", "lease", "A", "--ttl", "1s").Exits(t, 0, "")
	until(`bpool_leases_ended_total{pool="A",reason="expired"} 1`)

	if hangs := p.Lease("HANG").Instance.PID; hangs > 0 {
		syscall.Kill(hangs, syscall.SIGSTOP)
	}
	until(`bpool_restarts_total{pool="HANG",reason="hang"} 1`)
	for pool, reason := range map[string]string{"HEAVY": "memory", "USES": "uses", "OLD": "age"} {
		l := p.Lease(pool)
		if pool == "HEAVY" { // it is replaced when it has had a lease, and is found to be heavy
			cmdtest.Until(t, "it is heavy", func() bool { return strings.Contains(p.Errs.String(), "MAX_MEMORY") })
		}
		w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
		until(`bpool_restarts_total{pool="` + pool + `",reason="` + reason + `"} 1`)
	}
}

// The alerts and the dashboard use metrics, and reasons and states of them, that bpool exports.
func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	const dir = "../../scripts/prometheus/"
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary, Description string }
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read := func(name string, decode func([]byte, any) error, v any) {
		if b, err := os.ReadFile(dir + name); err != nil || decode(b, v) != nil {
			t.Fatalf("%s: %v, %v", name, err, decode(b, v))
		}
	}
	read("alerts.yml", yaml.Unmarshal, &alerts)
	read("dashboard.json", json.Unmarshal, &dashboard)
	exprs := map[string]string{}
	for _, r := range alerts.Groups[0].Rules {
		if exprs[r.Alert] = r.Expr; r.Annotations.Summary == "" || r.Annotations.Description == "" {
			t.Errorf("%s does not say what to do", r.Alert)
		}
	}
	if n := len(exprs); n == 0 || n > 11 || len(dashboard.Panels) != 8 {
		t.Errorf("%d alerts and %d panels", n, len(dashboard.Panels))
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs[p.Title] += target.Expr + "\n"
		}
	}

	for _, trigger := range manifests(t)["ScaledObject/browsers"].Spec.Triggers {
		exprs["ScaledObject"] += trigger.Metadata.Query
	}

	w := cmdtest.New(t)
	if err := os.WriteFile(w.Dir+"/tokens", []byte("ci "+ciToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.WebPool([]string{"--token-file", w.Dir + "/tokens", "--nats", "nats://127.0.0.1:1"}, "_A_INSTANCES=1",
		"_A_IS_DEFAULT=1", "LAUNCH=false", "HOSTS_TOKEN="+ciToken)
	_, metrics := webClient{t, p.HTTP, ciToken}.do("/metrics", "")
	names := regexp.MustCompile(`\b(?:bpool|btools|process)_\w+`)
	values := regexp.MustCompile(`\b(\w+)=~?"([a-z|]+)"`)
	for where, expr := range exprs {
		if !names.MatchString(expr) && where != "BpoolDown" {
			t.Errorf("%s has no metric: %s", where, expr)
		}
		for _, name := range names.FindAllString(expr, -1) {
			if !strings.Contains(metrics, "\n"+name+"{") && !strings.Contains(metrics, "\n"+name+" ") {
				t.Errorf("%s: bpool does not export %s", where, name)
			}
		}
		for _, m := range values.FindAllStringSubmatch(expr, -1) {
			for value := range strings.SplitSeq(m[2], "|") {
				if m[1] != "job" && !strings.Contains(metrics, m[1]+`="`+value+`"`) {
					t.Errorf("%s: there is no %s %s", where, m[1], value)
				}
			}
		}
	}
	if promtool, err := exec.LookPath("promtool"); err == nil {
		for what, file := range map[string]string{"check": "alerts.yml", "test": "alerts_test.yml"} {
			if out, err := cmdtest.Combined(exec.Command(promtool, what, "rules", dir+file)); err != nil {
				t.Errorf("promtool %s %s: %v\n%s", what, file, err, out)
			}
		}
	}
}
