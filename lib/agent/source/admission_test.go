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

// Many use a few places: each gets one in the end, never more at a time than there
// are.
func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, rounds, most = 40, 3, 4
		var taken, vacated atomic.Int64
		has := map[*part]bool{}
		var mu sync.Mutex
		b := &admission{vacate: func(v *part) bool {
			time.Sleep(200 * time.Millisecond)
			if vacated.Add(1)%7 == 0 {
				return false // its client is busy
			}
			mu.Lock()
			defer mu.Unlock()
			delete(has, v)
			taken.Add(-1)
			return true
		}}
		b.table.Max, b.table.Rest = most, placeRest
		var all sync.WaitGroup
		for range users {
			all.Go(func() {
				v := &part{}
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
		if n, _ := b.waiting(); n != 0 {
			t.Errorf("%d wait after all", n)
		}
		b.close()
	})
}

// Who waits goes on at the end of its call, and of its virtual browser.
func TestAdmissionThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &admission{vacate: func(*part) bool { return true }}
		b.table.Max, b.table.Rest = 1, placeRest
		one, two := &part{}, &part{}
		if err := b.enter(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.enter(ctx, two); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of a call that waits: %v", err)
		}
		if n, _ := b.waiting(); n != 0 {
			t.Errorf("%d wait after that", n)
		}
		time.AfterFunc(time.Second, func() { b.remove(two) })
		if err := b.enter(t.Context(), two); !errors.Is(err, ErrBrowserDied) {
			t.Errorf("the end of a browser that waits: %v", err)
		}
		b.close()
	})
}
