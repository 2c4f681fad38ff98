package single

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
	"btools/lib/websocket"
)

// Mux is a connection to Chrome that many share.
type Mux struct {
	to    transport
	out   *sender
	calls *wire.Calls   // our own commands, on the connection's own session
	heard atomic.Int64  // when Chrome last sent anything, in Unix nanoseconds
	done  chan struct{} // closed when it has ended
	work  sync.WaitGroup

	tidy     *time.Timer      // gives the memory of long messages back
	incoming websocket.Budget // of messages that clients are sending
	unread   atomic.Int64     // bytes that wait for clients
	most     int64            // that may wait: maxAllUnread
	mostEach int              // that may wait for one of them: maxUnread

	mu       sync.Mutex
	sessions map[string]*Client // by CDP session: their own, and those below it
	over     bool               // no client is added any more
	version  json.RawMessage    // the answer to Browser.getVersion; nil: not known yet
}

// newMux serves a connection until it ends, or until Close.
func newMux(to transport) *Mux {
	m := &Mux{to: to, out: newSender(to), done: make(chan struct{}), sessions: map[string]*Client{},
		most: maxAllUnread, mostEach: maxUnread, incoming: websocket.Budget{Max: maxAllUnread}}
	m.tidy = time.AfterFunc(tidyAfter, m.tidyUp)
	m.tidy.Stop() // until there is a long message
	m.calls = wire.NewClient(func(message []byte) { m.out.put(message) })
	m.work.Go(func() { m.out.run(m.done) })
	m.work.Go(m.read)
	return m
}

// longMessage is the length in bytes from which on the memory of messages is given
// back to the system, tidyAfter the last one, when clients have read them. By itself Go
// keeps it for minutes: 20 screenshots left 40 MiB.
const (
	longMessage = 1 << 20
	tidyAfter   = time.Second
)

// noteLong notes that a message takes memory.
func (m *Mux) noteLong(message []byte) {
	if len(message) >= longMessage {
		m.tidy.Reset(tidyAfter)
	}
}

// tidyUp gives the memory of messages back.
func (m *Mux) tidyUp() {
	if m.unread.Load() < longMessage {
		debug.FreeOSMemory()
	} else {
		m.tidy.Reset(tidyAfter)
	}
}

// Close ends the connection to Chrome, and waits until nothing of it is left.
func (m *Mux) Close() {
	m.to.close()
	m.work.Wait()
	m.tidy.Stop()
}

// Done is closed when the connection to Chrome has ended.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Call sends a command to the browser and waits for its answer.
func (m *Mux) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return m.calls.Call(ctx, "", method, params)
}

// Version returns Chrome's answer to Browser.getVersion.
func (m *Mux) Version(ctx context.Context) (json.RawMessage, error) {
	m.mu.Lock()
	v := m.version
	m.mu.Unlock()
	if v != nil {
		return v, nil
	}
	v, err := m.Call(ctx, "Browser.getVersion", nil)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the browser for its version: %w", err)
	}
	m.mu.Lock()
	m.version = v
	m.mu.Unlock()
	return v, nil
}

// Check asks the browser for an answer. A browser that sends anything else
// meanwhile is busy, not hung.
func (m *Mux) Check(ctx context.Context) error {
	if wait.Closed(m.done) {
		return errEnded
	}
	began := time.Now()
	_, err := m.Call(ctx, "Browser.getVersion", nil)
	if err != nil && m.heard.Load() > began.UnixNano() {
		return nil
	}
	return err
}

// read hands out Chrome's messages until the connection ends.
func (m *Mux) read() {
	for {
		b, cut, err := m.to.read()
		if err != nil {
			m.end(err)
			return
		}
		m.heard.Store(time.Now().UnixNano())
		m.noteLong(b)
		m.route(b, cut)
	}
}

// end ends all connections.
func (m *Mux) end(why error) {
	reason := ""
	var closed *websocket.CloseError
	if errors.As(why, &closed) {
		reason = closed.Reason
	}
	m.to.close()
	close(m.done)
	m.calls.End()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	for _, c := range m.sessions {
		c.gone = true
		c.queue.finish(websocket.GoingAway, reason)
	}
	clear(m.sessions)
}

// route hands a message to the connection that it belongs to. Chrome may take
// a moment to learn that a connection has ended: messages for it are dropped.
func (m *Mux) route(message []byte, cut bool) {
	session, at := sessionOf(message)
	if session == "" {
		if !cut {
			m.receive(message)
		}
		return
	}
	m.mu.Lock()
	c := m.sessions[session]
	if c != nil && bytes.HasPrefix(message, targetEvent) {
		if owner := c.noteLocked(session, message); owner != c {
			c, session = owner, owner.session
		}
	}
	m.mu.Unlock()
	defer m.boundUnread()
	switch {
	case c == nil:
	case cut:
		c.queue.stop(websocket.TooBig, fmt.Sprintf("a message is longer than %d bytes", maxAnswer))
	case session == c.session:
		c.queue.put(withoutSession(message, at))
	default:
		c.queue.put(message)
	}
}

// boundUnread disconnects the client with the most to read if all have too much.
func (m *Mux) boundUnread() {
	if m.unread.Load() <= m.most {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var most *Client
	for _, c := range m.sessions {
		if most == nil || c.queue.size() > most.queue.size() {
			most = c
		}
	}
	if most != nil {
		most.queue.stop(websocket.PolicyViolation, notReading)
	}
}

// targetEvent is the beginning of an event about targets. Chrome writes the
// method first.
var targetEvent = []byte(`{"method":"Target.`)

// receive handles a message for ourselves.
func (m *Mux) receive(message []byte) {
	if id, ok := wire.IDOf(message); ok {
		if !isNotFound(message) {
			m.calls.Answered(id, message)
		}
		return
	}
	if jsonrpc.GetString(message, "method") != "Target.detachedFromTarget" {
		return
	}
	m.mu.Lock()
	c := m.sessions[jsonrpc.GetString(message, "params", "sessionId")]
	if c != nil {
		c.leaveLocked()
	}
	m.mu.Unlock()
	if c == nil {
		return
	}
	if c.target != "" {
		c.queue.put([]byte(targetClosed))
	}
	c.queue.finish(websocket.Normal, "")
}

// isNotFound reports whether Chrome did not find the CDP session of a command. The
// command raced with the end of its session; the client is notified of that separately.
// Commands of our own name no session, nor does this answer, which may look like theirs.
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
