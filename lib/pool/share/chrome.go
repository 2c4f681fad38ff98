// Package share is one Chrome that the leases of several instances share. Each
// has a seat: a session, which is fresh, and which nobody else has after it.
// Sessions are made before anybody wants them.
package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"btools/lib/launcher"
	"btools/lib/virtual"
	"btools/lib/wait"
)

const (
	openTimeout    = 30 * time.Second // to connect to a Chrome that was launched
	sessionTimeout = 30 * time.Second // to make a session
	endTimeout     = 5 * time.Second  // to close the pages of one
	exitGrace      = time.Second      // for the end of Chrome to be seen
)

// Why a seat has no session.
var (
	ErrGone     = errors.New("the browser has ended")
	ErrReleased = errors.New("the lease has ended")
)

// Chrome is a Chrome that is shared. It is over when Chrome ends, or when it is
// closed.
type Chrome struct {
	Browser *launcher.Browser

	virtual *virtual.Browser
	idle    time.Duration // without a WebSocket; 0: for good
	log     *slog.Logger
	ctx     context.Context // its life; the cause of the end says why
	cancel  context.CancelCauseFunc
	work    sync.WaitGroup
	faults  chan error
	idled   chan struct{}
	drained chan struct{}
	closing sync.Once

	mu        sync.Mutex // nothing waits under it
	stock     stock[*virtual.Session]
	seats     int // that are taken
	requests  int // requests and WebSockets
	idleTimer *time.Timer
	draining  bool
}

// Open takes over a Chrome that was launched, which is stopped on an error.
// Idle is how long it may be without a WebSocket, 0 for good.
func Open(ctx context.Context, b *launcher.Browser, idle time.Duration, log *slog.Logger) (*Chrome, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	shared, err := virtual.Open(opening, b.Instance.WSURL, log)
	if err != nil {
		b.Stop()
		return nil, fmt.Errorf("cannot share the browser: %w", err)
	}
	c := &Chrome{
		Browser: b, virtual: shared, idle: idle, log: log,
		faults: make(chan error, 1), idled: make(chan struct{}), drained: make(chan struct{}),
	}
	c.stock.isDead = isOver
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.work.Go(c.watch)
	if idle > 0 {
		c.idleTimer = time.AfterFunc(idle, c.idleTimeout)
	}
	return c, nil
}

func isOver(s *virtual.Session) bool { return wait.Closed(s.Done()) }

// watch notes the end of Chrome.
func (c *Chrome) watch() {
	select {
	case <-c.Browser.Ended():
	case <-c.virtual.Done():
		// As a rule it ends; it is of no use if it does not.
		select {
		case <-c.Browser.Ended():
		case <-time.After(exitGrace):
		case <-c.ctx.Done():
		}
	case <-c.ctx.Done():
		return
	}
	why := errors.New("it ended by itself")
	select {
	case <-c.Browser.Ended():
		if err := c.Browser.Err(); err != nil {
			why = err
		}
	default:
		why = errors.New("it has closed the connection that watches it")
	}
	c.cancel(why)
}

// IsLive reports whether there is such a Chrome, and it is not over.
func (c *Chrome) IsLive() bool { return c != nil && c.ctx.Err() == nil }

// Done is closed when Chrome has ended, or has been closed; Err says why then.
func (c *Chrome) Done() <-chan struct{} { return c.ctx.Done() }

// Err is why it is over.
func (c *Chrome) Err() error { return context.Cause(c.ctx) }

// Idled is closed when no WebSocket has been open for the time that was given.
func (c *Chrome) Idled() <-chan struct{} { return c.idled }

// Drained is closed when it is draining and the last seat has been left.
func (c *Chrome) Drained() <-chan struct{} { return c.drained }

// Faults tells of a session that does not end: another Chrome is needed.
func (c *Chrome) Faults() <-chan error { return c.faults }

// Close ends all sessions and stops Chrome. It returns when that is gone.
func (c *Chrome) Close() { c.closing.Do(c.close) }

func (c *Chrome) close() {
	c.cancel(ErrGone)
	c.virtual.Close()
	c.Browser.Stop()
	c.mu.Lock() // whoever has seen it live begins no more work after this
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// SetSpares has this many sessions ready that nobody has yet.
func (c *Chrome) SetSpares(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setSparesLocked(n)
}

func (c *Chrome) setSparesLocked(n int) {
	if c.draining {
		n = 0
	}
	for _, s := range c.stock.setTarget(n) {
		c.endUnusedLocked(s)
	}
	c.fillLocked()
}

// RetrySpares has spares made again that could not be made.
func (c *Chrome) RetrySpares() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.retry()
	c.fillLocked()
}

// Drain has no more spares made: Drained is closed when the last seat is left.
func (c *Chrome) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.setSparesLocked(0)
	c.checkDrainedLocked()
}

func (c *Chrome) checkDrainedLocked() {
	if !c.draining || c.seats > 0 {
		return
	}
	select {
	case <-c.drained:
	default:
		close(c.drained)
	}
}

// Sessions counts those that are leased, and those that are ready.
func (c *Chrome) Sessions() (seats, spares int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seats, len(c.stock.spares)
}

// fillLocked has sessions made for whoever waits, and to be spares.
func (c *Chrome) fillLocked() {
	if c.ctx.Err() != nil {
		return
	}
	for range c.stock.start() {
		c.work.Go(c.makeSession)
	}
}

func (c *Chrome) makeSession() {
	ctx, cancel := context.WithTimeoutCause(c.ctx, sessionTimeout, fmt.Errorf("no session within %v", sessionTimeout))
	defer cancel()
	s, err := c.virtual.NewSession(ctx, virtual.Options{})
	if err != nil {
		select { // as a rule because it has ended, which is seen in a moment
		case <-c.Done():
		case <-time.After(exitGrace):
		}
	}
	c.mu.Lock()
	if err != nil {
		c.stock.failed(fmt.Errorf("cannot make a session: %w", err))
	} else if c.stock.made(s) {
		c.endUnusedLocked(s)
	}
	c.fillLocked()
	c.mu.Unlock()
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn("cannot make a session: " + err.Error())
	}
}

// endUnusedLocked ends a session that nobody has used.
func (c *Chrome) endUnusedLocked(s *virtual.Session) {
	if c.ctx.Err() == nil {
		c.work.Go(func() { c.endSession(s) })
	}
}

// endSession ends a session, and returns when none of its pages is alive.
func (c *Chrome) endSession(s *virtual.Session) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, endTimeout,
		fmt.Errorf("its pages are still there after %v", endTimeout))
	defer cancel()
	if err := s.End(ctx); err != nil && c.ctx.Err() == nil {
		select {
		case c.faults <- fmt.Errorf("cannot end a session: %w", err):
		default:
		}
	}
}

// beginRequestLocked counts a request or a WebSocket.
func (c *Chrome) beginRequestLocked() {
	c.requests++
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
}

func (c *Chrome) endRequest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests--
	c.resetIdleLocked()
}

// resetIdleLocked has the time without a WebSocket begin anew.
func (c *Chrome) resetIdleLocked() {
	if c.idleTimer != nil && c.requests == 0 && c.ctx.Err() == nil {
		c.idleTimer.Reset(c.idle)
	}
}

func (c *Chrome) idleTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.idled:
	default:
		if c.requests == 0 {
			close(c.idled)
		}
	}
}
