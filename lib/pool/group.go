package pool

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/wait"
)

// group is the instances of a pool that share a browser; each lease has its own
// session. One browser at a time takes new leases. Browsers that it has
// replaced end with their last lease.
type group struct {
	runner               // runner of chrome and its successors, with the settings that the instances share
	gone   chan struct{} // closed when it and its browsers have ended

	// Protected by the service's lock:
	fleet    *fleet.Fleet    // the sessions of the leases of its instances
	slots    []*slot         // instances, without retired ones
	leases   int             // number of leases, including those of retired instances
	leased   int             // instances in slots that are leased
	ahead    int             // leases for which a session is made before they are used
	chrome   *fleet.Chrome   // takes new leases; nil if there is none
	draining []*fleet.Chrome // end with their last lease
	needed   bool            // a lease or request needs a browser and there is none
	// mayReplace says that a successor has not failed since the last health check.
	mayReplace bool
	successor  supply.Grounds // grounds of the latest replacement
	changed    wait.Broadcast
}

// groupSettings returns the settings that the instances of a group have in
// common.
func groupSettings(set settings.Settings) settings.Settings {
	set = instanceSettings(set)
	set.ID, set.Alias = "shared", ""
	return set
}

// joinLocked adds an instance to a group: to one of its pool with the same
// settings and a free slot, or to a new one. It marks up as done when the
// group's browser is ready, has failed, or waits for the first lease.
func (s *slot) joinLocked(up *sync.WaitGroup) {
	v, set := s.service, groupSettings(s.set)
	for _, g := range v.groups {
		if g.poolName == s.poolName && len(g.slots) < set.PerBrowser && g.ctx.Err() == nil &&
			reflect.DeepEqual(g.set, set) {
			s.group = g
			g.slots = append(g.slots, s)
			s.setLocked(g.state)
			g.setSparesLocked()
			return
		}
	}
	g := &group{runner: v.newRunner(s.poolName, set), gone: make(chan struct{}), slots: []*slot{s}}
	s.group = g
	g.fleet = g.newFleet()
	v.groups = append(v.groups, g)
	up.Add(1)
	g.Owner, g.Runner, g.Started = g, g.newBrowsers(), sync.OnceFunc(up.Done)
	v.running.Go(func() {
		defer g.Started()
		g.Run(g.ctx)
		g.Runner.Close()
		g.fleet.Close()
		close(g.gone)
		v.mu.Lock()
		v.groups = slices.DeleteFunc(v.groups, func(o *group) bool { return o == g })
		v.mu.Unlock()
	})
}

// removeLocked removes a retired instance.
func (g *group) removeLocked(s *slot) {
	g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == s })
	if s.lease != nil {
		g.leased--
	}
	g.setSparesLocked()
	g.endIfUnusedLocked()
}

// endIfUnusedLocked ends the group if it has neither instances nor leases.
func (g *group) endIfUnusedLocked() {
	if len(g.slots) == 0 && g.leases == 0 {
		g.stop()
	}
}

// setLocked sets the state of all instances.
func (g *group) setLocked(state string) {
	g.state = state
	if state != Failed {
		g.Check = supply.Checked{At: time.Now(), Responsive: state == Healthy}
	}
	for _, s := range slices.Clone(g.slots) {
		s.setLocked(state)
	}
	g.changed.Wake()
}

// setSparesLocked sets how many sessions the browser has in advance: for new leases, and for those that have not been
// used.
func (g *group) setSparesLocked() {
	if g.chrome != nil {
		g.chrome.SetSpares(min(len(g.slots)-g.leased, g.set.Spares) + g.ahead)
	}
}

// newBrowsers returns what launches the browsers of a group.
func (g *group) newBrowsers() *supply.Runner {
	v, spec := g.service, supply.Configured(g.set)
	spec.Log, spec.Health.Checked = g.log, g.checked
	return &supply.Runner{Drains: true, Closed: errStopping, Owner: g, Options: launchOptions(g.set),
		Launch: func(ctx context.Context, o options.Options, _ string) (*sibling.Browser, error) {
			b, err := v.Launch(ctx, g.poolName, g.set, o, g.held.member)
			if err == nil && b.Instance.Protocol != record.CDP {
				b.Stop()
				err = &exit.Error{Code: exit.Config,
					Err: fmt.Errorf("%s does not support CDP: only browsers based on Chromium can be shared",
						g.set.Browser)}
			}
			return b, err
		},
		Spec: fleet.SharedSpec(spec)}
}

// Launched makes a browser take new leases, and lets the one that it replaces drain.
func (g *group) Launched(of, before *supply.Chrome, err error) {
	v := g.service
	v.metrics.launches.WithLabelValues(g.poolName).Inc()
	if err != nil {
		v.metrics.failures.WithLabelValues(g.poolName).Inc()
		if before != nil && err != supply.ErrCancelled {
			supply.LogFailure(g.log, "cannot replace the browser, which "+g.successor.Text+": ", err)
		}
		return
	}
	c := g.fleet.Share(of, g.set, func(err error) { g.fault(of, err) })
	v.running.Go(c.Finish)
	v.mu.Lock()
	defer v.mu.Unlock()
	if g.chrome != nil {
		g.Cause = g.successor.Cause
		g.draining = append(g.draining, g.chrome)
		g.chrome.Drain()
	}
	g.activateLocked(c)
}

// fault notes that a session of a browser could not be ended.
func (g *group) fault(of *supply.Chrome, err error) {
	g.service.mu.Lock()
	isCurrent := g.chrome != nil && g.chrome.Chrome == of
	if isCurrent {
		g.Replace = supply.Grounds{Cause: supply.Hang, Text: "could not end a session"}
	}
	g.service.mu.Unlock()
	if isCurrent {
		g.log.Warn(err.Error())
		g.Wake()
	}
}

// Running logs a launch.
func (g *group) Running(c *supply.Chrome) {
	g.log.Info("launched a browser to share", "id", c.Browser.Instance.ID,
		"took_ms", time.Since(c.Began).Milliseconds())
}

// Changed makes the runner look at its browser.
func (g *group) Changed() { g.Wake() }

// Over returns why a browser has ended.
func (g *group) Over(c *supply.Chrome) error { return c.Cause() }

// activateLocked makes a browser take new leases, and gives it to the leases whose
// browser has ended.
func (g *group) activateLocked(c *fleet.Chrome) {
	v := g.service
	g.chrome, g.Replace, g.needed, g.mayReplace = c, supply.None, false, true
	if g.LaunchedLocked(true, 0) {
		g.restartedLocked(g.Cause, g.slots...)
	}
	for _, l := range v.leases {
		if l.slot.group == g && !l.on.IsLive() && !l.isHibernated() && !l.loseLocked("is gone") {
			g.useLocked(l, true)
		}
	}
	g.setSparesLocked()
	g.setLocked(Healthy)
}

// StartingLocked notes that a browser is about to be launched.
func (g *group) StartingLocked() { g.setLocked(g.startState()) }

// FailedLocked forgets the browser, which has failed, and tells its holders.
func (g *group) FailedLocked(what, next string) {
	c := g.chrome
	g.chrome, g.Replace = nil, supply.None
	g.notifyHoldersLocked(c, what+briefReason(g.Check.Err), "; "+next)
	g.setLocked(Failed)
	g.failWaitersLocked()
}

// notifyHoldersLocked tells each holder what the end of this browser cost it, and what
// happens then; hibernated sessions lose nothing.
func (g *group) notifyHoldersLocked(c *fleet.Chrome, what, then string) {
	for _, l := range g.service.leases {
		if l.slot.group == g && !l.isHibernated() && (l.on == c || !l.on.IsLive()) && !l.loseLocked(what) {
			l.slot.notifyHolderLocked("%s%s", what, then)
		}
	}
}

// BegunLocked notes that there is a browser, or that one is launched for the first lease.
// Then leases are granted while it starts, because it is launched for leases that exist already.
func (g *group) BegunLocked(now bool) {
	if !now {
		g.setLocked(Healthy)
	}
}

// EndedLocked notes why a browser has ended by which no failure is meant.
func (g *group) EndedLocked(error) supply.Cause {
	c := g.chrome
	g.chrome = nil
	g.notifyHoldersLocked(c, idleText(g.set), "; the next connection launches another one")
	return ""
}

// ReviewLocked returns what to do with the browser, which is launched when it is needed.
func (g *group) ReviewLocked(state string) (act func(), over bool) {
	switch why := g.GroundsLocked(); {
	case state == supply.Stopped:
		g.ForceReplace = false // there is nothing to replace
		if g.needed {
			return g.Runner.Begin, false
		}
	case state != supply.Ready || g.chrome == nil:
	case g.ForceReplace:
		for _, c := range append(slices.Clone(g.draining), g.chrome) {
			g.notifyHoldersLocked(c, "is replaced by bpool restart", "; its pages are lost")
		}
		g.chrome, g.draining = nil, nil
		g.setLocked(Starting) // stopping takes time
		return func() { g.Runner.Stop(g.ctx, true) }, true
	case why != supply.None && g.mayReplace:
		g.mayReplace, g.successor = false, why
		id := g.chrome.Browser.Instance.ID
		return func() {
			g.log.Info("replacing the browser, which "+why.Text, "id", id)
			g.Runner.Replace()
		}, false
	}
	return nil, false
}

// checked notes that a browser has passed a health check.
func (g *group) checked(of *supply.Chrome) {
	v := g.service
	v.mu.Lock()
	c, pids := g.chrome, []int(nil)
	for _, c := range g.draining {
		pids = append(pids, c.Browser.Instance.PID)
	}
	v.mu.Unlock()
	if c == nil || c.Chrome != of {
		return
	}
	g.Passed(of, pids...)
	c.RetrySpares()
	v.mu.Lock()
	g.mayReplace = true
	v.mu.Unlock()
	g.Wake()
}

// Ending tells the holders what became of a browser that was draining. Those of the current one are told by watch.
func (g *group) Ending(of *supply.Chrome) {
	v, why := g.service, of.Cause()
	v.mu.Lock()
	k := slices.IndexFunc(g.draining, func(c *fleet.Chrome) bool { return c.Chrome == of })
	if k < 0 {
		v.mu.Unlock()
		if of.EndedByItself() {
			g.log.Warn("the browser ended: " + why.Error())
		} else if why == supply.Unused {
			g.log.Info("the browser " + idleText(g.set))
		}
		return
	}
	c := g.draining[k]
	g.draining = slices.Delete(g.draining, k, k+1)
	what, then := fmt.Sprintf("is gone: %v", why), "; a new browser replaces it; its pages are lost"
	if why == supply.Unused {
		what, then = idleText(g.set), "; the next connection has another one"
	}
	if why != fleet.Drained && g.ctx.Err() == nil {
		g.notifyHoldersLocked(c, what, then)
	}
	v.mu.Unlock()
	if of.EndedByItself() {
		g.log.Warn("the browser, which was to be replaced, ended: " + why.Error())
	}
}
