package proxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// linger is how long one direction of a tunnel may continue after the other has
// ended: a last answer may be on its way, but no connection stays half open.
const linger = 10 * time.Second

// tunnel joins two connections until both directions have ended.
type tunnel struct {
	client, browser net.Conn
	in              io.Reader        // the client, where each read may note the time
	lastUse         func() time.Time // when the client last sent anything
	fromClient      []byte           // read ahead from the client
	fromBrowser     []byte           // read ahead from the browser
	toBrowser       io.Writer        // gets a copy of the traffic; nil: none
	toClient        io.Writer
	bidi            bool // its session outlives the connection
	once            sync.Once

	done       chan struct{} // closed when nothing of it is left
	clientGone bool          // guarded by the backend's lock
}

// halfCloser is a connection whose writing side can be closed by itself.
type halfCloser interface{ CloseWrite() error }

// run relays in both directions and returns the number of bytes sent each way.
func (t *tunnel) run() (sent, received int64) {
	defer t.close()
	done := make(chan int64, 1)
	go func() { done <- t.half(t.browser, t.client, t.in, t.fromClient, t.toBrowser) }()
	received = t.half(t.client, t.browser, t.browser, t.fromBrowser, t.toClient)
	return <-done, received
}

// half copies early, then everything that it reads from one connection, to the
// other. It passes the end on, too.
func (t *tunnel) half(to, from net.Conn, in io.Reader, early []byte, tap io.Writer) int64 {
	// Both are sockets: on Linux the kernel splices them, without a tap.
	out := io.Writer(to)
	if tap != nil {
		out, in = io.MultiWriter(to, tap), struct{ io.Reader }{in}
	}
	sent, err := out.Write(early)
	n := int64(sent)
	if err == nil {
		k, _ := io.Copy(out, in)
		n += k
	}
	if c, ok := to.(halfCloser); !ok || c.CloseWrite() != nil {
		t.close()
	}
	to.SetReadDeadline(time.Now().Add(linger))
	from.SetWriteDeadline(time.Now().Add(linger))
	return n
}

// closeClient closes the client's side. The browser's side of a BiDi session is
// closed once the session has ended.
func (t *tunnel) closeClient() {
	if !t.bidi {
		t.close()
		return
	}
	t.client.Close()
	t.browser.SetWriteDeadline(time.Now().Add(endTimeout)) // a write to it may be stuck
}

// close ends both directions.
func (t *tunnel) close() {
	t.once.Do(func() {
		t.client.Close()
		t.browser.Close()
	})
}
