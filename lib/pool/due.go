package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"btools/lib/fleet"
	"btools/lib/proc"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A lease ends by itself when its time is over. A holder that keeps an instance between
// its uses says when it does not use it: the lease rests then, and after a while another
// request may have the instance. A session of a shared browser is saved before, and the
// next lease of its holder has it again.

// clock is a clock that runs while the machine sleeps, which timers do not, and a timer by it. The service's lock
// guards it.
type clock struct {
	due    func()               // function of the timer
	asleep func() time.Duration // time that the machine has slept since the start
	slept  time.Duration        // the same, at the latest tick
	timer  wait.Timer
	next   time.Time // time of the timer; zero: it does not run
}

const (
	// sleepCheckInterval is the longest time between two ticks of a clock that is in use.
	sleepCheckInterval = 10 * time.Second
	// heldLook is how long a lease that would have expired goes on under a person until it is looked at again.
	heldLook = 5 * time.Second
	// yieldRetry is the time until a session that is busy, such as with a download, is tried again.
	yieldRetry = 5 * time.Second
)

// newClock returns a clock that calls a function when something is due.
func newClock(due func()) clock {
	began, booted := time.Now(), proc.Uptime()
	return clock{due: due,
		asleep: func() time.Duration { return proc.Uptime() - booted - time.Since(began) }}
}

func (c *clock) now() time.Time { return time.Now().Add(c.slept) }

// tick returns the time after it has looked how long the machine has slept. The timer is to be scheduled anew.
func (c *clock) tick() time.Time {
	if slept := c.asleep(); slept > c.slept+time.Second {
		c.slept = slept
	}
	c.next = time.Time{}
	return c.now()
}

// schedule has the function called at a time, unless the time is zero.
func (c *clock) schedule(at time.Time) {
	if at.IsZero() {
		return
	}
	now := c.now()
	if late := now.Add(sleepCheckInterval); at.After(late) {
		at = late
	}
	if c.next.IsZero() || at.Before(c.next) {
		c.next = at
		c.timer.Start(at.Sub(now), c.due)
	}
}

// until returns when a lease with this time to live expires; the zero time: never.
func (c *clock) until(ttl time.Duration) time.Time {
	if ttl >= NoExpiry {
		return time.Time{}
	}
	until := c.now().Add(ttl)
	c.schedule(until)
	return until
}

// due ends the leases whose time is over, unless a person has control of their sessions, and resting leases
// for whose instances requests wait.
func (v *Service) due() {
	var ended []*lease
	v.mu.Lock()
	if v.ctx.Err() != nil {
		v.mu.Unlock()
		return
	}
	now := v.clock.tick()
	for _, p := range slices.Concat(v.pools, v.removed) {
		expired, again := p.leases.Due(now)
		v.clock.schedule(again)
		for _, held := range expired {
			l := held.Of
			if l.entry != nil && l.entry.IsTaken() {
				p.leases.Prolong(held, now.Add(heldLook))
				v.clock.schedule(now.Add(heldLook))
				continue
			}
			l.beginEndLocked("expired", "", false)
			ended = append(ended, l)
		}
		p.yieldLocked()
	}
	v.removed = slices.DeleteFunc(v.removed, func(p *pool) bool { return p.leases.IsEmpty() })
	v.mu.Unlock()
	for _, l := range ended {
		l.finishEnd(false)
	}
}

// Yielded is the event of a lease that ends for another request.
const Yielded = "yielded"

// Rest notes that the holder of a lease does not use it until it renews it.
func (v *Service) Rest(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		return ErrNoLease(id)
	}
	p, now := l.slot.pool, v.clock.now()
	l.callOffLocked(p.leases.Rest(l.held, now, p.cfg.AffinityIdle))
	v.clock.schedule(now.Add(p.cfg.AffinityIdle))
	return nil
}

// callOffLocked lets the lease go on if its end for a request has begun; another one may have to end.
func (l *lease) callOffLocked(has bool) {
	if has {
		l.callOff()
		l.slot.pool.yieldLocked()
	}
}

// yieldLocked begins the end of resting leases of the pool for whose instances requests wait.
func (p *pool) yieldLocked() {
	v := p.service
	if p.drained || v.ctx.Err() != nil {
		return
	}
	for _, held := range p.leases.Cede(v.clock.now(), len(p.slots), p.comesLocked) {
		l := held.Of
		ctx, cancel := context.WithCancel(l.ctx)
		l.callOff = cancel
		v.running.Go(func() {
			defer cancel()
			l.yield(ctx)
		})
	}
}

// comesLocked reports whether a request gets an instance when it is not leased.
func (p *pool) comesLocked(number int) bool {
	state := p.slots[number].state
	return state == Healthy || state == Starting
}

// yield ends a resting lease for a request that waits, unless that is called off.
func (l *lease) yield(ctx context.Context) {
	v := l.slot.service
	var err error
	if l.entry != nil && l.keepFor != "" {
		err = l.entry.Save(ctx, false)
	}
	v.mu.Lock()
	p, ends := l.slot.pool, false
	switch {
	case ctx.Err() != nil: // its holder uses it again, or it has ended
	case errors.Is(err, virtual.ErrBusy):
		again := v.clock.now().Add(yieldRetry)
		p.leases.Postpone(l.held, again)
		v.clock.schedule(again)
		p.yieldLocked()
	case p.leases.IsWanted(l.held, len(p.slots), p.comesLocked):
		l.beginEndLocked(Yielded, "", err == nil)
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
	l.finishEnd(false)
}

// shelf holds the saved sessions of holders whose leases have ended, the oldest first.
type shelf []*kept

// kept is a session that is saved for the next lease of its holder.
type kept struct {
	*fleet.Kept
	pool, holder string
	state        string // name of the state with which it started; "": none
	instance     int
	expiry       *time.Timer
}

// keepForNextLocked keeps a saved session of the lease for the next one of its holder, for at
// most the time to live of leases. Its downloads go with it.
func (l *lease) keepForNextLocked(of *fleet.Kept) {
	v := l.slot.service
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

// take returns the session that is kept for a lease, if it started with the
// lease's state: that of the same instance, or, unless this one was asked for, of
// another one; nil if there is none. Holders without a name never get a session back.
func (h *shelf) take(l *lease, asked bool) *fleet.Kept {
	at := -1
	for i, k := range *h {
		same := k.instance == l.slot.number
		if k.pool == l.slot.poolName && k.holder == l.keepFor && k.state == l.login.stateName() &&
			(same || !asked && at < 0) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	k := (*h)[at]
	k.expiry.Stop()
	*h = slices.Delete(*h, at, at+1)
	return k.Kept
}
