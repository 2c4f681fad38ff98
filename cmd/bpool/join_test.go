//go:build linux

package main_test

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// The instances of a pool are the browsers that join: one has its browser to
// itself, its next holder sees no tab of the last one, and its lease ends when
// the browser leaves.
func TestPoolOfJoinedBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	hub := w.Hub()
	p := w.JoinedPool()
	if got := p.States(); got != "waiting waiting" {
		t.Errorf("without a browser the instances are %s", got)
	}
	w.Run("bpool", "lease", "--timeout=300ms").Exits(t, 75,
		"2 of 2 waiting for a browser to join by its extension")
	chrome, process := cmdtest.ChromiumWith(t, hub.Extension())
	before := cmdtest.Tabs(t, chrome)
	l := p.Lease("--timeout=" + cmdtest.Patience.String())
	if got := p.States(); got != "healthy waiting" {
		t.Errorf("with one browser the instances are %s", got)
	}
	w.Run("bpool", "lease", "--timeout=0s").Exits(t, 75, "1 of 2 leased, by ")
	own := cmdtest.Dial(t, l.Instance.WSURL)
	own.Ask("Target.createTarget", `{"url":"about:blank"}`)
	cmdtest.NewTab(t, l.Instance.HTTPURL) // in the same session
	if got := cmdtest.Tabs(t, chrome); len(got) != len(before)+3 {
		t.Errorf("with a lease there are the tabs %v", got)
	}
	w.Run("bpool", "release", l.Lease.ID)
	own.AwaitEnd()
	cmdtest.Until(t, "the tabs of the lease are closed", func() bool {
		return slices.Equal(cmdtest.Tabs(t, chrome),
			before)
	})

	l = p.Lease("--timeout=" + cmdtest.Patience.String())
	if _, list := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/list"); strings.Count(list, `"id"`) != 1 {
		t.Errorf("a new lease has the tabs %s", list)
	}
	process.Signal(syscall.SIGKILL)
	cmdtest.Until(t, "the lease ends with its browser", func() bool { return p.Status().Summary.Leased == 0 })
	w.Run("bpool", "renew", l.Lease.ID).Exits(t, 69, "there is no lease")
	if got := p.States(); got != "waiting waiting" {
		t.Errorf("after the browser has left the instances are %s", got)
	}
	cmdtest.ChromiumWith(t, hub.Extension())
	cmdtest.Until(t, "the next browser that joins is an instance",
		func() bool { return p.States() == "healthy waiting" })
	if list := w.Run("bproxy", "list").Out; strings.Count(list, `"tabs":0`) != 1 {
		t.Errorf("an instance that nobody has leased has tabs: %s", list)
	}
	p.Stop()
	for _, noise := range []string{"does not answer", "no browser", "failed"} {
		if strings.Contains(p.Errs.String(), noise) {
			t.Errorf("bpool says %q", noise)
		}
	}

	// Such a pool is scaled and drained as any other, and has no browser that another
	// program holds.
	p = w.JoinedPool()
	w.Run("bpool", "scale", "P", "1")
	if got := p.States(); strings.Contains(got, " ") {
		t.Errorf("scaled to one, the instances are %s", got)
	}
	w.Run("bpool", "scale", "P", "2")
	w.Run("bpool", "drain", "P")
	cmdtest.ChromiumWith(t, hub.Extension())
	cmdtest.Until(t, "both browsers are instances", func() bool { return p.States() == "draining draining" })
	w.Run("bpool", "drain", "--off", "P")
	a, b := p.Lease("--timeout="+cmdtest.Patience.String()), p.Lease("--timeout="+cmdtest.Patience.String())
	if a.Instance.HTTPURL == b.Instance.HTTPURL || a.Instance.ID == b.Instance.ID {
		t.Errorf("two leases have the same browser: %+v and %+v", a, b)
	}
	w.Run("bpool", "restart", "P")
	cmdtest.Until(t, "the leases have browsers again", func() bool { return p.States() == "healthy healthy" })
	if code, answer := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("after a restart the lease's address answers %d %s", code, answer)
	}
	w.Run("bpool", "scale", "P", "1")
	w.Run("bpool", "release", "--all")
	free := w.Join()
	cmdtest.Until(t, "the instance that is left has the other browser", func() bool { return p.States() == "healthy" })
	free.Cmd.Process.Signal(syscall.SIGTERM)
	free.Code(t)
	p.Stop()
	hub.Stop()
}

// A pool whose hub is not running runs one, and again after that was killed.
func TestPoolRunsItsHub(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.OwnHub()
	p := w.JoinedPool()
	hubs := func() string { return w.Run("bproxy", "list", "--field=proxy.pid").Out }
	cmdtest.Until(t, "the pool runs a hub", func() bool { return hubs() != "" })
	w.Run("bproxy", "extension", "--paired", w.Dir+"/extension").Exits(t, 0, "")
	cmdtest.ChromiumWith(t, w.Dir+"/extension")
	cmdtest.Until(t, "the browser is an instance", func() bool { return p.States() == "healthy waiting" })
	pid := atoi(t, hubs())
	syscall.Kill(pid, syscall.SIGKILL)
	cmdtest.Until(t, "the browser is back on another hub", func() bool {
		now := strings.Fields(hubs())
		return len(now) > 0 && atoi(t, now[0]) != pid && p.States() == "healthy waiting"
	})
	p.Stop()
	if got := hubs(); got != "" {
		t.Errorf("the pool has left the hub %s", got)
	}
}

// atoi returns the first number in a text.
func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(text + " x")[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
