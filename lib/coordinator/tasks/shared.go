package tasks

import (
	"sync"
	"time"
)

// Shared is a Table for several goroutines. It forgets old results by itself.
type Shared[V any] struct {
	mu    sync.Mutex // of the table and the timer
	table Table[V]
	timer *time.Timer // forgets old results; nil: there were none
	due   time.Time   // when the timer fires
}

// NewShared makes a Shared. Its owner calls Close.
func NewShared[V any](limits Limits) *Shared[V] { return &Shared[V]{table: Table[V]{Limits: limits}} }

// Do reads or changes the tasks. Nobody else does meanwhile.
func (s *Shared[V]) Do(do func(*Table[V])) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.table)
	due := s.table.Expire(time.Now())
	if due.IsZero() || due.Equal(s.due) {
		return
	}
	s.due = due
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(due), func() { s.Do(func(*Table[V]) {}) })
	} else {
		s.timer.Reset(time.Until(due))
	}
}

// Close stops the timer.
func (s *Shared[V]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}
