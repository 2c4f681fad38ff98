package supply

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"btools/lib/launch/options"
	"btools/lib/proc"
)

// Keeping is what a Keeper tells its owner. The owner's lock is held.
type Keeping interface {
	// StartingLocked tells that a browser is about to be launched.
	StartingLocked()
	// BegunLocked tells that a browser was launched, now, or will be once it is used.
	BegunLocked(now bool)
	// EndedLocked tells why a browser has ended that has not failed. It returns the cause if another one
	// replaces it.
	EndedLocked(why error) Cause
	// FailedLocked tells that there is no browser, with the start of a sentence about the error of the Check,
	// and what comes next.
	FailedLocked(what, next string)
	// ReviewLocked returns what to do in this state of the browser, and whether that is over then.
	ReviewLocked(state string) (act func(), over bool)
	// IsWantedLocked reports whether somebody waits for a browser.
	IsWantedLocked() bool
}

// Keeper keeps the browser of a Runner running: it launches one after another, again after a failure and at the latest
// when one is wanted, and counts what wears it out. Set its fields before Run.
type Keeper struct {
	Runner *Runner
	Owner  Keeping
	lock   sync.Locker // lock of the owner, which guards what is not set before Run
	// Eager says that the first browser is launched before its first use, and Follows the same of one that replaces
	// another.
	Eager, Follows bool
	// Left, if not nil, ends the use of a browser that had joined and has left.
	Left func(why string)
	// Started is called once the first browser is ready, has failed, or waits for its first use.
	Started func()
	Remote  bool // the processes of the browsers are not of this system
	Wear    Wear
	Log     *slog.Logger

	Uses         int     // uses of this browser, for Wear
	Memory       int64   // memory of the browsers at the latest measurement, in bytes; 0: not known
	Replace      Grounds // reason to replace the browser when nobody uses it; zero: none
	ForceReplace bool    // whether it is replaced even if it is used
	Check        Checked
	Retry        Retry // schedule after a failure
	Cause        Cause // cause of the end of the browser before

	wakeup     chan struct{}
	began      time.Time // start of the last launch
	launches   int       // browsers that watch has seen launched
	launchedAt time.Time // launch of the current browser
	measured   time.Time // time of Memory
	weighed    *Chrome   // browser that was measured then
	hadBrowser bool      // whether a browser has run before, so that the next one counts as a restart
	isChecked  bool      // whether there is a browser, whose health is checked
}

// Checked is the result of the latest health check.
type Checked struct {
	At         time.Time
	Responsive bool
	Err        string
}

// EndedPrefix begins the error for a browser that exited.
const EndedPrefix = "the browser ended: "

// NewKeeper returns a Keeper with its owner's lock; its other fields are to be set.
func NewKeeper(lock sync.Locker) *Keeper { return &Keeper{lock: lock, wakeup: make(chan struct{}, 1)} }

// Wake makes the Keeper look at its browser again.
func (k *Keeper) Wake() {
	select {
	case k.wakeup <- struct{}{}:
	default:
	}
}

// ending is why a browser has ended.
type ending int

const (
	crashed  ending = iota // it exited or did not answer
	replaced               // another browser is to replace it
	idled                  // it was unused; the next connection launches another one
)

// Run keeps a browser running until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	for launch := k.Eager; ctx.Err() == nil; {
		why := k.runBrowser(ctx, launch)
		if why == crashed {
			k.waitForRetry(ctx)
		}
		k.lock.Lock()
		if why != crashed {
			k.Retry.Reset()
		}
		k.hadBrowser = k.hadBrowser && why != idled
		k.lock.Unlock()
		// One that waited for its first use has shown that it must be retried.
		launch = why == crashed || why == replaced && (k.Eager || k.Follows)
	}
}

// runBrowser runs one browser, launched now or once it is used, and returns why
// it has ended.
func (k *Keeper) runBrowser(ctx context.Context, now bool) ending {
	k.lock.Lock()
	why := k.Replace
	fresh := why != None || k.ForceReplace // the holder's connection may have launched one meanwhile
	switch {
	case k.ForceReplace:
		k.Cause = Asked
	case fresh:
		k.Cause = why.Cause
	}
	k.Replace, k.ForceReplace, k.Memory = None, false, 0
	if now {
		k.Owner.StartingLocked()
	}
	k.lock.Unlock()
	if why.Text != "" {
		k.Log.Info("replacing the browser, which " + why.Text)
	}
	k.began = time.Now()
	err := k.launch(ctx, now, fresh)
	if err == nil {
		k.Started()
		return k.watch(ctx, now)
	}
	if ctx.Err() == nil {
		LogFailure(k.Log, "no browser: ", err)
		k.fail("", err)
		k.Started()
	}
	return crashed
}

// launch launches a browser, or leaves that to its first use. If it must be fresh, it takes the place of the current
// one.
func (k *Keeper) launch(ctx context.Context, now, fresh bool) (err error) {
	if k.Left != nil {
		k.lock.Lock()
		k.Check = Checked{} // of the last one
		k.lock.Unlock()
		k.Started() // nobody knows when a browser joins
	}
	if now {
		err = k.Runner.Relaunch(ctx, options.Options{}, fresh)
	} else if fresh {
		err = k.Runner.Stop(ctx, false)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	k.Owner.BegunLocked(now)
	return nil
}

// watch watches a browser until it has ended. running says whether it runs
// already.
func (k *Keeper) watch(ctx context.Context, running bool) ending {
	for {
		st := k.Runner.Status()
		running = running || st.State == Ready || st.Launches > k.launches // which has ended again
		k.launches = st.Launches
		k.lock.Lock()
		k.hadBrowser = k.hadBrowser || running
		k.lock.Unlock()
		why := st.Ending
		if st.State == Stopped {
			why = cmp.Or(st.Exit, ToldToStop)
		}
		hung, isHung := errors.AsType[*HangError](why)
		switch {
		case st.State == Ready:
		case running && isHung:
			k.fail(Hang, hung.Err)
			k.Runner.Stop(ctx, false)
			if k.Left != nil {
				k.Left(hung.Err.Error())
			}
			return crashed
		case st.State != Stopped:
		case !running && st.Failure == nil: // it waits for its first use
		case running && (why == Unused || why == ToldToStop || why == SessionLeft):
			k.lock.Lock()
			defer k.lock.Unlock()
			if by := k.Owner.EndedLocked(why); by != "" {
				k.Cause = by
				return replaced // not by this function
			}
			return idled
		case running && k.Left != nil && st.Failure == nil:
			k.Left(why.Error())
			k.lock.Lock()
			defer k.lock.Unlock()
			k.Cause = Asked
			return replaced // by the next one that joins
		case st.Failure != nil:
			k.fail("", st.Failure)
			return crashed
		default:
			k.fail(Crash, errors.New(EndedPrefix+why.Error()))
			return crashed
		}
		k.lock.Lock()
		if isReady := st.State == Ready; isReady != k.isChecked {
			k.isChecked, k.Check.At = isReady, time.Now()
		}
		act, over := k.Owner.ReviewLocked(st.State)
		k.lock.Unlock()
		if act != nil {
			act()
		}
		if over {
			return replaced
		}
		select {
		case <-ctx.Done():
			return crashed
		case <-k.wakeup:
		}
	}
}

// fail records that the browser ended by a crash or a hang, or, without a cause, could
// not be launched, and when to retry.
func (k *Keeper) fail(by Cause, why error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	what, launch := "could not be launched: ", why
	if by != "" {
		k.Cause, what, launch = by, "is gone: ", nil
	}
	now := time.Now()
	next := k.Retry.Failed(now, now.Sub(k.began), launch)
	k.Check, k.Memory = Checked{At: now, Err: why.Error()}, 0
	k.Owner.FailedLocked(what, next)
}

// waitForRetry waits until it is time to launch a browser again after a failure.
func (k *Keeper) waitForRetry(ctx context.Context) {
	for {
		k.lock.Lock()
		at := k.Retry.At
		if k.Owner.IsWantedLocked() {
			at = k.Retry.OnDemand
		}
		if k.RetriesAtOnceLocked() {
			at = time.Time{}
		}
		k.lock.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(at)):
			return
		case <-k.wakeup:
		}
	}
}

// RetriesAtOnceLocked reports whether a failed browser is launched again as soon
// as possible. The end of a use does not override that none is launched again.
func (k *Keeper) RetriesAtOnceLocked() bool {
	return k.ForceReplace || k.Replace != None && !k.Retry.Off
}

// EarliestLocked returns when a browser that has failed is launched again for a request at the earliest; the zero time:
// at any moment.
func (k *Keeper) EarliestLocked() time.Time {
	switch {
	case k.RetriesAtOnceLocked():
		return time.Time{}
	case k.Retry.Definite:
		return Never
	}
	return k.Retry.OnDemand
}

// LaunchedLocked begins the age and the uses of another browser, which is running now or will be later. It reports
// whether that is a restart, of which the Cause is known.
func (k *Keeper) LaunchedLocked(now bool, uses int) (restart bool) {
	restart, k.hadBrowser = k.hadBrowser, now
	k.Uses, k.launchedAt = uses, time.Now()
	return restart
}

// GroundsLocked returns why the browser must be replaced, or none.
func (k *Keeper) GroundsLocked() Grounds {
	if k.Replace != None {
		return k.Replace
	}
	return k.Wear.Of(k.Uses, time.Since(k.launchedAt))
}

// IsCheckedLocked reports whether there is a browser whose health is checked.
func (k *Keeper) IsCheckedLocked() bool { return k.isChecked }

// Passed notes that a browser has passed a health check, and replaces one that is too heavy. It returns why.
// more are the processes of browsers that it has replaced.
func (k *Keeper) Passed(c *Chrome, more ...int) (heavy Grounds) {
	heavy, memory := k.measure(c, more)
	k.lock.Lock()
	defer k.lock.Unlock()
	if c.IsEnding() {
		return None
	}
	k.Check = Checked{At: time.Now(), Responsive: true}
	k.Memory = cmp.Or(memory, k.Memory)
	if k.Replace != None || k.Uses == 0 { // replacing an unused browser would free nothing
		return None
	}
	k.Replace = heavy
	return heavy
}

// memoryInterval is the least time between two measurements of a browser's memory, because one takes milliseconds a
// process. With a limit each health check measures it.
const memoryInterval = time.Minute

// measure returns the memory of all these browsers in bytes, or 0 if it is not known or was
// measured lately, and how the first one is too heavy.
func (k *Keeper) measure(c *Chrome, more []int) (heavy Grounds, memory int64) {
	pid := c.Browser.Instance.PID
	k.lock.Lock()
	late := k.Wear.MaxMemory > 0 || c != k.weighed || time.Since(k.measured) >= memoryInterval
	if late {
		k.measured, k.weighed = time.Now(), c
	}
	k.lock.Unlock()
	if pid == 0 || k.Remote || !late {
		return None, 0
	}
	memory, _ = proc.TreeMemory(pid) // if the browser has ended, watch notices it
	heavy = k.Wear.OfMemory(memory)
	for _, pid := range more {
		n, _ := proc.TreeMemory(pid)
		memory += n
	}
	return heavy, memory
}
