//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The name of a hibernated session is taken, and to complete it does not wake it. How it is hibernated and comes back
// is in cmd/bpool, TestSharingAlike.
func TestHibernatedName(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--hibernate", "200ms")
	cmdtest.FirstPage(t, p.URL+"/session/agent").Conn.Close(1000, "")
	asleep := func() bool { return w.Run("bproxy", "session", "list", "-f", "session.hibernated").Out == "true\n" }
	cmdtest.Until(t, "the session is hibernated", asleep)
	w.Run("bproxy", "session", "new", "agent").Exits(t, 64, "already")
	w.CheckOffers(map[string][]string{"bproxy session end ": {"agent"}, "bproxy cast agent --page ": nil}, "bash")
	if r := w.Run("bproxy", "session", "list", "-f", "session.restored_at"); strings.TrimSpace(r.Out) != "" {
		t.Error("a completion has woken the session")
	}
}

func TestHibernationNeedsSessions(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bproxy", "--hibernate", "1m").Exits(t, 64,
		"--hibernate is an option of bproxy share\nbproxy: hint: see bproxy share --help\n")
	w.Run("bproxy", "--isolate", "--hibernate", "1h", "--session-idle", "30m").Exits(t, 64,
		"shorter than --session-idle")
	w.Run("bproxy", "--isolate", "--hibernate", "-1s").Exits(t, 64, "--hibernate")
}
