package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/logins"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/virtual"
)

// lease is one holder's right to one instance, until it ends.
type lease struct {
	id                 string
	slot               *slot
	holder             string
	by                 *control.Peer // owner, who requested it
	user               string        // the name of that user; "": who runs the service, or a token
	secret             string        // secret of its address on other machines; "": none
	waited             time.Duration
	keepFor            string
	ttl                time.Duration
	started            time.Time
	expires            time.Time
	held               *book.Lease[*lease]
	callOff            context.CancelFunc // calls its end for another request off, if that has begun
	disconnectPrevious bool               // clients of the previous lease may still be connected
	ctx                context.Context
	cancel             context.CancelFunc // ends ctx
	binding            Binding
	seating
	own   ownFiles
	login *login // state with which its sessions start; nil: none
	kept  bool   // whether it has begun with the session of an earlier one
	moving
	notices
}

// NoExpiry is the time to live of a lease that lasts as long as its holder.
const NoExpiry = 10 * 365 * 24 * time.Hour

// lease returns the lease with an ID, or nil.
func (v *Service) lease(id string) *lease {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.leases[id]
}

// leasesWhere returns the leases for which is returns true.
func (v *Service) leasesWhere(is func(*lease) bool) (found []*lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.leases {
		if is(l) {
			found = append(found, l)
		}
	}
	return found
}

// Leases returns the number of leases.
func (v *Service) Leases() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.leases)
}

// Has reports whether there is a lease.
func (v *Service) Has(lease string) bool { return v.lease(lease) != nil }

// grantLocked returns the lease of an instance that the queue hands out, bound to its holder.
func (p *pool) grantLocked(ctx context.Context, n int, r Request) *lease {
	v, s, now := p.service, p.currentLocked().slots[n], time.Now()
	l := &lease{id: newLeaseID(now), slot: s, holder: printable(r.Holder), keepFor: r.KeepConnectionsFor, ttl: r.TTL,
		by: r.By, user: r.user, waited: max(0, now.Sub(r.began)), login: r.login,
		started: now, expires: now.Add(r.TTL)}
	if r.By.Token != nil {
		l.secret = rand.Text()
	}
	l.held = p.leases.Hold(n, l, v.clock.until(r.TTL))
	s.lease, s.uid = l, l.by.UID
	l.disconnectPrevious = r.KeepConnectionsFor == "" || r.KeepConnectionsFor != s.keptFor
	v.leases[l.id] = l
	s.runs().held.add(l.id)
	if s.group != nil {
		from := r.kept
		if from == nil {
			from = v.kept.take(l, r.Instance != "")
		}
		l.kept = from != nil
		s.group.startLeaseLocked(l, from)
	} else {
		s.Uses++
	}
	l.ctx, l.cancel = context.WithCancel(v.ctx)
	l.binding = Binding{Bound: r.Held, Confirm: r.Confirm, Owner: r.Owner}
	l.binding.Bind(ctx, l.ctx, v.running.Go, func(why string) { l.end("released", why, false) })
	v.events.ofLease("leased", l, "", nil)
	return l
}

// grant completes a new lease.
func (l *lease) grant() *Grant {
	if l.disconnectPrevious && l.slot.proxy != nil {
		l.slot.proxy.CloseWebSockets()
	}
	l.slot.service.metrics.wait.WithLabelValues(l.slot.poolName).Observe(l.waited.Seconds())
	return &Grant{ID: l.id, Record: l.record(l.started.Add(l.ttl))}
}

// Confirm makes a lease outlive the connection that requested it.
func (v *Service) Confirm(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		return ErrNoLease(id)
	}
	return l.binding.Confirmed(id)
}

// Binding says with what of its holder a lease ends.
type Binding struct {
	Bound   bool           // with the connection that requests it
	Confirm bool           // the same, until it is confirmed
	Owner   *proc.Identity // with this process; nil: with none

	unbind func() bool // detaches the lease from its connection; nil unless it waits for Confirmed
}

// Bind calls end with the reason when the connection or the process ends, unless the lease has ended. Run runs what
// waits for the process.
func (b *Binding) Bind(connection, lease context.Context, run func(func()), end func(why string)) {
	if b.Bound || b.Confirm { // even if the connection ended just now
		unbind := context.AfterFunc(connection, func() { end("its holder has disconnected") })
		context.AfterFunc(lease, func() { unbind() }) // the connection may outlive the lease
		if !b.Bound {
			b.unbind = unbind
		}
	}
	if owner := b.Owner; owner != nil {
		run(func() {
			if owner.Wait(lease) == nil {
				end(fmt.Sprintf("process %d has ended", owner.PID))
			}
		})
	}
}

// Confirmed makes the lease with an ID outlive its connection.
func (b *Binding) Confirmed(id string) error {
	switch {
	case b.unbind == nil:
		return control.Errorf(control.BadRequest, "lease %s was requested without confirm, or is already confirmed", id)
	case !b.unbind(): // the lease is ending
		return ErrNoLease(id)
	}
	b.unbind = nil
	return nil
}

// ErrNoLease returns the error for a lease that there is not, or not for this user.
func ErrNoLease(id string) error {
	return control.Errorf(control.LeaseNotFound, "there is no lease %s; it may have ended", printable(id))
}

// record returns the record that the holder gets.
func (l *lease) record(expires time.Time) *record.Record {
	s := l.slot
	r := s.record(l.id)
	out := record.Lease{ID: l.id, Pool: s.poolName, Instance: s.set.ID, ExpiresAt: record.Time{Time: expires},
		By: l.by.String(), Kept: l.kept}
	if s.set.Alias != "" {
		out.Alias = &s.set.Alias
	}
	r.MustSet("lease", out)
	return r
}

// newLeaseID returns the ID of a lease: lease_, the time in milliseconds, and
// sixteen random characters, because whoever knows the ID can release the
// lease.
func newLeaseID(now time.Time) string {
	return fmt.Sprintf("lease_%d_%s", now.UnixMilli(), strings.ToLower(rand.Text()[:16]))
}

// Release ends a lease, closes its connections unless it keeps them, and gives
// the instance to the next request. It reports whether the lease existed; a
// lease that has already ended is not an error.
func (v *Service) Release(id string) bool {
	l := v.lease(id)
	return l != nil && l.end("released", "", true)
}

// end ends the lease and records the event, and why, which may be "". The connections can
// stay open only with mayKeep, when the holder itself ends the lease. It returns false if the lease had ended.
func (l *lease) end(event, why string, mayKeep bool) bool {
	v := l.slot.service
	v.mu.Lock()
	lasts := v.leases[l.id] != nil
	if lasts {
		l.beginEndLocked(event, why, false)
	}
	v.mu.Unlock()
	if lasts {
		l.finishEnd(mayKeep)
	}
	return lasts
}

// beginEndLocked takes the lease away from its holder. With keeps, its saved session
// is for the next lease of the holder. Its caller calls finishEnd.
func (l *lease) beginEndLocked(event, why string, keeps bool) {
	v := l.slot.service
	delete(v.leases, l.id)
	if l.entry != nil {
		l.endSessionLocked(keeps)
	}
	v.events.ofLease(event, l, why, nil)
	l.endedBy = cmp.Or(why, event)
	v.metrics.ended(l.slot.poolName, event, why)
	v.metrics.hold.WithLabelValues(l.slot.poolName).Observe(time.Since(l.started).Seconds())
	l.slot.pool.leases.Release(l.held)
	l.cancel()
	l.Ended, l.Yielded = EndReason(event, l.ttl), event == Yielded
	l.addLocked()
}

// finishEnd frees the instance of a lease whose end has begun.
func (l *lease) finishEnd(mayKeep bool) {
	s, v := l.slot, l.slot.service
	v.unlogged.ended(l, l.endedBy)
	keepFor := ""
	if mayKeep {
		keepFor = l.keepFor
	}
	if s.proxy != nil && keepFor == "" {
		s.proxy.CloseWebSockets()
	}
	defer l.endOwn(keepFor != "")()
	hasBrowser := s.hasBrowser()
	v.mu.Lock()
	defer v.mu.Unlock()
	s.lease, s.keptFor = nil, keepFor
	s.pool.leases.Free(l.held)
	s.runs().held.remove(l.id)
	if keepFor == "" {
		s.uid = 0
	}
	if s.group != nil {
		s.group.endLeaseLocked(l)
	}
	if s.retired {
		s.stop()
		return
	}
	defer s.pool.yieldLocked() // a request may have waited for this instance in vain
	if !hasBrowser {
		s.syncQueueLocked() // there is no browser to replace
		return
	}
	if s.Replace = s.GroundsLocked(); s.Replace != supply.None {
		s.Wake()
	}
	s.syncQueueLocked()
}

// ReleaseAll ends all leases that somebody may end, and returns their IDs.
func (v *Service) ReleaseAll(who *control.Peer) (ids []string) {
	mayEnd := func(l *lease) bool { return who.IsOperator() || l.by.String() == who.String() }
	for _, l := range v.leasesWhere(mayEnd) {
		if l.end("released", "", false) {
			ids = append(ids, l.id)
		}
	}
	return ids
}

// Renew extends a lease by its time to live, or by ttl if that is positive,
// from now. Its holder uses it again, if it had let it rest.
func (v *Service) Renew(id string, ttl time.Duration) (*record.Record, error) {
	v.mu.Lock()
	l := v.leases[id]
	if l == nil {
		v.mu.Unlock()
		return nil, ErrNoLease(id)
	}
	if ttl > 0 {
		l.ttl = ttl
	}
	expires := time.Now().Add(l.ttl)
	l.expires = expires
	l.callOffLocked(l.slot.pool.leases.Extend(l.held, v.clock.until(l.ttl)))
	v.mu.Unlock()
	return l.record(expires), nil
}

// LeaseState returns the state of a lease's session, and what could not be read.
func (v *Service) LeaseState(ctx context.Context, lease string) (*logins.State, []string, error) {
	l := v.lease(lease)
	switch {
	case l == nil:
		return nil, nil, ErrNoLease(lease)
	case l.entry == nil:
		return nil, nil, control.Errorf(control.BadRequest, "lease %s has a browser to itself: states are saved of "+
			"instances with isolation = \"context\"", lease)
	}
	s, done, err := l.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	state, lost, err := s.State(ctx)
	if err != nil {
		return nil, nil, control.Errorf(control.Failed, "cannot save the state of lease %s: %v", lease, err)
	}
	return state, lost, nil
}

// Attach has a person look at the browser of a lease, which that does not use.
func (v *Service) Attach(ctx context.Context, r api.AttachRequest) (any, error) {
	l := v.lease(r.Lease)
	if l == nil {
		return nil, ErrNoLease(r.Lease)
	}
	if l.entry == nil {
		if rec := l.slot.browser(); rec != nil {
			return virtual.WatchBrowser(l.ctx, rec, "pools with isolation = \"context\" have sessions, which can be")
		}
		return nil, control.Errorf(control.Unavailable, "the lease has no browser")
	}
	if r.Wake {
		_, done, err := l.use(ctx)
		if err != nil {
			return nil, err
		}
		done()
	}
	return l.entry.Attach(r)
}

// printable removes characters that a terminal could interpret, and limits the
// length.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		return string(r[:200])
	}
	return s
}
