package pool_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/record"
)

// load returns a configuration of slots without browsers. They are always
// healthy, so that tests see only leasing.
func load(t testing.TB, environ ...string) *config.Config {
	t.Helper()
	vars := []string{config.Prefix + "LAUNCH=false"}
	for _, kv := range environ {
		vars = append(vars, config.Prefix+kv)
	}
	cfg, err := config.Load("", vars)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t testing.TB, environ ...string) *pool.Service {
	t.Helper()
	v := pool.New(load(t, environ...), slog.New(slog.DiscardHandler))
	ready, err := v.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Stop)
	<-ready
	return v
}

// one is a pool of one instance.
var one = []string{"_A_INSTANCES=1", "_A_IS_DEFAULT=1"}

// answer is the result of a request, and its time.
type answer struct {
	id, instance string
	expires      time.Time
	err          error
	at           time.Time
}

func lease(ctx context.Context, v *pool.Service, r pool.Request) answer {
	g, w, err := v.Lease(ctx, r)
	if w != nil {
		g, err = w.Wait()
	}
	a := answer{err: err, at: time.Now()}
	if err == nil {
		a.id = g.ID
		a.of(g.Record)
	}
	return a
}

func (a *answer) of(rec *record.Record) {
	var l record.Lease
	if _, err := rec.Get("lease", &l); err != nil {
		a.err = err
	}
	a.instance, a.expires = l.Instance, l.ExpiresAt.Time
}

// take leases an instance that is free now.
func take(t testing.TB, v *pool.Service, instance string) answer {
	t.Helper()
	a := lease(t.Context(), v, pool.Request{Instance: instance, Timeout: new(time.Duration(0)), Held: true})
	if a.err != nil {
		t.Fatal(a.err)
	}
	return a
}

// leaseAsync requests a lease in the background.
func leaseAsync(ctx context.Context, v *pool.Service, r pool.Request) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- lease(ctx, v, r) }()
	return c
}

// queueLease requests a lease in the background and returns when the request is
// waiting or answered.
func queueLease(t *testing.T, v *pool.Service, r pool.Request) <-chan answer {
	c := leaseAsync(t.Context(), v, r)
	synctest.Wait()
	return c
}

// answered returns the answer if it has come by now, or nil.
func answered(c <-chan answer) *answer {
	synctest.Wait()
	select {
	case a := <-c:
		return &a
	default:
		return nil
	}
}

// code returns the code of a control error, and "" for other errors.
func code(err error) string {
	if e := (*control.Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func status(t testing.TB, v *pool.Service) api.PoolStatus {
	t.Helper()
	st, err := v.Status("A")
	if err != nil {
		t.Fatal(err)
	}
	return st.Pools[0]
}

// ends returns the events that ended a lease.
func ends(t testing.TB, v *pool.Service, id string) (ends []string) {
	t.Helper()
	list, err := v.Events(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Lease == id && e.Event != "leased" {
			ends = append(ends, e.Event)
		}
	}
	return ends
}

func TestLeaseGoesToTheNextWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, append(one, "_A_LEASE_TTL=10s")...)
		began := time.Now()
		l := lease(t.Context(), v, pool.Request{})
		time.Sleep(3 * time.Second)
		a := <-queueLease(t, v, pool.Request{})
		if a.err != nil || a.at.Sub(began) != 10*time.Second || !l.expires.Equal(began.Add(10*time.Second)) {
			t.Errorf("%v after %v, announced for %v", a.err, a.at.Sub(began), l.expires.Sub(began))
		}
		if v.Release(l.id) || !slices.Equal(ends(t, v, l.id), []string{"expired"}) {
			t.Error("it ended as", ends(t, v, l.id))
		}
	})
}

func TestRenewMovesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, append(one, "_A_LEASE_TTL=10s")...)
		l := lease(t.Context(), v, pool.Request{})
		over := v.Done(l.id)
		renew := func(ttl, end time.Duration) {
			t.Helper()
			rec, err := v.Renew(l.id, ttl)
			if err != nil {
				t.Fatal(err)
			}
			if l.of(rec); !l.expires.Equal(time.Now().Add(end)) {
				t.Error("its record says", time.Until(l.expires))
			}
		}
		time.Sleep(6 * time.Second)
		renew(0, 10*time.Second)
		time.Sleep(9 * time.Second) // its old end is long past
		renew(20*time.Second, 20*time.Second)
		time.Sleep(15 * time.Second)
		renew(0, 20*time.Second) // the time to live stays the one that was requested last
		began := time.Now()
		if <-over; time.Since(began) != 20*time.Second {
			t.Error("it ended after", time.Since(began))
		}
		if _, err := v.Renew(l.id, time.Hour); code(err) != control.LeaseNotFound {
			t.Error(err)
		}
	})
}

// The machine sleeps for a while, and all timers with it.
func TestALeaseEndsAsItSaysAfterASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=3", "_A_IS_DEFAULT=1", "_A_LEASE_TTL=1h")
		began := time.Now()
		short, long := lease(t.Context(), v, pool.Request{}), lease(t.Context(), v, pool.Request{TTL: 3 * time.Hour})
		held := lease(t.Context(), v, pool.Request{Held: true})
		time.Sleep(10 * time.Minute)
		v.Sleep(2 * time.Hour)
		<-v.Done(short.id)
		if late := time.Since(began); late < 10*time.Minute || late > 11*time.Minute {
			t.Error("the short one ended", late, "later, the sleep not counted")
		}
		<-v.Done(long.id)
		if late := time.Since(began); late != time.Hour {
			t.Error("the long one ended", late, "later, the sleep not counted")
		}
		if got := ends(t, v, short.id); !slices.Equal(got, []string{"expired"}) || v.Leases() != 1 ||
			len(ends(t, v, held.id)) > 0 {
			t.Error(got, v.Leases())
		}
	})
}

func TestTimeToLive(t *testing.T) {
	for name, c := range map[string]struct {
		r    pool.Request
		want time.Duration // 0: it does not end
	}{
		"the pool's":              {pool.Request{}, time.Hour},
		"the request's":           {pool.Request{TTL: time.Minute}, time.Minute},
		"longer than the pool's":  {pool.Request{TTL: 5 * time.Hour}, 5 * time.Hour},
		"held":                    {pool.Request{Held: true}, 0},
		"held, but with a limit":  {pool.Request{Held: true, TTL: time.Minute}, time.Minute},
		"one instance, by its ID": {pool.Request{Instance: "0", TTL: time.Second}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := start(t, one...)
				l := lease(t.Context(), v, c.r)
				began, got := time.Now(), time.Duration(0)
				select {
				case <-v.Done(l.id):
					got = time.Since(began)
				case <-time.After(365 * 24 * time.Hour):
				}
				if got != c.want {
					t.Errorf("it ended after %v, not %v", got, c.want)
				}
			})
		})
	}
}

// In leasedkeyq, every notification restarted the wait, so that on a busy pool
// it never ended.
func TestWaitEndsAtItsDeadlineWhateverHappensMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_LEASE_TIMEOUT=30s")
		take(t, v, "1")
		began := time.Now()
		short, patient := queueLease(t, v, pool.Request{Instance: "1", Timeout: new(5 * time.Second)}),
			queueLease(t, v, pool.Request{Instance: "1"})
		go func() {
			for range 100 {
				l := take(t, v, "0")
				next := leaseAsync(t.Context(), v, pool.Request{Instance: "0"})
				time.Sleep(700 * time.Millisecond)
				v.Release(l.id)
				v.Release((<-next).id)
				v.Drain("", false)
				v.Apply(load(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_LEASE_TIMEOUT=30s"))
			}
		}()
		for c, want := range map[<-chan answer]time.Duration{short: 5 * time.Second, patient: 30 * time.Second} {
			if a := <-c; code(a.err) != control.LeaseTimeout || a.at.Sub(began) != want {
				t.Errorf("%v after %v, want %v", a.err, a.at.Sub(began), want)
			}
		}
		if time.Sleep(time.Hour); status(t, v).Waiting != 0 {
			t.Error("it is still in line")
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_QUEUE_LIMIT=2", "_A__1_ALIAS=main")
		take(t, v, "")
		take(t, v, "")
		at0 := new(time.Duration(0))
		refused := func(want string, r pool.Request) {
			t.Helper()
			if a := <-queueLease(t, v, r); code(a.err) != want || a.id != "" {
				t.Errorf("%+v: %v, want %s", r, a.err, want)
			}
		}
		began := time.Now()
		refused(control.LeaseTimeout, pool.Request{Timeout: at0})
		refused(control.LeaseTimeout, pool.Request{Pool: "A", Instance: "main", Timeout: at0})
		// Requests for one instance fill the queue as others do.
		queueLease(t, v, pool.Request{Instance: "main"})
		queueLease(t, v, pool.Request{})
		refused(control.QueueFull, pool.Request{})
		refused(control.QueueFull, pool.Request{Instance: "0"})
		refused(control.LeaseTimeout, pool.Request{Timeout: at0})
		refused(control.PoolNotFound, pool.Request{Pool: "B"})
		refused(control.PoolNotFound, pool.Request{Pool: "a"})
		for _, id := range []string{"2", "-1", "00", "Main"} {
			refused(control.InstanceNotFound, pool.Request{Instance: id})
		}
		if st := status(t, v); time.Since(began) != 0 || st.Waiting != 2 {
			t.Error(time.Since(began), st.Waiting)
		}
		_, renew := v.Renew("lease_0_x", 0)
		_, drain := v.Drain("B", true)
		_, show := v.Status("B")
		_, restart := v.Restart("A", "7")
		for want, err := range map[string]error{"lease_not_found": renew, "bad_request": v.Scale("A", 0),
			"instance_not_found": restart} {
			if code(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		for _, err := range []error{drain, show, v.Scale("B", 2)} {
			if code(err) != control.PoolNotFound {
				t.Error(err)
			}
		}
	})
}

// Each row is a release of an instance and the request that gets it: the first
// one for this instance or for any.
func TestNobodyOvertakesAndNobodyIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=3", "_A_IS_DEFAULT=1", "_A__1_ALIAS=main")
		held := map[string]string{} // by instance
		for range 3 {
			a := take(t, v, "")
			held[a.instance] = a.id
		}
		var line []<-chan answer
		for _, instance := range []string{"1", "", "main", "0", "", "1", "", "0"} {
			line = append(line, queueLease(t, v, pool.Request{Instance: instance}))
			time.Sleep(time.Millisecond)
		}
		for step, c := range []struct {
			freed string
			next  int // index in line; -1: none
		}{{"2", 1}, {"0", 3}, {"2", 4}, {"1", 0}, {"1", 2}, {"1", 5}, {"0", 6}, {"2", -1}, {"1", -1}, {"0", 7}} {
			if !v.Release(held[c.freed]) {
				t.Fatal(step, "nothing released")
			}
			for k, w := range line {
				a := answered(w)
				if (a != nil) != (k == c.next) {
					t.Fatalf("step %d: instance %s came free: %d was answered: %v", step, c.freed, k, a)
				}
				if a != nil {
					if a.err != nil || a.instance != c.freed {
						t.Fatal(step, a)
					}
					held[a.instance] = a.id
				}
			}
		}
	})
}

func TestAnIDAndItsAliasAreOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A__1_ALIAS=main")
		for _, names := range [][2]string{{"main", "1"}, {"1", "main"}} {
			l := take(t, v, names[0])
			other := queueLease(t, v, pool.Request{Instance: names[1]})
			if a := answered(other); l.instance != "1" || a != nil {
				t.Fatalf("%v: leased twice: %+v, %+v", names, l, a)
			}
			v.Release(l.id)
			if a := answered(other); a == nil || a.instance != "1" || !v.Release(a.id) {
				t.Fatal(names, a)
			}
		}
	})
}

func TestReleaseOfWhatIsNoLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	l, other := take(t, v, ""), take(t, v, "")
	if !v.Release(l.id) {
		t.Error("not released")
	}
	again := take(t, v, "") // the same instance, with another lease
	for _, id := range []string{l.id, "", "lease_0_x", strings.ToUpper(other.id)} {
		if v.Release(id) {
			t.Error("released", id)
		}
	}
	if st := status(t, v); st.Leased != 2 || v.Leases() != 2 || again.instance != l.instance {
		t.Errorf("%+v", st)
	}
	if ids := v.ReleaseAll(&control.Peer{}); len(ids) != 2 || len(v.ReleaseAll(&control.Peer{})) != 0 {
		t.Error(ids)
	}
}

func TestACancelledWaiterLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		l := take(t, v, "")
		gone := errors.New("its client has gone")
		for _, instance := range []string{"", "0"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			c := leaseAsync(ctx, v, pool.Request{Instance: instance})
			synctest.Wait()
			next := queueLease(t, v, pool.Request{})
			cancel(gone)
			if a := <-c; a.err != gone || status(t, v).Waiting != 1 {
				t.Error(a, status(t, v).Waiting)
			}
			v.Release(l.id)
			a := answered(next)
			if a == nil || a.err != nil {
				t.Fatal("who came after it got nothing", a)
			}
			l = *a
		}
	})
}
