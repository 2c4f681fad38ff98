package virtual

import (
	"context"
	"net/url"
	"sync"

	"btools/lib/cdp/single"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// Upstream is where a Browser gets its connections.
type Upstream interface {
	// Dial opens a connection to the browser itself, or to the target with this ID.
	Dial(ctx context.Context, target string) (Conn, error)
	// Addr returns the host:port of Chrome's endpoint; "": there is none.
	Addr() string
}

// Conn is a connection to Chrome. One goroutine at a time calls Next and the methods
// of its messages; all may call the others.
type Conn interface {
	// Next waits for Chrome's next message. The message before it cannot be used any more.
	Next() (Message, error)
	// Put sends a message of ours and does not wait.
	Put(message []byte)
	// Write sends a message of a client of which policy.Parse has read the command.
	// It may wait until earlier ones are sent.
	Write(c policy.Command, message []byte) error
	// Direct may have messages delivered as they come; see single.Client.
	Direct(deliver func(message []byte) bool)
	// Give moves a CDP session with a target, and all that is below it, to another
	// connection. It reports false if it can't.
	Give(session string, to Conn) bool
	// Done is closed when the connection has ended although Next has not been called for all messages.
	Done() <-chan struct{}
	// Close ends the connection, and what Chrome keeps for it.
	Close()
}

// Message is a message of Chrome.
type Message interface {
	// Peek returns the first n bytes, or all if there are fewer.
	Peek(n int) ([]byte, error)
	// Bytes returns the whole message.
	Bytes() ([]byte, error)
	// relay sends the message to a client, after what is queued for it.
	relay(to *websocket.Outbox) error
}

// socket is a connection that is a WebSocket.
type socket struct {
	conn    *websocket.Conn
	out     *websocket.Outbox
	closed  chan struct{}
	closing sync.Once
	work    sync.WaitGroup
}

func (s *socket) Next() (Message, error) {
	m, err := s.conn.Next()
	if err != nil {
		return nil, err
	}
	return arriving{m}, nil
}

func (s *socket) Direct(func([]byte) bool)                     {} // they are relayed while they arrive
func (s *socket) Put(message []byte)                           { s.out.Put(message) }
func (s *socket) Write(_ policy.Command, message []byte) error { return s.out.Write(message) }
func (s *socket) Give(string, Conn) bool                       { return false }
func (s *socket) Done() <-chan struct{}                        { return s.closed }

func (s *socket) Close() {
	s.closing.Do(func() {
		s.conn.Close(websocket.Normal, "")
		close(s.closed)
	})
	s.work.Wait()
}

// arriving is a message that is relayed while it arrives.
type arriving struct{ *websocket.Message }

func (m arriving) relay(to *websocket.Outbox) error { return to.Relay(m.Message) }

// Sockets is a browser with a WebSocket for each connection.
type Sockets interface {
	Dial(ctx context.Context, target string) (*websocket.Conn, error)
	Addr() string
}

// BySockets returns the upstream of such a browser.
func BySockets(s Sockets) Upstream { return bySockets{s} }

type bySockets struct{ Sockets }

func (s bySockets) Dial(ctx context.Context, target string) (Conn, error) {
	conn, err := s.Sockets.Dial(ctx, target)
	if err != nil {
		return nil, err
	}
	k := &socket{conn: conn, out: websocket.NewOutbox(conn), closed: make(chan struct{})}
	k.work.Go(func() { k.out.Run(k.closed) })
	return k, nil
}

// Shared is a Chrome with one connection that all share: a single.Mux or single.Browser.
type Shared interface {
	Connect(ctx context.Context, target string) (*single.Client, error)
}

// Over returns the upstream of a Chrome with one connection.
func Over(s Shared) Upstream { return shared{s} }

type shared struct{ Shared }

func (s shared) Addr() string { return "" }

func (s shared) Dial(ctx context.Context, target string) (Conn, error) {
	c, err := s.Connect(ctx, target)
	if err != nil {
		return nil, err
	}
	return part{c}, nil
}

// port is the debugging port of a Chrome, of which one WebSocket is used.
type port struct {
	shared
	mux  *single.Mux
	addr string
}

// dialPort connects to the browser whose WebSocket has this URL.
func dialPort(ctx context.Context, wsURL string) (*port, error) {
	u, err := url.Parse(wsURL)
	if err != nil {
		return nil, err
	}
	conn, err := websocket.Dial(ctx, wsURL)
	if err != nil {
		return nil, err
	}
	m := single.NewSocket(conn)
	return &port{shared{m}, m, u.Host}, nil
}

func (p *port) Addr() string { return p.addr }

// Close ends the WebSocket.
func (p *port) Close() { p.mux.Close() }

// part is a connection that is a part of a shared one.
type part struct{ *single.Client }

func (p part) Next() (Message, error) {
	b, err := p.Client.Next()
	if err != nil {
		return nil, err
	}
	return whole(b), nil
}

func (p part) Give(session string, to Conn) bool {
	other, ok := to.(part)
	return ok && p.Client.Give(session, other.Client)
}

// whole is a message that has arrived.
type whole []byte

func (m whole) Peek(n int) ([]byte, error)       { return m[:min(n, len(m))], nil }
func (m whole) Bytes() ([]byte, error)           { return m, nil }
func (m whole) relay(to *websocket.Outbox) error { return to.Write(m) }
