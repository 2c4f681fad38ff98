package single

import (
	"errors"
	"sync"
)

const (
	// maxQueued bounds the bytes on their way to Chrome before clients wait: as
	// long as Chrome does not read them, nothing more is read from the clients.
	maxQueued = 16 << 20

	// maxOwn bounds them for our own commands, which do not wait. A Chrome that
	// reads none of so much hangs.
	maxOwn = 256 << 20
)

var errNotRead = errors.New("the browser does not read its commands")

// sender sends messages to Chrome in the order of put and write. A message is sent
// by the goroutine that has it, as long as that need not wait; else by run.
type sender struct {
	to transport

	mu     sync.Mutex
	queue  [][]byte // frames
	queued int      // their bytes
	busy   bool     // a goroutine sends, and will send the queue
	failed error
	room   chan struct{} // closed when a frame of the queue has been sent; nil: nobody waits
	wake   chan struct{} // of one element: run takes over
}

func newSender(to transport) *sender { return &sender{to: to, wake: make(chan struct{}, 1)} }

// put sends a message and does not wait.
func (s *sender) put(message []byte) error {
	s.mu.Lock()
	if s.queued+len(message) > maxOwn && s.queued > 0 {
		s.failLocked(errNotRead)
	}
	return s.sendLocked(message)
}

// write sends a message. It waits while too much is queued, until the channel is
// closed.
func (s *sender) write(message []byte, done <-chan struct{}) error {
	s.mu.Lock()
	for s.failed == nil && s.queued > 0 && s.queued+len(message) > maxQueued {
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-done:
			return errEnded
		}
		s.mu.Lock()
	}
	return s.sendLocked(message)
}

// sendLocked sends a message or queues it, and unlocks.
func (s *sender) sendLocked(message []byte) error {
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	frame := s.to.frame(message)
	if s.busy {
		s.queue = append(s.queue, frame)
		s.queued += len(frame)
		return nil
	}
	s.busy = true
	s.mu.Unlock()
	rest, err := s.to.try(frame)
	s.mu.Lock()
	if err != nil {
		s.failLocked(err)
		return err
	}
	if len(rest) > 0 {
		s.queue = append([][]byte{rest}, s.queue...)
		s.queued += len(rest)
	}
	s.busy = len(s.queue) > 0
	if s.busy {
		s.wake <- struct{}{} // never full: it was not busy
	}
	return nil
}

// run sends what is queued until the channel is closed.
func (s *sender) run(done <-chan struct{}) {
	for {
		select {
		case <-s.wake:
			s.flush()
		case <-done:
			s.mu.Lock()
			s.failLocked(errEnded)
			s.mu.Unlock()
			return
		}
	}
}

func (s *sender) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.failed == nil && len(s.queue) > 0 {
		frame := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.mu.Unlock()
		err := s.to.write(frame)
		s.mu.Lock()
		s.queued -= len(frame)
		s.roomLocked()
		if err != nil {
			s.failLocked(err)
		}
	}
	s.queue, s.busy = nil, false
}

func (s *sender) roomLocked() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// failLocked ends the connection to Chrome.
func (s *sender) failLocked(err error) {
	if s.failed != nil {
		return
	}
	s.failed, s.queue, s.queued = err, nil, 0
	s.roomLocked()
	go s.to.close() // whose reader ends everything
}
