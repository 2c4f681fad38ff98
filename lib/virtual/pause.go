package virtual

import (
	"context"
	"encoding/json"
	"maps"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
)

// A new target is paused before its first document. Chrome waits for the CDP sessions with which it has attached the
// watchers to it, and keeps the document from running until these are told to resume. A session that is requested
// later is none of them: what a client sends on it takes effect when the document already runs. So a client with
// auto-attach is given the session of a watcher.

// pause is what a new target waits for.
type pause struct {
	held     []held
	blockers map[blocker]bool
	seen     int // watchers that have been attached
	expected int // watchers that will be; 0: the first one has not been yet
}

// blocker is what must set a target up: a root of a client, a client by the tab of the target, or the session itself.
type blocker struct {
	client *Client // nil: the session
	root   *root   // nil: the tab
}

// held is a CDP session with which Chrome has attached a watcher to a target.
type held struct {
	id     string
	from   *link
	to     *Client         // that it was given to; nil: it is still the watcher's
	params json.RawMessage // of its announcement
}

// resume lets the target run, as far as it waits for this CDP session. A watcher leaves it.
func (h held) resume() {
	if h.to != nil {
		h.to.calls.Send(h.id, "Runtime.runIfWaitingForDebugger", nil)
		return
	}
	h.from.resumeAndDetach("", h.id)
}

// isPaused reports whether the target waits to be set up.
func (t *target) isPaused() bool { return t.pause != nil }

// isBlockedBy reports whether a target waits for a client.
func (t *target) isBlockedBy(k *Client) bool {
	return t.blocks(func(by blocker) bool { return by.client == k })
}

// blocks reports whether one of these keeps a target paused.
func (t *target) blocks(these func(blocker) bool) bool {
	if t.pause != nil {
		for by := range t.pause.blockers {
			if these(by) {
				return true
			}
		}
	}
	return false
}

// isComing reports whether more watchers are about to be attached to a new target.
func (t *target) isComing() bool {
	return t.pause != nil && (t.pause.expected == 0 || t.pause.seen < t.pause.expected)
}

// maxWatchers bounds the watchers of a browser, all of which Chrome attaches to each new
// target. Clients beyond their number get sessions that are requested.
const maxWatchers = 4

// awaitWatchers opens watchers until there is one for each root of the session's clients for which new targets wait.
func (b *Browser) awaitWatchers(ctx context.Context, s *Session) {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	wanted := 0
	for k := range s.clients.all {
		for _, r := range k.sessions.roots {
			if r.auto != nil && r.wait {
				wanted++
			}
		}
	}
	there := 1 + len(b.more)
	b.mu.Unlock()
	for ; there < min(wanted, maxWatchers); there++ {
		var l *link
		begun := make(chan struct{})
		l, err := b.dial(ctx, func(method, session string, params json.RawMessage) {
			<-begun
			b.event(l, method, session, params)
		})
		if err != nil {
			close(begun)
			return
		}
		close(begun)
		if _, err := l.Call(ctx, "", "Target.setAutoAttach", autoAttach); err != nil {
			l.close()
			return
		}
		b.mu.Lock()
		b.more = append(b.more, l)
		b.mu.Unlock()
	}
}

// autoAttach are the parameters of a watcher's auto-attach.
var autoAttach = map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

// targetAttachedLocked keeps a new target paused until the clients that see it have set it up.
func (b *Browser) targetAttachedLocked(from *link, params json.RawMessage) {
	info := jsonrpc.Get(params, "targetInfo")
	h := held{id: jsonrpc.GetString(params, "sessionId"), from: from, params: params}
	waits := string(jsonrpc.Get(params, "waitingForDebugger")) == "true"
	t := b.targets[jsonrpc.GetString(info, "targetId")]
	if t == nil || from == b.watcher { // others may be behind it
		t = b.updateTargetLocked(info)
	}
	if !waits { // to be told to resume, it might resume for another watcher, too
		from.Send("", "Target.detachFromTarget", map[string]string{"sessionId": h.id})
	}
	if t == nil {
		if waits {
			h.resume()
		}
		return
	}
	if waits && t.pause == nil && !t.watched {
		t.pause = &pause{blockers: map[blocker]bool{}}
		t.session.clients.blockLocked(t)
	}
	if from == b.watcher {
		t.watched = true
		if t.pause != nil {
			t.pause.expected = 1 + len(b.more)
		}
	}
	if t.pause == nil { // it runs
		if waits {
			h.resume()
		}
		if from == b.watcher {
			t.session.clients.autoAttachLocked(t)
		}
		return
	}
	t.pause.seen++
	if waits {
		t.pause.held = append(t.pause.held, h)
		t.giveToRootLocked(len(t.pause.held) - 1)
	}
	if !t.isComing() {
		t.session.clients.autoAttachLocked(t)
		t.goOnLocked("")
	}
}

// giveToRootLocked gives a CDP session to one of the clients that set the target up and have none with it.
func (t *target) giveToRootLocked(i int) {
	for k := range t.session.clients.all {
		for _, r := range k.sessions.roots {
			if _, begun := r.byAuto[t.id]; begun || !r.wait || !r.attaches(t) {
				continue
			}
			if t.giveLocked(i, k, &attachment{target: t.id, root: r}, r.session) {
				r.callWaitersLocked(t.id)
				return
			}
		}
	}
}

// giveLocked gives a CDP session to a client, which it tells on the client's session at.
func (t *target) giveLocked(i int, k *Client, a *attachment, at string) bool {
	h := &t.pause.held[i]
	if !h.from.conn.Give(h.id, k.up) {
		return false
	}
	h.to, a.from, a.context = k, h.from, t.context
	k.sessions.attached[h.id] = a
	if a.root != nil {
		a.root.byAuto[t.id] = h.id
	}
	k.sessions.countLocked(t, 1)
	params := jsonrpc.Set(h.params, "targetInfo", t.visibleInfo())
	k.toClient.Put(wire.Event(at, "Target.attachedToTarget", params))
	return true
}

// giveBelowLocked gives a client a watcher's CDP session with a page in place of the one by
// which a tab has led to it. It reports whether it has.
func (t *target) giveBelowLocked(k *Client, parent string) bool {
	if t == nil || t.pause == nil || !t.pause.blockers[blocker{client: k}] {
		return false
	}
	for i, h := range t.pause.held {
		if h.to == nil && t.giveLocked(i, k, &attachment{target: t.id, parent: parent}, parent) {
			return true
		}
	}
	return false
}

// resumeLaterLocked notes that a client's CDP session resumes together with those of the watchers.
func (t *target) resumeLaterLocked(k *Client, session string) {
	for _, h := range t.pause.held {
		if h.id == session {
			return
		}
	}
	t.pause.held = append(t.pause.held, held{id: session, to: k})
}

// unblockLocked removes a blocker of a target, and resumes the target after the last one.
func (t *target) unblockLocked(by blocker) {
	if t.pause != nil {
		delete(t.pause.blockers, by)
		t.goOnLocked("")
	}
}

// leaveLocked removes all blockers of a client.
func (t *target) leaveLocked(k *Client) {
	if t.pause != nil {
		maps.DeleteFunc(t.pause.blockers, func(by blocker, _ bool) bool { return by.client == k })
		t.goOnLocked("")
	}
}

// goOnLocked resumes a target without blockers, but for the CDP session that the caller resumes.
// Chrome waits for all sessions, until one of them is told to resume twice.
func (t *target) goOnLocked(own string) {
	t.unblocked.Wake()
	if len(t.pause.blockers) > 0 || t.isComing() {
		return
	}
	all := t.pause.held
	t.pause = nil
	for _, h := range all {
		if h.id != own {
			h.resume()
		}
	}
}

// releaseLocked resumes a target for which nobody waits any more.
func (t *target) releaseLocked() {
	if t.pause != nil {
		clear(t.pause.blockers)
		t.goOnLocked("")
	}
}

// heldEndedLocked notes that a watcher's CDP session with a target has ended.
func (t *target) heldEndedLocked(session string) {
	if t.pause == nil {
		return
	}
	left := t.pause.held[:0]
	for _, h := range t.pause.held {
		if h.id != session {
			left = append(left, h)
		}
	}
	t.pause.held = left
	if len(left) == 0 && !t.isComing() {
		t.pause = nil
		t.unblocked.Wake()
	}
}
