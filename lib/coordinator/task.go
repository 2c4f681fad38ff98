package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// A host can have the call of a tool executed as a task: the answer says only that it
// has begun, and the result is fetched later. What is executed is the same call, under
// an ID of its own, whose answer goes to the task instead of the host.

// Bounds of tasks.
const (
	maxQueuedTasks = 100 // on one browser
	maxKeptTasks   = 10_000
	maxTaskBytes   = 256 << 20 // of the results of one host
	taskTTL        = time.Hour
	tasksInPage    = 100
	pollTasks      = 500 * time.Millisecond // how often a host is to ask for a task
)

// Errors that end tasks.
var (
	errDisconnected = errors.New("INSTANCE_DISCONNECTED: the browser ended, was disconnected, or is not leased any " +
		"more: a new task gets a new one")
	errTaskCancelled = errors.New("the task was cancelled")
	errUnanswered    = errors.New("the task was ended: nobody has answered what it asks")
)

// task is a call that is executed as a task.
type task = tasks.Task[*taskCall]

// taskCall is what is executed, and what comes of it. The fields below the first
// group are under the lock of the coordinator's tasks.
type taskCall struct {
	s       *Session
	call    *jsonrpc.Message // with an ID of its own
	form    mcp.TaskForm
	own     bool          // a tool of bmcp's own
	done    chan struct{} // closed when the answer is there
	entered chan struct{} // closed when the browser is for this task alone

	stop      func(error) // ends the execution; nil: it has not begun
	answer    *jsonrpc.Message
	questions map[string]json.RawMessage // that the host has to answer
	key       string                     // of these
}

// taskTable are the tasks of all sessions: those of several may be for one browser.
type taskTable = tasks.Table[*taskCall]

// taskID is the ID of a task that a message with this ID of a request belongs to, "":
// none.
func taskID(id json.RawMessage) string {
	const prefix = `"task `
	if len(id) > len(prefix) && string(id[:len(prefix)]) == prefix {
		return string(id[len(prefix) : len(id)-1])
	}
	return ""
}

// requestOf is the ID of the request that is the call of a task.
func requestOf(id string) json.RawMessage { return jsonrpc.Quote("task " + id) }

// createTask answers the call of a tool by a task, which it begins or queues.
func (s *Session) createTask(req *request) {
	t := &task{ID: rand.Text(), Owner: s.name, TTL: req.ttl}
	call, err := jsonrpc.Parse(req.m.WithParams(jsonrpc.Delete(req.m.Params, "task")).WithID(requestOf(t.ID)))
	if err != nil {
		req.fail(err)
		return
	}
	t.Value = &taskCall{s: s, call: call, form: req.env.Tasks, own: s.c.isOwn(req.env.Name), done: make(chan struct{}),
		entered: make(chan struct{})}
	if t.Value.own {
		w, _ := source.RefIn(req.env.Args, s.c.chosenBy()) // an error is told when it is executed
		t.Queue = s.browsers.Queue(w)
	}
	created, begin, err := s.addTask(t)
	if err != nil {
		req.fail(err)
		return
	}
	req.result(created)
	if begin {
		s.beginTask(t)
	}
}

// addTask adds a task. It returns the answer that says so, and whether its execution is
// to begin.
func (s *Session) addTask(t *task) (created json.RawMessage, begin bool, err error) {
	s.c.tasks.Do(func(all *taskTable) {
		if begin, err = all.Add(t, time.Now()); err == nil {
			created = t.Value.form.Created(shownLocked(all, t))
		}
	})
	switch {
	case errors.Is(err, tasks.ErrFull):
		err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "%d tasks wait for this browser, and no more are taken: wait "+
			"until one has ended, or cancel one", maxQueuedTasks)
	case errors.Is(err, tasks.ErrTooMany):
		err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "%d tasks of this host are kept, and no more are taken",
			maxKeptTasks)
	}
	return created, begin, err
}

// beginTask begins the execution of a task. It does not wait for it.
func (s *Session) beginTask(t *task) {
	if !s.do(func() { s.execTask(t) }) {
		s.c.endTask(t, faultAnswer(source.ErrEnded))
	}
}

func (s *Session) execTask(t *task) {
	v := t.Value
	req := s.newRequest(v.call)
	req.execs.Store(t)
	req.Detached = true
	ctx, cancel := context.WithCancelCause(s.ctx)
	req.cancel = func() { cancel(nil) }
	stop := cancel
	if !v.own {
		stop = s.stopOf(req)
	}
	var over bool
	s.c.tasks.Do(func(all *taskTable) {
		over = all.State(t).Status.IsTerminal() || v.answer != nil // it was stopped meanwhile
		v.stop = stop
	})
	if over {
		cancel(nil)
		s.c.endTask(t, s.neverRun(t, errTaskCancelled))
		return
	}
	s.accept(ctx, req)
}

// stopOf ends the call of a child's tool.
func (s *Session) stopOf(req *request) func(error) {
	return func(why error) {
		s.apply(func(open *table) []effect { return open.End(&req.Request, req.faultOf(why), why.Error()) })
	}
}

// faultAnswer is the answer to a call that has failed.
func faultAnswer(err error) *jsonrpc.Message { return resultAnswer(faultResult(err)) }

func resultAnswer(result json.RawMessage) *jsonrpc.Message {
	m, _ := jsonrpc.Parse(jsonrpc.Response(json.RawMessage("0"), result))
	return m
}

// neverRun is the answer to the call of a task that is not executed.
func (s *Session) neverRun(t *task, why error) *jsonrpc.Message {
	if t.Value.own {
		if result := bulkNeverRun(jsonrpc.Get(t.Value.call.Params, "arguments"), why); result != nil {
			return resultAnswer(s.newRequest(t.Value.call).env.Era.Result("tools/call", result))
		}
	}
	return faultAnswer(why)
}

// answerTask ends a task with the answer to its call. A nil message is none.
func (s *Session) answerTask(t *task, message []byte) {
	if message == nil {
		s.c.endTask(t, faultAnswer(errUnanswered))
		return
	}
	if m, err := jsonrpc.Parse(message); err == nil { // it is ours, or was read already
		s.c.endTask(t, m)
	}
}

// endTask ends a task with its answer, and begins others that have waited for that.
func (c *Coordinator) endTask(t *task, answer *jsonrpc.Message) {
	status, message := tasks.Completed, ""
	switch {
	case answer.Error != nil:
		status, message = tasks.Failed, jsonrpc.GetString(answer.Error, "message")
	case string(jsonrpc.Get(answer.Result, "isError")) == "true":
		message = firstLine(errorText(answer.Result))
		if t.Value.form == mcp.AskedTasks {
			status = tasks.Failed
		}
	}
	var next tasks.Next[*taskCall]
	var told bool
	c.tasks.Do(func(all *taskTable) {
		if t.Value.answer != nil {
			return // the session's end was first
		}
		if told = !all.State(t).Status.IsTerminal(); message == "" {
			message = all.State(t).Message // what its commands have come to
		}
		next = all.End(t, status, message, len(answer.Raw), time.Now())
		t.Value.answer, t.Value.stop, t.Value.questions = answer, nil, nil
		close(t.Value.done)
		for _, other := range next.Enter {
			close(other.Value.entered)
		}
	})
	if told {
		t.Value.s.tellTask(t)
	}
	for _, other := range next.Begin {
		other.Value.s.beginTask(other)
	}
}

// stopTask gives a task its terminal status, and ends its execution.
func (c *Coordinator) stopTask(t *task, status tasks.Status, why error) error {
	var queued bool
	var err error
	var stop func(error)
	c.tasks.Do(func(all *taskTable) {
		queued, err = all.Stop(t, status, why.Error(), time.Now())
		stop = t.Value.stop
	})
	if err != nil {
		return err
	}
	t.Value.s.tellTask(t)
	switch {
	case queued:
		c.endTask(t, t.Value.s.neverRun(t, why))
	case stop != nil:
		stop(why)
	}
	return nil
}

// disconnectTask fails the tasks that wait for the browser of one, which has ended.
func (c *Coordinator) disconnectTask(t *task) {
	var some []*task
	c.tasks.Do(func(all *taskTable) { some = all.Behind(t) })
	for _, other := range some {
		var stop func(error)
		c.tasks.Do(func(*taskTable) { stop = other.Value.stop })
		if stop != nil {
			stop(errDisconnected)
		} else {
			c.endTask(other, other.Value.s.neverRun(other, errDisconnected))
		}
	}
}

// noteTask changes what a task says of itself.
func (s *Session) noteTask(t *task, status tasks.Status, message string) {
	var changed bool
	s.c.tasks.Do(func(all *taskTable) { changed = all.Note(t, status, message, time.Now()) })
	if changed {
		s.tellTask(t)
	}
}

// enterTask waits until a task is the only one on its browser.
func (s *Session) enterTask(ctx context.Context, t *task, where string) error {
	var first bool
	s.c.tasks.Do(func(all *taskTable) { first = all.Enter(t, where) })
	if first {
		return nil
	}
	select {
	case <-t.Value.entered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isOfChild reports whether something is done for a task that is the call of a child's
// tool, which may ask its host.
func isOfChild(t *task) bool { return t != nil && !t.Value.own }

// endTasks ends the tasks of a session that ends. Those that are executed end with
// their calls.
func (s *Session) endTasks() {
	var some []*task
	s.c.tasks.Do(func(all *taskTable) { some = all.Active(s.name) })
	for _, t := range some {
		s.c.endTask(t, faultAnswer(source.ErrEnded))
	}
}

// errorText is what a result with isError says: what is wrong with the last command,
// or a text.
func errorText(result json.RawMessage) string {
	text := ""
	for e := range jsonrpc.Elements(jsonrpc.Get(result, "structuredContent", "errors")) {
		text = jsonrpc.GetString(e, "error")
	}
	if text != "" {
		return text
	}
	return firstText(result)
}

// firstLine is a text as the message of a task.
func firstLine(text string) string {
	const most = 500
	for i, c := range text {
		if c == '\n' || i > most {
			return text[:i]
		}
	}
	return text
}

// taskMessage says how many tasks are executed before one that waits.
func taskMessage(ahead int) string {
	if ahead == 0 {
		return ""
	}
	return fmt.Sprintf("waits for %d before it on this browser", ahead)
}
