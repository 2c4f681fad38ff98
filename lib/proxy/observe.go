package proxy

import (
	"net"
	"sync/atomic"
	"time"
)

// stamped is a connection that notes when it has read anything.
type stamped struct {
	net.Conn
	last atomic.Int64 // in Unix nanoseconds
}

func newStamped(from net.Conn) *stamped {
	s := &stamped{Conn: from}
	s.last.Store(time.Now().UnixNano())
	return s
}

func (s *stamped) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.last.Store(time.Now().UnixNano())
	}
	return n, err
}

func (s *stamped) lastUse() time.Time { return time.Unix(0, s.last.Load()) }
