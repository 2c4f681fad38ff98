package source

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control/api"
	"btools/lib/launch/options"
)

// step stops the one browser when no call has used it for a while, or at once if nothing has a tab in it any more.
func (s *Source) step(due uses.Due[usable]) (kept time.Time) { return s.stopUnused(due.Hurried) }

func (s *Source) group() *sync.WaitGroup { return &s.stopping }

// stopBound is how long the stop of an idle browser may take.
const stopBound = time.Minute

// stopUnused stops the browser unless its clients have used it: bproxy knows what they have sent, also those that are
// nobody's children. It returns when they have, or when it has stopped the browser. With empty, it does if the browser
// has no session.
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

// unused is for how many seconds the browser was not used; nil: it is not known.
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

// Emptied returns what ends the session of a browser whose last tab was closed; nil: nothing does. The browser ends when
// the calls that run have ended, if it has no other session.
func (s *Source) Emptied(b Browser) func() {
	if !s.stops {
		return nil
	}
	return func() {
		s.emptyings.Add(1)
		s.end("", cmp.Or(b.Session, hostSession))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.table.Hurry(s)
	}
}
