package single

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// Client is one connection to the browser, or to a target of it.
type Client struct {
	mux     *Mux
	target  string // "": the browser
	session string // its CDP session; set before it is among the mux's
	queue   *queue // of what Chrome sends

	// Under the mux's lock:
	below map[string]string // the CDP sessions that it has caused, and the parent of each
	gone  bool              // it has ended
}

// Connect opens a connection to the browser, or to the target with this ID. Serve
// or Close it.
func (m *Mux) Connect(ctx context.Context, target string) (*Client, error) {
	c := &Client{mux: m, target: target, queue: newQueue(m.mostEach, &m.unread), below: map[string]string{}}
	method, params := "Target.attachToBrowserTarget", map[string]any{}
	if target != "" {
		method, params = "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}
	}
	attached := make(chan error, 1)
	m.calls.Begin("", method, params, func(got json.RawMessage, err error) {
		if err == nil {
			err = c.begin(jsonrpc.GetString(got, "sessionId"))
		}
		attached <- err
	})
	var err error
	select {
	case err = <-attached:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin has the messages of a CDP session go to the connection, unless it has
// ended meanwhile.
func (c *Client) begin(session string) error {
	m := c.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	c.session = session
	switch {
	case m.over:
		return errEnded
	case c.gone:
		m.detach(session)
		return errEnded
	}
	m.sessions[session] = c
	return nil
}

// Give moves a CDP session with a target to another connection of the same Chrome, with all
// that is below it. The connection that gives it ends it with Target.detachFromTarget. It
// reports false if there is no such session, or the other connection has ended.
func (c *Client) Give(session string, to *Client) bool {
	m := c.mux
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := c.below[session]; !ok || to.mux != m || to.gone || m.over {
		return false
	}
	c.moveLocked(session, to.session, to)
	return true
}

// moveLocked moves a CDP session, and those below it.
func (c *Client) moveLocked(session, parent string, to *Client) {
	delete(c.below, session)
	to.below[session] = parent
	c.mux.sessions[session] = to
	for child, above := range c.below {
		if above == session {
			c.moveLocked(child, session, to)
		}
	}
}

// detach ends a CDP session of our own, and with it what Chrome keeps for it.
func (m *Mux) detach(session string) {
	m.calls.Send("", "Target.detachFromTarget", map[string]string{"sessionId": session})
}

// Close ends the connection: Chrome frees what it keeps for it. Messages that have
// not been read are dropped.
func (c *Client) Close() {
	c.leave()
	c.queue.stop(websocket.Normal, "")
}

func (c *Client) leave() {
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	if !c.gone && c.session != "" {
		c.mux.detach(c.session)
	}
	c.leaveLocked()
}

// leaveLocked removes the connection from the mux.
func (c *Client) leaveLocked() {
	c.gone = true
	delete(c.mux.sessions, c.session)
	for session := range c.below {
		delete(c.mux.sessions, session)
	}
}

// Direct has Chrome's messages handed to deliver as they come, unless earlier ones are
// still with Next. If deliver returns false, Next returns the message. One goroutine
// calls deliver, which must not wait. To be called before Next.
func (c *Client) Direct(deliver func(message []byte) bool) {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.queue.direct = deliver
}

// Next waits for Chrome's next message. At the end of the connection it returns a
// *websocket.CloseError. One goroutine at a time calls it.
func (c *Client) Next() ([]byte, error) { return c.queue.next() }

// Done is closed when the connection has ended and what Next has not returned is
// lost: after Close, and when too much was unread.
func (c *Client) Done() <-chan struct{} { return c.queue.stopped }

// Serve relays messages between a WebSocket and the browser until one of them
// is gone. It then closes the WebSocket.
func (c *Client) Serve(conn *websocket.Conn) {
	conn.Stall, conn.Progress, conn.Budget = stall, stall, &c.mux.incoming
	defer conn.Release()
	var work sync.WaitGroup
	work.Go(func() {
		var err error
		for err == nil {
			var b []byte
			if b, err = c.Next(); err == nil {
				err = conn.Write(b)
			}
		}
		var end *websocket.CloseError
		if errors.As(err, &end) {
			conn.Close(end.Code, end.Reason)
		}
	})
	work.Go(func() { // the client may read nothing
		<-c.Done()
		conn.Close(c.queue.end.Code, c.queue.end.Reason)
	})
	for {
		m, err := conn.Next()
		if err != nil {
			break
		}
		b, err := m.Bytes()
		if err != nil || c.command(b) != nil {
			break
		}
	}
	c.Close()
	work.Wait()
}

// stall is how long a client may leave its messages unread.
const stall = 15 * time.Second

// command sends a client's message to Chrome. An error means that Chrome is gone.
func (c *Client) command(message []byte) error {
	cmd, refused := policy.Decode(message)
	if refused == nil && cmd.Params != nil && !json.Valid(cmd.Params) {
		// Chrome's own answer would have neither id nor session: nobody would get it.
		cmd.ID, refused = nil, jsonrpc.Errorf(jsonrpc.ParseError, "JSON: the params are malformed")
	}
	if refused != nil {
		c.queue.put(policy.Failure(cmd, refused))
		return nil
	}
	return c.Write(cmd, message)
}

// Write sends a message of which policy.Decode has read the command, on the CDP
// session that it names. It waits while too much is on its way to Chrome. A message
// that may not be sent is answered. An error means that Chrome or the connection is
// gone.
func (c *Client) Write(cmd policy.Command, message []byte) error {
	message, refused := c.addressed(cmd.Session, message)
	if refused != nil {
		c.queue.put(policy.Failure(cmd, refused))
		return nil
	}
	c.mux.noteLong(message)
	return c.mux.out.write(message, c.Done())
}

// Put sends a message of package wire and does not wait. One that may not be sent is
// answered.
func (c *Client) Put(message []byte) {
	session, _ := sessionOf(message)
	message, refused := c.addressed(session, message)
	if refused != nil {
		id, _ := wire.IDOf(message)
		c.queue.put(policy.Failure(policy.Command{ID: strconv.AppendInt(nil, int64(id), 10)}, refused))
		return
	}
	c.mux.out.put(message)
}

// addressed returns a message as it is sent to Chrome, given the CDP session that
// it names; "": that of the connection. The connection may name no session of
// another one. A byte 0 would end the message on a pipe.
func (c *Client) addressed(session string, message []byte) ([]byte, *policy.Error) {
	switch {
	case bytes.IndexByte(message, 0) >= 0:
		return message, jsonrpc.Errorf(jsonrpc.ParseError, "JSON: a byte 0 in a message")
	case session != "" && !c.owns(session):
		return message, policy.NoSession()
	case session == "":
		raw, _ := json.Marshal(c.session)
		message = jsonrpc.Set(message, "sessionId", raw) // it may name the session ""
	}
	if len(message) > MaxCommand {
		return message, jsonrpc.Errorf(jsonrpc.InvalidRequest, "a message is longer than %d bytes", MaxCommand)
	}
	return message, nil
}

// owns reports whether a command may name a CDP session. Its own one has no name
// on a connection.
func (c *Client) owns(session string) bool {
	c.mux.mu.Lock()
	defer c.mux.mu.Unlock()
	_, ok := c.below[session]
	return ok
}

// noteLocked notes the CDP sessions that begin and end below another one. It returns the
// connection that is told: that which the session was given to, or c.
func (c *Client) noteLocked(parent string, event []byte) *Client {
	session := jsonrpc.GetString(event, "params", "sessionId")
	switch jsonrpc.GetString(event, "method") {
	case "Target.attachedToTarget":
		if session != "" && c.mux.sessions[session] == nil {
			c.below[session] = parent
			c.mux.sessions[session] = c
		}
	case "Target.detachedFromTarget":
		owner := c
		if of := c.mux.sessions[session]; of != nil && session != of.session {
			owner = of
		}
		owner.forgetLocked(session)
		return owner
	}
	return c
}

// forgetLocked notes that a CDP session has ended, with those below it.
func (c *Client) forgetLocked(session string) {
	if _, ok := c.below[session]; !ok {
		return
	}
	delete(c.below, session)
	delete(c.mux.sessions, session)
	for child, parent := range c.below {
		if parent == session {
			c.forgetLocked(child)
		}
	}
}
