package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"btools/lib/control"
	"btools/lib/pool/queue"
	"btools/lib/proc"
	"btools/lib/record"
)

// lease is the right of one holder to one instance, until it ends.
type lease struct {
	id      string
	slot    *slot
	holder  string
	keep    string
	ttl     time.Duration
	started time.Time
	expires time.Time
	ends    time.Duration // the same by a clock that counts the machine's sleep
	timer   *time.Timer   // of the expiry
	cut     bool          // who held the instance before may be there still, or again
	over    context.Context
	cancel  context.CancelFunc // of over: it has ended
	unbind  func() bool        // from the connection, until it is confirmed; nil: it is not to be
	seated
	news
}

// forGood is the time to live of a lease that is held by a connection.
const forGood = 10 * 365 * 24 * time.Hour

// Request asks for a lease.
type Request struct {
	Pool     string         // "": the default one
	Instance string         // an ID or alias; "": any
	Timeout  *time.Duration // how long it may wait; nil: the pool's; 0: not at all
	TTL      time.Duration  // 0: the pool's, or, if it is held, without end
	Held     bool           // by a connection: the lease ends with its context
	Confirm  bool           // the same until Confirm is called: the holder knows of the lease then
	Owner    *proc.Identity // the lease ends with this process, too; nil: with none
	Holder   string         // what the status calls it: 200 characters are kept
	// Keep, if not "", has the lease's connections stay when it is released,
	// until the next lease of the instance: and then, if that has the same.
	Keep string
}

// Grant is a lease that its holder has from now on.
type Grant struct {
	ID     string
	Record *record.Record // the instance, with its lease
}

// Waiting is a request that has its place in the line.
type Waiting struct {
	service *Service
	pool    *pool
	request Request
	ctx     context.Context // of who waits
	began   time.Time
	timeout time.Duration
	inLine  *queue.Waiter
	served  chan error // has an element when the queue has served it
	lease   *lease     // valid then, if there was no error
}

// Lease leases an instance, or puts the request in the line, whose order is
// that of the calls: then the grant is nil and comes from the Waiting. The
// context is that of the connection that asks: its end ends the waiting, and a
// lease that is held.
func (v *Service) Lease(ctx context.Context, r Request) (*Grant, *Waiting, error) {
	l, w, err := v.begin(ctx, r)
	if l == nil {
		return nil, w, err
	}
	return v.granted(l, time.Now()), nil, nil
}

// begin leases or queues, in one step: who comes later is served later.
func (v *Service) begin(ctx context.Context, r Request) (*lease, *Waiting, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, err := v.find(r.Pool)
	if err != nil {
		return nil, nil, err
	}
	n := queue.Any
	if r.Instance != "" {
		s, err := p.slot(r.Instance)
		if err != nil {
			return nil, nil, err
		}
		n = s.n
	}
	if v.closing {
		return nil, nil, errStopping
	}
	if r.TTL <= 0 {
		r.TTL = p.cfg.LeaseTTL
		if r.Held {
			r.TTL = forGood
		}
	}
	if got, ok := p.queue.Take(n); ok {
		return v.grantLocked(ctx, p.queue, got, r), nil, nil
	}
	w := &Waiting{service: v, pool: p, request: r, ctx: ctx, began: time.Now(), timeout: p.cfg.LeaseTimeout, served: make(chan error, 1)}
	if r.Timeout != nil {
		w.timeout = *r.Timeout
	}
	until := w.began.Add(w.timeout)
	if p.soonestLocked(n).After(until) {
		return nil, nil, p.refusalLocked(errLost, r)
	}
	if w.timeout <= 0 {
		return nil, nil, p.refusalLocked(&late{}, r)
	}
	w.inLine, err = p.queue.Wait(n, p.cfg.QueueLimit, until, func(got int, err error) {
		if err == nil {
			w.lease = v.grantLocked(ctx, p.queue, got, r)
		} else {
			err = p.refusalLocked(err, r)
		}
		w.served <- err
	})
	if err != nil {
		return nil, nil, p.refusalLocked(err, r)
	}
	for _, s := range p.slots {
		if s.state == Failed {
			s.poke() // somebody waits now
		}
	}
	return nil, w, nil
}

// Wait returns the lease when there is one; it is to be called once, and
// Cancel not then.
func (w *Waiting) Wait() (*Grant, error) {
	over := time.NewTimer(w.timeout - time.Since(w.began))
	defer over.Stop()
	var err error
	select {
	case err = <-w.served:
	case <-w.ctx.Done():
		err = w.leave(context.Cause(w.ctx))
	case <-over.C:
		err = w.leave(&late{w.timeout})
	}
	if err != nil {
		return nil, err
	}
	return w.service.granted(w.lease, w.began), nil
}

// Cancel gives up the place in the line.
func (w *Waiting) Cancel() {
	if w.leave(context.Canceled) == nil {
		w.service.end(w.lease.id, "released", false)
	}
}

// leave takes the request out of the line, which is the error; nil if it was
// served at the same moment.
func (w *Waiting) leave(why error) error {
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	if w.pool.queue.Cancel(w.inLine) {
		return w.pool.refusalLocked(why, w.request)
	}
	return <-w.served // which has an element by now
}

// granted is a new lease as its holder gets it, who asked at that time.
func (v *Service) granted(l *lease, asked time.Time) *Grant {
	if l.cut && l.slot.proxy != nil {
		l.slot.proxy.Cut()
	}
	v.metrics.wait.WithLabelValues(l.slot.poolName).Observe(max(0, l.started.Sub(asked)).Seconds())
	return &Grant{ID: l.id, Record: l.record(l.started.Add(l.ttl))}
}

var errStopping = control.Errorf(control.TryAgain, "the service is stopping")

// refusalLocked gives an error of the queue its words, and says what is the
// matter.
func (p *pool) refusalLocked(err error, r Request) error {
	p = p.currentLocked()
	var e *control.Error
	switch {
	case errors.As(err, new(*late)):
		e = control.Errorf(control.LeaseTimeout, "cannot lease %s: %v", p.what(r.Instance), err)
	case errors.Is(err, errLost) && r.Instance != "":
		e = control.Errorf(control.NoneHealthy, "cannot lease %s", p.what(r.Instance))
	case errors.Is(err, errLost) && r.Pool == "":
		e = control.Errorf(control.NoneHealthy, "Default pool '%s' has no healthy instances. Specify explicit pool or restart failed instances.", p.cfg.Name)
	case errors.Is(err, errLost):
		e = control.Errorf(control.NoneHealthy, "Pool '%s' has no healthy instances. Specify another pool or restart failed instances.", p.cfg.Name)
	case errors.Is(err, queue.ErrFull):
		e = control.Errorf(control.QueueFull, "cannot lease %s: %d requests wait already", p.what(r.Instance), p.cfg.QueueLimit)
	default:
		return err
	}
	st, _ := p.status()
	if busy := st.Busy(r.Instance, time.Now()); strings.HasSuffix(e.Message, ".") {
		e.Message += " (" + busy + ")"
	} else if busy != "" {
		e.Message += ": " + busy
	}
	if errors.Is(err, errLost) {
		e.Hint = "bpool status " + p.cfg.Name + " shows them; bpool restart " + p.cfg.Name + " tries again at once"
	}
	return e
}

// currentLocked is the pool of the configuration that holds now: a request may
// have come before that.
func (p *pool) currentLocked() *pool {
	for _, q := range p.service.pools {
		if q.queue == p.queue {
			return q
		}
	}
	return p
}

// what is a pool, or one of its instances, in a message.
func (p *pool) what(instance string) string {
	if instance == "" {
		return "an instance of pool " + p.cfg.Name
	}
	return fmt.Sprintf("instance %q of pool %s", instance, p.cfg.Name)
}

// errLost says that all instances that a request could have have failed, and
// that none is tried again in time.
var errLost = errors.New("no healthy instances")

// late says that a request's time is over.
type late struct{ timeout time.Duration }

func (l *late) Error() string {
	if l.timeout <= 0 {
		return "none is free"
	}
	return fmt.Sprintf("none came free within %v", l.timeout)
}

// soonestLocked is when an instance, or with queue.Any one of them, may be had
// at the earliest: the zero time if at any moment.
func (p *pool) soonestLocked(n int) time.Time {
	if n != queue.Any {
		return p.slots[n].soonestLocked()
	}
	soonest := never
	for _, s := range p.slots {
		at := s.soonestLocked()
		if at.IsZero() {
			return at
		}
		if at.Before(soonest) {
			soonest = at
		}
	}
	return soonest
}

func (s *slot) soonestLocked() time.Time {
	if s.state != Failed || s.force || s.recycle && s.tryAt != never {
		return time.Time{}
	}
	return s.hurryAt
}

// tellLocked tells who waits in vain: whatever they want has failed, and no
// other try comes in time.
func (p *pool) tellLocked() {
	for _, s := range p.slots {
		if s.state == Failed {
			p.queue.FailBefore(s.n, s.soonestLocked(), errLost)
		}
	}
	p.queue.FailBefore(queue.Any, p.soonestLocked(queue.Any), errLost)
}

func (p *pool) allFailed() bool {
	for _, s := range p.slots {
		if s.state != Failed {
			return false
		}
	}
	return true
}

// grantLocked makes the lease of a slot that the queue gives out, and binds it
// to its holder.
func (v *Service) grantLocked(ctx context.Context, q *queue.Queue, n int, r Request) *lease {
	i := slices.IndexFunc(v.pools, func(p *pool) bool { return p.queue == q })
	s := v.pools[i].slots[n]
	now := time.Now()
	l := &lease{id: newLeaseID(now), slot: s, holder: printable(r.Holder), keep: r.Keep, ttl: r.TTL, started: now, expires: now.Add(r.TTL), ends: v.uptime() + r.TTL}
	l.timer = time.AfterFunc(r.TTL, func() {
		v.end(l.id, "expired", false)
	})
	s.lease = l
	s.uses++
	l.cut = r.Keep == "" || r.Keep != s.kept
	v.leases[l.id] = l
	if s.group != nil {
		s.group.takeLocked(l)
	}
	v.watchLocked(l)
	l.over, l.cancel = context.WithCancel(v.ctx)
	if r.Held || r.Confirm { // also if its connection has gone at this very moment
		unbind := context.AfterFunc(ctx, func() { v.end(l.id, "released", false) })
		context.AfterFunc(l.over, func() { unbind() }) // the connection may live much longer
		if !r.Held {
			l.unbind = unbind
		}
	}
	if r.Owner != nil {
		v.running.Go(func() {
			if r.Owner.Wait(l.over) == nil {
				v.end(l.id, "released", false)
			}
		})
	}
	v.eventLocked("leased", s, l.id, "")
	return l
}

// sleepCheck is how often leases are compared with a clock that counts the
// machine's sleep, as expires_at does. Timers stop meanwhile.
const sleepCheck = 10 * time.Second

// watchLocked has a lease compared with that clock.
func (v *Service) watchLocked(l *lease) {
	if v.sleep == nil && l.ttl < forGood {
		v.sleep = time.AfterFunc(sleepCheck, v.checkSleep)
	}
}

// checkSleep moves the ends of leases that would come too late.
func (v *Service) checkSleep() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sleep = nil
	if v.ctx.Err() != nil {
		return
	}
	now := v.uptime()
	for _, l := range v.leases {
		if left := l.ends - now; left < time.Until(l.expires)-time.Second && l.timer.Stop() {
			l.timer.Reset(max(0, left))
		}
		v.watchLocked(l)
	}
}

// Confirm has a lease outlive the connection that asked for it.
func (v *Service) Confirm(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	switch {
	case l == nil || l.unbind != nil && !l.unbind(): // it is ending
		return noLease(id)
	case l.unbind == nil:
		return control.Errorf(control.BadRequest, "the lease %s was asked for without confirm, or is confirmed already", id)
	}
	l.unbind = nil
	return nil
}

func noLease(id string) error {
	return control.Errorf(control.LeaseNotFound, "there is no lease %s (any more)", id)
}

// record is what the holder gets.
func (l *lease) record(expires time.Time) *record.Record {
	s := l.slot
	r := s.record(l.id)
	out := record.Lease{ID: l.id, Pool: s.poolName, Instance: s.set.ID, ExpiresAt: record.Time{Time: expires}}
	if s.set.Alias != "" {
		out.Alias = &s.set.Alias
	}
	r.MustSet("lease", out)
	return r
}

// newLeaseID makes a lease's ID: lease_, the time in milliseconds, sixteen
// random characters, as whoever knows it can release the lease.
func newLeaseID(now time.Time) string {
	return fmt.Sprintf("lease_%d_%s", now.UnixMilli(), strings.ToLower(rand.Text()[:16]))
}

// Release ends a lease: its connections are cut, unless it keeps them, and the
// instance goes to who is next. It reports whether there was one: a lease that
// has ended already is no error.
func (v *Service) Release(id string) bool { return v.end(id, "released", true) }

// end ends a lease, for the reason that the event tells. Its connections may
// stay only if its holder has said that it ends.
func (v *Service) end(id, event string, may bool) bool {
	v.mu.Lock()
	l := v.leases[id]
	if l == nil {
		v.mu.Unlock()
		return false
	}
	delete(v.leases, id) // whoever takes it out is the one that releases
	v.eventLocked(event, l.slot, id, "")
	v.metrics.hold.WithLabelValues(l.slot.poolName).Observe(time.Since(l.started).Seconds())
	l.timer.Stop()
	l.cancel()
	l.ended = how(event, l.ttl)
	l.tellLocked("")
	v.mu.Unlock()
	s := l.slot
	kept := ""
	if may {
		kept = l.keep
	}
	if s.proxy != nil && kept == "" {
		s.proxy.Cut()
	}
	hasBrowser := s.hasBrowser()
	v.mu.Lock()
	defer v.mu.Unlock()
	s.lease, s.kept = nil, kept
	if s.group != nil {
		s.group.giveLocked(l)
	}
	if s.retired {
		s.stop()
		return true
	}
	if !hasBrowser {
		s.settleLocked() // and nothing to replace
		return true
	}
	old := s.set.MaxUses > 0 && s.uses >= s.set.MaxUses || s.set.MaxAge > 0 && time.Since(s.since) >= s.set.MaxAge
	if s.set.Isolated || old || s.recycle {
		s.recycle = true
		s.poke()
	}
	s.settleLocked()
	return true
}

// ReleaseAll ends all leases, and returns their IDs.
func (v *Service) ReleaseAll() (ids []string) {
	v.mu.Lock()
	for id := range v.leases {
		ids = append(ids, id)
	}
	v.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return !v.end(id, "released", false) })
}

// Restart replaces the browsers of a pool, or of one instance, at once and
// under their leases, too. Of an instance that shares its browser, only the
// session is replaced. It returns how many instances that are.
func (v *Service) Restart(poolName, instance string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	slots, err := v.some(poolName, instance)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range slots {
		if g := s.group; g != nil {
			n++
			if instance != "" {
				g.renewLocked(s)
			} else {
				g.force = true
				g.poke()
			}
			continue
		}
		if s.proxy == nil {
			continue
		}
		n++
		s.recycle, s.force = true, true
		s.settleLocked()
		s.poke()
	}
	return n, nil
}

// some are the instances of a pool, or one of them.
func (v *Service) some(poolName, instance string) ([]*slot, error) {
	p, err := v.find(poolName)
	if err != nil || instance == "" {
		if err != nil {
			return nil, err
		}
		return p.slots, nil
	}
	s, err := p.slot(instance)
	return []*slot{s}, err
}

// Drain has a pool, or all of them, give no more leases, or, with on false,
// give them again; those that there are go on. It returns how many instances
// that are.
func (v *Service) Drain(poolName string, on bool) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pools := v.pools
	if poolName != "" {
		p, err := v.find(poolName)
		if err != nil {
			return 0, err
		}
		pools = []*pool{p}
	}
	n := 0
	for _, p := range pools {
		p.drained = on
		for _, s := range p.slots {
			n++
			s.settleLocked()
			if on {
				v.eventLocked("drained", s, "", "")
			}
		}
	}
	return n, nil
}

// Renew has a lease last for its time to live, or for another one, from now.
func (v *Service) Renew(id string, ttl time.Duration) (*record.Record, error) {
	v.mu.Lock()
	l := v.leases[id]
	if l == nil || !l.timer.Stop() {
		v.mu.Unlock()
		return nil, noLease(id)
	}
	if ttl > 0 {
		l.ttl = ttl
	}
	expires := time.Now().Add(l.ttl)
	l.expires, l.ends = expires, v.uptime()+l.ttl
	l.timer.Reset(l.ttl)
	v.watchLocked(l)
	v.mu.Unlock()
	return l.record(expires), nil
}

// printable is a text without what a terminal takes for commands, and not too
// long.
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
