// Package wire sends commands to a browser and hands out their answers, over any
// connection that carries the messages of the Chrome DevTools Protocol.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"btools/lib/jsonrpc"
)

// Errors of calls, when the connection to the browser or the CDP session has
// ended.
var (
	ErrDisconnected = errors.New("the connection to the browser has ended")
	ErrDetached     = errors.New("the session with the target has ended")
)

// Calls sends commands on a connection.
type Calls struct {
	put  func(message []byte)
	step int // from one id to the next

	mu      sync.Mutex
	last    int
	ended   bool
	waiting map[int]waiter
}

// waiter waits for the answer to a command.
type waiter struct {
	session string
	done    func(json.RawMessage, error)
}

// NewCalls returns the calls of a connection; put sends a message on it. Their ids
// are negative and a client's are not, so both can share one.
func NewCalls(put func(message []byte)) *Calls {
	return &Calls{put: put, step: -1, waiting: map[int]waiter{}}
}

// NewClient returns the calls of a client, whose ids are positive: a virtual browser
// refuses others.
func NewClient(put func(message []byte)) *Calls {
	return &Calls{put: put, step: 1, waiting: map[int]waiter{}}
}

// Begin sends a command and does not wait. The connection's reader calls done
// once, with the answer; done must not wait either.
func (c *Calls) Begin(session, method string, params any, done func(result json.RawMessage, err error)) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		go done(nil, ErrDisconnected) // the caller may hold a lock that done takes
		return
	}
	c.last += c.step
	id := c.last
	c.waiting[id] = waiter{session, done}
	c.mu.Unlock()
	c.put(Command(strconv.Itoa(id), session, method, params))
}

// Send sends a command without waiting for its answer. Chrome does not answer
// if the CDP session ends meanwhile.
func (c *Calls) Send(session, method string, params any) {
	c.mu.Lock()
	c.last += c.step
	id := c.last
	c.mu.Unlock()
	c.put(Command(strconv.Itoa(id), session, method, params))
}

// FailSession fails the commands that wait on a CDP session that has ended:
// Chrome does not answer them.
func (c *Calls) FailSession(session string) {
	var over []func(json.RawMessage, error)
	c.mu.Lock()
	for id, w := range c.waiting {
		if w.session == session {
			over = append(over, w.done)
			delete(c.waiting, id)
		}
	}
	c.mu.Unlock()
	for _, done := range over {
		done(nil, ErrDetached)
	}
}

// Pending returns how many commands wait for an answer.
func (c *Calls) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// Call sends a command and waits for its answer. The connection's reader must
// not call it.
func (c *Calls) Call(ctx context.Context, session, method string, params any) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	got := make(chan answer, 1)
	c.Begin(session, method, params, func(result json.RawMessage, err error) { got <- answer{result, err} })
	select {
	case a := <-got:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Answered handles the answer to one of our commands.
func (c *Calls) Answered(id int, message []byte) {
	c.mu.Lock()
	done := c.waiting[id].done
	delete(c.waiting, id)
	c.mu.Unlock()
	if done == nil {
		return
	}
	raw := jsonrpc.Get(message, "error")
	if raw == nil {
		done(jsonrpc.Get(message, "result"), nil)
		return
	}
	err := &jsonrpc.Error{}
	if json.Unmarshal(raw, err) != nil {
		err = jsonrpc.Errorf(jsonrpc.InternalError, "%s", raw)
	}
	done(nil, err)
}

// End fails all waiting commands, and all later ones.
func (c *Calls) End() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.ended = nil, true
	c.mu.Unlock()
	for _, w := range waiting {
		w.done(nil, ErrDisconnected)
	}
}
