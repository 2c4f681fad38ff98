package coordinator

import (
	"context"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// support is whether the tool of a call runs as a task, "" if it does not. Known is false
// if the tool is not known yet.
func (req *request) support() (support string, known bool) {
	if req.host.c.isOwn(req.env.Name) {
		if req.env.Name == bulkName {
			return mcp.TaskOptional, true
		}
		return "", true
	}
	r, ok := req.host.tools(req.env.Audience).route(req.env.Name)
	return r.support(), ok
}

// support is whether a child's tool runs as a task.
func (r *route) support() string {
	support := jsonrpc.GetString(r.tool, "execution", "taskSupport")
	if support != mcp.TaskOptional && support != mcp.TaskRequired {
		return ""
	}
	return support
}

// asTask answers the call of a tool by a task, if the host asks for that, and reports
// whether it did, or has refused to.
func (s *Session) asTask(ctx context.Context, req *request) bool {
	if req.env.Tasks == mcp.NoTasks || req.env.Tasks == mcp.AskedTasks && req.env.Task == nil {
		return false
	}
	support, known := req.support()
	if !known && req.env.Tasks != mcp.UndeclaredTasks {
		s.turns.Add(req.turn, nil) // it came before those that come while the tool is found
		s.do(func() { s.findTask(ctx, req) })
		return true
	}
	return req.asTaskOf(support)
}

// asTaskOf is asTask for a tool that is known.
func (req *request) asTaskOf(support string) bool {
	switch req.env.Tasks {
	case mcp.UndeclaredTasks:
		if support == mcp.TaskRequired {
			req.fail(mcp.ErrUndeclared())
			return true
		}
		return false
	case mcp.GrantedTasks:
		if support == "" {
			return false
		}
	case mcp.AskedTasks:
		if support == "" {
			req.fail(jsonrpc.Errorf(jsonrpc.MethodNotFound, "the tool %s does not run as a task", req.env.Name))
			return true
		}
	default:
		return false
	}
	var err error
	if req.ttl, err = req.env.Tasks.TTL(req.env.Task, taskTTL); err != nil {
		req.fail(err)
		return true
	}
	req.insists = support == mcp.TaskRequired && req.makesTasks()
	if req.insists {
		return false
	}
	req.createTask()
	return true
}

// findTask answers the call of a tool that is not known yet.
func (s *Session) findTask(ctx context.Context, req *request) {
	r, ok := req.find(ctx, req.env.Name)
	if !ok {
		req.fail(req.unknown(req.env.Name))
		return
	}
	if !req.asTaskOf(r.support()) {
		s.serve(ctx, req)
	}
}
