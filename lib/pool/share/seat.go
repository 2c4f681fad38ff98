package share

import (
	"context"
	"sync"

	"btools/lib/virtual"
)

// Seat is the place of one lease on a Chrome: a session, and another one should
// a client close that.
type Seat struct {
	chrome *Chrome
	past   sync.WaitGroup // sessions that are not the seat's any more

	// Under the Chrome's lock:
	attempt *attempt
	used    bool // somebody has had the session
	dirty   bool // somebody has had one
	left    bool
}

// attempt is what became of a request for a session.
type attempt struct {
	ready   chan struct{} // closed when it is served
	waiter  *waiter[*virtual.Session]
	session *virtual.Session
	err     error
}

// Take takes a seat, and has this many sessions ready from then on. It does not
// wait: if no session is ready, one is made.
func (c *Chrome) Take(spares int) *Seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seats++
	c.touchLocked()
	t := &Seat{chrome: c}
	t.beginLocked()
	c.spareLocked(spares)
	return t
}

// On reports whether the seat is on this Chrome.
func (t *Seat) On(c *Chrome) bool { return t != nil && t.chrome == c }

// IsLive reports whether its Chrome is there.
func (t *Seat) IsLive() bool { return t != nil && t.chrome.IsLive() }

// beginLocked asks for a session.
func (t *Seat) beginLocked() {
	a := &attempt{ready: make(chan struct{})}
	serve := func(s *virtual.Session, err error) {
		a.session, a.err = s, err
		close(a.ready)
	}
	t.attempt, t.used = a, false
	var s *virtual.Session
	if s, a.waiter = t.chrome.stock.take(serve); a.waiter == nil {
		serve(s, nil)
	}
}

// Use returns the session for a request or a WebSocket, as soon as it is there.
// Call done at its end. The error is ErrGone, ErrLeft, the context's, or says
// why there is no session.
func (t *Seat) Use(ctx context.Context) (s *virtual.Session, done func(), err error) {
	c := t.chrome
	for fresh := false; ; fresh = true {
		a, err := t.look(fresh)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-a.ready:
		case <-c.Over():
			return nil, nil, ErrGone
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if a.err != nil {
			return nil, nil, a.err
		}
		if s := t.enter(a); s != nil {
			return s, c.leave, nil
		}
	}
}

// look is the attempt to wait for: another one if the last has failed, unless
// it was asked for just now.
func (t *Seat) look(fresh bool) (*attempt, error) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.left:
		return nil, ErrLeft
	case c.ctx.Err() != nil:
		return nil, ErrGone
	}
	select {
	case <-t.attempt.ready:
		if t.attempt.err != nil && !fresh {
			t.beginLocked()
			c.fillLocked()
		}
	default:
	}
	return t.attempt, nil
}

// enter counts the use of an attempt's session. It is nil if that has ended:
// another one takes its place.
func (t *Seat) enter(a *attempt) *virtual.Session {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.left || t.attempt != a || c.ctx.Err() != nil {
		return nil // look says what is the matter
	}
	if isOver(a.session) {
		t.past.Go(func() { c.clean(a.session) })
		t.beginLocked()
		c.fillLocked()
		return nil
	}
	t.used, t.dirty = true, true
	c.enterLocked()
	return a.session
}

// Leave gives the seat up, at once: its clients are disconnected, and its pages
// closed. This many sessions are to be ready from then on. What is returned is
// closed when none of the pages is alive; it is nil if there are none.
func (t *Seat) Leave(spares int) (gone <-chan struct{}) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.left {
		return nil
	}
	t.left = true
	c.seats--
	defer c.emptyLocked()
	if c.ctx.Err() != nil {
		return nil
	}
	if !c.retired {
		c.stock.want = max(c.stock.want, spares) // so that it may be one of them
	}
	defer c.spareLocked(spares)
	a := t.attempt
	select {
	case <-a.ready:
		switch s := a.session; {
		case s == nil:
		case t.used || isOver(s):
			t.past.Go(func() { c.clean(s) })
		case c.stock.put(s):
			c.endLocked(s)
		}
	default:
		c.stock.cancel(a.waiter)
	}
	if !t.dirty {
		return nil
	}
	cleaned := make(chan struct{})
	c.work.Go(func() {
		t.past.Wait()
		close(cleaned)
	})
	return cleaned
}
