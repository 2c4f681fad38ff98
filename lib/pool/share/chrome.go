// Package share lets the leases of several instances share one Chrome. Each
// lease has a seat, on which it opens sessions that are fresh and that no later lease
// gets. Spare sessions are made in advance.
package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/wait"
)

const (
	openTimeout    = 30 * time.Second // to connect to a Chrome that was launched
	sessionTimeout = 30 * time.Second // to create a session
	endTimeout     = 5 * time.Second  // to close the pages of a spare session
	exitGrace      = time.Second      // until the end of Chrome is noticed
)

// ErrGone is why there is no session on a seat: another Chrome is needed.
var ErrGone = errors.New("the browser has ended")

// Chrome is a Chrome that is shared. It is done when Chrome ends or Close is
// called.
type Chrome struct {
	Browser *sibling.Browser

	mux     *single.Mux // nil: Chrome has a port
	virtual *virtual.Browser
	options virtual.Options // of its sessions
	// openFiles, if not nil, opens the downloads of a session.
	openFiles func() (*downloads.Files, error)
	idle      Idle
	log       *slog.Logger
	ctx       context.Context // ends with Chrome; its cause says why
	cancel    context.CancelCauseFunc
	work      sync.WaitGroup
	faults    chan error
	idled     chan struct{}
	drained   chan struct{}
	closing   sync.Once

	mu        sync.Mutex // nothing blocks while it is held
	stock     book.Stock[*virtual.Session]
	made      wait.Broadcast // a session was made, or could not be
	spares    int            // how many there are to be
	ahead     int            // how many more, for seats on which none has been opened
	seats     int            // taken ones
	requests  int            // including WebSockets
	waiting   int            // of them, those that have no session yet
	used      time.Time      // the last use that the sessions do not know
	idleTimer wait.Timer
	draining  bool
}

// Idle says when a Chrome is idle.
type Idle struct {
	Timeout       time.Duration // without use; 0: never
	ByConnections bool          // each open WebSocket is use, not only what clients send and downloads
}

// Open takes over a Chrome that was launched; if it returns an error, it has
// stopped it. Its sessions have these options, and the downloads that openFiles
// opens, unless it is nil. Idled is closed when it is idle.
func Open(ctx context.Context, b *sibling.Browser, o virtual.Options, openFiles func() (*downloads.Files, error),
	idle Idle, log *slog.Logger,
) (*Chrome, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	var mux *single.Mux
	var shared *virtual.Browser
	var err error
	if p := b.Pipe(); p != nil {
		mux = single.NewPipe(p.Answers, p.Commands)
		shared, err = virtual.OpenOn(opening, virtual.Over(mux), log)
	} else {
		shared, err = virtual.Open(opening, b.Instance.WSURL, log)
	}
	if err != nil {
		closeMux(mux)
		b.Stop()
		return nil, fmt.Errorf("cannot share the browser: %w", err)
	}
	c := &Chrome{
		Browser: b, mux: mux, virtual: shared, options: o, openFiles: openFiles,
		idle: idle, log: log,
		faults: make(chan error, 1), idled: make(chan struct{}), drained: make(chan struct{}),
	}
	c.stock.IsDead = isOver
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.work.Go(c.watch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if idle.Timeout > 0 {
		c.idleTimer.Start(idle.Timeout, c.idleTimeout)
	}
	return c, nil
}

func closeMux(m *single.Mux) {
	if m != nil {
		m.Close()
	}
}

// Mux returns the connection to a Chrome without a port; nil: it has one.
func (c *Chrome) Mux() *single.Mux { return c.mux }

func isOver(s *virtual.Session) bool { return wait.Closed(s.Done()) }

// watch notices the end of Chrome.
func (c *Chrome) watch() {
	select {
	case <-c.Browser.Ended():
	case <-c.virtual.Done():
		// Chrome usually exits then. If it does not, it is useless.
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

// IsLive reports whether Chrome is running; a nil Chrome is not.
func (c *Chrome) IsLive() bool { return c != nil && c.ctx.Err() == nil }

// Done is closed when Chrome has ended or was closed; then Err says why.
func (c *Chrome) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns why Chrome is done.
func (c *Chrome) Err() error { return context.Cause(c.ctx) }

// Idled is closed when Chrome has been idle for the time given to Open.
func (c *Chrome) Idled() <-chan struct{} { return c.idled }

// Drained is closed when Chrome is draining and its last seat has been
// released.
func (c *Chrome) Drained() <-chan struct{} { return c.drained }

// Faults reports sessions that could not be ended, so that Chrome must be
// replaced.
func (c *Chrome) Faults() <-chan error { return c.faults }

// Close ends all sessions, stops Chrome, and waits for its end.
func (c *Chrome) Close() { c.closing.Do(c.close) }

func (c *Chrome) close() {
	c.cancel(ErrGone)
	c.virtual.Close()
	closeMux(c.mux)
	c.Browser.Stop()
	c.mu.Lock() // after this, nobody who saw it live starts more work
	c.idleTimer.Stop()
	c.mu.Unlock()
	c.work.Wait()
	c.SetSpares(0)
}

// SetSpares sets the number of spare sessions to keep ready.
func (c *Chrome) SetSpares(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setSparesLocked(n)
}

func (c *Chrome) setSparesLocked(n int) {
	if c.spares = n; c.draining {
		c.spares = 0
	}
	for _, s := range c.stock.SetTarget(c.spares + c.ahead) {
		c.endUnusedLocked(s)
	}
	c.fillLocked()
}

// RetrySpares resumes making spare sessions after a failure.
func (c *Chrome) RetrySpares() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.Retry()
	c.fillLocked()
}

// Drain makes no more spare sessions; Drained is closed when the last seat is
// released.
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

// Sessions returns the numbers of leased and of spare sessions.
func (c *Chrome) Sessions() (seats, spares int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seats, c.stock.Len()
}

// fillLocked starts to make the sessions that requests and spares need.
func (c *Chrome) fillLocked() {
	if c.ctx.Err() != nil {
		return
	}
	for range c.stock.Start() {
		c.work.Go(c.makeSession)
	}
}

func (c *Chrome) makeSession() {
	ctx, cancel := context.WithTimeoutCause(c.ctx, sessionTimeout, fmt.Errorf("no session within %v", sessionTimeout))
	defer cancel()
	s, err := c.newSession(ctx)
	if err != nil {
		select { // usually because Chrome has ended, which is noticed soon
		case <-c.Done():
		case <-time.After(exitGrace):
		}
	}
	c.mu.Lock()
	if err != nil {
		c.stock.Failed(fmt.Errorf("cannot make a session: %w", err))
	} else if c.stock.Made(s) {
		c.endUnusedLocked(s)
	}
	c.made.Wake()
	c.fillLocked()
	c.mu.Unlock()
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn("cannot make a session: " + err.Error())
	}
}

// newSession creates a session with a directory for its downloads.
func (c *Chrome) newSession(ctx context.Context) (*virtual.Session, error) {
	o := c.options
	if c.openFiles == nil {
		return c.virtual.NewSession(ctx, o)
	}
	files, err := c.openFiles()
	if err != nil {
		return nil, err
	}
	o.Files = files
	s, err := c.virtual.NewSession(ctx, o)
	if err != nil {
		files.Close() // what cannot be deleted goes with the program
	}
	return s, err
}

// closeFiles deletes the downloads of a session that was never used.
func (c *Chrome) closeFiles(s *virtual.Session) {
	if files := s.Downloads(); files != nil {
		if err := files.Close(); err != nil {
			c.log.Warn("cannot delete the downloads of a session: " + err.Error()) // they go with the program
		}
	}
}

// endUnusedLocked ends a session that was never used.
func (c *Chrome) endUnusedLocked(s *virtual.Session) {
	if c.ctx.Err() != nil {
		c.closeFiles(s)
		return
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, endTimeout)
		defer cancel()
		c.end(ctx, s)
		c.closeFiles(s)
	})
}

// end ends a session and waits until its pages are closed.
func (c *Chrome) end(ctx context.Context, s *virtual.Session) error {
	err := s.End(ctx)
	if err != nil && c.ctx.Err() == nil {
		select {
		case c.faults <- fmt.Errorf("cannot end a session: its pages are still there after %v", endTimeout):
		default:
		}
	}
	return err
}

// use counts a request or WebSocket; call done when it ends.
func (c *Chrome) use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	return c.endRequest
}

func (c *Chrome) endRequest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests--
	if c.idle.ByConnections {
		c.used = time.Now()
	}
}

// lastUseLocked returns when Chrome was used last; now, while it is in use.
func (c *Chrome) lastUseLocked() time.Time {
	if c.waiting > 0 || c.idle.ByConnections && c.requests > 0 {
		return time.Now()
	}
	if used := c.virtual.Used(); !c.idle.ByConnections && used.After(c.used) {
		return used
	}
	return c.used
}

// idleTimeout closes idled if Chrome has not been used for the idle time, or
// schedules the next check.
func (c *Chrome) idleTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	if left := c.idle.Timeout - time.Since(c.lastUseLocked()); left > 0 {
		c.idleTimer.Reset(left)
		return
	}
	close(c.idled)
}
