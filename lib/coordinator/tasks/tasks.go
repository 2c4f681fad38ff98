// Package tasks keeps the tasks of MCP hosts: calls whose answer says only that they
// have begun, and whose result is fetched later. It knows which task runs, which waits
// for others on the same browser, how each has ended, and how long that is kept. It is
// a state machine without locks, goroutines or clocks: callers must call the methods of
// a Table one at a time, with the time as an argument, and then start what they return.
// It knows nothing of MCP's messages, and not how a task is executed.
package tasks

import (
	"errors"
	"time"
)

// Status is what the host sees of a task.
type Status string

// A task is Working, also while it waits for others, or InputRequired. The others are
// terminal: they never change.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// IsTerminal reports whether a task with this status has ended for its host.
func (s Status) IsTerminal() bool { return s == Completed || s == Failed || s == Cancelled }

// stage is how far the execution of a task is. It goes on for a moment after a task
// was cancelled, and keeps its browser from the next task until it has stopped.
type stage int

const (
	queued  stage = iota // its execution has not begun
	running              // and has its place, or needs none yet
	blocked              // begun, and waits for its place
	over                 // its execution has ended, or will never begin
)

// Queue is where a task waits before it is executed. Of the tasks with one Key, Slots
// are executed at a time, first in, first out. An empty Key is no queue: the task is
// executed at once.
type Queue struct {
	Key   string
	Slots int
}

// Task is one task. The caller sets the fields that are exported before Add and does
// not change them; State is what the table knows.
type Task[V any] struct {
	ID    string // that nobody can guess
	Owner string // who alone may see it
	Queue Queue
	TTL   time.Duration // how long its result is kept; Add shortens it to what is allowed
	Value V             // the caller's

	state  State
	stage  stage
	number int64  // in the order of creation
	place  string // where it is executed; "": nowhere in particular, or it is not known yet
	ended  time.Time
	size   int // of its result, in bytes
}

// State is a task's state as its host sees it.
type State struct {
	Status           Status
	Message          string // for people
	Created, Updated time.Time
}

// Limits bound the tasks.
type Limits struct {
	Queued int           // tasks of a queue that wait
	Kept   int           // tasks of an owner
	Bytes  int           // of the results of an owner; the oldest are forgotten first
	TTL    time.Duration // how long a result is kept at most
}

// Errors of a table.
var (
	ErrFull     = errors.New("too many tasks wait")
	ErrTooMany  = errors.New("too many tasks are kept")
	ErrUnknown  = errors.New("there is no such task")
	ErrTerminal = errors.New("the task has ended")
	ErrCursor   = errors.New("there is no such page")
)
