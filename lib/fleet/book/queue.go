package book

import (
	"cmp"
	"errors"
	"time"
)

// Any requests whichever slot is free.
const Any = -1

// ErrQueueFull means that the queue has reached its limit.
var ErrQueueFull = errors.New("too many wait already")

// Queue is a queue of slots, numbered from 0. The zero value has no free slots;
// Put adds them. It has no lock: callers must call its methods one at a time.
type Queue struct {
	// Changed, if not nil, is called after each change of the free slots and of the waiting requests.
	Changed func()

	slots   []*slot
	free    list[*slot]   // in the order in which they were returned
	anySlot list[*Waiter] // for any slot, by age; empty while a slot is free
	waiting int
	guests  int    // waiting requests that do not count for the limit
	waits   uint64 // number of requests so far
}

// slot is one slot of the pool.
type slot struct {
	node    node[*slot]
	number  int
	free    bool
	waiters list[*Waiter] // for this slot, by age
}

// Waiter is a waiting request.
type Waiter struct {
	node     node[*Waiter]
	began    time.Time
	nth      uint64 // of the requests
	guest    bool
	deadline time.Time
	list     *list[*Waiter] // that contains it; nil once it is served
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

// Take takes the slot n, or with Any the free slot that was returned earliest.
// It reports whether a slot was free.
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

// take takes a free slot.
func (q *Queue) take(s *slot) {
	s.free = false
	q.free.remove(&s.node)
	q.changed()
}

func (q *Queue) changed() {
	if q.Changed != nil {
		q.Changed()
	}
}

// Unlimited is the limit of a request that always waits, and does not count for the limit of others.
const Unlimited = -1

// Wait queues a request for a slot that is not free, before the requests that began later. It calls serve once: from
// Put with the slot, or from one of the Fail methods with an error. If limit requests are waiting already, the error is
// ErrQueueFull. The caller must call Cancel at the deadline; the queue does not watch it.
func (q *Queue) Wait(n, limit int, began, deadline time.Time, serve func(n int, err error)) (*Waiter, error) {
	if limit != Unlimited && q.waiting-q.guests >= limit {
		return nil, ErrQueueFull
	}
	in := &q.anySlot
	if n != Any {
		in = &q.slot(n).waiters
	}
	q.waits++
	w := &Waiter{began: began, nth: q.waits, guest: limit == Unlimited, deadline: deadline, list: in, serve: serve}
	w.node.value = w
	after := in.last
	for after != nil && w.isOlder(after.value) {
		after = after.prev
	}
	in.insert(&w.node, after)
	q.count(w, 1)
	q.changed()
	return w, nil
}

// isOlder reports whether a request comes before another one.
func (w *Waiter) isOlder(o *Waiter) bool {
	return cmp.Or(w.began.Compare(o.began), cmp.Compare(w.nth, o.nth)) < 0
}

// count adds to the number of waiting requests.
func (q *Queue) count(w *Waiter, n int) {
	if q.waiting += n; w.guest {
		q.guests += n
	}
}

// Before returns the number of requests that are served before one that waits.
func (w *Waiter) Before() (n int) {
	for at := w.node.prev; at != nil; at = at.prev {
		n++
	}
	return n
}

// Cancel removes a request from the queue and reports whether it was still
// waiting.
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
	q.count(w, -1)
	q.changed()
}

// Put returns a slot, or adds a new one. The slot goes to the request for it or
// for any slot that has waited longest, otherwise to the end of the free slots.
// A slot that is free already keeps its position.
func (q *Queue) Put(n int) {
	s := q.slot(n)
	if s.free {
		return
	}
	w := s.waiters.first
	if a := q.anySlot.first; w == nil || a != nil && a.value.isOlder(w.value) {
		w = a
	}
	if w != nil {
		q.dequeue(w.value)
		w.value.serve(n, nil)
		return
	}
	s.free = true
	q.free.push(&s.node)
	q.changed()
}

// Remove removes a slot if it is free, and reports whether it was.
func (q *Queue) Remove(n int) bool {
	if n >= len(q.slots) || !q.slots[n].free {
		return false
	}
	q.take(q.slots[n])
	return true
}

// Len returns the numbers of free slots and of waiting requests.
func (q *Queue) Len() (free, waiting int) {
	for s := q.free.first; s != nil; s = s.next {
		free++
	}
	return free, q.waiting
}

// Wants reports whether a request waits that slot n could serve, and that none of the
// slots serves that are coming: they are not free, but Put will return them.
func (q *Queue) Wants(n int, coming []int) bool {
	if q.slot(n).waiters.first != nil {
		return true
	}
	w := q.anySlot.first
	for _, m := range coming {
		if w != nil && q.slot(m).waiters.first == nil {
			w = w.next
		}
	}
	return w != nil
}

// Waiting returns the number of waiting requests.
func (q *Queue) Waiting() int { return q.waiting }

// Fail fails all waiting requests. Later requests can wait again.
func (q *Queue) Fail(err error) {
	q.failAll(&q.anySlot, err)
	q.FailFrom(0, err)
}

// FailFrom fails the requests for the slots from n on.
func (q *Queue) FailFrom(n int, err error) {
	for ; n < len(q.slots); n++ {
		q.failAll(&q.slots[n].waiters, err)
	}
}

// FailBefore fails the requests for slot n, or with Any those for any slot,
// whose deadlines are before t.
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
