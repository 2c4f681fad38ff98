// Package queue shares out the slots of a pool, one holder each: whoever
// waits is served strictly in order of arrival, the slot that came back
// earliest goes first, and a request for one slot waits for that one without
// holding up the others. Every operation takes the same time however many
// slots and waiters there are.
package queue

import (
	"context"
	"errors"
	"sync"
)

// Any is the slot of a request that takes whichever is free.
const Any = -1

// Errors of Get.
var (
	// ErrFull says that as many wait as may.
	ErrFull = errors.New("too many wait already")
	// ErrBusy says that none is free, to who does not wait.
	ErrBusy = errors.New("none is free")
)

// Queue is a queue of slots, numbered from 0. The zero value has none free:
// Put adds them.
type Queue struct {
	mu      sync.Mutex
	slots   []*slot
	free    list[*slot]   // by the time they came back
	any     list[*waiter] // for any slot, by arrival: empty while one is free
	arrived uint64        // requests so far
	waiting int
	closed  error
}

// slot is one of the pool's.
type slot struct {
	node   node[*slot]
	number int
	free   bool
	wanted list[*waiter] // who wants this one, by arrival
}

// waiter is one request that waits.
type waiter struct {
	node    node[*waiter]
	arrival uint64
	in      *list[*waiter] // nil once it is served
	got     chan int       // the slot; closed without one if there is an err
	err     error
}

func (q *Queue) slot(n int) *slot {
	for len(q.slots) <= n {
		s := &slot{number: len(q.slots)}
		s.node.of = s
		q.slots = append(q.slots, s)
	}
	return q.slots[n]
}

// Get takes a slot: this one, or with Any the one that came back earliest.
// If it has to wait it does so until the context ends, whose cause is the
// error, or until the queue is closed. When limit others wait already, the
// error is ErrFull at once; a negative limit never waits: ErrBusy.
func (q *Queue) Get(ctx context.Context, n, limit int) (int, error) {
	q.mu.Lock()
	if q.closed != nil {
		defer q.mu.Unlock()
		return 0, q.closed
	}
	in := &q.any
	if n == Any {
		if first := q.free.first; first != nil {
			defer q.mu.Unlock()
			q.take(first.of)
			return first.of.number, nil
		}
	} else {
		s := q.slot(n)
		if s.free {
			defer q.mu.Unlock()
			q.take(s)
			return n, nil
		}
		in = &s.wanted
	}
	if limit < 0 || q.waiting >= limit {
		defer q.mu.Unlock()
		if limit < 0 {
			return 0, ErrBusy
		}
		return 0, ErrFull
	}
	q.arrived++
	w := &waiter{arrival: q.arrived, in: in, got: make(chan int, 1)}
	w.node.of = w
	in.push(&w.node)
	q.waiting++
	q.mu.Unlock()

	select {
	case got := <-w.got:
		return got, w.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	if w.in != nil {
		q.unqueue(w)
		q.mu.Unlock()
		return 0, context.Cause(ctx)
	}
	q.mu.Unlock()
	return <-w.got, w.err // at the same moment: it is the caller's to put back
}

// take takes a slot that is free.
func (q *Queue) take(s *slot) {
	s.free = false
	q.free.remove(&s.node)
}

func (q *Queue) unqueue(w *waiter) {
	w.in.remove(&w.node)
	w.in = nil
	q.waiting--
}

// Put brings a slot back, or adds it. It goes to who has waited longest for
// it or for any, else to the end of those that are free. One that is free
// already stays where it is.
func (q *Queue) Put(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.slot(n)
	if s.free {
		return
	}
	w := s.wanted.first
	if a := q.any.first; w == nil || a != nil && a.of.arrival < w.of.arrival {
		w = a
	}
	if w != nil {
		q.unqueue(w.of)
		w.of.got <- n
		return
	}
	s.free = true
	q.free.push(&s.node)
}

// Remove takes a slot out if it is free, and reports whether it was.
func (q *Queue) Remove(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n >= len(q.slots) || !q.slots[n].free {
		return false
	}
	q.take(q.slots[n])
	return true
}

// Len returns how many slots are free, and how many requests wait.
func (q *Queue) Len() (free, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := q.free.first; s != nil; s = s.next {
		free++
	}
	return free, q.waiting
}

// Close ends all waiting, now and later, with this error.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	q.closed = err
	q.mu.Unlock()
	q.Fail(err)
}

// Fail ends all waiting with this error, for now.
func (q *Queue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := func(l *list[*waiter]) {
		for l.first != nil {
			w := l.first.of
			q.unqueue(w)
			w.err = err
			close(w.got)
		}
	}
	end(&q.any)
	for _, s := range q.slots {
		end(&s.wanted)
	}
}
