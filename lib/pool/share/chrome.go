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
)

const (
	openBound  = 30 * time.Second // to connect to a Chrome that was launched
	makeBound  = 30 * time.Second // to make a session
	cleanBound = 5 * time.Second  // to close the pages of one
	dying      = time.Second      // for the end of Chrome to be seen
)

// Why a seat has no session.
var (
	ErrGone = errors.New("the browser has ended")
	ErrLeft = errors.New("the lease has ended")
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
	fault   chan error
	idled   chan struct{}
	empty   chan struct{}
	closing sync.Once

	mu      sync.Mutex // nothing waits under it
	stock   stock[*virtual.Session]
	seats   int // that are taken
	open    int // requests and WebSockets
	quiet   *time.Timer
	retired bool
}

// Open takes over a Chrome that was launched, which is stopped on an error.
// Idle is how long it may be without a WebSocket, 0 for good.
func Open(ctx context.Context, b *launcher.Browser, idle time.Duration, log *slog.Logger) (*Chrome, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openBound, fmt.Errorf("no answer within %v", openBound))
	defer cancel()
	shared, err := virtual.Open(opening, b.Instance.WSURL, log)
	if err != nil {
		b.Stop()
		return nil, fmt.Errorf("cannot share the browser: %w", err)
	}
	c := &Chrome{
		Browser: b, virtual: shared, idle: idle, log: log,
		fault: make(chan error, 1), idled: make(chan struct{}), empty: make(chan struct{}),
	}
	c.stock.dead = isOver
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.work.Go(c.watch)
	if idle > 0 {
		c.quiet = time.AfterFunc(idle, c.quietFor)
	}
	return c, nil
}

func isOver(s *virtual.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// watch notes the end of Chrome.
func (c *Chrome) watch() {
	select {
	case <-c.Browser.Ended():
	case <-c.virtual.Done():
		// As a rule it ends; it is of no use if it does not.
		select {
		case <-c.Browser.Ended():
		case <-time.After(dying):
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

// Over is closed when Chrome has ended, or has been closed; Why says why then.
func (c *Chrome) Over() <-chan struct{} { return c.ctx.Done() }

// Why is why it is over.
func (c *Chrome) Why() error { return context.Cause(c.ctx) }

// Idled is closed when no WebSocket has been open for the time that was given.
func (c *Chrome) Idled() <-chan struct{} { return c.idled }

// Empty is closed when it is retired and the last seat has been left.
func (c *Chrome) Empty() <-chan struct{} { return c.empty }

// Fault tells of a session that does not end: another Chrome is needed.
func (c *Chrome) Fault() <-chan error { return c.fault }

// Close ends all sessions and stops Chrome. It returns when that is gone.
func (c *Chrome) Close() { c.closing.Do(c.close) }

func (c *Chrome) close() {
	c.cancel(ErrGone)
	c.virtual.Close()
	c.Browser.Stop()
	c.mu.Lock() // whoever has seen it live begins no more work after this
	if c.quiet != nil {
		c.quiet.Stop()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// Spare has this many sessions ready that nobody has yet.
func (c *Chrome) Spare(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spareLocked(n)
}

func (c *Chrome) spareLocked(n int) {
	if c.retired {
		n = 0
	}
	for _, s := range c.stock.setWant(n) {
		c.endLocked(s)
	}
	c.fillLocked()
}

// Retry has spares made again that could not be made.
func (c *Chrome) Retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.again()
	c.fillLocked()
}

// Retire has no more spares made: Empty is closed when the last seat is left.
func (c *Chrome) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.spareLocked(0)
	c.emptyLocked()
}

func (c *Chrome) emptyLocked() {
	if !c.retired || c.seats > 0 {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
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
		c.work.Go(c.make)
	}
}

func (c *Chrome) make() {
	ctx, cancel := context.WithTimeoutCause(c.ctx, makeBound, fmt.Errorf("no session within %v", makeBound))
	defer cancel()
	s, err := c.virtual.NewSession(ctx, virtual.Options{})
	if err != nil {
		select { // as a rule because it has ended, which is seen in a moment
		case <-c.Over():
		case <-time.After(dying):
		}
	}
	c.mu.Lock()
	if err != nil {
		c.stock.failed(fmt.Errorf("cannot make a session: %w", err))
	} else if c.stock.made(s) {
		c.endLocked(s)
	}
	c.fillLocked()
	c.mu.Unlock()
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn("cannot make a session: " + err.Error())
	}
}

// endLocked ends a session that nobody has used.
func (c *Chrome) endLocked(s *virtual.Session) {
	if c.ctx.Err() == nil {
		c.work.Go(func() { c.clean(s) })
	}
}

// clean ends a session, and returns when none of its pages is alive.
func (c *Chrome) clean(s *virtual.Session) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, cleanBound, fmt.Errorf("its pages are still there after %v", cleanBound))
	defer cancel()
	if err := s.End(ctx); err != nil && c.ctx.Err() == nil {
		select {
		case c.fault <- fmt.Errorf("cannot end a session: %w", err):
		default:
		}
	}
}

// enterLocked counts a request or a WebSocket.
func (c *Chrome) enterLocked() {
	c.open++
	if c.quiet != nil {
		c.quiet.Stop()
	}
}

func (c *Chrome) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.touchLocked()
}

// touchLocked has the time without a WebSocket begin anew.
func (c *Chrome) touchLocked() {
	if c.quiet != nil && c.open == 0 && c.ctx.Err() == nil {
		c.quiet.Reset(c.idle)
	}
}

func (c *Chrome) quietFor() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.idled:
	default:
		if c.open == 0 {
			close(c.idled)
		}
	}
}
