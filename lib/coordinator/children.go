package coordinator

import (
	"maps"
	"slices"
	"sync"

	"btools/lib/agent/source"
	"btools/lib/mcp"
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
func (c *children) supervisor(child *Child, b source.Browser, to mcp.Audience) *supervisor {
	key := child.Name + "\x00" + string(to) + "\x00"
	if child.drives {
		key += b.Pool + "\x00" + b.Instance + "\x00" + b.Session
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	sup := c.supervisors[key]
	var subs map[string]int
	if sup != nil && child.drives && sup.browser.HTTPURL != b.HTTPURL {
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
