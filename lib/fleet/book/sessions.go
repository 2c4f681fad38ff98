package book

import (
	"errors"
	"iter"
	"maps"
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
	// ErrFrozen is temporary.
	ErrFrozen = errors.New("the session is being moved to another host")
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

// Session is a session in the book, from the decision to create it until it has to end.
type Session[T any] struct {
	Key
	Traits
	Of T // what it is to the keeper of the book

	state   State
	users   int       // requests and connections that wait for it or use it
	persons int       // who have control of it: one at most, but for a moment
	left    time.Time // end of the last use
	visited bool      // a user has come since saving began
	tried   time.Time // time of the last hibernation that failed
	frozen  bool      // it has no more users until it is thawed

	// used returns when a client last sent something; nil until it has been Ready.
	used func() time.Time
}

// NewSession returns a session for Table.Add: Creating, or Asleep if it is lasting.
func NewSession[T any](k Key, t Traits, of T) *Session[T] {
	s := &Session[T]{Key: k, Traits: t, Of: of}
	if t.Lasting {
		s.state = Asleep
	}
	return s
}

// State returns what the session is doing.
func (s *Session[T]) State() State { return s.state }

// IsTaken reports whether a person has control of it.
func (s *Session[T]) IsTaken() bool { return s.persons > 0 }

// IsFrozen reports whether it has no more users.
func (s *Session[T]) IsFrozen() bool { return s.frozen }

// IsUsed reports whether a request or connection waits for it or uses it.
func (s *Session[T]) IsUsed() bool { return s.users > 0 }

// IsVisited reports whether a user has come since its saving began.
func (s *Session[T]) IsVisited() bool { return s.visited }

// LastUse returns when a client last sent something; the zero time: it has never been open.
func (s *Session[T]) LastUse() time.Time {
	if s.used == nil {
		return time.Time{}
	}
	return s.used()
}

// Table knows the sessions and when they end. Its zero value has none. It has no lock and no clock: its
// methods are called one at a time, with the time as an argument.
type Table[T any] struct {
	Policy
	sessions map[Key]*Session[T]
}

// Get returns the session with a key; nil: there is none.
func (t *Table[T]) Get(k Key) *Session[T] { return t.sessions[k] }

// All returns the sessions, in any order.
func (t *Table[T]) All() iter.Seq[*Session[T]] { return maps.Values(t.sessions) }

// Add adds a session that is Creating or Asleep.
func (t *Table[T]) Add(s *Session[T]) error {
	if s.state != Asleep && t.isFull() {
		return ErrFull
	}
	if t.sessions == nil {
		t.sessions = map[Key]*Session[T]{}
	}
	t.sessions[s.Key] = s
	return nil
}

// isFull reports whether as many sessions are awake as may be.
func (t *Table[T]) isFull() bool {
	n := 0
	for _, s := range t.sessions {
		if s.state != Asleep {
			n++
		}
	}
	return t.Max > 0 && n >= t.Max
}

// Enter counts a user of a session.
func (t *Table[T]) Enter(s *Session[T]) error {
	if s.frozen {
		return ErrFrozen
	}
	if t.MaxUsers > 0 && s.users >= t.MaxUsers {
		return ErrUsers
	}
	s.visited = true
	s.users++
	return nil
}

// Wake decides that a session that is Asleep is opened again.
func (t *Table[T]) Wake(s *Session[T]) error {
	if t.isFull() {
		return ErrFull
	}
	s.state = Waking
	return nil
}

// Opened notes that a session has been opened; used returns when a client last sent something.
func (t *Table[T]) Opened(s *Session[T], used func() time.Time) { s.state, s.used = Ready, used }

// Sleep notes that a session has no part of a browser any more, without having been hibernated: its Chrome has
// ended, or it is replaced. used is when a client last sent something; the zero time: as before.
func (t *Table[T]) Sleep(s *Session[T], used time.Time) {
	if s.state = Asleep; !used.IsZero() {
		s.used = func() time.Time { return used } // nothing of the session itself stays
	}
}

// Take notes that a person has taken over a session, which then stays as if it had a user.
func (t *Table[T]) Take(s *Session[T]) {
	s.persons++
	s.visited = true
}

// GiveBack notes that a person has given a session back.
func (t *Table[T]) GiveBack(s *Session[T], now time.Time) {
	s.persons--
	s.left = now
}

// Failed notes that a session could not be opened. It reports whether it is dropped; one
// that was asleep is so again.
func (t *Table[T]) Failed(s *Session[T]) (dropped bool) {
	if s.state == Creating {
		return t.Drop(s)
	}
	s.state = Asleep
	return false
}

// Leave notes that a user has left. If it was the last one of a session that is still
// being opened, that may have no purpose any more: it reports whether it is called off.
func (t *Table[T]) Leave(s *Session[T], now time.Time) (calledOff bool) {
	s.users--
	s.left = now
	return s.users == 0 && (s.state == Creating || s.Lasting && s.state == Waking)
}

// Drop forgets a session, so that its key is free for another. It reports
// whether the session was in the table.
func (t *Table[T]) Drop(s *Session[T]) bool {
	if !t.Has(s) {
		return false
	}
	delete(t.sessions, s.Key)
	return true
}

// Has reports whether a session is in the table.
func (t *Table[T]) Has(s *Session[T]) bool { return t.sessions[s.Key] == s }

// action is what is done with a session that nobody uses.
type action int

const (
	none action = iota
	end
	save // and then it is hibernated
)

// next returns what is done with a session if nothing happens before, and when.
func (t *Table[T]) next(s *Session[T]) (time.Time, action) {
	at, what := t.deadline(s)
	if t.Hibernate <= 0 || !s.canRest() {
		return at, what
	}
	rests := latest(s.used().Add(t.Hibernate), s.tried.Add(t.Hibernate), s.left.Add(min(Settle, t.Hibernate)))
	if what == none || rests.Before(at) {
		return rests, save
	}
	return at, what
}

// deadline returns when a session ends.
func (t *Table[T]) deadline(s *Session[T]) (time.Time, action) {
	switch {
	case s.state == Creating, s.Held, s.Kind == Named && t.Idle <= 0:
	case s.Kind == Named:
		return s.used().Add(t.Idle), end
	case s.users > 0, s.persons > 0:
	case s.Kind == Anonymous:
		return s.left.Add(t.Grace), end
	default:
		return s.left, end
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
func (s *Session[T]) canRest() bool {
	return s.state == Ready && s.users == 0 && s.persons == 0 && s.Kind == Named && !s.Profile
}

// Rest decides that a session is hibernated now, and reports whether it can be.
func (t *Table[T]) Rest(s *Session[T]) bool {
	if !s.canRest() {
		return false
	}
	s.state, s.visited = Saving, false
	return true
}

// CanFreeze reports whether nobody has used a session for a while.
func (t *Table[T]) CanFreeze(s *Session[T], now time.Time, unused time.Duration) bool {
	return s.users == 0 && s.persons == 0 && (s.state == Asleep || s.state == Ready && now.Sub(s.left) >= unused)
}

// Freeze decides that a session has no more users until Thaw, except for those that it has.
func (t *Table[T]) Freeze(s *Session[T]) { s.frozen = true }

// Thaw lets a session have users again.
func (t *Table[T]) Thaw(s *Session[T]) { s.frozen = false }

// Saved notes that what a session needs to be opened again is saved, or could
// not be. It reports whether the session is hibernated now: it is not if a user
// has come meanwhile, who may have changed it.
func (t *Table[T]) Saved(s *Session[T], ok bool, now time.Time) bool {
	if ok && s.users == 0 && !s.visited && t.Has(s) {
		s.state = Asleep
		return true
	}
	s.state, s.tried = Ready, now // the time begins anew
	return false
}

// Due returns the sessions whose time is over, which it drops, those that are to be
// hibernated, and when it has to be called again; the zero time: this is not known.
func (t *Table[T]) Due(now time.Time) (over, drowsy []*Session[T], again time.Time) {
	for _, s := range t.sessions {
		if at, what := t.deadline(s); what == end && !at.After(now) {
			t.Drop(s)
			over = append(over, s)
			continue
		}
		at, what := t.next(s)
		if what == save && !at.After(now) && t.Rest(s) {
			drowsy = append(drowsy, s)
			at, what = t.next(s)
		}
		if what != none && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	return over, drowsy, again
}
