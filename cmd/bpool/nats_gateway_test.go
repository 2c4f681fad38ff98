//go:build linux

package main_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"btools/lib/cmdtest"
)

// gatewayOf starts a service that leases from hosts of a server of NATS, as on a machine of its own.
func gatewayOf(w *cmdtest.World, s *natsServer, vars ...string) *cmdtest.Pool {
	return gatewayWith(w, s, nil, vars...)
}

// gatewayWith is gatewayOf with these options.
func gatewayWith(w *cmdtest.World, s *natsServer, args []string, vars ...string) *cmdtest.Pool {
	w.T.Helper()
	on := w.With("BTOOLS_STATE=" + w.Dir + "/gateway.json")
	p := on.ServePool(append([]string{"--nats", s.url(), "--socket", w.Dir + "/gateway.sock"}, args...),
		append([]string{"HOSTS_TOKEN=" + ciToken, "NATS_NAME=gateway"}, vars...)...)
	p.W = on.With("BTOOLS_POOL_SOCKET=" + p.Socket)
	return p
}

// A service without pools leases from hosts for the clients of its machine.
func TestGateway(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 2, "_A_INSTANCES=1")
	cmdtest.Until(t, "two hosts are found", func() bool { return free(client) == 2 })
	config := w.Dir + "/gateway.toml"
	cmdtest.WriteFile(t, config, "lease_ttl = \"5m\"\n")
	g := gatewayWith(w, s, []string{"--config", config})
	r := g.W.Run("bpool", "lease", "A", "--", "sh", "-c", "curl -sS {cdp_endpoint}/json/version; echo {ws_endpoint}")
	if !strings.Contains(r.Out, `"webSocketDebuggerUrl":"ws://127.0.0.1:`) ||
		!strings.Contains(r.Out, "}ws://127.0.0.1:") || r.Code != 0 || strings.TrimSpace(r.Err) != "" {
		t.Errorf("a command: %+v", r)
	}
	cmdtest.WriteFile(t, config, "lease_ttl = \"50m\"\n")
	g.W.Run("bpool", "reload").Exits(t, 0, "was reloaded")
	l := g.Lease("A")
	if got := g.W.Run("bpool", "status").Out; !strings.Contains(got, `"lease_ttl_ms":3000000,`) {
		t.Errorf("after a reload with lease_ttl = 50m: %s", got)
	}
	st := g.Status()
	if len(st.Pools) != 1 || st.Pools[0].Instances[0].Lease != l.Lease.ID || !strings.HasPrefix(l.Lease.Host, "host") {
		t.Errorf("%+v, %+v", l, st)
	}
	if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("the endpoint answers %d", code)
	}
	g.W.Run("bpool", "renew", l.Lease.ID).Exits(t, 0, "")
	g.W.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	if code, _ := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 410 {
		t.Errorf("the endpoint of a lease that has ended answers %d", code)
	}
	cmdtest.Until(t, "the lease has ended on its host", func() bool { return free(client) == 2 })
}

// Own instances come first. A request that finds none free waits here and at other hosts, and gets the first that
// becomes free; the message says where it waits. Events and the table name the host. The service is one of the hosts,
// and never leases from itself.
func TestGatewayWithPools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 1, "_A_INSTANCES=1")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
	g := gatewayWith(w, s, []string{"--http", "0", "--token-file", w.Dir + "/tokens"}, "_A_INSTANCES=1",
		"_OWN_INSTANCES=1", "_A_IS_DEFAULT=1")
	events := begin(g.W, "watch", "--output=json")
	own, far := hold(g.W), hold(g.W)
	if own.lease().Lease.Host != "" || far.lease().Lease.Host != "host0" {
		t.Fatalf("%+v, %+v", own.lease(), far.lease())
	}
	g.W.Run("bpool", "lease", "--timeout", "0").Exits(t, 75, "; on other hosts: cannot lease")
	for _, gives := range []*command{far, own} {
		waits := begin(g.W, "lease", "--wait")
		cmdtest.Until(t, "it says where it waits", func() bool {
			return strings.Contains(waits.errs.String(), "on other hosts: in the queues of host0, with 0 or more")
		})
		from := gives.lease().Lease.Host
		gives.cmd.Process.Signal(syscall.SIGTERM)
		gives.ends(0, "")
		cmdtest.Until(t, "it has the lease", func() bool { return waits.id() != "" })
		if got := waits.lease().Lease.Host; got != from {
			t.Errorf("it gets a browser of %q, want %q", got, from)
		}
		if from == "" {
			own = waits
		} else {
			far = waits
		}
	}
	s.kill()
	cmdtest.Until(t, "it says that NATS is away", func() bool {
		r := g.W.Run("bpool", "lease", "--timeout", "1200ms")
		return r.Code == 75 && strings.Contains(r.Err, "on other hosts: no NATS server answers") &&
			strings.Contains(r.Err, "no NATS server has answered for")
	})
	s.start()
	table := g.W.Run("bpool", "status", "--output=table")
	if !strings.Contains(table.Out, "HOST") || !strings.Contains(table.Out, "host0") {
		t.Errorf("%+v", table)
	}
	if st := g.Status(); len(st.Pools) != 2 || len(st.Pools[0].Instances) != 2 || st.Summary.Leased != 2 {
		t.Errorf("%+v", st)
	}
	all[0].W.With("BTOOLS_POOL_SOCKET="+all[0].Socket).Run("bpool", "restart", "A/0").Exits(t, 0, "")
	cmdtest.Until(t, "the holder is told", func() bool {
		return strings.Contains(far.errs.String(), "the browser of A/0 ")
	})
	all[0].W.With("BTOOLS_POOL_SOCKET="+all[0].Socket).Run("bpool", "release", "--all").Exits(t, 0, "")
	far.ends(69, "the host host0 has ended the lease: the lease was released")
	cmdtest.Until(t, "its end is an event", func() bool {
		return strings.Contains(events.out.String(), `"host":"host0","why":"the host host0 has ended the lease`)
	})
	g.W.Run("bpool", "release", "--all").Exits(t, 0, "")
	own.ends(69, "released")
	if st := g.Status(); st.Summary.Leased != 0 || len(st.Pools[0].Instances) != 1 {
		t.Errorf("%+v", st)
	}
}

// Playwright, Puppeteer and chromedp drive a session of another host; its state is saved here, a named one starts it
// there, and what it downloads comes here.
func TestGatewayOfSessions(t *testing.T) {
	t.Parallel()
	site, files := cmdtest.LoginSite(t), cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "BROWSER=chrome-headless-shell", "_A_ISOLATION=context", "_A_INSTANCES=2")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 2 })
	g := gatewayOf(w, s)
	for _, which := range []string{"playwright", "puppeteer"} {
		r := g.W.Run("bpool", "lease", "A", "--", "node", cmdtest.Clients(t)+"/connect.mjs", which, "{ws_endpoint}")
		if r.Code != 0 || r.Out != "done\n" {
			t.Errorf("%s: %+v", which, r)
		}
	}
	l := g.Lease("A")
	ctx, cancel := context.WithTimeout(t.Context(), cmdtest.Patience)
	defer cancel()
	browser, disconnect := remote.NewAllocator(ctx, l.Instance.WSURL)
	tab, _ := chromedp.NewContext(browser)
	if err := chromedp.Do(tab, chromedp.Navigate(site+"/login")); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "it is logged in", func() bool {
		title, err := chromedp.Run(tab, chromedp.Title())
		return err == nil && title == "logged in"
	})
	disconnect()
	g.W.Run("bpool", "state", "save", "shop", "--from", l.Lease.ID).Exits(t, 0, "")
	saved := g.Lease("A", "--state", "shop")
	page := cmdtest.FirstPage(t, saved.Instance.HTTPURL)
	page.Open(site + "/inbox")
	page.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	cmdtest.Click(t, l.Instance.WSURL, files, "file")
	to := w.Dir + "/saved"
	r := g.W.Run("bpool", "downloads", l.Lease.ID, "--wait", "--save", to)
	got, _ := filepath.Glob(to + "/*")
	if r.Code != 0 || len(got) != 1 || strings.Contains(r.Out, "host0") {
		t.Errorf("downloads: %+v, %v", r, got)
	} else if b, err := os.ReadFile(got[0]); err != nil || len(b) == 0 {
		t.Errorf("%q %v", b, err)
	}
	g.W.Run("bpool", "downloads", "lease_1_aaaaaaaaaaaaaaaa").Exits(t, 69, "")
	g.W.Run("bpool", "release", "--all").Exits(t, 0, "")
	g.Stop()
	cmdtest.Until(t, "the leases have ended on the host", func() bool { return free(client) == 2 })
}

// A gateway that is told to stop waits for its leases; one that is killed has none after 10 s.
func TestEndOfAGateway(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "_A_INSTANCES=2")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 2 })
	stops := gatewayWith(w, s, []string{"--drain-timeout", "1m"})
	last := hold(stops.W, "A")
	stops.Cmd.Process.Signal(syscall.SIGTERM)
	cmdtest.Until(t, "it waits for its lease", func() bool {
		return strings.Contains(stops.Errs.String(), "waiting up to 1m0s for 1 lease")
	})
	if last.cmd.Process.Signal(syscall.SIGTERM); stops.Cmd.Wait() != nil {
		t.Errorf("it ends with %v", stops.Cmd.ProcessState)
	}
	g := gatewayOf(w, s)
	g.Lease("A")
	held := hold(g.W, "A")
	held.cmd.Process.Signal(syscall.SIGKILL)
	cmdtest.Until(t, "the lease of a client that is killed has ended", func() bool { return free(client) == 1 })
	began := time.Now()
	g.Cmd.Process.Signal(syscall.SIGKILL)
	g.Cmd.Wait()
	cmdtest.Until(t, "all leases have ended", func() bool { return free(client) == 2 })
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("they have ended after %v", took)
	}
}

// A session of bmcp keeps a browser of another host between its calls; another one gets it when it waits, and the
// first one's comes back as it was. bproxy launches by bpool lease.
func TestProgramsOnAGateway(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "BROWSER=chrome-headless-shell", "_DEFAULT_ISOLATION=context", "_DEFAULT_INSTANCES=1",
		"_DEFAULT_AFFINITY_IDLE=100ms")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
	g := gatewayOf(w, s)
	ann, bob := g.W.Builtin("--pool"), g.W.Builtin("--pool")
	ann.MustTool("browser_navigate", `{"url":"%s/login"}`, site)
	ann.AwaitTitle("logged in")
	ann.MustTool("browser_navigate", `{"url":"%s/inbox"}`, site)
	bob.MustTool("browser_navigate", `{"url":%q}`, site)
	bob.AwaitTitle("shows nobody, null, nothing")
	r := ann.Tool("browser_snapshot", "{}").Tool(t) // an error, if the page is not back yet
	if !strings.Contains(r.Text(), "as it was not used and another one waited; its pages were reloaded") ||
		strings.Contains(r.Text(), "are gone") {
		t.Errorf("after another session: %s", r.Text())
	}
	ann.AwaitTitle("shows ann, s3cret-token, s3cret-key")
	ann.End()
	bob.End()
	cmdtest.Until(t, "the browser is free", func() bool { return free(client) == 1 })
	q := g.W.Proxy("--launch", "bpool lease --wait --bind-fd 3")
	if code, body := cmdtest.Get(t, "GET", q.URL+"/json/version"); code != http.StatusOK || free(client) != 0 {
		t.Errorf("bproxy answers %d %s", code, body)
	}
	q.Stop()
	cmdtest.Until(t, "its lease has ended", func() bool { return free(client) == 1 })
}

// No lease of another host is lost and no connection is cut by upgrades of the gateway's bpool and of the host's; the
// processes of before end with their leases.
func TestUpgradesUnderLeasesOfAHost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	first, upgrades := 3, 2
	if cmdtest.IsLong {
		first, upgrades = 40, 10 // 50 leases
	}
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+"\n")
	host := startUpgradable(w.With("BTOOLS_STATE="+w.Dir+"/host.json"), []string{"--http", "0", "--token-file",
		w.Dir + "/tokens", "--nats", s.url(), "--socket", w.Dir + "/host"}, fmt.Sprint("_A_INSTANCES=", first+upgrades),
		"_A_ISOLATION=context", "START=lazy", "NATS_NAME=host0")
	g := startUpgradable(w.With("BTOOLS_STATE="+w.Dir+"/gateway.json"), []string{"--nats", s.url(), "--socket",
		w.Dir + "/gateway"}, "NATS_NAME=gateway", "HOSTS_TOKEN="+ciToken)
	f := &traffic{t: t, stop: make(chan struct{})}
	var holders []*exec.Cmd
	lease := func() {
		c, l := g.hold("A")
		holders = append(holders, c)
		f.ask(l)
	}
	for range first {
		lease()
	}
	for range upgrades {
		g.upgrade()
		host.upgrade()
		lease()
	}
	before := f.answers.Load()
	cmdtest.Until(t, "all go on", func() bool { return f.answers.Load() > before+int64(10*len(holders)) })
	for _, u := range []*upgradable{g, host} {
		if got := u.w.Run("bpool", "status", "-f", "summary.leased_instances").Out; got != fmt.Sprintln(len(holders)) {
			t.Errorf("the status has %s leases, not %d", got, len(holders))
		}
	}
	t.Logf("%d leases, %d upgrades of each, %d answers", len(holders), upgrades, f.end())
	g.w.Run("bpool", "release", "--all").Exits(t, 0, "")
	for _, c := range holders {
		if c.Wait(); c.ProcessState.ExitCode() != 69 {
			t.Errorf("a holder ends with %d", c.ProcessState.ExitCode())
		}
	}
	for _, u := range []*upgradable{g, host} {
		u.awaitEnd(u.pids[:len(u.pids)-1]...)
	}
}
