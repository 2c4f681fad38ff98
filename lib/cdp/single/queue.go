package single

import (
	"sync"

	"btools/lib/websocket"
)

// maxUnread bounds the bytes that wait for a client. A client that has more is
// disconnected: nobody waits for it. A single message may be longer.
const maxUnread = 64 << 20

// notReading is why the connection of a client is closed.
const notReading = "it does not read its messages"

// queue are the messages on their way to a client.
type queue struct {
	mu       sync.Mutex
	messages [][]byte
	direct   func(message []byte) bool // see Client.Direct; nil: none
	idle     bool                      // next waits: nothing is left to do with earlier messages
	unread   int                       // bytes, including the message that was returned last
	last     int                       // bytes of that
	end      *websocket.CloseError

	wake    chan struct{} // of one element: there are messages, or it is over
	stopped chan struct{} // closed when what is left is not sent any more
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// put adds a message and does not wait. A client that has too much to read is
// disconnected.
func (q *queue) put(message []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.end != nil:
	case q.idle && len(q.messages) == 0 && q.direct != nil && q.direct(message):
	case q.unread > 0 && q.unread+len(message) > maxUnread:
		q.stopLocked(websocket.PolicyViolation, notReading)
	default:
		q.messages = append(q.messages, message)
		q.unread += len(message)
		q.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// finish ends the queue after the messages so far.
func (q *queue) finish(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finishLocked(code, reason)
}

func (q *queue) finishLocked(code int, reason string) {
	if q.end == nil {
		q.end = &websocket.CloseError{Code: code, Reason: reason}
		q.signal()
	}
}

// stop ends the queue at once.
func (q *queue) stop(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked(code, reason)
}

func (q *queue) stopLocked(code int, reason string) {
	q.finishLocked(code, reason)
	q.messages = nil
	select {
	case <-q.stopped:
	default:
		close(q.stopped)
	}
}

// next waits for the next message. At the end it returns a *websocket.CloseError.
// One goroutine calls it.
func (q *queue) next() ([]byte, error) {
	for {
		q.mu.Lock()
		q.unread -= q.last
		q.last = 0
		if len(q.messages) > 0 {
			m := q.messages[0]
			q.messages[0] = nil
			if q.messages = q.messages[1:]; len(q.messages) == 0 {
				q.messages = nil
			}
			q.last, q.idle = len(m), false
			q.mu.Unlock()
			return m, nil
		}
		end := q.end
		q.idle = true
		q.mu.Unlock()
		if end != nil {
			return nil, end
		}
		select {
		case <-q.wake:
		case <-q.stopped:
		}
	}
}
