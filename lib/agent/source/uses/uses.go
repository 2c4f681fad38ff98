// Package uses says which of many sessions calls use, and what becomes of those that no call uses. One is given up in
// two steps, each when its time has come: it rests, and it ends. A call that comes during a step waits until that is
// over. There may be fewer places than sessions: a session that needs one when all are taken waits, first in, first
// out, and has it until it rests. The package has no lock, no clock and no goroutine: the methods of a table are called
// one at a time, with the time as an argument, and return what the caller has to do.
package uses

import (
	"slices"
	"time"
)

// Step is what is done with a session that no call uses.
type Step int

const (
	None Step = iota
	Rest      // it is put to rest until its next call
	End       // it ends
)

// Rules say when a session is given up.
type Rules struct {
	// Rest and End are how long no call uses it until these steps; 0: they are not taken by themselves.
	Rest, End time.Duration
	Place     bool // it needs a place for its calls
}

// Table is the sessions and the places for them. Sessions are known by keys.
type Table[K comparable] struct {
	Max  int           // places; 0: as many as are wanted
	Keep time.Duration // how long no call uses a session until it rests so that another one has its place

	all   map[K]*entry
	queue []K // of those that wait for a place, the first to come first
	taken int // places, with those of sessions that are being put to rest
}

type entry struct {
	Rules
	awake   bool // since a call used it; it has its place
	step    Step // that is under way
	calls   int  // that use it, or wait for it
	left    time.Time
	refused time.Time // when it could not rest last
	hurried bool      // it ends as soon as no call uses it
}

// Due is a step that is to be taken. The caller does that and calls Done.
type Due[K comparable] struct {
	Key     K
	Step    Step
	Unused  time.Duration // for how long no call has used it
	Hurried bool          // it ends because of Hurry
}

// Set adds a session, or changes its rules.
func (t *Table[K]) Set(k K, r Rules) {
	if t.all == nil {
		t.all = map[K]*entry{}
	}
	if t.all[k] == nil {
		t.all[k] = &entry{}
	}
	t.all[k].Rules = r
}

// Begin begins a call on a session. The call waits until Ready, or until Finish.
func (t *Table[K]) Begin(k K) {
	e := t.all[k]
	if e == nil {
		return
	}
	if e.calls++; !e.awake && !slices.Contains(t.queue, k) {
		t.wake(k, e)
	}
}

// wake wakes a session, or has it wait for a place.
func (t *Table[K]) wake(k K, e *entry) {
	if e.awake = !e.Place; e.Place {
		t.queue = append(t.queue, k)
		t.fill()
	}
}

// fill gives free places to those that have waited longest.
func (t *Table[K]) fill() {
	for len(t.queue) > 0 && (t.Max <= 0 || t.taken < t.Max) {
		t.all[t.queue[0]].awake = true
		t.queue = t.queue[1:]
		t.taken++
	}
}

// Ready reports whether calls can use a session: it is awake, and no step is under way.
func (t *Table[K]) Ready(k K) bool {
	e := t.all[k]
	return e != nil && e.awake && e.step == None
}

// Ending reports whether a session is being ended, or has been.
func (t *Table[K]) Ending(k K) bool { return t.all[k] == nil || t.all[k].step == End }

// Knows reports whether a session is in the table.
func (t *Table[K]) Knows(k K) bool { return t.all[k] != nil }

// Calls are the calls that use a session, or wait for it.
func (t *Table[K]) Calls(k K) int {
	if t.all[k] == nil {
		return 0
	}
	return t.all[k].calls
}

// Unused is how long no call has used a session; 0: one does, or none ever has.
func (t *Table[K]) Unused(k K, now time.Time) time.Duration {
	if e := t.all[k]; e != nil && e.calls == 0 && !e.left.IsZero() {
		return now.Sub(e.left)
	}
	return 0
}

// Finish ends a call. A session that waits for no other one leaves the queue.
func (t *Table[K]) Finish(k K, now time.Time) {
	e := t.all[k]
	if e == nil {
		return
	}
	if e.calls--; e.calls > 0 {
		return
	}
	e.left = now
	t.dequeue(k)
}

func (t *Table[K]) dequeue(k K) {
	t.queue = slices.DeleteFunc(t.queue, func(other K) bool { return other == k })
}

// Hurry has a session end as soon as no call uses it.
func (t *Table[K]) Hurry(k K) { t.all[k].hurried = true }

// Start decides that a step is to be taken now. It reports whether it is: Rest if the session is awake and no call uses
// it, End in any case. A step that is under way is not begun again, and nor is one that comes before it.
func (t *Table[K]) Start(k K, s Step) bool {
	e := t.all[k]
	if e == nil || s <= e.step || s == Rest && (e.calls > 0 || !e.awake) {
		return false
	}
	e.step = s
	return true
}

// Done notes that a step has been taken or, with another time than the zero one, that it was not: the session counts
// as used at that time. A session that has ended is forgotten.
func (t *Table[K]) Done(k K, s Step, kept time.Time) {
	e := t.all[k]
	if e == nil || e.step != s {
		return // another step has taken its place
	}
	e.step = None
	switch {
	case s == Rest && !kept.IsZero():
		e.refused = kept
	case s == Rest:
		if e.awake = false; e.Place {
			t.taken--
		}
		if e.calls > 0 {
			t.wake(k, e)
		}
		t.fill()
	case !kept.IsZero():
		e.left = kept
	default:
		t.Remove(k)
	}
}

// Remove forgets a session. Its place, if it has one, is free.
func (t *Table[K]) Remove(k K) {
	e := t.all[k]
	if e == nil {
		return
	}
	if t.dequeue(k); e.awake && e.Place {
		t.taken--
	}
	delete(t.all, k)
	t.fill()
}

// Due returns the steps that are due, oldest first, with a rest for each waiting session; it counts them as
// started, as Start does. Next is the time to ask again, or zero: not until something has changed.
func (t *Table[K]) Due(now time.Time) (all []Due[K], next time.Time) {
	wanted := len(t.queue)
	for _, e := range t.all {
		if e.awake && e.Place && e.step != None {
			wanted-- // its place will be free
		}
	}
	for {
		var first K
		var step Step
		for k, e := range t.all {
			if at, s := t.next(e, wanted > 0); s != None && (step == None || at.Before(next)) {
				first, next, step = k, at, s
			}
		}
		if step == None || next.After(now) {
			return all, next
		}
		e := t.all[first]
		all = append(all, Due[K]{first, step, now.Sub(e.left), e.hurried})
		if e.step, e.hurried = step, false; e.awake && e.Place {
			wanted--
		}
		next = time.Time{}
	}
}

// next returns the session's next step and its time, or None: no step until something has changed.
func (t *Table[K]) next(e *entry, placeWanted bool) (at time.Time, s Step) {
	if e.step != None || e.calls > 0 {
		return at, None
	}
	switch {
	case e.left.IsZero(): // no call has used it yet
		return at, None
	case e.hurried:
		return e.left, End
	}
	consider := func(step Step, from time.Time, after time.Duration) {
		if due := from.Add(after); s == None || due.Before(at) {
			at, s = due, step
		}
	}
	since := e.left
	if e.refused.After(since) {
		since = e.refused
	}
	if e.awake && e.Rest > 0 {
		consider(Rest, since, e.Rest)
	}
	if e.awake && e.Place && placeWanted {
		consider(Rest, since, t.Keep)
	}
	if e.End > 0 {
		consider(End, e.left, e.End)
	}
	return at, s
}

// Ahead is how many wait for a place before a session; false: it does not wait.
func (t *Table[K]) Ahead(k K) (n int, waits bool) {
	n = slices.Index(t.queue, k)
	return n, n >= 0
}

// Waiting is how many sessions wait for a place.
func (t *Table[K]) Waiting() int { return len(t.queue) }
