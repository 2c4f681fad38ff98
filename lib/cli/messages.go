package cli

import (
	"io"
	"sync/atomic"
	"time"

	"btools/lib/terminal"
)

// Messages passes on messages for people, one a Write, without what a
// terminal takes for commands. Who writes waits while they are read, but not
// for somebody who reads none: then what finds no room is dropped.
type Messages struct {
	all  chan message
	deaf atomic.Bool // nobody reads
}

type message struct {
	text []byte
	done chan<- struct{} // nil, or closed when all before it is written
}

const (
	maxMessages = 1024        // that wait
	deafAfter   = time.Second // without one of them read
	flushBound  = time.Second // a program's end waits for its last messages
)

// NewMessages passes messages on to w.
func NewMessages(w io.Writer) *Messages {
	m := &Messages{all: make(chan message, maxMessages)}
	go func() {
		for next := range m.all {
			w.Write(next.text)
			m.deaf.Store(false)
			if next.done != nil {
				close(next.done)
			}
		}
	}()
	return m
}

func (m *Messages) Write(b []byte) (int, error) {
	next := message{text: terminal.Escape(b, false)}
	select {
	case m.all <- next:
		return len(b), nil
	default:
	}
	if m.deaf.Load() {
		return len(b), nil
	}
	select {
	case m.all <- next:
	case <-time.After(deafAfter):
		m.deaf.Store(true)
	}
	return len(b), nil
}

// Flush waits until all is written, no longer than the bound.
func (m *Messages) Flush(bound time.Duration) {
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
