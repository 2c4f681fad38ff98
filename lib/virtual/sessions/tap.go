package sessions

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
)

// Trace records what the clients of a session send and get.
type Trace interface {
	// Connection begins a WebSocket with this path. The writers get the bytes
	// of each direction, from the first frame on.
	Connection(path string) (toBrowser, toClient io.Writer)
	Close() error
}

// tapped is an answer whose connection is recorded once it is a WebSocket.
type tapped struct {
	http.ResponseWriter
	trace Trace
	path  string
}

func (t *tapped) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *tapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &tappedConn{Conn: conn}
	toBrowser, toClient := t.trace.Connection(t.path)
	c.in.to, c.out.to = toBrowser, &afterHead{to: toClient}
	early, _ := both.Reader.Peek(both.Reader.Buffered())
	c.in.put(early)
	return c, both, nil
}

// tappedConn is a connection whose bytes are copied, as far as they were read
// or written.
type tappedConn struct {
	net.Conn
	in, out tap
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.put(b[:n])
	return n, err
}

func (c *tappedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.put(b[:n])
	return n, err
}

// CloseWrite closes the writing side by itself.
func (c *tappedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// tap is one direction of a connection. Its lock is for the end, when two
// goroutines may read.
type tap struct {
	mu sync.Mutex
	to io.Writer
}

func (t *tap) put(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to.Write(b)
}

// afterHead drops the head of an HTTP answer.
type afterHead struct {
	to   io.Writer
	head []byte
	over bool
}

func (a *afterHead) Write(b []byte) (int, error) {
	if a.over {
		return a.to.Write(b)
	}
	a.head = append(a.head, b...)
	if _, rest, ok := bytes.Cut(a.head, []byte("\r\n\r\n")); ok {
		a.over, a.head = true, nil
		a.to.Write(rest)
	}
	return len(b), nil
}
