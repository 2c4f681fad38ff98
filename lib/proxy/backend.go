package proxy

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/life"
	"btools/lib/record"
	"btools/lib/state"
)

// backend is the browser behind the proxy: launched when somebody needs it,
// by one launch however many wait for it.
type backend struct {
	launch  func(context.Context, options.Options, string) (*launcher.Browser, error)
	owned   bool          // false: somebody else launches and stops it
	idle    time.Duration // without a WebSocket, until it is stopped; 0: never
	health  Health
	overlap bool         // two browsers may run at once, with different profiles
	state   *state.Store // what runs on this machine; nil: not known
	log     *slog.Logger
	changed func() // told of every launch and end

	mu        sync.Mutex    // nothing is logged under it: a log may block
	current   *generation   // the last one, nil before the first
	next      *generation   // launched while cur runs, to take its place; or nil
	all       []*generation // that are not gone
	opts      options.Options
	typ       string // the last browser's type
	launches  int
	lastExit  error
	lastError string
	closed    bool
	epoch     chan struct{}  // closed by cutOff: what came before does not go on
	running   sync.WaitGroup // the generations and their tunnels
}

// generation is the life of one browser: from the decision to launch it to
// its end.
type generation struct {
	opts   options.Options
	typ    string           // of the browser before it
	after  []*generation    // that must be gone before it is launched
	revert *options.Options // to be launched with next if these fail; or nil

	ready   chan struct{} // closed when it is launched, or has failed to
	browser *launcher.Browser
	err     error         // of the launch
	end     chan struct{} // closed: it is to end
	gone    chan struct{} // closed when nothing of it is left
	failed  bool          // the launch has, and was not cancelled
	logged  sync.Once     // why that is

	// Under the backend's lock:
	ending     bool  // it is ending, or gone: not for new users
	why        error // it was ended
	users      int   // who wait for it, or just now use it
	keepUnused bool  // launched on demand of nobody who waits
	open       map[*tunnel]bool
	sessions   int // by sessions
	idle       *time.Timer
	// shared is the browser as sessions share it, nil before the first.
	shared *shared

	checked  record.Time // when it was last asked how it is; zero: not yet
	checkErr string      // "": it was well
}

// What those that wait for a browser may get in its place.
var (
	errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the proxy is stopping")}
	errCutOff = &exit.Error{Code: exit.TryAgain,
		Err: errors.New("all connections were closed while this one waited for the browser")}
	errStopping = &exit.Error{Code: exit.TryAgain, Err: errors.New("the browser is being stopped")}
)

// acquire returns the browser's generation, launched if need be; release it.
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

// logFailureOnce logs why a launch has failed, once.
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

// currentLocked is the generation for new users.
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

// await waits for a launch, as one of its users, until its epoch is over.
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
			b.endLocked(g, Unused) // nobody waits for it any more
		}
	}
}

// beginLocked has another browser launched: beside one that runs, or when all
// before it are gone.
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
	b.all = append(b.all, g)
	b.running.Go(func() { b.run(g) })
	return g
}

// endLocked has a generation end; it is gone a while later.
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

// endAllLocked ends the browser, and one that is to take its place.
func (b *backend) endAllLocked() {
	if b.next != nil {
		b.endLocked(b.next, ToldToStop)
	}
	if b.current != nil {
		b.endLocked(b.current, ToldToStop)
	}
}

// remove notes that nothing of a generation is left.
func (b *backend) remove(g *generation) {
	b.mu.Lock()
	b.all = slices.DeleteFunc(b.all, func(o *generation) bool { return o == g })
	b.mu.Unlock()
	close(g.gone)
	b.changed()
}

// run is a generation's life.
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
	var browser *launcher.Browser
	var err error
	select {
	case <-g.end: // meanwhile everybody has left
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
	if err != nil {
		if g.failed {
			b.lastError = err.Error()
		}
		if g.revert != nil && reflect.DeepEqual(b.opts, g.opts) {
			b.opts = *g.revert // those are known to work, or were asked for first
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
	b.lastError = ""
	var br record.Browser
	if ok, err := browser.Record.Get("browser", &br); ok && err == nil {
		b.typ = br.Type
	}
	if b.idle > 0 {
		g.idle = time.AfterFunc(b.idle, func() { b.onIdle(g) })
	}
	close(g.ready)
	b.mu.Unlock()
	if b.owned {
		b.log.Info("launched the browser", "type", br.Type, "id", browser.Instance.ID,
			"endpoint", launcher.Addr(browser.Instance), "took", time.Since(began).Round(time.Millisecond))
	}
	b.changed()

	ctx, stopWatch := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		b.watch(ctx, g)
	}()
	asked := false
	select {
	case <-browser.Ended():
	case <-g.end:
		asked = true
	}
	stopWatch()
	<-watched
	b.mu.Lock()
	g.ending = true
	exit := g.why
	if g.idle != nil {
		g.idle.Stop()
	}
	b.mu.Unlock()
	b.closeTunnels(g)
	b.closeShared(g)
	browser.Stop()
	if !asked {
		switch exit = browser.Err(); {
		case exit != nil:
		case b.wasStopped(browser.Instance.ID):
			exit = errors.New("it was stopped by blaunch stop or a signal")
		default:
			exit = errors.New("it ended by itself")
		}
		b.log.Info("the browser ended: " + exit.Error())
	}
	if browser.Err() == nil {
		b.stopOrphan(browser, began) // its launcher may have been gone when it was to be told
	}
	b.mu.Lock()
	b.lastExit = exit
	b.mu.Unlock()
}

// wasStopped reports whether the browser's own supervisor says that it was told
// to stop.
func (b *backend) wasStopped(id string) bool {
	if b.state == nil || id == "" {
		return false
	}
	f, err := b.state.Read()
	return err == nil && slices.ContainsFunc(f.Exits,
		func(e state.Exit) bool { return e.ID == id && e.Reason == life.Stopped.Error() })
}

// relaunch launches the browser with these options over the last ones. One
// that runs is replaced if the options differ: when the new one is there, if
// both may run at once. If force says so, it is stopped regardless.
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

// replaceLocked is the generation that relaunch waits for.
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
