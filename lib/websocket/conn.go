// Package websocket carries text messages over WebSocket (RFC 6455), and relays
// them between connections while they arrive. It supports no extensions, no
// subprotocols and no TLS: its peers are a browser's debugging endpoint on the
// same machine, and the clients of that endpoint.
//
// It does not check that text is valid UTF-8: messages are relayed in parts,
// and the two ends of a relay check them.
package websocket

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/nowait"
)

// DefaultLimit is the maximum length of a message in bytes, unless Conn.Limit
// is set. It is the same as in Chrome.
const DefaultLimit = 100 << 20

// MaxTraced is the length in bytes up to which a relayed message is copied for
// Trace.
const MaxTraced = 16 << 20

// Status codes of close frames (RFC 6455, 7.4).
const (
	Normal         = 1000
	GoingAway      = 1001
	ProtocolBroken = 1002
	Unsupported    = 1003 // a binary message
	NoStatus       = 1005 // never sent: a close frame came without a code
	Abnormal       = 1006 // never sent: the connection ended without a close frame
	BadText        = 1007
	// PolicyViolation is for a client that does not read.
	PolicyViolation = 1008
	TooBig          = 1009
	InternalError   = 1011
	ServiceRestart  = 1012
)

// Conn is one end of a WebSocket. One goroutine at a time reads: it calls Next,
// the methods of its messages, and Relay with one of them. All goroutines may
// call the other methods.
type Conn struct {
	// Limit is the maximum length of a received message in bytes. Stall is how
	// long a write may make no progress before it fails and closes the
	// connection, which may take up to a quarter longer; 0: for ever. Set them
	// before use.
	Limit int64
	Stall time.Duration
	// Budget, if not nil, bounds the messages that Bytes reads on all connections that
	// have it. Progress is how long Bytes waits for another byte of a message before
	// it closes the connection; 0: for ever. Set them before use.
	Budget   *Budget
	Progress time.Duration
	// Trace, if not nil, gets each message that Bytes has read, and each one that is
	// sent, before its last byte is: an answer comes before what the peer says to it.
	// size is the message's length; message is nil if it is relayed and longer than
	// MaxTraced. Trace may keep no bytes. Set it before use.
	Trace func(sent bool, message []byte, size int64)
	// Complete says that a relayed message whose source has failed is completed with
	// spaces, so that other messages can follow; else the connection ends then.
	Complete bool

	raw    net.Conn
	client bool           // masks what it sends, and receives unmasked frames
	closes time.Duration  // bounds the time of Close; 0: closeBound
	in     *nowait.Reader // of raw; nil: it is read as usual
	out    *nowait.Writer // the same; guarded by writing

	buf     []byte // of the reader: buf[r:w] is unread
	r, w    int
	current *Message // what Next returned last

	reserved int64 // of the budget
	hurried  bool  // there is a deadline for reading

	writing  chan struct{}          // holds one element while a message is written
	pong     atomic.Pointer[[]byte] // a frame that the next writer must send
	deadline time.Time              // of writes; guarded by writing

	received, sent atomic.Int64

	closing sync.Once
	over    sync.Once
	done    chan struct{} // closed when nothing is read or written any more
	cause   error         // set before that
}

// New returns one end of a WebSocket on a connection whose handshake is over: the
// client's, or the server's. early is what was read after the handshake.
func New(raw net.Conn, client bool, early []byte) *Conn {
	c := &Conn{Limit: DefaultLimit, raw: raw, client: client,
		buf: make([]byte, max(readBuffer, headRoom+len(early))),
		in:  nowait.NewReader(raw), out: nowait.NewWriter(raw),
		writing: make(chan struct{}, 1), done: make(chan struct{})}
	c.r = headRoom
	c.w = c.r + copy(c.buf[c.r:], early)
	return c
}

// Pipe returns the two ends of a WebSocket within this process.
func Pipe() (server, client *Conn) {
	a, b := net.Pipe()
	return New(a, false, nil), New(b, true, nil)
}

// Received returns how many bytes have been read, including the heads of
// frames.
func (c *Conn) Received() int64 { return c.received.Load() }

// Sent returns how many bytes have been written, including the heads of frames.
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

// ProtocolError says for which violation by the peer the WebSocket was closed,
// and with which code.
type ProtocolError struct {
	Code   int
	Reason string
}

func (e *ProtocolError) Error() string { return "cannot read from the WebSocket: " + e.Reason }
