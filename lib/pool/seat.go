package pool

import (
	"context"
	"errors"
	"net/http"
	"time"

	"btools/lib/control"
	"btools/lib/pool/share"
	"btools/lib/virtual"
)

// seated is what a lease has of a browser that it shares.
type seated struct {
	seat     *share.Seat     // nil while there is no browser
	before   <-chan struct{} // closed when no page of the lease before is alive; or nil
	requests int             // of the holder, WebSockets included
}

// maxRequests bounds the requests and WebSockets of a lease.
const maxRequests = 512

// sessionBound is how long a request may wait for its session.
const sessionBound = 30 * time.Second

// takeLocked gives a new lease its session, without waiting for it.
func (g *group) takeLocked(l *lease) {
	g.leases++
	g.busy++
	l.before = l.slot.left
	g.seatLocked(l)
	if g.wornLocked() != "" {
		g.poke()
	}
}

// seatLocked gives a lease a session of the browser that takes leases. If there
// is none, the next one gives it.
func (g *group) seatLocked(l *lease) {
	if g.chrome == nil {
		g.wanted = true
		g.poke()
		return
	}
	l.seat = g.chrome.TakeSeat(g.sparesLocked())
	g.uses++
}

// giveLocked takes the session of a lease that has ended.
func (g *group) giveLocked(l *lease) {
	s := l.slot
	g.leases--
	if !s.retired {
		g.busy--
	}
	s.left = l.before
	if l.seat != nil {
		if gone := l.seat.Release(g.sparesLocked()); gone != nil {
			s.left = gone
		}
	}
	g.spareLocked()
	if g.wornLocked() != "" {
		g.poke()
	}
	g.endLocked()
}

// renewLocked gives an instance's lease, if it has one, another session. A
// browser that has failed is tried again.
func (g *group) renewLocked(s *slot) {
	if g.chrome == nil {
		g.force = g.state == Failed
		g.poke()
		return
	}
	l := s.lease
	if l == nil || l.seat == nil {
		return // each lease has a fresh one anyway
	}
	s.tellHolderLocked("is replaced by bpool restart, without its pages")
	if gone := l.seat.Release(g.sparesLocked()); gone != nil {
		l.before = gone
	}
	g.seatLocked(l)
	s.restarts++
	g.service.metrics.restarts.WithLabelValues(s.poolName).Inc()
	g.service.eventLocked("restarted", s, "", "")
}

// session is that of a lease, for one request or WebSocket: done is to be
// called at its end. It waits for a browser, and until no page of the
// instance's last lease is alive.
func (v *Service) session(ctx context.Context, id string) (s *virtual.Session, done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionBound, control.Errorf(control.TryAgain, "the lease %s has got no session within %v", id, sessionBound))
	defer cancel()
	l, err := v.enter(id)
	if err != nil {
		return nil, nil, err
	}
	s, used, err := v.sessionOf(ctx, l)
	if err != nil {
		v.leave(l)
		return nil, nil, err
	}
	return s, func() { used(); v.leave(l) }, nil
}

func (v *Service) sessionOf(ctx context.Context, l *lease) (*virtual.Session, func(), error) {
	for {
		seat, wait, err := v.seatOf(l)
		if err != nil {
			return nil, nil, err
		}
		if seat == nil {
			if err := v.await(ctx, l.slot.group, wait); err != nil {
				return nil, nil, err
			}
			continue
		}
		s, done, err := use(ctx, seat, wait)
		if errors.Is(err, share.ErrGone) || errors.Is(err, share.ErrReleased) {
			continue // seatOf says what is the matter
		}
		return s, done, err
	}
}

// use waits for what is to be over before, and for the seat's session.
func use(ctx context.Context, seat *share.Seat, before <-chan struct{}) (*virtual.Session, func(), error) {
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	return seat.Use(ctx)
}

// enter counts a request of a lease's holder.
func (v *Service) enter(id string) (*lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	switch {
	case l == nil || l.slot.group == nil:
		return nil, leaseEnded(id)
	case l.requests >= maxRequests:
		return nil, control.Errorf(control.TryAgain, "the lease %s has %d requests and WebSockets open already", id, maxRequests)
	}
	l.requests++
	return l, nil
}

func (v *Service) leave(l *lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.requests--
}

func leaseEnded(id string) error {
	return control.Errorf(control.LeaseEnded, "the lease %s has ended", printable(id))
}

// seatOf is a lease's seat on a browser that is there, with what is to be over
// before it is used. It is nil if there is no browser: one may be there when
// the channel is closed.
func (v *Service) seatOf(l *lease) (*share.Seat, <-chan struct{}, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := l.slot.group
	if v.leases[l.id] != l {
		return nil, nil, leaseEnded(l.id)
	}
	if l.seat.IsLive() {
		return l.seat, l.before, nil
	}
	if g.chrome.IsLive() {
		g.seatLocked(l)
		return l.seat, l.before, nil
	}
	if now := time.Now(); g.state == Failed && g.hurryAt.Sub(now) > firstDelay {
		words := "it is not replaced (RESTART=never)"
		if g.tryAt != never {
			words = NextTry(g.hurryAt, now)
		}
		return nil, nil, control.Errorf(control.Unavailable, "the browser of %s/%s is gone: %s, %s", l.slot.poolName, l.slot.set.ID, reasonOf(g.why), words)
	}
	g.wanted = true
	return nil, g.changed, nil
}

// await waits until a group's state has changed.
func (v *Service) await(ctx context.Context, g *group, changed <-chan struct{}) error {
	count := func(n int) {
		v.mu.Lock()
		defer v.mu.Unlock()
		g.waiting += n
	}
	count(1)
	defer count(-1)
	g.poke()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// statusOf is the status of HTTP that a holder without a session gets.
func statusOf(err error) int {
	switch control.ErrorOf(err).Code {
	case control.LeaseEnded:
		return http.StatusGone
	case control.TryAgain, control.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}
