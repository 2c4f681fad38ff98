package pool_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/pool"
)

// byOffer leases what was offered.
func byOffer(t *testing.T, v *pool.Service, offer string) answer {
	return lease(t.Context(), v, pool.Request{Pool: "A", Offer: offer, Timeout: new(time.Duration(0)), TTL: time.Hour})
}

// room asserts how many instances are free and offered, and how many requests wait.
func room(t *testing.T, v *pool.Service, free, offered, waiting int) {
	t.Helper()
	synctest.Wait()
	if r := v.Offers.Rooms()[0]; r.Free != free || r.Offered != offered || r.Waiting != waiting {
		t.Errorf("%+v, want %d free, %d offered, %d waiting", r, free, offered, waiting)
	}
}

func TestAnOfferIsLeasedOrLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
		var over []bool
		offer := func() string {
			id, ok := v.Offers.Offer("A", func(leased bool) { over = append(over, leased) })
			if !ok {
				t.Fatal("no offer")
			}
			return id
		}
		lapses, leased := offer(), offer()
		if _, ok := v.Offers.Offer("A", nil); ok {
			t.Error("three offers of two instances")
		}
		if _, ok := v.Offers.Offer("B", nil); ok {
			t.Error("an offer of a pool that there is not")
		}
		room(t, v, 0, 2, 0)
		time.Sleep(1900 * time.Millisecond)
		if a := byOffer(t, v, leased); a.err != nil || a.instance != "1" {
			t.Error(a)
		}
		for _, id := range []string{leased, "", "x"} {
			if a := byOffer(t, v, id); a.err == nil && id != "" {
				t.Errorf("the offer %q is leased", id)
			}
		}
		room(t, v, 0, 1, 0)
		time.Sleep(100 * time.Millisecond)
		room(t, v, 1, 0, 0)
		if a := byOffer(t, v, lapses); code(a.err) != control.OfferLapsed {
			t.Error(a.err)
		}
		returned := offer()
		v.Offers.Return(returned)
		v.Offers.Return(returned)
		v.Offers.Return("x")
		room(t, v, 1, 0, 0)
		if a := byOffer(t, v, returned); code(a.err) != control.OfferLapsed {
			t.Error(a.err)
		}
		if !slices.Equal(over, []bool{true, false}) {
			t.Error(over)
		}
	})
}

// An offer does not keep what an administrator has taken away.
func TestAnOfferOfWhatIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := []string{"_A_INSTANCES=2", "_A_IS_DEFAULT=1"}
		for name, c := range map[string]struct {
			do   func(v *pool.Service)
			free int // after it has lapsed
		}{
			"drained": {func(v *pool.Service) { v.Drain("A", true) }, 0},
			"removed": {func(v *pool.Service) { v.Scale("A", 1) }, 1},
			"another": {func(v *pool.Service) { v.Apply(load(t, append(two, "_A_HEALTH_TIMEOUT=7s")...)) }, 2},
			"ended":   {func(v *pool.Service) { v.StopLeasing() }, 0},
		} {
			v := start(t, two...)
			v.Offers.Offer("A", nil)
			id, _ := v.Offers.Offer("A", nil)
			if c.do(v); byOffer(t, v, id).err == nil {
				t.Error(name, "it is leased")
			}
			time.Sleep(2 * time.Second)
			room(t, v, c.free, 0, 0)
		}
	})
}

// Requests of other machines are served by their age, with those of this one, until their time is over.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, one...)
		l := take(t, v, "")
		now, served := time.Now(), make(chan string, 10)
		want := func(name string, age, timeout time.Duration) (cancel func(), before int) {
			t.Helper()
			cancel, before, err := v.Offers.Want("A", now.Add(-age), now.Add(timeout), func(offer string) {
				if offer == "" {
					name = "no " + name
				} else {
					v.Offers.Return(offer)
				}
				served <- name
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return cancel, before
		}
		local := queueLease(t, v, pool.Request{})
		_, young := want("young", -time.Millisecond, time.Minute)
		_, old := want("old", time.Minute, time.Minute)
		cancel, middle := want("middle", time.Second, time.Minute)
		want("late", time.Hour, 10*time.Second)
		if young != 1 || old != 0 || middle != 1 {
			t.Error(young, old, middle)
		}
		room(t, v, 0, 0, 5)
		cancel()
		time.Sleep(10 * time.Second)
		if got := <-served; got != "no late" {
			t.Error(got)
		}
		room(t, v, 0, 0, 3)
		v.Release(l.id)
		if got := <-served; got != "old" {
			t.Error(got)
		}
		a := answered(local)
		if a == nil {
			t.Fatal("the request of this machine is not next")
		}
		cancel() // again
		v.Release(a.id)
		if got := <-served; got != "young" {
			t.Error(got)
		}
		room(t, v, 1, 0, 0)
		if _, before := want("at once", 0, time.Minute); <-served != "at once" || before != 0 {
			t.Error(before)
		}
		take(t, v, "")
		want("stopped", 0, time.Minute)
		v.StopLeasing()
		if got := <-served; got != "no stopped" {
			t.Error(got)
		}
		for _, name := range []string{"A", "B"} {
			if _, _, err := v.Offers.Want(name, now, now.Add(time.Minute), nil, nil); err == nil {
				t.Error("it waits for", name)
			}
		}
	})
}
