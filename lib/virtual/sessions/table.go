package sessions

import (
	"fmt"
	"time"

	"btools/lib/control"
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

// entry is a session in the table, from the decision to create it until it has
// to end.
type entry struct {
	key   Key
	users int       // requests and connections that wait for it or use it
	left  time.Time // when the last user left

	// used returns when a client last sent something; nil while it is created.
	used func() time.Time

	*lifecycle
}

// table knows the sessions and when they end. It has no lock and no clock: its
// methods are called one at a time, with the time as an argument.
type table struct {
	grace, idle time.Duration // of anonymous and named sessions; idle 0: for ever
	max         int
	entries     map[Key]*entry
}

// enter counts a user of a session. It reports whether the session is new and
// has to be created.
func (t *table) enter(k Key) (e *entry, created bool, err error) {
	e = t.entries[k]
	if e == nil {
		if len(t.entries) >= t.max {
			e := control.Errorf(control.SessionLimit, "there are already %s, as many as --max-sessions allows",
				count(len(t.entries)))
			e.Hint = "bproxy session list shows them, and bproxy session end NAME ends one"
			return nil, false, e
		}
		e, created = &entry{key: k, lifecycle: &lifecycle{}}, true
		t.entries[k] = e
	}
	e.users++
	return e, created, nil
}

func count(n int) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}

// created notes that a session has been created.
func (t *table) created(e *entry, used func() time.Time) { e.used = used }

// leave notes that a user has left. The last user that leaves a session still
// being created drops it; leave reports whether that happened.
func (t *table) leave(e *entry, now time.Time) (dropped bool) {
	e.users--
	e.left = now
	return e.users == 0 && e.used == nil && t.drop(e)
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
	case e.used == nil:
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

// expire drops the sessions whose time is over and returns them, and the time
// when the next one expires; false: this is not known.
func (t *table) expire(now time.Time) (ended []*entry, next time.Time, ok bool) {
	for _, e := range t.entries {
		at, known := t.deadline(e)
		switch {
		case !known:
		case !at.After(now):
			t.drop(e)
			ended = append(ended, e)
		case !ok || at.Before(next):
			next, ok = at, true
		}
	}
	return ended, next, ok
}
