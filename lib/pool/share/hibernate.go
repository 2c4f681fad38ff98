package share

import (
	"context"
	"fmt"
	"time"

	"btools/lib/downloads"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Hibernated is a session that was saved and ended. A seat on any Chrome can
// have it again.
type Hibernated struct {
	Saved     *virtual.Saved
	Files     *downloads.Files // its downloads; nil: it has none
	StateName string           // of the state with which it started; "": none
	Tabs      int              // that it has
}

// RestoreSeat is TakeSeat for a lease whose session was hibernated.
func (c *Chrome) RestoreSeat(spares int, from *Hibernated) *Seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeSeatLocked(spares, from)
}

// restoreLocked requests the session that was hibernated.
func (t *Seat) restoreLocked(a *sessionRequest) {
	c, from := t.chrome, t.from
	if c.ctx.Err() != nil {
		a.err = ErrGone
		close(a.ready)
		return
	}
	c.work.Go(func() {
		s, err := c.restore(from)
		c.mu.Lock()
		defer c.mu.Unlock()
		a.session, a.err = s, err
		close(a.ready)
		switch {
		case err != nil:
		case t.released:
			c.endUnusedLocked(s)
		default:
			t.from, t.restored = nil, s
			t.used, t.everUsed = true, true // no other lease may have it
		}
	})
}

// restore creates the session again. Its downloads are not Chrome's yet.
func (c *Chrome) restore(from *Hibernated) (*virtual.Session, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, sessionTimeout, fmt.Errorf("no session within %v", sessionTimeout))
	defer cancel()
	snapshot, err := from.Saved.Load()
	if err != nil {
		return nil, err
	}
	o := c.options
	o.Downloads, o.State, o.StateName, o.Tabs = from.Files, snapshot.State, from.StateName, snapshot.Tabs
	s, err := c.virtual.NewSession(ctx, o)
	if err == nil {
		return s, nil
	}
	select { // usually because Chrome has ended, which is noticed soon
	case <-c.Done():
		return nil, ErrGone
	case <-time.After(exitGrace):
		return nil, fmt.Errorf("cannot restore the hibernated session: %w", err)
	}
}

// Session returns the session that the lease has used; nil: there is none now.
func (t *Seat) Session() *virtual.Session {
	t.chrome.mu.Lock()
	defer t.chrome.mu.Unlock()
	if a := t.request; !t.released && t.used && wait.Closed(a.ready) && a.session != nil && !isOver(a.session) {
		return a.session
	}
	return nil
}

// IsRestored reports whether a session is the one that was hibernated.
func (t *Seat) IsRestored(s *virtual.Session) bool {
	if t == nil {
		return false
	}
	t.chrome.mu.Lock()
	defer t.chrome.mu.Unlock()
	return t.restored == s
}

// Keep says who closes the downloads of the seat's session, which an earlier one may
// have had: Chrome, as it does for those that it has opened, or the caller. It reports
// false if nothing has changed: Chrome has been closed, or has ended and should.
func (t *Seat) Keep(s *virtual.Session, chrome bool) bool {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || chrome && c.ctx.Err() != nil {
		return false
	}
	delete(c.files, s)
	if files := s.Downloads(); chrome && files != nil {
		c.files[s] = files
	}
	return true
}
