package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
)

// calls are our own commands on a connection to Chrome.
type calls struct {
	*wire.Calls
}

func newCalls(conn Conn) *calls { return &calls{wire.NewCalls(conn.Put)} }

// resumeAndDetach resumes a target, and detaches from it once it has answered: a worker whose thread has not started
// yet would miss the command and stay paused.
func (c *calls) resumeAndDetach(parent, session string) {
	c.Begin(session, "Runtime.runIfWaitingForDebugger", nil, func(json.RawMessage, error) {
		c.Send(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
	})
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
	conn Conn
	done chan struct{} // closed when the connection has ended
	why  error         // set before that
	work sync.WaitGroup
}

// dialLink opens a link. One goroutine calls tell for the events, in their order, and hear for each message.
func dialLink(ctx context.Context, up Upstream, tell eventHandler, hear func()) (*link, error) {
	conn, err := up.Dial(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	l := &link{calls: newCalls(conn), conn: conn, done: make(chan struct{})}
	l.work.Go(func() { l.read(tell, hear) })
	return l, nil
}

// read handles Chrome's messages until the connection ends.
func (l *link) read(tell eventHandler, hear func()) {
	defer l.End()
	defer close(l.done)
	defer l.conn.Close()
	for {
		m, err := l.conn.Next()
		if err != nil {
			l.why = errEnded(err)
			return
		}
		hear()
		b, err := m.Bytes()
		if err != nil {
			l.why = errEnded(err)
			return
		}
		if id, ok := wire.IDOf(b); ok {
			l.Answered(id, b)
			continue
		}
		method, params := jsonrpc.GetString(b, "method"), jsonrpc.Get(b, "params")
		if method == "Target.detachedFromTarget" {
			l.FailSession(jsonrpc.GetString(params, "sessionId"))
		}
		tell(method, jsonrpc.GetString(b, "sessionId"), params)
	}
}

// close ends the link and waits for its goroutines.
func (l *link) close() {
	l.conn.Close()
	l.work.Wait()
}
