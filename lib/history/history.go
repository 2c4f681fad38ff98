// Package history keeps the latest events of a program for those that watch it.
package history

import (
	"context"
	"slices"
	"sync"

	"btools/lib/record"
	"btools/lib/wait"
)

// most is the number of past events that are kept at least.
const most = 1024

// Log holds the latest events. Its lock is held by nobody who waits for another
// one. The zero Log is empty.
type Log[E any] struct {
	mu      sync.Mutex
	events  []E
	last    int64
	changed wait.Broadcast // another event is there
}

// Add records the event that build returns for its number, which counts from 1,
// and its time.
func (l *Log[E]) Add(build func(number int64, at record.Time) E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	if len(l.events) >= 2*most {
		l.events = slices.Delete(l.events, 0, most)
	}
	l.events = append(l.events, build(l.last, record.Now()))
	l.changed.Wake()
}

// Latest returns the latest event for which is returns true.
func (l *Log[E]) Latest(is func(E) bool) (e E, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.events) {
		if is(e) {
			return e, true
		}
	}
	return e, false
}

// After returns the events after the given number and waits until there is at
// least one. The oldest of them may be lost. After -1 it returns only new
// events. A number that is still to come belongs to an earlier program: then it
// returns all events.
func (l *Log[E]) After(ctx context.Context, after int64) ([]E, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < 0 {
		after = l.last
	} else if after > l.last {
		after = 0
	}
	for l.last <= after {
		more := l.changed.Next()
		l.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	from := max(0, len(l.events)-int(l.last-after))
	return slices.Clone(l.events[from:]), nil
}
