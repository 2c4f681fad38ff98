package catalog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"btools/lib/mcp/child"
)

// Stage is what somebody waits for. It is also reached if the child cannot be started.
type Stage state

// Stages.
const (
	Initialized = Stage(initialized)
	Listed      = Stage(stale)  // in this run or the last one
	ListedNow   = Stage(failed) // in this run
)

// Await waits until each child has reached a stage, or the context ends. A child that
// does not get there is waited for only once, for at most this long: the time runs from
// when the first caller began to wait.
func (c *Catalog) Await(ctx context.Context, stage Stage, most time.Duration) {
	for i := range c.Children {
		c.awaitChild(ctx, &c.Children[i], state(stage), most)
	}
}

func (c *Catalog) awaitChild(ctx context.Context, child *child.Spec, s state, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	if e.began.IsZero() {
		e.began = time.Now()
	}
	if e.state >= s {
		return
	}
	patience := c.patienceLocked(e)
	timer := time.NewTimer(time.Until(e.began.Add(min(most, patience))))
	defer timer.Stop()
	for e.state < s {
		changed := c.changed.Next()
		c.mu.Unlock()
		over := false
		select {
		case <-changed:
		case <-ctx.Done():
			over = true
		case <-timer.C:
			over = true
			if most >= patience {
				c.late(child)
			}
		}
		c.mu.Lock()
		if over {
			return
		}
	}
}

// late records, also for the next run, that a child has not listed its tools in
// time.
func (c *Catalog) late(child *child.Spec) {
	c.mu.Lock()
	e := c.entries[child.Name]
	isNew := !e.Late && !e.hasTools(child)
	e.Late = e.Late || isNew
	now := *e
	c.mu.Unlock()
	if isNew {
		c.write(child, &now)
	}
}

func (c *Catalog) patienceLocked(e *entry) time.Duration {
	if e.Late || e.quiet {
		return c.Limits.Late
	}
	return c.Limits.List
}

// Patience returns how long to wait for a child's answer.
func (c *Catalog) Patience(child *child.Spec) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.patienceLocked(c.entries[child.Name])
}

// Answers records whether a child has answered in time.
func (c *Catalog) Answers(child *child.Spec, inTime bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[child.Name].quiet = !inTime
}

// LogAwaited logs which children have not listed their tools yet.
func (c *Catalog) LogAwaited() {
	var names []string
	c.mu.Lock()
	for i := range c.Children {
		if name := c.Children[i].Name; c.entries[name].state < state(Listed) {
			names = append(names, name)
		}
	}
	c.mu.Unlock()
	if len(names) > 0 {
		c.Log.Info(fmt.Sprintf("the first list of tools waits for %s, for at most %v", strings.Join(names, ", "),
			c.Limits.List))
	}
}
