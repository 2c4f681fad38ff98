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

// nap watches over one browser that can be hibernated, under the lock of its owner's browsers. Nil: it is not.
type nap struct {
	after time.Duration // 0: only when others need its place, or its host is gone
	rest  func()        // stops the browser's children, unless a call uses it
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
func (n *nap) start() {
	if n != nil && n.after > 0 {
		start(&n.timer, n.after, n.rest)
	}
}

// begin notes that the browser has lost its children, as it was not used for so long.
func (n *nap) begin(unused time.Duration) { n.pending, n.unused = true, unused }

// now is how the browser of a lease is; nil: that is not known.
func (l *Lease) now(ctx context.Context) *hibernation {
	if l.look == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return l.look(ctx)
}

// restPart stops the children of a virtual browser that no call has used for its
// time. Calls that come meanwhile wait.
func (b *parts) restPart(v *virtual) {
	busy := b.owner.Busy(v.is) // with what is no tool's call
	b.mu.Lock()
	rests := !b.closed && v.gone == nil && v.calls == 0 && time.Since(v.rested) >= v.nap.after
	if rests && busy {
		v.nap.start()
		rests = false
	}
	stopping := make(chan struct{})
	if rests {
		v.stopping = stopping
	}
	b.mu.Unlock()
	if !rests {
		return
	}
	b.owner.StopChildren(v.is, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	v.nap.begin(v.nap.after)
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
func (h *keeper) watchOver(k *keptLease, at *Lease) {
	if at.Hibernate == 0 {
		return
	}
	at.nap = &nap{after: at.Hibernate, rest: func() { h.rest(k) }}
	at.look = func(ctx context.Context) *hibernation {
		if now := h.source.instanceNow(ctx, at.Pool, at.Instance); now != nil {
			return &now.hibernation
		}
		return nil
	}
}

// rest stops the children of an instance that no call has used for its time. Calls
// that come meanwhile wait, as for a request.
func (h *keeper) rest(k *keptLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := k.at
	if h.closed || k.gone || k.asking != nil || k.calls+k.waiting > 0 || time.Since(k.rested) < at.nap.after {
		return
	}
	stopping := make(chan struct{})
	k.asking = stopping
	h.work.Go(func() {
		h.owner.StopChildren(func(b *Browser) bool { return b.HTTPURL == at.HTTPURL }, false)
		h.mu.Lock()
		at.nap.begin(at.nap.after)
		k.asking = nil
		close(stopping)
		gone := k.gone
		h.mu.Unlock()
		if gone { // meanwhile, and not released then
			at.Release()
		}
	})
}

// instanceNow returns how an instance is now; nil: it is not known.
func (s *pooled) instanceNow(ctx context.Context, pool, instance string) *poolInstance {
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
		used = b.seats.free(v) || used
	}
	return used
}
