package sessions

import (
	"errors"
	"slices"
	"time"
)

// Kind says how long a session lives.
type Kind int

const (
	// Named sessions end after a while without traffic, even if clients are
	// connected.
	Named Kind = iota
	// Anonymous sessions end a while after their last connection has closed.
	Anonymous
	// Single sessions end with their connection.
	Single
)

// Key identifies a session: by its address, whoever connects to it.
type Key struct {
	Name string
	Kind Kind
}

// Traits are what sets a session apart from others of its kind.
type Traits struct {
	Keeps   bool // it has a running save
	Profile bool // it has the browser's own profile: it is not hibernated
	Held    bool // it ends with its holder, however long it is not used
	// Lasting says that its holder outlives its sessions: its next user gets another
	// one. It is held, too.
	Lasting bool
}

// Policy says how many sessions there may be, and what happens to those that nobody
// uses.
type Policy struct {
	// Grace is how long an anonymous session lives after its last connection,
	// Idle how long a named one lives without a client's traffic; 0: for ever.
	Grace, Idle time.Duration
	// Hibernate is how long a named session is not used until it is hibernated, once
	// no client is connected: it is saved to a file, and its part of the browser is
	// freed. Its next user gets it back. 0: never.
	Hibernate time.Duration
	Max       int // bounds the sessions that are not asleep; 0: no bound
	MaxUsers  int // bounds the requests and connections of a session; 0: no bound
}

// Why a session has no more users.
var (
	ErrFull  = errors.New("the limit of sessions is reached")
	ErrUsers = errors.New("the session has its maximum of connections")
)

// State is what a session is doing. It goes from Creating to Ready, and from there by
// Saving to Asleep and by Waking back, as often as its users come and go. A lasting one
// begins Asleep.
type State int

const (
	Creating State = iota
	Ready
	Saving // it is about to be hibernated
	Asleep // it has no part of a browser
	Waking
)

// Entry is a session in the book, from the decision to create it until it has to end.
type Entry struct {
	Key
	Traits
	state   State
	users   int       // requests and connections that wait for it or use it
	persons int       // who have control of it: one at most, but for a moment
	left    time.Time // when the last of them left
	visited bool      // a user has come since saving began
	tried   time.Time // when it could not be hibernated

	// used returns when a client last sent something; nil until it has been Ready.
	used func() time.Time

	*life
}

// table knows the sessions and when they end. It has no lock and no clock: its
// methods are called one at a time, with the time as an argument.
type table struct {
	Policy
	entries map[Key]*Entry
}

// add adds a session that is Creating or Asleep.
func (t *table) add(e *Entry) error {
	if e.state != Asleep && t.isFull() {
		return ErrFull
	}
	t.entries[e.Key] = e
	return nil
}

// isFull reports whether as many sessions are awake as may be.
func (t *table) isFull() bool {
	n := 0
	for _, e := range t.entries {
		if e.state != Asleep {
			n++
		}
	}
	return t.Max > 0 && n >= t.Max
}

// enter counts a user of a session.
func (t *table) enter(e *Entry) error {
	if t.MaxUsers > 0 && e.users >= t.MaxUsers {
		return ErrUsers
	}
	e.visited = true
	e.users++
	return nil
}

// wake decides that a session that is Asleep is opened again.
func (t *table) wake(e *Entry) error {
	if t.isFull() {
		return ErrFull
	}
	e.state = Waking
	return nil
}

// opened notes that a session has been opened.
func (t *table) opened(e *Entry, used func() time.Time) { e.state, e.used = Ready, used }

// failed notes that a session could not be opened. It reports whether it is dropped; one
// that was asleep is so again.
func (t *table) failed(e *Entry) (dropped bool) {
	if e.state == Creating {
		return t.drop(e)
	}
	e.state = Asleep
	return false
}

// leave notes that a user has left. If it was the last one of a session that is still
// being opened, that may have no purpose any more: leave reports whether it is called off.
func (t *table) leave(e *Entry, now time.Time) (calledOff bool) {
	e.users--
	e.left = now
	return e.users == 0 && (e.state == Creating || e.Lasting && e.state == Waking)
}

// drop forgets a session, so that its key is free for another. It reports
// whether the session was in the table.
func (t *table) drop(e *Entry) bool {
	if !t.has(e) {
		return false
	}
	delete(t.entries, e.Key)
	return true
}

func (t *table) has(e *Entry) bool { return t.entries[e.Key] == e }

// action is what is done with a session that nobody uses.
type action int

const (
	none action = iota
	end
	save // and then it is hibernated
)

// next returns what is done with a session if nothing happens before, and when.
func (t *table) next(e *Entry) (time.Time, action) {
	at, what := t.deadline(e)
	if t.Hibernate <= 0 || !e.canRest() {
		return at, what
	}
	rests := latest(e.used().Add(t.Hibernate), e.tried.Add(t.Hibernate), e.left.Add(min(Settle, t.Hibernate)))
	if what == none || rests.Before(at) {
		return rests, save
	}
	return at, what
}

// deadline returns when a session ends.
func (t *table) deadline(e *Entry) (time.Time, action) {
	switch {
	case e.state == Creating, e.Held, e.Kind == Named && t.Idle <= 0:
	case e.Kind == Named:
		return e.used().Add(t.Idle), end
	case e.users > 0, e.persons > 0:
	case e.Kind == Anonymous:
		return e.left.Add(t.Grace), end
	default:
		return e.left, end
	}
	return time.Time{}, none
}

// Settle is how long a session has no user before it is hibernated, however long
// it has not been used: a client that connects for each command is soon back.
const Settle = 5 * time.Second

// latest returns the last of some times.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// canRest reports whether a session can be hibernated: it is there, and nobody uses it.
func (e *Entry) canRest() bool {
	return e.state == Ready && e.users == 0 && e.persons == 0 && e.Kind == Named && !e.Profile
}

// rest decides that a session is hibernated now, and reports whether it can be.
func (t *table) rest(e *Entry) bool {
	if !e.canRest() {
		return false
	}
	e.state, e.visited = Saving, false
	return true
}

// saved notes that what a session needs to be opened again is saved, or could
// not be. It reports whether the session is hibernated now: it is not if a user
// has come meanwhile, who may have changed it.
func (t *table) saved(e *Entry, ok bool, now time.Time) bool {
	if ok && e.users == 0 && !e.visited && t.has(e) {
		e.state = Asleep
		return true
	}
	e.state, e.tried = Ready, now // the time begins anew
	return false
}

// due returns the sessions whose time is over, which it drops, those that are to be
// hibernated, and when it has to be called again; the zero time: this is not known.
func (t *table) due(now time.Time) (over, drowsy []*Entry, again time.Time) {
	for _, e := range t.entries {
		if at, what := t.deadline(e); what == end && !at.After(now) {
			t.drop(e)
			over = append(over, e)
			continue
		}
		at, what := t.next(e)
		if what == save && !at.After(now) && t.rest(e) {
			drowsy = append(drowsy, e)
			at, what = t.next(e)
		}
		if what != none && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	return over, drowsy, again
}
