package virtual

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// attachToBrowserTarget adds a session with the browser, which exists only
// here: commands on one of Chrome's own would not be checked.
func (k *Client) attachToBrowserTarget(c policy.Command, r *root) {
	b := k.session.browser
	session := rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(k.roots) >= maxRoots {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError,
			"the connection already has %d sessions with the browser, the maximum", maxRoots))
		return
	}
	k.roots[session] = newRoot(session)
	k.hasMoreRoots.Store(true)
	k.toClient.Put(wire.Event(r.session, "Target.attachedToTarget", map[string]any{
		"sessionId": session, "targetInfo": k.session.browserInfo(), "waitingForDebugger": false,
	}))
	k.reply(c, objectWith("sessionId", quote(session)))
}

// browserInfo returns the TargetInfo of the session itself.
func (s *Session) browserInfo() json.RawMessage {
	raw, _ := json.Marshal(map[string]any{"targetId": s.id, "type": "browser", "title": "", "url": "", "attached": true,
		"canAccessOpener": false})
	return raw
}

// objectWith returns an object with one member.
func objectWith(name string, value json.RawMessage) json.RawMessage {
	return jsonrpc.Set(nil, name, value)
}

// attachToTarget creates a session with a target.
func (k *Client) attachToTarget(c policy.Command, r *root) {
	if string(jsonrpc.Get(c.Params, "flatten")) != "true" {
		k.refuse(c, policy.NotFlat())
		return
	}
	if k.namesBrowser(c) {
		k.attachToBrowserTarget(c, r)
		return
	}
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(k.attached) >= maxAttached:
		k.refuse(c, jsonrpc.Errorf(policy.ServerError,
			"the connection already has %d sessions with targets, the maximum",
			maxAttached))
	case r != nil:
		k.requestAttachLocked(jsonrpc.GetString(c.Params, "targetId"), &attachRequest{root: r}, k.answerTo(c, nil))
	default:
		k.forward(c, r, nil)
	}
}

// createBrowserContext creates a context that ends with the session.
func (k *Client) createBrowserContext(c policy.Command, _ *root) {
	s, b := k.session, k.session.browser
	b.mu.Lock()
	full := len(s.contexts) >= maxContexts
	b.mu.Unlock()
	if full {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError, "the session already has %d browser contexts, the maximum",
			maxContexts))
		return
	}
	params, err := s.proxy.contextParams(c.Params)
	if err != nil {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError, "%v", err))
		return
	}
	c.Params = params
	k.callOnSession(c, func(result json.RawMessage) json.RawMessage {
		id := jsonrpc.GetString(result, "browserContextId")
		ctx, cancel := k.bounded()
		defer cancel()
		s.downloads.take(ctx, id) // it fails only with the context or the browser
		b.mu.Lock()
		defer b.mu.Unlock()
		s.contexts[id] = true
		b.contexts[id] = s
		return result
	})
}

// disposeBrowserContext disposes of a context that a client has created. It answers
// after the events about the end of its targets, as Chrome does.
func (k *Client) disposeBrowserContext(c policy.Command, _ *root) {
	s, b := k.session, k.session.browser
	id := jsonrpc.GetString(c.Params, "browserContextId")
	if id == s.base {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError, "Cannot dispose default browser context."))
		return
	}
	k.callOnSession(c, func(result json.RawMessage) json.RawMessage {
		k.awaitEnd(id)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.contexts, id)
		s.downloads.dropLocked(id)
		b.forgetContextLocked(id)
		return result
	})
}

// disposeTimeout bounds how long a client waits for the end of a context's targets.
const disposeTimeout = 5 * time.Second

// awaitEnd waits until the client has been told of the end of all targets of a context
// that has been disposed of.
func (k *Client) awaitEnd(disposed string) {
	ctx, cancel := context.WithTimeout(k.ctx, disposeTimeout)
	defer cancel()
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	awaitLocked(ctx, &b.mu, &k.ended, func() bool {
		for _, a := range k.attached {
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

// getBrowserContexts answers with the contexts that clients have created.
func (k *Client) getBrowserContexts(c policy.Command, _ *root) {
	s := k.session
	s.browser.mu.Lock()
	ids := make([]string, 0, len(s.contexts))
	for id := range s.contexts {
		ids = append(ids, id)
	}
	s.browser.mu.Unlock()
	raw, _ := json.Marshal(map[string]any{"browserContextIds": ids, "defaultBrowserContextId": s.base})
	k.reply(c, raw)
}

// createTarget opens a page. It answers after the events about the target that
// the client has enabled, as Chrome does.
func (k *Client) createTarget(c policy.Command, r *root) {
	if !k.setContext(&c) {
		return
	}
	session := c.Session
	if r != nil {
		session = ""
	}
	s, b := k.session, k.session.browser
	b.mu.Lock()
	full := s.pages.open+s.pages.opening >= maxPages
	if !full {
		s.pages.opening++
	}
	b.mu.Unlock()
	if full {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError, "the session already has %d pages, the maximum", maxPages))
		return
	}
	if jsonrpc.GetString(c.Params, "browserContextId") == s.base {
		s.login.fillFor(jsonrpc.GetString(c.Params, "url"))
	}
	k.calls.Begin(session, c.Method, c.Params, func(result json.RawMessage, err error) {
		b.mu.Lock()
		s.pages.opening--
		b.mu.Unlock()
		if err != nil {
			k.refuse(c, err)
			return
		}
		k.session.work.Go(func() {
			ctx, cancel := k.bounded()
			defer cancel()
			id := jsonrpc.GetString(result, "targetId")
			if r != nil {
				k.awaitAttached(ctx, r, id)
			}
			s.pages.awaitReady(ctx, id)
			k.reply(c, result)
		})
	})
}

// awaitAttached waits until a root's auto-attach has told the client of a new
// target.
func (k *Client) awaitAttached(ctx context.Context, r *root, target string) {
	b := k.session.browser
	if k.session.hiding.sync(ctx) != nil {
		return
	}
	attached := make(chan struct{})
	b.mu.Lock()
	t := b.targets[target]
	if t == nil || !r.attaches(t) {
		close(attached)
	} else {
		k.autoAttachLocked(r, t, func() { close(attached) })
	}
	b.mu.Unlock()
	select {
	case <-attached:
	case <-ctx.Done():
	}
}

// detachFromTarget ends a CDP session. Sessions with the browser end here, all
// others in Chrome, which knows only the sessions of this connection.
func (k *Client) detachFromTarget(c policy.Command, r *root) {
	b := k.session.browser
	id := jsonrpc.GetString(c.Params, "sessionId")
	b.mu.Lock()
	over := k.roots[id]
	if id == "" || over == nil {
		a := k.attached[id]
		given := a != nil && a.from != nil
		if given {
			k.endGivenLocked(id, a)
		}
		b.mu.Unlock()
		if given {
			k.reply(c, emptyObject)
		} else {
			k.forward(c, r, nil)
		}
		return
	}
	delete(k.roots, id)
	delete(k.discover, id)
	k.stopAutoAttachLocked(over)
	b.mu.Unlock()
	k.reply(c, emptyObject)
	k.toClient.Put(wire.Event(c.Session, "Target.detachedFromTarget",
		map[string]string{"sessionId": id, "targetId": k.session.id}))
}

// getTargetInfo describes a target of the session, or the session itself.
func (k *Client) getTargetInfo(c policy.Command, r *root) {
	if k.namesBrowser(c) || r != nil && jsonrpc.Get(c.Params, "targetId") == nil {
		raw, _ := json.Marshal(map[string]any{"targetInfo": k.session.browserInfo()})
		k.reply(c, raw)
		return
	}
	k.forward(c, r, func(result json.RawMessage) json.RawMessage {
		return jsonrpc.Set(result, "targetInfo", k.visibleInfo(jsonrpc.Get(result, "targetInfo")))
	})
}

// visibleInfo returns a TargetInfo as the client sees it.
func (k *Client) visibleInfo(info json.RawMessage) json.RawMessage {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.targets[jsonrpc.GetString(info, "targetId")].shown(info)
}

// owner returns the session that sees a target.
func (k *Client) owner(info json.RawMessage) *Session {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ownerLocked(info)
}

// getTargets lists the targets of the session.
func (k *Client) getTargets(c policy.Command, r *root) {
	wanted, err := newFilter(jsonrpc.Get(c.Params, "filter"))
	if err != nil {
		k.refuse(c, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	}
	b := k.session.browser
	if !b.tabsAreMarked { // a page that isKnown asks for is one whose event has come
		ctx, cancel := k.bounded()
		k.session.hiding.sync(ctx)
		cancel()
	}
	k.forward(c, r, func(result json.RawMessage) json.RawMessage {
		own := []json.RawMessage{}
		if wanted.matches("browser") {
			own = append(own, k.session.browserInfo())
		}
		for info := range jsonrpc.Elements(jsonrpc.Get(result, "targetInfos")) {
			if k.owner(info) == k.session && b.isKnown(info) {
				own = append(own, k.visibleInfo(info))
			}
		}
		return jsonrpc.Set(result, "targetInfos", jsonrpc.Array(own))
	})
}

// isKnown reports whether a target may be shown. In a chrome-headless-shell a page of
// the session's own that is being opened, or was just closed, is a page as any other;
// but no event of it is handled.
func (b *Browser) isKnown(info json.RawMessage) bool {
	if typ := jsonrpc.GetString(info, "type"); b.tabsAreMarked || typ != "page" && typ != "tab" {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.targets[jsonrpc.GetString(info, "targetId")] != nil
}

// setDiscoverTargets subscribes a CDP session, with the browser or a target, to
// events about the session's targets.
func (k *Client) setDiscoverTargets(c policy.Command, r *root) {
	wanted, err := newFilter(jsonrpc.Get(c.Params, "filter"))
	if err != nil {
		k.refuse(c, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	}
	on := string(jsonrpc.Get(c.Params, "discover")) == "true"
	ctx, cancel := k.bounded()
	defer cancel()
	k.session.hiding.sync(ctx)
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if r == nil && k.attached[c.Session] == nil && (c.Session != "" || k.page == "") {
		k.refuse(c, policy.NoSession())
		return
	}
	delete(k.discover, c.Session)
	if on && len(k.discover) >= maxListeners {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError,
			"the connection already has %d sessions that discover targets, the maximum", maxListeners))
		return
	}
	if on {
		k.discover[c.Session] = wanted
		if wanted.matches("browser") {
			k.toClient.Put(wire.Event(c.Session, "Target.targetCreated",
				map[string]any{"targetInfo": k.session.browserInfo()}))
		}
		for _, t := range k.session.targetsLocked() {
			if wanted.matches(t.typ) {
				k.toClient.Put(wire.Event(c.Session, "Target.targetCreated",
					map[string]json.RawMessage{"targetInfo": t.visibleInfo()}))
			}
		}
	}
	k.reply(c, emptyObject)
}

// setAutoAttach attaches the client to the session's targets, existing and new
// ones.
func (k *Client) setAutoAttach(c policy.Command, r *root) {
	wanted, err := newFilter(jsonrpc.Get(c.Params, "filter"))
	on := string(jsonrpc.Get(c.Params, "autoAttach")) == "true"
	wait := on && string(jsonrpc.Get(c.Params, "waitForDebuggerOnStart")) == "true"
	if r == nil { // to what is below a target of the session
		b := k.session.browser
		b.mu.Lock()
		if a := k.attached[c.Session]; a != nil {
			a.pausesPage = wait && wanted.matches("page")
		}
		b.mu.Unlock()
		k.forward(c, nil, nil)
		return
	}
	switch {
	case err != nil:
		k.refuse(c, jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	case string(jsonrpc.Get(c.Params, "flatten")) != "true":
		k.refuse(c, policy.NotFlat())
		return
	case on && wanted.matches("tab") && wanted.matches("page"):
		k.refuse(c, jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Filter should not simultaneously allow \"tab\" and \"page\", page targets are attached via tab targets"))
		return
	}
	ctx, cancel := k.bounded()
	defer cancel()
	b := k.session.browser
	k.session.hiding.sync(ctx)
	var attached sync.WaitGroup
	b.mu.Lock()
	if r.auto, r.wait = nil, wait; on {
		r.auto = wanted
		for _, t := range k.session.targetsLocked() {
			if r.attaches(t) {
				attached.Add(1)
				k.autoAttachLocked(r, t, attached.Done)
			}
		}
	} else {
		k.stopAutoAttachLocked(r)
	}
	b.mu.Unlock()
	if wait {
		b.awaitWatchers(ctx, k.session)
	}
	k.session.work.Go(func() {
		attached.Wait()
		k.reply(c, emptyObject)
	})
}

// stopAutoAttachLocked ends the CDP sessions of a root's auto-attach.
func (k *Client) stopAutoAttachLocked(r *root) {
	for _, session := range r.byAuto {
		if a := k.attached[session]; a != nil && a.from != nil {
			k.endGivenLocked(session, a)
		} else if session != "" {
			k.calls.Send("", "Target.detachFromTarget", map[string]string{"sessionId": session})
		}
	}
	for _, t := range k.session.targetsLocked() {
		t.unblockLocked(blocker{k, r})
		if !k.pausesTargetsLocked() {
			t.leaveLocked(k)
		}
	}
}

// pausesTargetsLocked reports whether new targets wait for the client.
func (k *Client) pausesTargetsLocked() bool {
	for _, r := range k.roots {
		if r.auto != nil && r.wait {
			return true
		}
	}
	return false
}
