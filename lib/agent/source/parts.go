package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control"
	"btools/lib/coordinator/tasks"
)

// parts are the one browser as an owner uses it: all of it, or virtual browsers on
// it.
type parts struct {
	use
	*oneBrowser
	shared bool // the owner is several hosts, which know nothing of each other

	// Under the lock of the book:
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
	name string // that bproxy knows
	note hibernated
	over chan struct{} // closed when its end begins

	state     string // that it starts with; "": none. It stays the same
	beginning bool   // a call starts it with its state
	begunIn   begun  // where it has been
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

func (b *parts) Leave() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return func() {}
	}
	all := b.all
	b.closed, b.all = true, nil
	for id, v := range all {
		if b.table.Start(v, uses.End); id != (partKey{}) {
			b.ids--
		}
	}
	if name := b.nameOf(""); all[partKey{}] == nil && name != "" {
		all[partKey{}] = &part{name: name} // a child may be connected to it, though no call has used it
	}
	return func() {
		for _, v := range all {
			b.work.Go(func() {
				b.end(v.instance, v.name)
				b.mu.Lock()
				defer b.mu.Unlock()
				b.removeLocked(v)
			})
		}
		b.work.Wait()
	}
}

func (b *parts) TryTake(w BrowserRef) *Lease {
	at, _ := b.Take(noWait, w)
	return at
}

// Take returns the one browser for a call, or the part with its session_id. It waits for nothing if the context has
// ended.
func (b *parts) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	if err := b.enter(ctx, b.oneBrowser); err != nil {
		return nil, err
	}
	at, v, err := b.takeEntered(ctx, w)
	if err != nil {
		b.leave(b.oneBrowser)
		return nil, err
	}
	return b.leaseOf(at, v), nil
}

// takeEntered returns the browser, and the part if it is not all of it.
func (b *parts) takeEntered(ctx context.Context, w BrowserRef) (at *Lease, v *part, err error) {
	name, which := b.nameOf(w.Session), partKey{id: w.Session}
	switch {
	case w.State != "" && w.Session == "":
		return nil, nil, errors.New("state is for a call with a session_id: browser_state with the action load " +
			"replaces the login of this session")
	case ctx.Err() != nil:
		if at = b.up(w.Instance, name); at == nil {
			return nil, nil, context.Cause(ctx)
		}
	case w.Instance != "" || name == "":
		if at, err = b.acquire(ctx, w.Instance, name); err != nil {
			return nil, nil, err
		}
	}
	if name == "" {
		return at, nil, nil
	}
	if at != nil {
		which.instance = at.Instance // none, if it is the browser that other calls use
	}
	if v, err = b.join(ctx, which, w.State); err != nil {
		return nil, nil, err
	}
	if at == nil {
		at, err = b.acquire(ctx, "", "")
	}
	if err == nil {
		err = b.begin(ctx, v, at)
	}
	if err != nil {
		b.leave(v)
	}
	return at, v, err
}

// begin starts a virtual browser with its state, once in each browser. If it cannot be
// started at first, another call may name another state.
func (b *parts) begin(ctx context.Context, v *part, at *Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v.beginning {
		if err := b.waitLocked(ctx); err != nil {
			return err
		}
	}
	in := begun{at.ID, b.emptyings.Load()}
	switch {
	case b.table.Ending(v):
		return ErrBrowserDied
	case v.state == "" || v.begunIn == in:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	v.beginning = true
	b.mu.Unlock()
	err := b.newSession(ctx, v.name, v.state)
	b.mu.Lock()
	v.beginning = false
	b.changed.Wake()
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

func (b *parts) Queue(w BrowserRef) tasks.Queue {
	return tasks.Queue{Key: "part " + w.Instance + " " + b.nameOf(w.Session), Slots: 1}
}

func (b *parts) Waiting(w BrowserRef) func() (ahead int, waits bool) {
	if b.Kind() == SharedProfile || b.sessions.MaxSessions == 0 {
		return nil
	}
	return func() (int, bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.table.Ahead(b.all[partKey{id: w.Session}])
	}
}

// leaseOf is the browser, or a part of it, until the call on it is released.
func (b *parts) leaseOf(at *Lease, v *part) *Lease {
	p := *at
	if v != nil {
		p.Browser, p.note, p.look = at.part(v.name), &v.note, b.lookAt(v.name)
		p.Lapse = func() <-chan struct{} { return v.over }
	}
	p.Release = sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if v != nil {
			b.table.Finish(v, time.Now())
		}
		b.leaveLocked(b.oneBrowser)
	})
	return &p
}

// join counts a call on a virtual browser, and waits until it can use it.
func (b *parts) join(ctx context.Context, id partKey, state string) (*part, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.endingLocked(id) {
		if err := b.waitLocked(ctx); err != nil {
			return nil, err
		}
	}
	v, err := b.partLocked(id, state)
	if err == nil {
		err = b.enterLocked(ctx, v)
	}
	return v, err
}

func (b *parts) endingLocked(id partKey) bool { return b.all[id] != nil && b.table.Ending(b.all[id]) }

// partLocked is the virtual browser for a call, which starts with a state if it has one.
func (b *parts) partLocked(id partKey, state string) (*part, error) {
	v := b.all[id]
	switch {
	case b.closed:
		return nil, ErrEnded
	case v != nil && state != "" && v.state != state:
		return nil, fmt.Errorf("the session %q is open already: state is for its first call, and browser_state "+
			"with the action load replaces its login", id.id)
	case v != nil:
		return v, nil
	}
	if err := b.roomLocked(id); err != nil {
		return nil, err
	}
	v = &part{owner: b, partKey: id, name: b.nameOf(id.id), over: make(chan struct{}),
		state: cmp.Or(state, b.states[id])}
	b.all[id] = v
	b.table.Set(v, uses.Rules{Children: b.sessions.Hibernate, End: b.sessions.SessionIdle, Place: true})
	return v, nil
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
	if b.ids >= b.maxIDs {
		return fmt.Errorf("there are %d session_ids of all hosts in use, and no more are allowed: %s",
			b.maxIDs, hint)
	}
	b.ids++
	return nil
}

// maxEnded is of how many virtual browsers an owner is told that they have ended.
const maxEnded = 10_000

// step gives a virtual browser up that no call uses, unless something that is no tool's call does.
func (v *part) step(due uses.Due[usable]) (kept time.Time) {
	b := v.owner
	if b.owner.Busy(v.matches) || b.isTakenOver(v) {
		return time.Now()
	}
	unused := b.sessions.Hibernate
	switch due.Step {
	case uses.End:
		b.mu.Lock()
		close(v.over)
		if len(b.lost) >= maxEnded {
			clear(b.lost)
			clear(b.states)
		}
		b.loseLocked(v.key(), loss{text: fmt.Sprintf("this browser had not been used for %v and was ended",
			b.sessions.SessionIdle)})
		if v.state != "" {
			b.states[v.partKey] = v.state
		}
		b.mu.Unlock()
		b.finish(v)
		return kept
	case uses.Vacate:
		unused = due.Unused.Round(time.Second)
	}
	stopped := b.owner.StopChildren(v.matches, false)
	b.mu.Lock()
	v.note.begin(unused)
	b.mu.Unlock()
	if due.Step == uses.Children {
		return kept
	}
	if stopped(); !b.hibernate(b.ctx, v.name) {
		return time.Now()
	}
	return kept
}

// isTakenOver reports whether a person has control of a virtual browser.
func (b *parts) isTakenOver(v *part) bool {
	at := b.session(b.ctx, v.instance, v.name)
	return at != nil && at.Control != nil
}

func (v *part) group() *sync.WaitGroup { return &v.owner.work }

func (v *part) key() string { return SeenKey(&Browser{Instance: v.instance, Session: v.name}) }

// matches reports whether a browser is this one.
func (v *part) matches(b *Browser) bool { return b.Session == v.name && b.Instance == v.instance }

// expel ends a virtual browser now, with the calls on it. The next call gets a new
// one.
func (b *parts) expel(id partKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := b.all[id]; v != nil && b.all[id] == v; b.waitLocked(context.Background()) {
		if b.table.Start(v, uses.End) {
			close(v.over)
			b.mu.Unlock()
			b.finish(v)
			b.mu.Lock()
			return
		}
	}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[v.partKey] == v {
		delete(b.all, v.partKey)
		if v.partKey != (partKey{}) {
			b.ids--
		}
	}
	b.removeLocked(v)
}
