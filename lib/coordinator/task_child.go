package coordinator

import (
	"encoding/json"
	"fmt"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// A child may run a tool as a task only. It is then called so, and its own task, once
// it has made one, becomes one of bmcp's. Before that it may ask the host, or refuse.

// makesTasks reports whether the child of a tool makes tasks.
func (c *toolCall) makesTasks() bool {
	return c.host.server.catalog.Has(c.route.Child, "tasks", "requests", "tools", "call")
}

// asChildTask is a call as one that the child makes a task of, if it insists on that.
func asChildTask(req *request, m *jsonrpc.Message) *jsonrpc.Message {
	if !req.insists {
		return m
	}
	return m.WithParams(jsonrpc.Set(m.Params, "task", fmt.Appendf(nil, `{"ttl":%d}`, taskTTL.Milliseconds())))
}

// childTaskOf is the ID of the task that a child has made of a call, "" if it has
// answered the call.
func childTaskOf(req *request, got *jsonrpc.Message) string {
	if !req.insists || got == nil {
		return ""
	}
	return jsonrpc.GetString(got.Result, "task", "taskId")
}

// adoptTask makes the task that a child has made of a call one of bmcp's, and answers
// the host with it.
func (req *request) adoptTask(p *running, id string) {
	cancel := func() { p.Tell("tasks/cancel", jsonrpc.Set(nil, "taskId", jsonrpc.Quote(id))) }
	t := req.newTask()
	t.stop = req.stop
	created, _, err := t.add()
	if err != nil {
		cancel()
		req.fail(err)
		return
	}
	n := p.NewID()
	var was json.RawMessage
	var open bool
	req.host.read(func(all *table) {
		if was, open = all.Detach(&req.Request, requestOf(t.ID), n); open {
			req.childTask.Store(&id)
			req.execs.Store(t)
		}
	})
	if !open { // the host has cancelled the call
		cancel()
		t.end(faultAnswer(errTaskCancelled))
		return
	}
	req.host.send(was, true, jsonrpc.Response(was, req.env.Era.Result(req.Method, created)))
	about := jsonrpc.Set(nil, "taskId", jsonrpc.Quote(id))
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), "tasks/result", about))
	if err == nil {
		err = p.Relay(n, m, func(got *jsonrpc.Message, err error) { req.answer(unrelated(got), err) })
	}
	if err != nil {
		req.answer(nil, err)
	}
}

// unrelated is an answer that does not name the child's task.
func unrelated(m *jsonrpc.Message) *jsonrpc.Message {
	if m == nil || jsonrpc.Get(m.Result, "_meta", mcp.MetaTask) == nil {
		return m
	}
	result := jsonrpc.Set(m.Result, "_meta", jsonrpc.Delete(jsonrpc.Get(m.Result, "_meta"), mcp.MetaTask))
	other, err := jsonrpc.Parse(jsonrpc.Response(m.ID, result))
	if err != nil {
		return m
	}
	return other
}
