//go:build linux

package main_test

import (
	"os"
	"strings"
	"syscall"
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

// With --keep a named session outlives bproxy, however that ends, until the session is ended.
func TestSessionsOutliveProxy(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	dir := w.Dir + "/kept"
	share := func() *cmdtest.Proxy { return w.Proxy("--isolate", "--keep", dir) }
	p := share()
	c := cmdtest.FirstPage(t, p.URL+"/session/agent")
	c.Open(site + "/login")
	c.AwaitTitle("logged in")
	c.Open(site + "/inbox")
	c.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	kept := func() string {
		return strings.TrimSpace(w.Run("bproxy", "session", "list", "-f", "session.kept_at").Out)
	}
	was := kept()
	cmdtest.Until(t, "the session is kept", func() bool { return kept() != was && kept() != "" })
	w.Run("bproxy", "session", "new", "young").Exits(t, 0, "")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p.Cmd.Process.Signal(signal)
		p.Cmd.Wait()
		p = share()
		w.Run("bproxy", "session", "new", "agent").Exits(t, 64, "already")
		w.Run("bproxy", "session", "new", "young").Exits(t, 64, "already")
		c = cmdtest.FirstPage(t, p.URL+"/session/agent")
		c.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	}
	if info, err := os.Stat(dir + "/agent.json"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the session: %v, %v", info, err)
	}
	w.Run("bproxy", "session", "end", "agent").Exits(t, 0, "")
	w.Run("bproxy", "session", "end", "young").Exits(t, 0, "")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("after its end there is %v", left)
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
