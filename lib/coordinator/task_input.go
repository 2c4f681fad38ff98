package coordinator

import (
	"encoding/json"

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

// ask has the host of a task asked what a child asks, in place of the host of a
// request. The task awaits its answers by tasks/update.
func (t *taskCall) ask(key string, questions map[string]json.RawMessage) {
	t.locked(func(*taskTable) { t.key, t.questions = key, questions })
	t.note(tasks.InputRequired, "")
}

// resume notes that nothing is asked any more.
func (t *taskCall) resume() {
	t.locked(func(*taskTable) { t.questions = nil })
	t.note(tasks.Working, "")
}

// update goes on with a task that awaits input. What it has not asked is ignored.
func (t *taskCall) update(input json.RawMessage) {
	h := t.host
	var key string
	t.locked(func(*taskTable) {
		if t.questions != nil {
			key = t.key
		}
	})
	if key == "" {
		return
	}
	again := h.newRequest(t.call)
	again.ID, again.Input, again.cancel = jsonrpc.Quote("task "+t.ID+" "+key), input, func() {}
	var err error
	h.read(func(open *table) { err = open.Add(&again.Request) })
	if err != nil {
		return // another answer was first
	}
	h.apply(func(open *table) (effects []effect) {
		if effects, err = open.Repeat(&again.Request, key); err != nil {
			effects = append(effects, open.Finish(&again.Request, nil)...)
		}
		return effects
	})
}
