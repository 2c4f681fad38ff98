package coordinator

import (
	"context"
	"encoding/json"

	"btools/lib/jsonrpc"
)

// support is whether a tool runs as a task, "" if it does not. Known is false if the
// tool is not known yet.
func (s *Session) support(name string, to audience) (support string, known bool) {
	if s.c.isOwn(name) {
		if name == bulkName {
			return taskOptional, true
		}
		return "", true
	}
	r, ok := s.tools(to).route(name)
	return r.support(), ok
}

// support is whether a child's tool runs as a task.
func (r *route) support() string {
	support := jsonrpc.GetString(r.tool, "execution", "taskSupport")
	if support != taskOptional && support != taskRequired {
		return ""
	}
	return support
}

// asTask answers the call of a tool by a task, if the host asks for that, and reports
// whether it did, or has refused to.
func (s *Session) asTask(ctx context.Context, m *jsonrpc.Message, req *request) bool {
	if req.tasks == noTasks || req.tasks == askedTasks && jsonrpc.Get(m.Params, "task") == nil {
		return false
	}
	name := jsonrpc.GetString(m.Params, "name")
	support, known := s.support(name, req.audience)
	if !known && req.tasks != undeclaredTasks {
		s.turns.add(req.turn, req.audience) // it came before those that come while the tool is found
		s.do(func() { s.findTask(ctx, m, req, name) })
		return true
	}
	return s.asTaskOf(m, req, support)
}

// asTaskOf is asTask for a tool that is known.
func (s *Session) asTaskOf(m *jsonrpc.Message, req *request, support string) bool {
	switch req.tasks {
	case undeclaredTasks:
		if support == taskRequired {
			s.fail(req, errUndeclared())
			return true
		}
		return false
	case grantedTasks:
		if support == "" {
			return false
		}
	case askedTasks:
		if support == "" {
			s.fail(req, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the tool %s does not run as a task",
				jsonrpc.GetString(m.Params, "name")))
			return true
		}
	default:
		return false
	}
	var err error
	if req.ttl, err = req.tasks.ttl(m.Params, taskTTL); err != nil {
		s.fail(req, err)
		return true
	}
	if req.insists = support == taskRequired && s.makesTasks(jsonrpc.GetString(m.Params, "name"), req); req.insists {
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

func errUndeclared() error {
	e := jsonrpc.Errorf(missingCapability, "the host has to declare the extension %s", tasksExtension)
	e.Data = json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`)
	return e
}
