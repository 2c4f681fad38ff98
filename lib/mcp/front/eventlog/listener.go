package eventlog

import (
	"context"
	"fmt"
	"io"
	"time"
)

// retryAfter is how long a host is asked to wait before it resumes a stream, in
// milliseconds.
const retryAfter = 500

// Listener reads a stream. It has one goroutine.
type Listener struct {
	log    *Log
	stream *Stream
	number int
	from   int // the events before it are written
}

// Writer is a connection to a host.
type Writer interface {
	io.Writer
	Flush() error
}

// next returns the events that follow, and whether the stream ends with them.
// It is not current if another listener has taken its place.
func (l *Listener) next() (events [][]byte, over, current bool) {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	l.from, events, over, current = l.log.streams.since(l.stream, l.from, l.number)
	return events, over, current
}

func (l *Listener) sent() {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	l.stream.sent = max(l.stream.sent, l.from)
}

func (l *Listener) leave() {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	l.log.streams.detach(l.stream, l.number)
}

// Only waits until there is something to write, for one KeepAlive at most. It
// returns the event of a stream that has ended with only one, else nil. It is an
// error if the context ends.
func (l *Listener) Only(ctx context.Context) (message []byte, err error) {
	select {
	case <-l.stream.more:
		l.stream.wake() // for Write
	case <-time.After(l.log.KeepAlive):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	if st := l.stream; st.closed && len(st.events) == 1 {
		return st.events[0], nil
	}
	return nil, nil
}

// Write writes the stream as server-sent events, until its end, until the host
// cannot be written to, or until the context ends. With primed, it begins with
// an event without data, by whose ID the host can resume before there is any
// other. It reports whether the connection was cut: the host has not got all.
func (l *Listener) Write(ctx context.Context, out Writer, primed bool) (cut bool) {
	defer l.leave()
	number, once := l.stream.number, l.log.streams.once
	if !once && primed {
		fmt.Fprintf(out, "id: %d-%d\nretry: %d\ndata: \n\n", number, l.from, retryAfter)
	}
	if out.Flush() != nil {
		return true
	}
	tick := time.NewTicker(l.log.KeepAlive)
	defer tick.Stop()
	for {
		events, over, current := l.next()
		if !current {
			l.stream.wake() // the listener that has taken its place
			return false
		}
		for _, message := range events {
			l.from++
			id := ""
			if !once {
				id = fmt.Sprintf("id: %d-%d\n", number, l.from)
			}
			if _, err := fmt.Fprintf(out, "%sevent: message\ndata: %s\n\n", id, message); err != nil {
				return true
			}
		}
		if len(events) > 0 && out.Flush() != nil {
			return true
		}
		l.sent()
		if over {
			return false
		}
		select {
		case <-l.stream.more:
		case <-tick.C:
			l.log.Alive()
			if _, err := io.WriteString(out, ": alive\n\n"); err != nil || out.Flush() != nil {
				return true
			}
		case <-ctx.Done():
			return true
		}
	}
}
