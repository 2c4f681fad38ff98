//go:build linux

package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// A restart replaces what is hibernated, too. How a lease is hibernated and comes back is in TestSharingAlike.
func TestPoolHibernatedRestart(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=1", "_A_HIBERNATE=200ms")
	a := p.Lease()
	c := cmdtest.FirstPage(t, a.Instance.HTTPURL)
	c.Open(cmdtest.LoginSite(t))
	c.Conn.Close(1000, "")
	cmdtest.Until(t, "the lease is hibernated", func() bool {
		return strings.Contains(w.Run("bpool", "status").Out, `"hibernated":true`)
	})
	w.Run("bpool", "restart", "A/"+a.Lease.Instance).Exits(t, 0, "")
	c = cmdtest.FirstPage(t, a.Instance.HTTPURL)
	if got := c.Ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, "about:blank") {
		t.Errorf("after a restart the page is at %s, want about:blank", got)
	}
}

// The crash of a browser logs no lease out, and takes no tab away.
func TestPoolCrashes(t *testing.T) {
	t.Parallel()
	leases, rounds := 2, 2
	if cmdtest.IsLong {
		leases, rounds = 50, 20
	}
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	p := w.Shared(fmt.Sprintf("_A_INSTANCES=%d", leases))
	const member = "shows ann, s3cret-token, s3cret-key"
	var all []cmdtest.Leased
	var pages []*cmdtest.Wire
	for range leases {
		l := p.Lease()
		c := cmdtest.FirstPage(t, l.Instance.HTTPURL)
		c.Open(site + "/login")
		c.AwaitTitle("logged in")
		c.Open(site + "/inbox")
		all, pages = append(all, l), append(pages, c)
	}
	for range rounds {
		used := time.Now()
		for _, c := range pages {
			c.AwaitTitle(member)
		}
		p.AwaitKept(used, all...)
		killed := map[int]bool{}
		for _, i := range p.Status().Pools[0].Instances { // some have a browser together
			if !killed[i.PID] {
				killed[i.PID] = true
				syscall.Kill(i.PID, syscall.SIGKILL)
			}
		}
		for n, c := range pages {
			c.AwaitEnd()
			c = cmdtest.FirstPage(t, all[n].Instance.HTTPURL)
			c.AwaitTitle(member)
			got := c.Ask("Runtime.evaluate", `{"expression":"location.href"}`)
			if !strings.Contains(got, site+"/inbox") {
				t.Errorf("the page of lease %d is at %s, want %s/inbox", n, got, site)
			}
			pages[n] = c
		}
	}
	w.Run("bpool", "restart", "A/"+all[0].Lease.Instance).Exits(t, 0, "")
	pages[0].AwaitEnd()
	if got := all[0].Targets(t); strings.Contains(got, site) {
		t.Errorf("after a restart of the instance its lease has %s, want a fresh session", got)
	}
	p.Stop()
	w.Clean()
}

// The end of a lease that is hibernated deletes what was saved.
func TestPoolHibernatedLeaseEnds(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=1", "_A_HIBERNATE=100ms")
	l := p.Lease()
	saved := func() int {
		all, _ := filepath.Glob(w.Dir + "/btools-run_*/hibernated-*")
		return len(all)
	}
	cmdtest.AskOnce(t, l.Instance.WSURL, "Target.getTargets", "{}")
	cmdtest.Until(t, "the lease is hibernated", func() bool { return saved() == 1 })
	w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "the file is deleted", func() bool { return saved() == 0 })
	p.Stop()
	w.Clean()
}
