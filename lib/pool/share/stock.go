package share

import "slices"

// stock says which sessions of a Chrome are whose, and how many are to be made.
// It has no lock, and makes and ends nothing itself: its methods are called one
// at a time.
type stock[S comparable] struct {
	isDead func(S) bool // a session has ended by itself

	target  int          // sessions to have ready
	spares  []S          // those that are: nobody has had them. The oldest first
	waiting []*waiter[S] // who is to get the next ones, by arrival
	making  int          // sessions that are being made, for whom it may be
	failing bool         // the last could not be made: none is, but for who waits
}

// waiter is a request for a session.
type waiter[S comparable] struct {
	serve func(S, error) // called once, from within made, put or failed
}

// maxConcurrent is how many sessions are made at once: Chrome makes most of them one
// after the other anyway.
const maxConcurrent = 4

// take takes a session that is ready. If there is none, the request waits, and
// is served later; w is nil otherwise.
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

// cancel has a request wait no more.
func (k *stock[S]) cancel(w *waiter[S]) {
	k.waiting = slices.DeleteFunc(k.waiting, func(o *waiter[S]) bool { return o == w })
}

// start returns how many sessions are to be made now, and counts them as being
// made: each is to end with made or failed.
func (k *stock[S]) start() (n int) {
	need := len(k.waiting)
	if !k.failing {
		need += max(0, k.target-len(k.spares))
	}
	n = max(0, min(need, maxConcurrent)-k.making)
	k.making += n
	return n
}

// made takes a session that was made. It reports whether that is one too many,
// which is to be ended.
func (k *stock[S]) made(s S) (surplus bool) {
	k.making--
	k.failing = false
	return k.put(s)
}

// put takes a session that nobody has used. It reports whether that is one too
// many, which is to be ended.
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

// failed notes that a session could not be made: who waits longest is told so.
// No spares are made until again is called.
func (k *stock[S]) failed(err error) {
	k.making--
	k.failing = true
	if len(k.waiting) > 0 {
		w := k.waiting[0]
		k.waiting = k.waiting[1:]
		w.serve(*new(S), err)
	}
}

// retry has spares made again after a failure.
func (k *stock[S]) retry() { k.failing = false }

// setTarget changes how many are to be ready, and returns those that are too
// many, which are to be ended.
func (k *stock[S]) setTarget(n int) (surplus []S) {
	k.target = n
	if len(k.spares) > n {
		surplus = slices.Clone(k.spares[n:])
		k.spares = k.spares[:n]
	}
	return surplus
}
