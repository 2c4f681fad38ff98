package source

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
)

// affinity keeps leases of pool instances for a session between its calls.
type affinity struct {
	use
	pool *pool
	all  []*keptLease // under the lock of use
}

func (s *pool) Of(ctx context.Context, o Owner, _ bool) Browsers {
	return &affinity{use: use{book: &s.uses, owner: o, ctx: ctx}, pool: s}
}

func (a *affinity) Target(ctx context.Context) (Browser, error)    { return a.pool.target(ctx) }
func (a *affinity) Targets(ctx context.Context) ([]Browser, error) { return a.pool.targets(ctx) }
func (a *affinity) Queue(w BrowserRef) tasks.Queue                 { return a.pool.queue(a.owner.Name(), w) }

func (a *affinity) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	info, err := a.pool.info(ctx, w.Pool)
	if err != nil {
		return nil, err
	}
	if info.Affinity != affinitySession {
		return a.pool.lease(ctx, w.Pool, w.Instance, a.owner.Name(), false)
	}
	return a.keep(ctx, &info, instanceID(&info, w.Instance), w.Pool != "")
}

func (a *affinity) Status(ctx context.Context, pool string) (Status, error) {
	raw, err := a.pool.status(ctx, pool)
	return Status{Pools: raw}, Explain(err)
}

// keptLease is a lease that a session keeps. All calls that need it wait for the
// same request to bpool and share its error.
type keptLease struct {
	owner    *affinity
	pool     string
	instance string // that is asked for; "": any
	byName   bool   // the pool was asked for by its name
	at       *Lease // nil: there is no lease yet
	asking   bool   // a request is under way
	err      error  // of the request
	gone     bool   // it is not kept any more
	ours     bool   // as a request has shown since the last call
	cancel   context.CancelFunc
	ttl      time.Duration
	resting  chan struct{} // closed when bpool knows that no call uses it; nil: it need not
}

// affinitySession is the AFFINITY of pools whose instances a session keeps.
const affinitySession = "session"

// keep returns the instance of a pool with this ID, which the session keeps from now on;
// with "", the one kept longest.
func (a *affinity) keep(ctx context.Context, info *api.PoolStatus, id string, byName bool) (*Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.closed {
		k := a.findLocked(info.Name, id)
		if k == nil {
			k = &keptLease{owner: a, pool: info.Name, instance: id, byName: byName,
				ttl: time.Duration(info.LeaseTTL) * time.Millisecond}
			a.all = append(a.all, k)
			a.table.Set(k, uses.Rules{})
		}
		for a.table.Begin(k); !k.gone && !(k.ours && !k.asking && a.table.Ready(k)); {
			if !k.asking && a.table.Ready(k) {
				a.askLocked(k)
			}
			if err := a.waitLocked(ctx); err != nil {
				a.returnedLocked(k)
				if k.at == nil && k.asking && a.table.Calls(k) == 0 { // nobody waits for it any more
					k.cancel()
				}
				return nil, err
			}
		}
		if !k.gone {
			at := *k.at
			at.Release = func() { a.returned(k) }
			return &at, nil
		}
		if k.err != nil {
			return nil, k.err
		}
	}
	return nil, ErrEnded
}

// findLocked returns what is kept of a pool, or requested: the instance with the
// ID; with "", the first one with a lease.
func (a *affinity) findLocked(pool, id string) *keptLease {
	var asked *keptLease
	for _, k := range a.all {
		switch {
		case k.pool != pool:
		case k.at != nil && (id == "" || k.at.Instance == id):
			return k
		case k.at == nil && k.instance == id:
			asked = k
		}
	}
	return asked
}

// askLocked requests the lease, or checks that it still holds.
func (a *affinity) askLocked(k *keptLease) {
	ctx, cancel := context.WithCancel(a.ctx)
	at, resting := k.at, k.resting
	k.asking, k.cancel, k.resting = true, cancel, nil
	a.work.Go(func() {
		defer cancel()
		if at == nil {
			at, err := a.request(ctx, k)
			a.answered(k, at, "", err)
			return
		}
		if resting != nil {
			<-resting // before it is in use again
		}
		fresh := *at
		var ours bool
		if fresh.Died, fresh.ID, ours = at.granted.renew(ctx); !ours {
			a.answered(k, at, "had been ended"+at.notices.ending(), nil)
			return
		}
		if at.ID != "" && fresh.ID != at.ID {
			at.notices.await() // its reason
		}
		a.answered(k, &fresh, "", nil)
	})
}

// request leases an instance.
func (a *affinity) request(ctx context.Context, k *keptLease) (*Lease, error) {
	pool := k.pool
	if !k.byName {
		pool = "" // an error speaks of the default pool
	}
	at, err := a.pool.lease(ctx, pool, k.instance, a.owner.Name(), true)
	if err == nil {
		a.watchOver(at)
	}
	return at, err
}

// answered notes the lease that a request has led to, or what has become of the one that was kept.
func (a *affinity) answered(k *keptLease, at *Lease, lost string, err error) {
	a.mu.Lock()
	drop := at
	switch {
	case k.gone: // meanwhile: the session has ended, or has got another one
	case lost != "":
		a.removeLocked(k)
		a.loseLocked("", loss{pool: k.pool, text: fmt.Sprintf("this session's lease of instance %s of pool %s %s",
			at.Instance, k.pool, lost)})
	case err != nil:
		a.removeLocked(k)
		k.err = err
	case k.at == nil && a.table.Calls(k) == 0:
		a.removeLocked(k)
	default:
		k.at, k.ours, drop = at, true, nil
		a.table.Set(k, uses.Rules{Children: at.Hibernate, End: k.ttl})
		if l := a.lost[""]; at.kept && l.pool == k.pool {
			l.back = true
			a.lost[""] = l
		}
		a.satisfyLocked(k)
	}
	k.asking = false
	a.restLocked(k)
	a.advanceLocked()
	a.mu.Unlock()
	if drop != nil {
		drop.Release()
	}
}

// satisfyLocked serves callers that wait for another instance of the pool, or for
// the same one, with the one that is there now: nobody else returns it.
func (a *affinity) satisfyLocked(k *keptLease) {
	for _, other := range slices.Clone(a.all) {
		if other != k && other.pool == k.pool && other.at == nil &&
			(other.instance == "" || other.instance == k.at.Instance) {
			a.removeLocked(other)
			other.cancel()
		}
	}
}

func (a *affinity) removeLocked(k *keptLease) {
	k.gone = true
	a.all = slices.DeleteFunc(a.all, func(other *keptLease) bool { return other == k })
	a.book.removeLocked(k)
}

// returned notes that a call has ended.
func (a *affinity) returned(k *keptLease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returnedLocked(k)
}

func (a *affinity) returnedLocked(k *keptLease) {
	a.leaveLocked(k)
	a.restLocked(k)
}

// restLocked tells bpool that no call uses an instance, if that is so.
func (a *affinity) restLocked(k *keptLease) {
	if k.gone || k.at == nil || k.asking || a.table.Calls(k) > 0 {
		return
	}
	k.ours = false
	at, told := k.at, make(chan struct{})
	k.resting = told
	a.work.Go(func() {
		defer close(told)
		at.granted.rest(a.ctx)
	})
}

// step stops the children of an instance that no call has used for its time, or releases it when its time to live is
// over.
func (k *keptLease) step(due uses.Due[usable]) (kept time.Time) {
	a := k.owner
	a.mu.Lock()
	at, isReady := k.at, !k.gone && !k.asking
	a.mu.Unlock()
	if !isReady || due.Step == uses.End && a.isTakenOver(at) {
		return time.Now()
	}
	a.mu.Lock()
	if k.gone || k.asking || k.at != at {
		a.mu.Unlock()
		return time.Now()
	}
	if due.Step == uses.End {
		a.removeLocked(k)
		a.mu.Unlock()
		at.Release()
		return kept
	}
	a.mu.Unlock()
	a.owner.StopChildren(func(b *Browser) bool { return b.HTTPURL == at.HTTPURL }, false)
	a.mu.Lock()
	defer a.mu.Unlock()
	at.note.begin(at.Hibernate)
	return kept
}

// isTakenOver reports whether a person has control of the session of a lease.
func (a *affinity) isTakenOver(at *Lease) bool {
	status, _ := api.Pools.Ask(a.ctx, a.pool, api.Of{Pool: at.Pool}) // no answer: the service has ended
	for _, p := range status.Pools {
		for _, i := range p.Instances {
			if i.Lease == at.Lease {
				return i.Control != nil
			}
		}
	}
	return false
}

func (k *keptLease) group() *sync.WaitGroup { return &k.owner.work }

// Leave stops new leases. The goroutine that is requesting a lease releases it.
func (a *affinity) Leave() (release func()) {
	var held []*Lease
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, k := range a.all {
		k.gone = true
		a.table.Remove(k)
		if !k.asking {
			held = append(held, k.at)
		}
	}
	a.all = nil
	a.changed.Wake()
	return func() {
		for _, at := range held {
			a.work.Go(at.Release)
		}
		held = nil
		a.work.Wait()
	}
}
