// Package wait has what several goroutines wait for: something that is started
// once for all of them, a change, a time, the time until the next try, and a closed
// channel.
package wait

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Closed reports whether a channel is closed on which nothing is sent.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// For waits until a channel is closed. It returns why the context has ended if that is first.
func For(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Broadcast wakes all who wait for a change. The lock of what changes guards it.
type Broadcast struct {
	next chan struct{} // nil: nobody waits
}

// Next is closed at the next change.
func (b *Broadcast) Next() <-chan struct{} {
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Wake wakes them.
func (b *Broadcast) Wake() {
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Timer calls a function after a while. Its zero value has not been started. The lock
// of what it is for guards it.
type Timer struct{ *time.Timer }

// Start starts it anew; it calls the function of its first start.
func (t *Timer) Start(in time.Duration, do func()) {
	if t.Timer == nil {
		t.Timer = time.AfterFunc(in, do)
		return
	}
	t.Reset(in)
}

// Stop stops it, if it runs; a call that has begun goes on.
func (t *Timer) Stop() {
	if t.Timer != nil {
		t.Timer.Stop()
	}
}

// Backoff is how long to wait before something that has failed is tried again:
// not at all after its first failure, then twice as long each time, until it has
// run for a while. The zero value never waits.
type Backoff struct {
	First  time.Duration // after the second failure
	Max    time.Duration
	Steady time.Duration // what has run for longer starts anew

	delay time.Duration
}

// Next is how long to wait after a failure, the time before it having been ran.
// It is at least least, which is at most First.
func (b *Backoff) Next(ran, least time.Duration) time.Duration {
	if ran > b.Steady {
		b.delay = 0
	}
	wait := max(b.delay, least)
	b.delay = min(max(2*wait, b.First), b.Max)
	return wait
}

// Reset forgets the failures so far.
func (b *Backoff) Reset() { b.delay = 0 }

// Starter starts something that may end, such as a process: once for all who
// wait for it, and again when it is needed after its end. T's zero value is
// none.
type Starter[T comparable] struct {
	// Start starts it. There is one call at a time.
	Start func() (T, error)
	// Gone is why one that was started is of no use, nil if it is.
	Gone    func(T) error
	Backoff Backoff // between failures

	mu       sync.Mutex
	last     T             // none: it has not been started, or could not be
	err      error         // of the last start, or why the last one has ended
	starting chan struct{} // closed when the start is over; nil: none is under way
	began    time.Time     // of the last start
	next     time.Time     // no start before
	closed   error         // why nothing is started any more
}

// Get returns the one that runs, started if need be.
func (s *Starter[T]) Get(ctx context.Context) (none T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if t := s.runningLocked(); t != none {
			return t, nil
		}
		if s.closed != nil {
			return none, s.closed
		}
		if s.starting == nil {
			if wait := time.Until(s.next); wait > 0 {
				return none, fmt.Errorf("%w; it is started again in %v at the earliest", s.err,
					wait.Round(100*time.Millisecond))
			}
			s.starting = make(chan struct{})
			s.began = time.Now()
			go s.run()
		}
		starting := s.starting
		s.mu.Unlock()
		select {
		case <-starting:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		s.mu.Lock()
		if err != nil {
			return none, err
		}
		if s.starting == nil && s.err != nil {
			return none, s.err
		}
	}
}

// run starts it.
func (s *Starter[T]) run() {
	t, err := s.Start()
	if err == nil {
		err = s.Gone(t) // before it was known as ours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.closed != nil {
		err = s.closed
	}
	s.last, s.err = t, err
	if err != nil {
		var none T
		s.last = none
		s.failedLocked()
	}
	close(s.starting)
	s.starting = nil
}

func (s *Starter[T]) failedLocked() {
	now := time.Now()
	s.next = now.Add(s.Backoff.Next(now.Sub(s.began), 0))
}

// Ended notes that one has ended by itself.
func (s *Starter[T]) Ended(t T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == t {
		s.err = s.Gone(t)
		s.failedLocked()
	}
}

// Running returns the one that runs, else none.
func (s *Starter[T]) Running() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runningLocked()
}

func (s *Starter[T]) runningLocked() (none T) {
	if s.starting != nil || s.last == none || s.Gone(s.last) != nil {
		return none
	}
	return s.last
}

// Last returns the last one that was started, whether it runs or not, and why
// it does not, if that is known.
func (s *Starter[T]) Last() (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.err
}

// Starting is for how long a start has been under way, 0 if none is.
func (s *Starter[T]) Starting() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting == nil {
		return 0
	}
	return time.Since(s.began)
}

// Forget has the next Get start another one in place of t, which goes on.
func (s *Starter[T]) Forget(t T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == t && s.starting == nil {
		var none T
		s.last = none
	}
}

// Refuse has Get start nothing any more.
func (s *Starter[T]) Refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = why
	}
}

// Refuses reports whether nothing is started any more.
func (s *Starter[T]) Refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed != nil
}

// Close is Refuse, waits for a start that is under way, and returns the last
// one, for the caller to stop.
func (s *Starter[T]) Close(why error) T {
	s.Refuse(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.starting != nil {
		starting := s.starting
		s.mu.Unlock()
		<-starting
		s.mu.Lock()
	}
	return s.last
}
