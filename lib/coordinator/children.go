package coordinator

import (
	"maps"
	"slices"
	"sync"
)

// children are the children of a session.
type children struct {
	mu       sync.Mutex
	all      map[string]*kid   // by child, audience and browser
	started  map[audience]bool // that children were started for
	replaced []*process        // that go on for calls that await input, see Session.replace
	closed   bool
}

// kid is the child for a browser and an audience, nil if the session is closed.
func (s *Session) kid(child *Child, b Browser, to audience) *kid {
	key := child.Name + "\x00" + string(to) + "\x00"
	if child.drives {
		key += b.Pool + "\x00" + b.Instance + "\x00" + b.Session
	}
	c := &s.children
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	k := c.all[key]
	var subs map[string]int
	if k != nil && child.drives && k.browser.HTTPURL != b.HTTPURL {
		if !s.do(k.stop) { // its browser has moved
			return nil
		}
		subs = k.subscriptions()
		k = nil
	}
	if k == nil {
		k = newKid(s, child, b, to, subs)
		c.all[key] = k
	}
	return k
}

// list are all of them, whether they run or not.
func (c *children) list() []*kid {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.all))
}

// running are the processes that run.
func (c *children) running() (running []*process) {
	for _, k := range c.list() {
		if p := k.running(); p != nil {
			running = append(running, p)
		}
	}
	return running
}

// start notes that children are started for an audience, and reports whether
// some were before.
func (c *children) start(to audience) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.started[to]
	c.started[to] = true
	return before
}

// hasRoom reports whether children may be started for an audience.
func (c *children) hasRoom(to audience, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[to] || len(c.started) < most
}

// remove removes those of a virtual browser.
func (c *children) remove(browser string) (removed []*kid) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, k := range c.all {
		if k.browser.Session == browser {
			removed = append(removed, k)
			delete(c.all, key)
		}
	}
	return removed
}

// replace notes that a process goes on for its calls only, unless too many do.
func (c *children) replace(p *process, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replaced) >= most || slices.Contains(c.replaced, p) {
		return false
	}
	c.replaced = append(c.replaced, p)
	return true
}

// finish notes that a replaced process has ended.
func (c *children) finish(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaced = slices.DeleteFunc(c.replaced, func(other *process) bool { return other == p })
}

// close lets no more be made. It returns those that are to be stopped.
func (c *children) close() map[string]*kid {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return maps.Clone(c.all) // one may be ended just now
}
