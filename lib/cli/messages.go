package cli

import (
	"io"
	"time"
)

// Messages passes on messages for people, one a Write, without ever waiting
// for somebody to read them: what finds no room is dropped.
type Messages struct{ all chan message }

type message struct {
	text []byte
	done chan<- struct{} // nil, or closed when all before it is written
}

// maxMessages is how many messages wait at most.
const maxMessages = 1024

// NewMessages passes messages on to w.
func NewMessages(w io.Writer) *Messages {
	m := &Messages{make(chan message, maxMessages)}
	go func() {
		for next := range m.all {
			w.Write(next.text)
			if next.done != nil {
				close(next.done)
			}
		}
	}()
	return m
}

func (m *Messages) Write(b []byte) (int, error) {
	select {
	case m.all <- message{text: append([]byte(nil), b...)}:
	default:
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
