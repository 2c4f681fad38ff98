package proxy

import (
	"encoding/json"
	"errors"
	"sync"
	"time"

	"btools/lib/websocket"
)

// Firefox has one BiDi session at a time. A session is reachable only through
// the connection that created it, but outlives it. If the proxy closed the
// connection of a client that is gone, no client could get a session any more.
// So it first ends the session on the browser's connection, which is still open.

// endTimeout is how long a session may take to end.
const endTimeout = 5 * time.Second

// endID is the id of the proxy's own command: the largest that BiDi allows,
// which no client reaches by counting.
const endID = 1<<53 - 1

const endSession = `{"id":9007199254740991,"method":"session.end","params":{}}`

// bidiSession connects a client to a BiDi browser for the life of its session.
type bidiSession struct {
	*tunnel
	toClient, toBrowser *websocket.Conn

	ended   chan struct{} // closed when the browser says that the session has, or closes
	once    sync.Once     // for that
	created bool          // the client has got a session
}

// run relays between the connections, and ends the session when the client is
// gone, after calling left. It reports whether the session is certainly over.
func (s *bidiSession) run(left func(), cut <-chan struct{}) (over bool) {
	defer s.Close()
	s.toBrowser.Complete = true // a client may be gone in the middle of a message
	down, up := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(down)
		s.relayDown()
	}()
	go func() {
		defer close(up)
		websocket.Pass(s.toBrowser, s.toClient)
	}()
	select {
	case <-up:
	case <-down: // the browser is gone
		s.Close()
		<-up
		return s.isOver()
	}
	left()
	s.browser.SetWriteDeadline(time.Now().Add(endTimeout))
	s.toBrowser.Trace = nil
	s.toBrowser.Write([]byte(endSession))
	// If that failed, the browser may have ended the session before.
	select {
	case <-s.ended:
		over = true
	case <-down: // it is gone itself
		return s.isOver()
	case <-cut:
	case <-time.After(endTimeout):
	}
	s.Close()
	<-down
	return over
}

// isOver reports, after the browser has closed the connection, whether no
// session is left. The browser also closes the connection after what it
// considers an error, and then keeps the session.
func (s *bidiSession) isOver() bool {
	select {
	case <-s.ended:
		return true
	default:
		return !s.created
	}
}

// relayDown relays everything that the browser sends, and goes on reading when
// the client is gone.
func (s *bidiSession) relayDown() {
	for {
		m, err := s.toBrowser.Next()
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) && closed.Code == websocket.Normal {
				s.setEnded() // it does after session.end, a client's or ours
			}
			websocket.EndAs(s.toClient, err)
			return
		}
		if b, err := m.Peek(websocket.MaxPeek); err == nil && len(b) < websocket.MaxPeek {
			s.read(b)
		}
		s.toClient.Relay(m)
	}
}

// read looks for the answers that begin and end a session. Both are short.
func (s *bidiSession) read(message []byte) {
	var m struct {
		ID     int64 `json:"id"`
		Result struct {
			SessionID string `json:"sessionId"`
		} `json:"result"`
	}
	if json.Unmarshal(message, &m) != nil {
		return
	}
	s.created = s.created || m.Result.SessionID != ""
	if m.ID == endID {
		s.setEnded()
	}
}

func (s *bidiSession) setEnded() { s.once.Do(func() { close(s.ended) }) }
