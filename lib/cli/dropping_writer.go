package cli

import (
	"io"
	"sync/atomic"
	"time"

	"btools/lib/terminal"
)

// DroppingWriter passes on messages for people, one a Write, and removes what a
// terminal takes for commands. A Write waits while somebody reads. If nobody
// does, messages for which there is no room are dropped.
type DroppingWriter struct {
	all     chan message
	stalled atomic.Bool // nobody reads
}

type message struct {
	text []byte
	done chan<- struct{} // nil, or closed when all before it is written
}

const (
	maxMessages  = 1024        // that wait
	stallTimeout = time.Second // without one of them read
	flushBound   = time.Second // a program's end waits for its last messages
)

// NewDroppingWriter passes messages on to w.
func NewDroppingWriter(w io.Writer) *DroppingWriter {
	m := &DroppingWriter{all: make(chan message, maxMessages)}
	go func() {
		for next := range m.all {
			w.Write(next.text)
			m.stalled.Store(false)
			if next.done != nil {
				close(next.done)
				return
			}
		}
	}()
	return m
}

func (m *DroppingWriter) Write(b []byte) (int, error) {
	next := message{text: terminal.Escape(b, false)}
	select {
	case m.all <- next:
		return len(b), nil
	default:
	}
	if m.stalled.Load() {
		return len(b), nil
	}
	select {
	case m.all <- next:
	case <-time.After(stallTimeout):
		m.stalled.Store(true)
	}
	return len(b), nil
}

// Close waits until all is written, no longer than the bound. What comes afterwards is dropped.
func (m *DroppingWriter) Close(bound time.Duration) {
	end := time.After(bound)
	done := make(chan struct{})
	select {
	case m.all <- message{done: done}:
	case <-end:
		return
	}
	select {
	case <-done:
	case <-end:
	}
}
