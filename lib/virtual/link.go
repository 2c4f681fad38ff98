package virtual

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

// Errors of calls, when the connection to Chrome or the CDP session has ended.
var (
	errDisconnected = errors.New("the connection to the browser has ended")
	errDetached     = errors.New("the session with the target has ended")
)

// calls sends our own commands on a connection to Chrome. Their ids are
// negative and a client's are not, so both can share a connection.
type calls struct {
	out *outbox

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

func newCalls(out *outbox) *calls {
	return &calls{out: out, waiting: map[int]waiter{}}
}

// begin sends a command and does not wait. The connection's reader calls done
// once, with the answer; done must not wait either.
func (c *calls) begin(session, method string, params any, done func(result json.RawMessage, err error)) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		go done(nil, errDisconnected) // the caller may hold a lock that done takes
		return
	}
	c.last--
	id := c.last
	c.waiting[id] = waiter{session, done}
	c.mu.Unlock()
	c.out.put(command(strconv.Itoa(id), session, method, params))
}

// send sends a command without waiting for its answer. Chrome does not answer
// if the CDP session ends meanwhile.
func (c *calls) send(session, method string, params any) {
	c.mu.Lock()
	c.last--
	id := c.last
	c.mu.Unlock()
	c.out.put(command(strconv.Itoa(id), session, method, params))
}

// resumeAndDetach resumes a target, and detaches from it once it has answered:
// a worker whose thread has not started yet would miss the command and stay
// paused.
func (c *calls) resumeAndDetach(parent, session string) {
	c.begin(session, "Runtime.runIfWaitingForDebugger", nil, func(json.RawMessage, error) {
		c.send(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
	})
}

// failSession fails the commands that wait on a CDP session that has ended:
// Chrome does not answer them.
func (c *calls) failSession(session string) {
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
		done(nil, errDetached)
	}
}

// pending returns how many commands wait for an answer.
func (c *calls) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// call sends a command and waits for its answer. The connection's reader must
// not call it.
func (c *calls) call(ctx context.Context, session, method string, params any) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	got := make(chan answer, 1)
	c.begin(session, method, params, func(result json.RawMessage, err error) { got <- answer{result, err} })
	select {
	case a := <-got:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answered handles the answer to one of our commands.
func (c *calls) answered(id int, message []byte) {
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

// end fails all waiting commands, and all later ones.
func (c *calls) end() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.ended = nil, true
	c.mu.Unlock()
	for _, w := range waiting {
		w.done(nil, errDisconnected)
	}
}

// command returns the message of a command. params is raw JSON, or a value to
// encode.
func command(id, session, method string, params any) []byte {
	b := append([]byte(`{"id":`), id...)
	b = append(append(b, `,"method":`...), strconv.Quote(method)...)
	if raw, ok := params.(json.RawMessage); ok && raw != nil {
		b = append(append(b, `,"params":`...), raw...)
	} else if !ok && params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			panic(err) // of strings, numbers and maps of them
		}
		b = append(append(b, `,"params":`...), raw...)
	}
	return closeMessage(b, session)
}

// event returns the message of an event.
func event(session, method string, params any) []byte {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(err) // of raw JSON that was read from Chrome, strings and booleans
	}
	b := append([]byte(`{"method":`), strconv.Quote(method)...)
	return closeMessage(append(append(b, `,"params":`...), raw...), session)
}

// closeMessage adds the session and the closing brace to an object.
func closeMessage(b []byte, session string) []byte {
	if session != "" {
		b = append(append(b, `,"sessionId":`...), quote(session)...)
	}
	return append(b, '}')
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}

// eventHandler handles an event of Chrome. It must not wait.
type eventHandler func(method, session string, params json.RawMessage)

// link is a connection to Chrome for our own commands only.
type link struct {
	*calls
	conn *websocket.Conn
	done chan struct{} // closed when the connection has ended
	work sync.WaitGroup
}

// dialLink opens a link. One goroutine calls tell for the events, in their
// order, and hear for each message.
func dialLink(ctx context.Context, url string, tell eventHandler, hear func()) (*link, error) {
	conn, err := websocket.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	l := &link{calls: newCalls(newOutbox(conn)), conn: conn, done: make(chan struct{})}
	l.work.Go(func() { l.out.run(l.done) })
	l.work.Go(func() { l.read(tell, hear) })
	return l, nil
}

// read handles Chrome's messages until the connection ends.
func (l *link) read(tell eventHandler, hear func()) {
	defer l.end()
	defer close(l.done)
	defer l.conn.Close(websocket.Normal, "")
	for {
		m, err := l.conn.Next()
		if err != nil {
			return
		}
		hear()
		b, err := m.Bytes()
		if err != nil {
			return
		}
		if id, ok := idOf(b); ok {
			l.answered(id, b)
			continue
		}
		method, params := jsonrpc.GetString(b, "method"), jsonrpc.Get(b, "params")
		if method == "Target.detachedFromTarget" {
			l.failSession(jsonrpc.GetString(params, "sessionId"))
		}
		tell(method, jsonrpc.GetString(b, "sessionId"), params)
	}
}

// close ends the link and waits for its goroutines.
func (l *link) close() {
	l.conn.Close(websocket.Normal, "")
	l.work.Wait()
}

// idOf returns the id of an answer. Chrome writes it first.
func idOf(b []byte) (id int, ok bool) {
	const head = `{"id":`
	if len(b) <= len(head) || string(b[:len(head)]) != head {
		return 0, false
	}
	i := len(head)
	sign := 1
	if b[i] == '-' {
		sign, i = -1, i+1
	}
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		id, ok = id*10+int(b[i]-'0'), true
		if id > 1<<40 {
			return 0, false
		}
	}
	return sign * id, ok && i < len(b)
}
