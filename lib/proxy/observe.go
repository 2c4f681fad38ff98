package proxy

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// stamped is a reader that notes when it has read anything.
type stamped struct {
	io.Reader
	last atomic.Int64 // in Unix nanoseconds
}

func newStamped(from net.Conn) *stamped {
	s := &stamped{Reader: from}
	s.last.Store(time.Now().UnixNano())
	return s
}

func (s *stamped) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if n > 0 {
		s.last.Store(time.Now().UnixNano())
	}
	return n, err
}

func (s *stamped) lastUse() time.Time { return time.Unix(0, s.last.Load()) }
