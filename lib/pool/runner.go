package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/proc"
	"btools/lib/proxy"
	"btools/lib/settings"
)

// runner keeps a browser running until its context ends: for one instance, or for
// a group of instances that share it.
type runner struct {
	hooks    hooks
	left     func(why string) // ends the lease of a browser that had joined and has left; nil: none joins
	browsers *supply.Runner   // nil: bpool launches none
	service  *Service
	poolName string
	set      settings.Settings
	wear     supply.Wear
	held     *leaseIDs
	log      *slog.Logger // adds these leases
	wakeup   chan struct{}
	ctx      context.Context // ends with the instance or the group
	stop     context.CancelFunc

	// Used by run:
	started func()    // to call once the first browser is ready, has failed, or waits for its first use
	began   time.Time // when the last launch began
	// launches is how many browsers watch has seen launched.
	launches int

	// Protected by the service's lock:
	hadBrowser   bool         // a browser has run before, so the next one counts as a restart
	cause        supply.Cause // of the end of that browser
	state        string
	launchedAt   time.Time      // of the current browser
	uses         int            // leases of this browser
	measured     time.Time      // when the memory of the current browser was; zero: not yet
	memory       int64          // of the browsers at the latest health check, in bytes; 0: not known
	replace      supply.Grounds // why the browser is replaced when no lease has it; zero: it is not
	forceReplace bool           // replace it even if it is leased
	check        check
	retry        supply.Retry // of a failed browser
	isChecked    bool         // there is a browser, whose health is checked
	waiting      int          // clients' requests that wait for a browser to share
}

// hooks are what an instance and a group do in their own ways.
type hooks interface {
	// begunLocked notes that a browser was launched, now, or will be once it is used.
	begunLocked(now bool)
	// endedLocked tells the holders why a browser has ended that has not failed. It returns the cause if another one
	// replaces it.
	endedLocked(why error) supply.Cause
	// reviewLocked returns what to do in this state of the browser, and whether that is over then.
	reviewLocked(state string) (act func(), over bool)
	setLocked(state string)
	// lostLocked tells the holders that there is no browser, and what comes next.
	lostLocked(what, next string)
}

// check is the result of the latest health check.
type check struct {
	at         time.Time
	responsive bool
	err        string
}

func (v *Service) newRunner(poolName string, set settings.Settings) runner {
	r := runner{service: v, poolName: poolName, set: set, held: &leaseIDs{},
		wakeup: make(chan struct{}, 1), state: Starting, retry: supply.Retry{Off: set.Restart == "never"},
		wear: supply.Wear{Once: set.Isolated && set.Isolation == settings.Process, MaxUses: set.MaxUses,
			MaxAge: set.MaxAge, MaxMemory: set.MaxMemory}}
	r.log = slog.New(heldHandler{v.Log.Handler(), r.held}).With("pool", poolName)
	r.ctx, r.stop = context.WithCancel(v.ctx)
	return r
}

// wake makes the runner check its state again.
func (r *runner) wake() {
	select {
	case r.wakeup <- struct{}{}:
	default:
	}
}

// run keeps a browser running.
func (r *runner) run() {
	eager := r.set.Start == "eager"
	for launch := eager; r.ctx.Err() == nil; {
		why := r.runBrowser(launch)
		if why == crashed {
			r.waitForRetry()
		}
		r.service.mu.Lock()
		if why != crashed {
			r.retry.Reset()
		}
		r.hadBrowser = r.hadBrowser && why != idled
		r.service.mu.Unlock()
		// One that waited for its first use has shown that it must be retried.
		launch = why == crashed || why == replaced && (eager || r.set.Isolation == settings.Context)
	}
}

// runBrowser runs one browser, launched now or once it is used, and returns why
// it has ended.
func (r *runner) runBrowser(launch bool) reason {
	v := r.service
	v.mu.Lock()
	why := r.replace
	fresh := why != none || r.forceReplace // the holder's connection may have launched one meanwhile
	switch {
	case r.forceReplace:
		r.cause = supply.Asked
	case fresh:
		r.cause = why.Cause
	}
	r.replace, r.forceReplace, r.memory, r.measured = none, false, 0, time.Time{}
	if launch {
		r.hooks.setLocked(r.startState())
	}
	v.mu.Unlock()
	if why != none {
		r.log.Info("replacing the browser, which " + why.Text)
	}
	r.began = time.Now()
	err := r.launch(launch, fresh)
	if err == nil {
		r.started()
		return r.watch(launch)
	}
	if r.ctx.Err() == nil {
		supply.LogFailure(r.log, "no browser: ", err)
		r.recordFailure("", err)
		r.started()
	}
	return crashed
}

// launch launches a browser, or leaves that to its first use. If it must be fresh, it takes the place of the current
// one.
func (r *runner) launch(now, fresh bool) (err error) {
	v := r.service
	if r.set.Extension {
		v.mu.Lock()
		r.check = check{} // of the last one
		v.mu.Unlock()
		r.started() // nobody knows when a browser joins
	}
	if now {
		err = r.browsers.Relaunch(r.ctx, options.Options{}, fresh)
	} else if fresh {
		err = r.browsers.Stop(r.ctx, false)
	}
	if err = cmp.Or(err, r.ctx.Err()); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r.hooks.begunLocked(now)
	return nil
}

// watch watches a browser until it has ended. running says whether it runs
// already.
func (r *runner) watch(running bool) reason {
	v := r.service
	for {
		st := r.browsers.Status()
		running = running || st.State == supply.Ready || st.Launches > r.launches // which has ended again
		r.launches = st.Launches
		v.mu.Lock()
		r.hadBrowser = r.hadBrowser || running
		v.mu.Unlock()
		why := st.Ending
		if st.State == supply.Stopped {
			why = cmp.Or(st.Exit, supply.ToldToStop)
		}
		hung, isHung := errors.AsType[*supply.HangError](why)
		switch {
		case st.State == supply.Ready:
		case running && isHung:
			r.recordFailure(supply.Hang, hung.Err)
			r.browsers.Stop(r.ctx, false)
			if r.set.Extension {
				r.left(hung.Err.Error())
			}
			return crashed
		case st.State != supply.Stopped:
		case !running && st.Failure == nil: // it waits for its first use
		case running && (why == supply.Unused || why == supply.ToldToStop || why == proxy.SessionLeft):
			v.mu.Lock()
			defer v.mu.Unlock()
			if by := r.hooks.endedLocked(why); by != "" {
				r.cause = by
				return replaced // not by this function
			}
			return idled
		case running && r.set.Extension && st.Failure == nil:
			r.left(why.Error())
			v.mu.Lock()
			defer v.mu.Unlock()
			r.cause = supply.Asked
			return replaced // by the next one that joins
		case st.Failure != nil:
			r.recordFailure("", st.Failure)
			return crashed
		default:
			r.recordFailure(supply.Crash, errors.New(endedPrefix+why.Error()))
			return crashed
		}
		v.mu.Lock()
		if isReady := st.State == supply.Ready; isReady != r.isChecked {
			r.isChecked, r.check.at = isReady, time.Now()
		}
		act, over := r.hooks.reviewLocked(st.State)
		v.mu.Unlock()
		if act != nil {
			act()
		}
		if over {
			return replaced
		}
		select {
		case <-r.ctx.Done():
			return crashed
		case <-r.wakeup:
		}
	}
}

// recordFailure records that the browser ended by a crash or a hang, or, without a cause, could
// not be launched, and when to retry.
func (r *runner) recordFailure(by supply.Cause, why error) {
	v, launched := r.service, by != ""
	v.mu.Lock()
	defer v.mu.Unlock()
	if launched {
		r.cause = by
	}
	now, what, launch := time.Now(), "could not be launched: ", why
	if launched {
		what, launch = "is gone: ", nil
	}
	next := r.retry.Failed(now, now.Sub(r.began), launch)
	r.check, r.memory = check{at: now, err: why.Error()}, 0
	r.hooks.lostLocked(what+briefReason(r.check.err), next)
	r.hooks.setLocked(Failed)
	if p := v.pools.named(r.poolName); p != nil {
		p.failWaitersLocked()
	}
}

// waitForRetry waits until it is time to launch a browser again after a failure.
func (r *runner) waitForRetry() {
	v := r.service
	for {
		v.mu.Lock()
		at := r.retry.At
		if p := v.pools.named(r.poolName); r.waiting > 0 || p != nil && p.leases.Waiting() > 0 {
			at = r.retry.OnDemand
		}
		if r.retriesAtOnceLocked() {
			at = time.Time{}
		}
		v.mu.Unlock()
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(time.Until(at)):
			return
		case <-r.wakeup:
		}
	}
}

// retriesAtOnceLocked reports whether a failed browser is launched again as soon
// as possible. The end of a lease does not override RESTART=never.
func (r *runner) retriesAtOnceLocked() bool {
	return r.forceReplace || r.replace != none && !r.retry.Off
}

// restartedLocked counts a browser that replaces another one, which has ended by a cause.
func (r *runner) restartedLocked(by supply.Cause, slots ...*slot) {
	r.service.metrics.restarts.WithLabelValues(r.poolName, string(by)).Inc()
	for _, s := range slots {
		s.restarts++
		r.service.events.ofInstance("restarted", s, "")
	}
}

// passed notes that a browser has passed a health check, and replaces one that exceeds MAX_MEMORY. It returns why.
// more are the processes of browsers that it has replaced.
func (r *runner) passed(c *supply.Chrome, more ...int) (heavy supply.Grounds) {
	heavy, memory := r.measure(c.Browser.Instance.PID, more)
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	if c.IsEnding() {
		return none
	}
	r.check = check{at: time.Now(), responsive: true}
	r.memory = cmp.Or(memory, r.memory)
	if heavy == none || r.replace != none || r.uses == 0 { // replacing an unused browser would free nothing
		return none
	}
	r.replace = heavy
	return heavy
}

// memoryInterval is how often memory is measured, at least, because it takes milliseconds a process. With MAX_MEMORY
// each health check measures it.
const memoryInterval = time.Minute

// measure returns the memory of all these browsers in bytes, or 0 if it is not known or was
// measured lately, and how the first one exceeds MAX_MEMORY.
func (r *runner) measure(pid int, more []int) (heavy supply.Grounds, memory int64) {
	r.service.mu.Lock()
	late := r.set.MaxMemory > 0 || time.Since(r.measured) >= memoryInterval
	if late {
		r.measured = time.Now()
	}
	r.service.mu.Unlock()
	if pid == 0 || !late {
		return none, 0
	}
	memory = treeMemory(r.set, pid)
	heavy = r.wear.OfMemory(memory)
	for _, pid := range more {
		memory += treeMemory(r.set, pid)
	}
	return heavy, memory
}

// replaceReasonLocked returns why the browser must be replaced, or none.
func (r *runner) replaceReasonLocked() supply.Grounds {
	if r.replace != none {
		return r.replace
	}
	return r.wear.Of(r.uses, time.Since(r.launchedAt))
}

// treeMemory returns the memory of a browser in bytes, or 0 if it is not known.
func treeMemory(set settings.Settings, pid int) int64 {
	if pid == 0 || set.WSLWindows { // no process of this system
		return 0
	}
	n, _ := proc.TreeMemory(pid) // if the browser has ended, watch notices it
	return n
}

// none are the grounds of a browser that stays.
var none supply.Grounds

// endedPrefix begins the error for a browser that exited.
const endedPrefix = "the browser ended: "

// briefReason returns the reason in the form that a holder gets.
func briefReason(why string) string {
	return strings.TrimPrefix(FirstSentence(why), endedPrefix)
}

// Reasons why a browser has ended.
type reason int

const (
	crashed  reason = iota // it exited or did not answer
	replaced               // another browser is to replace it
	idled                  // it was unused; the next connection launches another one
)

// idleText says that a browser was stopped because it was idle.
func idleText(set settings.Settings) string {
	without := "traffic"
	if set.IdleBy == settings.Connections {
		without = "a WebSocket"
	}
	return fmt.Sprintf("was stopped after %v without %s", set.Idle, without)
}
