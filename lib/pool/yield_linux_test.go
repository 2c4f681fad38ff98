package pool_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/pool"
)

// rests leases all instances of a pool, one after the other, and lets the leases rest.
func rests(t *testing.T, v *pool.Service, n int) (all []answer) {
	t.Helper()
	for range n {
		a := lease(t.Context(), v, pool.Request{})
		if a.err == nil {
			a.err = v.Rest(a.id)
		}
		if a.err != nil {
			t.Fatal(a.err)
		}
		all = append(all, a)
		time.Sleep(time.Second)
	}
	return all
}

// over returns which of the leases have ended, by their instances.
func over(t *testing.T, v *pool.Service, all []answer) (gone []string) {
	t.Helper()
	synctest.Wait()
	for _, a := range all {
		if e := ends(t, v, a.id); slices.Equal(e, []string{"yielded"}) {
			gone = append(gone, a.instance)
		} else if e != nil {
			t.Errorf("the lease of instance %s: %v", a.instance, e)
		}
	}
	return gone
}

// Each request that waits ends one lease that rests: that which rests longest, once its
// time is over.
func TestOneLeaseYieldsForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=4", "_A_IS_DEFAULT=1", "_A_AFFINITY_IDLE=1m", "_A_LEASE_TIMEOUT=10m")
		all := rests(t, v, 4)
		if _, err := v.Renew(all[0].id, 0); err != nil { // it is in use
			t.Fatal(err)
		}
		early := queueLease(t, v, pool.Request{})
		time.Sleep(56 * time.Second) // instance 1 has rested for 59 s
		if gone := over(t, v, all); gone != nil {
			t.Errorf("the leases of %v have yielded before their time", gone)
		}
		time.Sleep(time.Minute)
		if gone := over(t, v, all); !slices.Equal(gone, []string{"1"}) {
			t.Errorf("for one request the leases of %v have yielded, want that of 1", gone)
		}
		if a := answered(early); a == nil || a.instance != "1" {
			t.Errorf("the request has got %+v, want instance 1", a)
		}
		late := []<-chan answer{queueLease(t, v, pool.Request{Instance: "3"}), queueLease(t, v, pool.Request{})}
		if gone := over(t, v, all); !slices.Equal(gone, []string{"1", "2", "3"}) {
			t.Errorf("for two more the leases of %v have yielded, want those of 2 and 3, too", gone)
		}
		for i, want := range []string{"3", "2"} {
			if a := answered(late[i]); a == nil || a.instance != want {
				t.Errorf("request %d has got %+v, want instance %s", i, a, want)
			}
		}
	})
}

// Who waits for an instance that others keep gets one within the defaults, also if they use
// them again meanwhile; who gets none is told why, and what helps.
func TestWhoWaitsForKeptInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
		all := rests(t, v, 2)
		waits := queueLease(t, v, pool.Request{})
		time.Sleep(5 * time.Second)
		for _, a := range all {
			if _, err := v.Renew(a.id, 0); err != nil {
				t.Fatal(err)
			}
			if err := v.Rest(a.id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(16 * time.Second)
		if a := answered(waits); a == nil || a.err != nil {
			t.Errorf("the request has got %+v", a)
		}

		v = start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_AFFINITY_IDLE=1m", "_A_LEASE_TIMEOUT=10s")
		rests(t, v, 2)
		a := lease(t.Context(), v, pool.Request{})
		e := control.ErrorOf(a.err)
		if e.Code != control.LeaseTimeout || !strings.Contains(e.Message, "(kept by AFFINITY=session, idle for 11s)") ||
			!strings.Contains(e.Hint, "AFFINITY=call, a shorter AFFINITY_IDLE or more INSTANCES help") {
			t.Errorf("the request is told %+v", e)
		}
	})
}

// A drained pool gives nobody what a lease that yields had.
func TestNoLeaseYieldsInADrainedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := start(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_AFFINITY_IDLE=1m", "_A_LEASE_TIMEOUT=10m")
		all := rests(t, v, 2)
		v.Drain("A", true)
		waits := queueLease(t, v, pool.Request{})
		time.Sleep(5 * time.Minute)
		if gone := over(t, v, all); gone != nil {
			t.Errorf("the leases of %v have yielded", gone)
		}
		v.Drain("A", false)
		if gone := over(t, v, all); !slices.Equal(gone, []string{"0"}) {
			t.Errorf("the leases of %v have yielded, want that of 0", gone)
		}
		if a := answered(waits); a == nil || a.instance != "0" {
			t.Errorf("the request has got %+v, want instance 0", a)
		}
	})
}

// A request that waits for a fresh browser in place of that of a lease that has yielded
// ends no other lease.
func TestOneLeaseYieldsForAFreshBrowser(t *testing.T) {
	t.Parallel()
	v, _ := startFarm(t, false, "_A_INSTANCES=4", "_A_IS_DEFAULT=1", "_A_ISOLATED=true", "_A_AFFINITY_IDLE=1ms",
		"_A_LEASE_TIMEOUT=1m")
	var all []answer
	for range 4 {
		all = append(all, take(t, v, ""))
	}
	for _, a := range all {
		if err := v.Rest(a.id); err != nil {
			t.Fatal(err)
		}
	}
	if a := lease(t.Context(), v, pool.Request{}); a.err != nil || a.instance != all[0].instance {
		t.Errorf("the request has got %+v, want instance %s, whose lease rests longest", a, all[0].instance)
	}
	for i, a := range all {
		if e := ends(t, v, a.id); (len(e) > 0) != (i == 0) {
			t.Errorf("lease %d: %v", i, e)
		}
	}
}
