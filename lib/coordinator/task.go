package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// taskCall is a call that is executed as a task, and what comes of it. The fields of the last group are under the lock
// of the tasks of all hosts.
type taskCall struct {
	*tasks.Task[*taskCall] // whose Value it is

	host    *Host
	call    *jsonrpc.Message // with an ID of its own; nil: its child has made the task
	form    mcp.TaskForm
	own     bool          // a tool of bmcp's own
	done    chan struct{} // closed when the answer is there
	entered chan struct{} // closed when the browser is for this task alone

	stop      func(error) // ends the execution; nil: it has not begun
	answer    *jsonrpc.Message
	questions map[string]json.RawMessage // that the host has to answer
	key       string                     // of these
}

// taskTable are the tasks of all hosts: those of several may be for one browser.
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

// newTask is a task for the call that the request is.
func (req *request) newTask() *taskCall {
	t := &taskCall{host: req.host, form: req.env.Tasks, done: make(chan struct{}), entered: make(chan struct{})}
	t.Task = &tasks.Task[*taskCall]{ID: rand.Text(), Owner: req.host.name, TTL: req.ttl, Value: t}
	return t
}

// createTask answers the call of a tool by a task, which it begins or queues.
func (c *toolCall) createTask() {
	t := c.newTask()
	var err error
	t.call, err = jsonrpc.Parse(c.m.WithParams(jsonrpc.Delete(c.m.Params, "task")).WithID(requestOf(t.ID)))
	if err != nil {
		c.fail(err)
		return
	}
	if t.own = c.host.server.isOwn(c.env.Name); t.own {
		w, _ := source.RefIn(c.env.Args, c.host.server.chosenBy()) // an error is told when it is executed
		t.Queue = c.host.browsers.Queue(w)
	}
	created, begin, err := t.add()
	if err != nil {
		c.fail(err)
		return
	}
	c.result(created)
	if begin {
		t.begin()
	}
}

// locked reads or changes the tasks of all hosts.
func (t *taskCall) locked(do func(*taskTable)) { t.host.server.tasks.Do(do) }

// add adds a task. It returns the answer that says so, and whether its execution is to begin.
func (t *taskCall) add() (created json.RawMessage, begin bool, err error) {
	t.locked(func(all *taskTable) {
		if begin, err = all.Add(t.Task, time.Now()); err == nil {
			created = t.form.Created(t.viewLocked(all))
		}
	})
	switch {
	case errors.Is(err, tasks.ErrFull):
		err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "too many tasks wait for this browser (limit %d): wait until "+
			"one has ended, or cancel one", maxQueuedTasks)
	case errors.Is(err, tasks.ErrTooMany):
		err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "too many tasks of this host are kept (limit %d)",
			maxKeptTasks)
	}
	return created, begin, err
}

// begin begins the execution of a task. It does not wait for it.
func (t *taskCall) begin() {
	if !t.host.do(t.exec) {
		t.end(faultAnswer(source.ErrEnded))
	}
}

func (t *taskCall) exec() {
	h := t.host
	req := h.newRequest(t.call)
	req.execs.Store(t)
	req.Detached = true
	ctx, cancel := context.WithCancelCause(h.ctx)
	req.cancel = func() { cancel(nil) }
	stop := cancel
	if !t.own {
		stop = req.stop
	}
	var over bool
	t.locked(func(all *taskTable) {
		over = all.State(t.Task).Status.IsTerminal() || t.answer != nil // it was stopped meanwhile
		t.stop = stop
	})
	if over {
		cancel(nil)
		t.end(t.neverRun(errTaskCancelled))
		return
	}
	h.accept(ctx, req)
}

// stop ends the call of a child's tool.
func (req *request) stop(why error) {
	req.host.apply(func(open *table) []effect { return open.End(&req.Request, req.faultOf(why), why.Error()) })
}

// faultAnswer is the answer to a call that has failed.
func faultAnswer(err error) *jsonrpc.Message { return resultAnswer(faultResult(err)) }

func resultAnswer(result json.RawMessage) *jsonrpc.Message {
	m, _ := jsonrpc.Parse(jsonrpc.Response(json.RawMessage("0"), result))
	return m
}

// neverRun is the answer to the call of a task that is not executed.
func (t *taskCall) neverRun(why error) *jsonrpc.Message {
	if t.own {
		if result := bulkNeverRun(jsonrpc.Get(t.call.Params, "arguments"), why); result != nil {
			return resultAnswer(t.host.newRequest(t.call).env.Era.Result("tools/call", result))
		}
	}
	return faultAnswer(why)
}

// answered ends a task with the answer to its call. A nil message is none.
func (t *taskCall) answered(message []byte) {
	if message == nil {
		t.end(faultAnswer(errUnanswered))
		return
	}
	if m, err := jsonrpc.Parse(message); err == nil { // it is ours, or was read already
		t.end(m)
	}
}

// end ends a task with its answer, and begins others that have waited for that.
func (t *taskCall) end(answer *jsonrpc.Message) {
	status, message := tasks.Completed, ""
	switch {
	case answer.Error != nil:
		status, message = tasks.Failed, jsonrpc.GetString(answer.Error, "message")
	case string(jsonrpc.Get(answer.Result, "isError")) == "true":
		message = firstLine(errorText(answer.Result))
		if t.form == mcp.AskedTasks {
			status = tasks.Failed
		}
	}
	var next tasks.Next[*taskCall]
	var told bool
	t.locked(func(all *taskTable) {
		if t.answer != nil {
			return // the host's end was first
		}
		if told = !all.State(t.Task).Status.IsTerminal(); message == "" {
			message = all.State(t.Task).Message // what its commands have come to
		}
		next = all.End(t.Task, status, message, len(answer.Raw), time.Now())
		t.answer, t.stop, t.questions = answer, nil, nil
		close(t.done)
		for _, other := range next.Enter {
			close(other.Value.entered)
		}
	})
	if told {
		t.tell()
	}
	for _, other := range next.Begin {
		other.Value.begin()
	}
}

// cancel gives a task its terminal status, and ends its execution.
func (t *taskCall) cancel() error {
	var queued bool
	var err error
	var stop func(error)
	t.locked(func(all *taskTable) {
		queued, err = all.Stop(t.Task, tasks.Cancelled, errTaskCancelled.Error(), time.Now())
		stop = t.stop
	})
	if err != nil {
		return err
	}
	t.tell()
	switch {
	case queued:
		t.end(t.neverRun(errTaskCancelled))
	case stop != nil:
		stop(errTaskCancelled)
	}
	return nil
}

// disconnect fails the tasks that wait for the browser of this one, which has ended.
func (t *taskCall) disconnect() {
	var some []*tasks.Task[*taskCall]
	t.locked(func(all *taskTable) { some = all.Behind(t.Task) })
	for _, one := range some {
		var stop func(error)
		other := one.Value
		other.locked(func(*taskTable) { stop = other.stop })
		if stop != nil {
			stop(errDisconnected)
		} else {
			other.end(other.neverRun(errDisconnected))
		}
	}
}

// note changes what a task says of itself.
func (t *taskCall) note(status tasks.Status, message string) {
	var changed bool
	t.locked(func(all *taskTable) { changed = all.Note(t.Task, status, message, time.Now()) })
	if changed {
		t.tell()
	}
}

// enter waits until a task is the only one on its browser.
func (t *taskCall) enter(ctx context.Context, where string) error {
	var first bool
	t.locked(func(all *taskTable) { first = all.Enter(t.Task, where) })
	if first {
		return nil
	}
	select {
	case <-t.entered:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
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
	return strings.TrimPrefix(firstText(result), "### Error\n")
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
