package source

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"btools/lib/launch/options"
)

// idling stops the one browser when no call has used it for a while.
type idling struct {
	after time.Duration // 0: never
	// stop stops the browser if nothing else uses it, or, with empty, if nothing has a tab in it. It returns when to
	// look again.
	stop func(empty bool) time.Duration

	work sync.WaitGroup

	mu       sync.Mutex
	calls    int  // that use the browser now
	empty    bool // something has no tab any more
	rested   time.Time
	timer    *time.Timer
	stopping chan struct{} // closed when stop has returned; nil: it is not running
	closed   bool
}

// enter counts a call on the browser. If the browser is being stopped, it waits for
// that first.
func (i *idling) enter(ctx context.Context) error {
	for {
		stopping := i.tryEnter()
		if stopping == nil {
			return nil
		}
		select {
		case <-stopping:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryEnter counts a call. If the browser is being stopped, it does not, and
// returns what is closed then.
func (i *idling) tryEnter() (stopping <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopping == nil {
		i.calls++
		return nil
	}
	return i.stopping
}

// leave notes that a call has ended. The browser is stopped if no other one begins for
// a while, or at once if nothing has a tab in it any more.
func (i *idling) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls--
	i.rested = time.Now()
	if i.calls == 0 && i.empty && !i.closed && i.stopping == nil {
		i.stopLocked()
	} else {
		i.armLocked(i.after)
	}
}

// emptied notes that something has no tab any more.
func (i *idling) emptied() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.empty = true
}

// begin begins to watch a browser.
func (i *idling) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rested = time.Now()
	i.armLocked(i.after)
}

func (i *idling) armLocked(in time.Duration) {
	if i.after > 0 && !i.closed {
		start(&i.timer, in, i.check)
	}
}

// start starts a timer, which is made at first, anew.
func start(t **time.Timer, in time.Duration, do func()) {
	if *t == nil {
		*t = time.AfterFunc(in, do)
		return
	}
	(*t).Reset(in)
}

// check stops the browser if its time is over.
func (i *idling) check() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || i.stopping != nil || i.calls > 0 { // the end of a call sets the timer
		return
	}
	if left := i.after - time.Since(i.rested); left > 0 {
		i.armLocked(left)
		return
	}
	i.stopLocked()
}

// stopLocked has calls wait until stop has returned.
func (i *idling) stopLocked() {
	stopping, empty := make(chan struct{}), i.empty
	i.stopping, i.empty = stopping, false
	i.work.Go(func() {
		again := i.stop(empty)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.stopping = nil
		close(stopping)
		i.rested = time.Now().Add(again - i.after)
		i.armLocked(again)
	})
}

// close stops no browser any more.
func (i *idling) close() {
	i.mu.Lock()
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.mu.Unlock()
	i.work.Wait()
}

// held returns a lease whose call is counted until its release.
func (i *idling) held(at *Lease) *Lease {
	p := *at
	p.Release = sync.OnceFunc(func() {
		at.Release()
		i.leave()
	})
	return &p
}

// stopBound is how long the stop of an idle browser may take.
const stopBound = time.Minute

// stopIdle stops the browser unless its clients have used it: bproxy knows what
// they have sent, also those that are nobody's children.
func (s *proxied) stopIdle(empty bool) (again time.Duration) {
	after := s.idle.after
	ctx, cancel := context.WithTimeout(s.proxy.ctx, stopBound)
	defer cancel()
	if empty {
		if len(s.list(ctx)) == 0 {
			s.stop(ctx, "its last tab was closed")
		}
		return after
	}
	idle := s.unused(ctx)
	if idle == nil { // there is no browser
		return after
	}
	if left := after - time.Duration(*idle*float64(time.Second)); left > 0 {
		return left
	}
	s.stop(ctx, fmt.Sprintf("it had not been used for %v", after))
	return after
}

// unused is for how many seconds the browser was not used; nil: it is not known.
func (s *oneBrowser) unused(ctx context.Context) *float64 {
	var now proxyStatus
	if rec, err := s.status(ctx); err == nil && rec != nil {
		rec.Get("status", &now)
	}
	return now.Idle
}

// stop stops the browser, and notes why.
func (s *proxied) stop(ctx context.Context, why string) {
	if _, err := s.control(ctx, "stop", options.Options{}); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = why
}

// Emptied ends the session. The browser ends when the calls that run have ended, if it has no other session.
func (s *proxied) Emptied(b Browser) func() {
	return func() {
		s.emptyings.Add(1)
		s.end("", cmp.Or(b.Session, hostSession))
		s.idle.emptied()
	}
}
