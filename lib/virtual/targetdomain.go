package virtual

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// attachToBrowserTarget adds a session with the browser, which exists only
// here: commands on one of Chrome's own would not be checked.
func attachToBrowserTarget(r request) {
	b := r.k.session.browser
	session := rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(r.k.sessions.roots) >= maxRoots {
		r.refuse(fmt.Errorf("the connection already has %d sessions with the browser, the maximum", maxRoots))
		return
	}
	r.k.sessions.roots[session] = newRoot(session)
	r.k.sessions.hasMoreRoots.Store(true)
	r.k.toClient.Put(wire.Event(r.root.session, "Target.attachedToTarget", map[string]any{
		"sessionId": session, "targetInfo": browserInfo(r.k.session.id), "waitingForDebugger": false,
	}))
	r.reply(objectWith("sessionId", quote(session)))
}

// browserInfo returns the TargetInfo of a session itself, which has this ID.
func browserInfo(id string) json.RawMessage {
	raw, _ := json.Marshal(map[string]any{"targetId": id, "type": "browser", "title": "", "url": "", "attached": true,
		"canAccessOpener": false})
	return raw
}

// objectWith returns an object with one member.
func objectWith(name string, value json.RawMessage) json.RawMessage {
	return jsonrpc.Set(nil, name, value)
}

// attachToTarget creates a session with a target.
func attachToTarget(r request) {
	if string(jsonrpc.Get(r.Params, "flatten")) != "true" {
		r.refuse(policy.NotFlat())
		return
	}
	if r.namesBrowser() {
		attachToBrowserTarget(r)
		return
	}
	b := r.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(r.k.sessions.attached) >= maxAttached:
		r.refuse(fmt.Errorf("the connection already has %d sessions with targets, the maximum", maxAttached))
	case r.root != nil:
		by := &attachRequest{root: r.root}
		r.k.sessions.requestLocked(jsonrpc.GetString(r.Params, "targetId"), by, r.answerTo(nil))
	default:
		r.forward(nil)
	}
}

// createBrowserContext creates a context that ends with the session.
func createBrowserContext(r request) {
	s, b := r.k.session, r.k.session.browser
	b.mu.Lock()
	full := len(s.contexts) >= maxContexts
	b.mu.Unlock()
	if full {
		r.refuse(fmt.Errorf("the session already has %d browser contexts, the maximum", maxContexts))
		return
	}
	params, err := s.proxy.contextParams(r.Params)
	if err != nil {
		r.refuse(err)
		return
	}
	r.Params = params
	r.callOnSession(func(result json.RawMessage) json.RawMessage {
		id := jsonrpc.GetString(result, "browserContextId")
		ctx, cancel := r.k.bounded()
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
func disposeBrowserContext(r request) {
	s, b := r.k.session, r.k.session.browser
	id := jsonrpc.GetString(r.Params, "browserContextId")
	if id == s.base {
		r.refuse(jsonrpc.Errorf(policy.ServerError, "Cannot dispose default browser context."))
		return
	}
	r.callOnSession(func(result json.RawMessage) json.RawMessage {
		r.k.sessions.awaitEnd(id)
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

// getBrowserContexts answers with the contexts that clients have created.
func getBrowserContexts(r request) {
	s := r.k.session
	s.browser.mu.Lock()
	ids := make([]string, 0, len(s.contexts))
	for id := range s.contexts {
		ids = append(ids, id)
	}
	s.browser.mu.Unlock()
	raw, _ := json.Marshal(map[string]any{"browserContextIds": ids, "defaultBrowserContextId": s.base})
	r.reply(raw)
}

// createTarget opens a page. It answers after the events about the target that the client has enabled, as Chrome does.
func createTarget(r request) {
	if !r.setContext() {
		return
	}
	session := r.Session
	if r.root != nil {
		session = ""
	}
	s, b := r.k.session, r.k.session.browser
	b.mu.Lock()
	full := s.pages.open+s.pages.opening >= maxPages
	if !full {
		s.pages.opening++
	}
	b.mu.Unlock()
	if full {
		r.refuse(fmt.Errorf("the session already has %d pages, the maximum", maxPages))
		return
	}
	if jsonrpc.GetString(r.Params, "browserContextId") == s.base {
		s.login.fillFor(jsonrpc.GetString(r.Params, "url"))
	}
	r.k.calls.Begin(session, r.Method, r.Params, func(result json.RawMessage, err error) {
		b.mu.Lock()
		s.pages.opening--
		b.mu.Unlock()
		if err != nil {
			r.refuse(err)
			return
		}
		r.k.session.work.Go(func() {
			ctx, cancel := r.k.bounded()
			defer cancel()
			id := jsonrpc.GetString(result, "targetId")
			if r.root != nil {
				r.k.sessions.awaitAttached(ctx, r.root, id)
			}
			s.pages.awaitReady(ctx, id)
			r.reply(result)
		})
	})
}

// detachFromTarget ends a CDP session. Sessions with the browser end here, all
// others in Chrome, which knows only the sessions of this connection.
func detachFromTarget(r request) {
	b := r.k.session.browser
	id := jsonrpc.GetString(r.Params, "sessionId")
	b.mu.Lock()
	over := r.k.sessions.roots[id]
	if id == "" || over == nil {
		a := r.k.sessions.attached[id]
		given := a != nil && a.from != nil
		if given {
			r.k.sessions.endGivenLocked(id, a)
		}
		b.mu.Unlock()
		if given {
			r.reply(emptyObject)
		} else {
			r.forward(nil)
		}
		return
	}
	delete(r.k.sessions.roots, id)
	delete(r.k.sessions.discover, id)
	r.k.sessions.stopAutoAttachLocked(over)
	b.mu.Unlock()
	r.reply(emptyObject)
	r.k.toClient.Put(wire.Event(r.Session, "Target.detachedFromTarget",
		map[string]string{"sessionId": id, "targetId": r.k.session.id}))
}

// getTargetInfo describes a target of the session, or the session itself.
func getTargetInfo(r request) {
	if r.namesBrowser() || r.root != nil && jsonrpc.Get(r.Params, "targetId") == nil {
		raw, _ := json.Marshal(map[string]any{"targetInfo": browserInfo(r.k.session.id)})
		r.reply(raw)
		return
	}
	b := r.k.session.browser
	r.forward(func(result json.RawMessage) json.RawMessage {
		b.mu.Lock()
		defer b.mu.Unlock()
		info := jsonrpc.Get(result, "targetInfo")
		return jsonrpc.Set(result, "targetInfo", b.targets[jsonrpc.GetString(info, "targetId")].shown(info))
	})
}

// getTargets lists the targets of the session.
func getTargets(r request) {
	wanted, err := newFilter(jsonrpc.Get(r.Params, "filter"))
	if err != nil {
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	}
	b := r.k.session.browser
	if !b.tabsAreMarked { // a page that isKnownLocked asks for is one whose event has come
		ctx, cancel := r.k.bounded()
		r.k.session.hiding.sync(ctx)
		cancel()
	}
	r.forward(func(result json.RawMessage) json.RawMessage {
		b.mu.Lock()
		defer b.mu.Unlock()
		own := []json.RawMessage{}
		if wanted.matches("browser") {
			own = append(own, browserInfo(r.k.session.id))
		}
		for info := range jsonrpc.Elements(jsonrpc.Get(result, "targetInfos")) {
			if b.ownerLocked(info) == r.k.session && b.isKnownLocked(info) {
				own = append(own, b.targets[jsonrpc.GetString(info, "targetId")].shown(info))
			}
		}
		return jsonrpc.Set(result, "targetInfos", jsonrpc.Array(own))
	})
}

// isKnownLocked reports whether a target may be shown. In a chrome-headless-shell a page of the session's own that is
// being opened, or was just closed, is a page as any other; but no event of it is handled.
func (b *Browser) isKnownLocked(info json.RawMessage) bool {
	typ := jsonrpc.GetString(info, "type")
	return b.tabsAreMarked || typ != "page" && typ != "tab" || b.targets[jsonrpc.GetString(info, "targetId")] != nil
}

// setDiscoverTargets subscribes a CDP session, with the browser or a target, to events about the session's targets.
func setDiscoverTargets(r request) {
	wanted, err := newFilter(jsonrpc.Get(r.Params, "filter"))
	if err != nil {
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	}
	on := string(jsonrpc.Get(r.Params, "discover")) == "true"
	ctx, cancel := r.k.bounded()
	defer cancel()
	r.k.session.hiding.sync(ctx)
	b := r.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.root == nil && r.k.sessions.attached[r.Session] == nil && (r.Session != "" || r.k.page == "") {
		r.refuse(policy.NoSession())
		return
	}
	delete(r.k.sessions.discover, r.Session)
	if on && len(r.k.sessions.discover) >= maxListeners {
		r.refuse(fmt.Errorf("the connection already has %d sessions that discover targets, the maximum", maxListeners))
		return
	}
	if on {
		r.k.sessions.discover[r.Session] = wanted
		if wanted.matches("browser") {
			r.k.toClient.Put(wire.Event(r.Session, "Target.targetCreated",
				map[string]any{"targetInfo": browserInfo(r.k.session.id)}))
		}
		for _, t := range r.k.session.targetsLocked() {
			if wanted.matches(t.typ) {
				r.k.toClient.Put(wire.Event(r.Session, "Target.targetCreated",
					map[string]json.RawMessage{"targetInfo": t.visibleInfo()}))
			}
		}
	}
	r.reply(emptyObject)
}

// setAutoAttach attaches the client to the session's targets, existing and new ones.
func setAutoAttach(r request) {
	wanted, err := newFilter(jsonrpc.Get(r.Params, "filter"))
	on := string(jsonrpc.Get(r.Params, "autoAttach")) == "true"
	wait := on && string(jsonrpc.Get(r.Params, "waitForDebuggerOnStart")) == "true"
	if r.root == nil { // to what is below a target of the session
		b := r.k.session.browser
		b.mu.Lock()
		if a := r.k.sessions.attached[r.Session]; a != nil {
			a.pausesPage = wait && wanted.matches("page")
		}
		b.mu.Unlock()
		r.forward(nil)
		return
	}
	switch {
	case err != nil:
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "Invalid parameters: filter: %v", err))
		return
	case string(jsonrpc.Get(r.Params, "flatten")) != "true":
		r.refuse(policy.NotFlat())
		return
	case on && wanted.matches("tab") && wanted.matches("page"):
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams,
			"Filter should not simultaneously allow \"tab\" and \"page\", page targets are attached via tab targets"))
		return
	}
	ctx, cancel := r.k.bounded()
	defer cancel()
	b := r.k.session.browser
	r.k.session.hiding.sync(ctx)
	var attached sync.WaitGroup
	b.mu.Lock()
	if r.root.auto, r.root.wait = nil, wait; on {
		r.root.auto = wanted
		for _, t := range r.k.session.targetsLocked() {
			if r.root.attaches(t) {
				attached.Add(1)
				r.k.sessions.autoAttachLocked(r.root, t, attached.Done)
			}
		}
	} else {
		r.k.sessions.stopAutoAttachLocked(r.root)
	}
	b.mu.Unlock()
	if wait {
		b.awaitWatchers(ctx, r.k.session)
	}
	r.k.session.work.Go(func() {
		attached.Wait()
		r.reply(emptyObject)
	})
}
