//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// The log of a night has a line for each lease, says why browsers were replaced, and is JSON
// throughout, also where it comes from blaunch.
func TestPoolLog(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	saving := w.Dir + "/saving"
	if err := os.WriteFile(saving, []byte("#!/bin/sh\nFAKE=save FAKE_LOG=/dev/null exec "+cmdtest.Bin+
		"/fakebrowser \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--log-format", "json", "--stop-timeout", "300ms",
		"--drain-timeout", "0s")}
	p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=1",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__A_MAX_USES=1", "PW_MCP_PROXY__B_INSTANCES=1",
		"PW_MCP_PROXY__B_BROWSER=/nonexistent/browser", "PW_MCP_PROXY__C_INSTANCES=1",
		"PW_MCP_PROXY__C_BROWSER="+saving)
	p.Start()
	l := p.Lease()
	w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "the browser is replaced", func() bool {
		i := p.Status().Pools[0].Instances[0]
		return i.Restarts == 1 && i.Status == "healthy"
	})
	end := func(l cmdtest.Leased, by syscall.Signal, says string) {
		t.Helper()
		if l.Instance.PID <= 0 {
			t.Fatalf("the lease has no browser: %+v", l)
		}
		syscall.Kill(l.Instance.PID, by)
		cmdtest.Until(t, "the browser's end is told", func() bool { return strings.Contains(p.Errs.String(), says) })
	}
	crashed, quit := p.Lease(), p.Lease("C")
	end(crashed, syscall.SIGKILL, "the browser ended: the browser was killed by signal 9")
	end(quit, syscall.SIGTERM, "the browser ended: it ended by itself") // as if a person quits it
	w.Run("bpool", "release", crashed.Lease.ID).Exits(t, 0, "")
	w.Run("bpool", "lease", "--", "bpool", "lease", "--timeout", "0").Exits(t, 75, "leased, by bpool")
	held := p.Lease()
	p.Stop()
	type line struct {
		Level, Msg, Program, Why, Lease, Holder, By, Owner string
		PID                                                int
		Waited                                             *float64 `json:"waited_ms"`
		Held                                               *float64 `json:"held_ms"`
		Took                                               *float64 `json:"took_ms"`
	}
	var all []line
	for text := range strings.Lines(p.Errs.String()) {
		var one line
		if err := json.Unmarshal([]byte(text), &one); err != nil || one.Program == "" {
			t.Errorf("not a message as JSON: %v, %s", err, text)
		}
		all = append(all, one)
	}
	find := func(what string, is func(l line) bool) {
		t.Helper()
		for _, l := range all {
			if is(l) {
				return
			}
		}
		t.Errorf("no line says that %s:\n%s", what, p.Errs.String())
	}
	ends := func(id, why string) func(line) bool {
		return func(l line) bool {
			return l.Level == "INFO" && (l.Lease == id || id == "" && l.Lease != "") && l.Why == why &&
				l.By == "uid:0" &&
				l.PID > 0 && l.Holder != "" && l.Waited != nil && l.Held != nil
		}
	}
	find("a lease was released", ends(l.Lease.ID, "released"))
	find("a holder has gone", ends("", "its holder has disconnected"))
	find("a lease ends with the service", ends(held.Lease.ID, "the service has ended"))
	find("a request was refused", func(l line) bool {
		return strings.Contains(l.Why, "none is free") && l.PID > 0 && l.Waited != nil
	})
	find("a browser is replaced", func(l line) bool {
		return strings.Contains(l.Msg, "replacing the browser, which has had 1 lease (MAX_USES=1)")
	})
	find("a browser is launched", func(l line) bool {
		return strings.HasPrefix(l.Msg, "launched the browser") && l.Took != nil
	})
	find("a browser has crashed", func(l line) bool {
		return l.Level == "WARN" && strings.Contains(l.Msg, "signal 9") && l.Lease == crashed.Lease.ID
	})
	find("a browser has crashed, in the words of blaunch", func(l line) bool {
		return l.Program == "blaunch" && strings.Contains(l.Msg, "signal 9") && l.Owner == "bpool A/0" &&
			l.Lease == crashed.Lease.ID
	})
	find("a browser has ended under a lease", func(l line) bool {
		return l.Level == "WARN" && strings.Contains(l.Msg, "ended by itself") && l.Lease == quit.Lease.ID
	})
	find("a browser is not there", func(l line) bool { return strings.Contains(l.Msg, "/nonexistent/browser") })
}
