package guard

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limit bounds the connections of an http.Server: give that its State, and
// serve what Listener returns. At the limit, a new connection takes the place
// of the one that has waited longest for a request; if all are busy, it is
// answered with status 503.
type Limit struct {
	Max  int    // connections at once; 0: any number
	Flag string // that sets it, for the answer; "" without one

	mu       sync.Mutex
	conns    map[net.Conn]int64 // since which event one waits for a request; 0: it is busy
	events   int64
	refusing int
}

// maxRefusing bounds the connections that are being told that they are too
// many. Others are closed without a word: telling costs a descriptor and up to
// refuseTimeout.
const (
	maxRefusing   = 16
	refuseTimeout = time.Second
	maxRefused    = 64 << 10 // bytes that are read of it
)

// Count is the number of connections.
func (l *Limit) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Drop forgets a connection that was hijacked and is closed.
func (l *Limit) Drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// State follows what the server does with its connections: it is the
// server's ConnState.
func (l *Limit) State(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ours := l.conns[c]; !ours {
		return // it has lost its place
	}
	switch s {
	case http.StateActive, http.StateHijacked:
		l.conns[c] = 0
	case http.StateIdle:
		l.events++
		l.conns[c] = l.events
	case http.StateClosed:
		delete(l.conns, c)
	}
}

// admit gives a new connection a place, if there is one.
func (l *Limit) admit(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Max > 0 && len(l.conns) >= l.Max {
		var longest net.Conn
		for other, since := range l.conns {
			if since != 0 && (longest == nil || since < l.conns[longest]) {
				longest = other
			}
		}
		if longest == nil {
			return false
		}
		delete(l.conns, longest)
		longest.Close()
	}
	if l.conns == nil {
		l.conns = map[net.Conn]int64{}
	}
	l.events++
	l.conns[c] = l.events
	return true
}

// refuse tells a connection that it is one too many.
func (l *Limit) refuse(c net.Conn) {
	l.mu.Lock()
	full := l.refusing >= maxRefusing
	if !full {
		l.refusing++
	}
	l.mu.Unlock()
	if full {
		c.Close()
		return
	}
	go func() {
		defer func() {
			c.Close()
			l.mu.Lock()
			l.refusing--
			l.mu.Unlock()
		}()
		hint := ""
		if l.Flag != "" {
			hint = ": see --" + l.Flag
		}
		c.SetDeadline(time.Now().Add(refuseTimeout))
		io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"+
			"Content-Type: application/json; charset=UTF-8\r\n\r\n"+
			`{"error":{"code":"try_again","message":"too many connections`+hint+`"}}`+"\n")
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			h.CloseWrite()
			io.Copy(io.Discard, io.LimitReader(c, maxRefused)) // so that the answer is not lost to a reset
		}
	}()
}

// Listener is a listener whose connections count.
func (l *Limit) Listener(from net.Listener) net.Listener { return &limitedListener{from, l} }

type limitedListener struct {
	net.Listener
	limit *Limit
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.limit.admit(c) {
			return c, nil
		}
		l.limit.refuse(c)
	}
}
