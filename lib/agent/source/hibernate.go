package source

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"btools/lib/jsonrpc"
)

// Bproxy and bpool hibernate a browser that no client is connected to: they save
// it and free its pages. Children stay connected to theirs for days. So the
// children of a browser that no call has used for a while are stopped, and the
// next call starts them again, which brings the browser back.

// nap watches over one browser that can be hibernated. Nil: it is not.
type nap struct {
	after time.Duration // 0: only when others need its place, or its host is gone
	// rest stops the browser's children, unless a call uses it.
	rest func()
	// look returns how the browser is; false: this is not known.
	look func(context.Context) (hibernation, bool)

	timer *time.Timer // under the lock of the browser's calls

	mu      sync.Mutex
	pending bool   // it may have been hibernated since its last result
	why     string // that was
	told    string // when it had come back before the last result that told so
}

// hibernation is what bproxy and bpool say of a browser.
type hibernation struct {
	Hibernated bool   `json:"hibernated,omitempty"`
	RestoredAt string `json:"restored_at,omitempty"` // when it came back last; "": never
}

// start starts the time until the browser's children are stopped.
func (n *nap) start() {
	switch {
	case n == nil || n.after == 0:
	case n.timer == nil:
		n.timer = time.AfterFunc(n.after, n.rest)
	default:
		n.timer.Reset(n.after)
	}
}

// begin notes that the browser has lost its children, as it was not used for so long.
func (n *nap) begin(unused time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = true
	n.why = fmt.Sprintf("had not been used for %v", unused)
}

// LearnRestored finds out whether the browser of a call was hibernated before it.
func (l *Lease) LearnRestored(ctx context.Context) {
	n := l.nap
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.pending {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	now, ok := n.look(ctx)
	if !ok || now.Hibernated { // the call did not need it
		return
	}
	n.pending = false
	if now.RestoredAt != n.told { // else its children were back early enough
		n.told = now.RestoredAt
		l.restored = fmt.Sprintf("this browser %s and was hibernated; its pages were reloaded", n.why)
	}
}

// newNap watches over a virtual browser.
func (b *parts) newNap(v *virtual) *nap {
	if b.Kind() == SharedProfile {
		return nil
	}
	return &nap{
		after: b.sessions.Hibernate,
		rest:  func() { b.do(func() { b.restPart(v) }) },
		look:  func(ctx context.Context) (hibernation, bool) { return b.hibernation(ctx, v.name) },
	}
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
	v.nap.begin(v.nap.after)
	b.mu.Lock()
	defer b.mu.Unlock()
	v.stopping = nil
	close(stopping)
}

// hibernation returns how a session of the proxy is.
func (s *proxied) hibernation(ctx context.Context, name string) (now hibernation, ok bool) {
	for session := range jsonrpc.Elements(s.list(ctx)) {
		if session = jsonrpc.Get(session, "session"); jsonrpc.GetString(session, "name") == name {
			err := json.Unmarshal(session, &now)
			return now, err == nil
		}
	}
	return now, false
}

// newNap watches over an instance of a pool that is kept.
func (h *keeper) newNap(k *keptLease, at *Lease) *nap {
	if at.Hibernate == 0 {
		return nil
	}
	return &nap{
		after: at.Hibernate,
		rest:  func() { h.rest(k) },
		look: func(ctx context.Context) (hibernation, bool) {
			now, ok := h.source.instanceNow(ctx, at.Pool, at.Instance)
			return now.hibernation, ok
		},
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
		at.nap.begin(at.nap.after)
		h.mu.Lock()
		k.asking = nil
		close(stopping)
		gone := k.gone
		h.mu.Unlock()
		if gone { // meanwhile, and not released then
			at.Release()
		}
	})
}

// instanceNow returns how an instance is now.
func (s *pooled) instanceNow(ctx context.Context, pool, instance string) (now poolInstance, ok bool) {
	raw, err := s.status(ctx, pool)
	var st poolStatus
	if err != nil || json.Unmarshal(raw, &st) != nil || len(st.Pools) != 1 {
		return now, false
	}
	all := st.Pools[0].Instances
	i := slices.IndexFunc(all, func(i poolInstance) bool { return i.ID == instance })
	if i < 0 {
		return now, false
	}
	return all[i], true
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
