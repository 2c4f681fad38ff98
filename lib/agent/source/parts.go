package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/control"
	"btools/lib/coordinator/tasks"
)

// parts are the one browser as an owner uses it: all of it, or virtual browsers on
// it.
type parts struct {
	use
	*oneBrowser
	shared bool // the owner is several hosts, which know nothing of each other

	// Under the lock of use:
	all    map[partKey]*part
	states map[partKey]string // with which those start again that have ended
}

// partKey says which one a call is for: that with a session_id, in the browser with an ID.
type partKey struct {
	id       string // "": the host's own
	instance string // "": the browser that calls use which name none
}

// part is one of them.
type part struct {
	owner *parts
	partKey
	name     string // that bproxy knows
	calls    int    // that use it now
	rested   time.Time
	idle     *time.Timer
	children idleChildren
	gone     chan struct{} // closed when it has ended; nil: it is not to
	over     chan struct{} // closed when its end begins
	// stopping is closed when its children are being stopped no more; nil: they are not.
	stopping chan struct{}

	state     string        // that it starts with; "": none. It stays the same
	beginning chan struct{} // closed when it has been started with its state, or cannot be; nil: no call does that
	begunIn   begun         // where it has been
}

// begun is a browser, and how many sessions had ended there with their last tab.
type begun struct {
	id        string
	emptyings int64
}

func (b *parts) Target(ctx context.Context) (Browser, error) {
	at, err := b.target(ctx)
	return at.part(b.nameOf("")), err
}

func (b *parts) Early() bool { return b.up("", "") == nil }

// do runs a function in a goroutine that the owner's end waits for, unless that has
// begun.
func (b *parts) do(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.work.Go(f)
	}
}

func (b *parts) Leave() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return func() {}
	}
	all := b.all
	b.closed, b.all = true, nil
	for id, v := range all {
		if v.idle != nil {
			v.idle.Stop()
		}
		if id != (partKey{}) {
			b.ids.Add(-1)
		}
	}
	if name := b.nameOf(""); all[partKey{}] == nil && name != "" {
		all[partKey{}] = &part{name: name} // a child may be connected to it, though no call has used it
	}
	return func() {
		for _, v := range all {
			b.work.Go(func() {
				b.end(v.instance, v.name)
				b.admission.remove(v)
			})
		}
		b.work.Wait()
	}
}

// Take returns the one browser for a call, or the part with its session_id.
func (b *parts) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
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

func (b *parts) takeEntered(ctx context.Context, w BrowserRef) (*Lease, error) {
	id := w.Session
	switch {
	case w.State != "" && id == "":
		return nil, errors.New("state is for a call with a session_id: browser_state with the action load replaces " +
			"the login of this session")
	case b.nameOf(id) == "":
		return b.acquire(ctx, "", "")
	}
	var at *Lease
	var err error
	which := partKey{id: id}
	if w.Instance != "" {
		if at, err = b.acquire(ctx, w.Instance, b.nameOf(id)); err != nil {
			return nil, err
		}
		which.instance = at.Instance // none, if it is the browser that other calls use
	}
	var v *part
	for v == nil {
		var ending <-chan struct{}
		if v, ending, err = b.enter(which, w.State); err != nil {
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
	if err := b.admission.enter(ctx, v); err != nil {
		b.leave(v)
		return nil, err
	}
	if at == nil {
		at, err = b.acquire(ctx, "", "")
	}
	if err == nil && b.isOver(v) {
		err = ErrBrowserDied
	}
	if err == nil {
		err = b.begin(ctx, v, at)
	}
	if err != nil {
		b.release(v)
		return nil, err
	}
	return b.leaseOf(v, at), nil
}

// begin starts a virtual browser with its state, once in each browser. If it cannot be
// started at first, another call may name another state.
func (b *parts) begin(ctx context.Context, v *part, at *Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v.beginning != nil {
		beginning := v.beginning
		b.mu.Unlock()
		select {
		case <-beginning:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	in := begun{at.ID, b.emptyings.Load()}
	if v.state == "" || v.begunIn == in {
		return nil
	}
	v.beginning = make(chan struct{})
	b.mu.Unlock()
	err := b.newSession(ctx, v.name, v.state)
	b.mu.Lock()
	close(v.beginning)
	v.beginning = nil
	var e *control.Error
	if errors.As(err, &e) && e.Code == control.SessionExists { // it came back after a crash
		err = nil
	}
	switch {
	case err == nil:
		v.begunIn = in
	case v.begunIn == begun{} && !b.closed:
		b.work.Go(func() { b.expel(v.partKey) })
	}
	return Explain(err)
}

// hasBegun reports whether begin has nothing to do and to wait for.
func (b *parts) hasBegun(v *part, at *Lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return v.state == "" || v.beginning == nil && v.begunIn == begun{at.ID, b.emptyings.Load()}
}

// isOver reports whether a virtual browser is being ended, or has been.
func (b *parts) isOver(v *part) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return v.gone != nil
}

func (b *parts) TryTake(w BrowserRef) *Lease {
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

func (b *parts) tryTakeEntered(w BrowserRef) *Lease {
	id := w.Session
	name := b.nameOf(id)
	at := b.up(w.Instance, name)
	if at != nil && name == "" && w.State == "" {
		return at
	}
	if at == nil || name == "" {
		return nil
	}
	v, _, err := b.enter(partKey{id, at.Instance}, w.State)
	if err != nil || v == nil {
		return nil
	}
	if !b.hasBegun(v, at) || !b.admission.tryEnter(v) {
		b.leave(v)
		return nil
	}
	return b.leaseOf(v, at)
}

func (b *parts) Queue(w BrowserRef) tasks.Queue {
	return tasks.Queue{Key: "part " + w.Instance + " " + b.nameOf(w.Session), Slots: 1}
}

func (b *parts) Waiting(w BrowserRef) func() (ahead int, waits bool) {
	if b.Kind() == SharedProfile || b.sessions.MaxBrowsers == 0 {
		return nil
	}
	return func() (int, bool) {
		b.mu.Lock()
		v := b.all[partKey{id: w.Session}]
		b.mu.Unlock()
		return b.admission.ahead(v)
	}
}

// release notes that a call on a virtual browser with a place has ended.
func (b *parts) release(v *part) {
	b.leave(v)
	b.admission.leave(v)
}

func (b *parts) leaseOf(v *part, at *Lease) *Lease {
	p := *at
	p.Browser, p.children, p.look = at.part(v.name), &v.children, b.lookAt(v.name)
	p.Release = func() { b.release(v) }
	p.Lapse = func() <-chan struct{} { return v.over }
	return &p
}

// enter counts a call on a virtual browser, which starts with a state if it has one. If
// the browser is being ended, or its children stopped, it returns a channel that is
// closed then.
func (b *parts) enter(id partKey, state string) (v *part, ending <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, ErrEnded
	}
	v = b.all[id]
	switch {
	case v != nil && v.gone != nil:
		return nil, v.gone, nil
	case v != nil && v.stopping != nil:
		return nil, v.stopping, nil
	}
	if v != nil && state != "" && v.state != state {
		return nil, nil, fmt.Errorf("the session %q is open already: state is for its first call, and browser_state "+
			"with the action load replaces its login", id.id)
	}
	if v == nil {
		if err := b.roomLocked(id); err != nil {
			return nil, nil, err
		}
		if state == "" {
			state = b.states[id]
		}
		v = &part{owner: b, partKey: id, name: b.nameOf(id.id), over: make(chan struct{}), state: state}
		v.children = idleChildren{after: b.sessions.Hibernate, stop: func() { b.do(func() { b.stopChildren(v) }) }}
		b.all[id] = v
	}
	v.calls++
	if v.idle != nil {
		v.idle.Stop()
	}
	return v, nil, nil
}

// roomLocked counts a session_id, or returns why there may be no other.
func (b *parts) roomLocked(id partKey) error {
	if id == (partKey{}) {
		return nil
	}
	const hint = "coordinator_stop_browser with a session_id ends one"
	some := len(b.all)
	if b.all[partKey{}] != nil {
		some--
	}
	if some >= b.maxIDsOfHost && !b.shared {
		return fmt.Errorf("there are %d session_ids in use, and no more are allowed: %s", some, hint)
	}
	if b.ids.Add(1) > int64(b.maxIDs) {
		b.ids.Add(-1)
		return fmt.Errorf("there are %d session_ids of all hosts in use, and no more are allowed: %s",
			b.maxIDs, hint)
	}
	return nil
}

// leave notes that a call has ended. A virtual browser that has not been used for
// long ends.
func (b *parts) leave(v *part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v.calls--
	b.startIdleLocked(v)
}

func (b *parts) startIdleLocked(v *part) {
	if v.calls > 0 || v.gone != nil || b.closed {
		return
	}
	v.rested = time.Now()
	v.children.start()
	if idle := b.sessions.Idle; idle > 0 {
		start(&v.idle, idle, func() { b.do(func() { b.expire(v, idle) }) })
	}
}

// maxEnded is of how many virtual browsers an owner is told that they have ended.
const maxEnded = 10_000

// expire ends a virtual browser that has not been used.
func (b *parts) expire(v *part, idle time.Duration) {
	busy := b.owner.Busy(v.matches) // with what is no tool's call
	b.mu.Lock()
	if busy {
		b.startIdleLocked(v)
	}
	over := !b.closed && v.gone == nil && v.calls == 0 && time.Since(v.rested) >= idle
	if over {
		v.endLocked()
		if len(b.lost) >= maxEnded {
			clear(b.lost)
			clear(b.states)
		}
		b.loseLocked(v.key(), loss{text: fmt.Sprintf("this browser had not been used for %v and was ended", idle)})
		if v.state != "" {
			b.states[v.partKey] = v.state
		}
	}
	b.mu.Unlock()
	if over {
		b.finish(v)
	}
}

func (v *part) key() string { return SeenKey(&Browser{Instance: v.instance, Session: v.name}) }

// endLocked notes that the end begins.
func (v *part) endLocked() {
	v.gone = make(chan struct{})
	close(v.over)
	if v.idle != nil {
		v.idle.Stop()
	}
}

// matches reports whether a browser is this one.
func (v *part) matches(b *Browser) bool { return b.Session == v.name && b.Instance == v.instance }

// expel ends a virtual browser now, with the calls on it. The next call gets a new
// one.
func (b *parts) expel(id partKey) {
	b.mu.Lock()
	v := b.all[id]
	if v == nil || b.closed {
		b.mu.Unlock()
		return
	}
	ending := v.gone
	if ending == nil {
		v.endLocked()
	}
	b.mu.Unlock()
	if ending != nil {
		<-ending
		return
	}
	b.finish(v)
}

// finish ends a virtual browser and the children that are for it.
func (b *parts) finish(v *part) {
	stopped := b.owner.StopChildren(v.matches, true)
	b.mu.Lock()
	delete(b.seen, v.key())
	b.mu.Unlock()
	b.end(v.instance, v.name) // whatever its children do
	stopped()
	b.end(v.instance, v.name) // which one may have made again
	b.admission.remove(v)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[v.partKey] == v {
		delete(b.all, v.partKey)
		if v.partKey != (partKey{}) {
			b.ids.Add(-1)
		}
	}
	close(v.gone)
}
