package single

import (
	"sync"
	"sync/atomic"

	"btools/lib/websocket"
)

// maxUnread bounds the bytes that wait for a client. A client that has more is
// disconnected: nobody waits for it. A single message may be longer.
const maxUnread = 64 << 20

// maxAllUnread bounds the bytes that wait for all clients. If there are more, the
// client with the most is disconnected.
const maxAllUnread = 256 << 20

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

	most    int           // unread bytes, at most: maxUnread
	all     *atomic.Int64 // the unread bytes of all queues
	wake    chan struct{} // of one element: there are messages, or it is over
	stopped chan struct{} // closed when what is left is not sent any more
}

func newQueue(most int, all *atomic.Int64) *queue {
	return &queue{most: most, all: all, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// put adds a message and does not wait. A client that has too much to read is
// disconnected.
func (q *queue) put(message []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.end != nil:
	case q.idle && len(q.messages) == 0 && q.direct != nil && q.direct(message):
	case q.unread > 0 && q.unread+len(message) > q.most:
		q.stopLocked(websocket.PolicyViolation, notReading)
	default:
		q.messages = append(q.messages, message)
		q.countLocked(len(message))
		q.signal()
	}
}

func (q *queue) countLocked(bytes int) {
	q.unread += bytes
	q.all.Add(int64(bytes))
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unread
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
	q.messages, q.last = nil, 0
	q.countLocked(-q.unread)
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
		q.countLocked(-q.last)
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
