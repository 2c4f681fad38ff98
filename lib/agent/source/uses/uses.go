// Package uses says which of many sessions calls use, and what becomes of those that no call uses. One is given up in
// steps, each when its time has come: its children are stopped, its place is vacated for one that waits, and it ends. A
// call that comes during a step waits until that is over. There may be fewer places than sessions: a session that needs
// one when all are taken waits, first in, first out. The package has no lock, no clock and no goroutine: the methods of
// a table are called one at a time, with the time as an argument, and return what the caller has to do.
package uses

import (
	"slices"
	"time"
)

// Step is what is done with a session that no call uses.
type Step int

const (
	None     Step = iota
	Children      // its children are stopped
	Vacate        // its place is vacated for another session
	End           // it ends
)

// Rules say when a session is given up.
type Rules struct {
	// Children and End are how long no call uses it until these steps; 0: they are not taken by themselves.
	Children, End time.Duration
	Place         bool // it needs a place for its calls
}

// Table is the sessions and the places for them. Sessions are known by keys.
type Table[K comparable] struct {
	Max  int           // places; 0: as many as are wanted
	Rest time.Duration // how long no call uses a place until it can be vacated for another session

	all   map[K]*entry
	queue []K // of those that wait for a place, the first to come first
	taken int // places, with those that are being vacated
}

// place is how a session stands to a place.
type place int

const (
	outside place = iota // without one, and does not want one
	waiting              // without one, in the queue
	seated               // with one
)

type entry struct {
	Rules
	place     place
	step      Step // that is under way
	calls     int  // that use it, or wait for it
	rested    time.Time
	refused   time.Time // when its children or its place were kept last
	childless bool      // its children have been stopped since it was used
	hurried   bool      // it ends as soon as no call uses it
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
	e.calls++
	if e.Place && e.place == outside {
		t.enqueue(k, e)
	}
}

// enqueue has a session wait, or gives it a free place.
func (t *Table[K]) enqueue(k K, e *entry) {
	e.place = waiting
	t.queue = append(t.queue, k)
	t.fill()
}

// fill gives free places to those that have waited longest.
func (t *Table[K]) fill() {
	for len(t.queue) > 0 && (t.Max <= 0 || t.taken < t.Max) {
		t.all[t.queue[0]].place = seated
		t.queue = t.queue[1:]
		t.taken++
	}
}

// Ready reports whether calls can use a session: it has its place, and no step is under way.
func (t *Table[K]) Ready(k K) bool {
	e := t.all[k]
	return e != nil && e.step == None && (!e.Place || e.place == seated)
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
	if e := t.all[k]; e != nil && e.calls == 0 && !e.rested.IsZero() {
		return now.Sub(e.rested)
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
	e.rested, e.childless = now, false
	if e.place == waiting {
		e.place = outside
		t.dequeue(k)
	}
}

func (t *Table[K]) dequeue(k K) {
	t.queue = slices.DeleteFunc(t.queue, func(other K) bool { return other == k })
}

// Hurry has a session end as soon as no call uses it.
func (t *Table[K]) Hurry(k K) { t.all[k].hurried = true }

// Start decides that a step is to be taken now. It reports whether it is: Vacate if the session has a place that no
// call uses, End in any case. A step that is under way is not begun again, and nor is one that comes before it.
func (t *Table[K]) Start(k K, s Step) bool {
	e := t.all[k]
	if e == nil || s <= e.step || s != End && e.calls > 0 || s == Vacate && e.place != seated {
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
	if e.step = None; !kept.IsZero() {
		if s == End {
			e.rested, e.childless = kept, false
		} else {
			e.refused = kept
		}
		return
	}
	switch s {
	case Children:
		e.childless = true
	case Vacate:
		t.taken--
		if e.place = outside; e.calls > 0 {
			t.enqueue(k, e)
		} else {
			t.fill()
		}
	case End:
		t.Remove(k)
	}
}

// Remove forgets a session. Its place, if it has one, is free.
func (t *Table[K]) Remove(k K) {
	e := t.all[k]
	if e == nil {
		return
	}
	switch e.place {
	case waiting:
		t.dequeue(k)
	case seated:
		t.taken--
	}
	delete(t.all, k)
	t.fill()
}

// Due returns the steps that are due, oldest first, and vacates one place for each waiting session; it counts them as
// started, as Start does. Next is the time to ask again, or zero: not until something has changed.
func (t *Table[K]) Due(now time.Time) (all []Due[K], next time.Time) {
	wanted := len(t.queue)
	for _, e := range t.all {
		if e.place == seated && e.step >= Vacate {
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
		all = append(all, Due[K]{first, step, now.Sub(e.rested), e.hurried})
		if e.step, e.hurried = step, false; e.place == seated && step >= Vacate {
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
	case e.rested.IsZero(): // no call has used it yet
		return at, None
	case e.hurried:
		return e.rested, End
	}
	consider := func(step Step, from time.Time, after time.Duration) {
		if due := from.Add(after); s == None || due.Before(at) {
			at, s = due, step
		}
	}
	since := e.rested
	if e.refused.After(since) {
		since = e.refused
	}
	if e.Children > 0 && !e.childless {
		consider(Children, since, e.Children)
	}
	if placeWanted && e.place == seated {
		consider(Vacate, since, t.Rest)
	}
	if e.End > 0 {
		consider(End, e.rested, e.End)
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
