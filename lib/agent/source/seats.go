package source

import (
	"context"
	"sync"
	"time"

	"btools/lib/agent/source/places"
)

// Only so many virtual browsers have pages at a time (--max-sessions). A call on
// another one waits for the place of one that ends, or that no call has used for a
// while: that one is hibernated, and its next call waits for a place in its turn.

// seatRest is how long a virtual browser keeps a place that others wait for without a
// call.
const seatRest = 5 * time.Second

// seats are the places of the virtual browsers of one browser.
type seats struct {
	// vacate hibernates an unused virtual browser and reports whether it could.
	vacate func(*virtual) bool

	work sync.WaitGroup

	mu      sync.Mutex
	table   places.Table[*virtual]
	changed chan struct{} // closed when somebody may have got a place; nil: nobody waits
	timer   *time.Timer
	closed  bool
}

// enter counts a call on a virtual browser, and waits until that has a place.
func (b *seats) enter(ctx context.Context, v *virtual) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Begin(v)
	b.advanceLocked()
	for !b.table.Has(v) {
		if !b.table.Knows(v) {
			return ErrBrowserDied
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
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
func (b *seats) tryEnter(v *virtual) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table.Begin(v); b.table.Has(v) {
		return true
	}
	b.leaveLocked(v)
	return false
}

// leave notes that a call has ended.
func (b *seats) leave(v *virtual) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(v)
}

func (b *seats) leaveLocked(v *virtual) {
	b.table.End(v, time.Now())
	b.advanceLocked()
}

// remove notes that a virtual browser has ended.
func (b *seats) remove(v *virtual) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Remove(v)
	b.advanceLocked()
}

// free hibernates a virtual browser unless a call uses it. It reports whether one
// does.
func (b *seats) free(v *virtual) (used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.table.Vacate(v) {
		b.vacateLocked(v)
		return false
	}
	return b.table.Has(v)
}

// advanceLocked tells those that wait of a change, and vacates places for them.
func (b *seats) advanceLocked() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	now := time.Now()
	all, next := b.table.Overdue(now)
	for _, v := range all {
		b.vacateLocked(v)
	}
	if !next.IsZero() && !b.closed {
		start(&b.timer, next.Sub(now), b.advance)
	}
}

func (b *seats) advance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked()
}

// vacateLocked has a virtual browser hibernated that is to leave.
func (b *seats) vacateLocked(v *virtual) {
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

func (b *seats) close() {
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
func (b *seats) waiting() (n, places int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table.Waiting(), b.table.Max
}

// ahead is how many virtual browsers wait before one; false: it does not wait.
func (b *seats) ahead(v *virtual) (n int, waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table.Ahead(v)
}

// vacate stops the children of an unused virtual browser and has it hibernated. It
// reports whether it was.
func (b *parts) vacate(v *virtual) bool {
	b.mu.Lock()
	over, unused := b.closed || v.gone != nil, time.Since(v.rested)
	b.mu.Unlock()
	if over || b.owner.Busy(v.is) { // with what is no tool's call
		return false
	}
	stopped := b.owner.StopChildren(v.is, false)
	b.mu.Lock()
	v.nap.begin(unused.Round(time.Second))
	b.mu.Unlock()
	stopped()
	return b.hibernate(b.ctx, v.name)
}
