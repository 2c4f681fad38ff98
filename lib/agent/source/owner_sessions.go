package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/control"
)

// sessionKey names the virtual browser of a call.
type sessionKey struct {
	id       string // session_id; "": the host's own
	instance string // ID of a joined browser; "": the default one
}

// ownerSession is a virtual browser of an owner.
type ownerSession struct {
	owner *ownerUse
	sessionKey
	name string // of the session at bproxy or the hub
	note hibernated
	over chan struct{} // closed when its end begins

	state     string // with which it starts; "": none
	beginning bool   // a call starts it with its state
	begunIn   begun  // where it was started last
}

// begun is the ID of a browser, and how many sessions had ended there with their last tab.
type begun struct {
	id        string
	emptyings int64
}

// takeEntered returns the browser for a call, and its virtual browser; nil: the call uses all of it.
func (b *ownerUse) takeEntered(ctx context.Context, w BrowserRef) (at *Lease, v *ownerSession, err error) {
	name, which := b.nameOf(w.Session), sessionKey{id: w.Session}
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
func (b *ownerUse) begin(ctx context.Context, v *ownerSession, at *Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v.beginning {
		if err := b.waitLocked(ctx); err != nil {
			return err
		}
	}
	in := begun{at.ID, b.emptyings.Load()}
	switch {
	case b.table.ending(v):
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
		b.work.Go(func() { b.expel(v.sessionKey) })
	}
	return Explain(err)
}

// leaseOf returns the lease of the browser, or of a virtual browser on it, for one call.
func (b *ownerUse) leaseOf(at *Lease, v *ownerSession) *Lease {
	p := *at
	if v != nil {
		p.Browser, p.note, p.look = at.inSession(v.name), &v.note, b.lookAt(v.name)
		p.Lapse = func() <-chan struct{} { return v.over }
	}
	p.Release = sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if v != nil {
			b.table.finish(v, time.Now())
		}
		b.leaveLocked(b.Source)
	})
	return &p
}

// join counts a call on a virtual browser, and waits until it can use it.
func (b *ownerUse) join(ctx context.Context, id sessionKey, state string) (*ownerSession, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.endingLocked(id) {
		if err := b.waitLocked(ctx); err != nil {
			return nil, err
		}
	}
	v, err := b.sessionLocked(id, state)
	if err == nil {
		err = b.enterLocked(ctx, v)
	}
	return v, err
}

func (b *ownerUse) endingLocked(id sessionKey) bool {
	return b.all[id] != nil && b.table.ending(b.all[id])
}

// sessionLocked returns the virtual browser of a call, or a new one that starts with a state.
func (b *ownerUse) sessionLocked(id sessionKey, state string) (*ownerSession, error) {
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
	v = &ownerSession{owner: b, sessionKey: id, name: b.nameOf(id.id), over: make(chan struct{}),
		state: cmp.Or(state, b.states[id])}
	b.all[id] = v
	b.table.set(v, rules{rest: b.sessions.Hibernate, end: b.sessions.SessionIdle, place: true})
	return v, nil
}

// roomLocked counts one more session_id; the error says that the limit is reached.
func (b *ownerUse) roomLocked(id sessionKey) error {
	if id == (sessionKey{}) {
		return nil
	}
	const hint = "coordinator_stop_browser with a session_id ends one"
	some := len(b.all)
	if b.all[sessionKey{}] != nil {
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

// maxEnded is how many ended virtual browsers are remembered for an owner.
const maxEnded = 10_000

// step hibernates a virtual browser that no call uses, once its children have been stopped, or ends it. It returns the
// time at which something has used the virtual browser instead.
func (v *ownerSession) step(due due[usable]) (kept time.Time) {
	b := v.owner
	if b.owner.Busy(v.matches) || v.isTakenOver() {
		return time.Now()
	}
	if due.step == endStep {
		b.mu.Lock()
		close(v.over)
		if len(b.lost) >= maxEnded {
			clear(b.lost)
			clear(b.states)
		}
		b.loseLocked(v.key(), loss{text: fmt.Sprintf("this browser had not been used for %v and was ended",
			b.sessions.SessionIdle)})
		if v.state != "" {
			b.states[v.sessionKey] = v.state
		}
		b.mu.Unlock()
		b.finish(v)
		return kept
	}
	unused := b.sessions.Hibernate
	if unused <= 0 || due.unused < unused { // another one waits for its place, or its host is gone
		unused = due.unused.Round(time.Second)
	}
	stopped := b.owner.StopChildren(v.matches, false)
	b.mu.Lock()
	v.note.begin(unused)
	b.mu.Unlock()
	if stopped(); !b.hibernate(b.ctx, v.name) {
		return time.Now()
	}
	return kept
}

// isTakenOver reports whether a person has control of a virtual browser.
func (v *ownerSession) isTakenOver() bool {
	at := v.owner.session(v.owner.ctx, v.instance, v.name)
	return at != nil && at.Control != nil
}

func (v *ownerSession) group() *sync.WaitGroup { return &v.owner.work }

func (v *ownerSession) key() string { return SeenKey(&Browser{Instance: v.instance, Session: v.name}) }

// matches reports whether a browser is this one.
func (v *ownerSession) matches(b *Browser) bool {
	return b.Session == v.name && b.Instance == v.instance
}

// expel ends a virtual browser now, with the calls on it.
func (b *ownerUse) expel(id sessionKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := b.all[id]; v != nil && b.all[id] == v; b.waitLocked(context.Background()) {
		if b.table.start(v, endStep) {
			close(v.over)
			b.mu.Unlock()
			b.finish(v)
			b.mu.Lock()
			return
		}
	}
}

// finish ends a virtual browser and its children, and forgets it.
func (b *ownerUse) finish(v *ownerSession) {
	stopped := b.owner.StopChildren(v.matches, true)
	b.mu.Lock()
	delete(b.seen, v.key())
	b.mu.Unlock()
	b.end(v.instance, v.name) // whatever its children do
	stopped()
	b.end(v.instance, v.name) // which one may have made again
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[v.sessionKey] == v {
		delete(b.all, v.sessionKey)
		if v.sessionKey != (sessionKey{}) {
			b.ids--
		}
	}
	b.removeLocked(v)
}
