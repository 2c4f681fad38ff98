package single

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// link is the WebSocket to Chrome.
type link struct {
	conn    *websocket.Conn
	out     *websocket.Outbox
	calls   *wire.Calls     // our own commands, on the connection's own session
	version json.RawMessage // the answer to Browser.getVersion
	heard   atomic.Int64    // when Chrome last sent anything, in Unix nanoseconds
	done    chan struct{}   // closed when it has ended
	work    sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*Client // by CDP session: their own, and those below it
}

// newLink serves a WebSocket until it ends, or until close.
func newLink(conn *websocket.Conn) *link {
	l := &link{conn: conn, out: websocket.NewOutbox(conn), done: make(chan struct{}), sessions: map[string]*Client{}}
	l.calls = wire.NewClient(l.out.Put)
	l.work.Go(func() { l.out.Run(l.done) })
	l.work.Go(l.read)
	return l
}

// close ends the WebSocket, and waits until nothing of it is left.
func (l *link) close() {
	l.conn.Close(websocket.Normal, "")
	l.work.Wait()
}

func (l *link) heardSince(then time.Time) bool { return l.heard.Load() > then.UnixNano() }

// read hands out Chrome's messages until the WebSocket ends.
func (l *link) read() {
	for {
		var b []byte
		m, err := l.conn.Next()
		if err == nil {
			l.heard.Store(time.Now().UnixNano())
			b, err = m.Bytes()
		}
		if err != nil {
			l.end(err)
			return
		}
		l.route(b)
	}
}

// end ends all connections.
func (l *link) end(why error) {
	reason := ""
	var closed *websocket.CloseError
	if errors.As(why, &closed) {
		reason = closed.Reason
	}
	l.conn.Close(websocket.Normal, "")
	close(l.done)
	l.calls.End()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.sessions {
		c.gone = true
		c.queue.finish(websocket.GoingAway, reason)
	}
	clear(l.sessions)
}

// route hands a message to the connection that it belongs to. Chrome may take
// a moment to learn that a connection has ended: messages for it are dropped.
func (l *link) route(message []byte) {
	session, at := sessionOf(message)
	if session == "" {
		l.receive(message)
		return
	}
	l.mu.Lock()
	c := l.sessions[session]
	if c != nil && bytes.HasPrefix(message, targetEvent) {
		c.noteLocked(session, message)
	}
	l.mu.Unlock()
	switch {
	case c == nil:
	case session == c.session:
		c.queue.put(withoutSession(message, at))
	default:
		c.queue.put(message)
	}
}

// targetEvent is the beginning of an event about targets. Chrome writes the
// method first.
var targetEvent = []byte(`{"method":"Target.`)

// receive handles a message for ourselves.
func (l *link) receive(message []byte) {
	if id, ok := wire.IDOf(message); ok {
		if !isNotFound(message) {
			l.calls.Answered(id, message)
		}
		return
	}
	if jsonrpc.GetString(message, "method") != "Target.detachedFromTarget" {
		return
	}
	l.mu.Lock()
	c := l.sessions[jsonrpc.GetString(message, "params", "sessionId")]
	if c != nil {
		c.leaveLocked()
	}
	l.mu.Unlock()
	if c == nil {
		return
	}
	if c.target != "" {
		c.queue.put([]byte(targetClosed))
	}
	c.queue.finish(websocket.Normal, "")
}

// isNotFound reports whether Chrome did not find the CDP session of a command.
// It is a client's, and has met the end of the session, of which the client is
// told: ours name none. The answer does not, so it may seem to be for ours.
func isNotFound(answer []byte) bool {
	return string(jsonrpc.Get(answer, "error", "code")) == sessionNotFound
}

// targetClosed is Chrome's last message on a connection to a target.
const targetClosed = `{"method":"Inspector.detached","params":{"reason":"target_closed"}}`

var sessionNotFound = strconv.Itoa(policy.SessionNotFound)

var sessionMember = []byte(`,"sessionId":"`)

// sessionOf returns the CDP session of a message, and where the member that
// names it begins if that is the last one, as Chrome writes it; else -1.
func sessionOf(message []byte) (session string, at int) {
	const longest = 100 // bytes of the member, which has 48
	begin := max(0, len(message)-longest)
	if i := bytes.LastIndex(message[begin:], sessionMember); i >= 0 && bytes.HasSuffix(message, []byte(`"}`)) {
		id := message[begin+i+len(sessionMember) : len(message)-2]
		if !bytes.ContainsAny(id, `"\`) {
			return string(id), begin + i
		}
	}
	return jsonrpc.GetString(message, "sessionId"), -1
}

// withoutSession returns the message without its CDP session. It takes the place
// of the message, given what sessionOf has returned.
func withoutSession(message []byte, at int) []byte {
	if at < 0 {
		return jsonrpc.Delete(message, "sessionId")
	}
	message[at] = '}'
	return message[:at+1]
}
