package virtual

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// cdpSessions are the CDP sessions of a client: with the browser, its roots, and with targets.
// The browser's lock guards them.
type cdpSessions struct {
	k            *Client
	root         *root                       // the connection itself, if it is to the browser
	hasMoreRoots atomic.Bool                 // there are or were other roots
	roots        map[string]*root            // by CDP session; "" is the connection itself
	attached     map[string]*attachment      // by CDP session
	requests     map[string][]*attachRequest // by target, in the order sent to Chrome
	discover     map[string]filter           // the CDP sessions that discover targets
	ended        wait.Broadcast              // one of attached, or a target of the session, has ended
}

// root is a CDP session with the browser itself.
type root struct {
	session string
	auto    filter            // of auto-attach; nil: off
	wait    bool              // new targets wait for it
	byAuto  map[string]string // the CDP sessions of auto-attach, by target; "": requested
	waiting map[string][]func()
}

func newRoot(session string) *root {
	return &root{session: session, byAuto: map[string]string{}, waiting: map[string][]func(){}}
}

// attaches reports whether auto-attach attaches the root to a target.
func (r *root) attaches(t *target) bool {
	return r.auto != nil && attachedAtRoot[t.typ] && r.auto.matches(t.typ)
}

// callWaitersLocked calls the functions that wait for an attachment.
func (r *root) callWaitersLocked(target string) {
	waiting := r.waiting[target]
	delete(r.waiting, target)
	for _, done := range waiting {
		done()
	}
}

// attachment is a CDP session with a target.
type attachment struct {
	target     string
	context    string // of the target
	root       *root  // that requested it; nil: the target's parent did
	parent     string // the CDP session with which it ends
	pausesPage bool   // with a tab: its page is attached, too, before it resumes
	from       *link  // the watcher that has given it, and can end it; nil: the client can
}

// attachRequest is a root's request for a CDP session with a target, until Chrome announces that session.
type attachRequest struct {
	root *root
	auto bool // for its auto-attach
}

// rootOf returns the root that a CDP session is; nil: it is a session with a target, or unknown.
func (cs *cdpSessions) rootOf(session string) *root {
	switch {
	case session == "":
		return cs.root
	case !cs.hasMoreRoots.Load():
		return nil
	}
	b := cs.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return cs.roots[session]
}

// has reports whether a CDP session belongs to the client.
func (cs *cdpSessions) has(session string) bool {
	if session == "" {
		return true
	}
	b := cs.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return cs.attached[session] != nil || cs.roots[session] != nil
}

// targetLocked returns the target of a CDP session, nil if the session is the
// client's root, or if the watcher does not see targets of its type.
func (cs *cdpSessions) targetLocked(session string) *target {
	target := cs.k.page
	if a := cs.attached[session]; a != nil {
		target = a.target
	}
	return cs.k.session.browser.targets[target]
}

// isPaused reports whether the target of a CDP session waits until its clients have set it up.
func (cs *cdpSessions) isPaused(session string) bool {
	b := cs.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := cs.targetLocked(session)
	return t != nil && t.isPaused()
}

// attachedLocked tells the client that a CDP session with a target has begun.
func (cs *cdpSessions) attachedLocked(message []byte, parent string, params json.RawMessage) {
	b := cs.k.session.browser
	session, info := jsonrpc.GetString(params, "sessionId"), jsonrpc.Get(params, "targetInfo")
	id := jsonrpc.GetString(info, "targetId")
	a, at := &attachment{target: id, context: jsonrpc.GetString(info, "browserContextId"), parent: parent}, parent
	var by *attachRequest
	if parent == "" && cs.k.page == "" {
		by = cs.nextRequestLocked(id)
		a.root, at = by.root, by.root.session
	}
	if by == nil && parent != "" && b.targets[id].giveBelowLocked(cs.k, parent) {
		cs.k.calls.Send(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
		return
	}
	if b.ownerLocked(info) != cs.k.session || by != nil && !cs.isWantedLocked(by) {
		// A tab has led to a target of Chrome's own user interface, or the client no longer wants the session.
		if by != nil && by.auto {
			delete(a.root.byAuto, id)
		}
		cs.k.calls.resumeAndDetach(parent, session)
		return
	}
	if by != nil && by.auto {
		a.root.byAuto[id] = session
	}
	cs.attached[session] = a
	if t := b.targets[id]; t != nil {
		cs.countLocked(t, 1)
		if (by == nil || by.auto) && t.isBlockedBy(cs.k) {
			params = jsonrpc.Set(params, "waitingForDebugger", json.RawMessage("true"))
		}
		if jsonrpc.GetString(info, "url") == "" { // the client may have been told of a later one
			params = jsonrpc.Set(params, "targetInfo", t.visibleInfo())
		}
	}
	if by == nil && parent != "" && cs.k.toClient.isPrivate() {
		cs.k.calls.Send(session, "Runtime.runIfWaitingForDebugger", nil) // the client does not know it yet
	}
	cs.k.toClient.Put(wire.Event(at, "Target.attachedToTarget", params))
}

// allLocked returns all CDP sessions with targets.
func (cs *cdpSessions) allLocked() []string { return slices.Collect(maps.Keys(cs.attached)) }

// requestLocked asks Chrome for a session with a target, on behalf of a root.
func (cs *cdpSessions) requestLocked(target string, by *attachRequest, done func(json.RawMessage, error)) {
	b := cs.k.session.browser
	cs.requests[target] = append(cs.requests[target], by)
	cs.k.calls.Begin("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true},
		func(result json.RawMessage, err error) {
			if err != nil {
				b.mu.Lock()
				cs.dropRequestLocked(target, slices.Index(cs.requests[target], by))
				b.mu.Unlock()
			}
			done(result, err)
		})
}

// nextRequestLocked returns the request for the session that Chrome has
// just announced. Chrome announces sessions in the order of the requests.
func (cs *cdpSessions) nextRequestLocked(target string) *attachRequest {
	if len(cs.requests[target]) == 0 {
		return &attachRequest{root: cs.root}
	}
	by := cs.requests[target][0]
	cs.dropRequestLocked(target, 0)
	return by
}

func (cs *cdpSessions) dropRequestLocked(target string, i int) {
	if i < 0 {
		return
	}
	if cs.requests[target] = slices.Delete(cs.requests[target], i, i+1); len(cs.requests[target]) == 0 {
		delete(cs.requests, target)
	}
}

// isWantedLocked reports whether the root of a request still wants the session.
func (cs *cdpSessions) isWantedLocked(by *attachRequest) bool {
	return cs.roots[by.root.session] == by.root && (!by.auto || by.root.auto != nil)
}

// detachedLocked tells the client that a CDP session has ended.
func (cs *cdpSessions) detachedLocked(message []byte, params json.RawMessage) {
	session := jsonrpc.GetString(params, "sessionId")
	a := cs.attached[session]
	if a == nil {
		return // the client does not know it
	}
	cs.forgetLocked(session)
	switch {
	case a.root != nil && a.root.session != "":
		message = wire.Event(a.root.session, "Target.detachedFromTarget", params)
	case a.from != nil && a.parent != "": // it was a watcher's
		message = wire.Event(a.parent, "Target.detachedFromTarget", params)
	}
	cs.k.toClient.Put(message)
}

// forgetLocked forgets a CDP session that has ended, and the sessions below it.
func (cs *cdpSessions) forgetLocked(session string) {
	b := cs.k.session.browser
	a := cs.attached[session]
	delete(cs.attached, session)
	cs.ended.Wake()
	cs.k.unanswered.dropSession(session)
	cs.k.toClient.end(session)
	delete(cs.discover, session)
	delete(cs.k.downloads.wanted, session)
	delete(cs.k.overrides.focusing, session)
	delete(cs.k.overrides.metrics, session)
	for below, c := range cs.attached {
		if c.parent == session {
			cs.forgetLocked(below)
			cs.takeBackLocked(below, c)
		}
	}
	if a.root != nil && a.root.byAuto[a.target] == session {
		delete(a.root.byAuto, a.target)
	}
	cs.tabReleasedLocked(a)
	t := b.targets[a.target]
	if t == nil {
		return
	}
	cs.countLocked(t, -1)
	delete(t.dialogs, told{cs.k, session})
	if !cs.isAttachedLocked(a.target) {
		t.leaveLocked(cs.k)
	} else if a.root != nil {
		t.unblockLocked(blocker{cs.k, a.root})
	}
}

// countLocked notes that the client has a CDP session more or less with a target. Of a person's nobody is told.
func (cs *cdpSessions) countLocked(t *target, n int) {
	if cs.k.person == nil {
		t.attachments += n
		cs.k.session.clients.notifyChangeLocked(t)
	}
}

// tabReleasedLocked notes that the client resumes or leaves a tab. It will not see the tab's page then, and nothing
// says which page that is: all pages that it has not seen resume.
func (cs *cdpSessions) tabReleasedLocked(a *attachment) {
	b := cs.k.session.browser
	if t := b.targets[a.target]; t == nil || t.typ != "tab" {
		return
	}
	for _, t := range cs.k.session.targetsLocked() {
		if !cs.isAttachedLocked(t.id) && !cs.isAttachingLocked(t.id) {
			t.unblockLocked(blocker{client: cs.k})
		}
	}
}

// isAttachingLocked reports whether the client has requested a session with a target.
func (cs *cdpSessions) isAttachingLocked(target string) bool {
	return len(cs.requests[target]) > 0
}

func (cs *cdpSessions) isAttachedLocked(target string) bool {
	for _, a := range cs.attached {
		if a.target == target {
			return true
		}
	}
	return false
}

// targetGoneLocked ends what waits for a target that is gone.
func (cs *cdpSessions) targetGoneLocked(t *target) {
	cs.ended.Wake()
	for _, r := range cs.roots {
		r.callWaitersLocked(t.id)
		if r.byAuto[t.id] == "" {
			delete(r.byAuto, t.id)
		}
	}
}

// autoAttachLocked attaches a root of the client to a target for its
// auto-attach. done is called when the client has been told, or will not be.
func (cs *cdpSessions) autoAttachLocked(r *root, t *target, done func()) {
	session, begun := r.byAuto[t.id]
	if session != "" {
		done()
		return
	}
	r.waiting[t.id] = append(r.waiting[t.id], done)
	if begun || r.wait && t.isComing() {
		return
	}
	r.byAuto[t.id] = ""
	b := cs.k.session.browser
	cs.requestLocked(t.id, &attachRequest{r, true}, func(_ json.RawMessage, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			delete(r.byAuto, t.id)
			t.unblockLocked(blocker{cs.k, r})
		}
		r.callWaitersLocked(t.id)
	})
}

// stopAutoAttachLocked ends the CDP sessions of a root's auto-attach.
func (cs *cdpSessions) stopAutoAttachLocked(r *root) {
	for _, session := range r.byAuto {
		if a := cs.attached[session]; a != nil && a.from != nil {
			cs.endGivenLocked(session, a)
		} else if session != "" {
			cs.k.calls.Send("", "Target.detachFromTarget", map[string]string{"sessionId": session})
		}
	}
	for _, t := range cs.k.session.targetsLocked() {
		t.unblockLocked(blocker{cs.k, r})
		if !cs.pausesTargetsLocked() {
			t.leaveLocked(cs.k)
		}
	}
}

// pausesTargetsLocked reports whether new targets wait for the client.
func (cs *cdpSessions) pausesTargetsLocked() bool {
	for _, r := range cs.roots {
		if r.auto != nil && r.wait {
			return true
		}
	}
	return false
}

// awaitAttached waits until a root's auto-attach has told the client of a new target.
func (cs *cdpSessions) awaitAttached(ctx context.Context, r *root, target string) {
	b := cs.k.session.browser
	if cs.k.session.hiding.sync(ctx) != nil {
		return
	}
	attached := make(chan struct{})
	b.mu.Lock()
	t := b.targets[target]
	if t == nil || !r.attaches(t) {
		close(attached)
	} else {
		cs.autoAttachLocked(r, t, func() { close(attached) })
	}
	b.mu.Unlock()
	wait.For(ctx, attached)
}

// awaitEnd waits until the client has been told of the end of all targets of a context that has been disposed of.
func (cs *cdpSessions) awaitEnd(disposed string) {
	ctx, cancel := context.WithTimeout(cs.k.ctx, disposeTimeout)
	defer cancel()
	b := cs.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	awaitLocked(ctx, &b.mu, &cs.ended, func() bool {
		for _, a := range cs.attached {
			if a.context == disposed {
				return false
			}
		}
		for _, t := range b.targets {
			if t.context == disposed {
				return false
			}
		}
		return true
	})
}

// takeBackLocked gives a CDP session back to its watcher, if a watcher has given it. It does
// not end with the client, and a target that still waits for it must be told to resume.
func (cs *cdpSessions) takeBackLocked(session string, a *attachment) {
	if a.from == nil {
		return
	}
	h := held{id: session, from: a.from}
	if !cs.k.up.Give(session, a.from.conn) {
		return // it has ended, or its watcher has, with the browser
	}
	if t := cs.k.session.browser.targets[a.target]; t != nil && t.pause != nil {
		for i := range t.pause.held {
			if t.pause.held[i].id == session {
				t.pause.held[i].to = nil
				return // it resumes with the others
			}
		}
	}
	h.resume()
}

// endGivenLocked ends a CDP session that a watcher has given, and tells the client.
func (cs *cdpSessions) endGivenLocked(session string, a *attachment) {
	at := a.parent
	if a.root != nil {
		at = a.root.session
	}
	cs.k.session.work.Go(func() { cs.k.calls.FailSession(session) }) // what it calls may take the lock
	cs.takeBackLocked(session, a)
	cs.forgetLocked(session)
	cs.k.toClient.Put(wire.Event(at, "Target.detachedFromTarget",
		map[string]string{"sessionId": session, "targetId": a.target}))
}

// awaitRoots returns when the client's roots have been told of a target that a page has led to. A page and the browser
// both lead to a service worker. Chrome announces it to the browser's clients first, and fetches its script once the
// page's CDP session is resumed: clients have asked for the network's events by then.
func (cs *cdpSessions) awaitRoots(info json.RawMessage) {
	b := cs.k.session.browser
	b.mu.Lock()
	late := false
	typ, id := jsonrpc.GetString(info, "type"), jsonrpc.GetString(info, "targetId")
	for _, r := range cs.roots {
		late = late || r.wait && attachedAtRoot[typ] && r.auto.matches(typ) && r.byAuto[id] == ""
	}
	more := b.more
	b.mu.Unlock()
	if !late || typ == "page" || typ == "tab" {
		return
	}
	ctx, cancel := cs.k.bounded()
	defer cancel()
	cs.k.session.hiding.sync(ctx)
	for _, l := range more {
		l.Call(ctx, "", "Browser.getVersion", nil)
	}
}
