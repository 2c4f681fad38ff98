package share

import (
	"context"
	"sync"
	"time"

	"btools/lib/forward"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Seat gives one lease a session on a Chrome, and another one if a client
// closes that.
type Seat struct {
	chrome      *Chrome
	oldSessions sync.WaitGroup // sessions that the seat no longer uses

	// Protected by the Chrome's lock:
	request  *sessionRequest
	used     bool // the current session has been used
	everUsed bool // any session has been used
	released bool
	from     *Hibernated      // its session is to be restored from this; nil: it is a new one
	restored *virtual.Session // the one that was
}

// sessionRequest is a request for a session and its result.
type sessionRequest struct {
	ready   chan struct{} // closed when the request is served
	waiter  *waiter[*virtual.Session]
	session *virtual.Session
	err     error
}

// TakeSeat takes a seat and sets the number of spare sessions. It does not
// wait: if no session is ready, one is made.
func (c *Chrome) TakeSeat(spares int) *Seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeSeatLocked(spares, nil)
}

func (c *Chrome) takeSeatLocked(spares int, from *Hibernated) *Seat {
	c.seats++
	c.used = time.Now()
	t := &Seat{chrome: c, from: from}
	t.requestLocked()
	c.setSparesLocked(spares)
	return t
}

// On reports whether the seat is on this Chrome.
func (t *Seat) On(c *Chrome) bool { return t != nil && t.chrome == c }

// IsLive reports whether its Chrome is running.
func (t *Seat) IsLive() bool { return t != nil && t.chrome.IsLive() }

// requestLocked requests a session.
func (t *Seat) requestLocked() {
	a := &sessionRequest{ready: make(chan struct{})}
	serve := func(s *virtual.Session, err error) {
		a.session, a.err = s, err
		close(a.ready)
	}
	t.request, t.used = a, false
	if t.from != nil {
		t.restoreLocked(a)
		return
	}
	var s *virtual.Session
	if s, a.waiter = t.chrome.stock.take(serve); a.waiter == nil {
		serve(s, nil)
	}
}

// Proxy returns the state of the proxy of the session; nil: there is none.
func (t *Seat) Proxy() *forward.Status {
	t.chrome.mu.Lock()
	a := t.request
	t.chrome.mu.Unlock()
	if !wait.Closed(a.ready) || a.session == nil {
		return nil
	}
	return a.session.Stats().Proxy
}

// Use waits for the session and returns it for a request or a WebSocket. Call
// done when that ends. The error is ErrGone, ErrReleased, the context's cause,
// or says why there is no session.
func (t *Seat) Use(ctx context.Context) (s *virtual.Session, done func(), err error) {
	c := t.chrome
	c.beginRequest() // one that waits for its session needs the browser, too
	defer func() {
		c.endWait()
		if err != nil {
			c.endRequest()
		}
	}()
	for fresh := false; ; fresh = true {
		a, err := t.currentRequest(fresh)
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-a.ready:
		case <-c.Done():
			return nil, nil, ErrGone
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if a.err != nil {
			return nil, nil, a.err
		}
		if s := t.beginUse(a); s != nil {
			return s, c.endRequest, nil
		}
	}
}

// currentRequest returns the request to wait for: a new one if the last failed,
// unless that was made just now.
func (t *Seat) currentRequest(fresh bool) (*sessionRequest, error) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.released:
		return nil, ErrReleased
	case c.ctx.Err() != nil:
		return nil, ErrGone
	}
	select {
	case <-t.request.ready:
		if t.request.err != nil && !fresh {
			t.requestLocked()
			c.fillLocked()
		}
	default:
	}
	return t.request, nil
}

// beginUse notes a use of the session. It returns nil if the session has ended,
// and requests another.
func (t *Seat) beginUse(a *sessionRequest) *virtual.Session {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.released || t.request != a || c.ctx.Err() != nil {
		return nil // currentRequest returns the reason
	}
	if isOver(a.session) {
		t.oldSessions.Go(func() { c.endSession(a.session) })
		t.requestLocked()
		c.fillLocked()
		return nil
	}
	t.used, t.everUsed = true, true
	return a.session
}

// Release gives up the seat, disconnects its clients, closes its pages, and
// sets the number of spare sessions. The channel is closed when all pages are;
// it is nil if there are none.
func (t *Seat) Release(spares int) (pagesClosed <-chan struct{}) {
	c := t.chrome
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.released {
		return nil
	}
	t.released = true
	c.seats--
	defer c.checkDrainedLocked()
	if c.ctx.Err() != nil {
		return nil
	}
	if !c.draining {
		c.stock.target = max(c.stock.target, spares) // so that this session can become a spare
	}
	defer c.setSparesLocked(spares)
	a := t.request
	select {
	case <-a.ready:
		switch s := a.session; {
		case s == nil:
		case t.used || isOver(s):
			t.oldSessions.Go(func() { c.endSession(s) })
		case c.stock.put(s):
			c.endUnusedLocked(s)
		}
	default:
		c.stock.cancel(a.waiter)
	}
	if !t.everUsed {
		return nil
	}
	cleaned := make(chan struct{})
	c.work.Go(func() {
		t.oldSessions.Wait()
		close(cleaned)
	})
	return cleaned
}
