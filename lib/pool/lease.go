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
	timer   *time.Timer // of the expiry
	over    context.Context
	cancel  context.CancelFunc // of over: it has ended
}

// forGood is the time to live of a lease that is held by a connection.
const forGood = 10 * 365 * 24 * time.Hour

// Request asks for a lease.
type Request struct {
	Pool     string         // "": the default one
	Instance string         // an ID or alias; "": any
	Timeout  *time.Duration // how long it may wait; nil: the pool's; 0: not at all
	TTL      time.Duration  // 0: the pool's, or, if it is held, without end
	Held     bool           // by a connection, which is its renewal
	Holder   string         // what the status calls it: 200 characters are kept
	// Keep, if not "", has the lease's connections stay when it is released,
	// until the next lease of the instance: and then, if that has the same.
	Keep string
	Now  bool // at once, or the error is ErrWait
}

// ErrWait says that a request would have to wait.
var ErrWait = errors.New("none is free now")

// Lease returns the record of an instance that is the caller's from now on,
// with its lease. If it has to wait, the context's end cancels it.
func (v *Service) Lease(ctx context.Context, r Request) (*record.Record, string, error) {
	began := time.Now()
	v.mu.Lock()
	p, err := v.find(r.Pool)
	n := queue.Any
	if err == nil && r.Instance != "" {
		var s *slot
		if s, err = p.slot(r.Instance); err == nil {
			n = s.n
		}
	}
	if err == nil {
		err = p.closedLocked(r)
	}
	if err != nil {
		v.mu.Unlock()
		return nil, "", err
	}
	ttl, timeout := p.cfg.LeaseTTL, p.cfg.LeaseTimeout
	if r.TTL > 0 {
		ttl = r.TTL
	} else if r.Held {
		ttl = forGood
	}
	if r.Timeout != nil {
		timeout = *r.Timeout
	}
	var l *lease
	if got, ok := p.queue.Take(n); ok {
		l = v.grantLocked(p.queue, got, ttl, r)
		v.mu.Unlock()
	} else if timeout <= 0 || r.Now {
		v.mu.Unlock()
		if timeout > 0 {
			return nil, "", ErrWait
		}
		return nil, "", control.Errorf(control.LeaseTimeout, "cannot lease %s: none is free", p.what(r.Instance))
	} else {
		served := make(chan error, 1)
		w, err := p.queue.Wait(n, p.cfg.QueueLimit, func(got int, err error) {
			if err == nil {
				l = v.grantLocked(p.queue, got, ttl, r)
			}
			served <- err
		})
		v.mu.Unlock()
		if err == nil {
			err = v.wait(ctx, p, w, served, timeout, r)
		}
		if err != nil {
			return nil, "", p.refusal(err, r)
		}
	}
	v.metrics.wait.WithLabelValues(p.cfg.Name).Observe(l.started.Sub(began).Seconds())
	return l.record(l.started.Add(ttl)), l.id, nil
}

// wait waits until a request is served, or its time is over.
func (v *Service) wait(ctx context.Context, p *pool, w *queue.Waiter, served <-chan error, timeout time.Duration, r Request) (err error) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late.C:
		err = control.Errorf(control.LeaseTimeout, "cannot lease %s: none came free within %v", p.what(r.Instance), timeout)
	}
	v.mu.Lock()
	cancelled := p.queue.Cancel(w)
	v.mu.Unlock()
	if cancelled {
		return err
	}
	return <-served // at the same moment: it is the caller's
}

// closedLocked is why the pool serves nobody now, nil if it does.
func (p *pool) closedLocked(r Request) error {
	switch {
	case p.service.closing:
		return errStopping
	case r.Instance == "" && p.allFailed():
		return p.refusal(errLost, r)
	}
	return nil
}

var errStopping = control.Errorf(control.TryAgain, "the service is stopping")

// refusal gives an error of the queue its words.
func (p *pool) refusal(err error, r Request) error {
	switch {
	case errors.Is(err, errLost) && r.Pool == "":
		return control.Errorf(control.NoneHealthy, "Default pool '%s' has no healthy instances. Specify explicit pool or restart failed instances.", p.cfg.Name)
	case errors.Is(err, errLost):
		return control.Errorf(control.NoneHealthy, "Pool '%s' has no healthy instances. Specify another pool or restart failed instances.", p.cfg.Name)
	case errors.Is(err, queue.ErrFull):
		return control.Errorf(control.QueueFull, "cannot lease %s: %d requests wait already", p.what(r.Instance), p.cfg.QueueLimit)
	}
	return err
}

// what is a pool, or one of its instances, in a message.
func (p *pool) what(instance string) string {
	if instance == "" {
		return "an instance of pool " + p.cfg.Name
	}
	return fmt.Sprintf("instance %q of pool %s", instance, p.cfg.Name)
}

// errLost says that every instance of a pool has failed.
var errLost = errors.New("no healthy instances")

// lostLocked tells who waits if every instance has failed, and not only for
// the moment of a first restart.
func (s *slot) lostLocked() {
	if !s.retired && s.pool.allFailed() {
		s.pool.queue.Fail(errLost)
	}
}

func (p *pool) allFailed() bool {
	for _, s := range p.slots {
		if s.state != Failed {
			return false
		}
	}
	return true
}

// grantLocked makes the lease of a slot that the queue gives out.
func (v *Service) grantLocked(q *queue.Queue, n int, ttl time.Duration, r Request) *lease {
	i := slices.IndexFunc(v.pools, func(p *pool) bool { return p.queue == q })
	s := v.pools[i].slots[n]
	now := time.Now()
	l := &lease{id: newLeaseID(now), slot: s, holder: printable(r.Holder), keep: r.Keep, ttl: ttl, started: now, expires: now.Add(ttl)}
	l.timer = time.AfterFunc(ttl, func() {
		v.end(l.id, "expired", false)
	})
	s.lease = l
	s.uses++
	if s.proxy != nil && (r.Keep == "" || r.Keep != s.kept) {
		s.proxy.Cut() // who held it before may be there still, or again
	}
	v.leases[l.id] = l
	l.over, l.cancel = context.WithCancel(context.Background())
	v.eventLocked("leased", s, l.id, "")
	return l
}

// Over is closed when the lease has ended, or if there is none.
func (v *Service) Over(id string) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.leases[id]; l != nil {
		return l.over.Done()
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Hold has a lease end with the context.
func (v *Service) Hold(ctx context.Context, id string) {
	stop := context.AfterFunc(ctx, func() { v.end(id, "released", false) })
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.leases[id]; l != nil {
		context.AfterFunc(l.over, func() { stop() }) // the context may live much longer
	}
}

// Bind has a lease end when a process does.
func (v *Service) Bind(id string, owner proc.Identity) {
	v.mu.Lock()
	l := v.leases[id]
	v.mu.Unlock()
	if l == nil {
		return
	}
	go func() {
		if owner.Wait(l.over) == nil {
			v.end(id, "released", false)
		}
	}()
}

// record is what the holder gets.
func (l *lease) record(expires time.Time) *record.Record {
	s := l.slot
	r := s.record()
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
	v.mu.Unlock()
	s := l.slot
	kept := ""
	if may {
		kept = l.keep
	}
	if s.proxy != nil && kept == "" {
		s.proxy.Cut()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s.lease, s.kept = nil, kept
	if s.retired {
		s.stop()
		return true
	}
	if !s.hasBrowser() {
		s.settleLocked() // and nothing to replace
		return true
	}
	old := s.set.MaxUses > 0 && s.uses >= s.set.MaxUses || s.set.MaxAge > 0 && time.Since(s.since) >= s.set.MaxAge
	if s.set.Isolated || old {
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
// under their leases, too. It returns how many.
func (v *Service) Restart(poolName, instance string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	slots, err := v.some(poolName, instance)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range slots {
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
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil || !l.timer.Stop() {
		return nil, control.Errorf(control.LeaseNotFound, "there is no lease %s (any more)", id)
	}
	if ttl > 0 {
		l.ttl = ttl
	}
	l.expires = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return l.record(l.expires), nil
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
