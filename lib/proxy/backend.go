package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// backend owns the browser behind the proxy. It launches the browser on demand,
// once for all requests that wait for it.
type backend struct {
	launch func(context.Context, options.Options, string) (*sibling.Browser, error)
	owned  bool          // false: another program launches and stops it
	idle   time.Duration // time without use until it is stopped; 0: for ever
	health Health
	within time.Duration // how long the browser may take to answer the first session
	// byConnections says that open WebSockets and sessions are use.
	byConnections bool

	overlap bool           // two browsers with different profiles may run at the same time
	one     *OneConnection // to the browser; nil: there may be any number
	state   *state.Store   // the browsers of this machine; nil: not known
	log     *slog.Logger
	changed func() // called at each launch and end
	// unconnected is called when the last WebSocket of a browser has closed.
	unconnected func()
	held        func() bool // somebody has been given the browser; nil: nobody

	mu         sync.Mutex    // not held while logging, which may block
	current    *generation   // the last one, nil before the first
	next       *generation   // launched to replace current; or nil
	all        []*generation // generations that are not gone
	opts       options.Options
	typ        string // the last browser's type
	launches   int
	lastExit   error
	lastError  error
	closed     bool
	epoch      chan struct{} // closed by closeWebSockets; requests that arrived before it fail
	lastEpoch  chan struct{} // the one before, which is closed
	epochBegan time.Time
	running    sync.WaitGroup // the generations and their tunnels
}

// generation is the life of one browser, from the decision to launch it to its
// end.
type generation struct {
	opts   options.Options
	typ    string           // type of the browser before it
	after  []*generation    // must be gone before the launch
	revert *options.Options // options of the next launch if this one fails; or nil

	ready   chan struct{} // closed when the launch has succeeded or failed
	browser *sibling.Browser
	mux     *single.Mux   // to a browser without a port; nil: it has one
	err     error         // of the launch
	end     chan struct{} // closed when it has to end
	gone    chan struct{} // closed when nothing of it is left
	failed  bool          // the launch failed and was not cancelled
	logged  sync.Once     // guards the log line about the failed launch

	// Under the backend's lock:
	ending     bool  // it is ending or gone: not for new users
	why        error // it was ended for
	users      int   // requests that wait for it or are just being sent
	keepUnused bool  // launched by a command: not cancelled without users
	open       map[*tunnel]bool
	sessions   int        // that use the browser
	used       time.Time  // the last use that is over
	idle       wait.Timer // fires when the browser may be idle, if it ever may
	// shared opens the connection that sessions share, until opening ends.
	shared      *wait.Starter[*virtual.Browser]
	opening     context.Context
	stopOpening context.CancelFunc

	checked  record.Time // time of the last health check; zero: none yet
	checkErr string      // its error; "": the browser was well
}

// Errors of requests that wait for a browser.
var (
	errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the proxy is stopping")}
	errCutOff = &exit.Error{Code: exit.TryAgain,
		Err: errors.New("all connections were closed while this one waited for the browser")}
	errStopping = &exit.Error{Code: exit.TryAgain, Err: errors.New("the browser is being stopped")}
)

// acquire returns the browser's generation and launches a browser if none is
// running. The caller releases it.
func (b *backend) acquire(ctx context.Context, epoch <-chan struct{}) (*generation, error) {
	b.mu.Lock()
	g, err := b.currentLocked()
	if err != nil {
		b.mu.Unlock()
		return nil, err
	}
	g.users++
	b.mu.Unlock()
	err = b.await(ctx, g, epoch)
	if err == nil {
		return g, nil
	}
	select {
	case <-g.ready:
		if g.failed {
			b.logFailureOnce(g)
		}
	default:
	}
	return nil, err
}

// logFailureOnce logs once why a launch failed.
func (b *backend) logFailureOnce(g *generation) {
	g.logged.Do(func() { logFailure(b.log, g.err) })
}

func logFailure(log *slog.Logger, err error) {
	var e *exit.Error
	if errors.As(err, &e) && e.Hint != "" {
		log = log.With("hint", e.Hint)
	}
	log.Error("no browser: " + err.Error())
}

// currentLocked returns the generation for new users.
func (b *backend) currentLocked() (*generation, error) {
	if b.closed {
		return nil, errClosed
	}
	if b.current != nil && b.current.ending && b.next != nil {
		b.current, b.next = b.next, nil
	}
	if b.current == nil || b.current.ending {
		b.current = b.beginLocked(false)
	}
	return b.current, nil
}

// await waits for a launch on behalf of one user, until the epoch of its
// request ends.
func (b *backend) await(ctx context.Context, g *generation, epoch <-chan struct{}) error {
	var err error
	select {
	case <-epoch:
		err = errCutOff
	case <-g.ready:
		err = g.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		b.release(g)
	}
	return err
}

func (b *backend) release(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.users--
	select {
	case <-g.ready:
	default:
		if g.users == 0 && !g.keepUnused {
			b.endLocked(g, Unused) // nothing waits for it any more
		}
	}
}

// beginLocked launches another browser: next to the running one, or once all
// earlier ones are gone.
func (b *backend) beginLocked(beside bool) *generation {
	g := &generation{
		opts: b.opts, typ: b.typ, open: map[*tunnel]bool{},
		ready: make(chan struct{}), end: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, before := range b.all {
		// Two at once would fight over a profile.
		if !beside || before.opts.Profile == g.opts.Profile && g.opts.Profile != "" {
			g.after = append(g.after, before)
		}
	}
	g.opening, g.stopOpening = context.WithCancel(context.Background())
	g.shared = b.sharing(g)
	b.all = append(b.all, g)
	b.running.Go(func() { b.run(g) })
	return g
}

// endLocked starts the end of a generation, which is gone some time later.
func (b *backend) endLocked(g *generation, why error) {
	if g.ending {
		return
	}
	g.ending, g.why = true, why
	if b.next == g {
		b.next = nil
	}
	close(g.end)
}

// endAllLocked ends the browser, and the one that is about to replace it.
func (b *backend) endAllLocked() {
	if b.next != nil {
		b.endLocked(b.next, ToldToStop)
	}
	if b.current != nil {
		b.endLocked(b.current, ToldToStop)
	}
}

// remove forgets a generation once nothing of it is left.
func (b *backend) remove(g *generation) {
	b.mu.Lock()
	b.all = slices.DeleteFunc(b.all, func(o *generation) bool { return o == g })
	b.mu.Unlock()
	close(g.gone)
	b.changed()
}

// run runs a generation from its launch to its end.
func (b *backend) run(g *generation) {
	defer b.remove(g)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-g.end:
			cancel()
		case <-g.ready:
		}
	}()
	for _, before := range g.after {
		<-before.gone
	}
	g.after = nil
	began := time.Now()
	var browser *sibling.Browser
	var err error
	select {
	case <-g.end: // all users have left meanwhile
		err = context.Canceled
		cancel()
	default:
		browser, err = b.launch(ctx, g.opts, g.typ)
	}
	cancelled := err != nil && ctx.Err() != nil
	if cancelled {
		err = &exit.Error{Code: exit.TryAgain, Err: errors.New("the launch was cancelled")}
	}
	b.mu.Lock()
	g.browser, g.err, g.failed = browser, err, err != nil && !cancelled
	if err == nil && browser.Pipe() != nil {
		g.mux = single.NewPipe(browser.Pipe().Answers, browser.Pipe().Commands)
	}
	if err != nil {
		if g.failed {
			b.lastError = err
		}
		if g.revert != nil && reflect.DeepEqual(b.opts, g.opts) {
			b.opts = *g.revert // the last options known to work, or requested first
		}
		b.endLocked(g, nil)
		close(g.ready)
		alone := g.users == 0
		b.mu.Unlock()
		if g.failed && alone {
			b.logFailureOnce(g)
		}
		return
	}
	if b.next == g {
		b.next = nil
		b.endLocked(b.current, ToldToStop)
		b.current = g
	}
	if b.owned {
		b.launches++
	}
	b.lastError = nil
	var br record.Browser
	if ok, err := browser.Record.Get("browser", &br); ok && err == nil {
		b.typ = br.Type
	}
	g.used = time.Now()
	if b.idle > 0 {
		g.idle.Start(b.idle, func() { b.onIdle(g) })
	}
	close(g.ready)
	b.mu.Unlock()
	if b.owned {
		b.log.Info("launched the browser", "type", br.Type, "id", browser.Instance.ID,
			"endpoint", cmp.Or(sibling.Addr(browser.Instance), "pipe"),
			"took_ms", time.Since(began).Milliseconds())
	}
	b.changed()

	ctx, stopWatch := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(ctx, g)
	}()
	stopped := false
	select {
	case <-browser.Ended():
	case <-g.end:
		stopped = true
	case <-g.muxDone(): // the browser ends by itself then
		select {
		case <-browser.Ended():
		case <-g.end:
		case <-time.After(endDelay):
		}
	}
	stopWatch()
	<-watched
	b.mu.Lock()
	g.ending = true
	exit := g.why
	g.idle.Stop()
	b.mu.Unlock()
	b.closeTunnels(g)
	b.closeShared(g)
	if g.mux != nil {
		g.mux.Close()
	}
	browser.Stop()
	if !stopped {
		log := b.log.Info
		switch exit = browser.Err(); {
		case exit != nil:
			log = b.log.Warn
		case b.wasStopped(browser.Instance.ID):
			exit = errors.New("it was stopped by blaunch stop or a signal")
		default:
			exit = errors.New("it ended by itself")
			if b.held != nil && b.held() {
				log = b.log.Warn
			}
		}
		log("the browser ended: " + exit.Error())
	}
	if browser.Err() == nil {
		b.stopOrphan(browser, began) // its launcher may have been gone already
	}
	b.mu.Lock()
	b.lastExit = exit
	b.mu.Unlock()
}

// muxDone returns a channel that is closed when a browser without a port has closed its
// pipe.
func (g *generation) muxDone() <-chan struct{} {
	if g.mux == nil {
		return nil
	}
	return g.mux.Done()
}

// wasStopped reports whether the browser's supervisor recorded that it was told
// to stop.
func (b *backend) wasStopped(id string) bool {
	if b.state == nil || id == "" {
		return false
	}
	f, err := b.state.Read()
	return err == nil && slices.ContainsFunc(f.Exits,
		func(e state.Exit) bool { return e.ID == id && e.Reason == lifetime.Stopped.Error() })
}

// relaunch launches the browser with these options on top of the last ones. A
// running browser is replaced if the options differ, once the new one is ready
// if both can run at the same time. With force it is stopped in any case.
func (b *backend) relaunch(ctx context.Context, over options.Options, force bool) error {
	if !b.owned {
		return control.Errorf(control.NotOwned, "this proxy does not own its browser: it cannot launch or stop it")
	}
	b.mu.Lock()
	g, err := b.replaceLocked(over, force)
	if err != nil {
		b.mu.Unlock()
		return err
	}
	g.keepUnused = true
	g.users++
	b.mu.Unlock()
	if err := b.await(ctx, g, nil); err != nil {
		return err
	}
	b.release(g)
	return nil
}

// replaceLocked returns the generation that relaunch waits for.
func (b *backend) replaceLocked(over options.Options, force bool) (*generation, error) {
	if b.closed {
		return nil, errClosed
	}
	before := b.opts
	b.opts = before.With(over)
	if reflect.DeepEqual(before, b.opts) && !force {
		if b.next != nil {
			return b.next, nil
		}
		return b.currentLocked()
	}
	running := false
	if b.current != nil && !b.current.ending {
		select {
		case <-b.current.ready:
			running = true
			before = b.current.opts
		default:
		}
	}
	if b.next != nil {
		b.endLocked(b.next, ToldToStop)
	}
	var g *generation
	if running && !force && b.overlap && (before.Profile == "" || before.Profile != b.opts.Profile) {
		g = b.beginLocked(true)
		b.next = g
	} else {
		b.endAllLocked()
		g = b.beginLocked(false)
		b.current = g
	}
	g.revert = &before
	return g, nil
}

// stop stops the browser and returns when it is gone. The next user launches
// another one.
func (b *backend) stop(ctx context.Context) error {
	if !b.owned {
		return control.Errorf(control.NotOwned, "this proxy does not own its browser: it cannot launch or stop it")
	}
	b.mu.Lock()
	b.endAllLocked()
	all := slices.Clone(b.all)
	b.mu.Unlock()
	for _, g := range all {
		select {
		case <-g.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// close stops the browser for good.
func (b *backend) close() {
	b.mu.Lock()
	b.closed = true
	b.endAllLocked()
	b.mu.Unlock()
	b.running.Wait()
}
