package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"btools/lib/agent/source"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
)

// children are the children of a host.
type children struct {
	host *Host

	mu          sync.Mutex
	supervisors map[string]*supervisor // by child, audience and browser
	started     map[mcp.Audience]bool  // that children were started for
	replaced    []*running             // that go on for calls that await input, see supervisor.replace
	closed      bool
}

// supervisor returns the supervisor of the child for a browser and an audience,
// nil if the host is closed.
func (c *children) supervisor(child *child.Spec, b source.Browser, to mcp.Audience) *supervisor {
	key := child.Name + "\x00" + string(to) + "\x00"
	if child.Drives() {
		key += b.Pool + "\x00" + b.Instance + "\x00" + b.Session
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	sup := c.supervisors[key]
	var subs map[string]int
	if sup != nil && child.Drives() && sup.browser.HTTPURL != b.HTTPURL {
		if !c.host.do(sup.stop) { // its browser has moved
			return nil
		}
		subs = sup.subscriptions()
		sup = nil
	}
	if sup == nil {
		sup = newSupervisor(c.host, child, b, to, subs)
		c.supervisors[key] = sup
	}
	return sup
}

// list returns all supervisors, whether their children run or not.
func (c *children) list() []*supervisor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.supervisors))
}

// running returns the running processes.
func (c *children) running() (all []*running) {
	for _, sup := range c.list() {
		if p := sup.running(); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// start notes that children are started for an audience, and reports whether
// some were before.
func (c *children) start(to mcp.Audience) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.started[to]
	c.started[to] = true
	return before
}

// hasRoom reports whether children may be started for an audience.
func (c *children) hasRoom(to mcp.Audience, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[to] || len(c.started) < most
}

// remove removes the supervisors of a virtual browser.
func (c *children) remove(is func(*source.Browser) bool) (removed []*supervisor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, sup := range c.supervisors {
		if is(&sup.browser) {
			removed = append(removed, sup)
			delete(c.supervisors, key)
		}
	}
	return removed
}

// replace notes that a process goes on for its calls only, unless too many do.
func (c *children) replace(p *running, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replaced) >= most || slices.Contains(c.replaced, p) {
		return false
	}
	c.replaced = append(c.replaced, p)
	return true
}

// finish notes that a replaced process has ended.
func (c *children) finish(p *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaced = slices.DeleteFunc(c.replaced, func(other *running) bool { return other == p })
}

// close prevents new supervisors. It returns those to be stopped.
func (c *children) close() map[string]*supervisor {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return maps.Clone(c.supervisors) // one may be ended just now
}

// errUnused ends a child that nobody needs.
var errUnused = errors.New("its browser is not used")

// startAll starts each child whose tools are unknown or that could not be started.
// It launches no browser for them. With all, it also starts children whose tools
// are only known from their last run.
func (c *children) startAll(to mcp.Audience, all bool) {
	h := c.host
	started := c.start(to)
	if !started {
		h.do(func() { // where browsers are is to be seen before one is needed
			if _, err := h.browsers.Target(h.ctx); err != nil && h.ctx.Err() == nil {
				h.server.Log.Warn(err.Error())
			}
		})
	}
	for i := range h.server.Children {
		child := &h.server.Children[i]
		known, live := h.server.catalog.Known(child, to.Askable(h.hostParams()))
		switch {
		case h.server.catalog.Retry(child), !live && all:
		case started, known && !h.server.Eager:
			continue // it is started when it is called
		}
		h.do(func() {
			some, err := c.prestartTargets(h.ctx, child)
			if err != nil && h.ctx.Err() == nil {
				h.server.catalog.Note(child, err)
			}
			for _, b := range some {
				if sup := c.supervisor(child, b, to); sup != nil {
					h.do(func() {
						if _, err := sup.get(h.ctx, false); err != nil && h.ctx.Err() == nil {
							h.server.catalog.Note(child, err)
						}
					})
				}
			}
		})
	}
}

// prestartTargets are the browsers that a child is started for before it is
// called.
func (c *children) prestartTargets(ctx context.Context, child *child.Spec) ([]source.Browser, error) {
	h := c.host
	if !child.Drives() {
		return []source.Browser{{}}, nil
	}
	if h.server.Eager {
		if all, err := h.browsers.Targets(ctx); err != nil || len(all) > 0 {
			return all, err
		}
	}
	b, err := h.browsers.Target(ctx)
	if err != nil {
		return nil, err
	}
	return []source.Browser{b}, nil
}

// why is the reason that a child cannot be started any more.
func (c *children) why() error {
	if c.host.ctx.Err() != nil {
		return source.ErrEnded
	}
	return source.ErrBrowserDied
}

// warm starts a child while the host's own browser is being launched: the endpoint
// is known in advance.
func (c *children) warm(child *child.Spec, to mcp.Audience) {
	h := c.host
	if !h.browsers.Early() {
		return
	}
	h.do(func() {
		at, err := h.browsers.Target(h.ctx)
		if err != nil {
			return // the call reports it
		}
		if sup := c.supervisor(child, at, to); sup != nil {
			sup.get(h.ctx, false)
		}
	})
}

// slow reports the children whose start takes long.
func (c *children) slow() (notes []string) {
	for _, sup := range c.list() {
		if took := sup.proc.Starting(); took > c.host.server.Limits.Slow {
			notes = append(notes, fmt.Sprintf("child %s has not answered for %v", sup.child.Name,
				took.Round(time.Second)))
		}
	}
	return notes
}

// StopChildren implements source.Owner.
func (c *children) StopChildren(match func(*source.Browser) bool, forget bool) (stopped func()) {
	var ending sync.WaitGroup
	if forget {
		for _, sup := range c.remove(match) {
			ending.Go(sup.stop)
		}
		return ending.Wait
	}
	for _, sup := range c.list() {
		p := sup.running()
		if p == nil || !sup.child.Drives() || !match(&sup.browser) {
			continue
		}
		sup.proc.Forget(p)
		ending.Go(func() { p.Stop(errUnused) }) // whose end the host waits for
	}
	return ending.Wait
}
