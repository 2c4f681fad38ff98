// Package queue shares out the slots of a pool, one holder each: whoever
// waits is served strictly in order of arrival, the slot that came back
// earliest goes first, and a request for one slot waits for that one without
// holding up the others. Every operation takes the same time however many
// slots and waiters there are.
package queue

import (
	"errors"
	"time"
)

// Any is the slot of a request that takes whichever is free.
const Any = -1

// ErrFull says that as many wait as may.
var ErrFull = errors.New("too many wait already")

// Queue is a queue of slots, numbered from 0. The zero value has none free:
// Put adds them. It has no lock: its methods are called one at a time.
type Queue struct {
	slots    []*slot
	free     list[*slot]   // by the time they came back
	anySlot  list[*Waiter] // for any slot, by arrival: empty while one is free
	arrivals uint64        // requests so far
	waiting  int
}

// slot is one of the pool's.
type slot struct {
	node    node[*slot]
	number  int
	free    bool
	waiters list[*Waiter] // who wants this one, by arrival
}

// Waiter is one request that waits.
type Waiter struct {
	node     node[*Waiter]
	arrival  uint64
	deadline time.Time
	list     *list[*Waiter] // nil once it is served
	serve    func(n int, err error)
}

func (q *Queue) slot(n int) *slot {
	for len(q.slots) <= n {
		s := &slot{number: len(q.slots)}
		s.node.value = s
		q.slots = append(q.slots, s)
	}
	return q.slots[n]
}

// Take takes a slot: this one, or with Any the one that came back earliest.
// It reports whether it was free.
func (q *Queue) Take(n int) (int, bool) {
	s := (*slot)(nil)
	if n != Any {
		s = q.slot(n)
	} else if q.free.first != nil {
		s = q.free.first.value
	}
	if s == nil || !s.free {
		return 0, false
	}
	q.take(s)
	return s.number, true
}

// take takes a slot that is free.
func (q *Queue) take(s *slot) {
	s.free = false
	q.free.remove(&s.node)
}

// Wait has a request wait for a slot that is not free: serve is called once,
// from within Put with the slot, or from within one of the Fails with the
// error. When limit others wait already, the error is ErrFull. That it waits
// no longer than until then is for the caller to see to, by Cancel.
func (q *Queue) Wait(n, limit int, deadline time.Time, serve func(n int, err error)) (*Waiter, error) {
	if q.waiting >= limit {
		return nil, ErrFull
	}
	in := &q.anySlot
	if n != Any {
		in = &q.slot(n).waiters
	}
	q.arrivals++
	w := &Waiter{arrival: q.arrivals, deadline: deadline, list: in, serve: serve}
	w.node.value = w
	in.push(&w.node)
	q.waiting++
	return w, nil
}

// Cancel has a request wait no more, and reports whether it still did.
func (q *Queue) Cancel(w *Waiter) bool {
	if w.list == nil {
		return false
	}
	q.dequeue(w)
	return true
}

func (q *Queue) dequeue(w *Waiter) {
	w.list.remove(&w.node)
	w.list = nil
	q.waiting--
}

// Put brings a slot back, or adds it. It goes to who has waited longest for
// it or for any, else to the end of those that are free. One that is free
// already stays where it is.
func (q *Queue) Put(n int) {
	s := q.slot(n)
	if s.free {
		return
	}
	w := s.waiters.first
	if a := q.anySlot.first; w == nil || a != nil && a.value.arrival < w.value.arrival {
		w = a
	}
	if w != nil {
		q.dequeue(w.value)
		w.value.serve(n, nil)
		return
	}
	s.free = true
	q.free.push(&s.node)
}

// Remove takes a slot out if it is free, and reports whether it was.
func (q *Queue) Remove(n int) bool {
	if n >= len(q.slots) || !q.slots[n].free {
		return false
	}
	q.take(q.slots[n])
	return true
}

// Len returns how many slots are free, and how many requests wait.
func (q *Queue) Len() (free, waiting int) {
	for s := q.free.first; s != nil; s = s.next {
		free++
	}
	return free, q.waiting
}

// Waiting returns how many requests wait.
func (q *Queue) Waiting() int { return q.waiting }

// Fail ends all waiting with this error, for now.
func (q *Queue) Fail(err error) {
	q.failAll(&q.anySlot, err)
	q.FailFrom(0, err)
}

// FailFrom ends the waiting for the slots from this number on.
func (q *Queue) FailFrom(n int, err error) {
	for ; n < len(q.slots); n++ {
		q.failAll(&q.slots[n].waiters, err)
	}
}

// FailBefore ends the waiting for this slot, or with Any that for any, of those
// that wait until before this time.
func (q *Queue) FailBefore(n int, t time.Time, err error) {
	l := &q.anySlot
	if n != Any {
		l = &q.slot(n).waiters
	}
	for w := l.first; w != nil; {
		next := w.next
		if w.value.deadline.Before(t) {
			q.dequeue(w.value)
			w.value.serve(0, err)
		}
		w = next
	}
}

func (q *Queue) failAll(l *list[*Waiter], err error) {
	for l.first != nil {
		w := l.first.value
		q.dequeue(w)
		w.serve(0, err)
	}
}
