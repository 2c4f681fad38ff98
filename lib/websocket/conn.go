// Package websocket carries text messages over WebSocket (RFC 6455), and
// relays them from one connection to another as they come. It knows no
// extension, no subprotocol and no TLS: its peers are a browser's debugging
// endpoint on the same machine, and that one's clients.
//
// Whether a text is valid UTF-8 is not checked: a message is relayed in parts,
// and the two ends of a relay check it themselves.
package websocket

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultLimit is how long a message may be, in bytes, unless Conn.Limit says
// otherwise. Chrome takes as much.
const DefaultLimit = 100 << 20

// Status codes of close frames (RFC 6455, 7.4).
const (
	Normal         = 1000
	GoingAway      = 1001
	ProtocolBroken = 1002
	Unsupported    = 1003 // a binary message
	NoStatus       = 1005 // never sent: a close frame came without a code
	BadText        = 1007
	TooBig         = 1009
	InternalError  = 1011
)

// Conn is one end of a WebSocket. One goroutine at a time reads: calls Next,
// the methods of its messages, and Relay with one of them. The other methods
// are for any goroutine.
type Conn struct {
	// Limit is how many bytes a message may have that Next takes. Stall is how
	// long a write may make no progress, or up to a quarter longer, before it
	// fails and closes the connection; 0 is for ever. Set them before anything else.
	Limit int64
	Stall time.Duration

	raw    net.Conn
	client bool // what it sends is masked, what it gets is not

	buf     []byte // of the reader: buf[r:w] is not taken yet
	r, w    int
	current *Message // what Next returned last

	writing  chan struct{}          // holds one element while a message is written
	pong     atomic.Pointer[[]byte] // a frame that whoever writes has to send
	deadline time.Time              // of writes; for whoever writes

	received, sent atomic.Int64

	closing sync.Once
	over    sync.Once
	done    chan struct{} // closed when nothing is read or written any more
	cause   error         // set before that
}

func newConn(raw net.Conn, client bool, early []byte) *Conn {
	c := &Conn{Limit: DefaultLimit, raw: raw, client: client,
		buf:     make([]byte, max(readBuffer, headRoom+len(early))),
		writing: make(chan struct{}, 1), done: make(chan struct{})}
	c.r = headRoom
	c.w = c.r + copy(c.buf[c.r:], early)
	return c
}

// Received is how many bytes have come, heads of frames included.
func (c *Conn) Received() int64 { return c.received.Load() }

// Sent is how many bytes have been written, heads of frames included.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// CloseError says that the peer closed the WebSocket, and how.
type CloseError struct {
	Code   int
	Reason string
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the peer closed the WebSocket with code %d", e.Code)
	}
	return fmt.Sprintf("the peer closed the WebSocket with code %d: %s", e.Code, e.Reason)
}

// ProtocolError says for which mistake of the peer the WebSocket was closed,
// and with which code.
type ProtocolError struct {
	Code   int
	Reason string
}

func (e *ProtocolError) Error() string { return "cannot read from the WebSocket: " + e.Reason }
