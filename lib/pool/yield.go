package pool

import (
	"errors"
	"time"

	"btools/lib/pool/share"
	"btools/lib/virtual"
)

// A holder that keeps an instance between its uses says when it does not use it: the
// lease rests then. After a while another request may have the instance. A session of
// a shared browser is saved before, and the next lease of its holder has it again.

// yielded is the event of such an end.
const yielded = "yielded"

// keptKey is whose session is kept.
type keptKey struct{ pool, holder string }

// yieldRetry is when a session that is busy, such as with a download, is tried again.
const yieldRetry = 5 * time.Second

// Rest notes that the holder of a lease does not use it until it renews it.
func (v *Service) Rest(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		return errNoLease(id)
	}
	l.rested = time.Now()
	if p, err := v.find(l.slot.poolName); err == nil {
		v.yieldLaterLocked(p, l.slot)
	}
	return nil
}

// yieldLaterLocked has the lease of an instance end in time, if it rests and a request
// waits for the instance.
func (v *Service) yieldLaterLocked(p *pool, s *slot) {
	if l := s.lease; l != nil && v.canYieldLocked(l, l.rested) {
		rested := l.rested
		time.AfterFunc(time.Until(rested.Add(p.cfg.AffinityIdle)), func() { v.yield(l, rested) })
	}
}

// canYieldLocked reports whether a lease has rested since a time, and a request waits
// for its instance.
func (v *Service) canYieldLocked(l *lease, rested time.Time) bool {
	p, err := v.find(l.slot.poolName)
	return err == nil && v.ctx.Err() == nil && v.leases[l.id] == l && !l.ending && !rested.IsZero() &&
		l.rested.Equal(rested) && !l.slot.retired && p.queue.Wants(l.slot.number)
}

// yield ends a lease that has rested since a time, for a request that waits.
func (v *Service) yield(l *lease, rested time.Time) {
	v.mu.Lock()
	can := v.canYieldLocked(l, rested)
	var session *virtual.Session
	if l.seat != nil && l.rest.hibernated == nil {
		session = l.seat.Session()
	}
	v.mu.Unlock()
	if !can {
		return
	}
	var saved *virtual.Saved
	if session != nil && v.Dir != nil {
		var err error
		saved, err = v.saveSession(l.ctx, session)
		switch {
		case errors.Is(err, virtual.ErrBusy):
			time.AfterFunc(yieldRetry, func() { v.yield(l, rested) })
			return
		case err != nil:
			v.Log.Warn("cannot keep the session of a lease that another request gets", "lease", l.id, "error", err)
		}
	}
	v.mu.Lock()
	if !v.canYieldLocked(l, rested) {
		v.mu.Unlock()
		saved.Remove()
		return
	}
	if h := l.rest.hibernated; h != nil && session == nil {
		saved, l.rest.hibernated = h.Saved, nil
		if h.Files != nil {
			v.running.Go(func() { h.Files.Close() })
		}
	}
	if saved != nil {
		v.keepLocked(l, &share.Hibernated{Saved: saved, StateName: l.login.stateName()})
	}
	l.ending = true
	v.mu.Unlock()
	v.end(l.id, yielded, false)
}

// keepLocked keeps the session of a holder for its next lease, for at most the time
// to live of leases. A holder without a name has none that is known to be its next.
func (v *Service) keepLocked(l *lease, h *share.Hibernated) {
	key := keptKey{l.slot.poolName, l.keepFor}
	if key.holder == "" {
		h.Saved.Remove()
		return
	}
	if v.kept == nil {
		v.kept = map[keptKey]*share.Hibernated{}
	}
	if old := v.kept[key]; old != nil {
		old.Saved.Remove()
	}
	v.kept[key] = h
	ttl := time.Hour
	if p, err := v.find(key.pool); err == nil {
		ttl = p.cfg.LeaseTTL
	}
	time.AfterFunc(ttl, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.kept[key] == h {
			delete(v.kept, key)
			h.Saved.Remove()
		}
	})
}

// takeKeptLocked returns the session that is kept of a holder; nil: there is none.
func (v *Service) takeKeptLocked(pool, holder string) *share.Hibernated {
	key := keptKey{pool, holder}
	h := v.kept[key]
	delete(v.kept, key)
	return h
}
