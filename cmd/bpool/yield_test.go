//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/control"
)

// What another request ends, as its holder does not use it, comes back with the holder's
// next lease that asks for the same login: pages, logins and downloads, and also if a
// lease before did not use it.
func TestPoolKeepsSessions(t *testing.T) {
	t.Parallel()
	site, files := cmdtest.LoginSite(t), cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	w.SaveVisitor(site)
	p := w.Shared("_A_INSTANCES=1", "_A_AFFINITY_IDLE=1ms", "_A_DOWNLOADS="+w.Dir+"/kept")
	type leased struct {
		cmdtest.Leased
		Lease struct {
			ID   string
			Kept bool
		}
	}
	dial := func() *control.Client {
		c, err := control.Dial(t.Context(), p.Socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	ann, bob := dial(), dial()
	call := func(c *control.Client, method string, params map[string]any) (l leased) {
		t.Helper()
		into := any(&l)
		if method != "hold" {
			into = nil
		}
		if err := c.Call(t.Context(), method, params, into); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return l
	}
	annLeases := func(state string) leased {
		t.Helper()
		settings := map[string]any{}
		if state != "" {
			settings["state"] = state
		}
		return call(ann, "hold", map[string]any{"keep": "ann", "bound": true, "settings": settings})
	}
	release := func(c *control.Client, l leased) {
		t.Helper()
		call(c, "release", map[string]any{"lease": l.Lease.ID})
	}
	l := annLeases("visitor")
	page := cmdtest.FirstPage(t, l.Instance.HTTPURL)
	page.Open(site + "/login")
	page.AwaitTitle("logged in")
	page.Open(site + "/inbox")
	page.AwaitTitle("shows ann")
	cmdtest.Click(t, l.Instance.WSURL, files, "file")
	w.Downloads("bpool", l.Lease.ID, 1)
	call(ann, "rest", map[string]any{"lease": l.Lease.ID})
	other := call(bob, "hold", map[string]any{"keep": "bob", "settings": map[string]any{"state": "visitor"}})
	page.AwaitEnd()
	if got := shows(t, other.Instance.WSURL, site); other.Lease.Kept || !strings.HasPrefix(got, "shows nobody") {
		t.Errorf("another holder has %+v, which shows %q", other.Lease, got)
	}
	release(bob, other)
	l = annLeases("")
	if got := shows(t, l.Instance.WSURL, site); l.Lease.Kept || got != "shows nobody, null, nothing" {
		t.Errorf("a lease without a state: %+v, which shows %q", l.Lease, got)
	}
	release(ann, l)
	if l = annLeases("visitor"); !l.Lease.Kept {
		t.Errorf("a lease with the same state: %+v, want a session that was kept", l.Lease)
	}
	release(ann, l) // unused
	if l = annLeases("visitor"); !l.Lease.Kept {
		t.Errorf("the next one: %+v, want a session that was kept", l.Lease)
	}
	cmdtest.FirstPage(t, l.Instance.HTTPURL).AwaitTitle("shows ann, s3cret-token, s3cret-key")
	if got := w.Downloads("bpool", l.Lease.ID, 1); !strings.HasPrefix(got, "report.txt complete") {
		t.Errorf("its downloads are %q", got)
	}
	cmdtest.Click(t, l.Instance.WSURL, files, "file")
	w.Downloads("bpool", l.Lease.ID, 2)
	if r := w.Run("ls", w.Dir+"/kept/"+l.Lease.ID); r.Out != "report.txt\n" {
		t.Errorf("what the lease has downloaded itself is in %q", r.Out)
	}
	release(ann, l)
	if l = annLeases("visitor"); l.Lease.Kept {
		t.Error("a session comes back that its holder has used and released")
	}
	p.Stop()
	w.Clean()
}
