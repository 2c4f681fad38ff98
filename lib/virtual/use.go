package virtual

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/virtual/policy"
	"btools/lib/wait"
)

// A session is used while it begins, by a command of a client, from its arrival until Chrome has answered it, by a
// request for /json, by a download of its own, and while a person has control. What a page does by itself is no use,
// and neither is an open connection: clients keep theirs for days.

// Used returns when the session was used last; now, while it is in use.
func (s *Session) Used() time.Time {
	if s.isBusy() {
		return time.Now()
	}
	return time.Unix(0, s.used.Load())
}

// Touch notes that a client uses the session.
func (s *Session) Touch() { s.used.Store(time.Now().UnixNano()) }

// isBusy reports whether a client waits for an answer, or a download runs.
func (s *Session) isBusy() bool {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	return s.isBusyLocked()
}

func (s *Session) isBusyLocked() bool {
	if !s.life.begun || s.lock.closed.Load() {
		return true
	}
	for k := range s.clients.all {
		if k.person == nil && (k.unanswered.any() || k.calls.Pending() > 0) {
			return true
		}
	}
	for _, d := range s.downloads.all {
		if d.owned {
			return true
		}
	}
	return false
}

// Used returns when any session was used last, including those that have ended;
// now, while one is in use. It is the zero time if there has been none.
func (b *Browser) Used() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.used
	for s := range b.sessions {
		if s.isBusyLocked() {
			return time.Now()
		}
		if t := time.Unix(0, s.used.Load()); t.After(last) {
			last = t
		}
	}
	return last
}

// unanswered are the commands of a client that have no answer, relayed or not.
type unanswered struct {
	mu  sync.Mutex
	ids map[int]asked // by their ids
	// inputs is how many of them are inputs, which pages have had when they are answered.
	inputs   int
	answered wait.Broadcast // one of these
}

type asked struct {
	session string // of CDP
	sent    bool   // to Chrome, or is being done
	isInput bool
}

// add notes a command, which has been sent or waits.
func (u *unanswered) add(c policy.Command, sent bool) {
	id, err := strconv.Atoi(string(c.ID))
	if err != nil {
		return // it is refused at once
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[int]asked{}
	}
	if len(u.ids) < maxPending { // of more, it does not matter how many are left
		u.dropLocked(id)
		isInput := sent && strings.HasPrefix(c.Method, inputs)
		u.ids[id] = asked{c.Session, sent && !strings.HasPrefix(c.Method, "Btools."), isInput}
		if isInput {
			u.inputs++
		}
	}
}

// drop notes an answer. It reports whether the command had been noted.
func (u *unanswered) drop(id int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dropLocked(id)
}

func (u *unanswered) dropLocked(id int) bool {
	c, ok := u.ids[id]
	delete(u.ids, id)
	if c.isInput {
		u.inputs--
		u.answered.Wake()
	}
	return ok
}

// dropSession forgets the commands on a CDP session that has ended: Chrome does not answer them.
func (u *unanswered) dropSession(session string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, c := range u.ids {
		if c.session == session {
			u.dropLocked(id)
		}
	}
}

// takeSent takes out the commands that are under way.
func (u *unanswered) takeSent() map[int]asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	sent := map[int]asked{}
	for id, c := range u.ids {
		if c.sent {
			sent[id] = c
			u.dropLocked(id)
		}
	}
	return sent
}

func (u *unanswered) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.ids) > 0
}
