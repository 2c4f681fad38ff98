package source

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdleBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stops atomic.Int32
		var left atomic.Int64
		left.Store(int64(20 * time.Second)) // the browser has been used by others
		i := &idling{after: time.Minute}
		i.stop = func(bool) time.Duration {
			time.Sleep(5 * time.Second)
			if again := left.Swap(0); again > 0 {
				return time.Duration(again)
			}
			stops.Add(1)
			return i.after
		}
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		i.begin()
		sleep(50 * time.Second)
		one, two := i.tryEnter(), i.tryEnter()
		i.leave()
		sleep(10 * time.Minute)
		if one != nil || two != nil || stops.Load() > 0 || left.Load() == 0 {
			t.Fatalf("the browser was stopped under a call: %d", stops.Load())
		}
		i.leave()
		sleep(59 * time.Second)
		if left.Load() == 0 {
			t.Fatal("it was looked at before a minute was over")
		}
		sleep(20 * time.Second) // 1 + 5 + 14
		if left.Load() > 0 || stops.Load() > 0 {
			t.Fatalf("others have used it, and it was stopped %d times", stops.Load())
		}
		sleep(8 * time.Second)
		if i.tryEnter() == nil {
			t.Fatal("a call enters while the browser is being stopped")
		}
		if err := i.enter(t.Context()); err != nil || stops.Load() != 1 {
			t.Fatalf("%v, stopped %d times", err, stops.Load())
		}
		at := i.held(&Lease{Release: func() {}})
		at.Release()
		at.Release()
		if i.calls != 0 {
			t.Errorf("%d calls are left", i.calls)
		}
		sleep(66 * time.Second)
		if stops.Load() != 2 {
			t.Errorf("it was stopped %d times", stops.Load())
		}
		i.close()
		sleep(time.Hour)
		if stops.Load() != 2 {
			t.Error("it was stopped after the end")
		}
	})
}
