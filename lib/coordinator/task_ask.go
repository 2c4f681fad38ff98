package coordinator

import (
	"context"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// support is whether a tool runs as a task, "" if it does not. Known is false if the
// tool is not known yet.
func (s *Session) support(name string, to mcp.Audience) (support string, known bool) {
	if s.c.isOwn(name) {
		if name == bulkName {
			return mcp.TaskOptional, true
		}
		return "", true
	}
	r, ok := s.tools(to).route(name)
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
func (s *Session) asTask(ctx context.Context, m *jsonrpc.Message, req *request) bool {
	if req.env.Tasks == mcp.NoTasks || req.env.Tasks == mcp.AskedTasks && jsonrpc.Get(m.Params, "task") == nil {
		return false
	}
	name := jsonrpc.GetString(m.Params, "name")
	support, known := s.support(name, req.env.Audience)
	if !known && req.env.Tasks != mcp.UndeclaredTasks {
		s.turns.add(req.turn, req.env.Audience) // it came before those that come while the tool is found
		s.do(func() { s.findTask(ctx, m, req, name) })
		return true
	}
	return s.asTaskOf(m, req, support)
}

// asTaskOf is asTask for a tool that is known.
func (s *Session) asTaskOf(m *jsonrpc.Message, req *request, support string) bool {
	switch req.env.Tasks {
	case mcp.UndeclaredTasks:
		if support == mcp.TaskRequired {
			s.fail(req, mcp.ErrUndeclared())
			return true
		}
		return false
	case mcp.GrantedTasks:
		if support == "" {
			return false
		}
	case mcp.AskedTasks:
		if support == "" {
			s.fail(req, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the tool %s does not run as a task",
				jsonrpc.GetString(m.Params, "name")))
			return true
		}
	default:
		return false
	}
	var err error
	if req.ttl, err = req.env.Tasks.TTL(m.Params, taskTTL); err != nil {
		s.fail(req, err)
		return true
	}
	req.insists = support == mcp.TaskRequired && s.makesTasks(jsonrpc.GetString(m.Params, "name"), req)
	if req.insists {
		return false
	}
	s.createTask(m, req)
	return true
}

// findTask answers the call of a tool that is not known yet.
func (s *Session) findTask(ctx context.Context, m *jsonrpc.Message, req *request, name string) {
	r, ok := s.find(ctx, name)
	if !ok {
		s.fail(req, s.unknown(ctx, name))
		return
	}
	if !s.asTaskOf(m, req, r.support()) {
		s.serve(ctx, m, req)
	}
}
