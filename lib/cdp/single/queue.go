package single

import (
	"sync"
	"time"

	"btools/lib/websocket"
)

const (
	// maxUnread bounds the bytes that wait for a client. All clients share the
	// WebSocket: while one of them has more, the others wait with it, for at most
	// maxWait at a time; then its connection is closed. A single message may be
	// longer.
	maxUnread = 64 << 20
	maxWait   = 2 * time.Second

	// maxBatch bounds the bytes that are sent at a time, unless a message is
	// longer.
	maxBatch = 64 << 10

	// stall is how long a client may leave its messages unread.
	stall = 15 * time.Second
)

// notReading is why the connection of a client is closed.
const notReading = "it does not read its messages"

// queue are the messages on their way to a client.
type queue struct {
	mu       sync.Mutex
	messages [][]byte
	unread   int // bytes, those included that are being sent
	over     bool
	code     int // with which the client's WebSocket is closed
	reason   string

	wake    chan struct{} // of one element: there are messages, or it is over
	room    chan struct{} // of one element: messages have been sent
	stopped chan struct{} // closed when what is left is not sent any more
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// put adds a message. It waits for a client that has too much to read.
func (q *queue) put(message []byte) {
	var late <-chan time.Time
	for {
		q.mu.Lock()
		if q.over || q.unread == 0 || q.unread+len(message) <= maxUnread {
			if !q.over {
				q.messages = append(q.messages, message)
				q.unread += len(message)
			}
			q.mu.Unlock()
			signal(q.wake)
			return
		}
		q.mu.Unlock()
		if late == nil {
			t := time.NewTimer(maxWait)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-q.room:
		case <-q.stopped:
		case <-late:
			q.stop(websocket.PolicyViolation, notReading)
		}
	}
}

// signal sends to a channel of one element unless that is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finish has the client's WebSocket closed once it has got all messages so far.
func (q *queue) finish(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finishLocked(code, reason)
}

func (q *queue) finishLocked(code int, reason string) {
	if !q.over {
		q.over, q.code, q.reason = true, code, reason
		signal(q.wake)
	}
}

// stop has the client's WebSocket closed at once.
func (q *queue) stop(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finishLocked(code, reason)
	select {
	case <-q.stopped:
	default:
		close(q.stopped)
	}
}

// run sends messages to a client until it is over, and closes the WebSocket.
func (q *queue) run(conn *websocket.Conn) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			batch, over := q.take()
			if len(batch) == 0 && over {
				return
			}
			if len(batch) > 0 {
				if conn.WriteAll(batch...) != nil {
					return // which its reader sees, too
				}
				q.taken(batch)
				continue
			}
			select {
			case <-q.wake:
			case <-q.stopped:
				return
			}
		}
	}()
	select {
	case <-sent:
	case <-q.stopped:
	}
	q.mu.Lock()
	code, reason := q.code, q.reason
	q.mu.Unlock()
	if code == 0 {
		code = websocket.Normal
	}
	conn.Close(code, reason)
	<-sent
}

// take takes the next messages, which count as unread until taken.
func (q *queue) take() (batch [][]byte, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for len(q.messages) > 0 && (size == 0 || size+len(q.messages[0]) <= maxBatch) {
		size += len(q.messages[0])
		batch = append(batch, q.messages[0])
		q.messages[0] = nil
		q.messages = q.messages[1:]
	}
	return batch, q.over
}

func (q *queue) taken(batch [][]byte) {
	q.mu.Lock()
	for _, m := range batch {
		q.unread -= len(m)
	}
	q.mu.Unlock()
	signal(q.room)
}
