package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
)

// A bulk call that runs as a task has its browser for itself among tasks, says how far
// it is, and ends with its browser.

// commandState is how far a command of a bulk call is.
type commandState string

const (
	commandPending commandState = "pending"
	commandRunning commandState = "running"
	commandSuccess commandState = "success"
	commandError   commandState = "error"
	commandSkipped commandState = "skipped"
)

// commandStates are those of the commands of a task. Nil: it is no task.
type commandStates struct {
	task     *taskCall
	commands []bulkCommand
	all      []commandState
}

func newCommandStates(t *taskCall, commands []bulkCommand) *commandStates {
	if t == nil {
		return nil
	}
	c := &commandStates{task: t, commands: commands, all: make([]commandState, len(commands))}
	for i := range c.all {
		c.all[i] = commandPending
	}
	return c
}

// begin notes that a command is being executed, end that it has ended.
func (c *commandStates) begin(i int) {
	if c != nil {
		c.all[i] = commandRunning
		c.task.note(tasks.Working, fmt.Sprintf("command %d of %d, %s, is running: %s", i+1, len(c.all),
			jsonrpc.Clip([]byte(c.commands[i].Tool)), c.count()))
	}
}

func (c *commandStates) end(i int, err error) {
	if c == nil {
		return
	}
	c.all[i] = commandSuccess
	if err != nil {
		c.all[i] = commandError
	}
}

// finish notes that the commands that are left are not executed. It returns the states.
func (c *commandStates) finish() []commandState {
	if c == nil {
		return nil
	}
	for i, state := range c.all {
		if state == commandPending {
			c.all[i] = commandSkipped
		}
	}
	c.task.locked(func(all *taskTable) { // its host is told at its end
		all.Note(c.task.Task, tasks.Working, c.count(), time.Now())
	})
	return c.all
}

// count says how many commands are in which state.
func (c *commandStates) count() string {
	count := map[commandState]int{}
	for _, state := range c.all {
		count[state]++
	}
	var parts []string
	for _, state := range []commandState{commandSuccess, commandError, commandRunning, commandSkipped,
		commandPending} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

// bulkNeverRun is the result of a bulk call that is not executed, nil if its arguments
// are wrong.
func bulkNeverRun(args json.RawMessage, why error) json.RawMessage {
	var p bulkArgs
	if json.Unmarshal(args, &p) != nil || len(p.Commands) == 0 {
		return nil
	}
	out := &bulkResult{Total: len(p.Commands), Results: []json.RawMessage{}, fails: true,
		Errors: []bulkError{{0, p.Commands[0].Tool, why.Error()}}}
	for range p.Commands {
		out.States = append(out.States, commandSkipped)
	}
	result, err := structured(out)
	if err != nil {
		return nil
	}
	return out.addTo(result)
}

// Bounds of the commands of a task.
const (
	commandTimeout = time.Minute
	// disconnectDelay is how long after a child's error it may take us to notice
	// that its browser has ended.
	disconnectDelay = 250 * time.Millisecond
)

var errCommandLate = fmt.Errorf("it did not end within %v: it was cancelled", commandTimeout)

// boundCommand bounds a command of a task.
func boundCommand(ctx context.Context, t *taskCall) (context.Context, context.CancelFunc) {
	if t == nil {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, commandTimeout, errCommandLate)
}

// place is where a task is executed that has a lease.
func place(h *Host, at *source.Lease) string {
	where := source.SeenKey(&at.Browser)
	if at.HTTPURL == "" { // each session has its own
		where += " " + h.name
	}
	if at.Virtual || at.Isolated {
		where += " " + at.ID
	}
	return where
}

// holdForTask waits until no other task uses the browser. The end of the browser, or of
// its lease, ends the task.
func (b *bulkRun) holdForTask(ctx context.Context) error {
	var lapsed <-chan struct{}
	if b.at.Lapse != nil {
		lapsed = b.at.Lapse()
	}
	b.watching.Go(func() {
		select {
		case <-b.at.Died:
		case <-lapsed:
		case <-ctx.Done():
			return
		}
		b.fail(errDisconnected)
		b.task.disconnect()
	})
	return b.task.enter(ctx, place(b.Host, b.at))
}

// disconnected is the error of a command, unless the browser has ended: the child may
// have noticed that before us.
func (b *bulkRun) disconnected(ctx context.Context, err error) error {
	if err == nil || b.task == nil || b.at == nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(disconnectDelay):
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errDisconnected) {
		return cause
	}
	return err
}
