package coordinator

import (
	"encoding/json"
	"time"

	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// What a child asks while it answers the call of a task reaches the host of the
// handshake as any other question does. Others find it at the task, and answer it by
// tasks/update.

// related marks a message to the host as one of a task, if it belongs to the call of
// one. It returns the request whose messages it is to be with.
func related(to json.RawMessage, m *jsonrpc.Message) (json.RawMessage, *jsonrpc.Message) {
	id := taskID(to)
	if id == "" {
		return to, m
	}
	return nil, m.WithParams(withTask(m.Params, id))
}

// withTask names a task in the _meta of an object.
func withTask(object json.RawMessage, id string) json.RawMessage {
	meta := jsonrpc.Set(jsonrpc.Get(object, "_meta"), mcp.MetaTask, jsonrpc.Set(nil, "taskId", jsonrpc.Quote(id)))
	return jsonrpc.Set(object, "_meta", meta)
}

// askTask has the host of a task asked what a child asks, in place of the host of a
// request. The task awaits its answers by tasks/update.
func (s *Session) askTask(t *task, key string, questions map[string]json.RawMessage) {
	s.c.tasks.Do(func(*taskTable) { t.Value.key, t.Value.questions = key, questions })
	s.noteTask(t, tasks.InputRequired, "")
}

// noteAsked notes whether the host is asked something by a request of the child that
// answers a request, if that is the call of a task.
func (s *Session) noteAsked(of json.RawMessage) {
	id := taskID(of)
	if id == "" {
		return
	}
	status := tasks.Working
	s.read(func(open *table) {
		if open.Asks(of) {
			status = tasks.InputRequired
		}
	})
	var t *task
	s.c.tasks.Do(func(all *taskTable) { t, _ = all.Get(s.name, id, time.Now()) })
	if t != nil {
		s.noteTask(t, status, "")
	}
}

// resumeTask notes that nothing is asked any more.
func (s *Session) resumeTask(t *task) {
	s.c.tasks.Do(func(*taskTable) { t.Value.questions = nil })
	s.noteTask(t, tasks.Working, "")
}

// updateTask goes on with a task that awaits input. What it has not asked is ignored.
func (s *Session) updateTask(t *task, input json.RawMessage) {
	var key string
	s.c.tasks.Do(func(*taskTable) {
		if t.Value.questions != nil {
			key = t.Value.key
		}
	})
	if key == "" {
		return
	}
	again := s.newRequest(t.Value.call)
	again.ID, again.Input, again.cancel = jsonrpc.Quote("task "+t.ID+" "+key), input, func() {}
	var err error
	s.read(func(open *table) { err = open.Add(&again.Request) })
	if err != nil {
		return // another answer was first
	}
	s.apply(func(open *table) (effects []effect) {
		if effects, err = open.Repeat(&again.Request, key); err != nil {
			effects = append(effects, open.Finish(&again.Request, nil)...)
		}
		return effects
	})
}
