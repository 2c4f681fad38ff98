package sessions

import (
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/spell"
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

// CheckName returns an error for an invalid session name.
func CheckName(name string) error {
	ok := 1 <= len(name) && len(name) <= maxName && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if ok {
		return nil
	}
	return control.Errorf(control.BadRequest,
		"%q is not a session name: use 1 to %d letters, digits, \".\", \"_\" and \"-\", but not \".\" or \"..\"",
		clip(name), maxName)
}

const maxName = 64

// clip shortens an invalid name for a message.
func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "…"
}

// state is what a session is doing. It goes from creating to ready, and from there by
// saving to asleep and by waking back, as often as its users come and go.
type state int

const (
	creating state = iota
	ready
	saving // it is about to be hibernated
	asleep // it is hibernated
	waking
)

// entry is a session in the table, from the decision to create it until it has
// to end.
type entry struct {
	key       Key
	state     state
	users     int       // requests and connections that wait for it or use it
	left      time.Time // when the last user left
	visited   bool      // a user has come since saving began
	tried     time.Time // when it could not be hibernated
	held      bool      // it ends with its holder, however long it is not used
	isProfile bool      // it has the browser's own profile

	// used returns when a client last sent something; nil while it is creating.
	used func() time.Time

	*lifecycle
}

// table knows the sessions and when they end. It has no lock and no clock: its
// methods are called one at a time, with the time as an argument.
type table struct {
	grace, idle time.Duration // of anonymous and named sessions; idle 0: for ever
	hibernate   time.Duration // of named sessions that are not used; 0: never
	max         int           // sessions that are not hibernated
	entries     map[Key]*entry
}

// enter counts a user of a session. It reports whether the session has to be
// created: it is new, or hibernated until now.
func (t *table) enter(k Key) (e *entry, create bool, err error) {
	e = t.entries[k]
	if create = e == nil || e.state == asleep; create {
		if n := t.awake(); n >= t.max {
			e := control.Errorf(control.SessionLimit, "there are already %s, as many as --max-sessions allows",
				spell.Count(n, "session"))
			e.Hint = "bproxy session list shows them, and bproxy session end NAME ends one"
			return nil, false, e
		}
	}
	switch {
	case e == nil:
		e = &entry{key: k, lifecycle: &lifecycle{}}
		t.entries[k] = e
	case create:
		e.state = waking
	}
	e.visited = true
	e.users++
	return e, create, nil
}

// awake returns the number of sessions that are not hibernated.
func (t *table) awake() (n int) {
	for _, e := range t.entries {
		if e.state != asleep {
			n++
		}
	}
	return n
}

// created notes that a session has been created.
func (t *table) created(e *entry, used func() time.Time) { e.state, e.used = ready, used }

// leave notes that a user has left. The last user that leaves a session still
// being created drops it; leave reports whether that happened.
func (t *table) leave(e *entry, now time.Time) (dropped bool) {
	e.users--
	e.left = now
	return e.users == 0 && e.state == creating && t.drop(e)
}

// drop forgets a session, so that its key is free for another. It reports
// whether the session was in the table.
func (t *table) drop(e *entry) bool {
	if t.entries[e.key] != e {
		return false
	}
	delete(t.entries, e.key)
	return true
}

// deadline returns when a session ends if nothing happens; false: this is not
// known.
func (t *table) deadline(e *entry) (time.Time, bool) {
	switch {
	case e.state == creating, e.held:
		return time.Time{}, false
	case e.key.Kind == Named:
		return e.used().Add(t.idle), t.idle > 0
	case e.users > 0:
		return time.Time{}, false
	case e.key.Kind == Anonymous:
		return e.left.Add(t.grace), true
	}
	return e.left, true
}

// Settle is how long a session has no user before it is hibernated, however long
// it has not been used: a client that connects for each command is soon back.
const Settle = 5 * time.Second

// drowsy returns when a session is to be hibernated if nobody uses it before;
// false: never.
func (t *table) drowsy(e *entry) (time.Time, bool) {
	if t.hibernate <= 0 || !e.canRest() {
		return time.Time{}, false
	}
	return latest(e.used().Add(t.hibernate), e.tried.Add(t.hibernate), e.left.Add(min(Settle, t.hibernate))), true
}

// canRest reports whether a session can be hibernated: it is there, and nobody uses it.
func (e *entry) canRest() bool {
	return e.state == ready && e.users == 0 && e.key.Kind == Named && !e.isProfile
}

// free decides that a session is hibernated now, and reports whether it can be.
func (t *table) free(e *entry) bool {
	if !e.canRest() {
		return false
	}
	e.state, e.visited = saving, false
	return true
}

// latest returns the last of some times.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// saved notes that what a session needs to be created again is saved, or could
// not be. It reports whether the session is hibernated now: it is not if a user
// has come meanwhile, who may have changed it, or if its Chrome has ended.
func (t *table) saved(e *entry, ok bool, now time.Time) bool {
	if e.state != saving {
		return false
	}
	if ok && e.users == 0 && !e.visited && t.entries[e.key] == e {
		e.state = asleep
		return true
	}
	e.state, e.tried = ready, now // the time begins anew
	return false
}

// failed notes that a session could not be created. It reports whether it is one
// that was hibernated, as it is again.
func (t *table) failed(e *entry) bool {
	if e.state == creating {
		t.drop(e)
		return false
	}
	e.state = asleep
	return t.entries[e.key] == e
}

// expire drops the sessions whose time is over and returns them, and those that
// are to be hibernated, and the time when it has to be called again; false: this
// is not known.
func (t *table) expire(now time.Time) (ended, drowsy []*entry, next time.Time, ok bool) {
	later := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	for _, e := range t.entries {
		if at, known := t.deadline(e); known && !at.After(now) {
			t.drop(e)
			ended = append(ended, e)
			continue
		} else if known {
			later(at)
		}
		if at, known := t.drowsy(e); known && !at.After(now) && t.free(e) {
			drowsy = append(drowsy, e)
		} else if known {
			later(at)
		}
	}
	return ended, drowsy, next, ok
}
