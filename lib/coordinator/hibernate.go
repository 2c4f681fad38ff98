package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// errUnused ends a child that nobody needs.
var errUnused = errors.New("its browser is not used")

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

// learnRestored finds out whether the browser of a call was hibernated before it.
func (s *Session) learnRestored(l *Lease) {
	n := l.nap
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.pending {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, endBound)
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

// stopUnused stops the children of browsers, and returns at once: the next calls
// start others. Stopped waits until they have ended.
func (s *Session) stopUnused(is func(*Browser) bool) (stopped func()) {
	var all []*process
	for _, sup := range s.children.list() {
		p := sup.running()
		if p == nil || !sup.child.drives || !is(&sup.browser) {
			continue
		}
		sup.proc.Forget(p)
		s.do(func() {
			p.fail(fmt.Errorf("child %s was stopped: %w", p.child.Name, errUnused))
			p.stop()
		})
		all = append(all, p)
	}
	return func() {
		for _, p := range all {
			<-p.ended
		}
	}
}

// newNap watches over a virtual browser.
func (s *Session) newNap(v *virtual) *nap {
	b := s.c.Source.parted()
	if b == nil {
		return nil
	}
	return &nap{
		after: b.sessions.Hibernate,
		rest:  func() { s.do(func() { s.restVirtual(v) }) },
		look:  func(ctx context.Context) (hibernation, bool) { return b.hibernation(ctx, v.name) },
	}
}

// restVirtual stops the children of a virtual browser that no call has used for
// its time.
func (s *Session) restVirtual(v *virtual) {
	busy := s.serves(v) // what is no tool's call
	h := &s.virtuals
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || v.gone != nil || v.calls > 0 || time.Since(v.rested) < v.nap.after:
	case busy:
		v.nap.start()
	default:
		s.stopUnused(v.is)
		v.nap.begin(v.nap.after)
	}
}

// hibernation returns how a session of the proxy is.
func (s *single) hibernation(ctx context.Context, name string) (now hibernation, ok bool) {
	for session := range jsonrpc.Elements(s.list(ctx)) {
		if session = jsonrpc.Get(session, "session"); jsonrpc.GetString(session, "name") == name {
			err := json.Unmarshal(session, &now)
			return now, err == nil
		}
	}
	return now, false
}

// newNap watches over an instance of a pool that is kept.
func (h *keeper) newNap(k *stickyLease, at *Lease) *nap {
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

// rest stops the children of an instance that no call has used for its time.
func (h *keeper) rest(k *stickyLease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := k.at.nap
	if h.closed || k.gone || k.asking != nil || k.calls+k.waiting > 0 || time.Since(k.rested) < n.after {
		return
	}
	h.s.stopUnused(func(b *Browser) bool { return b.HTTPURL == k.at.HTTPURL })
	n.begin(n.after)
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

// Away implements Host: it hibernates the virtual browsers that no call uses, and
// reports whether there are others.
func (s *Session) Away() (busy bool) {
	b := s.c.Source.parted()
	if b == nil {
		return false
	}
	h := &s.virtuals
	h.mu.Lock()
	var all []*virtual
	for _, v := range h.all {
		all = append(all, v)
	}
	h.mu.Unlock()
	for _, v := range all {
		busy = b.seats.free(v) || busy
	}
	return busy
}
