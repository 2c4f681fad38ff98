package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"btools/lib/fleet"
	"btools/lib/virtual"
)

// A holder that keeps an instance between its uses says when it does not use it: the
// lease rests then. After a while another request may have the instance. A session of
// a shared browser is saved before, and the next lease of its holder has it again.

// yielded is the event of such an end.
const yielded = "yielded"

// yieldRetry is when a session that is busy, such as with a download, is tried again.
const yieldRetry = 5 * time.Second

// Rest notes that the holder of a lease does not use it until it renews it.
func (v *Service) Rest(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		return ErrNoLease(id)
	}
	p := l.slot.pool
	now := v.nowLocked()
	v.callOffLocked(l, p.leases.Rest(l.held, now, p.cfg.AffinityIdle))
	v.scheduleLocked(now.Add(p.cfg.AffinityIdle))
	return nil
}

// callOffLocked lets a lease go on whose end for a request has begun, if it has; another one may have to end.
func (v *Service) callOffLocked(l *lease, has bool) {
	if has {
		l.callOff()
		v.yieldLocked(l.slot.pool)
	}
}

// yieldLocked has leases of a pool end that rest, for requests that wait for their instances.
func (v *Service) yieldLocked(p *pool) {
	if p.drained || v.ctx.Err() != nil {
		return
	}
	for _, held := range p.leases.Cede(v.nowLocked(), len(p.slots), p.comesLocked) {
		l := held.Of
		ctx, cancel := context.WithCancel(l.ctx)
		l.callOff = cancel
		v.running.Go(func() {
			defer cancel()
			v.yield(ctx, l)
		})
	}
}

// comesLocked reports whether a request gets an instance when it is not leased.
func (p *pool) comesLocked(number int) bool {
	state := p.slots[number].state
	return state == Healthy || state == Starting
}

// yield ends a lease that rests, for a request that waits, unless that is called off.
func (v *Service) yield(ctx context.Context, l *lease) {
	var err error
	if l.entry != nil && l.keepFor != "" {
		err = l.entry.Save(ctx)
	}
	v.mu.Lock()
	p, ends := l.slot.pool, false
	switch {
	case ctx.Err() != nil: // its holder uses it again, or it has ended
	case errors.Is(err, virtual.ErrBusy):
		again := v.nowLocked().Add(yieldRetry)
		p.leases.Postpone(l.held, again)
		v.scheduleLocked(again)
		v.yieldLocked(p)
	case p.leases.IsWanted(l.held, len(p.slots), p.comesLocked):
		v.beginEndLocked(l, yielded, "", err == nil)
		ends = true
	default:
		p.leases.GoOn(l.held)
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
