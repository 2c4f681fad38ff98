package gateway

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// When a load falls, the last hosts are idle if requests get the first ones that have room, and only then.
func TestPlace(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1, 5, 4, 0)
			c.first = first
			c.newGateway()
			c.newGateway()
			time.Sleep(time.Second)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients atomic.Int32
			clients.Store(20)
			for n := range int32(20) {
				c.all.Go(func() {
					for n < clients.Load() && ctx.Err() == nil {
						c.lease(time.Minute, time.Second+c.upTo(2*time.Second))
					}
				})
			}
			leases := func() (all [5]int) {
				for i, m := range c.machines {
					all[i] = m.process().pools.Leases()
				}
				return all
			}
			time.Sleep(10 * time.Second)
			if all := leases(); all[3]+all[4] < 6 {
				t.Errorf("%v leases for 20 clients", all)
			}
			clients.Store(8)
			time.Sleep(5 * time.Second)
			var late int
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				all := leases()
				late += all[3] + all[4]
			}
			if first != (late == 0) {
				t.Errorf("first %v: the last two of five hosts have %d leases on average", first, late/100)
			}
		})
	}
}
