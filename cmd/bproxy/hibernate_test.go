//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A named session without clients frees its part of the browser, and its next
// client gets it back: the login, the page and the downloads.
func TestHibernation(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	changed := w.SaveVisitor(site)
	p := w.Proxy("--isolate", "--hibernate", "200ms", "--state", "visitor")
	base := p.URL + "/session/agent"
	c := cmdtest.FirstPage(t, base)
	c.Open(site)
	c.AwaitTitle("shows nobody, visitor, nothing")
	c.Open(site + "/login")
	c.AwaitTitle("logged in")
	c.Open(site + "/inbox")
	c.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	asleep := func() bool { return w.Run("bproxy", "session", "list", "-f", "session.hibernated").Out == "true\n" }
	if asleep() {
		t.Error("a session with a client was hibernated")
	}
	c.Conn.Close(1000, "")
	cmdtest.Until(t, "the session is hibernated", asleep)
	w.Run("bproxy", "downloads", "agent").Exits(t, 0, "")
	w.Run("bproxy", "session", "new", "agent").Exits(t, 64, "already")
	w.CheckOffers(map[string][]string{"bproxy session end ": {"agent"}, "bproxy cast agent --page ": nil}, "bash")
	if r := w.Run("bproxy", "session", "list", "-f", "session.restored_at"); strings.TrimSpace(r.Out) != "" {
		t.Error("a completion has woken the session")
	}

	c = cmdtest.FirstPage(t, base)
	c.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	if got := c.Ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, site+"/inbox") {
		t.Errorf("the page is at %s, want %s/inbox", got, site)
	}
	if r := w.Run("bproxy", "session", "list", "-f", "session.restored_at"); strings.TrimSpace(r.Out) == "" {
		t.Error("session list does not say that the session was restored")
	}
	if changed() {
		t.Error("the state with which the session has started was changed")
	}
	c.Conn.Close(1000, "")
	cmdtest.Until(t, "the session is hibernated again", asleep)

	w.KillHibernated(p.Cmd)
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
