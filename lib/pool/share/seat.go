package share

import (
	"context"
	"fmt"
	"time"

	"btools/lib/downloads"
	"btools/lib/virtual"
)

// Seat is the place of a lease on a Chrome, which ends with its last one if it is
// draining.
type Seat struct {
	chrome *Chrome

	// Protected by the Chrome's lock:
	ahead    bool // a session is made for it in advance
	released bool
}

// Session is a session on a seat, which is released at its end.
type Session struct {
	*virtual.Session
	seat *Seat
}

// TakeSeat takes a seat and sets the number of spare sessions. With ahead, a session is
// made for the seat, unless there is a spare one.
func (c *Chrome) TakeSeat(ahead bool, spares int) *Seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seats++
	c.NoteUse()
	if ahead {
		c.ahead++
	}
	c.setSparesLocked(spares)
	return &Seat{chrome: c, ahead: ahead}
}

// On reports whether the seat is on this Chrome.
func (t *Seat) On(c *Chrome) bool { return t != nil && t.chrome == c }

// IsLive reports whether sessions can be opened on the seat.
func (t *Seat) IsLive() bool {
	if t == nil {
		return false
	}
	t.chrome.mu.Lock()
	defer t.chrome.mu.Unlock()
	return !t.released && t.chrome.IsLive()
}

// Release gives up the seat and sets the number of spare sessions.
func (t *Seat) Release(spares int) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	t.releaseLocked()
	c.setSparesLocked(spares)
}

func (t *Seat) releaseLocked() {
	if t.released {
		return
	}
	t.released = true
	t.chrome.seats--
	t.sitLocked()
	t.chrome.checkDrainedLocked()
}

// sitLocked notes that no session is needed in advance any more.
func (t *Seat) sitLocked() {
	if t.ahead {
		t.ahead = false
		t.chrome.ahead--
		t.chrome.stock.Lower()
	}
}

// Open opens a session, with what was saved and its downloads unless from is nil. The
// error is ErrGone, the context's cause, or says why there is no session. If it returns
// one, the seat can be used again.
func (t *Seat) Open(ctx context.Context, from *virtual.Saved, files *downloads.Files, state string) (*Session, error) {
	c := t.chrome
	if !c.Enter() { // one that waits for its session needs the browser, too
		return nil, ErrGone
	}
	defer c.Leave()
	s, err := (*virtual.Session)(nil), error(nil)
	if from == nil {
		s, err = t.take(ctx)
	} else {
		s, err = c.restore(ctx, from, files, state)
	}
	if err != nil {
		return nil, err
	}
	return &Session{s, t}, nil
}

// take takes a spare session, or waits until another one is made.
func (t *Seat) take(ctx context.Context) (*virtual.Session, error) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	t.sitLocked()
	for c.stock.Wait(); ; {
		if s, err, ok := c.stock.Take(); ok {
			c.fillLocked()
			return s, err
		}
		c.fillLocked()
		made := c.made.Next()
		c.mu.Unlock()
		err := ErrGone
		select {
		case <-made:
			err = nil
		case <-c.Done():
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.mu.Lock()
		if err != nil {
			c.stock.Leave()
			c.setSparesLocked(c.spares)
			return nil, err
		}
	}
}

// restore creates a session again that was saved.
func (c *Chrome) restore(
	ctx context.Context, from *virtual.Saved, files *downloads.Files, state string,
) (*virtual.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTimeout, fmt.Errorf("no session within %v", sessionTimeout))
	defer cancel()
	snapshot, err := from.Load()
	if err != nil {
		return nil, err
	}
	o := c.options
	o.Files, o.Login, o.State, o.Tabs = files, snapshot.State, state, snapshot.Tabs
	o.Emulated = snapshot.Emulated
	s, err := c.NewSession(ctx, o)
	if err == nil {
		return s, nil
	}
	select { // usually because Chrome has ended, which is noticed soon
	case <-c.Done():
		return nil, ErrGone
	case <-ctx.Done():
	case <-time.After(exitGrace):
	}
	return nil, fmt.Errorf("cannot restore the hibernated session: %w", err)
}

// Use counts a request or WebSocket of the session; call done when it ends.
func (s *Session) Use() (done func()) {
	s.seat.chrome.Hold()
	return s.seat.chrome.Release
}

// End ends the session, waits until its pages are closed, and releases its seat.
func (s *Session) End(ctx context.Context) error {
	c := s.seat.chrome
	err := c.end(ctx, s.Session)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.seat.releaseLocked()
	return err
}
