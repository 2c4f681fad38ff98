package single

import (
	"context"
	"encoding/json"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// Client is one connection to the browser, or to a target of it.
type Client struct {
	link    *link
	target  string // "": the browser
	session string // its CDP session; set before it is among the link's
	queue   *queue // of what Chrome sends

	// Under the link's lock:
	below map[string]string // the CDP sessions that it has caused, and the parent of each
	gone  bool              // it has ended
}

// Connect opens a connection to the browser, or to the target with this ID.
// Serve or Close it.
func (b *Browser) Connect(ctx context.Context, target string) (*Client, error) {
	l, err := b.await(ctx)
	if err != nil {
		return nil, err
	}
	c := &Client{link: l, target: target, queue: newQueue(), below: map[string]string{}}
	method, params := "Target.attachToBrowserTarget", map[string]any{}
	if target != "" {
		method, params = "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}
	}
	attached := make(chan error, 1)
	l.calls.Begin("", method, params, func(got json.RawMessage, err error) {
		if err == nil {
			c.begin(jsonrpc.GetString(got, "sessionId"))
		}
		attached <- err
	})
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
func (c *Client) begin(session string) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	c.session = session
	if c.gone {
		l.detach(session)
		return
	}
	l.sessions[session] = c
}

// detach ends a CDP session of our own, and with it what Chrome keeps for it.
func (l *link) detach(session string) {
	l.calls.Send("", "Target.detachFromTarget", map[string]string{"sessionId": session})
}

// Close ends a connection that is not being served.
func (c *Client) Close() { c.leave() }

func (c *Client) leave() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if !c.gone && c.session != "" {
		c.link.detach(c.session)
	}
	c.leaveLocked()
}

// leaveLocked removes the connection from the link.
func (c *Client) leaveLocked() {
	c.gone = true
	delete(c.link.sessions, c.session)
	for session := range c.below {
		delete(c.link.sessions, session)
	}
}

// Serve relays messages between a WebSocket and the browser until one of them
// is gone. It then closes the WebSocket.
func (c *Client) Serve(conn *websocket.Conn) {
	conn.Stall = stall
	var work sync.WaitGroup
	work.Go(func() { c.queue.run(conn) })
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
	c.leave()
	c.queue.stop(websocket.Normal, "")
	work.Wait()
}

// command sends a command to Chrome, on the CDP session that it names. An error
// means that Chrome is gone.
func (c *Client) command(message []byte) error {
	cmd, refused := policy.Decode(message)
	if refused == nil && cmd.Params != nil && !json.Valid(cmd.Params) {
		// Chrome's own answer would have neither id nor session: nobody would get it.
		cmd.ID, refused = nil, jsonrpc.Errorf(jsonrpc.ParseError, "JSON: the params are malformed")
	}
	switch {
	case refused != nil:
	case cmd.Session == "":
		session, _ := json.Marshal(c.session)
		message = jsonrpc.Set(message, "sessionId", session)
	case !c.owns(cmd.Session):
		refused = policy.NoSession()
	}
	if refused != nil {
		c.queue.put(policy.Failure(cmd, refused))
		return nil
	}
	return c.link.out.Write(message)
}

// owns reports whether a command may name a CDP session. Its own one has no name
// on a connection.
func (c *Client) owns(session string) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	_, ok := c.below[session]
	return ok
}

// noteLocked notes the CDP sessions that begin and end below another one.
func (c *Client) noteLocked(parent string, event []byte) {
	session := jsonrpc.GetString(event, "params", "sessionId")
	switch jsonrpc.GetString(event, "method") {
	case "Target.attachedToTarget":
		if session != "" && c.link.sessions[session] == nil {
			c.below[session] = parent
			c.link.sessions[session] = c
		}
	case "Target.detachedFromTarget":
		c.forgetLocked(session)
	}
}

// forgetLocked notes that a CDP session has ended, with those below it.
func (c *Client) forgetLocked(session string) {
	if _, ok := c.below[session]; !ok {
		return
	}
	delete(c.below, session)
	delete(c.link.sessions, session)
	for child, parent := range c.below {
		if parent == session {
			c.forgetLocked(child)
		}
	}
}
