package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
)

// taskForm is the form that tasks have for the host of a request. Hosts of the newest
// protocol with a handshake ask for a task; those of the stateless protocol say that
// they know the extension, and get a task whenever a tool may run as one.
type taskForm int

const (
	noTasks    taskForm = iota // its protocol has none
	askedTasks                 // of the protocol with a handshake
	grantedTasks
	undeclaredTasks // its protocol has the extension, but the host does not say that it knows it
)

const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	metaTask       = "io.modelcontextprotocol/related-task"
)

// Whether a tool runs as a task, in its list.
const (
	taskOptional = "optional"
	taskRequired = "required"
)

// taskFormOf is the form of tasks for a host of the stateless protocol.
func taskFormOf(capabilities json.RawMessage) taskForm {
	if has := jsonrpc.Get(capabilities, "extensions", tasksExtension); len(has) > 0 && has[0] == '{' {
		return grantedTasks
	}
	return undeclaredTasks
}

// handshakeForm is the form of tasks for the host of the handshake.
func (s *Session) handshakeForm() taskForm {
	if version := s.version.Load(); version != nil && *version == legacy {
		return askedTasks
	}
	return noTasks
}

// offerTasks adds to capabilities that there are tasks.
func offerTasks(form taskForm, all json.RawMessage) json.RawMessage {
	switch form {
	case askedTasks:
		return jsonrpc.Set(all, "tasks", json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`))
	case grantedTasks, undeclaredTasks:
		extensions := jsonrpc.Set(jsonrpc.Get(all, "extensions"), tasksExtension, json.RawMessage("{}"))
		return jsonrpc.Set(all, "extensions", extensions)
	}
	return all
}

// listed are tools as hosts know them whose protocol says which run as tasks: this one,
// of bmcp's own.
func (f taskForm) listed(all []json.RawMessage, own string) []json.RawMessage {
	if f != askedTasks {
		return all
	}
	all = slices.Clone(all)
	for i, tool := range all {
		if jsonrpc.GetString(tool, "name") == own {
			all[i] = jsonrpc.Set(tool, "execution", json.RawMessage(`{"taskSupport":"`+taskOptional+`"}`))
		}
	}
	return all
}

// ttl is how long the host wants the result of a call to be kept, at most this long.
func (f taskForm) ttl(params json.RawMessage, most time.Duration) (time.Duration, error) {
	raw := jsonrpc.Get(params, "task", "ttl")
	if f != askedTasks || raw == nil || string(raw) == "null" {
		return most, nil
	}
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || ms < 0 {
		return 0, jsonrpc.Errorf(jsonrpc.InvalidParams, "the ttl of a task is a number of milliseconds, not %s",
			jsonrpc.Clip(raw))
	}
	return time.Duration(min(ms, float64(most.Milliseconds()))) * time.Millisecond, nil
}

// taskView is a task as its host sees it.
type taskView struct {
	id               string
	ttl, poll        time.Duration // how long its result is kept, and how often the host is to ask for it
	created, updated time.Time
	status, message  string
}

func shownLocked(all *tasks.Table[*taskCall], t *task) taskView {
	state := all.State(t)
	if state.Message == "" {
		state.Message = taskMessage(all.Ahead(t))
	}
	return taskView{t.ID, t.TTL, pollTasks, state.Created, state.Updated, string(state.Status), state.Message}
}

func (s *Session) shownTask(t *task) (shown taskView) {
	s.c.tasks.read(func(all *tasks.Table[*taskCall]) { shown = shownLocked(all, t) })
	return shown
}

// task is a task as the form has it.
func (f taskForm) task(t taskView) json.RawMessage {
	ms := func(d time.Duration) json.RawMessage { return strconv.AppendInt(nil, d.Milliseconds(), 10) }
	at := func(t time.Time) json.RawMessage { return jsonrpc.Quote(t.UTC().Format("2006-01-02T15:04:05.000Z")) }
	ttl, poll := "ttl", "pollInterval"
	if f == grantedTasks {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	m := jsonrpc.Set(nil, poll, ms(t.poll))
	m = jsonrpc.Set(m, ttl, ms(t.ttl))
	m = jsonrpc.Set(m, "lastUpdatedAt", at(t.updated))
	m = jsonrpc.Set(m, "createdAt", at(t.created))
	if t.message != "" {
		m = jsonrpc.Set(m, "statusMessage", jsonrpc.Quote(t.message))
	}
	m = jsonrpc.Set(m, "status", jsonrpc.Quote(t.status))
	return jsonrpc.Set(m, "taskId", jsonrpc.Quote(t.id))
}

// created is the answer to a call that has become a task.
func (f taskForm) created(t taskView) json.RawMessage {
	if f == askedTasks {
		return jsonrpc.Set(nil, "task", f.task(t))
	}
	return jsonrpc.Set(f.task(t), "resultType", json.RawMessage(`"task"`))
}

// tellTask tells the host how a task is, if it is told what belongs to no request.
func (s *Session) tellTask(t *task) {
	if t.Value.form == askedTasks {
		s.send(nil, false, jsonrpc.Request(nil, "notifications/tasks/status", askedTasks.task(s.shownTask(t))))
	}
}

// hasMethod reports whether the form has a method.
func (f taskForm) hasMethod(method string) bool {
	switch method {
	case "tasks/get", "tasks/cancel":
		return f != noTasks
	case "tasks/result", "tasks/list":
		return f == askedTasks
	case "tasks/update":
		return f == grantedTasks || f == undeclaredTasks
	}
	return false
}

// serveTasks answers a request about tasks.
func (s *Session) serveTasks(ctx context.Context, m *jsonrpc.Message, req *request) {
	if req.tasks == undeclaredTasks {
		s.fail(req, errUndeclared())
		return
	}
	if m.Method == "tasks/list" {
		s.listTasks(m, req)
		return
	}
	id := jsonrpc.GetString(m.Params, "taskId")
	var t *task
	var err error
	s.c.tasks.read(func(all *tasks.Table[*taskCall]) { t, err = all.Get(s.name, id, time.Now()) })
	if err != nil {
		s.fail(req, jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no task %s (any more)", jsonrpc.Clip([]byte(id))))
		return
	}
	switch m.Method {
	case "tasks/get":
		s.result(req, s.detailed(req.tasks, t))
	case "tasks/result":
		s.taskResult(ctx, req, t)
	case "tasks/update":
		s.updateTask(t, jsonrpc.Get(m.Params, "inputResponses"))
		s.result(req, json.RawMessage("{}"))
	case "tasks/cancel":
		err := s.c.stopTask(t, tasks.Cancelled, errTaskCancelled)
		switch {
		case req.tasks == grantedTasks:
			s.result(req, json.RawMessage("{}"))
		case err != nil:
			s.fail(req, jsonrpc.Errorf(jsonrpc.InvalidParams, "cannot cancel task %s: it is %s already", t.ID,
				s.shownTask(t).status))
		default:
			s.result(req, req.tasks.task(s.shownTask(t)))
		}
	}
}

// detailed is the answer to tasks/get. In the extension it has the result, too.
func (s *Session) detailed(form taskForm, t *task) json.RawMessage {
	var answer *jsonrpc.Message
	var questions map[string]json.RawMessage
	var shown taskView
	s.c.tasks.read(func(all *tasks.Table[*taskCall]) {
		answer, questions, shown = t.Value.answer, t.Value.questions, shownLocked(all, t)
	})
	m := form.task(shown)
	switch {
	case form == askedTasks:
	case shown.status == string(tasks.InputRequired):
		requests := json.RawMessage("{}")
		for name, question := range questions {
			requests = jsonrpc.Set(requests, name, question)
		}
		m = jsonrpc.Set(m, "inputRequests", requests)
	case answer == nil || shown.status == string(tasks.Cancelled):
	case answer.Error != nil:
		m = jsonrpc.Set(m, "error", answer.Error)
	default:
		m = jsonrpc.Set(m, "result", answer.Result)
	}
	return m
}

// taskResult answers with what the call of a task is answered, once it is.
func (s *Session) taskResult(ctx context.Context, req *request, t *task) {
	select {
	case <-t.Value.done:
	case <-ctx.Done():
		return // its end is answered
	}
	var answer *jsonrpc.Message
	s.c.tasks.read(func(*tasks.Table[*taskCall]) { answer = t.Value.answer })
	if answer.Error != nil {
		s.finish(req, answer.WithID(req.ID))
		return
	}
	s.result(req, withTask(answer.Result, t.ID))
}

func (s *Session) listTasks(m *jsonrpc.Message, req *request) {
	var all []json.RawMessage
	var next string
	var err error
	s.c.tasks.read(func(table *tasks.Table[*taskCall]) {
		var page []*task
		page, next, err = table.List(s.name, jsonrpc.GetString(m.Params, "cursor"), tasksInPage, time.Now())
		for _, t := range page {
			all = append(all, req.tasks.task(shownLocked(table, t)))
		}
	})
	if errors.Is(err, tasks.ErrCursor) {
		s.fail(req, jsonrpc.Errorf(jsonrpc.InvalidParams, "%v: the cursor is none of a list of tasks", err))
		return
	}
	result := jsonrpc.Set(nil, "tasks", jsonrpc.Array(all))
	if next != "" {
		result = jsonrpc.Set(result, "nextCursor", jsonrpc.Quote(next))
	}
	s.result(req, result)
}
