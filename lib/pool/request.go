package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/fleet"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/logins"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/settings"
)

// Request is a request for a lease.
type Request struct {
	Pool     string         // "": the default pool
	Instance string         // an ID or alias; "": any instance
	Timeout  *time.Duration // limit of the wait; nil: the pool's default; 0: do not wait
	TTL      time.Duration  // 0: the pool's default, or no limit if Held is set
	Held     bool           // the lease ends with the connection, whose end cancels the context
	Confirm  bool           // Held until Confirm is called, so that the holder knows of the lease
	Owner    *proc.Identity // the lease ends with this process; nil: with none
	Holder   string         // the holder's name in the status; the first 200 characters are kept
	By       *control.Peer  // owner of the lease; nil: the user who runs the service
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
	// Offer is the ID of the offer that the lease is for; "": of none.
	Offer string
	// Session is a session that another host has saved, with which the lease of an offer begins; nil: none.
	Session []byte

	// Elsewhere says that other hosts may serve the request, whose refusal is not logged.
	Elsewhere bool

	// Set by Lease:
	login *login
	user  string
	began time.Time
	kept  *fleet.Kept // the session; nil: none
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
	lease   *lease     // lease once it is served without an error
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
	if err == nil {
		r.kept, err = p.receive(ctx, r)
	}
	var l *lease
	var w *Waiting
	if err == nil {
		l, w, err = v.leaseOrQueue(ctx, r)
	}
	switch {
	case err != nil:
		if r.kept != nil {
			r.kept.Remove()
		}
		if !r.Elsewhere {
			v.unlogged.refused(r, err)
		}
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
			r.TTL = NoExpiry
		}
	}
	if r.Offer != "" {
		got, err := p.useOfferLocked(r.Offer)
		if err != nil {
			return nil, nil, err
		}
		return p.grantLocked(ctx, got, r), nil, nil
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
	w.queued, err = p.leases.Wait(n, p.cfg.QueueLimit, time.Now(), until, func(got int, err error) {
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
			s.runs().Wake() // a request waits for it now
		}
	}
	p.yieldLocked()
	return nil, w, nil
}

// Wait returns the lease once it is granted. Call it once, and not together
// with Cancel.
func (w *Waiting) Wait() (*Grant, error) { return w.WaitFor(w.ctx) }

// WaitFor is Wait until a context ends, which is one of the client's.
func (w *Waiting) WaitFor(ctx context.Context) (*Grant, error) {
	over := time.NewTimer(w.timeout - time.Since(w.request.began))
	defer over.Stop()
	var err error
	select {
	case err = <-w.served:
	case <-ctx.Done():
		err = w.dequeue(context.Cause(ctx))
	case <-over.C:
		err = w.dequeue(&timeoutError{w.timeout})
	}
	if err != nil {
		if !w.request.Elsewhere {
			w.service.unlogged.refused(w.request, err)
		}
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

// login is the state with which the sessions of a lease start. The lease reads
// it once, so that all of its sessions start with the same.
type login struct {
	name  string
	state *logins.State
}

// inline is the name of a state that a request itself has.
const inline = "(inline)"

// loadLogin returns the state of a request, or of the pool, or nil if there is none.
func (p *pool) loadLogin(r Request) (*login, error) {
	v := p.service
	name, store := r.State, r.States
	if name == "" {
		name, store = p.cfg.State, v.States
	}
	why := ""
	if r.Inline != nil {
		name = inline
	}
	if name != "" {
		v.mu.Lock()
		why = p.whyNoStateLocked(r.Instance)
		v.mu.Unlock()
	}
	switch {
	case name == "":
		return nil, nil
	case why != "":
		return nil, control.Errorf(control.BadRequest, "cannot lease %s with the state %q: %s", p.describe(r.Instance),
			name, why)
	case r.Inline != nil:
		return &login{name: name, state: r.Inline}, nil
	case store == nil:
		return nil, control.Errorf(control.BadConfig, "there is no directory for states: set HOME or XDG_STATE_HOME")
	}
	state, err := store.Load(name)
	if err != nil {
		e := *control.ErrorOf(err)
		e.Message = fmt.Sprintf("cannot lease %s: %s", p.describe(r.Instance), e.Message)
		return nil, &e
	}
	return &login{name: name, state: state}, nil
}

// whyNoStateLocked says why leases of an instance, or "" for any, cannot start
// with a state, or returns "".
func (p *pool) whyNoStateLocked(instance string) string {
	for _, s := range p.slots {
		named := instance == s.set.ID || instance == s.set.Alias
		if s.set.Isolation != settings.Context && (instance == "" || named) {
			return fmt.Sprintf("instance %s has a browser to itself; only those with isolation = \"context\" can",
				s.set.ID)
		}
	}
	return ""
}

// stateName returns the name of the state; "": there is none.
func (g *login) stateName() string {
	if g == nil {
		return ""
	}
	return g.name
}

var errStopping = control.Errorf(control.Stopping, "the service is stopping")

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

// describe names the pool, or one of its instances, in a message.
func (p *pool) describe(instance string) string {
	if instance == "" {
		return "an instance of pool " + p.cfg.Name
	}
	return fmt.Sprintf("instance %q of pool %s", instance, p.cfg.Name)
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
	if s.state != Failed {
		return time.Time{}
	}
	return s.runs().EarliestLocked()
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
