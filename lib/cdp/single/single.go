// Package single carries many connections to a Chrome over one: the pipe of a Chrome
// that listens on no port, or a WebSocket, for a Chrome that asks its user to allow
// each.
//
// Each connection is a CDP session: with the browser target, which is as good as
// a connection of its own, or with one target. A message of Chrome names the
// session that it belongs to, so ids need not be unique, and nothing but
// sessionId is ever changed. What Chrome keeps for a connection, such as browser
// contexts that end with it, it keeps for the session, and frees when that ends.
//
// The package knows neither commands nor policy: a connection may do what one to
// Chrome may. It stops a connection from using the sessions of another one.
package single

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/wait"
	"btools/lib/websocket"
)

// Browser is a Chrome behind one WebSocket, which is opened for the first
// connection, and again for the next one after it has ended.
type Browser struct {
	open  func(context.Context) (*websocket.Conn, error)
	ctx   context.Context // ends with Close
	close context.CancelFunc

	mu     sync.Mutex
	latest *attempt // nil: none yet
	closed bool
	work   sync.WaitGroup // nothing is added once closed
}

// attempt is the WebSocket, from the decision to open it.
type attempt struct {
	ready chan struct{} // closed when it is open or could not be opened
	mux   *Mux          // nil: it could not
	err   error
	at    time.Time // of the error
}

// Errors of connections.
var (
	errClosed = errors.New("the program is stopping")
	errEnded  = errors.New("the connection to the browser has ended")
	errLate   = fmt.Errorf("the browser's user has not answered within %v", consentTimeout)
)

const (
	// consentTimeout bounds how long the browser's user may think. The question
	// does not end with the client that caused it: the answer counts for the next
	// one.
	consentTimeout = 5 * time.Minute

	// refusalHolds is how long a refusal counts for later connections. Programs
	// try again at once; their user should not be asked each time.
	refusalHolds = 5 * time.Second
)

// New returns a browser whose WebSocket open opens.
func New(open func(context.Context) (*websocket.Conn, error)) *Browser {
	b := &Browser{open: open}
	b.ctx, b.close = context.WithCancel(context.Background())
	return b
}

// isOver reports whether a new connection needs another attempt.
func (a *attempt) isOver() bool {
	if !wait.Closed(a.ready) {
		return false
	}
	var refused *websocket.RefusedError
	if a.err != nil {
		return !errors.As(a.err, &refused) || time.Since(a.at) > refusalHolds
	}
	return wait.Closed(a.mux.done)
}

// Await opens the WebSocket, unless it is open, or waits until it is. The
// context bounds the waiting only.
func (b *Browser) Await(ctx context.Context) error {
	_, err := b.await(ctx)
	return err
}

func (b *Browser) await(ctx context.Context) (*Mux, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, errClosed
	}
	a := b.latest
	if a == nil || a.isOver() {
		a = &attempt{ready: make(chan struct{})}
		b.latest = a
		b.work.Go(func() { b.try(a) })
	}
	b.mu.Unlock()
	select {
	case <-a.ready:
		return a.mux, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// try opens the WebSocket and serves it until it ends.
func (b *Browser) try(a *attempt) {
	ctx, cancel := context.WithTimeoutCause(b.ctx, consentTimeout, errLate)
	defer cancel()
	m, err := b.dial(ctx)
	if err != nil {
		var refused *websocket.RefusedError
		switch {
		case errors.As(err, &refused):
			err = fmt.Errorf("the browser has refused the connection: %w", err)
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		}
		a.err, a.at = err, time.Now()
		close(a.ready)
		return
	}
	a.mux = m
	close(a.ready)
	select {
	case <-m.done:
	case <-b.ctx.Done():
	}
	m.Close()
}

func (b *Browser) dial(ctx context.Context) (*Mux, error) {
	conn, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	m := NewSocket(conn)
	if _, err = m.Version(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the WebSocket and all connections, and waits for them.
func (b *Browser) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.work.Wait()
}

// Connect opens a connection to the browser, or to the target with this ID. Serve
// or Close it.
func (b *Browser) Connect(ctx context.Context, target string) (*Client, error) {
	m, err := b.await(ctx)
	if err != nil {
		return nil, err
	}
	return m.Connect(ctx, target)
}

// Version returns Chrome's answer to Browser.getVersion.
func (b *Browser) Version(ctx context.Context) (json.RawMessage, error) {
	m, err := b.await(ctx)
	if err != nil {
		return nil, err
	}
	return m.Version(ctx)
}

// Call sends a command to the browser and waits for its answer.
func (b *Browser) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	m, err := b.await(ctx)
	if err != nil {
		return nil, err
	}
	return m.Call(ctx, method, params)
}

// Check asks the browser for an answer, over the WebSocket that there is. It
// returns asked false if there is none yet, and an error if it has ended or could
// not be opened, or if no answer comes. It never opens one.
func (b *Browser) Check(ctx context.Context) (asked bool, err error) {
	b.mu.Lock()
	a := b.latest
	b.mu.Unlock()
	switch {
	case a == nil || !wait.Closed(a.ready):
		return false, nil
	case a.err != nil:
		return true, a.err
	}
	return true, a.mux.Check(ctx)
}
