package coordinator

import (
	"context"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// support is whether the tool of a call runs as a task, "" if it does not. Known is false
// if the tool is not known yet.
func (c *toolCall) support() (support string, known bool) {
	if c.host.server.isOwn(c.env.Name) {
		if c.env.Name == bulkName {
			return mcp.TaskOptional, true
		}
		return "", true
	}
	c.route, known = c.host.tools(c.env.Audience).Route(c.env.Name)
	return mcp.TaskSupport(c.route.Tool), known
}

// asTask answers the call of a tool by a task, if the host asks for that, and reports
// whether it did, or has refused to.
func (c *toolCall) asTask(ctx context.Context) bool {
	if c.env.Tasks == mcp.NoTasks || c.env.Tasks == mcp.AskedTasks && c.env.Task == nil {
		return false
	}
	support, known := c.support()
	if !known && c.env.Tasks != mcp.UndeclaredTasks {
		c.host.turns.Add(c.turn, nil) // it came before those that come while the tool is found
		c.host.do(func() { c.findTask(ctx) })
		return true
	}
	return c.asTaskOf(support)
}

// asTaskOf is asTask for a tool that is known.
func (c *toolCall) asTaskOf(support string) bool {
	switch c.env.Tasks {
	case mcp.UndeclaredTasks:
		if support == mcp.TaskRequired {
			c.fail(mcp.ErrUndeclared())
			return true
		}
		return false
	case mcp.GrantedTasks:
		if support == "" {
			return false
		}
	case mcp.AskedTasks:
		if support == "" {
			c.fail(jsonrpc.Errorf(jsonrpc.MethodNotFound, "the tool %s does not run as a task", c.env.Name))
			return true
		}
	default:
		return false
	}
	var err error
	if c.ttl, err = c.env.Tasks.TTL(c.env.Task, taskTTL); err != nil {
		c.fail(err)
		return true
	}
	c.insists = support == mcp.TaskRequired && c.makesTasks()
	if c.insists {
		return false
	}
	c.createTask()
	return true
}

// findTask answers the call of a tool that is not known yet.
func (c *toolCall) findTask(ctx context.Context) {
	r, ok := c.find(ctx, c.env.Name)
	if !ok {
		c.fail(c.unknown(c.env.Name))
		return
	}
	if err := c.to(r); err != nil {
		c.fault(err)
		return
	}
	if !c.asTaskOf(mcp.TaskSupport(r.Tool)) {
		c.inTurn(ctx)
	}
}
