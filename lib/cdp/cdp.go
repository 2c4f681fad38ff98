// Package cdp is a client of the Chrome DevTools Protocol: commands, their
// answers and events on one WebSocket with flat sessions. It has no types of the
// protocol's domains: parameters and results are JSON, of which a caller decodes
// what it needs.
package cdp

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Event is an event of a target, or of the browser if Session is "".
type Event struct {
	Session, Method string
	Params          json.RawMessage
}

// Conn is a connection to a browser.
type Conn struct {
	calls *wire.Calls
	ws    *websocket.Conn
	done  chan struct{}
	err   error // why it has ended
}

// stall is how long the browser may take no part of a command until it is given up.
const stall = 10 * time.Second

// Dial connects to a browser's WebSocket. One goroutine calls event for each
// event, in their order; event must not wait for an answer.
func Dial(ctx context.Context, url string, event func(Event)) (*Conn, error) {
	return DialTraced(ctx, url, event, nil)
}

// DialTraced is Dial with a function that gets each message, if it is not nil, as
// websocket.Conn.Trace does.
func DialTraced(ctx context.Context, url string, event func(Event), trace func(sent bool, message []byte, size int64),
) (*Conn, error) {
	ws, err := websocket.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	ws.Stall, ws.Trace = stall, trace
	return On(ws, event), nil
}

// On is Dial for a WebSocket that is connected.
func On(ws *websocket.Conn, event func(Event)) *Conn {
	c := &Conn{ws: ws, done: make(chan struct{})}
	c.calls = wire.NewClient(func(message []byte) {
		if ws.Write(message) != nil { // the reader fails all commands
			ws.Close(websocket.Normal, "")
		}
	})
	go c.read(event)
	return c
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection has ended, once Done is closed.
func (c *Conn) Err() error { return c.err }

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
	c.calls.Begin(session, method, params, done)
}

// Call sends a command, waits for its answer and decodes it into result, which
// may be nil. An error of the browser is a *jsonrpc.Error. The handler of events
// must not call it.
func (c *Conn) Call(ctx context.Context, session, method string, params, result any) error {
	raw, err := c.calls.Call(ctx, session, method, params)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("cannot read the answer to %s: %w", method, err)
	}
	return nil
}

// read handles the browser's messages until the connection ends.
func (c *Conn) read(event func(Event)) {
	defer close(c.done)
	defer c.calls.End()
	defer c.ws.Close(websocket.Normal, "")
	for {
		m, err := c.ws.Next()
		var b []byte
		if err == nil {
			b, err = m.Bytes()
		}
		if err != nil {
			c.err = err
			return
		}
		if id, ok := wire.IDOf(b); ok {
			c.calls.Answered(id, b)
			continue
		}
		e := Event{jsonrpc.GetString(b, "sessionId"), jsonrpc.GetString(b, "method"), jsonrpc.Get(b, "params")}
		if e.Method == "Target.detachedFromTarget" {
			c.calls.FailSession(jsonrpc.GetString(e.Params, "sessionId"))
		}
		event(e)
	}
}
