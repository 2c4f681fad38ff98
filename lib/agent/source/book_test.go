package source

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeUse is used by calls. Steps do what the test says.
type fakeUse struct {
	work sync.WaitGroup
	do   func(due[usable]) (kept time.Time)
}

func (f *fakeUse) step(due due[usable]) (kept time.Time) { return f.do(due) }
func (f *fakeUse) group() *sync.WaitGroup                { return &f.work }

func (b *book) tryEnter(k usable) bool { return b.enter(noWait, k) == nil }

// Many use a few places: each gets one in the end, never more at a time than there
// are.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, rounds, most = 40, 3, 4
		var taken, vacated atomic.Int64
		has := map[usable]bool{}
		var mu sync.Mutex
		b := &book{}
		b.table.most, b.table.keep = most, placeRest
		vacate := func(due due[usable]) (kept time.Time) {
			time.Sleep(200 * time.Millisecond)
			if vacated.Add(1)%7 == 0 {
				return time.Now() // its client is busy
			}
			mu.Lock()
			defer mu.Unlock()
			delete(has, due.key)
			taken.Add(-1)
			return kept
		}
		var all sync.WaitGroup
		for range users {
			all.Go(func() {
				v := &fakeUse{do: vacate}
				b.mu.Lock()
				b.table.set(v, rules{place: true})
				b.mu.Unlock()
				for range rounds {
					if !b.tryEnter(v) {
						if err := b.enter(t.Context(), v); err != nil {
							t.Error(err)
							return
						}
					}
					mu.Lock()
					if !has[v] {
						has[v] = true
						if n := taken.Add(1); n > most {
							t.Errorf("%d have a place", n)
						}
					}
					mu.Unlock()
					time.Sleep(time.Second)
					b.leave(v)
				}
			})
		}
		all.Wait()
		if n := b.table.waiting(); n != 0 {
			t.Errorf("%d wait after all", n)
		}
		b.close()
	})
}

// Who waits goes on at the end of its call, and of its virtual browser.
func TestPlaceThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{}
		b.table.most, b.table.keep = 1, placeRest
		one, two := &fakeUse{}, &fakeUse{}
		b.table.set(one, rules{place: true})
		b.table.set(two, rules{place: true})
		if err := b.enter(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.enter(ctx, two); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of a call that waits: %v", err)
		}
		if n := b.table.waiting(); n != 0 {
			t.Errorf("%d wait after that", n)
		}
		time.AfterFunc(time.Second, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.removeLocked(two)
		})
		if err := b.enter(t.Context(), two); !errors.Is(err, ErrBrowserDied) {
			t.Errorf("the end of a browser that waits: %v", err)
		}
		b.close()
	})
}

// idle is a provider whose browser is stopped as a test says.
type idle struct {
	provider
	do func() time.Time
}

func (i idle) stopUnused(bool) time.Time { return i.do() }

// The one browser is stopped when no call has used it for its time, and nothing else has. Calls wait meanwhile.
func TestIdleBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stops atomic.Int32
		var left atomic.Int64
		const after = time.Minute
		left.Store(int64(20 * time.Second)) // the browser has been used by others
		b := &book{}
		one := &Source{provider: idle{do: func() time.Time {
			time.Sleep(5 * time.Second)
			if again := left.Swap(0); again > 0 {
				return time.Now().Add(time.Duration(again) - after)
			}
			stops.Add(1)
			return time.Now()
		}}}
		b.table.set(one, rules{end: after})
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		b.touch(one)
		sleep(50 * time.Second)
		entered := b.tryEnter(one) && b.tryEnter(one)
		b.leave(one)
		sleep(10 * time.Minute)
		if !entered || stops.Load() > 0 || left.Load() == 0 {
			t.Fatalf("the browser was stopped under a call: %d", stops.Load())
		}
		b.leave(one)
		sleep(59 * time.Second)
		if left.Load() == 0 {
			t.Fatal("it was looked at before a minute was over")
		}
		sleep(20 * time.Second) // 1 + 5 + 14
		if left.Load() > 0 || stops.Load() > 0 {
			t.Fatalf("others have used it, and it was stopped %d times", stops.Load())
		}
		sleep(8 * time.Second)
		if b.tryEnter(one) {
			t.Fatal("a call enters while the browser is being stopped")
		}
		if err := b.enter(t.Context(), one); err != nil || stops.Load() != 1 {
			t.Fatalf("%v, stopped %d times", err, stops.Load())
		}
		b.leave(one)
		sleep(66 * time.Second)
		if stops.Load() != 2 {
			t.Errorf("it was stopped %d times", stops.Load())
		}
		b.close()
		sleep(time.Hour)
		if stops.Load() != 2 {
			t.Error("it was stopped after the end")
		}
	})
}
