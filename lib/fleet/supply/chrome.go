// Package supply is where browsers come from. A Chrome is one browser, from the decision
// to launch it to its end: launched by a sibling, running already, or behind one
// connection. It is opened for sessions once for all, asked for its health, and stopped
// when it is idle. A Runner keeps one for its users: it launches it when it is needed,
// replaces it by a successor, lets the one before drain, and stops it. A Keeper keeps it
// running for those who lease it: it launches it again after failures and when it is worn out.
//
// The package knows no users: it counts who uses a browser, and not who that is, has no
// leases and no sessions of clients, and tells its owner what only that can word.
//
// If this program is killed, the sibling that holds the browser ends it: it sees the end
// of its owner's pipe, and Chrome that of its debugging pipe. A browser of another
// program goes on.
package supply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Spec says how a browser is launched, opened and watched.
type Spec struct {
	Launch func(context.Context) (*sibling.Browser, error)
	// Foreign says that another program launches and stops the browser: Launch only finds it.
	Foreign bool
	// One is the only connection to the browser; nil: there may be any number.
	One *OneConnection
	// Opened, if not nil, is called when a browser with a port has been opened for sessions. Late is the error
	// if opening takes longer than Within.
	Opened func(context.Context, *virtual.Browser)
	Within time.Duration
	Late   error
	// Bound says that the browser is opened for sessions before it is ready, and that it ends with that connection.
	Bound bool
	// Grace is how long the browser may take to end after it has closed its connection.
	Grace  time.Duration
	Health Health
	Idle   Idle
	Log    *slog.Logger

	// launched is called with the result of the launch, before Ready is closed, running after that, ending when the
	// browser is Done, and over when it has been stopped, before Gone is closed; each may be nil.
	launched              func(error)
	running, ending, over func()
}

// Configured returns a Spec with the health checks and the idle time of settings.
func Configured(s settings.Settings) Spec {
	return Spec{Idle: Idle{Timeout: s.Idle, ByConnections: s.IdleBy == settings.Connections},
		Health: Health{Interval: s.HealthInterval, Timeout: s.HealthTimeout}}
}

// Chrome is one browser; a Firefox is one, too.
type Chrome struct {
	Spec
	Browser *sibling.Browser // result of the launch once Ready is closed; nil: it has failed
	Began   time.Time        // start of the launch, once Ready is closed

	mux    *single.Mux // pipe of a browser without a port; nil: it has one
	err    error       // error of the launch
	gone   chan struct{}
	cancel context.CancelCauseFunc
	logged sync.Once // guards the log line about a launch that has failed

	// Of a Runner, under its lock:
	opts       options.Options
	revert     *options.Options // options of the next launch if this one fails; or nil
	keepUnused bool             // not cancelled without users
	exit       error            // why it has ended; nil: it is not gone

	users     // users, whose lock guards the following, too
	idleTimer wait.Timer
	byItself  bool // whether it ended without having been told to
	checks    checks
}

// Why a browser has ended.
var (
	Unused     = errors.New("nobody used it")
	ToldToStop = errors.New("it was told to stop")
	// SessionLeft is why a Firefox is stopped.
	SessionLeft = errors.New("a client left a session that cannot be ended")

	errByItself = errors.New("it ended by itself")
	errLost     = errors.New("it has closed the connection that watches it")
)

var (
	// ErrStopping is the error for a client whose browser is ending.
	ErrStopping = &exit.Error{Code: exit.TryAgain, Err: errors.New("the browser is being stopped")}
	// ErrCancelled is the error of a launch whose browser was told to end.
	ErrCancelled = &exit.Error{Code: exit.TryAgain, Err: errors.New("the launch was cancelled")}
)

// prepare returns a browser that is to be launched by run.
func prepare(s Spec) *Chrome {
	c := &Chrome{Spec: s, gone: make(chan struct{}), users: users{ready: make(chan struct{}),
		use: use{byConnections: s.Idle.ByConnections, conns: map[Conn]bool{}}}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.sessions = OpenOnce(c.ctx, s.Within, s.Late, c.open)
	return c
}

// OpenOnce returns what opens a browser for sessions: once for all who wait for it, and again if the connection is
// lost.
// The context that open gets ends after within, with the cause late.
func OpenOnce(ctx context.Context, within time.Duration, late error,
	open func(context.Context) (*virtual.Browser, error)) *wait.Starter[*virtual.Browser] {
	return &wait.Starter[*virtual.Browser]{
		Start: func() (*virtual.Browser, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, within, late)
			defer cancel()
			return open(ctx)
		},
		Gone: func(b *virtual.Browser) error {
			if wait.Closed(b.Done()) {
				return virtual.ErrBrowserEnded
			}
			return nil
		},
	}
}

// Ready is closed when the launch has succeeded or failed.
func (c *Chrome) Ready() <-chan struct{} { return c.ready }

// Err returns the error of the launch once Ready is closed.
func (c *Chrome) Err() error { return c.err }

// Failed reports whether the launch has failed and was not cancelled.
func (c *Chrome) Failed() bool { return wait.Closed(c.ready) && c.err != nil && c.err != ErrCancelled }

// state returns the state of the browser, as in a Status.
func (c *Chrome) state() string {
	launched, ending := c.WasLaunched(), c.IsEnding()
	switch {
	case wait.Closed(c.gone) || ending && !launched:
		return Stopped
	case ending:
		return Stopping
	case launched:
		return Ready
	}
	return Launching
}

// WasLaunched reports whether the launch has succeeded.
func (c *Chrome) WasLaunched() bool { return wait.Closed(c.ready) && c.err == nil }

// Context returns a context that ends when the browser is Done, for its cause.
func (c *Chrome) Context() context.Context { return c.ctx }

// Done is closed when the browser has ended or is told to; then Cause says why.
func (c *Chrome) Done() <-chan struct{} { return c.ctx.Done() }

// IsEnding reports whether the browser is ending or gone: it is not for new users.
func (c *Chrome) IsEnding() bool { return c.ctx.Err() != nil }

// Cause returns why the browser is Done.
func (c *Chrome) Cause() error { return context.Cause(c.ctx) }

// EndedByItself reports whether the browser ended without having been told to.
func (c *Chrome) EndedByItself() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byItself
}

// Gone is closed when nothing of the browser is left.
func (c *Chrome) Gone() <-chan struct{} { return c.gone }

// End starts the end of a browser, which is gone some time later. The first reason counts.
func (c *Chrome) End(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(why)
}

func (c *Chrome) endLocked(why error) {
	c.sessions.Refuse(ErrStopping)
	c.cancel(why)
}

// HasClosed reports whether a browser without a port has closed its pipe.
func (c *Chrome) HasClosed() bool { return c.mux != nil && wait.Closed(c.mux.Done()) }

// run runs a browser from its launch to its end.
func (c *Chrome) run() {
	defer close(c.gone)
	if err := c.launch(); err != nil {
		if c.err = err; c.IsEnding() {
			c.err = ErrCancelled
		}
		if c.launched != nil {
			c.launched(c.err)
		}
		c.End(err)
		close(c.ready)
		return
	}
	if c.launched != nil {
		c.launched(nil)
	}
	c.mu.Lock()
	c.use.last = time.Now()
	if c.Idle.Timeout > 0 {
		c.idleTimer.Start(c.Idle.Timeout, c.onIdle)
	}
	c.mu.Unlock()
	close(c.ready)
	if c.running != nil {
		c.running()
	}
	var checking sync.WaitGroup
	checking.Go(func() { c.checks.run(c) })
	c.awaitEnd()
	if c.ending != nil {
		c.ending()
	}
	checking.Wait()
	c.mu.Lock()
	c.idleTimer.Stop()
	c.mu.Unlock()
	for _, conn := range c.Conns() {
		conn.Close()
	}
	c.close()
	if c.over != nil {
		c.over()
	}
}

// launch launches the browser, and opens it if it is Bound.
func (c *Chrome) launch() (err error) {
	if c.Browser, err = c.Launch(c.ctx); err != nil {
		return err
	}
	if p := c.Browser.Pipe(); p != nil {
		c.mux = single.NewPipe(p.Answers, p.Commands)
	}
	if c.Bound {
		if _, err = c.Sessions(c.ctx); err != nil {
			c.close()
			return fmt.Errorf("cannot share the browser: %w", err)
		}
	}
	if c.IsEnding() {
		c.close()
		return ErrCancelled
	}
	return nil
}

// close stops the browser, and returns when it has ended.
func (c *Chrome) close() {
	if s := c.sessions.Close(ErrStopping); s != nil {
		s.Close()
	}
	if c.mux != nil {
		c.mux.Close()
	}
	c.Browser.Stop()
}

// awaitEnd returns when the browser has ended, or has been told to.
func (c *Chrome) awaitEnd() {
	var lost <-chan struct{}
	if c.Bound {
		lost = c.sessions.Running().Done()
	} else if c.mux != nil {
		lost = c.mux.Done()
	}
	select {
	case <-c.Browser.Ended():
	case <-c.ctx.Done():
		return
	case <-lost: // the browser usually ends then
		select {
		case <-c.Browser.Ended():
		case <-c.ctx.Done():
			return
		case <-time.After(c.Grace):
		}
	}
	why := errByItself
	if !wait.Closed(c.Browser.Ended()) {
		why = errLost
	} else if err := c.Browser.Err(); err != nil {
		why = err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byItself = !c.IsEnding()
	c.endLocked(why)
}

// Sessions returns the browser for sessions. It is opened once for all, and again if the
// connection is lost.
func (c *Chrome) Sessions(ctx context.Context) (*virtual.Browser, error) { return c.sessions.Get(ctx) }

// NewSession creates a session.
func (c *Chrome) NewSession(ctx context.Context, o virtual.Options) (*virtual.Session, error) {
	browser, err := c.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	return browser.NewSession(ctx, o)
}

// open opens the browser for sessions.
func (c *Chrome) open(ctx context.Context) (b *virtual.Browser, err error) {
	path := ""
	switch {
	case c.mux != nil:
		b, err = virtual.OpenOn(ctx, virtual.Over(c.mux), c.Log)
	case c.One != nil:
		b, err = c.One.open(ctx, c.Log)
	default:
		if path, err = SocketPath(ctx, c.Browser.Instance); err == nil {
			b, err = virtual.Open(ctx, "ws://"+sibling.Addr(c.Browser.Instance)+path, c.Log)
		}
	}
	switch {
	case err == nil && c.mux == nil && c.Opened != nil:
		c.Opened(ctx, b)
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return b, err
}
