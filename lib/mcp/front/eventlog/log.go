// Package eventlog keeps the messages to one host of streamable HTTP as
// server-sent events: a stream for the requests of each HTTP request, and a
// general one. A host that has lost a connection resumes its stream by the ID of
// the last event that it got. It knows nothing of HTTP, sessions or MCP.
package eventlog

import (
	"sync"
	"time"
)

// Log is the streams of one host. Its methods may be called at any time.
type Log struct {
	// Alive is called at each KeepAlive while somebody listens.
	Alive func()
	// KeepAlive is how often a stream without events writes a comment.
	KeepAlive time.Duration

	mu      sync.Mutex
	streams *streams
}

// New makes a log. With once, its host never resumes a stream: events have no
// IDs, and none is kept.
func New(once bool, limits Limits) *Log {
	return &Log{Alive: func() {}, KeepAlive: 15 * time.Second, streams: newStreams(once, limits)}
}

// Begin makes the stream of one or several requests. Each message of it is
// passed through rename, which may be nil. If a request with one of the IDs is
// being answered already, Begin returns that ID instead of a stream.
func (l *Log) Begin(rename func([]byte) []byte, ids ...string) (st *Stream, taken string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams.begin(rename, ids)
}

// Add adds a message to the stream of the request with the ID, or to the
// general one. With last, it answers the request: that of the last request
// closes the stream. A nil message answers it without an event.
func (l *Log) Add(id string, last bool, message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams.add(id, last, message)
}

// Drop forgets a request and its stream.
func (l *Log) Drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams.drop(id)
}

// Close closes all streams: listeners get what is left, and return.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams.close()
}

// Idle reports whether no request is open and nobody listens to the general
// stream.
func (l *Log) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams.idle()
}

// Listen attaches a listener to a stream, from its first event on. The listener
// before leaves: it may be a connection whose host has gone, which is not known
// until it is written to.
func (l *Log) Listen(st *Stream) *Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Listener{log: l, stream: st, number: l.streams.attach(st)}
}

// ListenGeneral attaches a listener to the general stream, from the first event
// on that was not sent.
func (l *Log) ListenGeneral() *Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.streams.general
	return &Listener{log: l, stream: st, number: l.streams.attach(st), from: st.sent}
}

// Resume attaches a listener to the stream of an event, from the event after it
// on. It is an error if the event is not kept.
func (l *Log) Resume(event string) (*Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st, from, err := l.streams.find(event)
	if err != nil {
		return nil, err
	}
	return &Listener{log: l, stream: st, number: l.streams.attach(st), from: from}, nil
}
