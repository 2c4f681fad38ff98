package tasks

import (
	"testing"
	"testing/synctest"
	"time"
)

// Old results are forgotten when their time is over, though nobody asks.
func TestSharedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewShared[int](limits)
		defer all.Close()
		kept := func() (n int) {
			all.mu.Lock() // Do would forget
			defer all.mu.Unlock()
			return len(all.table.tasks)
		}
		for _, ttl := range []time.Duration{time.Minute, time.Second} {
			all.Do(func(all *table) {
				task := &item{ID: ttl.String(), Owner: "me", TTL: ttl}
				if _, err := all.Add(task, time.Now()); err != nil {
					t.Error(err)
				}
				all.End(task, Completed, "", 1, time.Now())
			})
		}
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{0, 2}, {time.Second, 1}, {time.Minute, 0}} {
			time.Sleep(c.after)
			synctest.Wait()
			if n := kept(); n != c.want {
				t.Errorf("after %v more, %d are kept, not %d", c.after, n, c.want)
			}
		}
	})
}
