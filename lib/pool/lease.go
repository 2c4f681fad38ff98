package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"btools/lib/control"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/logins"
	"btools/lib/proc"
	"btools/lib/record"
)

// lease is one holder's right to one instance, until it ends.
type lease struct {
	id                 string
	slot               *slot
	holder             string
	by                 *control.Peer // its owner, who requested it
	user               string        // the name of that user; "": who runs the service, or a token
	secret             string        // of its address on other machines; "": it has none there
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
	unbind             func() bool        // detaches it from its connection; nil unless it waits for Confirm
	seating
	own   ownFiles
	login *login // nil: its sessions start without a state
	kept  bool   // it has begun with the session of an earlier one
	notices
}

// noExpiry is the time to live of a lease that lasts as long as its connection.
const noExpiry = 10 * 365 * 24 * time.Hour

// Request is a request for a lease.
type Request struct {
	Pool     string         // "": the default pool
	Instance string         // an ID or alias; "": any instance
	Timeout  *time.Duration // how long to wait; nil: the pool's default; 0: do not wait
	TTL      time.Duration  // 0: the pool's default, or no limit if Held is set
	Held     bool           // the lease ends with the connection, whose end cancels the context
	Confirm  bool           // the same until Confirm is called, so that the holder knows of the lease
	Owner    *proc.Identity // the lease ends with this process; nil: with none
	Holder   string         // the holder's name in the status; the first 200 characters are kept
	By       *control.Peer  // to whom the lease belongs; nil: the user who runs the service
	// KeepConnectionsFor, if not "", keeps the lease's connections open after
	// its release until the next lease of the instance, and beyond if that has
	// the same value.
	KeepConnectionsFor string
	// State is the name of the state with which the lease's sessions start, "": as
	// the pool is configured, and States is the store of the user who names it.
	State  string
	States *logins.Store
	// Inline is a state that the request itself has; nil: none.
	Inline *logins.State

	// Set by Lease:
	login *login
	user  string
	began time.Time
}

// Grant is a lease that has been granted.
type Grant struct {
	ID     string
	Record *record.Record // describes the instance and its lease
}

// Waiting is a request in the queue.
type Waiting struct {
	service *Service
	pool    *pool
	request Request
	ctx     context.Context // the client's
	timeout time.Duration
	queued  *book.Waiter
	served  chan error // receives a value when the queue serves the request
	lease   *lease     // valid then, unless there was an error
}

// Lease leases an instance, or queues the request in the order of the calls:
// then the grant is nil, and Waiting.Wait returns it. The context is the
// connection's: when it ends, the request is cancelled, and a held lease is
// released.
func (v *Service) Lease(ctx context.Context, r Request) (*Grant, *Waiting, error) {
	if r.By == nil {
		r.By = &control.Peer{UID: os.Geteuid(), PID: os.Getpid()}
	}
	r.user, r.began = v.userNames.of(r.By), time.Now()
	v.mu.Lock()
	p, err := v.pools.find(r.Pool)
	v.mu.Unlock()
	if err == nil {
		r.login, err = p.loadLogin(r)
	}
	var l *lease
	var w *Waiting
	if err == nil {
		l, w, err = v.leaseOrQueue(ctx, r)
	}
	switch {
	case err != nil:
		v.unlogged.refused(r, err)
		return nil, nil, err
	case l == nil:
		return nil, w, nil
	}
	return l.grant(), nil, nil
}

// leaseOrQueue leases or queues in one step, so that requests are served in
// order.
func (v *Service) leaseOrQueue(ctx context.Context, r Request) (*lease, *Waiting, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return nil, nil, errStopping
	}
	p, err := v.pools.find(r.Pool)
	if err != nil {
		return nil, nil, err
	}
	if err := p.admits(r.By.Token); err != nil {
		return nil, nil, err
	}
	n := book.Any
	if r.Instance != "" {
		s, err := p.slot(r.Instance)
		if err != nil {
			return nil, nil, err
		}
		n = s.number
	}
	if r.TTL <= 0 {
		r.TTL = p.cfg.LeaseTTL
		if r.Held {
			r.TTL = noExpiry
		}
	}
	if got, ok := p.leases.Take(n); ok {
		return p.grantLocked(ctx, got, r), nil, nil
	}
	w := &Waiting{service: v, pool: p, request: r, ctx: ctx, timeout: p.cfg.LeaseTimeout,
		served: make(chan error, 1)}
	if r.Timeout != nil {
		w.timeout = *r.Timeout
	}
	until := r.began.Add(w.timeout)
	if p.earliestLocked(n).After(until) {
		return nil, nil, p.leaseErrorLocked(errNoneHealthy, r)
	}
	if w.timeout <= 0 {
		return nil, nil, p.leaseErrorLocked(&timeoutError{}, r)
	}
	w.queued, err = p.leases.Wait(n, p.cfg.QueueLimit, until, func(got int, err error) {
		if err == nil {
			w.lease = p.grantLocked(ctx, got, r)
		} else {
			err = p.leaseErrorLocked(err, r)
		}
		w.served <- err
	})
	if err != nil {
		return nil, nil, p.leaseErrorLocked(err, r)
	}
	for _, s := range p.slots {
		if s.state == Failed {
			s.runs().wake() // a request waits for it now
		}
	}
	p.yieldLocked()
	return nil, w, nil
}

// Wait returns the lease once it is granted. Call it once, and not together
// with Cancel.
func (w *Waiting) Wait() (*Grant, error) {
	over := time.NewTimer(w.timeout - time.Since(w.request.began))
	defer over.Stop()
	var err error
	select {
	case err = <-w.served:
	case <-w.ctx.Done():
		err = w.dequeue(context.Cause(w.ctx))
	case <-over.C:
		err = w.dequeue(&timeoutError{w.timeout})
	}
	if err != nil {
		w.service.unlogged.refused(w.request, err)
		return nil, err
	}
	return w.lease.grant(), nil
}

// Cancel removes the request from the queue.
func (w *Waiting) Cancel() {
	if w.dequeue(context.Canceled) == nil {
		w.lease.end("released", "", false)
	}
}

// dequeue removes the request from the queue and returns the error for it, or
// nil if it was served just before.
func (w *Waiting) dequeue(why error) error {
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	if w.pool.leases.Cancel(w.queued) {
		return w.pool.leaseErrorLocked(why, w.request)
	}
	return <-w.served // has a value by now
}

// grant completes a new lease.
func (l *lease) grant() *Grant {
	if l.disconnectPrevious && l.slot.proxy != nil {
		l.slot.proxy.CloseWebSockets()
	}
	l.slot.service.metrics.wait.WithLabelValues(l.slot.poolName).Observe(l.waited.Seconds())
	return &Grant{ID: l.id, Record: l.record(l.started.Add(l.ttl))}
}

var errStopping = control.Errorf(control.Stopping, "the service is stopping")

// leaseErrorLocked turns an error of the queue into a message that says what
// the instances are doing.
func (p *pool) leaseErrorLocked(err error, r Request) error {
	p = p.currentLocked()
	var e *control.Error
	switch {
	case errors.As(err, new(*timeoutError)):
		e = control.Errorf(control.LeaseTimeout, "cannot lease %s: %v", p.describe(r.Instance), err)
	case errors.Is(err, errNoneHealthy) && r.Instance != "":
		e = control.Errorf(control.NoneHealthy, "cannot lease %s", p.describe(r.Instance))
	case errors.Is(err, errNoneHealthy) && r.Pool == "":
		e = control.Errorf(control.NoneHealthy,
			"Default pool '%s' has no healthy instances. Specify explicit pool or restart failed instances.",
			p.cfg.Name)
	case errors.Is(err, errNoneHealthy):
		e = control.Errorf(control.NoneHealthy,
			"Pool '%s' has no healthy instances. Specify another pool or restart failed instances.", p.cfg.Name)
	case errors.Is(err, book.ErrQueueFull):
		who := ""
		if t := r.By.Token; t != nil {
			who = " for the token " + t.Name
		}
		e = control.Errorf(control.QueueFull, "cannot lease %s%s: the queue is full (%d waiting)",
			p.describe(r.Instance), who, p.cfg.QueueLimit)
	default:
		return err
	}
	st, _ := p.status()
	p.service.For(r.By).hide(&st)
	if busy := WhyNoLease(&st, r.Instance, time.Now()); strings.HasSuffix(e.Message, ".") {
		e.Message += " (" + busy + ")"
	} else if busy != "" {
		e.Message += ": " + busy
	}
	if p.keepsLocked() {
		e.Hint = "AFFINITY=session keeps instances for the hosts of bmcp between their calls: " +
			"AFFINITY=call, a shorter AFFINITY_IDLE or more INSTANCES help"
	}
	if errors.Is(err, errNoneHealthy) {
		e.Hint = "bpool status " + p.cfg.Name + " shows them; bpool restart " + p.cfg.Name + " retries at once"
	}
	return e
}

// keepsLocked reports whether a holder keeps an instance of the pool that it does not use.
func (p *pool) keepsLocked() bool {
	return slices.ContainsFunc(p.slots, func(s *slot) bool {
		return s.lease != nil && !s.lease.held.Resting().IsZero()
	})
}

// currentLocked returns the pool of the current configuration; p may belong to
// an earlier one.
func (p *pool) currentLocked() *pool {
	for _, q := range p.service.pools {
		if q.leases == p.leases {
			return q
		}
	}
	return p
}

// describe names the pool, or one of its instances, in a message.
func (p *pool) describe(instance string) string {
	if instance == "" {
		return "an instance of pool " + p.cfg.Name
	}
	return fmt.Sprintf("instance %q of pool %s", instance, p.cfg.Name)
}

// errNoneHealthy means that every instance that could serve the request has
// failed, and that none is retried before the request times out.
var errNoneHealthy = errors.New("no healthy instances")

// timeoutError means that a request has waited long enough.
type timeoutError struct{ timeout time.Duration }

func (l *timeoutError) Error() string {
	if l.timeout <= 0 {
		return "none is free"
	}
	return fmt.Sprintf("none came free within %v", l.timeout)
}

// earliestLocked returns when the instance, or with book.Any one of them, can
// become free at the earliest. The zero time means at any moment.
func (p *pool) earliestLocked(n int) time.Time {
	if n != book.Any {
		return p.slots[n].earliestLocked()
	}
	earliest := supply.Never
	for _, s := range p.slots {
		at := s.earliestLocked()
		if at.IsZero() {
			return at
		}
		if at.Before(earliest) {
			earliest = at
		}
	}
	return earliest
}

func (s *slot) earliestLocked() time.Time {
	r := s.runs()
	if s.state != Failed || r.retriesAtOnceLocked() {
		return time.Time{}
	}
	if r.retry.Definite {
		return supply.Never
	}
	return r.retry.OnDemand
}

// failWaitersLocked fails the requests whose instances have all failed and are
// not retried before the request times out.
func (p *pool) failWaitersLocked() {
	for _, s := range p.slots {
		if s.state == Failed {
			p.leases.FailBefore(s.number, s.earliestLocked(), errNoneHealthy)
		}
	}
	p.leases.FailBefore(book.Any, p.earliestLocked(book.Any), errNoneHealthy)
}

func (p *pool) allFailed() bool {
	for _, s := range p.slots {
		if s.state != Failed {
			return false
		}
	}
	return true
}

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
		from := v.kept.take(l, r.Instance != "")
		l.kept = from != nil
		s.group.startLeaseLocked(l, from)
	} else {
		s.uses++
	}
	l.ctx, l.cancel = context.WithCancel(v.ctx)
	if r.Held || r.Confirm { // even if the connection ended just now
		unbind := context.AfterFunc(ctx, func() { l.end("released", "its holder has disconnected", false) })
		context.AfterFunc(l.ctx, func() { unbind() }) // the connection may outlive the lease
		if !r.Held {
			l.unbind = unbind
		}
	}
	if r.Owner != nil {
		v.running.Go(func() {
			if r.Owner.Wait(l.ctx) == nil {
				l.end("released", fmt.Sprintf("process %d has ended", r.Owner.PID), false)
			}
		})
	}
	v.events.ofLease("leased", l, "", nil)
	return l
}

// Confirm makes a lease outlive the connection that requested it.
func (v *Service) Confirm(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	switch {
	case l == nil || l.unbind != nil && !l.unbind(): // the lease is ending
		return ErrNoLease(id)
	case l.unbind == nil:
		return control.Errorf(control.BadRequest, "lease %s was requested without confirm, or is already confirmed", id)
	}
	l.unbind = nil
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
	l.ended, l.yielded = endReason(event, l.ttl), event == yielded
	l.addLocked("")
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
	if s.replace = s.replaceReasonLocked(); s.replace != none {
		s.wake()
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

// Restart replaces the browsers of a pool, or of one instance, at once and even
// if they are leased. If the instance shares its browser, only its session is
// replaced. It returns the number of instances.
func (v *Service) Restart(poolName, instance string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	slots, err := v.pools.instances(poolName, instance)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range slots {
		if s.group == nil && s.proxy == nil {
			continue
		}
		n++
		if s.group != nil && instance != "" {
			s.group.replaceSessionLocked(s)
			continue
		}
		s.runs().forceReplace = true
		s.syncQueueLocked()
		s.runs().wake()
	}
	return n, nil
}

// instances returns all instances of a pool, or the one that is named.
func (ps pools) instances(poolName, instance string) ([]*slot, error) {
	p, err := ps.find(poolName)
	if err != nil || instance == "" {
		if err != nil {
			return nil, err
		}
		return p.slots, nil
	}
	s, err := p.slot(instance)
	return []*slot{s}, err
}

// Drain stops granting leases of a pool, or of all pools; with on false it
// resumes. Existing leases go on. It returns the number of instances.
func (v *Service) Drain(poolName string, on bool) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pools, err := v.pools.these(poolName)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range pools {
		p.drained = on
		for _, s := range p.slots {
			n++
			s.syncQueueLocked()
			if on {
				v.events.ofInstance("drained", s, "")
			}
		}
		p.yieldLocked()
	}
	return n, nil
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
