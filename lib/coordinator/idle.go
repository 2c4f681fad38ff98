package coordinator

import (
	"context"
	"sync"
	"time"

	"btools/lib/launch/options"
)

// idling stops the one browser when no call has used it for a while.
type idling struct {
	after time.Duration // 0: never
	// stop stops the browser if nothing else uses it. It returns when to look
	// again.
	stop func() time.Duration

	work sync.WaitGroup

	mu       sync.Mutex
	calls    int // that use the browser now
	rested   time.Time
	timer    *time.Timer
	stopping chan struct{} // closed when stop has returned; nil: it is not running
	closed   bool
}

// enter counts a call on a virtual browser. If the browser is being ended, it
// returns a channel that is closed then.
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

// leave notes that a call has ended. A virtual browser that has not been used for
// long ends.
func (i *idling) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls--
	i.rested = time.Now()
	i.armLocked(i.after)
}

// begin begins to watch a browser.
func (i *idling) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rested = time.Now()
	i.armLocked(i.after)
}

func (i *idling) armLocked(in time.Duration) {
	switch {
	case i.after == 0 || i.closed:
	case i.timer == nil:
		i.timer = time.AfterFunc(in, i.check)
	default:
		i.timer.Reset(in)
	}
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
	stopping := make(chan struct{})
	i.stopping = stopping
	i.work.Go(func() {
		again := i.stop()
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
func (i *idling) held(at *lease) *lease {
	p := *at
	p.release = sync.OnceFunc(func() {
		at.release()
		i.leave()
	})
	return &p
}

// stopBound is how long the stop of an idle browser may take.
const stopBound = time.Minute

// stopIdle stops the browser unless its clients have used it: bproxy knows what
// they have sent, also those that are nobody's children.
func (s *single) stopIdle() (again time.Duration) {
	after := s.idle.after
	ctx, cancel := context.WithTimeout(s.proxy.ctx, stopBound)
	defer cancel()
	rec, err := s.status(ctx)
	if err != nil || rec == nil {
		return after
	}
	var now proxyStatus
	rec.Get("status", &now)
	if now.Idle == nil { // there is no browser
		return after
	}
	if left := after - time.Duration(*now.Idle*float64(time.Second)); left > 0 {
		return left
	}
	if _, err := s.control(ctx, "stop", options.Options{}); err == nil {
		s.mu.Lock()
		s.wasIdle = true
		s.mu.Unlock()
	}
	return after
}
