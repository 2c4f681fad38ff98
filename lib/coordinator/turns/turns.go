// Package turns has requests reach a process in the order in which the host has sent
// them: a host that sends several at once, such as a navigation and then a click, means
// them in that order. They wait in parallel for what each needs first, such as a browser
// or the start of the process, and get browsers in that order too. What a request, a
// process and a browser are stands in the coordinator.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turn is the position of a request among those that may be for the same process. It
// ends when the request has reached the process, or never will. A nil *Turn is the
// position of a request that waits for no other.
type Turn[P comparable, L any] struct {
	// Group names the requests that may be for the same process; "": that is not known
	// yet, and it is asked for again.
	Group func() string

	group   string
	process P             // zero: not known yet
	moved   chan struct{} // closed when the process is known, or the turn is over
	over    bool
	asked   *Acquisition[P, L] // for its browser; nil: it does not wait for one
	got     chan taken[L]
	served  bool // it has got its browser
}

// Acquisition is a request for a browser that is under way.
type Acquisition[P comparable, L any] struct {
	by     *Turn[P, L] // nil: nobody waits for it
	cancel context.CancelFunc
}

type taken[L any] struct {
	browser L
	err     error
}

// Queue is the turns of a host. P identifies a process, L is a browser that is taken for
// a request. Its zero value is an empty queue.
type Queue[P comparable, L any] struct {
	mu  sync.Mutex    // of the queue and all that is in it
	all []*Turn[P, L] // that are not over, in the order of their arrival
}

// lock locks the queue, after the groups of the turns have been found that were not
// known when they came.
func (q *Queue[P, L]) lock() {
	var unknown []*Turn[P, L]
	q.mu.Lock()
	for _, t := range q.all {
		if t.group == "" {
			unknown = append(unknown, t)
		}
	}
	if len(unknown) == 0 {
		return
	}
	q.mu.Unlock()
	groups := make([]string, len(unknown))
	for i, t := range unknown {
		groups[i] = t.Group()
	}
	q.mu.Lock()
	for i, t := range unknown {
		if groups[i] != "" {
			t.group = groups[i]
		}
	}
}

// Add queues a turn, unless it is over. It is called in the order of arrival. The turn
// of a request that has its browser has a process.
func (q *Queue[P, L]) Add(t *Turn[P, L], process P) {
	if t == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.over {
		return
	}
	t.moved, t.got = make(chan struct{}), make(chan taken[L], 1)
	var none P
	t.process, t.served = process, process != none
	q.all = append(q.all, t)
}

// beforeLocked is the last turn before one (before the end of the queue if that is nil) that
// is, or may be, for the same process; nil if there is none. A turn waits for that one
// only, which itself waits for those before: otherwise each end would wake all that
// wait.
func (q *Queue[P, L]) beforeLocked(t *Turn[P, L], group string, process P) *Turn[P, L] {
	at := len(q.all)
	if t != nil {
		at = slices.Index(q.all, t)
	}
	var none P
	for i := at - 1; i >= 0; i-- {
		other := q.all[i]
		if process != none && other.process == process ||
			other.process == none && group != "" && other.group == group {
			return other
		}
	}
	return nil
}

// IsFirst reports whether a request of a group need not wait for the queue. The process
// is zero if it is not known.
func (q *Queue[P, L]) IsFirst(group string, process P) bool {
	q.lock()
	defer q.mu.Unlock()
	return q.beforeLocked(nil, group, process) == nil
}

// Assign notes which process a turn is for.
func (q *Queue[P, L]) Assign(t *Turn[P, L], process P) {
	if t == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var none P
	if t.process == none && !t.over {
		t.process = process
		t.moveLocked()
	}
}

func (t *Turn[P, L]) moveLocked() {
	if t.moved != nil {
		close(t.moved)
		t.moved = make(chan struct{})
	}
}

// Wait waits until all requests before a turn have reached their process, or never will.
// It reports false if the context ends before.
func (q *Queue[P, L]) Wait(ctx context.Context, t *Turn[P, L]) bool {
	for t != nil {
		moved := q.before(t)
		if moved == nil {
			break
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// before is closed when the turn before another one has moved; nil if there is none.
func (q *Queue[P, L]) before(t *Turn[P, L]) <-chan struct{} {
	q.lock()
	defer q.mu.Unlock()
	if before := q.beforeLocked(t, t.group, t.process); before != nil {
		return before.moved
	}
	return nil
}

// End ends a turn, so that later ones can proceed. It returns the browser that the turn
// was given and has not fetched.
func (q *Queue[P, L]) End(t *Turn[P, L]) (left L) {
	if t == nil {
		return left
	}
	cancel, left := q.end(t)
	if cancel != nil {
		cancel()
	}
	return left
}

func (q *Queue[P, L]) end(t *Turn[P, L]) (cancel context.CancelFunc, left L) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.over {
		return nil, left
	}
	t.over, t.served = true, true
	i := slices.Index(q.all, t)
	if i < 0 {
		return nil, left
	}
	q.all = slices.Delete(q.all, i, i+1)
	t.moveLocked()
	if a := t.asked; a != nil {
		t.asked, a.by = nil, nil
		cancel = a.cancel
	}
	select {
	case got := <-t.got:
		left = got.browser
	default:
	}
	return cancel, left
}

// Ask notes that a browser is being acquired for a turn, unless the turn has one. The
// caller acquires browsers as long as one is Wanted, and gives them to Hand; cancel ends
// that.
func (q *Queue[P, L]) Ask(t *Turn[P, L], cancel context.CancelFunc) *Acquisition[P, L] {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := &Acquisition[P, L]{by: t, cancel: cancel}
	if t.served {
		a.by = nil
	} else {
		t.asked = a
	}
	return a
}

// Wanted reports whether anybody waits for the result of an acquisition.
func (q *Queue[P, L]) Wanted(a *Acquisition[P, L]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return a.by != nil
}

// Hand delivers the result of an acquisition and reports whether anybody took it. A
// browser goes to the first turn of the group that has none. The acquisition of that
// turn then serves the turn whose browser it got; if it had started none, this
// acquisition is repeated.
func (q *Queue[P, L]) Hand(a *Acquisition[P, L], browser L, err error) bool {
	q.lock()
	defer q.mu.Unlock()
	to := a.by
	if to == nil {
		return false
	}
	got := taken[L]{browser, err}
	if err == nil {
		i := slices.IndexFunc(q.all, func(t *Turn[P, L]) bool { return !t.served && t.group == to.group })
		if i >= 0 && q.all[i] != to {
			first := q.all[i]
			first.served = true
			first.got <- got
			if theirs := first.asked; theirs != nil {
				theirs.by, to.asked = to, theirs
				first.asked, a.by = nil, nil
			}
			return true
		}
	}
	to.served, to.asked, a.by = true, nil, nil
	to.got <- got
	return true
}

// Got waits for the browser of a turn, or for the error of its acquisition. When the
// context ends, the turn is over.
func (q *Queue[P, L]) Got(ctx context.Context, t *Turn[P, L]) (browser L, err error) {
	select {
	case got := <-t.got:
		return got.browser, got.err
	case <-ctx.Done():
		return browser, context.Cause(ctx)
	}
}
