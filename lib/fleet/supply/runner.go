package supply

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/sibling"
)

// Owner is what a Runner tells. It holds no lock then, so that an owner may log and call it.
type Owner interface {
	// Launched tells the result of a launch, before anybody gets the browser. before is the browser that it was
	// to replace while that served; nil: none.
	Launched(c, before *Chrome, err error)
	// Running tells that a browser is given to users.
	Running(c *Chrome)
	// Ending tells that a browser that was launched has ended, or is told to.
	Ending(c *Chrome)
	// Over tells that it has been stopped. It returns why it has ended.
	Over(c *Chrome) error
	// Changed tells that the Status is another one.
	Changed()
}

// Runner keeps a browser for its users: it is launched when it is needed, once for all who
// wait, replaced, and stopped. Set its fields before use, and Close it.
type Runner struct {
	// Launch launches a browser with these options; typ is the type of the browser before it, "" for the first.
	Launch func(ctx context.Context, o options.Options, typ string) (*sibling.Browser, error)
	// Spec is that of each browser, without its launch.
	Spec Spec
	// Overlap says that two browsers with different profiles may run at the same time. With Drains, one that was
	// replaced ends when its owner says so, not at once.
	Overlap, Drains bool
	Options         options.Options // options of the next launch
	Closed          error           // error of users after Close
	Owner           Owner

	mu        sync.Mutex // nothing blocks while it is held
	current   *Chrome    // for new users; nil before the first
	next      *Chrome    // launched to replace current; or nil
	all       []*Chrome  // browsers that are not gone
	typ       string     // the last browser's type
	launches  int
	lastExit  error
	lastError error
	closed    bool
	running   sync.WaitGroup
}

// States of a browser.
const (
	Stopped   = "stopped"
	Launching = "launching"
	Ready     = "ready"
	Stopping  = "stopping"
)

// Status describes a Runner.
type Status struct {
	State    string
	Current  *Chrome // the last browser; nil before the first
	Launches int
	Options  options.Options // options of the next launch
	Ending   error           // reason of a stop that goes on; nil: none
	Exit     error           // end of the last browser that is gone; nil: none
	Failure  error           // error of the last launch; nil: it has not failed
}

// Status returns the state of the current browser.
func (r *Runner) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{State: Stopped, Current: r.current, Launches: r.launches, Options: r.Options, Exit: r.lastExit,
		Failure: r.lastError}
	if c := r.current; c != nil {
		switch s.State = c.state(); {
		case s.State == Stopping:
			s.Ending = c.Cause()
		case s.State == Stopped && c.exit != nil:
			s.Exit = c.exit // not that of one that drained
		}
	}
	return s
}

// ErrCutOff is the error of Await whose channel is closed.
var ErrCutOff = &exit.Error{Code: exit.TryAgain,
	Err: errors.New("all connections were closed while this one waited for the browser")}

// Enter returns the browser for new users, which is launched if there is none, with one more
// user: the caller calls Await, and Leave if that succeeds.
func (r *Runner) Enter() (*Chrome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enterLocked()
}

func (r *Runner) enterLocked() (*Chrome, error) {
	for {
		c, err := r.currentLocked()
		if err != nil || c.Enter() {
			return c, err
		}
	}
}

// Begin launches a browser if there is none.
func (r *Runner) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, err := r.currentLocked(); err == nil {
		c.keepUnused = true
	}
}

func (r *Runner) currentLocked() (*Chrome, error) {
	if r.closed {
		return nil, r.Closed
	}
	if r.current != nil && r.current.IsEnding() && r.next != nil {
		r.current, r.next = r.next, nil
	}
	if r.current == nil || r.current.IsEnding() {
		r.current = r.beginLocked(false)
	}
	return r.current, nil
}

// Await waits for a launch on behalf of one user, until cut is closed.
func (r *Runner) Await(ctx context.Context, c *Chrome, cut <-chan struct{}) (err error) {
	select {
	case <-cut:
		err = ErrCutOff
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		r.Leave(c)
	}
	return err
}

// Leave ends what Enter began. A launch for which nobody waits any more is cancelled.
func (r *Runner) Leave(c *Chrome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Leave() && !c.keepUnused {
		r.endLocked(c, Unused)
	}
}

// beginLocked launches another browser: beside those that run, or once all that are ending
// are gone. Two at once would fight over a profile.
func (r *Runner) beginLocked(beside bool) *Chrome {
	s, opts, typ := r.Spec, r.Options, r.typ
	var after []*Chrome
	for _, b := range r.all {
		if !beside && b.IsEnding() || b.opts.Profile == opts.Profile && opts.Profile != "" {
			after = append(after, b)
		}
	}
	var c *Chrome
	s.Launch = func(ctx context.Context) (*sibling.Browser, error) {
		for _, b := range after {
			select {
			case <-b.gone:
			case <-ctx.Done(): // all users have left meanwhile
				return nil, context.Cause(ctx)
			}
		}
		c.Began = time.Now()
		return r.Launch(ctx, opts, typ)
	}
	s.launched = func(err error) { r.launched(c, err) }
	s.running = func() {
		r.Owner.Running(c)
		r.Owner.Changed()
	}
	s.ending = func() {
		r.Owner.Ending(c)
		r.Owner.Changed()
	}
	s.over = func() {
		why := r.Owner.Over(c)
		r.mu.Lock()
		r.lastExit, c.exit = why, why
		r.mu.Unlock()
	}
	c = prepare(s)
	c.opts = opts
	r.all = append(r.all, c)
	go c.run()
	r.running.Go(func() {
		<-c.gone
		r.mu.Lock()
		r.all = slices.DeleteFunc(r.all, func(o *Chrome) bool { return o == c })
		r.mu.Unlock()
		r.Owner.Changed()
		c.connected.Wait()
	})
	return c
}

// endLocked starts the end of a browser, which is gone some time later.
func (r *Runner) endLocked(c *Chrome, why error) {
	if r.next == c {
		r.next = nil
	}
	c.End(why)
}

// endAllLocked ends the browser, and the one that is about to replace it.
func (r *Runner) endAllLocked() {
	if r.next != nil {
		r.endLocked(r.next, ToldToStop)
	}
	if r.current != nil {
		r.endLocked(r.current, ToldToStop)
	}
}

// launched notes the result of a launch.
func (r *Runner) launched(c *Chrome, err error) {
	var before *Chrome
	r.mu.Lock()
	if r.next == c {
		r.next, before = nil, r.current
	}
	alone := false
	switch {
	case err != nil:
		if c.revert != nil && reflect.DeepEqual(r.Options, c.opts) {
			r.Options = *c.revert // the last options known to work, or requested first
		}
		if err != ErrCancelled {
			r.lastError = err
			alone = before == nil && c.Users() == 0
		}
	default:
		if before != nil {
			r.current = c
			if !r.Drains {
				before.End(ToldToStop)
			}
		}
		r.lastError = nil
		if !r.Spec.Foreign {
			r.launches++
		}
		if t := c.Type(); t != "" {
			r.typ = t
		}
	}
	r.mu.Unlock()
	if alone {
		c.LogFailure()
	}
	r.Owner.Launched(c, before, err)
}

// Type returns the type of the browser; "": its record does not say.
func (c *Chrome) Type() string {
	var b record.Browser
	c.Browser.Record.Get("browser", &b)
	return b.Type
}

// LogFailure logs once why the launch has failed.
func (c *Chrome) LogFailure() { c.logged.Do(func() { LogFailure(c.Log, "no browser: ", c.err) }) }

// LogFailure logs an error with its hint.
func LogFailure(log *slog.Logger, what string, err error) {
	if e, ok := errors.AsType[*exit.Error](err); ok && e.Hint != "" {
		log = log.With("hint", e.Hint)
	}
	log.Error(what + err.Error())
}

// Relaunch launches a browser with these options on top of the last ones, unless one runs with
// them. A running browser is replaced if the options differ, once the new one is ready if
// both can run at the same time. With force it is stopped in any case. A failure is returned and not logged.
func (r *Runner) Relaunch(ctx context.Context, over options.Options, force bool) error {
	r.mu.Lock()
	c, err := r.replaceLocked(over, force)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	c.keepUnused = true
	r.mu.Unlock()
	if err := r.Await(ctx, c, nil); err != nil {
		return err
	}
	r.Leave(c)
	return nil
}

// replaceLocked returns the browser that Relaunch waits for, with one more user.
func (r *Runner) replaceLocked(over options.Options, force bool) (*Chrome, error) {
	if r.closed {
		return nil, r.Closed
	}
	before := r.Options
	r.Options = before.With(over)
	if reflect.DeepEqual(before, r.Options) && !force {
		if r.next != nil && r.next.Enter() {
			return r.next, nil
		}
		return r.enterLocked()
	}
	runs := r.current != nil && !r.current.IsEnding() && r.current.WasLaunched()
	if runs {
		before = r.current.opts
	}
	if r.next != nil {
		r.endLocked(r.next, ToldToStop)
	}
	var c *Chrome
	if runs && !force && r.Overlap && (before.Profile == "" || before.Profile != r.Options.Profile) {
		c = r.beginLocked(true)
		r.next = c
	} else {
		r.endAllLocked()
		c = r.beginLocked(false)
		r.current = c
	}
	c.revert = &before
	c.Enter()
	return c, nil
}

// Replace launches a browser to replace the one that runs, which serves until the other is ready.
func (r *Runner) Replace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.current != nil && !r.current.IsEnding() && r.next == nil {
		r.next = r.beginLocked(true)
		r.next.keepUnused = true
	}
}

// Stop stops the browser and returns when it is gone. The next user launches another one.
// Others that are draining go on, unless all are to be stopped.
func (r *Runner) Stop(ctx context.Context, all bool) error {
	r.mu.Lock()
	r.endAllLocked()
	ending := slices.DeleteFunc(slices.Clone(r.all), func(c *Chrome) bool {
		if all {
			c.End(ToldToStop)
		}
		return !c.IsEnding()
	})
	r.mu.Unlock()
	for _, c := range ending {
		select {
		case <-c.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close stops all browsers for good.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Stop(context.Background(), true)
	r.running.Wait()
}
