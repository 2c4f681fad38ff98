// Package places says which of many users have one of a few places. Who comes when
// all are taken waits, first in, first out, for a place that is given up, or for one
// that its user has not used for a while and that is vacated then. It has no lock, no
// clock and no goroutine: its methods are called one at a time, with the time as an
// argument, and it returns what its caller has to do.
package places

import (
	"slices"
	"time"
)

// state is how a user stands to a place.
type state int

const (
	outside state = iota // without one, and does not want one
	waiting              // without one, in the queue
	seated               // with one
	leaving              // with one that is being vacated
)

// Table is the places and their users. Its users are known by keys.
type Table[K comparable] struct {
	Max  int           // places; 0: as many as are wanted
	Rest time.Duration // how long a place is not used until it can be vacated for another user

	users map[K]*user
	queue []K // of those that wait, the first to come first
	taken int // places, with those that are being vacated
}

type user struct {
	state  state
	uses   int       // under way, or waiting for the place
	rested time.Time // when the last one ended, or the place could not be vacated
}

// Begin begins a use of a place and reports whether the user has it. If not, the user
// waits for it until Has, or until End.
func (t *Table[K]) Begin(k K) bool {
	u := t.users[k]
	if u == nil {
		u = &user{}
		if t.users == nil {
			t.users = map[K]*user{}
		}
		t.users[k] = u
	}
	u.uses++
	if u.state == outside {
		t.enqueue(k, u)
	}
	return u.state == seated
}

// enqueue has a user wait, or gives it a free place.
func (t *Table[K]) enqueue(k K, u *user) {
	u.state = waiting
	t.queue = append(t.queue, k)
	t.fill()
}

// fill gives free places to those that have waited longest.
func (t *Table[K]) fill() {
	for len(t.queue) > 0 && (t.Max <= 0 || t.taken < t.Max) {
		t.users[t.queue[0]].state = seated
		t.queue = t.queue[1:]
		t.taken++
	}
}

// Has reports whether a user has a place that is not being vacated.
func (t *Table[K]) Has(k K) bool { return t.users[k] != nil && t.users[k].state == seated }

// Knows reports whether a user has a place or waits for one. It does not after
// Remove.
func (t *Table[K]) Knows(k K) bool { return t.users[k] != nil }

// End ends a use. A user that waits for nothing else leaves the queue.
func (t *Table[K]) End(k K, now time.Time) {
	u := t.users[k]
	if u == nil {
		return
	}
	if u.uses--; u.uses > 0 {
		return
	}
	u.rested = now
	if u.state == waiting {
		t.queue = slices.DeleteFunc(t.queue, func(other K) bool { return other == k })
		delete(t.users, k)
	}
}

// Remove forgets a user, whose place, if it has one, is free.
func (t *Table[K]) Remove(k K) {
	u := t.users[k]
	if u == nil {
		return
	}
	delete(t.users, k)
	switch u.state {
	case waiting:
		t.queue = slices.DeleteFunc(t.queue, func(other K) bool { return other == k })
	case seated, leaving:
		t.taken--
		t.fill()
	}
}

// Vacate decides that a user's place is to be vacated, and reports whether it can be:
// nobody uses it. The caller does it and calls Vacated.
func (t *Table[K]) Vacate(k K) bool {
	u := t.users[k]
	if u == nil || u.state != seated || u.uses > 0 {
		return false
	}
	u.state = leaving
	return true
}

// Vacated notes that a place is vacated, or with done false that it could not be: the
// user keeps it. A user that has been used meanwhile waits for another place.
func (t *Table[K]) Vacated(k K, done bool, now time.Time) {
	u := t.users[k]
	switch {
	case u == nil || u.state != leaving:
	case !done:
		u.state, u.rested = seated, now
	case u.uses > 0:
		t.taken--
		t.enqueue(k, u)
	default:
		t.taken--
		delete(t.users, k)
		t.fill()
	}
}

// Overdue decides which places are to be vacated for those that wait, the longest
// unused first, as Vacate does. Next is when to ask again; the zero time: when
// something has changed.
func (t *Table[K]) Overdue(now time.Time) (all []K, next time.Time) {
	wanted := len(t.queue)
	var unused []K
	for k, u := range t.users {
		switch {
		case u.state == leaving:
			wanted--
		case u.state == seated && u.uses == 0:
			unused = append(unused, k)
		}
	}
	slices.SortFunc(unused, func(a, b K) int { return t.users[a].rested.Compare(t.users[b].rested) })
	for _, k := range unused {
		due := t.users[k].rested.Add(t.Rest)
		switch {
		case wanted <= 0:
			return all, next
		case due.After(now):
			return all, due
		}
		t.users[k].state = leaving
		all = append(all, k)
		wanted--
	}
	return all, next
}

// Ahead is how many wait before a user; false: it does not wait.
func (t *Table[K]) Ahead(k K) (n int, waits bool) {
	n = slices.Index(t.queue, k)
	return n, n >= 0
}

// Waiting is how many wait.
func (t *Table[K]) Waiting() int { return len(t.queue) }
