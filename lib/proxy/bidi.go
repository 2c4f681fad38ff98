package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
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
	ended   chan struct{} // closed when the browser says that the session has, or closes
	once    sync.Once     // for that
	created bool          // the client has got a session
	answer  frameReader   // of the browser
}

func newBiDiSession(t *tunnel) *bidiSession {
	s := &bidiSession{tunnel: t, ended: make(chan struct{})}
	s.answer.message = func(_ bool, payload []byte, _ int64) {
		var m struct {
			ID     int64 `json:"id"`
			Result struct {
				SessionID string `json:"sessionId"`
			} `json:"result"`
		}
		if json.Unmarshal(payload, &m) != nil {
			return
		}
		s.created = s.created || m.Result.SessionID != ""
		if m.ID == endID {
			s.once.Do(func() { close(s.ended) })
		}
	}
	return s
}

// run relays between the connections, and ends the session when the client is
// gone, after calling left. It reports whether the session is certainly over.
func (s *bidiSession) run(left func(), cut <-chan struct{}) (sent, received int64, over bool) {
	defer s.close()
	down := make(chan int64, 1)
	go func() { down <- s.toTheClient() }()
	g := &frameWriter{to: s.browser, tap: s.toBrowser}
	up := make(chan struct{})
	go func() {
		defer close(up)
		k, err := g.Write(s.fromClient)
		if sent = int64(k); err == nil {
			n, _ := io.Copy(g, struct{ io.Reader }{s.in})
			sent += n
		}
	}()
	select {
	case <-up:
	case received = <-down: // the browser is gone
		s.close()
		<-up
		return sent, received, s.isOver()
	}
	left()
	s.browser.SetWriteDeadline(time.Now().Add(endTimeout))
	err := g.finishFrame()
	if err == nil {
		s.browser.Write(textFrame(endSession))
	}
	// If that failed, the browser may have ended the session before.
	select {
	case <-s.ended:
		over = true
	case received = <-down: // it is gone itself
		return sent, received, s.isOver()
	case <-cut:
	case <-time.After(endTimeout):
	}
	if g.frames.closed {
		s.client.Write([]byte{0x80 | closeFrame, 0}) // the other half of its close
	}
	s.close()
	return sent, <-down, over
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

// toTheClient copies everything that the browser sends, and goes on reading
// when the client is gone.
func (s *bidiSession) toTheClient() (n int64) {
	gone := false
	pass := func(b []byte) {
		n += int64(len(b))
		s.answer.Write(b)
		if s.answer.closed && s.answer.status == 1000 { // it does after session.end, a client's or ours
			s.once.Do(func() { close(s.ended) })
		}
		if s.toClient != nil {
			s.toClient.Write(b)
		}
		if !gone {
			_, err := s.client.Write(b)
			gone = err != nil
		}
	}
	pass(s.fromBrowser)
	buf := make([]byte, 32<<10)
	for {
		k, err := s.browser.Read(buf)
		pass(buf[:k])
		if err != nil {
			return n
		}
	}
}

var errClientClosed = errors.New("the client has closed the WebSocket")

// frameWriter passes on a client's frames with whole heads, up to a close
// frame.
type frameWriter struct {
	to      io.Writer
	tap     io.Writer
	frames  frameReader
	partial []byte // an incomplete head
}

// Write takes the next bytes.
func (g *frameWriter) Write(b []byte) (int, error) {
	if g.tap != nil {
		g.tap.Write(b)
	}
	n := len(b)
	for len(b) > 0 {
		used, head := g.frames.step(b)
		if head && g.frames.closed {
			g.frames.remaining = 0
			return n - len(b), errClientClosed
		}
		g.partial = append(g.partial, b[:used]...)
		b = b[used:]
		if len(g.frames.head) > 0 {
			continue
		}
		if _, err := g.to.Write(g.partial); err != nil {
			return n - len(b), err
		}
		g.partial = g.partial[:0]
	}
	return n, nil
}

// finishFrame completes a frame that the client has begun, so that another can
// follow.
func (g *frameWriter) finishFrame() error {
	if g.frames.broken || g.frames.remaining > maxMessage {
		return errors.New("the client sent an invalid WebSocket frame")
	}
	_, err := g.to.Write(make([]byte, g.frames.remaining))
	if err == nil && (g.frames.open || g.frames.remaining > 0 && !g.frames.final) {
		_, err = g.to.Write(lastFragment())
	}
	return err
}
