package proxy

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// limit counts the client connections.
type limit struct {
	most int
	open atomic.Int64
}

func (l *limit) count() int { return int(l.open.Load()) }

// left counts a connection that was taken over and is closed.
func (l *limit) left() { l.open.Add(-1) }

// state follows what the server does with its connections.
func (l *limit) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		l.left()
	}
}

// limited accepts no more connections than the limit. One too many is told
// so: left in the queue, it would hang.
type limited struct {
	net.Listener
	limit *limit
}

const full = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n" +
	`{"error":{"code":"try_again","message":"too many connections: see --max-connections"}}` + "\n"

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if n := l.limit.open.Add(1); l.limit.most == 0 || int(n) <= l.limit.most {
			return c, nil
		}
		l.limit.left()
		go func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Second))
			io.WriteString(c, full)
			if h, ok := c.(halfCloser); ok {
				h.CloseWrite()
				io.Copy(io.Discard, io.LimitReader(c, maxHead)) // so that the answer is not lost to a reset
			}
		}()
	}
}
