package pool

import (
	"slices"
	"time"

	"btools/lib/proc"
)

// sleepCheckInterval is how often what is due is looked for by a clock that runs while the machine sleeps. Timers do
// not.
const sleepCheckInterval = 10 * time.Second

// heldLook is how long a lease that would have expired goes on under a person until it is looked at again.
const heldLook = 5 * time.Second

// sleepSince returns what tells how long the machine has slept since now.
func sleepSince(now time.Time) func() time.Duration {
	booted := proc.Uptime()
	return func() time.Duration { return proc.Uptime() - booted - time.Since(now) }
}

// nowLocked returns the time by that clock.
func (v *Service) nowLocked() time.Time { return time.Now().Add(v.slept) }

// untilLocked returns when a lease with this time to live expires; the zero time: never.
func (v *Service) untilLocked(ttl time.Duration) time.Time {
	if ttl >= noExpiry {
		return time.Time{}
	}
	until := v.nowLocked().Add(ttl)
	v.scheduleLocked(until)
	return until
}

// scheduleLocked has what is due at a time be done then, unless the time is zero.
func (v *Service) scheduleLocked(at time.Time) {
	if at.IsZero() || v.ctx.Err() != nil {
		return
	}
	now := v.nowLocked()
	if late := now.Add(sleepCheckInterval); at.After(late) {
		at = late
	}
	if v.nextDue.IsZero() || at.Before(v.nextDue) {
		v.nextDue = at
		v.dueTimer.Start(at.Sub(now), v.due)
	}
}

// due ends the leases whose time is over, unless a person has control of their sessions, and those that rest and whose
// instances requests wait for.
func (v *Service) due() {
	var ended []*lease
	v.mu.Lock()
	if slept := v.asleep(); slept > v.slept+time.Second {
		v.slept = slept
	}
	now := v.nowLocked()
	v.nextDue = time.Time{}
	for _, p := range slices.Concat(v.pools, v.removed) {
		expired, again := p.leases.Due(now)
		v.scheduleLocked(again)
		for _, held := range expired {
			l := held.Of
			if l.entry != nil && l.entry.IsTaken() {
				p.leases.Prolong(held, now.Add(heldLook))
				v.scheduleLocked(now.Add(heldLook))
				continue
			}
			v.beginEndLocked(l, "expired", "", false)
			ended = append(ended, l)
		}
		v.yieldLocked(p)
	}
	v.removed = slices.DeleteFunc(v.removed, func(p *pool) bool { return p.leases.IsEmpty() })
	v.mu.Unlock()
	for _, l := range ended {
		v.finishEnd(l, false)
	}
}
