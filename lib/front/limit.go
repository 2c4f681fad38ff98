package front

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"btools/lib/tokens"
)

// Limit bounds the connections of a front. At the limit, a new connection replaces
// the one that has been idle for longest; if all are busy, it is answered with
// status 503.
type Limit struct {
	Max  int    // connections at once; 0: any number
	Flag string // the flag that sets Max, named in the answer; "" for none

	mu       sync.Mutex
	conns    map[net.Conn]int64         // event since which it is idle; 0: it is busy
	tokens   map[net.Conn]*tokens.Token // by which requests came on it
	events   int64
	refusing int
}

// maxRefusing bounds the connections that are being answered with status 503.
// Others are closed without an answer, which would take a descriptor for up to
// refuseTimeout.
const (
	maxRefusing   = 16
	refuseTimeout = time.Second
	maxRefused    = 64 << 10 // bytes of its request that are read
)

// Count returns the number of connections.
func (l *Limit) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Drop forgets a connection that was hijacked and is closed.
func (l *Limit) Drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(c)
}

func (l *Limit) forgetLocked(c net.Conn) {
	delete(l.conns, c)
	delete(l.tokens, c)
}

// note notes the token of a connection.
func (l *Limit) note(c net.Conn, t *tokens.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ours := l.conns[c]; !ours {
		return
	}
	if l.tokens == nil {
		l.tokens = map[net.Conn]*tokens.Token{}
	}
	l.tokens[c] = t
}

// closeOthers closes the connections whose token is not there any more.
func (l *Limit) closeOthers(there func(*tokens.Token) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, t := range l.tokens {
		if !there(t) {
			c.Close()
			l.forgetLocked(c)
		}
	}
}

// state tracks the connections of an http.Server, as its ConnState.
func (l *Limit) state(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ours := l.conns[c]; !ours {
		return // it was replaced
	}
	switch s {
	case http.StateActive, http.StateHijacked:
		l.conns[c] = 0
	case http.StateIdle:
		l.events++
		l.conns[c] = l.events
	case http.StateClosed:
		l.forgetLocked(c)
	}
}

// admit counts a new connection, if the limit allows it.
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
		l.forgetLocked(longest)
		longest.Close()
	}
	if l.conns == nil {
		l.conns = map[net.Conn]int64{}
	}
	l.events++
	l.conns[c] = l.events
	return true
}

// refuse answers a connection above the limit.
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

// listener returns a listener whose connections count.
func (l *Limit) listener(from net.Listener) net.Listener { return &limitedListener{from, l} }

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
