package single

import (
	"math"

	"btools/lib/websocket"
)

const (
	// maxAnswer bounds a message of Chrome in bytes; it is the limit of most
	// clients. Of a longer one, nothing but the end is told to its client.
	maxAnswer = websocket.DefaultLimit

	// MaxCommand bounds a message to Chrome in bytes. Chrome itself takes less than
	// 100 MiB. By its pipe, a longer message would end it.
	MaxCommand = 96 << 20
)

// transport carries messages to Chrome and back. One goroutine reads, and one at a
// time writes.
type transport interface {
	// read returns Chrome's next message, in memory of its own. If the message is
	// too long, it returns the beginning and the end, and cut.
	read() (message []byte, cut bool, err error)
	// frame returns the bytes of a message as they are sent. It may take the place
	// of the message.
	frame(message []byte) []byte
	// try sends as much of a frame as it can without waiting, and returns the rest.
	try(frame []byte) (rest []byte, err error)
	// write sends the rest of a frame.
	write(rest []byte) error
	// close ends both directions, and what waits in read and write.
	close()
}

// NewSocket serves the WebSocket of a Chrome until it ends, or until Close.
func NewSocket(conn *websocket.Conn) *Mux { return newMux(newSocket(conn, maxAnswer)) }

// newSocket returns a transport. A message of over limit bytes ends one client, not all.
func newSocket(conn *websocket.Conn, limit int) *socket {
	conn.Limit = math.MaxInt64
	return &socket{conn, limit}
}

// socket is the WebSocket of a Chrome.
type socket struct {
	conn  *websocket.Conn
	limit int // of a message, in bytes
}

func (s *socket) read() ([]byte, bool, error) {
	m, err := s.conn.Next()
	if err != nil {
		return nil, false, err
	}
	return m.Within(s.limit, cutEnd)
}

func (s *socket) frame(message []byte) []byte { return message }

func (s *socket) try(frame []byte) ([]byte, error) { return frame, nil }

func (s *socket) write(message []byte) error { return s.conn.Write(message) }

func (s *socket) close() { s.conn.Close(websocket.Normal, "") }
