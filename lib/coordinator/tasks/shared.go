package tasks

import (
	"sync"
	"time"

	"btools/lib/wait"
)

// Shared is a Table for several goroutines. It forgets old results by itself.
type Shared[V any] struct {
	mu    sync.Mutex // of the table and the timer
	table Table[V]
	timer wait.Timer // forgets old results
	due   time.Time  // when the timer fires
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
	s.timer.Start(time.Until(due), func() { s.Do(func(*Table[V]) {}) })
}

// Close stops the timer.
func (s *Shared[V]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
}
