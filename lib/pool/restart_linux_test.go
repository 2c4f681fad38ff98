package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/launch/options"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/settings"
	"btools/lib/sibling"
)

// farm launches processes that stand in for browsers, except that no client can
// drive them.
type farm struct {
	bad atomic.Bool // launches fail
}

const noDisplay = "cannot launch: chromium exited with code 1 before its endpoint answered: " +
	"there is no display to open a window on; its last words: gpu\nmore"

func (f *farm) launch(ctx context.Context, _ string, _ settings.Settings, _ options.Options,
	_ func() []slog.Attr) (*sibling.Browser, error) {
	if f.bad.Load() {
		return nil, errors.New(noDisplay)
	}
	return sibling.Launch(ctx, sibling.Spec{
		Argv: []string{"sh", "-c",
			`echo "{\"v\":1,\"browser\":{\"type\":\"chromium\"},\"instance\":{\"pid\":$$,\"port\":1}}"; ` +
				`exec sleep 1000`},
		Timeout: time.Minute, Grace: time.Second, Stderr: io.Discard,
	})
}

// startFarm starts a service whose browsers come from a farm.
func startFarm(t *testing.T, bad bool, vars ...string) (*pool.Service, *farm) {
	t.Helper()
	env := []string{config.Prefix + "HEALTH_INTERVAL=1h"} // these browsers answer no health check
	for _, kv := range vars {
		env = append(env, config.Prefix+kv)
	}
	cfg, err := config.Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	f := &farm{}
	f.bad.Store(bad)
	v := pool.New(cfg, slog.New(slog.DiscardHandler))
	v.Launch = f.launch
	ready, err := v.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	<-ready
	return v, f
}

// kill kills the browser of an instance, and reports whether it had one.
func kill(t *testing.T, v *pool.Service, n int) bool {
	t.Helper()
	pid := status(t, v).Instances[n].ProcessID
	return pid != nil && syscall.Kill(*pid, syscall.SIGKILL) == nil
}

// A request with enough time gets a lease, because a browser that has ended is
// replaced in time, however often that happens.
func TestLeasesWhileBrowsersAreKilled(t *testing.T) {
	t.Parallel()
	v, _ := startFarm(t, false, "_A_INSTANCES=4", "_A_IS_DEFAULT=1")
	ctx, enough := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var leases atomic.Int64
	for range 6 {
		clients.Go(func() {
			for ctx.Err() == nil {
				a := lease(t.Context(), v, pool.Request{Timeout: new(patience)})
				if a.err != nil {
					t.Error(a.err)
					return
				}
				leases.Add(1)
				time.Sleep(time.Millisecond)
				v.Release(a.id)
			}
		})
	}
	for kills := 0; kills < 16 && !t.Failed(); time.Sleep(50 * time.Millisecond) {
		if kill(t, v, rand.IntN(4)) {
			kills++
		}
	}
	enough()
	clients.Wait()
	if st := status(t, v); leases.Load() < 16 || st.Leased != 0 || st.Waiting != 0 {
		t.Error(leases.Load(), "leases,", st)
	}
}

// With RESTART=never no browser comes back, so no request waits for one.
func TestNobodyWaitsForWhatIsNotRestarted(t *testing.T) {
	t.Parallel()
	v, _ := startFarm(t, false, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_RESTART=never")
	held := take(t, v, "0")
	waits := leaseAsync(t.Context(), v, pool.Request{Instance: "0"})
	until(t, "it waits", func() bool { return status(t, v).Waiting == 1 })
	kill(t, v, 0)
	if a := <-waits; code(a.err) != control.NoneHealthy ||
		!strings.Contains(a.err.Error(), `cannot lease instance "0" of pool A: 1 of 1`) {
		t.Error("who waits is told", a.err)
	}
	v.Release(held.id)
	a := lease(t.Context(), v, pool.Request{Instance: "0"})
	if code(a.err) != control.NoneHealthy || !strings.HasSuffix(a.err.Error(), "not retried (RESTART=never)") {
		t.Error("who comes later is told", a.err)
	}
	// The other instance can be leased, and is the only one.
	other := lease(t.Context(), v, pool.Request{})
	if other.err != nil || other.instance != "1" {
		t.Fatal(other)
	}
	waits = leaseAsync(t.Context(), v, pool.Request{})
	until(t, "it waits", func() bool { return status(t, v).Waiting == 1 })
	if err := v.Scale("A", 1); err != nil {
		t.Fatal(err)
	}
	if a := <-waits; code(a.err) != control.NoneHealthy {
		t.Error("who waits for any is told", a.err)
	}
	// A restart brings it back.
	if n, err := v.Restart("A", "0"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if a := lease(t.Context(), v, pool.Request{Timeout: new(patience)}); a.err != nil {
		t.Error(a.err)
	}
}

// A failed launch is retried, and a request that can wait for that does.
func TestWaitingForTheNextTry(t *testing.T) {
	t.Parallel()
	v, f := startFarm(t, true, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	const lost = "Default pool 'A' has no healthy instances. Specify explicit pool or restart failed instances. " +
		"(2 of 2 failed: there is no display to open a window on, next try in "
	for _, timeout := range []time.Duration{0, time.Millisecond} {
		a := lease(t.Context(), v, pool.Request{Timeout: new(timeout)})
		var e *control.Error
		if !errors.As(a.err, &e) || e.Code != control.NoneHealthy || !strings.HasPrefix(e.Message, lost) ||
			!strings.Contains(e.Hint, "bpool restart A") {
			t.Errorf("%v: %v", timeout, a.err)
		}
	}
	waits := leaseAsync(t.Context(), v, pool.Request{Timeout: new(patience)})
	until(t, "it waits", func() bool { return status(t, v).Waiting == 1 })
	f.bad.Store(false)
	a := <-waits
	if a.err != nil {
		t.Fatal(a.err)
	}
	// A failed launch has replaced nothing.
	until(t, "both are up", func() bool { return status(t, v).Healthy == 2 })
	restarts := func() (all []int) {
		for _, i := range status(t, v).Instances {
			all = append(all, i.Restarts)
		}
		return all
	}
	if n := restarts(); !slices.Equal(n, []int{0, 0}) {
		t.Error("restarts:", n)
	}
	f.bad.Store(true)
	kill(t, v, 0)
	until(t, "it has failed to launch", func() bool {
		i := status(t, v).Instances[0]
		return i.Status == pool.Failed && *i.Health.Error == noDisplay && i.NextTry != nil
	})
	f.bad.Store(false)
	v.Restart("A", "0")
	until(t, "it is up", func() bool { return status(t, v).Healthy == 2 })
	if n := restarts(); !slices.Equal(n, []int{1, 0}) {
		t.Error("restarts:", n)
	}
	events, _ := v.Events(t.Context(), 0)
	if n := len(slices.DeleteFunc(events, func(e pool.Event) bool { return e.Event != "restarted" })); n != 1 {
		t.Error(n, "events of a restart")
	}
}

// The error for a lease says who holds the instances.
func TestWhoHoldsWhatIsNotFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time in the message is that of the bubble
		v := start(t, "_A_INSTANCES=5", "_A_IS_DEFAULT=1", "_A__4_ALIAS=main", "_A_LEASE_TTL=10s")
		for n := range 5 {
			a := lease(t.Context(), v, pool.Request{Holder: fmt.Sprintf("node (%d)", n), Held: n%2 == 0,
				Timeout: new(time.Duration(0))})
			if a.err != nil {
				t.Fatal(a.err)
			}
		}
		ends := time.Now().Add(10 * time.Second)
		a := lease(t.Context(), v, pool.Request{Timeout: new(time.Duration(0))})
		for _, want := range []string{
			"cannot lease an instance of pool A: none is free: 5 of 5 leased, by node (0) for 0s, node (1) for 0s " +
				"until ",
			", node (2) for 0s, 2 more",
		} {
			if code(a.err) != control.LeaseTimeout || !strings.Contains(a.err.Error(), want) {
				t.Errorf("%v\nhas no %q", a.err, want)
			}
		}
		if s := a.err.Error(); !strings.Contains(s, ends.Format(":05")) &&
			!strings.Contains(s, ends.Add(-time.Second).Format(":05")) {
			t.Error(s)
		}
		a = lease(t.Context(), v, pool.Request{Instance: "main", Timeout: new(time.Millisecond)})
		want := `instance "main" of pool A: none came free within 1ms: 1 of 1 leased, by node (4) for 0s`
		if !strings.HasSuffix(a.err.Error(), want) {
			t.Error(a.err)
		}
	})
}

// A profile belongs to its browser until that has ended, however often the
// configuration is reloaded.
func TestAProfileAfterSeveralReloads(t *testing.T) {
	t.Parallel()
	vars := []string{"HEALTH_INTERVAL=1h", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_USER_DATA_DIR=" + t.TempDir()}
	v, _ := startFarm(t, false, vars...)
	held := take(t, v, "")
	for n := range 3 {
		env := []string{fmt.Sprintf("%sTIMEOUT=%d", config.Prefix, 10000+n)}
		for _, kv := range vars {
			env = append(env, config.Prefix+kv)
		}
		cfg, err := config.Load("", env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	next := leaseAsync(t.Context(), v, pool.Request{})
	until(t, "it waits", func() bool { return status(t, v).Waiting == 1 })
	if i := status(t, v).Instances[0]; i.Status != pool.Starting || i.ProcessID != nil {
		t.Errorf("%+v", i)
	}
	v.Release(held.id)
	if a := <-next; a.err != nil || status(t, v).Instances[0].ProcessID == nil {
		t.Error(a.err)
	}
	if n := len(status(t, v).Instances); n != 1 {
		t.Error(n, "instances")
	}
}

// A holder learns at once what happens to its browser, and how its lease ends.
func TestNewsOfALease(t *testing.T) {
	t.Parallel()
	v, f := startFarm(t, false, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	l := lease(t.Context(), v, pool.Request{Held: true, TTL: time.Hour})
	if l.err != nil {
		t.Fatal(l.err)
	}
	after := 0
	hears := func(want ...string) {
		t.Helper()
		for len(want) > 0 {
			n, err := v.Notices(t.Context(), l.id, after)
			if err != nil || n.Ended != "" || len(n.Lines) == 0 {
				t.Fatalf("%+v, %v", n, err)
			}
			after = n.Last
			for _, line := range n.Lines {
				if len(want) == 0 || !strings.HasPrefix(line, want[0]) {
					t.Fatalf("%q, not %q", line, want)
				}
				want = want[1:]
			}
		}
	}
	kill(t, v, 0)
	hears("the browser of A/0 is gone: signal: killed; a new browser replaces it; its pages are lost")
	until(t, "it is back", func() bool { return status(t, v).Healthy == 1 })
	f.bad.Store(true)
	v.Restart("A", "")
	hears("the browser of A/0 is replaced by bpool restart; its pages are lost",
		"the browser of A/0 could not be launched: there is no display to open a window on; another one "+
			"is launched in ")
	f.bad.Store(false)
	v.Restart("A", "")
	until(t, "it is back", func() bool { return status(t, v).Healthy == 1 })
	if _, err := v.Renew(l.id, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n, err := v.Notices(t.Context(), l.id, after)
		if err != nil || n.Ended != "the lease has expired (time to live 10ms)" && n.Ended != "the lease has expired" {
			t.Errorf("%+v, %v", n, err)
		}
		<-v.Done(l.id)
	}
	if n, _ := v.Notices(t.Context(), "lease_1_x", 0); n.Ended == "" {
		t.Error("a lease that there never was goes on")
	}
	l = lease(t.Context(), v, pool.Request{Held: true})
	ended := make(chan api.Notices, 1)
	go func() {
		n, _ := v.Notices(t.Context(), l.id, 0)
		ended <- n
	}()
	v.Stop()
	if n := <-ended; n.Ended != "the service has ended" {
		t.Errorf("%+v", n)
	}
}
