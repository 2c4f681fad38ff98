package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/launch/options"
)

// ownerLeases leases browsers of a pool for an owner, and keeps leases between its calls where the pool says so.
type ownerLeases struct {
	*ownerUse
	pool *bpool
	all  []*keptLease // under the lock of the book
}

func (a *ownerLeases) Early() bool                                       { return false }
func (a *ownerLeases) Waiting(BrowserRef) func() (ahead int, waits bool) { return nil }
func (a *ownerLeases) TryTake(BrowserRef) *Lease                         { return nil }
func (a *ownerLeases) Away() (used bool)                                 { return false }
func (a *ownerLeases) Control(context.Context, Action, BrowserRef, options.Options) error {
	return errNotOurs
}

func (s *bpool) browsersOf(u *ownerUse) Browsers { return &ownerLeases{ownerUse: u, pool: s} }

func (a *ownerLeases) Target(ctx context.Context) (Browser, error)    { return a.pool.target(ctx) }
func (a *ownerLeases) Targets(ctx context.Context) ([]Browser, error) { return a.pool.targets(ctx) }
func (a *ownerLeases) Queue(w BrowserRef) tasks.Queue                 { return a.pool.queue(a.owner.Name(), w) }

func (a *ownerLeases) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	info, err := a.pool.info(ctx, w.Pool)
	if err != nil {
		return nil, err
	}
	if info.Affinity != affinitySession {
		return a.pool.lease(ctx, w.Pool, w.Instance, a.owner.Name(), false)
	}
	return a.keep(ctx, &info, instanceID(&info, w.Instance), w.Pool != "")
}

func (a *ownerLeases) Status(ctx context.Context, pool string) (Status, error) {
	raw, err := control.Method[api.Of, json.RawMessage](api.Status).Ask(ctx, a.pool, api.Of{Pool: pool})
	return Status{Pools: raw}, Explain(err)
}

// keptLease is a lease that an owner keeps. All calls that need it wait for the
// same request to bpool and share its error.
type keptLease struct {
	owner    *ownerLeases
	pool     string
	instance string // requested ID; "": any
	byName   bool   // the request names the pool
	at       *Lease // nil: there is no lease yet
	asking   bool   // a request is under way
	err      error  // of the request
	gone     bool   // it is not kept any more
	ours     bool   // a request since the last call has shown that the lease holds
	cancel   context.CancelFunc
	ttl      time.Duration
	resting  chan struct{} // closed when bpool knows that no call uses the lease; nil: it need not know
}

// affinitySession is the AFFINITY of pools whose instances a session keeps.
const affinitySession = "session"

// keep returns the instance of a pool with this ID, which the owner keeps from now on;
// with "", the one kept longest.
func (a *ownerLeases) keep(ctx context.Context, info *api.PoolStatus, id string, byName bool) (*Lease, error) {
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

// findLocked returns the kept or requested lease of the instance with this ID; with "", the first one of the pool
// that is there.
func (a *ownerLeases) findLocked(pool, id string) *keptLease {
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

// askLocked begins a request for the lease, or for whether it still holds.
func (a *ownerLeases) askLocked(k *keptLease) {
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
func (a *ownerLeases) request(ctx context.Context, k *keptLease) (*Lease, error) {
	pool := k.pool
	if !k.byName {
		pool = "" // an error speaks of the default pool
	}
	at, err := a.pool.lease(ctx, pool, k.instance, a.owner.Name(), true)
	if err != nil {
		return nil, err
	}
	if at.Hibernate != 0 {
		at.note = &hibernated{}
	}
	at.look = func(ctx context.Context) *api.Hibernation {
		if now := a.pool.instance(ctx, at.Pool, at.Instance); now != nil {
			return &now.Hibernation
		}
		return nil
	}
	return at, nil
}

// answered notes the answer to a request: the lease, how the kept one was lost, or an error.
func (a *ownerLeases) answered(k *keptLease, at *Lease, lost string, err error) {
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
		a.table.Set(k, uses.Rules{Rest: at.Hibernate, End: k.ttl})
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

// satisfyLocked ends the requests of callers that wait for any instance of the pool, or for this one: they get this
// lease.
func (a *ownerLeases) satisfyLocked(k *keptLease) {
	for _, other := range slices.Clone(a.all) {
		if other != k && other.pool == k.pool && other.at == nil &&
			(other.instance == "" || other.instance == k.at.Instance) {
			a.removeLocked(other)
			other.cancel()
		}
	}
}

func (a *ownerLeases) removeLocked(k *keptLease) {
	k.gone = true
	a.all = slices.DeleteFunc(a.all, func(other *keptLease) bool { return other == k })
	a.book.removeLocked(k)
}

// returned notes that a call has ended.
func (a *ownerLeases) returned(k *keptLease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returnedLocked(k)
}

func (a *ownerLeases) returnedLocked(k *keptLease) {
	a.leaveLocked(k)
	a.restLocked(k)
}

// restLocked tells bpool that the lease is not used, if no call uses it.
func (a *ownerLeases) restLocked(k *keptLease) {
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

// step stops the children of an instance that no call has used for a while, or releases the lease after its time to
// live. It returns the time at which something has used the lease instead.
func (k *keptLease) step(due uses.Due[usable]) (kept time.Time) {
	a := k.owner
	a.mu.Lock()
	at, isReady := k.at, !k.gone && !k.asking
	a.mu.Unlock()
	if !isReady || due.Step == uses.End && a.isTakenOver(at) {
		return time.Now()
	}
	if due.Step == uses.Rest {
		a.owner.StopChildren(func(b *Browser) bool { return b.HTTPURL == at.HTTPURL }, false)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case k.gone:
		return time.Now()
	case due.Step == uses.End:
		a.removeLocked(k)
		a.work.Go(at.Release)
	default:
		at.note.begin(at.Hibernate)
	}
	return kept
}

// isTakenOver reports whether a person has control of the session of a lease.
func (a *ownerLeases) isTakenOver(at *Lease) bool {
	now := a.pool.instance(a.ctx, at.Pool, at.Instance) // nil: the service has ended
	return now != nil && now.Lease == at.Lease && now.Control != nil
}

func (k *keptLease) group() *sync.WaitGroup { return &k.owner.work }

// Leave implements Browsers. The goroutine that is requesting a lease releases it.
func (a *ownerLeases) Leave() (release func()) {
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
