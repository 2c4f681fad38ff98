package source

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Bproxy and bpool hibernate a browser that no client is connected to: they save
// it and free its pages. Children stay connected to theirs for days. So the
// children of a browser that no call has used for a while are stopped, and the
// next call starts them again, which brings the browser back.

// idleChildren watches over one browser that can be hibernated, under the lock of its owner's browsers. Nil: it is not.
type idleChildren struct {
	after time.Duration // 0: only when others need its place, or its host is gone
	stop  func()        // stops the browser's children, unless a call uses it
	timer *time.Timer

	pending bool          // it may have been hibernated since its last result
	unused  time.Duration // it had not been used for, then
	told    string        // when it had come back before the last result that told so
}

// hibernation is what bproxy and bpool say of a browser.
type hibernation struct {
	Hibernated bool   `json:"hibernated,omitempty"`
	RestoredAt string `json:"restored_at,omitempty"` // when it came back last; "": never
}

// start starts the time until the browser's children are stopped.
func (n *idleChildren) start() {
	if n != nil && n.after > 0 {
		start(&n.timer, n.after, n.stop)
	}
}

// begin notes that the browser has lost its children, as it was not used for so long.
func (n *idleChildren) begin(unused time.Duration) { n.pending, n.unused = true, unused }

// now is how the browser of a lease is; nil: that is not known.
func (l *Lease) now(ctx context.Context) *hibernation {
	if l.look == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return l.look(ctx)
}

// stopChildren stops the children of a virtual browser that no call has used for its
// time. Calls that come meanwhile wait.
func (b *parts) stopChildren(v *part) {
	busy := b.owner.Busy(v.matches) // with what is no tool's call
	b.mu.Lock()
	unused := !b.closed && v.gone == nil && v.calls == 0 && time.Since(v.rested) >= v.children.after
	if unused && busy {
		v.children.start()
		unused = false
	}
	stopping := make(chan struct{})
	if unused {
		v.stopping = stopping
	}
	b.mu.Unlock()
	if !unused {
		return
	}
	b.owner.StopChildren(v.matches, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	v.children.begin(v.children.after)
	v.stopping = nil
	close(stopping)
}

// lookAt returns what tells how a session is.
func (s *oneBrowser) lookAt(name string) func(context.Context) *hibernation {
	return func(ctx context.Context) *hibernation {
		now := &hibernation{}
		if json.Unmarshal(s.session(ctx, "", name), now) != nil {
			return nil
		}
		return now
	}
}

// watchOver has an instance of a pool that is kept hibernated.
func (a *affinity) watchOver(k *keptLease, at *Lease) {
	if at.Hibernate == 0 {
		return
	}
	at.children = &idleChildren{after: at.Hibernate, stop: func() { a.stopChildren(k) }}
	at.look = func(ctx context.Context) *hibernation {
		if now := a.pool.instanceNow(ctx, at.Pool, at.Instance); now != nil {
			return &now.hibernation
		}
		return nil
	}
}

// stopChildren stops the children of an instance that no call has used for its time. Calls
// that come meanwhile wait, as for a request.
func (a *affinity) stopChildren(k *keptLease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := k.at
	if a.closed || k.gone || k.asking != nil || k.calls+k.waiting > 0 || time.Since(k.rested) < at.children.after {
		return
	}
	stopping := make(chan struct{})
	k.asking = stopping
	a.work.Go(func() {
		a.owner.StopChildren(func(b *Browser) bool { return b.HTTPURL == at.HTTPURL }, false)
		a.mu.Lock()
		at.children.begin(at.children.after)
		k.asking = nil
		close(stopping)
		gone := k.gone
		a.mu.Unlock()
		if gone { // meanwhile, and not released then
			at.Release()
		}
	})
}

// instanceNow returns how an instance is now; nil: it is not known.
func (s *pool) instanceNow(ctx context.Context, pool, instance string) *poolInstance {
	raw, err := s.status(ctx, pool)
	var st poolStatus
	if err != nil || json.Unmarshal(raw, &st) != nil || len(st.Pools) != 1 {
		return nil
	}
	return st.Pools[0].instance(instance)
}

// Away hibernates the virtual browsers that no call uses.
func (b *parts) Away() (used bool) {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.all))
	b.mu.Unlock()
	for _, v := range all {
		used = b.admission.hibernateNow(v) || used
	}
	return used
}
