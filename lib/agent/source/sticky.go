package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"btools/lib/coordinator/tasks"
)

// keeper keeps leases of pool instances for a session between its calls.
type keeper struct {
	use
	source *pooled
	all    []*keptLease // under the lock of use
}

func (s *pooled) Of(ctx context.Context, o Owner, _ bool) Browsers {
	return &keeper{use: use{owner: o, ctx: ctx}, source: s}
}

func (h *keeper) Target(ctx context.Context) (Browser, error)    { return h.source.target(ctx) }
func (h *keeper) Targets(ctx context.Context) ([]Browser, error) { return h.source.targets(ctx) }
func (h *keeper) Queue(w BrowserRef) tasks.Queue                 { return h.source.queue(h.owner.Name(), w) }

// Take leases a browser for a call: its own, or, with AFFINITY=session, the one
// that the session keeps.
func (h *keeper) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	info, err := h.source.info(ctx, w.Pool)
	if err != nil {
		return nil, err
	}
	if info.Affinity != affinitySession {
		return h.source.grant(ctx, w.Pool, w.Instance, h.owner.Name(), false)
	}
	return h.keep(ctx, &info, info.id(w.Instance), w.Pool != "")
}

func (h *keeper) Status(ctx context.Context, pool string) (Status, error) {
	raw, err := h.source.status(ctx, pool)
	return Status{Pools: raw}, Explain(err)
}

// keptLease is a lease that a session keeps. All calls that need it wait for the
// same request to bpool and share its error.
type keptLease struct {
	pool     string
	instance string        // that is asked for; "": any
	byName   bool          // the pool was asked for by its name
	at       *Lease        // nil: there is no lease yet
	asking   chan struct{} // closed when the request is over; nil: none is under way
	err      error         // of the request
	gone     bool          // it is not kept any more
	ours     bool          // as a request has shown since the last call
	cancel   context.CancelFunc
	waiting  int // calls that wait for the request
	calls    int // that use it now
	ttl      time.Duration
	rested   time.Time     // when the last call was over
	resting  chan struct{} // closed when bpool knows that; nil: it need not
	idle     *time.Timer
}

// affinitySession is the AFFINITY of pools whose instances a session keeps.
const affinitySession = "session"

// keep returns an instance of a pool that the session keeps from now on: the one
// with the ID, or, with "", the one that it has kept longest.
func (h *keeper) keep(ctx context.Context, info *poolInfo, id string, byName bool) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.closed {
		k := h.findLocked(info.Name, id)
		if k == nil {
			k = &keptLease{pool: info.Name, instance: id, byName: byName,
				ttl: time.Duration(info.LeaseTTL) * time.Millisecond}
			h.all = append(h.all, k)
		}
		if k.asking == nil && !k.ours {
			h.askLocked(k)
		}
		if k.asking == nil {
			k.calls++
			at := *k.at
			at.Release = func() { h.returned(k) }
			return &at, nil
		}
		asking := k.asking
		k.waiting++
		h.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		h.mu.Lock()
		k.waiting--
		if ctx.Err() != nil {
			if k.at == nil && k.asking != nil && k.waiting == 0 { // nobody waits for it any more
				k.cancel()
			}
			h.restLocked(k)
			return nil, context.Cause(ctx)
		}
		if k.err != nil {
			return nil, k.err
		}
	}
	return nil, ErrEnded
}

// findLocked returns what is kept of a pool, or requested: the instance with the
// ID; with "", the first one with a lease.
func (h *keeper) findLocked(pool, id string) *keptLease {
	var asked *keptLease
	for _, k := range h.all {
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
func (h *keeper) askLocked(k *keptLease) {
	ctx, cancel := context.WithCancel(h.ctx)
	asking, at, resting := make(chan struct{}), k.at, k.resting
	k.asking, k.cancel, k.resting = asking, cancel, nil
	h.work.Go(func() {
		defer cancel()
		var err error
		had := at != nil
		again := had
		if again {
			if resting != nil {
				<-resting // before it is in use again
			}
			fresh := *at
			if fresh.Died, fresh.ID, again = at.renew(ctx); again {
				if at.ID != "" && fresh.ID != at.ID {
					at.notices.await() // its reason
				}
				at = &fresh
			}
		} else {
			pool := k.pool
			if !k.byName {
				pool = "" // an error speaks of the default pool
			}
			at, err = h.source.grant(ctx, pool, k.instance, h.owner.Name(), true)
			if err == nil {
				h.watchOver(k, at)
			}
		}
		why := ""
		if had && !again {
			why = at.notices.ending()
		}
		h.mu.Lock()
		drop := at
		switch {
		case k.gone: // meanwhile: the session has ended, or has got another one
		case k.at != nil && !again: // somebody has ended the lease
			h.removeLocked(k)
			h.loseLocked("", loss{pool: k.pool, what: fmt.Sprintf(
				"this session's lease of instance %s of pool %s had been ended", k.at.Instance, k.at.Pool) + why})
		case err != nil:
			h.removeLocked(k)
			k.err = err
		case k.at == nil && k.waiting == 0:
			h.removeLocked(k)
		default:
			k.at, k.ours, drop = at, true, nil
			if l := h.lost[""]; at.kept && l.pool == k.pool {
				l.back = true
				h.lost[""] = l
			}
			h.satisfyLocked(k)
		}
		if k.asking != nil {
			close(k.asking)
			k.asking = nil
		}
		h.restLocked(k)
		h.mu.Unlock()
		if drop != nil {
			drop.Release()
		}
	})
}

// satisfyLocked serves callers that wait for another instance of the pool, or for
// the same one, with the one that is there now: nobody else returns it.
func (h *keeper) satisfyLocked(k *keptLease) {
	for _, other := range slices.Clone(h.all) {
		if other != k && other.pool == k.pool && other.at == nil &&
			(other.instance == "" || other.instance == k.at.Instance) {
			h.removeLocked(other)
			other.cancel()
			close(other.asking)
			other.asking = nil
		}
	}
}

func (h *keeper) removeLocked(k *keptLease) {
	k.gone = true
	h.all = slices.DeleteFunc(h.all, func(other *keptLease) bool { return other == k })
}

// returned notes that a call has ended.
func (h *keeper) returned(k *keptLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k.calls--
	h.restLocked(k)
}

// restLocked notes that no call uses an instance.
func (h *keeper) restLocked(k *keptLease) {
	if k.gone || k.at == nil || k.asking != nil || k.calls+k.waiting > 0 {
		return
	}
	k.ours = false
	k.rested = time.Now()
	at, told := k.at, make(chan struct{})
	k.resting = told
	h.work.Go(func() {
		defer close(told)
		at.rest(h.ctx)
	})
	k.at.nap.start()
	start(&k.idle, k.ttl, func() { h.lapse(k) })
}

// lapse releases an instance that no call has used for its time to live.
func (h *keeper) lapse(k *keptLease) {
	h.mu.Lock()
	over := !k.gone && k.asking == nil && k.calls+k.waiting == 0 && time.Since(k.rested) >= k.ttl
	if over {
		h.removeLocked(k)
	}
	h.mu.Unlock()
	if over {
		k.at.Release()
	}
}

// Leave prevents further leases. A lease that is being requested is released by the
// goroutine that requests it.
func (h *keeper) Leave() (release func()) {
	var held []*Lease
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, k := range h.all {
		k.gone = true
		if k.asking == nil {
			held = append(held, k.at)
		}
	}
	h.all = nil
	return func() {
		for _, at := range held {
			h.work.Go(at.Release)
		}
		h.work.Wait()
	}
}
