package sessions

import (
	"fmt"
	"time"

	"btools/lib/control"
)

// Kind is how long a session lives.
type Kind int

const (
	// Named sessions end when nobody has spoken to them for a while, whoever is
	// connected.
	Named Kind = iota
	// Anonymous sessions end a while after their last connection has closed.
	Anonymous
	// Single sessions end with their connection.
	Single
)

// Key is a session's identity: its address, whoever connects to it.
type Key struct {
	Name string
	Kind Kind
}

// CheckName refuses what is not a session's name.
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

// clip bounds what is shown of a name that is none.
func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "…"
}

// entry is a session in the table: from the decision to create it until it is
// to end.
type entry struct {
	key   Key
	users int       // requests and connections that wait for it, or use it
	left  time.Time // when the last of them has left

	// used is when a client has last spoken to it; nil while it is created.
	used func() time.Time

	*lifecycle
}

// table says which sessions there are, and until when. It has no lock and no
// clock: its methods are called one at a time, and told the time.
type table struct {
	grace, idle time.Duration // of anonymous and named ones; idle 0: for good
	max         int
	entries     map[Key]*entry
}

// enter counts a user of a session. It reports whether the session is a new
// one, which is to be created.
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

// created notes that a session is there.
func (t *table) created(e *entry, used func() time.Time) { e.used = used }

// leave notes that a user has left. A session that is still being created is
// dropped with the last one that waits for it: leave reports whether this was
// that.
func (t *table) leave(e *entry, now time.Time) (dropped bool) {
	e.users--
	e.left = now
	return e.users == 0 && e.used == nil && t.drop(e)
}

// drop forgets a session: its key is free for another. It reports whether the
// session was there.
func (t *table) drop(e *entry) bool {
	if t.entries[e.key] != e {
		return false
	}
	delete(t.entries, e.key)
	return true
}

// deadline is when a session is to end if nothing happens; false: it is not known.
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

// expire drops the sessions whose time is over and returns them, and when that
// will be so of another one; false: nobody knows.
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
