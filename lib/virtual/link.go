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

// Errors of calls: on a connection to Chrome that has ended, and on a CDP
// session that has.
var (
	errDisconnected = errors.New("the connection to the browser has ended")
	errDetached     = errors.New("the session with the target has ended")
)

// calls are commands of our own on a connection to Chrome. Their ids are
// negative: a client's are not, so both can share a connection.
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

// begin sends a command, and does not wait. The connection's reader calls done
// with the answer, once; done must not wait either.
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

// send sends a command whose answer nobody needs, or that has none: Chrome
// answers nothing for a CDP session that ends meanwhile.
func (c *calls) send(session, method string, params any) {
	c.mu.Lock()
	c.last--
	id := c.last
	c.mu.Unlock()
	c.out.put(command(strconv.Itoa(id), session, method, params))
}

// resumeAndDetach has a target go on, and leaves it when it has answered: a worker whose
// thread is not up yet would not be told, and wait for good.
func (c *calls) resumeAndDetach(parent, session string) {
	c.begin(session, "Runtime.runIfWaitingForDebugger", nil, func(json.RawMessage, error) {
		c.send(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
	})
}

// failSession tells those that wait for answers on a CDP session that it has
// ended: Chrome does not.
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

// pending is how many commands wait for an answer.
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

// answered takes the answer to a command of ours.
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

// end answers all that wait, and all that come.
func (c *calls) end() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting, c.ended = nil, true
	c.mu.Unlock()
	for _, w := range waiting {
		w.done(nil, errDisconnected)
	}
}

// command is the message of a command. Its params are raw JSON, or a value.
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

// event is the message of an event.
func event(session, method string, params any) []byte {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(err) // of raw JSON that was read from Chrome, strings and booleans
	}
	b := append([]byte(`{"method":`), strconv.Quote(method)...)
	return closeMessage(append(append(b, `,"params":`...), raw...), session)
}

// closeMessage is an object without its end, with the session and the end.
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

// eventHandler takes an event of Chrome. It must not wait.
type eventHandler func(method, session string, params json.RawMessage)

// link is a connection to Chrome that is ours alone.
type link struct {
	*calls
	conn *websocket.Conn
	done chan struct{} // closed when the connection has ended
	work sync.WaitGroup
}

// dialLink opens a link. One goroutine tells the events, in their order, and
// calls hear for each message.
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

// read takes what Chrome says, until the connection ends.
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

// idOf is the id of an answer, as Chrome writes it: first.
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
