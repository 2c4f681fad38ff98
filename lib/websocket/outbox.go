package websocket

import (
	"errors"
	"net"
	"sync"
)

// maxQueued bounds the bytes that wait in an outbox.
const maxQueued = 16 << 20

// errStalled ends a connection whose other side does not read.
var errStalled = errors.New("it does not read its messages")

// Outbox is the sending side of a connection. It sends messages in the order in
// which they were added, by Put or by the methods that wait.
type Outbox struct {
	conn *Conn

	writing sync.Mutex // held while sending

	mu     sync.Mutex
	queue  [][]byte
	queued int // bytes
	failed error
	wake   chan struct{} // of one element
	work   sync.WaitGroup
}

// NewOutbox returns the outbox of a connection; Run it.
func NewOutbox(c *Conn) *Outbox {
	return &Outbox{conn: c, wake: make(chan struct{}, 1)}
}

// Put queues a message and does not wait. It closes a connection that has too
// much queued.
func (o *Outbox) Put(message []byte) {
	o.mu.Lock()
	switch {
	case o.failed != nil:
	case o.queued+len(message) > maxQueued && o.queued > 0:
		o.failed, o.queue = errStalled, nil
		o.work.Go(func() { o.conn.Close(PolicyViolation, errStalled.Error()) })
	default:
		o.queue = append(o.queue, message)
		o.queued += len(message)
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run sends queued messages until the channel is closed. After that, the outbox
// accepts none.
func (o *Outbox) Run(done <-chan struct{}) {
	defer o.work.Wait()
	defer o.fail(net.ErrClosed)
	for {
		select {
		case <-o.wake:
			o.writing.Lock()
			o.flush()
			o.writing.Unlock()
		case <-done:
			return
		}
	}
}

// flush sends the queued messages; its caller holds writing.
func (o *Outbox) flush() error {
	for {
		o.mu.Lock()
		queue, err := o.queue, o.failed
		o.queue, o.queued = nil, 0
		o.mu.Unlock()
		if err != nil || len(queue) == 0 {
			return err
		}
		for _, m := range queue {
			if err := o.conn.Write(m); err != nil {
				return o.fail(err)
			}
		}
	}
}

// Write sends a message after the queued ones.
func (o *Outbox) Write(message []byte) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	if err := o.flush(); err != nil {
		return err
	}
	return o.fail(o.conn.Write(message))
}

// TryWrite sends a short message if that needs no waiting, and else returns false.
func (o *Outbox) TryWrite(message []byte) bool {
	if !o.writing.TryLock() {
		return false
	}
	defer o.writing.Unlock()
	o.mu.Lock()
	ready := o.failed == nil && len(o.queue) == 0
	o.mu.Unlock()
	return ready && o.conn.tryWrite(message)
}

// Relay sends a message that is still being received, after the queued ones.
func (o *Outbox) Relay(m *Message) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	if err := o.flush(); err != nil {
		return err
	}
	return o.fail(o.conn.Relay(m))
}

func (o *Outbox) fail(err error) error {
	if err == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed, o.queue = err, nil
	}
	return o.failed
}
