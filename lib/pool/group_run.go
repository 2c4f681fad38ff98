package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
)

// launch launches the first browser, now or when a lease or a request needs it.
// Then leases are granted while it starts, because it is launched for leases that
// exist already.
func (g *group) launch(now, _ bool) error {
	if !now {
		g.waitUntilNeeded()
	}
	if err := g.ctx.Err(); err != nil {
		return err
	}
	c := g.startChrome()
	select {
	case <-c.Ready():
	case <-g.ctx.Done():
		c.Close()
	}
	if err := c.Err(); err != nil {
		return err
	}
	g.activate(c)
	g.checked(c.Chrome)
	return nil
}

// waitUntilNeeded waits until a lease or a request needs a browser.
func (g *group) waitUntilNeeded() {
	v := g.service
	v.mu.Lock()
	g.setLocked(Healthy)
	v.mu.Unlock()
	g.started()
	for {
		v.mu.Lock()
		wanted := g.needed
		g.forceReplace = false // there is nothing to replace
		v.mu.Unlock()
		if wanted {
			return
		}
		select {
		case <-g.ctx.Done():
			return
		case <-g.wakeup:
		}
	}
}

// startChrome starts to launch a browser to share.
func (g *group) startChrome() *fleet.Chrome {
	v := g.service
	began := time.Now()
	var b *sibling.Browser
	launch := func(ctx context.Context) (_ *sibling.Browser, err error) {
		if b, err = v.Launch(ctx, g.poolName, g.set, launchOptions(g.set), g.held.member); err != nil {
			return nil, err
		}
		if b.Instance.Protocol != record.CDP {
			b.Stop()
			return nil, &exit.Error{Code: exit.Config,
				Err: fmt.Errorf("%s does not support CDP: only browsers based on Chromium can be shared",
					g.set.Browser)}
		}
		return b, nil
	}
	return g.fleet.Share(supply.Spec{Launch: launch, Log: g.log,
		Idle:   supply.Idle{Timeout: g.set.Idle, ByConnections: g.set.IdleBy == settings.Connections},
		Health: supply.Health{Interval: g.set.HealthInterval, Timeout: g.set.HealthTimeout, Checked: g.checked},
		Launched: func(err error) {
			v.metrics.launches.WithLabelValues(g.poolName).Inc()
			if err != nil {
				v.metrics.failures.WithLabelValues(g.poolName).Inc()
			}
		},
		Running: func() {
			g.log.Info("launched a browser to share", "id", b.Instance.ID, "took_ms", time.Since(began).Milliseconds())
		}}, g.set)
}

// activate makes a browser take new leases, and gives it to the leases whose
// browser has ended.
func (g *group) activate(c *fleet.Chrome) {
	v := g.service
	v.mu.Lock()
	defer v.mu.Unlock()
	g.chrome, g.launchedAt, g.uses, g.replace, g.needed = c, time.Now(), 0, grounds{}, false
	g.measured, g.mayReplace = time.Time{}, true
	if g.hadBrowser {
		g.restartedLocked(g.cause, g.slots...)
	}
	g.hadBrowser = true
	for _, l := range v.leases {
		if l.slot.group == g && !l.on.IsLive() && !l.isHibernated() && !l.loseLocked("is gone") {
			g.useLocked(l, true)
		}
	}
	g.setSparesLocked()
	g.setLocked(Healthy)
}

// lostLocked forgets the browser, which has failed, and tells its holders.
func (g *group) lostLocked(what, next string) {
	c := g.chrome
	g.chrome, g.replace = nil, grounds{}
	g.notifyHoldersLocked(c, what, "; "+next)
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

// watch watches a browser and its successors until there is none.
func (g *group) watch(bool) reason {
	v := g.service
	v.mu.Lock()
	c := g.chrome
	v.mu.Unlock()
	var next *fleet.Chrome // launched to replace it
	var ready <-chan struct{}
	defer func() {
		if next != nil {
			next.Close()
		}
	}()
	for {
		v.mu.Lock()
		force, reason := g.forceReplace, g.replaceReasonLocked()
		begins := reason != (grounds{}) && next == nil && g.mayReplace && !force
		g.mayReplace = g.mayReplace && !begins
		v.mu.Unlock()
		if force {
			g.replaceAll(c)
			return replaced
		}
		if begins {
			g.log.Info("replacing the browser, which "+reason.text, "id", c.Browser.Instance.ID)
			next = g.startChrome()
			ready = next.Ready()
		}
		select {
		case <-g.ctx.Done():
			g.endBrowser(c, "", "")
			return crashed
		case <-c.Done():
			return g.ended(c)
		case err := <-c.Faults():
			g.log.Warn(err.Error())
			v.mu.Lock()
			g.replace = grounds{hang, "could not end a session"}
			v.mu.Unlock()
		case <-ready:
			if err := next.Err(); err != nil {
				g.logFailure("cannot replace the browser, which "+reason.text+": ", err)
			} else {
				g.drain(c)
				c, g.cause = next, reason.cause
				g.activate(c)
				g.checked(c.Chrome)
			}
			next, ready = nil, nil
		case <-g.wakeup:
		}
	}
}

// ended notes that a browser has ended, and returns why.
func (g *group) ended(c *fleet.Chrome) reason {
	why := c.Cause()
	if why == supply.Unused {
		g.log.Info("the browser " + idleText(g.set))
		g.endBrowser(c, idleText(g.set), "; the next connection launches another one")
		return idled
	}
	by, text := crash, endedPrefix+why.Error()
	if hung, ok := errors.AsType[*supply.HangError](why); ok {
		by, text = hang, hung.Err.Error()
	} else {
		g.log.Warn("the browser ended: " + why.Error())
	}
	g.recordFailure(by, errors.New(text))
	c.Close()
	return crashed
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
	g.passed(of, pids...)
	c.RetrySpares()
	v.mu.Lock()
	g.mayReplace = true
	v.mu.Unlock()
	g.wake()
}

// drain makes a browser end with its last lease.
func (g *group) drain(c *fleet.Chrome) {
	v := g.service
	v.mu.Lock()
	g.draining = append(g.draining, c)
	v.mu.Unlock()
	c.Drain()
	v.running.Go(func() {
		select {
		case <-g.ctx.Done():
		case <-c.Done():
		}
		what, then := "", ""
		switch why := c.Cause(); why {
		case nil, fleet.Drained:
		case supply.Unused:
			what, then = idleText(g.set), "; the next connection has another one"
		default:
			g.log.Warn("the browser, which was to be replaced, ended: " + why.Error())
			what, then = fmt.Sprintf("is gone: %v", why), "; a new browser replaces it; its pages are lost"
		}
		g.endBrowser(c, what, then)
	})
}

// endBrowser stops a browser and notifies the holders.
func (g *group) endBrowser(c *fleet.Chrome, what, then string) {
	v := g.service
	v.mu.Lock()
	if what != "" && (g.chrome == c || slices.Contains(g.draining, c)) {
		g.notifyHoldersLocked(c, what, then)
	}
	if g.chrome == c {
		g.chrome = nil
	}
	g.draining = slices.DeleteFunc(g.draining, func(o *fleet.Chrome) bool { return o == c })
	v.mu.Unlock()
	c.Close()
}

// replaceAll stops all browsers of the group at once.
func (g *group) replaceAll(c *fleet.Chrome) {
	v := g.service
	v.mu.Lock()
	all := append(slices.Clone(g.draining), c)
	for _, c := range all {
		g.notifyHoldersLocked(c, "is replaced by bpool restart", "; its pages are lost")
	}
	g.chrome, g.draining = nil, nil
	g.setLocked(Starting) // stopping takes time
	v.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(c.Close)
	}
	wg.Wait()
}
