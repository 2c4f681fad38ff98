// Package cdp is a client of the Chrome DevTools Protocol: commands, their
// answers and events on one connection with flat sessions. It has no types of the
// protocol's domains: parameters and results are JSON, of which a caller decodes
// what it needs.
package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Errors of commands that are not answered any more.
var (
	ErrDisconnected = errors.New("the connection to the browser has ended")
	ErrDetached     = errors.New("the target has closed")
)

// Event is an event of a target, or of the browser if Session is "".
type Event struct {
	Session, Method string
	Params          json.RawMessage
}

// Conn is a connection to a browser.
type Conn struct {
	ws   *websocket.Conn
	done chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[int]waiter // nil: the connection has ended
}

// waiter waits for the answer to a command.
type waiter struct {
	session string
	done    func(json.RawMessage, error)
}

// Dial connects to a browser's WebSocket. One goroutine calls event for each
// event, in their order; event must not wait for an answer.
func Dial(ctx context.Context, url string, event func(Event)) (*Conn, error) {
	ws, err := websocket.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	c := &Conn{ws: ws, done: make(chan struct{}), waiting: map[int]waiter{}}
	go c.read(event)
	return c, nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and waits until no event is handled any more.
func (c *Conn) Close() {
	c.ws.Close(websocket.Normal, "")
	<-c.done
}

// Begin sends a command and does not wait. The goroutine that handles events
// calls done once, which must not wait either; done may be nil.
func (c *Conn) Begin(session, method string, params any, done func(result json.RawMessage, err error)) {
	if done == nil {
		done = func(json.RawMessage, error) {}
	}
	raw, err := encode(params)
	if err != nil {
		go done(nil, err)
		return
	}
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		go done(nil, ErrDisconnected) // the caller may hold a lock that done takes
		return
	}
	c.last++
	id := c.last
	c.waiting[id] = waiter{session, done}
	c.mu.Unlock()
	if c.ws.Write(message(id, session, method, raw)) != nil { // the reader fails all commands
		c.ws.Close(websocket.Normal, "")
	}
}

// Call sends a command, waits for its answer and decodes it into result, which
// may be nil. An error of the browser is a *jsonrpc.Error. The handler of events
// must not call it.
func (c *Conn) Call(ctx context.Context, session, method string, params, result any) error {
	type answer struct {
		result json.RawMessage
		err    error
	}
	got := make(chan answer, 1)
	c.Begin(session, method, params, func(result json.RawMessage, err error) { got <- answer{result, err} })
	select {
	case a := <-got:
		if a.err != nil || result == nil {
			return a.err
		}
		if err := json.Unmarshal(a.result, result); err != nil {
			return fmt.Errorf("cannot read the answer to %s: %w", method, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read handles the browser's messages until the connection ends.
func (c *Conn) read(event func(Event)) {
	defer close(c.done)
	defer c.end()
	for {
		m, err := c.ws.Next()
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			return
		}
		if id := jsonrpc.Get(b, "id"); id != nil {
			c.answered(id, b)
			continue
		}
		e := Event{jsonrpc.GetString(b, "sessionId"), jsonrpc.GetString(b, "method"), jsonrpc.Get(b, "params")}
		if e.Method == "Target.detachedFromTarget" {
			c.failSession(jsonrpc.GetString(e.Params, "sessionId"))
		}
		event(e)
	}
}

// answered hands an answer to whom it is for.
func (c *Conn) answered(id json.RawMessage, b []byte) {
	n, err := strconv.Atoi(string(id))
	if err != nil {
		return
	}
	c.mu.Lock()
	w, ok := c.waiting[n]
	delete(c.waiting, n)
	c.mu.Unlock()
	if !ok {
		return
	}
	raw := jsonrpc.Get(b, "error")
	if raw == nil {
		w.done(jsonrpc.Get(b, "result"), nil)
		return
	}
	fault := &jsonrpc.Error{}
	if json.Unmarshal(raw, fault) != nil {
		fault = jsonrpc.Errorf(jsonrpc.InternalError, "%s", raw)
	}
	w.done(nil, fault)
}

// failSession fails the commands of a session that has ended: Chrome does not
// answer them.
func (c *Conn) failSession(session string) {
	var over []waiter
	c.mu.Lock()
	for id, w := range c.waiting {
		if w.session == session {
			over = append(over, w)
			delete(c.waiting, id)
		}
	}
	c.mu.Unlock()
	for _, w := range over {
		w.done(nil, ErrDetached)
	}
}

// end fails all commands that wait, and later ones.
func (c *Conn) end() {
	c.ws.Close(websocket.Normal, "")
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, w := range waiting {
		w.done(nil, ErrDisconnected)
	}
}

func encode(params any) (json.RawMessage, error) {
	switch p := params.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return p, nil
	}
	return json.Marshal(params)
}

func message(id int, session, method string, params json.RawMessage) []byte {
	b := strconv.AppendInt([]byte(`{"id":`), int64(id), 10)
	b = append(strconv.AppendQuote(append(b, `,"method":`...), method), `,"params":`...)
	if params == nil {
		params = json.RawMessage("{}")
	}
	b = append(b, params...)
	if session != "" {
		b = strconv.AppendQuote(append(b, `,"sessionId":`...), session)
	}
	return append(b, '}')
}
