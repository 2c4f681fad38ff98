package source

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"btools/lib/control/api"
	"btools/lib/launch/options"
)

// step stops the one browser when no call has used it for a while, or at once if nothing has a tab in it any more.
func (s *Source) step(due due[usable]) (kept time.Time) { return s.stopUnused(due.hurried) }

func (s *Source) group() *sync.WaitGroup { return &s.stopping }

// stopBound is how long the stop of an idle browser may take.
const stopBound = time.Minute

// stopUnused stops the browser unless its clients have used it, as bproxy knows, also of those that are nobody's
// children. With empty, it stops the browser if that has no session. It returns the time of their last use, or now.
func (s *bproxy) stopUnused(empty bool) time.Time {
	ctx, cancel := context.WithTimeout(s.ctx, stopBound)
	defer cancel()
	if empty {
		if len(s.list(ctx)) == 0 {
			s.stop(ctx, "its last tab was closed")
		}
		return time.Now()
	}
	after := s.src.sessions.Idle
	if idle := s.src.unused(ctx); idle != nil { // else there is no browser
		if unused := time.Duration(*idle * float64(time.Second)); unused < after {
			return time.Now().Add(-unused)
		}
		s.stop(ctx, fmt.Sprintf("it had not been used for %v", after))
	}
	return time.Now()
}

// unused returns for how many seconds the browser was not used; nil: it is not known.
func (s *Source) unused(ctx context.Context) *float64 {
	var now api.ProxyStatus
	if rec, err := s.status(ctx); err == nil && rec != nil {
		rec.Get("status", &now)
	}
	return now.IdleSeconds
}

// stop stops the browser, and notes why.
func (s *bproxy) stop(ctx context.Context, why string) {
	if _, err := s.control(ctx, string(api.Stop), options.Options{}); err != nil {
		return
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	s.stopped = why
}

// Emptied returns a function that ends the session of a browser whose last tab was closed; nil: nothing ends it. The
// browser ends with the calls that run, if it has no other session.
func (s *Source) Emptied(b Browser) func() {
	if !s.stops {
		return nil
	}
	return func() {
		s.emptyings.Add(1)
		s.end("", cmp.Or(b.Session, hostSession))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.table.hurry(s)
	}
}
