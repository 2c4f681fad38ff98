//go:build linux

package cmd_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// joinedPool starts a bpool with a pool of two browsers that join.
func (w *world) joinedPool(vars ...string) *pool {
	w.t.Helper()
	p := &pool{t: w.t, w: w, cmd: w.cmd("bpool", "serve", "--stop-timeout", "5s", "--drain-timeout", "0s")}
	for _, v := range append([]string{"_P_INSTANCES=2", "_P_LAUNCH=extension", "HEALTH_INTERVAL=200ms"}, vars...) {
		p.cmd.Env = append(p.cmd.Env, "PW_MCP_PROXY_"+v)
	}
	p.start()
	return p
}

// states are the states of the instances, sorted.
func (p *pool) states() string {
	p.t.Helper()
	var all []string
	for _, i := range p.status().Pools[0].Instances {
		all = append(all, i.Status)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// The instances of a pool are the browsers that join: one has its browser to
// itself, its next holder sees no tab of the last one, and its lease ends when
// the browser leaves.
func TestPoolOfJoinedBrowsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hub := w.hub()
	p := w.joinedPool()
	if got := p.states(); got != "waiting waiting" {
		t.Errorf("without a browser the instances are %s", got)
	}
	w.run("bpool", "lease", "--timeout=300ms").wants(t, 75,
		"2 of 2 waiting for a browser to join by its extension")
	chrome, process := chromiumWith(t, hub.extension())
	before := tabs(t, chrome)
	l := p.lease("--timeout=" + patience.String())
	if got := p.states(); got != "healthy waiting" {
		t.Errorf("with one browser the instances are %s", got)
	}
	w.run("bpool", "lease", "--timeout=0s").wants(t, 75, "1 of 2 leased, by ")
	own := dial(t, l.Instance.WSURL)
	own.ask("Target.createTarget", `{"url":"about:blank"}`)
	newTab(t, l.Instance.HTTPURL) // in the same session
	if got := tabs(t, chrome); len(got) != len(before)+3 {
		t.Errorf("with a lease there are the tabs %v", got)
	}
	w.run("bpool", "release", l.Lease.ID)
	own.lost()
	until(t, "the tabs of the lease are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })

	l = p.lease("--timeout=" + patience.String())
	if _, list := get(t, "GET", l.Instance.HTTPURL+"/json/list"); strings.Count(list, `"id"`) != 1 {
		t.Errorf("a new lease has the tabs %s", list)
	}
	process.Signal(syscall.SIGKILL)
	until(t, "the lease ends with its browser", func() bool { return p.status().Summary.Leased == 0 })
	w.run("bpool", "renew", l.Lease.ID).wants(t, 69, "there is no lease")
	if got := p.states(); got != "waiting waiting" {
		t.Errorf("after the browser has left the instances are %s", got)
	}
	chromiumWith(t, hub.extension())
	until(t, "the next browser that joins is an instance", func() bool { return p.states() == "healthy waiting" })
	if list := w.run("bproxy", "list").out; strings.Count(list, `"tabs":0`) != 1 {
		t.Errorf("an instance that nobody has leased has tabs: %s", list)
	}
	p.stop()
	hub.stop()
	for _, noise := range []string{"does not answer", "no browser", "failed"} {
		if strings.Contains(p.errs.String(), noise) {
			t.Errorf("bpool says %q", noise)
		}
	}
}

// A pool of browsers that join is scaled and drained as any other, and has no
// browser that another program holds.
func TestPoolOfJoinedBrowsersChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hub := w.hub()
	p := w.joinedPool()
	w.run("bpool", "scale", "P", "1")
	if got := p.states(); got != "waiting" {
		t.Errorf("scaled to one, the instances are %s", got)
	}
	w.run("bpool", "scale", "P", "2")
	w.run("bpool", "drain", "P")
	chromiumWith(t, hub.extension())
	chromiumWith(t, hub.extension())
	until(t, "both browsers are instances", func() bool { return p.states() == "draining draining" })
	w.run("bpool", "drain", "--off", "P")
	a, b := p.lease("--timeout="+patience.String()), p.lease("--timeout="+patience.String())
	if a.Instance.HTTPURL == b.Instance.HTTPURL || a.Instance.ID == b.Instance.ID {
		t.Errorf("two leases have the same browser: %+v and %+v", a, b)
	}
	w.run("bpool", "restart", "P")
	until(t, "the leases have browsers again", func() bool { return p.states() == "healthy healthy" })
	if code, answer := get(t, "GET", a.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("after a restart the lease's address answers %d %s", code, answer)
	}
	w.run("bpool", "scale", "P", "1")
	w.run("bpool", "release", "--all")
	free := w.join()
	until(t, "the instance that is left has the other browser", func() bool { return p.states() == "healthy" })
	free.cmd.Process.Signal(syscall.SIGTERM)
	free.code(t)
	p.stop()
	hub.stop()
}

// ownHub prepares for programs that run a hub themselves. Such tests follow each
// other, as there is one port for that.
func (w *world) ownHub() {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:3300")
	if err != nil {
		w.t.Skip("another program has the port of the hub")
	}
	l.Close()
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
}

// A pool whose hub is not running runs one, and again after that was killed.
func TestPoolRunsItsHub(t *testing.T) {
	w := newWorld(t)
	w.ownHub()
	p := w.joinedPool()
	hubs := func() string { return w.run("bproxy", "list", "--field=proxy.pid").out }
	until(t, "the pool runs a hub", func() bool { return hubs() != "" })
	w.run("bproxy", "extension", "--paired", w.dir+"/extension").wants(t, 0, "")
	chromiumWith(t, w.dir+"/extension")
	until(t, "the browser is an instance", func() bool { return p.states() == "healthy waiting" })
	pid := atoi(t, hubs())
	syscall.Kill(pid, syscall.SIGKILL)
	until(t, "the browser is back on another hub", func() bool {
		now := strings.Fields(hubs())
		return len(now) > 0 && atoi(t, now[0]) != pid && p.states() == "healthy waiting"
	})
	p.stop()
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
