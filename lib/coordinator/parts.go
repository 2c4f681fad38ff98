package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/coordinator/tasks"
)

// virtuals are the virtual browsers of a host.
type virtuals struct {
	mu     sync.Mutex
	all    map[part]*virtual
	ended  map[part]bool   // that were not used for long, as the next result tells
	states map[part]string // those with which they start again
	closed bool
}

// part says which one a call is for: that with a session_id, in the browser with an ID.
type part struct {
	id       string // "": the host's own
	instance string // "": the browser that calls use which name none
}

// virtual is one of them.
type virtual struct {
	of *Session
	part
	name   string // that bproxy knows
	calls  int    // that use it now
	rested time.Time
	idle   *time.Timer
	nap    *nap          // nil: it is never hibernated
	gone   chan struct{} // closed when it has ended; nil: it is not to
	over   chan struct{} // closed when its end begins
	lost   string        // what has become of the one before, until that is told

	beginning sync.Mutex // held while it is started
	begunIn   string     // under beginning: the ID of the browser that it has been started in with its state
	state     string     // that it starts with; "": none. It stays the same
}

// partsOf is the one browser as a session uses it: all of it, or parts.
type partsOf struct {
	*single
	s *Session
}

func (s *single) Of(session *Session) Browsers { return partsOf{s, session} }

func (b partsOf) lost() loss { return loss{} }

func (b partsOf) Leave() (held []*Lease) {
	for _, v := range b.s.virtuals.close(b.s.c) {
		held = append(held, &Lease{Release: func() {
			b.end(v.instance, v.name)
			b.seats.remove(v)
		}})
	}
	return held
}

// Take returns the one browser for a call, or the part with its session_id.
func (b partsOf) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	if err := b.idle.enter(ctx); err != nil {
		return nil, err
	}
	at, err := b.takeEntered(ctx, w)
	if err != nil {
		b.idle.leave()
		return nil, err
	}
	return b.idle.held(at), nil
}

func (b partsOf) takeEntered(ctx context.Context, w BrowserRef) (*Lease, error) {
	s, id := b.s, w.Session
	switch {
	case w.State != "" && id == "":
		return nil, errors.New("state is for a call with a session_id: browser_state with the action load replaces " +
			"the login of this session")
	case s.virtualName(id) == "":
		return b.acquire(ctx)
	}
	var at *Lease
	var err error
	if w.Instance != "" {
		if at, err = b.joins.choose(ctx, w.Instance, s.virtualName(id)); err != nil {
			return nil, err
		}
	}
	var v *virtual
	for v == nil {
		var ending <-chan struct{}
		if v, ending, err = s.enter(partOn(id, at), w.State); err != nil {
			return nil, err
		}
		if v != nil {
			break
		}
		select {
		case <-ending:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err := b.seats.enter(ctx, v); err != nil {
		s.leave(v)
		return nil, err
	}
	if at == nil {
		at, err = b.acquire(ctx)
	}
	if err == nil && s.isOver(v) {
		err = errBrowserDied
	}
	if err == nil {
		err = b.begin(ctx, v, at)
	}
	if err != nil {
		b.rest(v)
		return nil, err
	}
	return b.leaseOf(v, at), nil
}

// partOn is a part of a browser that a call has named; nil: it has named none.
func partOn(id string, at *Lease) part {
	if at == nil {
		return part{id: id}
	}
	return part{id, at.Instance} // none, if it is the browser that other calls use
}

// begin starts a virtual browser with its state, once in each browser. If it cannot be
// started at first, another call may name another state.
func (b partsOf) begin(ctx context.Context, v *virtual, at *Lease) error {
	v.beginning.Lock()
	defer v.beginning.Unlock()
	if v.state == "" || v.begunIn == at.ID {
		return nil
	}
	err := b.newSession(ctx, v.name, v.state)
	var e *control.Error
	if errors.As(err, &e) && e.Code == control.SessionExists { // it came back after a crash
		err = nil
	}
	switch {
	case err == nil:
		v.begunIn = at.ID
	case v.begunIn == "":
		b.s.do(func() { b.s.endVirtual(v.part) })
	}
	return explain(err)
}

// hasBegun reports whether begin has nothing to do.
func (v *virtual) hasBegun(at *Lease) bool {
	if v.state == "" {
		return true
	}
	v.beginning.Lock()
	defer v.beginning.Unlock()
	return v.begunIn == at.ID
}

// beginsAgain has the virtual browser with a name, which ends, start with its state
// again.
func (c *Coordinator) beginsAgain(name string) {
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		s.virtuals.mu.Lock()
		for _, v := range s.virtuals.all {
			if v.name == name {
				v.beginning.Lock()
				v.begunIn = ""
				v.beginning.Unlock()
			}
		}
		s.virtuals.mu.Unlock()
	}
}

// isOver reports whether a virtual browser is being ended, or has been.
func (s *Session) isOver(v *virtual) bool {
	s.virtuals.mu.Lock()
	defer s.virtuals.mu.Unlock()
	return v.gone != nil
}

// TryTake is take without waiting; it returns nil if something has to be waited
// for.
func (b partsOf) TryTake(w BrowserRef) *Lease {
	if b.idle.tryEnter() != nil {
		return nil
	}
	at := b.tryTakeEntered(w)
	if at == nil {
		b.idle.leave()
		return nil
	}
	return b.idle.held(at)
}

func (b partsOf) tryTakeEntered(w BrowserRef) *Lease {
	s, id := b.s, w.Session
	var named *Lease
	at := b.up()
	if w.Instance != "" {
		named = b.joins.tryChoose(w.Instance, s.virtualName(id))
		at = named
	}
	if at != nil && s.virtualName(id) == "" && w.State == "" {
		return at
	}
	if at == nil || s.virtualName(id) == "" {
		return nil
	}
	v, _, err := s.enter(partOn(id, named), w.State)
	if err != nil || v == nil {
		return nil
	}
	if !v.hasBegun(at) || !b.seats.tryEnter(v) {
		s.leave(v)
		return nil
	}
	return b.leaseOf(v, at)
}

// Queue is where tasks wait for the one browser, or for a part of it.
func (s *single) Queue(session *Session, w BrowserRef) tasks.Queue {
	return tasks.Queue{Key: "part " + w.Instance + " " + session.virtualName(w.Session), Slots: 1}
}

// rest notes that a call on a virtual browser with a place has ended.
func (b partsOf) rest(v *virtual) {
	b.s.leave(v)
	b.seats.leave(v)
}

func (b partsOf) leaseOf(v *virtual, at *Lease) *Lease {
	p := *at
	p.Browser, p.virtual, p.nap = at.part(v.name), v, v.nap
	p.Release = func() { b.rest(v) }
	p.lapse = func() <-chan struct{} { return v.over }
	return &p
}

// enter counts a call on a virtual browser, which starts with a state if it has one. If
// the browser is being ended, it returns a channel that is closed then.
func (s *Session) enter(id part, state string) (v *virtual, ending <-chan struct{}, err error) {
	h := &s.virtuals
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errEnded
	}
	v = h.all[id]
	if v != nil && v.gone != nil {
		return nil, v.gone, nil
	}
	if v != nil && state != "" && v.state != state {
		return nil, nil, fmt.Errorf("the session %q is open already: state is for its first call, and browser_state "+
			"with the action load replaces its login", id.id)
	}
	if v == nil {
		if err := s.roomLocked(id); err != nil {
			return nil, nil, err
		}
		if state == "" {
			state = h.states[id]
		}
		v = &virtual{of: s, part: id, name: s.virtualName(id.id), over: make(chan struct{}), state: state}
		v.nap = s.newNap(v)
		if h.ended[id] {
			delete(h.ended, id)
			v.lost = fmt.Sprintf("this browser had not been used for %v and was ended",
				s.c.Source.parted().sessions.Idle)
		}
		if h.all == nil {
			h.all = map[part]*virtual{}
		}
		h.all[id] = v
	}
	v.calls++
	if v.idle != nil {
		v.idle.Stop()
	}
	return v, nil, nil
}

// roomLocked counts a session_id, or returns why there may be no other.
func (s *Session) roomLocked(id part) error {
	if id == (part{}) {
		return nil
	}
	const hint = "coordinator_stop_browser with a session_id ends one"
	some := len(s.virtuals.all)
	if s.virtuals.all[part{}] != nil {
		some--
	}
	if some >= s.c.Limits.SessionIDsOfHost && !s.requests.table.Shared { // whose hosts know nothing of each other
		return fmt.Errorf("there are %d session_ids in use, and no more are allowed: %s", some, hint)
	}
	if s.c.ids.Add(1) > int64(s.c.Limits.SessionIDs) {
		s.c.ids.Add(-1)
		return fmt.Errorf("there are %d session_ids of all hosts in use, and no more are allowed: %s",
			s.c.Limits.SessionIDs, hint)
	}
	return nil
}

// leave notes that a call has ended. A virtual browser that has not been used for
// long ends.
func (s *Session) leave(v *virtual) {
	s.virtuals.mu.Lock()
	defer s.virtuals.mu.Unlock()
	v.calls--
	s.restLocked(v)
}

func (s *Session) restLocked(v *virtual) {
	idle := s.c.Source.parted().sessions.Idle
	if v.calls > 0 || v.gone != nil || s.virtuals.closed {
		return
	}
	v.rested = time.Now()
	v.nap.start()
	switch {
	case idle == 0:
		return
	case v.idle != nil:
		v.idle.Reset(idle)
		return
	}
	v.idle = time.AfterFunc(idle, func() { s.do(func() { s.expireVirtual(v, idle) }) })
}

// expireVirtual ends a virtual browser that has not been used.
func (s *Session) expireVirtual(v *virtual, idle time.Duration) {
	busy := s.serves(v) // what is no tool's call
	h := &s.virtuals
	h.mu.Lock()
	if busy {
		s.restLocked(v)
	}
	over := !h.closed && v.gone == nil && v.calls == 0 && time.Since(v.rested) >= idle
	if over {
		v.gone = make(chan struct{})
		close(v.over)
		if len(h.ended) >= maxGiven {
			clear(h.ended)
			clear(h.states)
		}
		if h.ended == nil {
			h.ended, h.states = map[part]bool{}, map[part]string{}
		}
		h.ended[v.part] = true
		if v.state != "" {
			h.states[v.part] = v.state
		}
	}
	h.mu.Unlock()
	if over {
		s.finishVirtual(v)
	}
}

// is reports whether a browser is this one.
func (v *virtual) is(b *Browser) bool { return b.Session == v.name && b.Instance == v.instance }

// serves reports whether a child of a virtual browser is answering something.
func (s *Session) serves(v *virtual) (busy bool) {
	s.read(func(t *table) {
		busy = t.Any(func(r *pendingRequest) bool {
			p, _ := r.Child()
			return p != nil && v.is(&p.browser)
		})
	})
	return busy
}

// endVirtual ends a virtual browser now, with the calls on it. The next call gets
// a new one.
func (s *Session) endVirtual(id part) {
	h := &s.virtuals
	h.mu.Lock()
	v := h.all[id]
	if v == nil || h.closed {
		h.mu.Unlock()
		return
	}
	ending := v.gone
	if ending == nil {
		v.gone = make(chan struct{})
		close(v.over)
		if v.idle != nil {
			v.idle.Stop()
		}
	}
	h.mu.Unlock()
	if ending != nil {
		<-ending
		return
	}
	s.finishVirtual(v)
}

// finishVirtual ends a virtual browser and the children that are for it.
func (s *Session) finishVirtual(v *virtual) {
	supervisors := s.children.remove(v.is)
	s.seen.forget(seenKey(&Browser{Instance: v.instance, Session: v.name}))
	b := s.c.Source.parted()
	b.end(v.instance, v.name) // whatever its children do
	var wg sync.WaitGroup
	for _, sup := range supervisors {
		wg.Go(sup.stop)
	}
	wg.Wait()
	b.end(v.instance, v.name) // which one may have made again
	b.seats.remove(v)
	h := &s.virtuals
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[v.part] == v {
		delete(h.all, v.part)
		if v.part != (part{}) {
			s.c.ids.Add(-1)
		}
	}
	close(v.gone)
}

// close prevents further calls. It returns the virtual browsers, which are to be
// ended.
func (h *virtuals) close(c *Coordinator) (all []*virtual) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for id, v := range h.all {
		if v.idle != nil {
			v.idle.Stop()
		}
		if id != (part{}) {
			c.ids.Add(-1)
		}
		all = append(all, v)
	}
	h.all = nil
	return all
}

// sessionsOf are the names of the virtual browsers that children are for, each with the
// browser that it is in.
func sessionsOf(supervisors map[string]*supervisor) map[[2]string]bool {
	all := map[[2]string]bool{}
	for _, sup := range supervisors {
		if b := &sup.browser; b.Session != "" { // else it is a whole browser
			all[[2]string{b.Instance, b.Session}] = true
		}
	}
	return all
}
