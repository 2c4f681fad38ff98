package proxy

import (
	"io"
	"math"
	"net"
	"sync"
	"time"

	"btools/lib/websocket"
)

// linger is how long one direction of a tunnel may continue after the other has
// ended: a last answer may be on its way, but no connection stays half open.
const linger = 10 * time.Second

// tunnel joins two connections until both directions have ended.
type tunnel struct {
	client, browser net.Conn
	in              net.Conn         // the client, where each read may note the time
	lastUse         func() time.Time // when the client last sent anything
	fromClient      []byte           // read ahead from the client
	fromBrowser     []byte           // read ahead from the browser
	bidi            bool             // its session outlives the connection
	record          recorder         // gets each message; nil: none
	once            sync.Once

	done       chan struct{} // closed when nothing of it is left
	clientGone bool          // guarded by the backend's lock
}

// halfCloser is a connection whose writing side can be closed by itself.
type halfCloser interface{ CloseWrite() error }

// run relays bytes in both directions and returns the number of bytes sent each way.
func (t *tunnel) run() (sent, received int64) {
	defer t.Close()
	done := make(chan int64, 1)
	go func() { done <- t.half(t.browser, t.client, t.in, t.fromClient) }()
	received = t.half(t.client, t.browser, t.browser, t.fromBrowser)
	return <-done, received
}

// half copies early, then everything that it reads from one connection, to the
// other. It passes the end on, too.
func (t *tunnel) half(to, from, in net.Conn, early []byte) int64 {
	sent, err := to.Write(early)
	n := int64(sent)
	if err == nil {
		k, _ := io.Copy(to, in) // both are sockets: on Linux the kernel splices them
		n += k
	}
	if c, ok := to.(halfCloser); !ok || c.CloseWrite() != nil {
		t.Close()
	}
	to.SetReadDeadline(time.Now().Add(linger))
	from.SetWriteDeadline(time.Now().Add(linger))
	return n
}

// messages returns the two connections as WebSockets.
func (t *tunnel) messages() (client, browser *websocket.Conn) {
	client, browser = websocket.New(t.in, false, t.fromClient), websocket.New(t.browser, true, t.fromBrowser)
	client.Limit, browser.Limit = math.MaxInt64, math.MaxInt64 // the two ends have theirs
	if t.record != nil {
		client.Trace = func(_ bool, m []byte, size int64) { t.record(true, m, size) }
		browser.Trace = func(_ bool, m []byte, size int64) { t.record(false, m, size) }
	}
	return client, browser
}

// closeClient closes the client's side. The browser's side of a BiDi session is
// closed once the session has ended.
func (t *tunnel) closeClient() {
	if !t.bidi {
		t.Close()
		return
	}
	t.client.Close()
	t.browser.SetWriteDeadline(time.Now().Add(endTimeout)) // a write to it may be stuck
}

// LastUse returns when the client last sent anything.
func (t *tunnel) LastUse() time.Time { return t.lastUse() }

// Close ends both directions.
func (t *tunnel) Close() {
	t.once.Do(func() {
		t.client.Close()
		t.browser.Close()
	})
}
