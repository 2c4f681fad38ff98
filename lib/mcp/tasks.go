package mcp

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"btools/lib/jsonrpc"
)

// TaskForm is the form that tasks have for the host of a request. Hosts of the newest
// protocol with a handshake ask for a task; those of the stateless protocol say that
// they know the extension, and get a task whenever a tool may run as one.
type TaskForm int

const (
	NoTasks    TaskForm = iota // its protocol has none
	AskedTasks                 // of the protocol with a handshake
	GrantedTasks
	UndeclaredTasks // its protocol has the extension, but the host does not say that it knows it
)

const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	MetaTask       = "io.modelcontextprotocol/related-task"
)

// Whether a tool runs as a task, in its list.
const (
	TaskOptional = "optional"
	TaskRequired = "required"
)

// taskFormOf is the form of tasks for a host of the stateless protocol.
func taskFormOf(capabilities json.RawMessage) TaskForm {
	if has := jsonrpc.Get(capabilities, "extensions", tasksExtension); len(has) > 0 && has[0] == '{' {
		return GrantedTasks
	}
	return UndeclaredTasks
}

// Offer adds to capabilities that there are tasks.
func (f TaskForm) Offer(all json.RawMessage) json.RawMessage {
	switch f {
	case AskedTasks:
		return jsonrpc.Set(all, "tasks", json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`))
	case GrantedTasks, UndeclaredTasks:
		extensions := jsonrpc.Set(jsonrpc.Get(all, "extensions"), tasksExtension, json.RawMessage("{}"))
		return jsonrpc.Set(all, "extensions", extensions)
	}
	return all
}

// Listed are tools as hosts know them whose protocol says which run as tasks: this one,
// of bmcp's own.
func (f TaskForm) Listed(all []json.RawMessage, own string) []json.RawMessage {
	if f != AskedTasks {
		return all
	}
	all = slices.Clone(all)
	for i, tool := range all {
		if jsonrpc.GetString(tool, "name") == own {
			all[i] = jsonrpc.Set(tool, "execution", json.RawMessage(`{"taskSupport":"`+TaskOptional+`"}`))
		}
	}
	return all
}

// TaskSupport is whether a tool runs as a task, "" if it does not.
func TaskSupport(tool json.RawMessage) string {
	support := jsonrpc.GetString(tool, "execution", "taskSupport")
	if support != TaskOptional && support != TaskRequired {
		return ""
	}
	return support
}

// TTL is how long the host wants the result of a call to be kept that is to be executed as
// this task, at most this long.
func (f TaskForm) TTL(task json.RawMessage, most time.Duration) (time.Duration, error) {
	raw := jsonrpc.Get(task, "ttl")
	if f != AskedTasks || raw == nil || string(raw) == "null" {
		return most, nil
	}
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || ms < 0 {
		return 0, jsonrpc.Errorf(jsonrpc.InvalidParams, "the ttl of a task is a number of milliseconds, not %s",
			jsonrpc.Clip(raw))
	}
	return time.Duration(min(ms, float64(most.Milliseconds()))) * time.Millisecond, nil
}

// TaskView is a task as its host sees it.
type TaskView struct {
	ID               string
	TTL, Poll        time.Duration // how long its result is kept, and how often the host is to ask for it
	Created, Updated time.Time
	Status, Message  string
}

// Task is a task as the form has it.
func (f TaskForm) Task(t TaskView) json.RawMessage {
	ms := func(d time.Duration) json.RawMessage { return strconv.AppendInt(nil, d.Milliseconds(), 10) }
	at := func(t time.Time) json.RawMessage { return jsonrpc.Quote(t.UTC().Format("2006-01-02T15:04:05.000Z")) }
	ttl, poll := "ttl", "pollInterval"
	if f == GrantedTasks {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	m := jsonrpc.Set(nil, poll, ms(t.Poll))
	m = jsonrpc.Set(m, ttl, ms(t.TTL))
	m = jsonrpc.Set(m, "lastUpdatedAt", at(t.Updated))
	m = jsonrpc.Set(m, "createdAt", at(t.Created))
	if t.Message != "" {
		m = jsonrpc.Set(m, "statusMessage", jsonrpc.Quote(t.Message))
	}
	m = jsonrpc.Set(m, "status", jsonrpc.Quote(t.Status))
	return jsonrpc.Set(m, "taskId", jsonrpc.Quote(t.ID))
}

// Created is the answer to a call that has become a task.
func (f TaskForm) Created(t TaskView) json.RawMessage {
	if f == AskedTasks {
		return jsonrpc.Set(nil, "task", f.Task(t))
	}
	return jsonrpc.Set(f.Task(t), "resultType", json.RawMessage(`"task"`))
}

// HasMethod reports whether the form has a method.
func (f TaskForm) HasMethod(method string) bool {
	switch method {
	case "tasks/get", "tasks/cancel":
		return f != NoTasks
	case "tasks/result", "tasks/list":
		return f == AskedTasks
	case "tasks/update":
		return f == GrantedTasks || f == UndeclaredTasks
	}
	return false
}

// ErrUndeclared is the error for what needs the extension.
func ErrUndeclared() error {
	e := jsonrpc.Errorf(MissingCapability, "the host has to declare the extension %s", tasksExtension)
	e.Data = json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`)
	return e
}
