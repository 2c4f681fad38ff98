package share

import "slices"

// stock tracks the sessions of a Chrome: who gets them, and how many to make.
// It has no lock and makes and ends nothing itself; callers must call its
// methods one at a time.
type stock[S comparable] struct {
	isDead func(S) bool // reports whether a session has ended

	target  int          // number of spare sessions to keep ready
	spares  []S          // ready and unused, the oldest first
	waiting []*waiter[S] // requests for the next sessions, by arrival
	making  int          // sessions being made, for requests or as spares
	failing bool         // the last attempt failed: make sessions only for requests
}

// waiter is a request for a session.
type waiter[S comparable] struct {
	serve func(S, error) // called once, by made, put or failed
}

// maxConcurrent is how many sessions are made at the same time; Chrome makes
// most of them one after the other anyway.
const maxConcurrent = 4

// take takes a spare session. If there is none, it queues the request, which is
// served later, and w is not nil.
func (k *stock[S]) take(serve func(S, error)) (s S, w *waiter[S]) {
	for len(k.spares) > 0 {
		s, k.spares = k.spares[0], k.spares[1:]
		if !k.isDead(s) {
			return s, nil
		}
	}
	w = &waiter[S]{serve}
	k.waiting = append(k.waiting, w)
	return *new(S), w
}

// cancel removes a request from the queue.
func (k *stock[S]) cancel(w *waiter[S]) {
	k.waiting = slices.DeleteFunc(k.waiting, func(o *waiter[S]) bool { return o == w })
}

// start returns how many sessions to make now and counts them as being made.
// The caller must report each with made or failed.
func (k *stock[S]) start() (n int) {
	need := len(k.waiting)
	if !k.failing {
		need += max(0, k.target-len(k.spares))
	}
	n = max(0, min(need, maxConcurrent)-k.making)
	k.making += n
	return n
}

// made accepts a session that was made. It reports whether the session is
// surplus and must be ended.
func (k *stock[S]) made(s S) (surplus bool) {
	k.making--
	k.failing = false
	return k.put(s)
}

// put accepts an unused session. It reports whether the session is surplus and
// must be ended.
func (k *stock[S]) put(s S) (surplus bool) {
	if len(k.waiting) > 0 {
		w := k.waiting[0]
		k.waiting = k.waiting[1:]
		w.serve(s, nil)
		return false
	}
	if len(k.spares) >= k.target {
		return true
	}
	k.spares = append(k.spares, s)
	return false
}

// failed records that a session could not be made, and fails the oldest waiting
// request. No spares are made until retry is called.
func (k *stock[S]) failed(err error) {
	k.making--
	k.failing = true
	if len(k.waiting) > 0 {
		w := k.waiting[0]
		k.waiting = k.waiting[1:]
		w.serve(*new(S), err)
	}
}

// retry resumes making spares after a failure.
func (k *stock[S]) retry() { k.failing = false }

// setTarget sets the number of spare sessions and returns the surplus ones,
// which must be ended.
func (k *stock[S]) setTarget(n int) (surplus []S) {
	k.target = n
	if len(k.spares) > n {
		surplus = slices.Clone(k.spares[n:])
		k.spares = k.spares[:n]
	}
	return surplus
}
