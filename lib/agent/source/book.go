package source

import (
	"context"
	"sync"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/wait"
)

// book records which calls use each browser, and begins a step when none does. Its lock also guards the source and its
// owners.
type book struct {
	mu      sync.Mutex
	table   uses.Table[usable]
	changed wait.Broadcast // a call may go on
	timer   wait.Timer
	over    bool
}

// usable is used by calls: the one browser, a virtual browser on it, or a kept lease.
type usable interface {
	// step takes a step and returns the zero time, or the time of a use for which the step is not taken.
	step(due uses.Due[usable]) (kept time.Time)
	// group returns the group of the step's goroutine.
	group() *sync.WaitGroup
}

// noWait is a context that has ended, for a call that must not wait.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// enter counts a call, and waits until it can use k.
func (b *book) enter(ctx context.Context, k usable) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enterLocked(ctx, k)
}

func (b *book) enterLocked(ctx context.Context, k usable) error {
	if b.table.Begin(k); !b.table.Ready(k) && ctx.Err() == nil {
		b.advanceLocked() // it may wait for a place
	}
	for !b.table.Ready(k) {
		if !b.table.Knows(k) {
			return ErrBrowserDied
		}
		if err := b.waitLocked(ctx); err != nil {
			b.leaveLocked(k)
			return err
		}
	}
	return nil
}

// waitLocked waits until something has changed.
func (b *book) waitLocked(ctx context.Context) error {
	changed := b.changed.Next()
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// leave notes that a call has ended.
func (b *book) leave(k usable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(k)
}

// touch notes a use of k that is over.
func (b *book) touch(k usable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Begin(k)
	b.leaveLocked(k)
}

func (b *book) leaveLocked(k usable) {
	b.table.Finish(k, time.Now())
	b.advanceLocked()
}

// removeLocked forgets k.
func (b *book) removeLocked(k usable) {
	b.table.Remove(k)
	b.advanceLocked()
}

// advanceLocked wakes the calls that wait, and begins the steps that are due.
func (b *book) advanceLocked() {
	b.changed.Wake()
	if b.over {
		return
	}
	now := time.Now()
	all, next := b.table.Due(now)
	for _, due := range all {
		b.beginLocked(due)
	}
	if !next.IsZero() {
		b.timer.Start(next.Sub(now), b.advance)
	}
}

func (b *book) advance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked()
}

// beginLocked begins a step.
func (b *book) beginLocked(due uses.Due[usable]) {
	due.Key.group().Go(func() {
		kept := due.Key.step(due)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.table.Done(due.Key, due.Step, kept)
		b.advanceLocked()
	})
}

// close ends the steps: none begins any more.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.timer.Stop()
}
