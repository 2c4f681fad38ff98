package virtual

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
)

// command applies the policy to a command of the client. An error ends the
// connection.
func (k *Client) command(message []byte) error {
	c, refused := policy.Parse(message)
	if refused != nil {
		k.refuse(c, refused)
		return nil
	}
	if c.ID[0] == '-' {
		k.refuse(c, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"Message must have a non-negative id in a shared browser"))
		return nil
	}
	if k.person == nil {
		if k.session.clients.seen.Load() > 0 {
			k.tellCommand(c)
		}
		k.turns.Lock()
		defer k.turns.Unlock()
		if k.turns.waitsLocked(c, message) {
			return nil
		}
	}
	return k.act(c, message)
}

// act carries out a command that does not wait. An error ends the connection.
func (k *Client) act(c policy.Command, message []byte) error {
	r, given := k.rootOf(c.Session), c.Params
	rule := policy.Lookup(c.Method, r == nil)
	var refused *policy.Error
	if k.person != nil {
		if refused := k.mayView(c); refused != nil {
			k.refuse(c, refused)
			return nil
		}
	} else if !rule.Has(policy.NoUse) {
		k.noteUse(c.Session)
		k.unanswered.add(c, true)
		k.session.throttle.wake(k.ctx)
		k.noteVisibility(c)
	} else {
		k.session.throttle.recorded.Store(time.Now().UnixNano())
	}
	if k.calls.Pending() > maxPending {
		return errFlood
	}
	if rule.Action == policy.Optional && r == nil && k.session.options.DefaultContext {
		rule.Action = policy.Pass
	}
	switch rule.Action {
	case policy.Refuse, policy.Optional, policy.Missing:
		k.refuse(c, rule.Refusal(c.Method))
		return nil
	}
	var roots []string
	if rule.Has(policy.Uploads) {
		roots = k.session.options.uploadRoots()
		c.Params, refused = k.session.options.resolveFiles(c.Params, roots)
	}
	var params json.RawMessage
	if refused == nil {
		params, refused = policy.Check(c, roots)
	}
	if refused != nil && k.session.options.DefaultContext && policy.OpensFile(c) {
		params, refused = c.Params, nil
	}
	if refused == nil {
		refused = k.session.browser.checkAddress(c)
	}
	if refused == nil && r == nil {
		refused = policy.CheckTarget(c, func() policy.Target { return k.stateOf(c.Session) })
	}
	if refused != nil {
		k.refuse(c, refused)
		return nil
	}
	k.noteMetrics(c)
	k.noteLeaving(c)
	k.pressed.note(c)
	switch {
	case rule.Has(policy.Crashes):
		k.noteCrash(c.Session)
	case rule.Has(policy.Navigates):
		k.awaitReady(c.Session)
		if isBlank(jsonrpc.GetString(c.Params, "url")) {
			k.leaveRestored(c.Session)
		}
	case rule.Has(policy.Pauses):
		k.session.login.fillAll()
	}
	changed := string(params) != string(given)
	c.Params = params
	switch {
	case rule.Has(policy.Resumes) && k.keepsPaused(c):
		return nil
	case rule.Action != policy.Pass && !k.hasSession(c.Session):
		k.refuse(c, policy.NoSession())
		return nil
	case rule.Action != policy.Pass:
		k.handle(c, r, rule.Action)
		return nil
	case rule.Has(policy.Clips) && k.captureAmongOthers(c), k.person != nil && k.meetDialog(c):
		return nil
	case rule.Has(policy.Navigates) && k.session.options.isLimited():
		k.forward(c, r, k.session.proxy.namesRule(jsonrpc.GetString(params, "url")))
		return nil
	case changed || r != nil && r.session != "":
		k.forward(c, r, nil)
		return nil
	}
	return k.up.Write(c, message)
}

// targetLocked returns the target of a CDP session, nil if the session is the
// client's root, or if the watcher does not see targets of its type.
func (k *Client) targetLocked(session string) *target {
	target := k.page
	if a := k.attached[session]; a != nil {
		target = a.target
	}
	return k.session.browser.targets[target]
}

// stateOf returns the state that a command may depend on; see
// policy.CheckTarget.
func (k *Client) stateOf(session string) policy.Target {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := k.targetLocked(session)
	if t == nil {
		return policy.Target{}
	}
	return policy.Target{Type: t.typ, Crashed: t.crashed, Scale: k.session.emulates.scaleLocked(t)}
}

// awaitReady waits until the page of a CDP session has been set up, by the session and by
// the other clients for which it waits: Chrome keeps what they send to a page that goes
// elsewhere until it is there, and its first requests would not be told.
func (k *Client) awaitReady(session string) {
	b := k.session.browser
	b.mu.Lock()
	t := k.targetLocked(session)
	ready := t == nil || t.ready == nil || t.prepared
	b.mu.Unlock()
	ctx, cancel := k.bounded()
	defer cancel()
	if !ready {
		k.session.pages.awaitReady(ctx, t.id)
	}
	k.awaitOthers(ctx, t)
}

// othersTimeout is how long a client waits for what other clients have to do first.
const othersTimeout = 10 * time.Second

// awaitOthers waits until no other client keeps a target paused.
func (k *Client) awaitOthers(ctx context.Context, t *target) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	awaitLocked(ctx, &b.mu, &t.unblocked, func() bool { return !t.waitsForOther(k) })
}

// awaitLocked waits until something is so, which may change at each broadcast. It
// unlocks the lock meanwhile.
func awaitLocked(ctx context.Context, lock sync.Locker, changed *wait.Broadcast, isSo func() bool) {
	for !isSo() && ctx.Err() == nil {
		next := changed.Next()
		lock.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
		}
		lock.Lock()
	}
}

// waitsForOther reports whether a target is paused until another client has set it up.
func (t *target) waitsForOther(k *Client) bool {
	return t.blocks(func(by blocker) bool { return by.client != nil && by.client != k })
}

// leaveRestored forgets what a page was to show: the client wants a blank one.
func (k *Client) leaveRestored(session string) {
	b := k.session.browser
	b.mu.Lock()
	own := ""
	if t := k.targetLocked(session); t != nil {
		own = k.session.pages.own[t.id]
	}
	b.mu.Unlock()
	k.session.pages.restored(own)
}

// noteCrash notes that a target was told to crash, before the watcher reports
// it.
func (k *Client) noteCrash(session string) {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := k.targetLocked(session); t != nil {
		t.crashed = true
	}
}

// rootOf returns the root that a CDP session is; nil: it is a session with a
// target, or unknown.
func (k *Client) rootOf(session string) *root {
	switch {
	case session == "":
		return k.root
	case !k.hasMoreRoots.Load():
		return nil
	}
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.roots[session]
}

// hasSession reports whether a CDP session belongs to the client.
func (k *Client) hasSession(session string) bool {
	if session == "" {
		return true
	}
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.attached[session] != nil || k.roots[session] != nil
}

// forward sends a command of the client under an id of our own. It answers the
// client with the result after change, which may be nil.
func (k *Client) forward(c policy.Command, r *root, change func(json.RawMessage) json.RawMessage) {
	session := c.Session
	if r != nil {
		session = ""
	}
	k.calls.Begin(session, c.Method, c.Params, k.answerTo(c, change))
}

// answerTo returns a function that answers the client with a result from
// Chrome.
func (k *Client) answerTo(c policy.Command, change func(json.RawMessage) json.RawMessage) func(json.RawMessage, error) {
	return func(result json.RawMessage, err error) {
		k.touch()
		if err == wire.ErrDetached {
			return // as Chrome does
		}
		if err != nil {
			k.refuse(c, err)
			return
		}
		if change != nil {
			result = change(result)
		}
		k.reply(c, result)
	}
}

// bounded returns a context for waiting on behalf of a command.
func (k *Client) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.ctx, callTimeout)
}

// keepsPaused reports whether a target stays paused although this client
// resumes it, because other clients are still setting it up.
func (k *Client) keepsPaused(c policy.Command) bool {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	by := blocker{client: k}
	if a := k.attached[c.Session]; a != nil {
		if by.root = a.root; !a.pausesPage {
			k.tabReleasedLocked(a)
		}
	}
	t := k.targetLocked(c.Session)
	if t == nil || !t.isPaused() {
		return false
	}
	delete(t.pause.blockers, by)
	if t.goOnLocked(c.Session); !t.isPaused() {
		return false
	}
	t.resumeLaterLocked(k, c.Session)
	k.reply(c, emptyObject)
	return true
}

var emptyObject = json.RawMessage("{}")

// handle executes a command that is not simply passed on.
func (k *Client) handle(c policy.Command, r *root, action policy.Action) {
	switch c.Method { // whose functions lead back here
	case "Btools.take":
		k.take(c)
		return
	case "Btools.give":
		k.give(c)
		return
	case "Btools.waitUntilFree":
		k.waitUntilFree(c)
		return
	}
	if h := handlers[c.Method]; h != nil {
		if action == policy.Own && !k.owns(c) {
			return
		}
		h(k, c, r)
		return
	}
	switch action {
	case policy.Own:
		if k.owns(c) {
			k.forward(c, r, nil)
		}
	case policy.Context:
		if k.setContext(&c) {
			k.forward(c, r, nil)
		}
	default: // the table and the handlers disagree
		k.refuse(c, policy.NotAllowed())
	}
}

// handlers are the commands with a function of their own. Where the table says
// Own, the ids in the command are known to be the session's.
var handlers = map[string]func(*Client, policy.Command, *root){
	"Target.attachToBrowserTarget": (*Client).attachToBrowserTarget,
	"Target.attachToTarget":        (*Client).attachToTarget,
	"Target.createBrowserContext":  (*Client).createBrowserContext,
	"Target.createTarget":          (*Client).createTarget,
	"Target.detachFromTarget":      (*Client).detachFromTarget,
	"Target.disposeBrowserContext": (*Client).disposeBrowserContext,
	"Target.getBrowserContexts":    (*Client).getBrowserContexts,
	"Target.getTargetInfo":         (*Client).getTargetInfo,
	"Target.getTargets":            (*Client).getTargets,
	"Target.setAutoAttach":         (*Client).setAutoAttach,
	"Target.setDiscoverTargets":    (*Client).setDiscoverTargets,

	"Btools.emulate":   (*Client).emulate,
	"Btools.whyFailed": (*Client).whyFailed,

	"Browser.cancelDownload":          (*Client).cancelDownload,
	"Browser.close":                   (*Client).closeBrowser,
	"Browser.getBrowserCommandLine":   fixedAnswer(`{"arguments":["chrome"]}`),
	"Browser.getGlobalPrivacyControl": fixedAnswer(`{"enabled":false}`),
	"Browser.getWindowForTarget":      (*Client).getWindowForTarget,
	"Browser.grantPermissions":        (*Client).forwardOnSession,
	"Browser.resetPermissions":        (*Client).forwardOnSession,
	"Browser.setDockTile":             fixedAnswer(`{}`),
	"Browser.setDownloadBehavior":     (*Client).setDownloadBehavior,
	"Browser.setPermission":           (*Client).forwardOnSession,
	"Page.setDownloadBehavior":        (*Client).setPageDownloadBehavior,

	"Extensions.getExtensions":            fixedAnswer(`{"extensions":[]}`),
	"Security.disable":                    fixedAnswer(`{}`),
	"Security.enable":                     fixedAnswer(`{}`),
	"Security.setIgnoreCertificateErrors": (*Client).ignoreCertificateErrors,
	"SystemInfo.getInfo":                  (*Client).systemInfo,
	"SystemInfo.getProcessInfo":           fixedAnswer(`{"processInfo":[]}`),
}

// fixedAnswer returns a handler that always gives the same result.
func fixedAnswer(result string) func(*Client, policy.Command, *root) {
	return func(k *Client, c policy.Command, _ *root) { k.reply(c, json.RawMessage(result)) }
}

// owns reports whether the session owns everything that a command names. If
// not, it answers as Chrome does for unknown ids.
func (k *Client) owns(c policy.Command) bool {
	s := k.session
	if id := jsonrpc.Get(c.Params, "targetId"); id != nil && !k.namesBrowser(c) {
		ctx, cancel := k.bounded()
		defer cancel()
		if !s.Has(ctx, jsonrpc.GetString(c.Params, "targetId")) {
			k.refuse(c, policy.NoTarget(c.Method))
			return false
		}
	}
	if id := jsonrpc.Get(c.Params, "browserContextId"); id != nil &&
		!k.ownsContext(jsonrpc.GetString(c.Params, "browserContextId")) {
		k.refuse(c, policy.NoContext(c.Method, jsonrpc.GetString(c.Params, "browserContextId")))
		return false
	}
	if raw := jsonrpc.Get(c.Params, "windowId"); raw != nil {
		id, err := strconv.ParseInt(string(raw), 10, 64)
		s.browser.mu.Lock()
		known := s.pages.windows[id]
		s.browser.mu.Unlock()
		if err != nil || !known {
			k.refuse(c, policy.NoWindow())
			return false
		}
	}
	return true
}

// namesBrowser reports whether a command of the root names the session itself,
// which is a target of the type browser.
func (k *Client) namesBrowser(c policy.Command) bool {
	switch c.Method {
	case "Target.attachToTarget", "Target.getTargetInfo":
		return k.rootOf(c.Session) != nil && jsonrpc.GetString(c.Params, "targetId") == k.session.id
	}
	return false
}

func (k *Client) ownsContext(id string) bool {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.contexts[id] == k.session
}

// setContext sets a command's context to the session's base context if it names
// none, and reports whether the session owns the context.
func (k *Client) setContext(c *policy.Command) bool {
	if jsonrpc.Get(c.Params, "browserContextId") == nil {
		c.Params = jsonrpc.Set(c.Params, "browserContextId", quote(k.session.base))
		return true
	}
	return k.owns(*c)
}

// forwardOnSession sends a command on the session's own connection, whose state
// outlives the client's.
func (k *Client) forwardOnSession(c policy.Command, _ *root) {
	if !k.setContext(&c) {
		return
	}
	k.callOnSession(c, func(result json.RawMessage) json.RawMessage { return result })
}

// callOnSession sends a command on the session's own connection and waits for
// the answer, because the client's next command takes another connection.
func (k *Client) callOnSession(c policy.Command, change func(json.RawMessage) json.RawMessage) {
	ctx, cancel := k.bounded()
	defer cancel()
	result, err := k.session.link.Call(ctx, "", c.Method, c.Params)
	k.answerTo(c, change)(result, err)
}
