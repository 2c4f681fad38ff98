package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// viewLocked is how a task is.
func (t *taskCall) viewLocked(all *taskTable) mcp.TaskView {
	state := all.State(t.Task)
	if state.Message == "" {
		state.Message = taskMessage(all.Ahead(t.Task))
	}
	return mcp.TaskView{ID: t.ID, TTL: t.TTL, Poll: pollTasks, Created: state.Created, Updated: state.Updated,
		Status: string(state.Status), Message: state.Message}
}

func (t *taskCall) view() (view mcp.TaskView) {
	t.locked(func(all *taskTable) { view = t.viewLocked(all) })
	return view
}

// tell tells the host how a task is, if it is told what belongs to no request.
func (t *taskCall) tell() {
	if t.form == mcp.AskedTasks {
		t.host.send(nil, false, jsonrpc.Request(nil, "notifications/tasks/status", t.form.Task(t.view())))
	}
}

// taskBy is the task of the host with an ID.
func (h *Host) taskBy(id string) (*taskCall, error) {
	var t *tasks.Task[*taskCall]
	var err error
	h.server.tasks.Do(func(all *taskTable) { t, err = all.Get(h.name, id, time.Now()) })
	if err != nil {
		return nil, err
	}
	return t.Value, nil
}

// serveTasks answers a request about tasks.
func (h *Host) serveTasks(ctx context.Context, req *request) {
	if req.env.Tasks == mcp.UndeclaredTasks {
		req.fail(mcp.ErrUndeclared())
		return
	}
	if req.Method == "tasks/list" {
		h.listTasks(req)
		return
	}
	id := jsonrpc.GetString(req.m.Params, "taskId")
	t, err := h.taskBy(id)
	if err != nil {
		req.fail(jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no task %s (any more)", jsonrpc.Clip([]byte(id))))
		return
	}
	switch req.Method {
	case "tasks/get":
		req.result(t.detailed(req.env.Tasks))
	case "tasks/result":
		req.taskResult(ctx, t)
	case "tasks/update":
		t.update(jsonrpc.Get(req.m.Params, "inputResponses"))
		req.result(json.RawMessage("{}"))
	case "tasks/cancel":
		err := t.cancel()
		switch {
		case req.env.Tasks == mcp.GrantedTasks:
			req.result(json.RawMessage("{}"))
		case err != nil:
			req.fail(jsonrpc.Errorf(jsonrpc.InvalidParams, "cannot cancel task %s: it is %s already", t.ID,
				t.view().Status))
		default:
			req.result(req.env.Tasks.Task(t.view()))
		}
	}
}

// detailed is the answer to tasks/get. In the extension it has the result, too.
func (t *taskCall) detailed(form mcp.TaskForm) json.RawMessage {
	var answer *jsonrpc.Message
	var questions map[string]json.RawMessage
	var shown mcp.TaskView
	t.locked(func(all *taskTable) { answer, questions, shown = t.answer, t.questions, t.viewLocked(all) })
	m := form.Task(shown)
	switch {
	case form == mcp.AskedTasks:
	case shown.Status == string(tasks.InputRequired):
		requests := json.RawMessage("{}")
		for name, question := range questions {
			requests = jsonrpc.Set(requests, name, question)
		}
		m = jsonrpc.Set(m, "inputRequests", requests)
	case answer == nil || shown.Status == string(tasks.Cancelled):
	case answer.Error != nil:
		m = jsonrpc.Set(m, "error", answer.Error)
	default:
		m = jsonrpc.Set(m, "result", answer.Result)
	}
	return m
}

// taskResult answers with what the call of a task is answered, once it is.
func (req *request) taskResult(ctx context.Context, t *taskCall) {
	select {
	case <-t.done:
	case <-ctx.Done():
		return // its end is answered
	}
	var answer *jsonrpc.Message
	t.locked(func(*taskTable) { answer = t.answer })
	if answer.Error != nil {
		req.finish(answer.WithID(req.ID))
		return
	}
	req.result(withTask(answer.Result, t.ID))
}

func (h *Host) listTasks(req *request) {
	var all []json.RawMessage
	var next string
	var err error
	h.server.tasks.Do(func(table *taskTable) {
		var page []*tasks.Task[*taskCall]
		page, next, err = table.List(h.name, jsonrpc.GetString(req.m.Params, "cursor"), tasksInPage, time.Now())
		for _, t := range page {
			all = append(all, req.env.Tasks.Task(t.Value.viewLocked(table)))
		}
	})
	if errors.Is(err, tasks.ErrCursor) {
		req.fail(jsonrpc.Errorf(jsonrpc.InvalidParams, "%v: the cursor is none of a list of tasks", err))
		return
	}
	result := jsonrpc.Set(nil, "tasks", jsonrpc.Array(all))
	if next != "" {
		result = jsonrpc.Set(result, "nextCursor", jsonrpc.Quote(next))
	}
	req.result(result)
}

// noteAsked notes whether the host is asked something by a request of the child that
// answers a request, if that is the call of a task.
func (h *Host) noteAsked(of json.RawMessage) {
	id := taskID(of)
	if id == "" {
		return
	}
	status := tasks.Working
	h.read(func(open *table) {
		if open.Asks(of) {
			status = tasks.InputRequired
		}
	})
	if t, err := h.taskBy(id); err == nil {
		t.note(status, "")
	}
}

// endTasks ends the tasks of a host that ends. Those that are executed end with
// their calls.
func (h *Host) endTasks() {
	var some []*tasks.Task[*taskCall]
	h.server.tasks.Do(func(all *taskTable) { some = all.Active(h.name) })
	for _, t := range some {
		t.Value.end(faultAnswer(source.ErrEnded))
	}
}
