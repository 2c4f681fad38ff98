package pool

import (
	"context"
	"errors"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/fleet/book"
	"btools/lib/pool/share"
	"btools/lib/virtual"
)

// seating is what the lease of a shared browser has of it. Its entry in the book of
// the group stays as its sessions come and go, in whichever browser there is.
type seating struct {
	entry *fleet.Entry // nil: the lease has a browser to itself
	seat  *share.Seat  // nil: none yet
}

// maxRequests limits the open requests and WebSockets of a lease.
const maxRequests = 512

// sessionTimeout is how long a request may wait for its session.
const sessionTimeout = 30 * time.Second

// newFleet returns the fleet of the leases of a group.
func (g *group) newFleet() *fleet.Fleet {
	f := &fleet.Fleet{Log: g.log, Noun: "lease", Policy: book.Policy{MaxUsers: maxRequests}, Open: g.openSession}
	if dir := g.service.Dir; dir != nil {
		f.MakeDir, f.Saves, f.Downloads, f.Hibernate = dir.Make, true, !g.set.WSLWindows, g.set.Hibernate
	}
	return f
}

// startLeaseLocked takes a seat for a new lease. Its session is opened when it is used,
// from what was kept for it, unless that is nil.
func (g *group) startLeaseLocked(l *lease, from *fleet.Kept) {
	g.leases++
	g.leased++
	l.entry = g.fleet.Hold(l.id, fleet.Wanted{Settings: g.set, Tell: l.tell}, from, l.slot.lastPagesClosed)
	g.takeSeatLocked(l, from == nil)
	if g.replaceReasonLocked() != (grounds{}) {
		g.wake()
	}
}

// takeSeatLocked takes a seat on the current browser. If there is none, the
// lease gets one when the next browser is activated. With ahead, a session is made
// before the lease is used.
func (g *group) takeSeatLocked(l *lease, ahead bool) {
	if g.chrome == nil {
		g.needed = true
		g.wake()
		return
	}
	l.seat = g.chrome.TakeSeat(ahead, g.spareCountLocked())
	g.uses++
}

// endSessionLocked ends the session of a lease. With keeps, what is saved is kept for the
// next one of its holder, and so is what was kept for this one, which has not used it.
func (l *lease) endSessionLocked(keeps bool) {
	i, _ := l.entry.Info()
	keeps = keeps || l.kept && i.Hibernated && i.RestoredAt == nil
	kept, over := l.entry.Release(keeps && l.keepFor != "")
	if kept != nil {
		l.slot.service.keepForNextLocked(l, kept)
	}
	l.slot.lastPagesClosed = over
}

// endLeaseLocked releases the seat of a lease that has ended.
func (g *group) endLeaseLocked(l *lease) {
	g.leases--
	if !l.slot.retired {
		g.leased--
	}
	if l.seat != nil {
		l.seat.Release(g.spareCountLocked())
	}
	g.setSparesLocked()
	if g.replaceReasonLocked() != (grounds{}) {
		g.wake()
	}
	g.endIfUnusedLocked()
}

// replaceSessionLocked replaces the session of the instance's lease, if it has
// one. If the browser has failed, it is launched again.
func (g *group) replaceSessionLocked(s *slot) {
	l := s.lease
	hibernated := l != nil && l.entry.Replace()
	switch {
	case hibernated:
	case g.chrome == nil:
		g.forceReplace = g.state == Failed
		g.wake()
		return
	case l == nil || l.seat == nil:
		return // the next lease gets a fresh session anyway
	default:
		l.seat.Release(g.spareCountLocked())
		g.takeSeatLocked(l, true)
	}
	s.notifyHolderLocked("is replaced by bpool restart; its pages are lost")
	g.restartedLocked(asked, s)
}

// useSession returns the session of a lease for one request or WebSocket; call
// done when that ends. It waits for a browser, and until all pages of the
// instance's previous lease are closed.
func (v *Service) useSession(ctx context.Context, id string) (*virtual.Session, func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTimeout,
		control.Errorf(control.TryAgain, "lease %s got no session within %v", id, sessionTimeout))
	defer cancel()
	v.mu.Lock()
	l := v.leases[id]
	v.mu.Unlock()
	if l == nil || l.entry == nil {
		return nil, nil, errLeaseEnded(id)
	}
	used, err := l.entry.Use(ctx)
	switch {
	case errors.Is(err, fleet.ErrEnded):
		return nil, nil, errLeaseEnded(id)
	case errors.Is(err, book.ErrUsers):
		return nil, nil, control.Errorf(control.TryAgain, "lease %s already has %d open requests and WebSockets", id,
			maxRequests)
	case err != nil:
		return nil, nil, err
	}
	s := used.(*share.Session)
	done := s.Use()
	return s.Session, func() { done(); l.entry.Leave() }, nil
}

// openSession opens the session of a lease on a browser, for which it waits.
func (g *group) openSession(ctx context.Context, e *fleet.Entry, from *virtual.Saved) (fleet.Session, error) {
	v := g.service
	v.mu.Lock()
	l := v.leases[e.Name]
	v.mu.Unlock()
	if l == nil {
		return nil, errLeaseEnded(e.Name)
	}
	for {
		seat, err := v.waitForSeat(ctx, l, from != nil)
		if err != nil {
			return nil, err
		}
		s, err := seat.Open(ctx, from, e.Files(), l.login.stateName())
		switch {
		case err == nil:
			return s, l.begin(e, s.Session, from != nil)
		case !errors.Is(err, share.ErrGone):
			return nil, err
		} // else waitForSeat returns the reason, or a seat on another browser
	}
}

// begin makes a session the lease's: so are its downloads, and it starts with the
// lease's state.
func (l *lease) begin(e *fleet.Entry, s *virtual.Session, restored bool) error {
	v, files := l.slot.service, s.Downloads()
	if !restored {
		if old := e.SetFiles(files); old != nil {
			old.Close() // what cannot be deleted goes with the program
		}
	}
	v.mu.Lock()
	ended := v.leases[l.id] != l
	v.mu.Unlock()
	if ended {
		return errLeaseEnded(l.id) // its downloads may be another one's by now
	}
	if files != nil {
		if err := e.ClaimFiles(); err != nil {
			return err
		}
	}
	if restored {
		return nil
	}
	return l.login.apply(s)
}

// tell records what has become of the lease's session. It takes no lock but that of the
// events.
func (l *lease) tell(e fleet.Event) {
	if e.Event == "created" || e.Event == "ended" {
		return // the lease's own events say it
	}
	of := l.event()
	of.Event, of.Why, of.Download = e.Event, e.Why, e.Download
	l.slot.service.addEvent(of)
}

// loseLocked hibernates a lease whose browser has ended, or is about to, as it was saved
// last, and reports whether anything was. Its holder gets a notice that begins with what.
func (l *lease) loseLocked(what string) bool {
	kept := l.entry.Lose("the browser " + what)
	if kept {
		l.slot.notifyHolderLocked("%s; the next connection gets its pages back", what)
	}
	return kept
}

// isHibernated reports whether the session of a lease is saved and no browser has it.
func (l *lease) isHibernated() bool {
	i, _ := l.entry.Info()
	return i.Hibernated
}

// addSession adds what the status of an instance says of the session of its lease.
func (l *lease) addSession(st *api.InstanceStatus) {
	i, ok := l.entry.Info()
	st.Hibernation, st.Control = i.Hibernation, i.Control
	if ok {
		st.Tabs = &i.TabCount
	}
	if !i.Hibernated {
		st.KeptAt, st.Proxy, st.Limits = i.KeptAt, i.Proxy, i.Limits
	}
	if st.Login = i.State; i.State == nil && l.login != nil {
		st.Login = &api.StateStatus{Name: l.login.name}
	}
}

func errLeaseEnded(id string) error {
	return control.Errorf(control.LeaseEnded, "the lease %s has ended", printable(id))
}

// waitForSeat waits until a lease has a seat on a running browser.
func (v *Service) waitForSeat(ctx context.Context, l *lease, restores bool) (*share.Seat, error) {
	g := l.slot.group
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		if v.leases[l.id] != l {
			return nil, errLeaseEnded(l.id)
		}
		if l.seat.IsLive() {
			return l.seat, nil
		}
		if g.chrome.IsLive() {
			again := !restores && l.seat.On(g.chrome) // a client has closed the session before
			l.seat = g.chrome.TakeSeat(false, g.spareCountLocked())
			if !again {
				g.uses++
			}
			return l.seat, nil
		}
		if now := time.Now(); g.state == Failed && (g.definite || g.demandRetryAt.Sub(now) > minRetryDelay) {
			words := "it will not be replaced (RESTART=never)"
			if g.retryAt != never {
				words = NextTry(g.demandRetryAt, now)
			}
			return nil, control.Errorf(control.Unavailable, "the browser of %s/%s is gone: %s, %s", l.slot.poolName,
				l.slot.set.ID, briefReason(g.check.err), words)
		}
		g.needed = true
		g.waiting++
		changed := g.changed.Next()
		v.mu.Unlock()
		g.wake()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		v.mu.Lock()
		if g.waiting--; ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
