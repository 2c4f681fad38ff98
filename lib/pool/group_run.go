package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/pool/share"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/virtual"
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
	c, err := g.launchChrome(g.ctx)
	if err == nil {
		g.activate(c)
	}
	return err
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

// launchChrome launches a browser to share.
func (g *group) launchChrome(ctx context.Context) (*share.Chrome, error) {
	v := g.service
	began := time.Now()
	c, err := func() (*share.Chrome, error) {
		b, err := v.Launch(ctx, g.poolName, g.set, launchOptions(g.set), g.held.member)
		if err != nil {
			return nil, err
		}
		if b.Instance.Protocol != record.CDP {
			b.Stop()
			return nil, &exit.Error{Code: exit.Config,
				Err: fmt.Errorf("%s does not support CDP: only browsers based on Chromium can be shared",
					g.set.Browser)}
		}
		o := virtual.Options{Settings: g.set, Keep: v.Dir != nil}
		return share.Open(ctx, b, o, g.filesOpener(), share.Idle{Timeout: g.set.Idle,
			ByConnections: g.set.IdleBy == settings.Connections}, g.log)
	}()
	v.metrics.launches.WithLabelValues(g.poolName).Inc()
	if err != nil {
		v.metrics.failures.WithLabelValues(g.poolName).Inc()
		return nil, err
	}
	g.log.Info("launched a browser to share", "id", c.Browser.Instance.ID,
		"took_ms", time.Since(began).Milliseconds())
	return c, nil
}

// activate makes a browser take new leases, and gives it to the leases whose
// browser has ended.
func (g *group) activate(c *share.Chrome) {
	v := g.service
	v.mu.Lock()
	defer v.mu.Unlock()
	g.chrome, g.launchedAt, g.uses, g.replace, g.needed = c, time.Now(), 0, grounds{}, false
	g.measured = time.Time{}
	if g.hadBrowser {
		g.restartedLocked(g.cause, g.slots...)
	}
	g.hadBrowser = true
	for _, l := range v.leases {
		if l.slot.group == g && !l.seat.IsLive() && !l.isHibernated() && !l.loseLocked("is gone") {
			g.takeSeatLocked(l, true)
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
func (g *group) notifyHoldersLocked(c *share.Chrome, what, then string) {
	for _, l := range g.service.leases {
		if l.slot.group == g && !l.isHibernated() && (l.seat.On(c) || !l.seat.IsLive()) && !l.loseLocked(what) {
			l.slot.notifyHolderLocked("%s%s", what, then)
		}
	}
}

// successor is a browser that is launched before the current one is replaced.
type successor struct {
	cancel context.CancelFunc
	ready  chan struct{} // closed when the launch has succeeded or failed
	chrome *share.Chrome
	err    error
}

func (g *group) startSuccessor() *successor {
	ctx, cancel := context.WithCancel(g.ctx)
	n := &successor{cancel: cancel, ready: make(chan struct{})}
	g.service.running.Go(func() {
		defer close(n.ready)
		n.chrome, n.err = g.launchChrome(ctx)
	})
	return n
}

// discard stops a successor that is not needed.
func (n *successor) discard() {
	n.cancel()
	if <-n.ready; n.chrome != nil {
		n.chrome.Close()
	}
}

// watch watches a browser and its successors until there is none.
func (g *group) watch(bool) reason {
	v := g.service
	v.mu.Lock()
	c := g.chrome
	v.mu.Unlock()
	answers, stop := g.checkHealth(pinger(c))
	var next *successor
	var ready <-chan struct{} // of next
	defer func() {
		if next != nil {
			next.discard()
		}
		stop()
	}()
	for tried := false; ; {
		v.mu.Lock()
		force, reason := g.forceReplace, g.replaceReasonLocked()
		v.mu.Unlock()
		if force {
			g.replaceAll(c)
			return replaced
		}
		if reason != (grounds{}) && next == nil && !tried {
			g.log.Info("replacing the browser, which "+reason.text, "id", c.Browser.Instance.ID)
			next = g.startSuccessor()
			ready, tried = next.ready, true
		}
		select {
		case <-g.ctx.Done():
			g.endBrowser(c, "", "")
			return crashed
		case <-c.Done():
			g.log.Warn("the browser ended: " + c.Err().Error())
			g.recordFailure(crash, errors.New(endedPrefix+c.Err().Error()))
			c.Close()
			return crashed
		case <-c.Idled():
			g.log.Info("the browser " + idleText(g.set))
			g.endBrowser(c, idleText(g.set), "; the next connection launches another one")
			return idled
		case err := <-c.Faults():
			g.log.Warn(err.Error())
			v.mu.Lock()
			g.replace = grounds{hang, "could not end a session"}
			v.mu.Unlock()
		case <-ready:
			if next.err != nil {
				g.logFailure("cannot replace the browser, which "+reason.text+": ", next.err)
			} else {
				stop()
				g.drain(c)
				c, g.cause = next.chrome, reason.cause
				g.activate(c)
				answers, stop = g.checkHealth(pinger(c))
			}
			next, ready = nil, nil
		case <-g.wakeup:
		case err := <-answers:
			if _, ok := g.checked(err, c.Browser.Instance.PID, g.drainingPIDs()...); !ok {
				g.recordFailure(hang, err)
				c.Close()
				return crashed
			}
			c.RetrySpares()
			tried = false
		}
	}
}

// pinger returns what asks a browser for an answer.
func pinger(c *share.Chrome) func(context.Context, time.Duration) error {
	m, i := c.Mux(), c.Browser.Instance
	return func(ctx context.Context, within time.Duration) error {
		if m != nil {
			return proxy.PingMux(ctx, m, within)
		}
		return proxy.Ping(ctx, i, within)
	}
}

// drainingPIDs returns the processes of the browsers that end with their last lease.
func (g *group) drainingPIDs() (pids []int) {
	g.service.mu.Lock()
	defer g.service.mu.Unlock()
	for _, c := range g.draining {
		pids = append(pids, c.Browser.Instance.PID)
	}
	return pids
}

// drain makes a browser end with its last lease.
func (g *group) drain(c *share.Chrome) {
	v := g.service
	v.mu.Lock()
	g.draining = append(g.draining, c)
	v.mu.Unlock()
	c.Drain()
	v.running.Go(func() {
		what, then := "", ""
		select {
		case <-c.Drained():
		case <-g.ctx.Done():
		case <-c.Idled():
			what, then = idleText(g.set), "; the next connection has another one"
		case <-c.Done():
			g.log.Warn("the browser, which was to be replaced, ended: " + c.Err().Error())
			what, then = fmt.Sprintf("is gone: %v", c.Err()), "; a new browser replaces it; its pages are lost"
		}
		g.endBrowser(c, what, then)
	})
}

// endBrowser stops a browser and notifies the holders.
func (g *group) endBrowser(c *share.Chrome, what, then string) {
	v := g.service
	v.mu.Lock()
	if what != "" && (g.chrome == c || slices.Contains(g.draining, c)) {
		g.notifyHoldersLocked(c, what, then)
	}
	if g.chrome == c {
		g.chrome = nil
	}
	g.draining = slices.DeleteFunc(g.draining, func(o *share.Chrome) bool { return o == c })
	v.mu.Unlock()
	c.Close()
}

// replaceAll stops all browsers of the group at once.
func (g *group) replaceAll(c *share.Chrome) {
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
