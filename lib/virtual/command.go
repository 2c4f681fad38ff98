package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
)

// command applies the policy to a command of the client. An error ends the connection.
func (k *Client) command(message []byte) error {
	c, refused := policy.Parse(message)
	if refused == nil && c.ID[0] == '-' {
		refused = jsonrpc.Errorf(jsonrpc.InvalidRequest, "Message must have a non-negative id in a shared browser")
	}
	if refused != nil {
		k.request(c).refuse(refused)
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
	return k.request(c).act(message)
}

// request is a command of a client that is being carried out.
type request struct {
	policy.Command
	k     *Client
	root  *root // that its CDP session is; nil: a session with a target, or an unknown one
	round int32 // of the client's outlet
}

// request returns a command of the client as a request.
func (k *Client) request(c policy.Command) request {
	return request{c, k, k.sessions.rootOf(c.Session), k.toClient.round.Load()}
}

// act carries out a command that does not wait. An error ends the connection.
func (r request) act(message []byte) error {
	k, given := r.k, r.Params
	rule := policy.Lookup(r.Method, r.root == nil)
	var refused *policy.Error
	if k.person != nil {
		if refused := r.mayView(); refused != nil {
			r.refuse(refused)
			return nil
		}
		k.unanswered.add(r.Command, true)
	} else if !rule.Has(policy.NoUse) {
		k.noteUse(r.Session)
		k.unanswered.add(r.Command, true)
		k.session.throttle.wake(k.ctx)
		k.overrides.noteVisibility(r.Command)
	} else {
		k.session.throttle.recorded.Store(time.Now().UnixNano())
	}
	if k.calls.Pending() > maxPending {
		return errFlood
	}
	if rule.Action == policy.Optional && r.root == nil && k.session.options.DefaultContext {
		rule.Action = policy.Pass
	}
	switch rule.Action {
	case policy.Refuse, policy.Optional, policy.Missing:
		r.refuse(rule.Refusal(r.Method))
		return nil
	}
	var roots []string
	if rule.Has(policy.Uploads) {
		roots = k.session.options.uploadRoots()
		r.Params, refused = k.session.options.resolveFiles(r.Params, roots)
	}
	var params json.RawMessage
	if refused == nil {
		params, refused = policy.Check(r.Command, roots)
	}
	if refused != nil && k.session.options.DefaultContext && policy.OpensFile(r.Command) {
		params, refused = r.Params, nil
	}
	if refused == nil {
		refused = k.session.browser.checkAddress(r.Command)
	}
	if refused == nil && r.root == nil {
		refused = policy.CheckTarget(r.Command, func() policy.Target { return k.stateOf(r.Session) })
	}
	if refused != nil {
		r.refuse(refused)
		return nil
	}
	k.overrides.noteMetrics(r.Command)
	r.noteLeaving()
	k.pressed.note(r.Command)
	switch {
	case rule.Has(policy.Casts):
		k.toClient.noteCast(r.Command)
	case rule.Has(policy.Crashes):
		k.noteCrash(r.Session)
	case rule.Has(policy.Navigates):
		k.awaitReady(r.Session)
		if isBlank(jsonrpc.GetString(r.Params, "url")) {
			k.leaveRestored(r.Session)
		}
	case rule.Has(policy.Pauses):
		k.session.login.fillAll()
	}
	changed := string(params) != string(given)
	r.Params = params
	switch {
	case rule.Has(policy.Resumes) && r.keepsPaused():
		return nil
	case rule.Action != policy.Pass && !k.sessions.has(r.Session):
		r.refuse(policy.NoSession())
		return nil
	case rule.Action != policy.Pass:
		r.handle(rule.Action)
		return nil
	case rule.Has(policy.Recalls) && r.wouldRecall():
		r.reply(emptyObject)
		return nil
	case rule.Has(policy.Clips) && r.captureAmongOthers(), k.person != nil && r.meetDialog():
		return nil
	case rule.Has(policy.Navigates) && k.session.options.isLimited():
		r.forward(k.session.proxy.namesRule(jsonrpc.GetString(params, "url")))
		return nil
	case changed || r.root != nil && r.root.session != "" || k.toClient.sifts.Load():
		r.forward(nil)
		return nil
	}
	return k.up.Write(r.Command, message)
}

// stateOf returns the state that a command may depend on; see policy.CheckTarget.
func (k *Client) stateOf(session string) policy.Target {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := k.sessions.targetLocked(session)
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
	t := k.sessions.targetLocked(session)
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

// awaitLocked waits until something is so, which may change at each broadcast. It unlocks the lock meanwhile.
func awaitLocked(ctx context.Context, lock sync.Locker, changed *wait.Broadcast, isSo func() bool) {
	for !isSo() && ctx.Err() == nil {
		next := changed.Next()
		lock.Unlock()
		wait.For(ctx, next)
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
	defer b.mu.Unlock()
	k.session.pages.restoredLocked(k.sessions.targetLocked(session))
}

// noteCrash notes that a target was told to crash, before the watcher reports it.
func (k *Client) noteCrash(session string) {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := k.sessions.targetLocked(session); t != nil {
		t.crashed = true
	}
}

// forward sends a command of the client under an id of our own. It answers the
// client with the result after change, which may be nil.
func (r request) forward(change func(json.RawMessage) json.RawMessage) {
	session := r.Session
	if r.root != nil {
		session = ""
	}
	r.k.calls.Begin(session, r.Method, r.Params, r.answerTo(change))
}

// answerTo returns a function that answers the client with a result from Chrome.
func (r request) answerTo(change func(json.RawMessage) json.RawMessage) func(json.RawMessage, error) {
	return func(result json.RawMessage, err error) {
		r.k.touch()
		if err == wire.ErrDetached {
			return // as Chrome does
		}
		if err != nil {
			r.refuse(err)
			return
		}
		if change != nil {
			result = change(result)
		}
		r.reply(result)
	}
}

// bounded returns a context for waiting on behalf of a command.
func (k *Client) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.ctx, callTimeout)
}

// keepsPaused reports whether a target stays paused although this client
// resumes it, because other clients are still setting it up.
func (r request) keepsPaused() bool {
	b := r.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	by := blocker{client: r.k}
	if a := r.k.sessions.attached[r.Session]; a != nil {
		if by.root = a.root; !a.pausesPage {
			r.k.sessions.tabReleasedLocked(a)
		}
	}
	t := r.k.sessions.targetLocked(r.Session)
	if t == nil || !t.isPaused() {
		return false
	}
	delete(t.pause.blockers, by)
	if t.goOnLocked(r.Session); !t.isPaused() {
		return false
	}
	t.resumeLaterLocked(r.k, r.Session)
	r.reply(emptyObject)
	return true
}

var emptyObject = json.RawMessage("{}")

// handle executes a command that is not simply passed on.
func (r request) handle(action policy.Action) {
	switch r.Method { // whose functions lead back here
	case "Btools.take":
		take(r)
		return
	case "Btools.give":
		give(r)
		return
	case "Btools.requestHuman":
		requestHuman(r)
		return
	case "Btools.waitUntilFree":
		waitUntilFree(r)
		return
	}
	if h := handlers[r.Method]; h != nil {
		if action == policy.Own && !r.owns() {
			return
		}
		h(r)
		return
	}
	switch action {
	case policy.Own:
		if r.owns() {
			r.forward(nil)
		}
	case policy.Context:
		if r.setContext() {
			r.forward(nil)
		}
	default: // the table and the handlers disagree
		r.refuse(policy.NotAllowed())
	}
}

// handlers are the commands with a function of their own. Where the table says
// Own, the ids in the command are known to be the session's.
var handlers = map[string]func(request){
	"Target.attachToBrowserTarget": attachToBrowserTarget,
	"Target.attachToTarget":        attachToTarget,
	"Target.createBrowserContext":  createBrowserContext,
	"Target.createTarget":          createTarget,
	"Target.detachFromTarget":      detachFromTarget,
	"Target.disposeBrowserContext": disposeBrowserContext,
	"Target.getBrowserContexts":    getBrowserContexts,
	"Target.getTargetInfo":         getTargetInfo,
	"Target.getTargets":            getTargets,
	"Target.setAutoAttach":         setAutoAttach,
	"Target.setDiscoverTargets":    setDiscoverTargets,

	"Btools.emulate":   changeEmulation,
	"Btools.whyFailed": whyFailed,

	"Browser.cancelDownload":          cancelDownload,
	"Browser.close":                   closeBrowser,
	"Browser.getBrowserCommandLine":   fixedAnswer(`{"arguments":["chrome"]}`),
	"Browser.getGlobalPrivacyControl": fixedAnswer(`{"enabled":false}`),
	"Browser.getWindowForTarget":      getWindowForTarget,
	"Browser.grantPermissions":        request.forwardOnSession,
	"Browser.resetPermissions":        request.forwardOnSession,
	"Browser.setDockTile":             fixedAnswer(`{}`),
	"Browser.setDownloadBehavior":     setDownloadBehavior,
	"Browser.setPermission":           request.forwardOnSession,
	"Page.setDownloadBehavior":        setPageDownloadBehavior,

	"Extensions.getExtensions":            fixedAnswer(`{"extensions":[]}`),
	"Security.disable":                    fixedAnswer(`{}`),
	"Security.enable":                     fixedAnswer(`{}`),
	"Security.setIgnoreCertificateErrors": ignoreCertificateErrors,
	"SystemInfo.getInfo":                  systemInfo,
	"SystemInfo.getProcessInfo":           fixedAnswer(`{"processInfo":[]}`),
}

// fixedAnswer returns a handler that always gives the same result.
func fixedAnswer(result string) func(request) {
	return func(r request) { r.reply(json.RawMessage(result)) }
}

// owns reports whether the session owns everything that a command names. If
// not, it answers as Chrome does for unknown ids.
func (r request) owns() bool {
	s := r.k.session
	if id := jsonrpc.Get(r.Params, "targetId"); id != nil && !r.namesBrowser() {
		ctx, cancel := r.k.bounded()
		defer cancel()
		if !s.Has(ctx, jsonrpc.GetString(r.Params, "targetId")) {
			r.refuse(policy.NoTarget(r.Method))
			return false
		}
	}
	if id := jsonrpc.Get(r.Params, "browserContextId"); id != nil &&
		!r.k.ownsContext(jsonrpc.GetString(r.Params, "browserContextId")) {
		r.refuse(policy.NoContext(r.Method, jsonrpc.GetString(r.Params, "browserContextId")))
		return false
	}
	if raw := jsonrpc.Get(r.Params, "windowId"); raw != nil {
		id, err := strconv.ParseInt(string(raw), 10, 64)
		s.browser.mu.Lock()
		known := s.pages.windows[id]
		s.browser.mu.Unlock()
		if err != nil || !known {
			r.refuse(policy.NoWindow())
			return false
		}
	}
	return true
}

// namesBrowser reports whether a command of the root names the session itself, which is a target of the type browser.
func (r request) namesBrowser() bool {
	switch r.Method {
	case "Target.attachToTarget", "Target.getTargetInfo":
		return r.k.sessions.rootOf(r.Session) != nil && jsonrpc.GetString(r.Params, "targetId") == r.k.session.id
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
func (r *request) setContext() bool {
	if jsonrpc.Get(r.Params, "browserContextId") == nil {
		r.Params = jsonrpc.Set(r.Params, "browserContextId", quote(r.k.session.base))
		return true
	}
	return r.owns()
}

// forwardOnSession sends a command on the session's own connection, whose state outlives the client's.
func (r request) forwardOnSession() {
	if !r.setContext() {
		return
	}
	r.callOnSession(func(result json.RawMessage) json.RawMessage { return result })
}

// callOnSession sends a command on the session's own connection and waits for
// the answer, because the client's next command takes another connection.
func (r request) callOnSession(change func(json.RawMessage) json.RawMessage) {
	ctx, cancel := r.k.bounded()
	defer cancel()
	result, err := r.k.session.link.Call(ctx, "", r.Method, r.Params)
	r.answerTo(change)(result, err)
}

// reply answers a command of the client.
func (r request) reply(result json.RawMessage) {
	r.answered()
	r.k.toClient.answer(r, policy.Result(r.Command, result))
}

// refuse answers a command of the client with an error.
func (r request) refuse(err error) {
	var e *policy.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(policy.ServerError, "%v", err)
	}
	r.answered()
	r.k.toClient.answer(r, policy.Failure(r.Command, e))
}

// answered notes that a command of the client has an answer which is not Chrome's own.
func (r request) answered() {
	if id, err := strconv.Atoi(string(r.ID)); err == nil && r.k.unanswered.drop(id) {
		r.k.touch()
	}
}
