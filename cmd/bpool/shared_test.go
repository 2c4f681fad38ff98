//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

func blank(mark string) string { return fmt.Sprintf(`{"url":"about:blank#%s"}`, mark) }

func TestSharedPoolLeases(t *testing.T) {
	t.Parallel()
	var pages cmdtest.Presence
	site := pages.Blank(t)
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2", "_A__1_ALIAS=second")
	a, b := p.Lease(), p.Lease("--instance", "second")
	if a.Instance.PID != b.Instance.PID || len(w.Browsers()) != 1 {
		t.Errorf("the leases are of the browsers %d and %d: %v", a.Instance.PID, b.Instance.PID, w.Browsers())
	}
	if all := cmdtest.Listening(t, a.Instance.PID); len(all) > 0 {
		t.Errorf("their browser listens: %v", all)
	}
	port := strings.Split(a.Instance.HTTPURL, "/session/")[0]
	for _, l := range []cmdtest.Leased{a, b} {
		at := port + "/session/" + l.Lease.ID
		if ws := strings.Replace(at, "http", "ws", 1) + "/devtools/browser/" + l.Lease.ID; l.Instance.HTTPURL != at ||
			l.Instance.WSURL != ws {
			t.Errorf("the addresses are %s and %s; want %s and %s", l.Instance.HTTPURL, l.Instance.WSURL, at, ws)
		}
	}
	if _, v := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/json/version"); !strings.Contains(v,
		`"`+a.Instance.WSURL+`"`) {
		t.Errorf("/json/version: %s", v)
	}
	c := cmdtest.Dial(t, a.Instance.WSURL)
	c.Ask(cmdtest.NewPage, fmt.Sprintf(`{"url":"%s/#mine"}`, site))
	cmdtest.Until(t, "the page is open", func() bool { return pages.Has("#mine") })
	c.Ask("Storage.setCookies", `{"cookies":[{"name":"a","value":"b","domain":"localhost","path":"/"}]}`)
	if s := a.Targets(t); strings.Count(s, `"type":"page"`) != 2 || !strings.Contains(s, "#mine") {
		t.Errorf("the holder sees %s", s)
	}
	if s := b.Targets(t); strings.Count(s, `"type":"page"`) != 1 || strings.Contains(s, "#mine") {
		t.Errorf("another holder sees %s", s)
	}
	// A drained pool grants no leases; existing leases go on.
	w.Run("bpool", "drain", "A").Exits(t, 0, "")
	if i := p.Status().Pools[0].Instances; i[0].Status != "draining" || i[1].Status != "draining" ||
		c.Ask("Browser.getVersion", "{}") == "" {
		t.Errorf("%+v, want both draining, and the lease's browser to answer", i)
	}
	w.Run("bpool", "drain", "--off").Exits(t, 0, "")
	// At its end connected clients are told, and later ones too.
	w.Run("bpool", "release", a.Lease.ID).Exits(t, 0, "")
	c.AwaitEnd()
	for _, path := range []string{"", "/json/version", "/devtools/browser/" + a.Lease.ID} {
		if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+path); code != http.StatusGone ||
			!strings.Contains(body, `"lease_ended"`) {
			t.Errorf("GET %s after the end: %d %s", path, code, body)
		}
	}
	if code, body := cmdtest.Get(t, "GET", port+"/json/version"); code != 404 || !strings.Contains(body,
		"ws_url of a lease") {
		t.Errorf("the port itself: %d %s", code, body)
	}
	// The next holder has a fresh session, and all pages of the last one are
	// closed once it is connected.
	again := p.Lease("--instance", a.Lease.Instance)
	c = cmdtest.Dial(t, again.Instance.WSURL)
	cmdtest.Until(t, "the pages of the last holder are closed", func() bool { return !pages.Has("#mine") })
	if s := c.Ask("Storage.getCookies", "{}"); !strings.Contains(s, `"cookies":[]`) {
		t.Errorf("the cookies of the last holder: %s", s)
	}
	if s := again.Targets(t); strings.Count(s, `"type":"page"`) != 1 {
		t.Errorf("the next holder sees %s", s)
	}
	w.Run("bpool", "release", b.Lease.ID).Exits(t, 0, "")
	// A client closes its browser: the lease gets another one at its address.
	c.Ask(cmdtest.NewPage, blank("closed"))
	c.Ask("Browser.close", "{}")
	c.AwaitEnd()
	if s := again.Targets(t); strings.Count(s, `"type":"page"`) != 1 || strings.Contains(s, "#closed") {
		t.Errorf("after Browser.close the holder sees %s", s)
	}
	if len(w.Browsers()) != 1 || p.PID(0) != a.Instance.PID {
		t.Error("Browser.close has ended the browser of all")
	}
	short := p.Lease("--ttl", "1h", "--instance", "1", "--timeout", "0s")
	w.Run("bpool", "renew", "--ttl", "1ms", short.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "its time is over", func() bool {
		code, _ := cmdtest.Get(t, "GET", short.Instance.HTTPURL+"/json/version")
		return code == http.StatusGone
	})
}

// A lease waits for nothing, and its session is there before: Chrome does not
// run while all of this happens. What nobody has used goes to the next.
func TestSharedPoolSpares(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--http", "0", "--stop-timeout", "300ms",
		"--drain-timeout",
		"0s")}
	for _, v := range []string{"BROWSER=chrome-headless-shell", "_A_INSTANCES=4", "_A_ISOLATION=context", "_A_SPARES=2",
		"HEALTH_INTERVAL=1h"} {
		p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_"+v)
	}
	p.Start()
	p.AwaitSpares(2)
	pid := p.PID(0)
	syscall.Kill(pid, syscall.SIGSTOP)
	defer syscall.Kill(pid, syscall.SIGCONT)
	for range 5 {
		w.Run("bpool", "release", p.Lease().Lease.ID).Exits(t, 0, "")
	}
	var leases []cmdtest.Leased
	for range 2 {
		l := p.Lease()
		if _, list := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/list"); strings.Count(list,
			`"type": "page"`) != 1 {
			t.Errorf("the session that was ready has %s", list)
		}
		leases = append(leases, l)
	}
	leases = append(leases, p.Lease()) // no session is ready, which the holder notices
	syscall.Kill(pid, syscall.SIGCONT)
	for _, l := range leases {
		if s := l.Targets(t); strings.Count(s, `"type":"page"`) != 1 {
			t.Errorf("the holder sees %s", s)
		}
	}
	p.AwaitSpares(1) // one instance is free
	_, metrics := cmdtest.Get(t, "GET", p.HTTP+"/metrics")
	for _, want := range []string{`bpool_browsers{pool="A"} 1`, `bpool_sessions{pool="A",state="leased"} 3`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// Holders come and go as fast as they can; each has what is its own, and finds
// no page of one before.
func TestSharedPoolUnderLoad(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	var pages cmdtest.Presence
	site := pages.Blank(t)
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=3", "_A_SPARES=1")
	var wg sync.WaitGroup
	for holder := range 5 {
		wg.Go(func() {
			for round := range 4 {
				mark := fmt.Sprintf("holder-%d-%d-", holder, round)
				l := p.Lease()
				c := cmdtest.Dial(t, l.Instance.WSURL)
				c.Ask(cmdtest.NewPage, fmt.Sprintf(`{"url":"%s/#%s"}`, site, mark))
				if s := l.Targets(t); strings.Count(s, `"type":"page"`) != 2 ||
					strings.Count(s, "#holder") != strings.Count(s, "#"+mark) {
					t.Errorf("%s sees %s", mark, s)
				}
				w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
			}
		})
	}
	wg.Wait()
	cmdtest.Until(t, "no page is left", func() bool { return !pages.Has("#holder") })
	if s := p.Status(); s.Summary.Available != 3 || s.Pools[0].Instances[0].Uses != 20 ||
		s.Pools[0].Instances[0].Restarts != 0 {
		t.Errorf("%+v, want 3 available, 20 uses and no restart", s)
	}
}

// A Chromium that does not answer is replaced, for all that share it.
func TestSharedPoolHangs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2", "HEALTH_INTERVAL=200ms", "HEALTH_TIMEOUT=300ms")
	l := p.Lease()
	c := cmdtest.Dial(t, l.Instance.WSURL)
	c.Ask(cmdtest.NewPage, blank("old"))
	opened := time.Now()
	c.Ask("Target.getTargets", "{}")
	p.AwaitKept(opened, l)
	syscall.Kill(l.Instance.PID, syscall.SIGSTOP)
	cmdtest.Until(t, "another browser takes its place", func() bool {
		s := p.Status()
		return s.Summary.Healthy == 2 && s.Pools[0].Instances[0].PID != l.Instance.PID
	})
	if s := l.Targets(t); !strings.Contains(s, "#old") {
		t.Errorf("the holder sees %s, want its page", s)
	}
	if !strings.Contains(p.Errs.String(), "the browser does not answer: stopping it") {
		t.Error("nobody says why")
	}
}

// A Chromium that dies under several leases: all instances come back together,
// and the leases go on at their addresses.
func TestSharedPoolBrowserKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=3")
	a := p.Lease("--instance", "0")
	holder := w.Cmd("bpool", "lease", "--wait", "--instance", "1")
	var said cmdtest.SyncBuffer
	holder.Stderr = &said
	out := cmdtest.StartRead(t, holder)
	defer func() {
		holder.Process.Signal(syscall.SIGTERM)
		holder.Wait()
	}()
	var b cmdtest.Leased
	if err := json.NewDecoder(out).Decode(&b); err != nil {
		t.Fatal(err)
	}
	watch := w.Cmd("bpool", "watch", "-f", "event.event,event.instance")
	var events cmdtest.SyncBuffer
	watch.Stdout = &events
	watch.Start()
	defer func() {
		watch.Process.Kill()
		watch.Wait()
	}()
	clients := []*cmdtest.Wire{cmdtest.Dial(t, a.Instance.WSURL), cmdtest.Dial(t, b.Instance.WSURL)}
	for _, c := range clients {
		c.Ask(cmdtest.NewPage, blank("old"))
	}
	cmdtest.Until(t, "the watcher watches", func() bool {
		l := p.Lease("--instance", "2")
		w.Run("bpool", "release", l.Lease.ID)
		return strings.Contains(events.String(), "leased")
	})
	used := time.Now()
	for _, c := range clients {
		c.Ask("Target.getTargets", "{}")
	}
	p.AwaitKept(used, a, b)
	began := time.Now()
	syscall.Kill(a.Instance.PID, syscall.SIGKILL)
	for _, c := range clients {
		c.AwaitEnd()
	}
	for _, l := range []cmdtest.Leased{a, b} { // they wait for the next browser
		if s := l.Targets(t); !strings.Contains(s, "about:blank#old") {
			t.Errorf("the holder sees %s, want its page", s)
		}
	}
	t.Logf("both are served again after %v", time.Since(began))
	st := p.Status()
	for _, i := range st.Pools[0].Instances {
		if i.Status != "healthy" || i.PID == a.Instance.PID || i.Restarts != 1 {
			t.Errorf("%+v, want a healthy one on another browser than %d after 1 restart", i, a.Instance.PID)
		}
	}
	cmdtest.Until(t, "the holder is told", func() bool {
		// Why: that it was killed, or that its connection has ended, which can be
		// noticed first.
		return regexp.MustCompile(`the browser of A/1 is gone: .*; the next connection gets its pages back`).
			MatchString(said.String())
	})
	for _, i := range "012" {
		for _, e := range []string{"failed", "starting", "restarted", "healthy"} {
			if !strings.Contains(events.String(), fmt.Sprintf("%s\t%c\n", e, i)) {
				t.Errorf("no event %s of instance %c:\n%s", e, i, events.String())
			}
		}
	}
	if l := p.Lease("--instance", "2"); l.Instance.PID == a.Instance.PID {
		t.Error("a new lease has the old browser")
	}
}

// A Chromium that is worn is replaced by another one, and ends with its last
// lease.
func TestSharedPoolReplacesWornBrowsers(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"MAX_USES=2", "MAX_AGE=1ms", "MAX_MEMORY=1MiB"} {
		t.Run(limit, func(t *testing.T) {
			w := cmdtest.New(t)
			interval := "1h"
			if strings.HasPrefix(limit, "MAX_MEMORY") {
				cmdtest.Long(t) // a browser that is not shared has it, too: see below
				interval = "300ms"
			}
			p := w.Shared("_A_INSTANCES=4", "_A_"+limit, "HEALTH_INTERVAL="+interval)
			first := p.Lease()
			if limit == "MAX_USES=2" {
				w.Run("bpool", "release", p.Lease().Lease.ID).Exits(t, 0, "")
			}
			c := cmdtest.Dial(t, first.Instance.WSURL)
			c.Ask(cmdtest.NewPage, blank("old"))
			cmdtest.Until(t, "another browser takes leases", func() bool { return p.PID(3) != first.Instance.PID })
			second := p.Lease()
			if second.Instance.PID == first.Instance.PID {
				t.Errorf("a new lease has the browser that is worn")
			}
			if s := first.Targets(t); !strings.Contains(s, "#old") || c.Ask("Browser.getVersion", "{}") == "" {
				t.Errorf("the lease of the worn browser has lost its pages: %s", s)
			}
			if syscall.Kill(first.Instance.PID, 0) != nil {
				t.Error("the worn browser has ended under its lease")
			}
			w.Run("bpool", "release", first.Lease.ID).Exits(t, 0, "")
			cmdtest.Until(t, "the worn browser ends with its last lease",
				func() bool { return syscall.Kill(first.Instance.PID, 0) != nil })
			if code, body := cmdtest.Get(t, "GET", first.Instance.HTTPURL+"/json/version"); code != http.StatusGone {
				t.Errorf("the holder of a browser that was drained gets %d %s", code, body)
			}
			if limit == "MAX_USES=2" && !strings.Contains(p.Errs.String(), "has had 2 leases (MAX_USES=2)") {
				t.Error("nobody says why")
			}
		})
	}
}

func TestMaxMemoryOfABrowserOfItsOwn(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_MAX_MEMORY=1MiB",
		"HEALTH_INTERVAL=300ms")
	l := p.Lease()
	cmdtest.Until(t, "its memory is looked at", func() bool {
		return strings.Contains(p.Errs.String(),
			"(MAX_MEMORY=1MiB)")
	})
	if pid := p.PID(0); pid != l.Instance.PID {
		t.Error("it was replaced under its lease")
	}
	w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "it is replaced", func() bool { pid := p.PID(0); return pid != 0 && pid != l.Instance.PID })
}

func TestSharedPoolScalesAndReloads(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	config := w.Dir + "/pool.toml"
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const shared = "browser = \"chrome-headless-shell\"\nhealth_interval = \"1h\"\n" +
		"[pool.A]\ninstances = 2\nper_browser = 2\nisolation = \"context\"\n"
	write(shared)
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--config", config, "--stop-timeout", "300ms",
		"--drain-timeout", "0s")}
	p.Start()
	browsers := func(n int) {
		t.Helper()
		cmdtest.Until(t, fmt.Sprintf("%d browsers run", n), func() bool { return len(w.Browsers()) == n })
	}
	browsers(1)
	first := p.Lease("--instance", "0")
	w.Run("bpool", "scale", "A", "5").Exits(t, 0, "")
	browsers(3)
	cmdtest.Until(t, "all are healthy", func() bool { return p.Status().Summary.Healthy == 5 })
	last := p.Lease("--instance", "4")
	w.Run("bpool", "scale", "A", "3").Exits(t, 0, "")
	if s := last.Targets(t); !strings.Contains(s, `"type":"page"`) {
		t.Errorf("a lease of an instance that is no more sees %s", s)
	}
	browsers(3)
	w.Run("bpool", "release", last.Lease.ID).Exits(t, 0, "")
	browsers(2)
	// Each instance has a browser of its own now; the lease goes on.
	c := cmdtest.Dial(t, first.Instance.WSURL)
	write(strings.NewReplacer("per_browser = 2\n", "", "context", "process").Replace(shared))
	w.Run("bpool", "reload").Exits(t, 0, "")
	browsers(3)
	if c.Ask("Browser.getVersion", "{}"); first.Instance.PID == p.PID(0) {
		t.Error("the new instance has the old browser")
	}
	w.Run("bpool", "release", first.Lease.ID).Exits(t, 0, "")
	c.AwaitEnd()
	browsers(2)
	if code, _ := cmdtest.Get(t, "GET", first.Instance.HTTPURL+"/json/version"); code != http.StatusGone {
		t.Errorf("its holder gets %d", code)
	}
	if l := p.Lease(); strings.Contains(l.Instance.HTTPURL, "/session/") {
		t.Errorf("a lease of a browser of its own has the address %s", l.Instance.HTTPURL)
	}
	write(shared)
	w.Run("bpool", "reload").Exits(t, 0, "")
	cmdtest.Until(t, "it shares again, at the same port", func() bool {
		l := p.Lease()
		w.Run("bpool", "release", l.Lease.ID)
		return strings.HasPrefix(l.Instance.HTTPURL, strings.Split(first.Instance.HTTPURL, "lease_")[0])
	})
}

// A Chromium is launched for the first lease, and ends when nobody uses it; the
// lease goes on.
func TestSharedPoolIdle(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2", "START=lazy", "IDLE=100ms", "IDLE_BY=connections", "SPARES=0")
	if n := len(w.Browsers()); n != 0 || p.Status().Summary.Healthy != 2 {
		t.Errorf("before the first lease %d browsers run", n)
	}
	l := p.Lease()
	c := cmdtest.Dial(t, l.Instance.WSURL)
	c.Ask(cmdtest.NewPage, blank("old"))
	opened := time.Now()
	c.Ask("Target.getTargets", "{}")
	p.AwaitKept(opened, l) // for longer than IDLE
	if n := len(w.Browsers()); n != 1 {
		t.Errorf("while a client is connected %d browsers run", n)
	}
	c.Conn.Close(1000, "")
	cmdtest.Until(t, "it ends", func() bool { return len(w.Browsers()) == 0 })
	if s := l.Targets(t); !strings.Contains(s, "#old") {
		t.Errorf("the next connection sees %s, want its page", s)
	}
	if s := p.Status(); s.Summary.Healthy != 2 || s.Pools[0].Instances[0].Restarts != 0 {
		t.Errorf("%+v, want 2 healthy and no restart", s)
	}
}

// A client that is connected and silent does not keep a shared Chromium.
func TestSharedPoolIdleByTraffic(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2", "START=lazy", "IDLE=3s", "SPARES=0")
	l := p.Lease()
	c := cmdtest.Dial(t, l.Instance.WSURL)
	c.Ask(cmdtest.NewPage, blank("old"))
	opened := time.Now()
	cmdtest.Until(t, "the session is kept", func() bool {
		c.Ask("Target.getTargets", "{}") // else it could be idle before
		return p.Status().Pools[0].Instances[0].KeptAt.After(opened)
	})
	c.AwaitEnd()
	cmdtest.Until(t, "it ends", func() bool { return len(w.Browsers()) == 0 })
	if s := l.Targets(t); !strings.Contains(s, "#old") {
		t.Errorf("the next connection sees %s, want its page", s)
	}
	if s := p.Status(); s.Summary.Healthy != 2 || s.Pools[0].Instances[0].Restarts != 0 {
		t.Errorf("%+v, want 2 healthy and no restart", s)
	}
}

// restart replaces the session of one instance, or all browsers of the pool.
func TestSharedPoolRestart(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2", "_A_RESTART=never")
	a, b := p.Lease("--instance", "0"), p.Lease("--instance", "1")
	ca, cb := cmdtest.Dial(t, a.Instance.WSURL), cmdtest.Dial(t, b.Instance.WSURL)
	ca.Ask(cmdtest.NewPage, blank("old"))
	cb.Ask(cmdtest.NewPage, blank("old"))
	w.Run("bpool", "restart", "A/0").Exits(t, 0, "")
	ca.AwaitEnd()
	if s := a.Targets(t); strings.Contains(s, "#old") {
		t.Errorf("a lease that was restarted sees %s", s)
	}
	used := time.Now()
	if s := cb.Ask("Target.getTargets", "{}"); !strings.Contains(s, "#old") {
		t.Errorf("another lease sees %s", s)
	}
	if p.PID(0) != a.Instance.PID {
		t.Error("the restart of one instance has ended the browser of all")
	}
	p.AwaitKept(used, b)
	w.Run("bpool", "restart", "A").Exits(t, 0, "")
	cb.AwaitEnd()
	if s := b.Targets(t); !strings.Contains(s, "#old") || p.PID(1) == b.Instance.PID {
		t.Errorf("after a restart of the pool a lease sees %s", s)
	}
	// It is not replaced, and no request waits for it.
	syscall.Kill(p.PID(0), syscall.SIGKILL)
	cmdtest.Until(t, "both have failed", func() bool { return p.Status().Summary.Failed == 2 })
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/json/version"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "RESTART=never") {
		t.Errorf("%d %s", code, body)
	}
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	w.Run("bpool", "lease").Exits(t, 69, "RESTART=never")
	w.Run("bpool", "restart", "A/1").Exits(t, 0, "")
	cmdtest.Until(t, "both are back", func() bool { return p.Status().Summary.Healthy == 2 })
	p.Lease()
}

// A stable port before a lease of a session, as before one of a browser.
func TestSharedPoolBehindProxy(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=2")
	token := w.Dir + "/token"
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	far := w.Proxy("--launch", "bpool lease --wait --bind-fd 3", "--token-file", token)
	code, body := cmdtest.Get(t, "GET", far.URL+"/json/version?token=secret", "Host: 192.0.2.1:9222")
	if code != 200 || !strings.Contains(body, `"ws://192.0.2.1:9222/devtools/browser/lease_`) {
		t.Errorf("another machine gets %d %s", code, body)
	}
	far.Stop()
	cmdtest.Until(t, "its lease ends with it", func() bool { return p.Status().Summary.Leased == 0 })
	q := w.Proxy("--launch", "bpool lease --wait --bind-fd 3")
	_, v := cmdtest.Get(t, "GET", q.URL+"/json/version")
	var at struct {
		WSURL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.Unmarshal([]byte(v), &at); err != nil ||
		!strings.HasPrefix(at.WSURL, "ws://"+q.Addr+"/devtools/browser/lease_") {
		t.Fatalf("/json/version: %s", v)
	}
	cmdtest.Dial(t, at.WSURL).Ask(cmdtest.NewPage, blank("mine"))
	c := cmdtest.Dial(t, "ws://"+q.Addr+"/devtools/browser")
	if s := c.Ask("Target.getTargets", "{}"); !strings.Contains(s, "#mine") || strings.Count(s, `"type":"page"`) != 2 {
		t.Errorf("a client of the proxy sees %s", s)
	}
	var pages []struct {
		WSURL string `json:"webSocketDebuggerUrl"`
	}
	_, list := cmdtest.Get(t, "GET", q.URL+"/json/list")
	if err := json.Unmarshal([]byte(list), &pages); err != nil || len(pages) != 2 ||
		!strings.HasPrefix(pages[0].WSURL, "ws://"+q.Addr+"/devtools/page/") {
		t.Fatalf("/json/list: %s", list)
	}
	if s := cmdtest.AskOnce(t, pages[0].WSURL, "Runtime.evaluate", `{"expression":"6*7"}`); !strings.Contains(s, "42") {
		t.Errorf("a page: %s", s)
	}
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	c.AwaitEnd()
	if s := cmdtest.AskOnce(t, "ws://"+q.Addr+"/devtools/browser", "Target.getTargets", "{}"); strings.Contains(s,
		"#mine") {
		t.Errorf("the next lease sees %s", s)
	}
	if n := p.Status().Summary.Leased; n != 1 {
		t.Errorf("%d leases", n)
	}
	q.Stop()
}

func TestSharedPoolKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=3", "_A_PER_BROWSER=2")
	l := p.Lease()
	c := cmdtest.Dial(t, l.Instance.WSURL)
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	c.AwaitEnd()
	w.Clean()
}
