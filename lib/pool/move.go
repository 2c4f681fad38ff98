package pool

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"btools/lib/control"
	"btools/lib/fleet"
)

// A drained pool may have its leases move to other hosts. Their gateway moves them: it has a lease frozen here, begins
// it at another host with what was saved, and then ends it here. Nothing here knows the other host.

const (
	// FreezeTime is the time until a frozen lease thaws by itself.
	FreezeTime = time.Minute
	// unusedTime is how long the session of a lease has no connection before it moves.
	unusedTime = 5 * time.Second
	// stayTime is how long a lease is not moved again that could not be.
	stayTime = 2 * time.Second
)

// moving is what a lease has of its move to another host.
type moving struct {
	gateway bool        // one holds the lease: it can move it
	stays   string      // why the lease could not be moved last; "": it was not tried
	until   time.Time   // end of the time in which it is not moved again
	thaw    *time.Timer // that ends the freeze; nil: it is not frozen
}

// Freeze hibernates the session of a lease, and lets nobody use it for FreezeTime, so that its gateway can move it. It
// is an error if somebody uses the session, unless the time has come when its clients are disconnected.
func (v *Service) Freeze(ctx context.Context, id string) (err error) {
	v.mu.Lock()
	l := v.leases[id]
	if l == nil {
		v.mu.Unlock()
		return ErrNoLease(id)
	}
	l.gateway = true
	late := l.slot.pool.currentLocked().isLateLocked()
	v.mu.Unlock()
	if l.entry == nil {
		return control.Errorf(control.BadRequest, "%s", whyBound)
	}
	err = l.entry.Freeze(ctx, unusedTime, late)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil && ctx.Err() != nil { // nobody knows of it
		l.entry.Thaw()
		err = context.Cause(ctx)
	}
	if err != nil {
		l.stayLocked(control.ErrorOf(err).Message)
		return err
	}
	if l.thaw != nil {
		l.thaw.Stop()
	}
	l.thaw = time.AfterFunc(FreezeTime, func() { v.Thaw(id, "its gateway has not moved it in time") })
	return nil
}

// Thaw lets the lease be used again that was frozen. Why says why it could not be moved.
func (v *Service) Thaw(id, why string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	switch {
	case l == nil:
		return ErrNoLease(id)
	case l.thaw != nil:
		l.thaw.Stop()
		l.thaw = nil
		l.entry.Thaw()
	}
	l.stayLocked(printable(why))
	return nil
}

// Moved ends a lease that goes on at another host. It reports whether the lease existed.
func (v *Service) Moved(id string) bool {
	l := v.lease(id)
	return l != nil && l.end("released", hasMoved, false)
}

const hasMoved = "it has moved to another host"

// stayLocked notes why a lease could not be moved.
func (l *lease) stayLocked(why string) { l.stays, l.until = why, time.Now().Add(stayTime) }

// receive returns the saved session with which a lease begins that was moved here; nil: it has none.
func (p *pool) receive(ctx context.Context, r Request) (*fleet.Kept, error) {
	if r.Session == nil {
		return nil, nil
	}
	p.service.mu.Lock()
	bound := slices.ContainsFunc(p.slots, func(s *slot) bool { return !s.shares() })
	p.service.mu.Unlock()
	switch {
	case r.Offer == "":
		return nil, control.Errorf(control.BadRequest, "a session is for a lease of an offer")
	case bound || p.service.Dir == nil:
		return nil, control.Errorf(control.BadRequest, "cannot lease an instance of pool %s with a session: %s",
			p.cfg.Name, whyBound)
	}
	dir, err := p.service.Dir.Make(ctx)
	if err != nil {
		return nil, err
	}
	return fleet.Receive(dir, r.Session)
}

const whyBound = "it has a browser to itself"

// Drain stops granting leases of a pool, or of all pools; with on false it resumes. Existing leases go on. It returns
// the number of instances.
func (v *Service) Drain(pool string, on bool) (int, error) { return v.drain(pool, on, false, 0) }

// Move is Drain, and has the leases move to other hosts: those that are in use after a time, too, unless it is zero.
func (v *Service) Move(pool string, within time.Duration) (int, error) {
	return v.drain(pool, true, true, within)
}

func (v *Service) drain(pool string, on, moves bool, within time.Duration) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pools, err := v.pools.these(pool)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range pools {
		p.drains = drains{drained: on, moves: moves}
		if within > 0 {
			p.late = time.Now().Add(within)
		}
		for _, s := range p.slots {
			n++
			s.syncQueueLocked()
			if s.lease != nil {
				s.lease.until = time.Time{}
			}
			if on {
				v.events.ofInstance("drained", s, "")
			}
		}
		p.yieldLocked()
	}
	v.drains.Wake()
	return n, nil
}

// isLateLocked reports whether leases of the pool move that are in use.
func (p *pool) isLateLocked() bool { return p.moves && !p.late.IsZero() && !time.Now().Before(p.late) }

// DrainingMove is the value of Draining if leases move.
const DrainingMove = "move"

// Draining returns whether all pools are drained: no, yes, or DrainingMove if their leases move, too.
func (v *Service) Draining() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	state := DrainingMove
	if len(v.pools) == 0 {
		state = "yes"
	}
	for _, p := range v.pools {
		switch {
		case !p.drained && !v.closing:
			return "no"
		case !p.moves:
			state = "yes"
		}
	}
	return state
}

// isMovableLocked reports whether the lease should be moved now.
func (l *lease) isMovableLocked() bool {
	p := l.slot.pool.currentLocked()
	return p.moves && l.gateway && l.entry != nil && l.thaw == nil && !time.Now().Before(l.until) &&
		(p.isLateLocked() || l.entry.CanFreeze(unusedTime))
}

// whyStaysLocked returns why the lease has not been moved yet; "": its pool is not drained so.
func (l *lease) whyStaysLocked() string {
	switch {
	case !l.slot.pool.currentLocked().moves:
		return ""
	case l.slot.set.Extension:
		return "a person's browser cannot be moved"
	case l.entry == nil:
		return whyBound
	case !l.gateway:
		return "its client uses it without a gateway"
	case l.thaw != nil:
		return "it is being moved"
	case l.stays != "":
		return l.stays
	case !l.entry.CanFreeze(unusedTime):
		return "it is in use"
	}
	return "its gateway has not moved it yet"
}

// serveFrozen writes what is saved of the frozen session of the lease; no content: nothing has used it yet.
func (l *lease) serveFrozen(w http.ResponseWriter) error {
	saved, err := l.entry.Frozen()
	switch {
	case err != nil:
		return err
	case saved == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(saved)))
		w.Write(saved)
	}
	return nil
}
