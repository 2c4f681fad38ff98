package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/pool/config"
	"btools/lib/pool/share"
	"btools/lib/proc"
	"btools/lib/proxy"
	"btools/lib/record"
)

// run keeps a browser behind the leases until the group ends. started is called
// when the first one is up, or has failed, or is left to the first lease.
func (g *group) run(started func()) {
	launch := g.set.Start == "eager"
	for g.ctx.Err() == nil {
		if !launch && !g.untilWanted(started) {
			return
		}
		why := g.live(launch, started)
		if why == crashed {
			if !g.untilNext() {
				return
			}
		} else {
			g.delay = 0
		}
		launch = why != idled
		g.had = g.had && launch
	}
}

// untilWanted waits until somebody needs a browser.
func (g *group) untilWanted(started func()) bool {
	v := g.service
	v.mu.Lock()
	g.setLocked(Healthy)
	v.mu.Unlock()
	started()
	for {
		v.mu.Lock()
		wanted := g.wanted
		g.force = false // there is nothing to replace
		v.mu.Unlock()
		if wanted {
			return true
		}
		select {
		case <-g.ctx.Done():
			return false
		case <-g.wake:
		}
	}
}

// untilNext waits until a browser that has failed is to be launched again.
func (g *group) untilNext() bool {
	v := g.service
	for {
		v.mu.Lock()
		at := g.tryAt
		if p := v.named(g.poolName); g.waiting > 0 || p != nil && p.queue.Waiting() > 0 {
			at = g.hurryAt
		}
		if g.force {
			at = time.Time{}
		}
		v.mu.Unlock()
		timer := time.NewTimer(time.Until(at))
		select {
		case <-g.ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-g.wake:
			timer.Stop()
		}
	}
}

// live is the time of one browser and those that take its place while it lives.
// It returns why it is over. While a browser is launched for those that have a
// lease already, others get theirs.
func (g *group) live(tell bool, started func()) reason {
	v := g.service
	v.mu.Lock()
	g.wanted, g.force = false, false
	if tell {
		g.setLocked(Starting)
	}
	v.mu.Unlock()
	g.began = time.Now()
	c, err := g.launch(g.ctx)
	if g.ctx.Err() != nil {
		if err == nil {
			c.Close()
		}
		return crashed
	}
	defer started()
	if err != nil {
		g.sayFailed("no browser: ", err)
		g.failed(nil, err, false)
		return crashed
	}
	g.up(c)
	started()
	return g.hold(c)
}

func (g *group) sayFailed(what string, err error) {
	say := g.service.Log.With("pool", g.poolName)
	if e := (*exit.Error)(nil); errors.As(err, &e) && e.Hint != "" {
		say = say.With("hint", e.Hint)
	}
	say.Error(what + err.Error())
}

// launch launches a browser to be shared.
func (g *group) launch(ctx context.Context) (*share.Chrome, error) {
	v := g.service
	began := time.Now()
	c, err := func() (*share.Chrome, error) {
		b, err := v.Launch(ctx, g.poolName, g.set, launchOptions(g.set))
		if err != nil {
			return nil, err
		}
		if b.Instance.Protocol != record.CDP {
			b.Stop()
			return nil, &exit.Error{Code: exit.Config, Err: fmt.Errorf("%s speaks no CDP: only Chrome and its kind can be shared (ISOLATION=context)", g.set.Browser)}
		}
		return share.Open(ctx, b, g.set.IdleTimeout, v.Log.With("pool", g.poolName))
	}()
	v.metrics.launches.WithLabelValues(g.poolName).Inc()
	if err != nil {
		v.metrics.failures.WithLabelValues(g.poolName).Inc()
		return nil, err
	}
	v.Log.Info("launched a browser to share", "pool", g.poolName, "id", c.Browser.Instance.ID, "took", time.Since(began).Round(time.Millisecond))
	return c, nil
}

// up has a browser take leases, and gives those whose browser is gone a session
// of it.
func (g *group) up(c *share.Chrome) {
	v := g.service
	v.mu.Lock()
	defer v.mu.Unlock()
	g.chrome, g.since, g.uses, g.worn, g.wanted = c, time.Now(), 0, "", false
	if g.had {
		v.metrics.restarts.WithLabelValues(g.poolName).Inc()
		for _, s := range g.slots {
			s.restarts++
			v.eventLocked("restarted", s, "", "")
		}
	}
	g.had = true
	for _, l := range v.leases {
		if l.slot.group == g && !l.seat.IsLive() {
			l.seat = c.TakeSeat(g.sparesLocked())
			g.uses++
		}
	}
	g.spareLocked()
	g.setLocked(Healthy)
}

// failed notes that the browser is no more, or could not be launched, and when
// it is tried again.
func (g *group) failed(c *share.Chrome, why error, launched bool) {
	v := g.service
	v.mu.Lock()
	defer v.mu.Unlock()
	var next string
	g.tryAt, g.hurryAt, next = g.next(time.Now(), launched, g.set.Restart == "never")
	g.chrome, g.why = nil, why
	g.tellHoldersLocked(c, fmt.Sprintf("%s: %s; %s", whatBecame(launched), reasonOf(why), next))
	g.setLocked(Failed)
	if p := v.named(g.poolName); p != nil {
		p.tellLocked()
	}
}

// tellHoldersLocked tells the holders whose sessions are on a browser, or on
// none, what has become of it.
func (g *group) tellHoldersLocked(c *share.Chrome, what string) {
	for _, l := range g.service.leases {
		if l.slot.group == g && (l.seat.On(c) || !l.seat.IsLive()) {
			l.slot.tellHolderLocked("%s", what)
		}
	}
}

// successor is a browser that is launched beside the one whose place it takes.
type successor struct {
	cancel context.CancelFunc
	ready  chan struct{} // closed when it is there, or has failed
	chrome *share.Chrome
	err    error
}

func (g *group) succeed() *successor {
	ctx, cancel := context.WithCancel(g.ctx)
	n := &successor{cancel: cancel, ready: make(chan struct{})}
	g.service.running.Go(func() {
		defer close(n.ready)
		n.chrome, n.err = g.launch(ctx)
	})
	return n
}

// drop ends a successor that is not needed.
func (n *successor) drop() {
	n.cancel()
	if <-n.ready; n.chrome != nil {
		n.chrome.Close()
	}
}

// hold watches a browser, and those that take its place, until there is none.
func (g *group) hold(c *share.Chrome) reason {
	v := g.service
	tick := time.NewTicker(g.set.HealthInterval)
	defer tick.Stop()
	var next *successor
	var ready <-chan struct{} // of next
	defer func() {
		if next != nil {
			next.drop()
		}
	}()
	for tried := false; ; {
		v.mu.Lock()
		force, worn := g.force, g.wornLocked()
		v.mu.Unlock()
		if force {
			g.replaceAll(c)
			return replaced
		}
		if worn != "" && next == nil && !tried {
			v.Log.Info("another browser takes the place of one that "+worn, "pool", g.poolName, "id", c.Browser.Instance.ID)
			next = g.succeed()
			ready, tried = next.ready, true
		}
		select {
		case <-g.ctx.Done():
			g.without(c, "")
			return crashed
		case <-c.Done():
			v.Log.Info("the browser ended: "+c.Err().Error(), "pool", g.poolName)
			g.failed(c, errors.New(ended+c.Err().Error()), true)
			c.Close()
			return crashed
		case <-c.Idled():
			v.Log.Info("no WebSocket for "+g.set.IdleTimeout.String()+": stopping the browser", "pool", g.poolName)
			g.without(c, fmt.Sprintf("was stopped after %v without a WebSocket; the next connection launches another one", g.set.IdleTimeout))
			return idled
		case err := <-c.Faults():
			v.Log.Warn(err.Error(), "pool", g.poolName)
			v.mu.Lock()
			g.worn = "can't end a session"
			v.mu.Unlock()
		case <-ready:
			if next.err != nil {
				g.sayFailed("no browser to take the place of one that "+worn+": ", next.err)
			} else {
				g.retire(c)
				c = next.chrome
				g.up(c)
			}
			next, ready = nil, nil
		case <-g.wake:
		case <-tick.C:
			tried = false
			if err := g.look(c); err != nil && g.ctx.Err() == nil {
				v.Log.Warn("the browser does not answer: stopping it", "pool", g.poolName, "why", err)
				g.failed(c, err, true)
				c.Close()
				return crashed
			}
		}
	}
}

// wornLocked is why another browser is to take the place of this one, "" if it
// is not.
func (g *group) wornLocked() string {
	switch age := time.Since(g.since); {
	case g.worn != "":
		return g.worn
	case g.set.MaxUses > 0 && g.uses >= g.set.MaxUses:
		return fmt.Sprintf("has had %s (MAX_USES=%d)", count(g.uses, "lease"), g.set.MaxUses)
	case g.set.MaxAge > 0 && age >= g.set.MaxAge && g.uses > 0:
		return fmt.Sprintf("is %v old (MAX_AGE=%v)", age.Round(time.Millisecond), g.set.MaxAge)
	}
	return ""
}

// look asks a browser how it is.
func (g *group) look(c *share.Chrome) error {
	v := g.service
	err := proxy.Ping(g.ctx, c.Browser.Instance, g.set.HealthTimeout)
	if errors.Is(err, proxy.ErrNotAsked) {
		v.Log.Warn(err.Error(), "pool", g.poolName)
		err = nil // it is not the browser that is sick
	}
	if err != nil {
		return err
	}
	c.RetrySpares()
	heavy := heavy(g.set, c.Browser.Instance.PID)
	v.mu.Lock()
	defer v.mu.Unlock()
	if heavy != "" && g.uses > 0 { // another one that nobody has used would be no smaller
		g.worn = heavy
	}
	for _, s := range g.slots {
		s.check = g.checkLocked()
	}
	return nil
}

// heavy says that a browser has more memory than it may, "" if it has not.
func heavy(set config.Settings, pid int) string {
	if set.MaxMemory == 0 || pid == 0 {
		return ""
	}
	n, err := proc.TreeMemory(pid)
	if err != nil || n <= set.MaxMemory {
		return "" // its end, if it is that, is noted elsewhere
	}
	return fmt.Sprintf("has %d MiB of memory (MAX_MEMORY=%dMiB)", n>>20, set.MaxMemory>>20)
}

// retire has a browser end with its last lease.
func (g *group) retire(c *share.Chrome) {
	v := g.service
	v.mu.Lock()
	g.old = append(g.old, c)
	v.mu.Unlock()
	c.Drain()
	v.running.Go(func() {
		what := ""
		select {
		case <-c.Drained():
		case <-g.ctx.Done():
		case <-c.Idled():
			what = fmt.Sprintf("was stopped after %v without a WebSocket; the next connection has another one", g.set.IdleTimeout)
		case <-c.Done():
			what = fmt.Sprintf("is gone: %v; another one takes its place, without its pages", c.Err())
		}
		g.without(c, what)
	})
}

// without ends a browser, and tells the holders what has become of it.
func (g *group) without(c *share.Chrome, what string) {
	v := g.service
	v.mu.Lock()
	if what != "" && (g.chrome == c || slices.Contains(g.old, c)) {
		g.tellHoldersLocked(c, what)
	}
	if g.chrome == c {
		g.chrome = nil
	}
	g.old = slices.DeleteFunc(g.old, func(o *share.Chrome) bool { return o == c })
	v.mu.Unlock()
	c.Close()
}

// replaceAll ends all browsers of the group at once.
func (g *group) replaceAll(c *share.Chrome) {
	v := g.service
	v.mu.Lock()
	all := append(slices.Clone(g.old), c)
	for _, c := range all {
		g.tellHoldersLocked(c, "is replaced by bpool restart, without its pages")
	}
	g.chrome, g.old = nil, nil
	g.setLocked(Starting) // stopping them takes time
	v.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(c.Close)
	}
	wg.Wait()
}
