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

// seating is the seat of a lease on a shared browser.
type seating struct {
	seat           *share.Seat     // nil while there is no browser
	previousClosed <-chan struct{} // closed when the previous lease's pages are closed; may be nil
	requests       int             // open requests of the holder, including WebSockets
}

// maxRequests limits the open requests and WebSockets of a lease.
const maxRequests = 512

// sessionTimeout is how long a request may wait for its session.
const sessionTimeout = 30 * time.Second

// startLeaseLocked takes a session for a new lease, without waiting for it.
func (g *group) startLeaseLocked(l *lease) {
	g.leases++
	g.leased++
	l.previousClosed = l.slot.lastPagesClosed
	g.takeSeatLocked(l)
	if g.replaceReasonLocked() != "" {
		g.wake()
	}
}

// takeSeatLocked takes a session of the current browser. If there is none, the
// lease gets one when the next browser is activated.
func (g *group) takeSeatLocked(l *lease) {
	if l.seat != nil && !l.seat.IsLive() {
		g.service.rescueLocked(l, "is gone")
	}
	if g.chrome == nil {
		g.needed = true
		g.wake()
		return
	}
	if h := l.rest.hibernated; h != nil {
		l.seat = g.chrome.RestoreSeat(g.spareCountLocked(), h)
	} else {
		l.seat = g.chrome.TakeSeat(g.spareCountLocked())
	}
	g.uses++
}

// endLeaseLocked releases the session of a lease that has ended.
func (g *group) endLeaseLocked(l *lease) {
	s := l.slot
	if h := l.kept; h != nil && l.rest.hibernated == h { // it was not used: the holder may never have had it
		l.rest.hibernated = nil
		g.service.keepForNextLocked(l, h)
	}
	g.service.forgetHibernatedLocked(l)
	g.leases--
	if !s.retired {
		g.leased--
	}
	s.lastPagesClosed = l.previousClosed
	if l.seat != nil {
		if gone := l.seat.Release(g.spareCountLocked()); gone != nil {
			s.lastPagesClosed = gone
		}
	}
	g.setSparesLocked()
	if g.replaceReasonLocked() != "" {
		g.wake()
	}
	g.endIfUnusedLocked()
}

// replaceSessionLocked replaces the session of the instance's lease, if it has
// one. If the browser has failed, it is launched again.
func (g *group) replaceSessionLocked(s *slot) {
	if l := s.lease; l != nil && g.service.forgetHibernatedLocked(l) && l.seat == nil {
		g.replacedLocked(s)
		return
	}
	if g.chrome == nil {
		g.forceReplace = g.state == Failed
		g.wake()
		return
	}
	l := s.lease
	if l == nil || l.seat == nil {
		return // the next lease gets a fresh session anyway
	}
	if gone := l.seat.Release(g.spareCountLocked()); gone != nil {
		l.previousClosed = gone
	}
	g.takeSeatLocked(l)
	g.replacedLocked(s)
}

// replacedLocked notes that the session of a lease was replaced.
func (g *group) replacedLocked(s *slot) {
	s.notifyHolderLocked("is replaced by bpool restart; its pages are lost")
	g.restartedLocked(s)
}

// useSession returns the session of a lease for one request or WebSocket; call
// done when that ends. It waits for a browser, and until all pages of the
// instance's previous lease are closed.
func (v *Service) useSession(ctx context.Context, id string) (s *virtual.Session, done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTimeout,
		control.Errorf(control.TryAgain, "lease %s got no session within %v", id, sessionTimeout))
	defer cancel()
	l, err := v.beginRequest(id)
	if err != nil {
		return nil, nil, err
	}
	s, used, err := v.waitForSession(ctx, l)
	if err != nil {
		v.endRequest(l)
		return nil, nil, err
	}
	restored := v.wake(l, s)
	err = v.claimDownloads(l, s)
	switch {
	case err != nil:
	case restored:
		l.login.keep(s)
	default:
		err = l.login.apply(s)
	}
	if err != nil {
		used()
		v.endRequest(l)
		return nil, nil, err
	}
	v.mu.Lock()
	if v.leases[l.id] == l {
		v.keepLocked(l, s, nil)
	}
	v.mu.Unlock()
	return s, func() { used(); v.endRequest(l) }, nil
}

func (v *Service) waitForSession(ctx context.Context, l *lease) (*virtual.Session, func(), error) {
	for {
		seat, wait, err := v.currentSeat(l)
		if err != nil {
			return nil, nil, err
		}
		if seat == nil {
			if err := v.waitForChange(ctx, l.slot.group, wait); err != nil {
				return nil, nil, err
			}
			continue
		}
		s, done, err := useSeat(ctx, seat, wait)
		if errors.Is(err, share.ErrGone) || errors.Is(err, share.ErrReleased) {
			continue // currentSeat returns the reason
		}
		return s, done, err
	}
}

// useSeat waits until the previous lease's pages are closed and the session is
// ready.
func useSeat(ctx context.Context, seat *share.Seat, before <-chan struct{}) (*virtual.Session, func(), error) {
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	return seat.Use(ctx)
}

// beginRequest counts a request of the lease's holder.
func (v *Service) beginRequest(id string) (*lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	switch {
	case l == nil || l.slot.group == nil:
		return nil, errLeaseEnded(id)
	case l.requests >= maxRequests:
		return nil, control.Errorf(control.TryAgain, "lease %s already has %d open requests and WebSockets", id,
			maxRequests)
	}
	l.requests++
	l.rest.visits++
	return l, nil
}

func (v *Service) endRequest(l *lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.requests--
	v.restLocked(l)
}

func errLeaseEnded(id string) error {
	return control.Errorf(control.LeaseEnded, "the lease %s has ended", printable(id))
}

// currentSeat returns the lease's seat on a running browser, with a channel
// that is closed when the previous lease's pages are. If there is no browser,
// the seat is nil, and the channel is closed when the state of the group
// changes.
func (v *Service) currentSeat(l *lease) (*share.Seat, <-chan struct{}, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := l.slot.group
	if v.leases[l.id] != l {
		return nil, nil, errLeaseEnded(l.id)
	}
	if l.seat.IsLive() {
		return l.seat, l.previousClosed, nil
	}
	if g.chrome.IsLive() {
		g.takeSeatLocked(l)
		return l.seat, l.previousClosed, nil
	}
	if now := time.Now(); g.state == Failed && g.demandRetryAt.Sub(now) > minRetryDelay {
		words := "it will not be replaced (RESTART=never)"
		if g.retryAt != never {
			words = NextTry(g.demandRetryAt, now)
		}
		return nil, nil, control.Errorf(control.Unavailable, "the browser of %s/%s is gone: %s, %s", l.slot.poolName,
			l.slot.set.ID, briefReason(g.check.err), words)
	}
	g.needed = true
	return nil, g.changed.Next(), nil
}

// waitForChange waits until the state of the group changes.
func (v *Service) waitForChange(ctx context.Context, g *group, changed <-chan struct{}) error {
	count := func(n int) {
		v.mu.Lock()
		defer v.mu.Unlock()
		g.waiting += n
	}
	count(1)
	defer count(-1)
	g.wake()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// httpStatus returns the HTTP status for an error of a session.
func httpStatus(err error) int {
	switch control.ErrorOf(err).Code {
	case control.LeaseEnded:
		return http.StatusGone
	case control.TryAgain, control.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}
