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

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
)

// backend owns the browser behind the proxy. It launches the browser on demand,
// once for all requests that wait for it.
type backend struct {
	launch func(context.Context, options.Options, string) (*sibling.Browser, error)
	spec   supply.Spec    // of each browser, without its launch
	owned  bool           // false: another program launches and stops it
	one    *OneConnection // to the browser; nil: there may be any number

	overlap bool         // two browsers with different profiles may run at the same time
	state   *state.Store // the browsers of this machine; nil: not known
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

// generation is the life of one browser.
type generation struct {
	*supply.Chrome
	opts       options.Options
	revert     *options.Options // options of the next launch if this one fails; or nil
	keepUnused bool             // launched by a command: not cancelled without users
	logged     sync.Once        // guards the log line about the failed launch
}

// Errors of requests that wait for a browser.
var (
	errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the proxy is stopping")}
	errCutOff = &exit.Error{Code: exit.TryAgain,
		Err: errors.New("all connections were closed while this one waited for the browser")}
)

// acquire returns the browser's generation and launches a browser if none is
// running. The caller releases it.
func (b *backend) acquire(ctx context.Context, epoch <-chan struct{}) (*generation, error) {
	b.mu.Lock()
	g, err := b.enterLocked()
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err = b.await(ctx, g, epoch); err == nil {
		return g, nil
	}
	if g.Failed() {
		b.logFailureOnce(g)
	}
	return nil, err
}

// logFailureOnce logs once why a launch failed.
func (b *backend) logFailureOnce(g *generation) {
	g.logged.Do(func() { logFailure(b.log, g.Err()) })
}

func logFailure(log *slog.Logger, err error) {
	var e *exit.Error
	if errors.As(err, &e) && e.Hint != "" {
		log = log.With("hint", e.Hint)
	}
	log.Error("no browser: " + err.Error())
}

// enterLocked returns the generation for new users, with one more.
func (b *backend) enterLocked() (*generation, error) {
	for {
		g, err := b.currentLocked()
		if err != nil || g.Enter() {
			return g, err
		}
	}
}

// currentLocked returns the generation for new users.
func (b *backend) currentLocked() (*generation, error) {
	if b.closed {
		return nil, errClosed
	}
	if b.current != nil && b.current.IsEnding() && b.next != nil {
		b.current, b.next = b.next, nil
	}
	if b.current == nil || b.current.IsEnding() {
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
	case <-g.Ready():
		err = g.Err()
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
	if g.Leave() && !g.keepUnused {
		b.endLocked(g, Unused) // nothing waits for it any more
	}
}

// beginLocked launches another browser: next to the running one, or once all
// earlier ones are gone.
func (b *backend) beginLocked(beside bool) *generation {
	g := &generation{opts: b.opts}
	var after []*generation
	for _, before := range b.all {
		// Two at once would fight over a profile.
		if !beside || before.opts.Profile == g.opts.Profile && g.opts.Profile != "" {
			after = append(after, before)
		}
	}
	var began time.Time
	typ, s := b.typ, b.spec
	s.Launch = func(ctx context.Context) (*sibling.Browser, error) {
		for _, before := range after {
			select {
			case <-before.Gone():
			case <-ctx.Done(): // all users have left meanwhile
				return nil, context.Cause(ctx)
			}
		}
		began = time.Now()
		return b.launch(ctx, g.opts, typ)
	}
	s.Launched = func(err error) { b.launched(g, err) }
	s.Running = func() { b.logLaunch(g, began) }
	s.Over = func() { b.over(g, began) }
	g.Chrome = supply.Start(s)
	b.all = append(b.all, g)
	b.running.Go(func() {
		<-g.Done()
		if g.Cause() == Unused && g.WasLaunched() {
			b.log.Info("no " + b.useName() + " for " + b.spec.Idle.Timeout.String() + ": stopping the browser")
		}
		b.changed()
		<-g.Gone()
		b.mu.Lock()
		b.all = slices.DeleteFunc(b.all, func(o *generation) bool { return o == g })
		b.mu.Unlock()
		b.changed()
	})
	return g
}

// endLocked starts the end of a generation, which is gone some time later.
func (b *backend) endLocked(g *generation, why error) {
	if b.next == g {
		b.next = nil
	}
	g.End(why)
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

// useName names what keeps a browser from being idle.
func (b *backend) useName() string {
	if b.spec.Idle.ByConnections {
		return "WebSocket"
	}
	return "traffic"
}

// launched notes the result of a launch.
func (b *backend) launched(g *generation, err error) {
	b.mu.Lock()
	isNext := b.next == g
	if isNext {
		b.next = nil
	}
	alone := false
	switch failed := err != nil && err != supply.ErrCancelled; {
	case err != nil:
		if failed {
			b.lastError = err
		}
		if g.revert != nil && reflect.DeepEqual(b.opts, g.opts) {
			b.opts = *g.revert // the last options known to work, or requested first
		}
		alone = failed && g.Users() == 0
	default:
		if isNext {
			b.endLocked(b.current, ToldToStop)
			b.current = g
		}
		if b.owned {
			b.launches++
		}
		b.lastError = nil
		b.typ = cmp.Or(browserType(g), b.typ)
	}
	b.mu.Unlock()
	if alone {
		g.logged.Do(func() { logFailure(b.log, err) })
	}
}

// browserType returns the type of a generation's browser; "": its record does not say.
func browserType(g *generation) string {
	var br record.Browser
	g.Browser.Record.Get("browser", &br)
	return br.Type
}

func (b *backend) logLaunch(g *generation, began time.Time) {
	if b.owned {
		b.log.Info("launched the browser", "type", browserType(g), "id", g.Browser.Instance.ID,
			"endpoint", cmp.Or(sibling.Addr(g.Browser.Instance), "pipe"),
			"took_ms", time.Since(began).Milliseconds())
	}
	b.changed()
}

// over notes and logs why a browser has ended.
func (b *backend) over(g *generation, began time.Time) {
	exit := g.Cause()
	if g.EndedByItself() {
		log := b.log.Info
		switch exit = g.Browser.Err(); {
		case exit != nil:
			log = b.log.Warn
		case b.wasStopped(g.Browser.Instance.ID):
			exit = errors.New("it was stopped by blaunch stop or a signal")
		default:
			exit = errors.New("it ended by itself")
			if b.held != nil && b.held() {
				log = b.log.Warn
			}
		}
		log("the browser ended: " + exit.Error())
	}
	if g.Browser.Err() == nil {
		b.stopOrphan(g.Browser, began) // its launcher may have been gone already
	}
	b.mu.Lock()
	b.lastExit = exit
	b.mu.Unlock()
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
	b.mu.Unlock()
	if err := b.await(ctx, g, nil); err != nil {
		return err
	}
	b.release(g)
	return nil
}

// replaceLocked returns the generation that relaunch waits for, with one more user.
func (b *backend) replaceLocked(over options.Options, force bool) (*generation, error) {
	if b.closed {
		return nil, errClosed
	}
	before := b.opts
	b.opts = before.With(over)
	if reflect.DeepEqual(before, b.opts) && !force {
		if b.next != nil && b.next.Enter() {
			return b.next, nil
		}
		return b.enterLocked()
	}
	running := b.current != nil && !b.current.IsEnding() && b.current.WasLaunched()
	if running {
		before = b.current.opts
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
	g.Enter()
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
		case <-g.Gone():
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
