package source

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/control/api"
)

// takeLease leases a browser of the pool for a call.
func (b *ownerUse) takeLease(ctx context.Context, w BrowserRef) (*Lease, error) {
	info, err := b.pool.info(ctx, w.Pool)
	if err != nil {
		return nil, err
	}
	if info.Affinity != affinitySession {
		return b.pool.lease(ctx, w.Pool, w.Instance, b.owner.Name(), false)
	}
	return b.keep(ctx, &info, instanceID(&info, w.Instance), w.Pool != "")
}

// keptLease is a lease that an owner keeps. All calls that need it wait for the
// same request to bpool and share its error.
type keptLease struct {
	owner    *ownerUse
	pool     string
	instance string // requested ID; "": any
	byName   bool   // the request names the pool
	at       *Lease // nil: there is no lease yet
	phase    phase
	err      error // of the request
	cancel   context.CancelFunc
	ttl      time.Duration
}

// phase is what an owner knows of a lease that it keeps.
type phase int

const (
	unsure phase = iota // no call uses the lease, and bpool may have ended it
	asking              // a request is under way
	ours                // a request since the last call has shown that the lease holds
)

// affinitySession is the AFFINITY of pools whose instances a session keeps.
const affinitySession = "session"

// keep returns the instance of a pool with this ID, which the owner keeps from now on;
// with "", the one kept longest.
func (b *ownerUse) keep(ctx context.Context, info *api.PoolStatus, id string, byName bool) (*Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		k := b.findLocked(info.Name, id)
		if k == nil {
			k = &keptLease{owner: b, pool: info.Name, instance: id, byName: byName,
				ttl: time.Duration(info.LeaseTTL) * time.Millisecond}
			b.leases = append(b.leases, k)
			b.table.set(k, rules{})
		}
		for b.table.begin(k); b.table.knows(k) && !(k.phase == ours && b.table.ready(k)); {
			if k.phase == unsure && b.table.ready(k) {
				b.askLocked(k)
			}
			if err := b.waitLocked(ctx); err != nil {
				b.returnedLocked(k)
				if k.at == nil && k.phase == asking && b.table.calls(k) == 0 { // nobody waits for it any more
					k.cancel()
				}
				return nil, err
			}
		}
		if b.table.knows(k) {
			at := *k.at
			at.Release = func() { b.returned(k) }
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
func (b *ownerUse) findLocked(pool, id string) *keptLease {
	var asked *keptLease
	for _, k := range b.leases {
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
func (b *ownerUse) askLocked(k *keptLease) {
	ctx, cancel := context.WithCancel(b.ctx)
	at := k.at
	k.phase, k.cancel = asking, cancel
	b.work.Go(func() {
		defer cancel()
		if at == nil {
			at, err := b.request(ctx, k)
			b.answered(k, at, "", err)
			return
		}
		fresh := *at
		var holds bool
		if fresh.Died, fresh.ID, holds = at.granted.renew(ctx); !holds {
			b.answered(k, at, "had been ended"+at.notices.ending(), nil)
			return
		}
		if at.ID != "" && fresh.ID != at.ID {
			at.notices.await() // its reason
		}
		b.answered(k, &fresh, "", nil)
	})
}

// request leases an instance.
func (b *ownerUse) request(ctx context.Context, k *keptLease) (*Lease, error) {
	pool := k.pool
	if !k.byName {
		pool = "" // an error speaks of the default pool
	}
	at, err := b.pool.lease(ctx, pool, k.instance, b.owner.Name(), true)
	if err != nil {
		return nil, err
	}
	if at.Hibernate != 0 {
		at.note = &hibernated{}
	}
	at.look = func(ctx context.Context) *api.Hibernation {
		if now := b.pool.instance(ctx, at.Pool, at.Instance); now != nil {
			return &now.Hibernation
		}
		return nil
	}
	return at, nil
}

// answered notes the answer to a request: the lease, how the kept one was lost, or an error.
func (b *ownerUse) answered(k *keptLease, at *Lease, lost string, err error) {
	b.mu.Lock()
	drop := at
	switch {
	case !b.table.knows(k): // meanwhile: the session has ended, or has got another one
	case lost != "":
		b.dropLocked(k)
		b.loseLocked("", loss{pool: k.pool, text: fmt.Sprintf("this session's lease of instance %s of pool %s %s",
			at.Instance, k.pool, lost)})
	case err != nil:
		b.dropLocked(k)
		k.err = err
	case k.at == nil && b.table.calls(k) == 0:
		b.dropLocked(k)
	default:
		k.at, k.phase, drop = at, ours, nil
		b.table.set(k, rules{rest: at.Hibernate, end: k.ttl})
		if l := b.lost[""]; at.kept && l.pool == k.pool {
			l.back = true
			b.lost[""] = l
		}
		b.satisfyLocked(k)
	}
	b.restLocked(k)
	b.advanceLocked()
	b.mu.Unlock()
	if drop != nil {
		drop.Release()
	}
}

// satisfyLocked ends the requests of callers that wait for any instance of the pool, or for this one: they get this
// lease.
func (b *ownerUse) satisfyLocked(k *keptLease) {
	for _, other := range slices.Clone(b.leases) {
		if other != k && other.pool == k.pool && other.at == nil &&
			(other.instance == "" || other.instance == k.at.Instance) {
			b.dropLocked(other)
			other.cancel()
		}
	}
}

func (b *ownerUse) dropLocked(k *keptLease) {
	b.leases = slices.DeleteFunc(b.leases, func(other *keptLease) bool { return other == k })
	b.book.removeLocked(k)
}

// returned notes that a call has ended.
func (b *ownerUse) returned(k *keptLease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returnedLocked(k)
}

func (b *ownerUse) returnedLocked(k *keptLease) {
	b.leaveLocked(k)
	b.restLocked(k)
}

// restLocked tells bpool that the lease is not used, if no call uses it.
func (b *ownerUse) restLocked(k *keptLease) {
	if k.phase != ours || b.table.calls(k) > 0 || !b.table.knows(k) {
		return
	}
	k.phase = unsure
	at := k.at
	b.work.Go(func() {
		at.granted.rest(b.ctx, func() bool { // unless it is in use again
			b.mu.Lock()
			defer b.mu.Unlock()
			return k.phase == unsure
		})
	})
}

// step stops the children of an instance that no call has used for a while, or releases the lease after its time to
// live. It returns the time at which something has used the lease instead.
func (k *keptLease) step(due due[usable]) (kept time.Time) {
	b := k.owner
	b.mu.Lock()
	at, isReady := k.at, k.phase == unsure && b.table.knows(k)
	b.mu.Unlock()
	if !isReady || due.step == endStep && k.isTakenOver(at) {
		return time.Now()
	}
	if due.step == restStep {
		b.owner.StopChildren(func(b *Browser) bool { return b.HTTPURL == at.HTTPURL }, false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.table.knows(k):
		return time.Now()
	case due.step == endStep:
		b.dropLocked(k)
		b.work.Go(at.Release)
	default:
		at.note.begin(at.Hibernate)
	}
	return kept
}

// isTakenOver reports whether a person has control of the session of a lease.
func (k *keptLease) isTakenOver(at *Lease) bool {
	now := k.owner.pool.instance(k.owner.ctx, at.Pool, at.Instance) // nil: the service has ended
	return now != nil && now.Lease == at.Lease && now.Control != nil
}

func (k *keptLease) group() *sync.WaitGroup { return &k.owner.work }
