package proxy

import (
	"io"
	"net"
	"sync"
	"time"
)

// linger is how long one direction of a tunnel may go on when the other has
// ended: a last answer may be on its way, but nothing stays half open.
const linger = 10 * time.Second

// tunnel joins two connections until both directions have ended.
type tunnel struct {
	client, browser net.Conn
	toBrowser       io.Writer // nil: straight on; else it gets a copy
	toClient        io.Writer
	once            sync.Once
}

// halfCloser is a connection whose writing side can be closed by itself.
type halfCloser interface{ CloseWrite() error }

// run joins the connections and returns how many bytes went each way.
func (t *tunnel) run() (sent, received int64) {
	defer t.close()
	done := make(chan int64, 1)
	go func() { done <- t.half(t.browser, t.client, t.toBrowser) }()
	received = t.half(t.client, t.browser, t.toClient)
	return <-done, received
}

// half copies from one connection to the other until its end, and passes
// that on.
func (t *tunnel) half(to, from net.Conn, tap io.Writer) int64 {
	var n int64
	if tap == nil {
		// Both are sockets: on Linux the kernel splices them.
		n, _ = io.Copy(to, from)
	} else {
		n, _ = io.Copy(io.MultiWriter(to, tap), struct{ io.Reader }{from})
	}
	if c, ok := to.(halfCloser); !ok || c.CloseWrite() != nil {
		t.close()
	}
	to.SetReadDeadline(time.Now().Add(linger))
	return n
}

// close ends both directions.
func (t *tunnel) close() {
	t.once.Do(func() {
		t.client.Close()
		t.browser.Close()
	})
}
