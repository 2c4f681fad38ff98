package source

import (
	"context"
	"sync"
	"time"

	"btools/lib/agent/source/places"
	"btools/lib/wait"
)

// Only so many virtual browsers have pages at a time (--max-sessions). A call on
// another one waits for the place of one that ends, or that no call has used for a
// while: that one is hibernated, and its next call waits for a place in its turn.

// placeRest is how long a virtual browser keeps a place that others wait for without a
// call.
const placeRest = 5 * time.Second

// admission is the places of the virtual browsers of one browser.
type admission struct {
	// vacate hibernates an unused virtual browser and reports whether it could.
	vacate func(*part) bool

	work sync.WaitGroup

	mu      sync.Mutex
	table   places.Table[*part]
	changed wait.Broadcast // somebody may have got a place
	timer   *time.Timer
	closed  bool
}

// enter counts a call on a virtual browser, and waits until that has a place.
func (b *admission) enter(ctx context.Context, v *part) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Begin(v)
	b.advanceLocked()
	for !b.table.Has(v) {
		if !b.table.Knows(v) {
			return ErrBrowserDied
		}
		changed := b.changed.Next()
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			b.leaveLocked(v)
			return context.Cause(ctx)
		}
	}
	return nil
}

// tryEnter is enter without waiting. It reports whether the virtual browser has a
// place.
func (b *admission) tryEnter(v *part) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table.Begin(v); b.table.Has(v) {
		return true
	}
	b.leaveLocked(v)
	return false
}

// leave notes that a call has ended.
func (b *admission) leave(v *part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(v)
}

func (b *admission) leaveLocked(v *part) {
	b.table.End(v, time.Now())
	b.advanceLocked()
}

// remove notes that a virtual browser has ended.
func (b *admission) remove(v *part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Remove(v)
	b.advanceLocked()
}

// hibernateNow hibernates a virtual browser unless a call uses it. It reports whether one
// does.
func (b *admission) hibernateNow(v *part) (used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table.Vacate(v) {
		b.vacateLocked(v)
		return false
	}
	return b.table.Has(v)
}

// advanceLocked tells those that wait of a change, and vacates places for them.
func (b *admission) advanceLocked() {
	b.changed.Wake()
	now := time.Now()
	all, next := b.table.Overdue(now)
	for _, v := range all {
		b.vacateLocked(v)
	}
	if !next.IsZero() && !b.closed {
		start(&b.timer, next.Sub(now), b.advance)
	}
}

func (b *admission) advance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked()
}

// vacateLocked has a virtual browser hibernated that is to leave.
func (b *admission) vacateLocked(v *part) {
	if b.closed {
		return
	}
	b.work.Go(func() {
		done := b.vacate(v)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.table.Vacated(v, done, time.Now())
		b.advanceLocked()
	})
}

func (b *admission) close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// waiting is how many virtual browsers wait for a place, and how many places there
// are.
func (b *admission) waiting() (n, places int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table.Waiting(), b.table.Max
}

// ahead is how many virtual browsers wait before one; false: it does not wait.
func (b *admission) ahead(v *part) (n int, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table.Ahead(v)
}

// vacate stops the children of an unused virtual browser and has it hibernated. It
// reports whether it was.
func (b *parts) vacate(v *part) bool {
	b.mu.Lock()
	over, unused := b.closed || v.gone != nil, time.Since(v.rested)
	b.mu.Unlock()
	if over || b.owner.Busy(v.matches) { // with what is no tool's call
		return false
	}
	stopped := b.owner.StopChildren(v.matches, false)
	b.mu.Lock()
	v.children.begin(unused.Round(time.Second))
	b.mu.Unlock()
	stopped()
	return b.hibernate(b.ctx, v.name)
}
