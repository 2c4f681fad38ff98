package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/settings"
	"btools/lib/sibling"
)

func TestADrainedPoolServesNobodyUntilItIsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_B_INSTANCES=1")
		l := take(t, v, "0")
		if n, err := v.Drain("A", true); n != 2 || err != nil {
			t.Error(n, err)
		}
		waits := queueLease(t, v, pool.Request{}) // although 1 is free
		v.Release(l.id)
		v.Scale("A", 3) // added instances are drained too
		time.Sleep(30 * time.Second)
		if a, st := answered(waits), status(t, v); a != nil || st.Available != 0 ||
			st.Instances[1].Status != pool.Draining {
			t.Fatalf("%+v %+v", a, st)
		}
		if a := lease(t.Context(), v, pool.Request{Pool: "B"}); a.err != nil {
			t.Error("another pool is held up:", a.err)
		}
		v.Drain("A", false)
		if a, st := answered(waits), status(t, v); a == nil || a.err != nil || st.Available != 2 {
			t.Errorf("%+v %+v", a, st)
		}
		// All pools, while a lease goes on.
		l = take(t, v, "")
		if n, err := v.Drain("", true); n != 4 || err != nil {
			t.Error(n, err)
		}
		if _, err := v.Renew(l.id, 0); err != nil {
			t.Error(err)
		}
		if a := <-queueLease(t, v, pool.Request{Timeout: new(time.Second)}); code(a.err) != control.LeaseTimeout {
			t.Error(a)
		}
		if !v.Release(l.id) {
			t.Error("its lease is gone")
		}
	})
}

func TestScaleUpServesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		take(t, v, "")
		first, second, third := queueLease(t, v, pool.Request{}), queueLease(t, v, pool.Request{}),
			queueLease(t, v, pool.Request{})
		if err := v.Scale("A", 3); err != nil {
			t.Fatal(err)
		}
		a, b := answered(first), answered(second)
		if a == nil || b == nil || a.instance == b.instance || answered(third) != nil {
			t.Error(a, b)
		}
	})
}

// A lease that outlives a scale-down belongs to its old instance. Its end must
// not free the new instance with the same number.
func TestScaleDownLetsALeaseGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
		old := take(t, v, "1")
		v.Scale("A", 1)
		if _, err := v.Renew(old.id, time.Hour); err != nil || v.Leases() != 1 || status(t, v).Total != 1 {
			t.Error("the lease has not survived:", err)
		}
		if a := <-queueLease(t, v, pool.Request{Instance: "1"}); code(a.err) != control.InstanceNotFound {
			t.Error(a)
		}
		v.Scale("A", 2)
		fresh := take(t, v, "1")
		if !v.Release(old.id) || v.Release(old.id) {
			t.Error("the old lease did not end once")
		}
		if st := status(t, v); !st.Instances[1].Leased || st.Instances[1].Lease != fresh.id {
			t.Errorf("%+v", st.Instances[1])
		}
		if a := <-queueLease(t, v, pool.Request{Instance: "1", Timeout: new(time.Duration(0))}); a.err == nil {
			t.Error("leased twice")
		}
		// A removed slot does not return to the queue.
		v.Scale("A", 1)
		v.Release(fresh.id)
		take(t, v, "")
		if a := <-queueLease(t, v, pool.Request{Timeout: new(time.Duration(0))}); code(a.err) != control.LeaseTimeout {
			t.Error(a)
		}
	})
}

func TestReloadKeepsWhatIsUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_B_INSTANCES=1")
		same, changed := take(t, v, "0"), take(t, v, "1")
		if a := lease(t.Context(), v, pool.Request{Pool: "B"}); a.err != nil {
			t.Fatal(a.err)
		}
		waits, gone := queueLease(t, v, pool.Request{Instance: "0"}), queueLease(t, v, pool.Request{Pool: "B"})
		if _, err := v.Apply(load(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A__1_ALIAS=main",
			"_C_INSTANCES=1")); err != nil {
			t.Fatal(err)
		}
		if a := answered(gone); a == nil || code(a.err) != control.PoolNotFound {
			t.Error("who waits for a pool that is gone:", a)
		}
		if a := lease(t.Context(), v, pool.Request{Pool: "C"}); a.err != nil {
			t.Error(a.err)
		}
		st := status(t, v)
		if v.Leases() != 4 || st.Instances[0].Lease != same.id || st.Instances[1].Leased || answered(waits) != nil {
			t.Errorf("%d leases, %+v", v.Leases(), st.Instances)
		}
		if a := take(t, v, "main"); a.instance != "1" || !v.Release(changed.id) || !v.Release(same.id) ||
			answered(waits) == nil {
			t.Error(a)
		}
	})
}

// These settings do not concern an instance, so a change must not cost its
// browser.
func TestReloadOfThePoolsOwnSettingsKeepsItsInstances(t *testing.T) {
	t.Parallel()
	for _, changed := range []string{"LEASE_TIMEOUT=3s", "_A_LEASE_TTL=3s", "_A_QUEUE_LIMIT=3", "_A_DESCRIPTION=mine"} {
		t.Run(changed, func(t *testing.T) {
			v := start(t, one...)
			l := take(t, v, "0")
			if _, err := v.Apply(load(t, append(one, changed)...)); err != nil {
				t.Fatal(err)
			}
			if st := status(t, v); st.Instances[0].Lease != l.id {
				t.Errorf("another instance has taken its place: %+v", st.Instances[0])
			}
		})
	}
}

func TestWhoWaitsForAnInstanceIsToldWhenItIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
		take(t, v, "1")
		waits := queueLease(t, v, pool.Request{Instance: "1"})
		v.Scale("A", 1)
		if a := answered(waits); a == nil || code(a.err) != control.InstanceNotFound {
			t.Error(a)
		}
	})
}

func TestScalesOfTwoPoolsAreBothDone(t *testing.T) {
	t.Parallel()
	v := start(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_B_INSTANCES=1")
	for round := range 3000 {
		n := 1 + round%2
		var wg sync.WaitGroup
		for _, name := range []string{"A", "B"} {
			wg.Go(func() { v.Scale(name, n) })
		}
		wg.Wait()
		if st, _ := v.Status(""); st.Summary.Total != 2*n {
			t.Fatalf("round %d: A has %d, B %d, not %d", round, st.Pools[0].Total, st.Pools[1].Total, n)
		}
	}
}

func TestStopTellsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		l := take(t, v, "")
		waiting := []<-chan answer{queueLease(t, v, pool.Request{}), queueLease(t, v, pool.Request{Instance: "0"})}
		stopping := func(a answer) {
			t.Helper()
			if code(a.err) != control.Stopping || a.err.Error() != "the service is stopping" {
				t.Error(a)
			}
		}
		v.StopLeasing()
		for _, w := range waiting {
			stopping(<-w)
		}
		// Existing leases go on until then, and no request is served.
		if !v.Release(l.id) || v.Unhealthy() == "" {
			t.Error("its lease is gone")
		}
		stopping(lease(t.Context(), v, pool.Request{}))
		v.Stop()
		stopping(lease(t.Context(), v, pool.Request{Instance: "0"}))
	})
}

func TestAPoolThatIsAddedWhileItStopsGivesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		v.StopLeasing()
		v.Apply(load(t, append(one, "_B_INSTANCES=1")...))
		if a := lease(t.Context(), v, pool.Request{Pool: "B"}); code(a.err) != control.TryAgain &&
			code(a.err) != control.PoolNotFound {
			t.Error(a)
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		for range 1500 {
			v.Release(take(t, v, "").id)
		}
		all, err := v.Events(t.Context(), 0) // far more than are kept
		if err != nil || len(all) < 1024 || len(all) > 2048 || all[len(all)-1].Number != 3001 {
			t.Fatal(len(all), err)
		}
		for i, e := range all {
			if e.Number != all[0].Number+int64(i) || e.Pool != "A" || e.Instance != "0" || e.Lease == "" {
				t.Fatalf("%+v after %+v", e, all[max(0, i-1)])
			}
		}
		if some, _ := v.Events(t.Context(), 2999); len(some) != 2 || some[0].Number != 3000 ||
			some[1].Event != "released" {
			t.Errorf("%+v", some)
		}
		// A number from an earlier service.
		if some, err := v.Events(t.Context(), 3002); err != nil || len(some) != len(all) {
			t.Error(len(some), err)
		}
		// Only new events, of which there are none yet.
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("enough"))
		defer cancel()
		for _, after := range []int64{-1, 3001} {
			if some, err := v.Events(ctx, after); err == nil || err.Error() != "enough" {
				t.Error(after, some, err)
			}
		}
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				if some, err := v.Events(t.Context(), -1); err != nil || len(some) != 1 || some[0].Event != "leased" {
					t.Errorf("%+v %v", some, err)
				}
			})
		}
		synctest.Wait()
		l := take(t, v, "")
		readers.Wait()
		v.Release(l.id)
	})
}

// Between the queue's choice of a slot and the new holder's turn to run, the
// slot has no visible holder. Updating the queue then must not assign the slot
// again, or the first waiter would lose its turn.
func TestWhoIsServedKeepsItsPlaceWhateverSettlesThePool(t *testing.T) {
	for name, settle := range map[string]func(*testing.T, *pool.Service){
		"drain --off": func(t *testing.T, v *pool.Service) { v.Drain("", false) },
		"reload":      func(t *testing.T, v *pool.Service) { v.Apply(load(t, append(one, "_A_QUEUE_LIMIT=3")...)) },
		"scale":       func(t *testing.T, v *pool.Service) { v.Scale("A", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := start(t, append(one, "_A_QUEUE_LIMIT=3")...)
				for round := range 50 {
					l := take(t, v, "")
					first := queueLease(t, v, pool.Request{Holder: "first"})
					second := queueLease(t, v, pool.Request{Holder: "second"})
					third := queueLease(t, v, pool.Request{Holder: "third"})
					v.Release(l.id)
					settle(t, v)
					for _, c := range []<-chan answer{first, second, third} {
						a := answered(c)
						if a == nil || a.err != nil {
							t.Fatalf("round %d: %+v; the lease is that of the %s", round, a,
								status(t, v).Instances[0].Holder)
						}
						v.Release(a.id)
					}
				}
			})
		})
	}
}

// After drain has returned, the number of leases can only fall: its caller may
// be waiting for that to stop the browsers.
func TestNoLeaseBeginsOnceItIsDrained(t *testing.T) {
	for name, end := range map[string]func(v *pool.Service){
		"drain":  func(v *pool.Service) { v.Drain("A", true) },
		"refuse": (*pool.Service).StopLeasing,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := start(t, one...)
				l := take(t, v, "")
				queueLease(t, v, pool.Request{})
				v.Release(l.id)
				end(v)
				before := v.Leases()
				if synctest.Wait(); v.Leases() > before {
					t.Errorf("there were %d leases when it was drained, now %d", before, v.Leases())
				}
			})
		})
	}
}

// A very large number of hours does not overflow.
func TestVeryLongIntervals(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{config.Prefix + "HEALTH_INTERVAL=876000h",
		config.Prefix + "HEALTH_TIMEOUT=876000h", config.Prefix + "START=lazy"})
	if err != nil {
		t.Fatal(err)
	}
	v := pool.New(cfg, slog.New(slog.DiscardHandler))
	ready, err := v.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Stop()
	<-ready
	if s := v.Unhealthy(); s != "" {
		t.Error(s)
	}
}

// upTo yields for a while, so that two events that are due at the same moment
// happen in either order.
func upTo(n int) {
	for range rand.IntN(n) {
		runtime.Gosched()
	}
}

func TestReleaseAtTheMomentOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, append(one, "_A_LEASE_TTL=1s")...)
		by := map[string]int{}
		for round := range 300 {
			var released bool
			release := func(id string) {
				time.Sleep(time.Second)
				upTo(4)
				released = v.Release(id)
			}
			l := lease(t.Context(), v, pool.Request{})
			go release(l.id)
			first, second := queueLease(t, v, pool.Request{Held: true}), queueLease(t, v, pool.Request{Held: true})
			time.Sleep(time.Second)
			a, want := answered(first), "expired"
			if released {
				want = "released"
			}
			by[want]++
			if got := ends(t, v, l.id); !slices.Equal(got, []string{want}) {
				t.Fatalf("round %d: release said %v, the events %v", round, released, got)
			}
			if a == nil || a.err != nil || answered(second) != nil || v.Leases() != 1 {
				t.Fatalf("round %d: the next is %+v, of %d leases", round, a, v.Leases())
			}
			v.Release(a.id)
			v.Release((<-second).id)
		}
		t.Log(by)
	})
}

// In a synctest bubble the expiry always wins at that moment, so this test
// takes a little real time.
func TestRenewAtTheMomentOfExpiry(t *testing.T) {
	t.Parallel()
	v := start(t, one...)
	renewed := 0
	for round := range 500 {
		l := lease(t.Context(), v, pool.Request{TTL: 200 * time.Microsecond})
		over := v.Done(l.id)
		for late := l.expires.Add(time.Duration(rand.IntN(1400)-20) * time.Microsecond); time.Now().Before(late); {
		}
		_, err := v.Renew(l.id, time.Hour)
		if err == nil {
			renewed++
			time.Sleep(50 * time.Microsecond) // a pending expiry would come now
			if !v.Release(l.id) {
				t.Fatalf("round %d: it was renewed, and expired", round)
			}
		} else if code(err) != control.LeaseNotFound {
			t.Fatal(err)
		}
		<-over
		want := map[bool]string{true: "released", false: "expired"}[err == nil]
		if got := ends(t, v, l.id); v.Leases() != 0 || !slices.Equal(got, []string{want}) {
			t.Fatalf("round %d: %v, then %v", round, err, got)
		}
	}
	t.Log(renewed, "were renewed in time")
}

// A request that is cancelled while it is served either has a lease to release,
// or the instance is free.
func TestCancelledAtTheMomentItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		served := 0
		for round := range 300 {
			l := take(t, v, "")
			ctx, cancel := context.WithCancel(t.Context())
			c := leaseAsync(ctx, v, pool.Request{Instance: []string{"", "0"}[round%2]})
			synctest.Wait()
			next := queueLease(t, v, pool.Request{})
			go func() { upTo(4); cancel() }()
			go func() { upTo(4); v.Release(l.id) }()
			a := answered(c)
			switch {
			case a == nil:
				t.Fatal(round, "it still waits")
			case a.err == nil:
				served++
				if answered(next) != nil || !v.Release(a.id) {
					t.Fatal(round, "leased twice")
				}
			case a.err != context.Canceled || a.id != "":
				t.Fatal(round, a)
			}
			n := answered(next)
			if n == nil || n.err != nil || !v.Release(n.id) || v.Leases() != 0 {
				t.Fatalf("round %d: %+v, the next %+v", round, a, n)
			}
		}
		t.Log(served, "were served")
	})
}

// replay follows the service's events and reports an instance that is leased
// twice at the same time, or a lease that ends twice. A new instance with the
// same number begins with the event healthy; after scaling down, a lease of the
// old instance may coexist with one of the new.
type replay struct {
	last   int64
	holder map[string]string // by pool and instance
	live   map[string]bool   // leases, including those of removed instances
	leases int
	lost   int // events that a slow reader missed, after which nothing is known
}

func (r *replay) read(ctx context.Context, v *pool.Service) (wrong []string) {
	r.holder, r.live = map[string]string{}, map[string]bool{}
	for {
		list, err := v.Events(ctx, r.last)
		if err != nil {
			return wrong
		}
		for _, e := range list {
			if e.Number != r.last+1 {
				r.lost += int(e.Number - r.last - 1)
				clear(r.holder)
				r.live = nil
			}
			r.last = e.Number
			at := e.Pool + "/" + e.Instance
			switch e.Event {
			case pool.Healthy:
				delete(r.holder, at)
			case "leased":
				if h := r.holder[at]; h != "" {
					wrong = append(wrong, fmt.Sprintf("%s is leased to %s while %s has it", at, e.Lease, h))
				}
				r.leases++
				r.holder[at] = e.Lease
				if r.live != nil {
					r.live[e.Lease] = true
				}
			case "released", "expired":
				if r.live != nil && !r.live[e.Lease] {
					wrong = append(wrong, fmt.Sprintf("%s has %s, which had ended", e.Lease, e.Event))
				}
				delete(r.live, e.Lease)
				if r.holder[at] == e.Lease {
					delete(r.holder, at)
				}
			}
		}
	}
}

func TestUnderLoad(t *testing.T) {
	t.Parallel()
	shape := []string{"_A_INSTANCES=8", "_A_IS_DEFAULT=1", "_A__2_ALIAS=main"}
	drain := func(v *pool.Service) {
		v.Drain("A", true)
		runtime.Gosched()
		v.Drain("A", false)
	}
	scale := func(v *pool.Service) { v.Scale("A", 4+rand.IntN(9)) }
	reload := func(v *pool.Service) { // half the time, instance 5 changes
		v.Apply(load(t, append(shape, fmt.Sprintf("_A__5_ALIAS=%c", 'a'+rand.IntN(2)))...))
	}
	t.Run("undisturbed", func(t *testing.T) { underLoad(t, shape) })
	t.Run("drained", func(t *testing.T) { underLoad(t, shape, drain) })
	t.Run("reshaped", func(t *testing.T) { underLoad(t, shape, drain, scale, reload) })
}

// underLoad leases and releases in parallel while other functions interfere.
func underLoad(t *testing.T, shape []string, worst ...func(*pool.Service)) {
	v := start(t, shape...)
	watching, enough := context.WithCancel(t.Context())
	r, wrong := &replay{}, make(chan []string, 1)
	go func() { wrong <- r.read(watching, v) }()

	// Instances 0 to 3 are never removed: for them, each holder also checks
	// that it is the only one.
	var holders [4]atomic.Int32
	var clients, others sync.WaitGroup
	var leased atomic.Int32
	began := time.Now()
	// A busy machine needs more time.
	goesOn := func() bool {
		took := time.Since(began)
		return took < 500*time.Millisecond || leased.Load() < 200 && took < 30*time.Second
	}
	for c := range 64 {
		clients.Go(func() {
			for goesOn() {
				request := pool.Request{Instance: []string{"", "", "", "main", "2",
					strconv.Itoa(rand.IntN(12))}[rand.IntN(6)],
					Timeout: new(20 * time.Millisecond)}
				short := c%8 == 0
				if short {
					request.TTL = time.Duration(1+rand.IntN(200)) * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(40))*time.Millisecond)
				a := lease(ctx, v, request)
				cancel()
				if a.err == nil {
					leased.Add(1)
				}
				switch {
				case a.err == nil && short:
					if rand.IntN(16) == 0 {
						<-v.Done(a.id)
					}
					v.Release(a.id)
				case a.err == nil:
					n, _ := strconv.Atoi(a.instance)
					if n < 4 && holders[n].Add(1) != 1 {
						t.Errorf("%d has two holders", n)
					}
					runtime.Gosched()
					if n < 4 {
						holders[n].Add(-1)
					}
					if !v.Release(a.id) {
						t.Errorf("%s had ended before", a.id)
					}
				case code(a.err) != control.LeaseTimeout && code(a.err) != control.InstanceNotFound &&
					a.err != context.DeadlineExceeded:
					t.Error(a.err)
				}
			}
		})
	}
	for _, f := range worst {
		others.Go(func() {
			for goesOn() {
				f(v)
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			}
		})
	}
	others.Wait()
	clients.Wait()

	// No lease is left, and each instance can be leased exactly once.
	st := status(t, v)
	if v.Leases() != 0 || st.Leased != 0 || st.Waiting != 0 || st.Available != st.Total {
		t.Errorf("%d leases, %+v", v.Leases(), st)
	}
	had := map[string]bool{}
	for range st.Total {
		had[take(t, v, "").instance] = true
	}
	if a := lease(t.Context(), v, pool.Request{Timeout: new(time.Duration(0))}); len(had) != st.Total ||
		code(a.err) != control.LeaseTimeout {
		t.Error(had, a)
	}
	v.ReleaseAll(&control.Peer{})
	enough()
	for _, w := range <-wrong {
		t.Error(w)
	}
	if t.Logf("%d leases, %d events of which %d were lost", r.leases, r.last, r.lost); r.leases < 100 {
		t.Error("that was no load")
	}
}

func TestAsManyInstancesAsThereMayBe(t *testing.T) {
	t.Parallel()
	v := start(t, "_A_INSTANCES="+strconv.Itoa(settings.MaxInstances), "_A_IS_DEFAULT=1")
	had := map[string]bool{}
	for range settings.MaxInstances {
		had[take(t, v, "").instance] = true
	}
	if st := status(t, v); len(had) != settings.MaxInstances || st.Leased != len(had) || st.Available != 0 {
		t.Error(len(had), st.Leased, st.Available)
	}
	if a := lease(t.Context(), v, pool.Request{Timeout: new(time.Duration(0))}); code(a.err) != control.LeaseTimeout {
		t.Error(a)
	}
	if ids := v.ReleaseAll(&control.Peer{}); len(ids) != settings.MaxInstances || status(t,
		v).Available != settings.MaxInstances {
		t.Error(len(ids))
	}
	if v.Scale("A", settings.MaxInstances-1); status(t, v).Available != settings.MaxInstances-1 {
		t.Error("not scaled")
	}
}

// stuck is a standard error that nobody reads.
type stuck struct {
	began chan<- struct{} // receives a value at the first write
	until <-chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.until
	return len(b), nil
}

// A request does not wait for a browser that is not installed, which is tried again
// nevertheless.
func TestNobodyWaitsForABrowserThatIsNotThere(t *testing.T) {
	t.Parallel()
	for _, vars := range [][]string{{"_START=eager"}, {"_ISOLATION=context"}} {
		var env []string
		for _, kv := range append(vars, "_INSTANCES=2", "_IS_DEFAULT=1") {
			env = append(env, config.Prefix+"_A"+kv)
		}
		cfg, err := config.Load("", env)
		if err != nil {
			t.Fatal(err)
		}
		v := pool.New(cfg, slog.New(slog.DiscardHandler))
		var launches atomic.Int32
		v.Launch = func(context.Context, string, settings.Settings, options.Options,
			func() []slog.Attr) (*sibling.Browser, error) {
			launches.Add(1)
			return nil, exit.Errorf(exit.Unavailable, "no edge is installed")
		}
		if _, err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := lease(t.Context(), v, pool.Request{Timeout: new(patience)})
		if code(a.err) != control.NoneHealthy ||
			!strings.Contains(a.err.Error(), "no edge is installed, next try in") ||
			launches.Load() > 2 {
			t.Errorf("%v: after %d launches a request is told %v", vars, launches.Load(), a.err)
		}
		v.Stop()
	}
}

// A log that blocks holds up one browser at most.
func TestAMessageThatNobodyReadsHoldsUpNoOtherPool(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{config.Prefix + "_A_INSTANCES=1", config.Prefix + "_A_IS_DEFAULT=1",
		config.Prefix + "_B_INSTANCES=1", config.Prefix + "_B_LAUNCH=false"})
	if err != nil {
		t.Fatal(err)
	}
	began, read := make(chan struct{}, 1), make(chan struct{})
	v := pool.New(cfg, slog.New(slog.NewTextHandler(stuck{began, read}, nil)))
	v.Launch = func(context.Context, string, settings.Settings, options.Options,
		func() []slog.Attr) (*sibling.Browser, error) {
		return nil, errors.New("there is no browser") // which is logged
	}
	if _, err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer v.Stop()
	defer close(read)
	<-began
	for range 4 {
		go v.Status("A")
	}
	done := make(chan answer, 1)
	go func() {
		for range 10000 {
			a := lease(t.Context(), v, pool.Request{Pool: "B", Timeout: new(time.Duration(0))})
			if a.err != nil || !v.Release(a.id) {
				done <- a
				return
			}
		}
		done <- answer{}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			t.Error(a.err)
		}
	case <-time.After(patience):
		t.Error("another pool gives no lease")
	}
}
