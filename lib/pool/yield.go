package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"btools/lib/fleet"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A holder that keeps an instance between its uses says when it does not use it: the
// lease rests then. After a while another request may have the instance. A session of
// a shared browser is saved before, and the next lease of its holder has it again.

// yielded is the event of such an end.
const yielded = "yielded"

// yieldRetry is when a session that is busy, such as with a download, is tried again.
const yieldRetry = 5 * time.Second

// resting is what a lease needs for that. The service's lock protects it.
type resting struct {
	since   time.Time          // when its holder has used it last; zero: it uses it
	due     time.Time          // when another request may have the instance; zero: its holder uses it
	timer   wait.Timer         // when it is due
	callOff context.CancelFunc // calls its end off, which has begun; nil: it has not
}

// Rest notes that the holder of a lease does not use it until it renews it.
func (v *Service) Rest(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		return ErrNoLease(id)
	}
	l.resting.since = time.Now()
	v.letRestLocked(l, l.slot.pool.cfg.AffinityIdle)
	v.callOffLocked(l)
	return nil
}

// letRestLocked sets when another request may have the instance of a lease.
func (v *Service) letRestLocked(l *lease, idle time.Duration) {
	r := &l.resting
	r.due = time.Now().Add(idle)
	r.timer.Start(idle, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !l.slot.retired {
			v.yieldLocked(l.slot.pool)
		}
	})
}

// callOffLocked lets a lease go on whose end has begun; another one may have to end.
func (v *Service) callOffLocked(l *lease) {
	if r := &l.resting; r.callOff != nil {
		r.callOff()
		r.callOff = nil
		v.yieldLocked(l.slot.pool)
	}
}

// yieldLocked has as many leases of a pool end that rest, the longest first, as
// requests wait for their instances.
func (v *Service) yieldLocked(p *pool) {
	if p.queue.Waiting() == 0 || p.drained || v.ctx.Err() != nil {
		return
	}
	now := time.Now()
	coming := p.comingLocked(nil)
	var due []*lease
	for _, s := range p.slots {
		if l := s.lease; l != nil && !l.resting.due.IsZero() && !l.resting.due.After(now) &&
			s.canComeLocked() && !s.isComingLocked() {
			due = append(due, l)
		}
	}
	slices.SortStableFunc(due, func(a, b *lease) int { return a.resting.due.Compare(b.resting.due) })
	for _, l := range due {
		if !p.queue.Wants(l.slot.number, coming) {
			continue
		}
		coming = append(coming, l.slot.number)
		ctx, cancel := context.WithCancel(l.ctx)
		l.resting.callOff = cancel
		v.running.Go(func() {
			defer cancel()
			v.yield(ctx, l)
		})
	}
}

// comingLocked returns the instances, other than one, that requests that wait get soon.
func (p *pool) comingLocked(other *slot) (coming []int) {
	for _, s := range p.slots {
		if s != other && s.isComingLocked() {
			coming = append(coming, s.number)
		}
	}
	return coming
}

// isComingLocked reports whether a request gets the instance soon: it is not leased, or
// its lease is ending.
func (s *slot) isComingLocked() bool {
	l := s.lease
	return s.canComeLocked() && (l == nil || s.service.leases[l.id] != l || l.resting.callOff != nil)
}

// canComeLocked reports whether a request gets the instance when it is not leased.
func (s *slot) canComeLocked() bool { return !s.retired && (s.state == Healthy || s.state == Starting) }

// yield ends a lease that rests, for a request that waits, unless that is called off.
func (v *Service) yield(ctx context.Context, l *lease) {
	var err error
	if l.entry != nil && l.keepFor != "" {
		err = l.entry.Save(ctx)
	}
	v.mu.Lock()
	s, ends := l.slot, false
	if ctx.Err() == nil { // else its holder uses it again, or it has ended
		l.resting.callOff = nil
		ends = !s.retired && s.pool.queue.Wants(s.number, s.pool.comingLocked(s))
	}
	switch {
	case !ends:
	case errors.Is(err, virtual.ErrBusy):
		ends = false
		v.letRestLocked(l, yieldRetry)
		v.yieldLocked(s.pool)
	default:
		v.beginEndLocked(l, yielded, "", err == nil)
	}
	v.mu.Unlock()
	if !ends {
		return
	}
	if err != nil {
		v.Log.Warn("cannot keep the session of a lease that another request gets", "lease", l.id, "error", err)
	}
	v.finishEnd(l, false)
}

// kept is a session that is saved for the next lease of its holder.
type kept struct {
	*fleet.Kept
	pool, holder string
	state        string // with which it started; "": none
	instance     int
	expiry       *time.Timer
}

// keepForNextLocked keeps what is saved of a lease for the next one of its holder, for at
// most the time to live of leases. Its downloads go with it.
func (v *Service) keepForNextLocked(l *lease, of *fleet.Kept) {
	k := &kept{Kept: of, pool: l.slot.poolName, holder: l.keepFor, state: l.login.stateName(),
		instance: l.slot.number}
	k.expiry = time.AfterFunc(l.slot.pool.cfg.LeaseTTL, func() {
		v.mu.Lock()
		at := slices.Index(v.kept, k)
		if at >= 0 {
			v.kept = slices.Delete(v.kept, at, at+1)
		}
		v.mu.Unlock()
		if at >= 0 {
			k.Remove()
		}
	})
	v.kept = append(v.kept, k)
}

// takeKeptLocked returns the session that is kept for a lease, if it started with the
// lease's state: that of the same instance, or, unless this one was asked for, of
// another one; nil if there is none. Holders without a name never get a session back.
func (v *Service) takeKeptLocked(l *lease, asked bool) *fleet.Kept {
	at := -1
	for i, k := range v.kept {
		same := k.instance == l.slot.number
		if k.pool == l.slot.poolName && k.holder == l.keepFor && k.state == l.login.stateName() &&
			(same || !asked && at < 0) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	k := v.kept[at]
	k.expiry.Stop()
	v.kept = slices.Delete(v.kept, at, at+1)
	return k.Kept
}
