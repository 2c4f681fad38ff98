package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
	"btools/lib/websocket"
)

// Errors of Connect.
var errNoTarget = errors.New("the session has no such target")

// IsNoTarget reports whether an error says that a session does not have a
// target.
func IsNoTarget(err error) bool { return errors.Is(err, errNoTarget) }

// defaultStall is how long a client may leave its messages unread.
const defaultStall = 15 * time.Second

// callTimeout bounds how long a client's command waits for Chrome.
const callTimeout = 30 * time.Second

// Client is one connection of a client to a session.
type Client struct {
	// Trace, if not nil, is called when Accept has begun the client's WebSocket; what
	// it returns gets each message, as websocket.Conn.Trace.
	Trace func() func(toClient bool, message []byte, size int64)

	session  *Session
	person   *Person // who looks at the session by it; nil: it is a client
	holder   string  // by which that person has had control; under the session's lock
	page     string  // the target that it is connected to; "": the browser
	conn     *websocket.Conn
	ends     ends   // of its connection; none if they are not known
	origin   origin // see findOrigin
	up       Conn   // its own connection to Chrome
	toClient *websocket.Outbox
	calls    *calls
	ctx      context.Context // ends with the client
	cancel   context.CancelFunc
	closing  sync.Once
	why      error

	turns        turns
	pressed      pressed
	unanswered   unanswered
	root         *root               // the connection itself, if it is to the browser
	hasMoreRoots atomic.Bool         // there are or were other roots
	lastUse      atomic.Pointer[use] // the page that was used last

	// Under the browser's lock:
	roots          map[string]*root            // by CDP session; "" is the connection itself
	attached       map[string]*attachment      // by CDP session
	attachRequests map[string][]*attachRequest // by target, in the order sent to Chrome
	discover       map[string]filter           // the CDP sessions that discover targets
	downloads      map[string]bool             // the CDP sessions that get download events
	downloadEvents downloadEvents
	focusing       map[string]bool            // the CDP sessions that emulate the focus of their page
	metrics        map[string]json.RawMessage // the parameters of their setDeviceMetricsOverride, by CDP session
	ended          wait.Broadcast             // one of attached, or a target of the session, has ended
	gone           bool                       // it is unregistered
}

// use is a CDP session and its target.
type use struct {
	session string
	target  *target
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

// attachment is a CDP session with a target.
type attachment struct {
	target     string
	context    string // of the target
	root       *root  // that requested it; nil: the target's parent did
	parent     string // the CDP session with which it ends
	pausesPage bool   // with a tab: its page is attached, too, before it resumes
	from       *link  // the watcher that has given it, and can end it; nil: the client can
}

// attachRequest is a root's request for a CDP session with a target, until
// Chrome announces that session.
type attachRequest struct {
	root *root
	auto bool // for its auto-attach
}

// Close ends a client that is not being served.
func (k *Client) Close() { k.disconnect(ErrEnded) }

// Accept answers the client's upgrade and serves it until one side is gone.
func (k *Client) Accept(w http.ResponseWriter, r *http.Request) error {
	k.ends = endsOf(r)
	conn, err := websocket.Accept(w, r)
	if err != nil {
		k.Close()
		return err
	}
	if k.Trace != nil {
		conn.Trace = k.Trace()
	}
	return k.Serve(conn)
}

// Serve relays messages until one side is gone, and returns the reason.
func (k *Client) Serve(conn *websocket.Conn) error {
	s, b := k.session, k.session.browser
	conn.Stall, conn.Progress, conn.Budget = b.stall, b.stall, &b.unfinished
	k.conn, k.toClient = conn, websocket.NewOutbox(conn)
	b.mu.Lock()
	over, why := s.life.over, s.life.why
	if !over {
		s.clients.all[k] = true
		if k.person == nil {
			s.Touch()
		}
		s.work.Add(1)
	}
	b.mu.Unlock()
	if over {
		k.disconnect(why)
		return why
	}
	defer s.work.Done()
	if k.person != nil {
		s.clients.tellControl()
	}
	var work sync.WaitGroup
	work.Go(func() { k.toClient.Run(k.ctx.Done()) })
	work.Go(k.watchUpstream)
	work.Go(func() { k.disconnect(k.fromChrome()) })
	k.disconnect(k.fromClient())
	work.Wait()
	k.calls.End()
	return k.why
}

// watchUpstream disconnects a client that has left too many of Chrome's messages
// unread: what relays them may wait for it.
func (k *Client) watchUpstream() {
	select {
	case <-k.up.Done():
		_, err := k.up.Next()
		k.disconnect(errEnded(err))
	case <-k.ctx.Done():
	}
}

// disconnect closes both connections, once.
func (k *Client) disconnect(why error) {
	k.closing.Do(func() {
		if k.person != nil {
			k.letGo()
		}
		k.why = why
		k.cancel()
		k.closeLeaving(func(string) bool { return true })
		k.unregister()
		var closed *websocket.CloseError
		code, reason := websocket.GoingAway, ""
		switch {
		case errors.As(why, &closed):
			code = websocket.Normal
		case why != nil:
			reason = why.Error()
		}
		var up sync.WaitGroup
		up.Go(k.up.Close)
		if k.conn != nil {
			k.conn.Close(code, reason)
		}
		up.Wait()
	})
}

// unregister removes the client from its session and from all that waits for
// it.
func (k *Client) unregister() {
	s, b := k.session, k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	k.gone = true
	if !s.clients.all[k] {
		return // it was not being served
	}
	delete(s.clients.all, k)
	in, out := k.bytes()
	s.clients.in.Add(in)
	s.clients.out.Add(out)
	for session, a := range k.attached {
		if t := b.targets[a.target]; t != nil {
			k.attachLocked(t, -1)
		}
		k.takeBackLocked(session, a)
	}
	for _, t := range s.targetsLocked() {
		t.leaveLocked(k)
		maps.DeleteFunc(t.dialogs, func(by told, _ json.RawMessage) bool { return by.client == k })
	}
}

func (k *Client) bytes() (in, out int64) { return k.conn.Received(), k.conn.Sent() }

// fromClient handles the client's commands.
func (k *Client) fromClient() error {
	defer k.conn.Release()
	for {
		m, err := k.conn.Next()
		if err != nil {
			return err
		}
		if size := m.Size(); size < 0 || size > policy.MaxSmall {
			if err := boundSmall(m); err != nil {
				return err
			}
		}
		b, err := m.Bytes()
		if err != nil {
			return err
		}
		if err := k.command(b); err != nil {
			return err
		}
	}
}

// boundSmall refuses a message that is too large for its method.
func boundSmall(m *websocket.Message) error {
	const enough = 1 << 10 // bytes, until the method
	head, err := m.Peek(enough)
	if err != nil || policy.IsLarge(head) {
		return err
	}
	return m.Bound(policy.MaxSmall)
}

// deliver sends a message of Chrome that is neither inspected nor an answer to us to
// the client, if that needs no waiting: it saves a switch to another goroutine.
func (k *Client) deliver(message []byte) bool {
	id, isAnswer := wire.IDOf(message)
	if isAnswer && id < 0 || !isAnswer && isInspected(message) || !k.toClient.TryWrite(message) {
		return false
	}
	k.session.browser.noteActivity()
	if isAnswer && k.unanswered.drop(id) {
		k.touch()
	}
	return true
}

// fromChrome relays Chrome's messages. Answers and events of pages pass
// unchanged; events about targets are inspected.
func (k *Client) fromChrome() error {
	k.up.Direct(k.deliver)
	for {
		m, err := k.up.Next()
		if err != nil {
			return errEnded(err)
		}
		k.session.browser.noteActivity()
		head, err := m.Peek(headSize)
		if err != nil {
			return errEnded(err)
		}
		id, isAnswer := wire.IDOf(head)
		if isAnswer && k.unanswered.drop(id) {
			k.touch()
		}
		if isAnswer && id >= 0 || !isAnswer && !isInspected(head) {
			if err := m.relay(k.toClient); err != nil {
				return err
			}
			continue
		}
		whole, err := m.Bytes()
		if err != nil {
			return errEnded(err)
		}
		if isAnswer {
			k.calls.Answered(id, whole)
			continue
		}
		k.event(whole)
	}
}

// headSize is how many bytes of a message are enough to identify it by its id
// or method.
const headSize = 64

var (
	methodHead  = []byte(`{"method":"`)
	targetEvent = []byte(`{"method":"Target.`)
	crashEvent  = []byte(`{"method":"Inspector.target`)
	dialogEvent = []byte(`{"method":"Page.javascriptDialog`)
)

// isInspected reports whether k.event handles a message. Chrome writes the
// method first; messages in another form are inspected, too.
func isInspected(head []byte) bool {
	if len(head) < len(methodHead) || string(head[:len(methodHead)]) != string(methodHead) {
		return true
	}
	return bytes.HasPrefix(head, targetEvent) || bytes.HasPrefix(head, crashEvent) || bytes.HasPrefix(head, dialogEvent)
}

// event handles an event about targets.
func (k *Client) event(message []byte) {
	b := k.session.browser
	method, params, session := jsonrpc.GetString(message, "method"), jsonrpc.Get(message, "params"),
		jsonrpc.GetString(message, "sessionId")
	if method == "Target.detachedFromTarget" {
		k.calls.FailSession(jsonrpc.GetString(params, "sessionId"))
		k.unanswered.dropSession(jsonrpc.GetString(params, "sessionId"))
		k.syncDownloads()
	}
	if method == "Target.attachedToTarget" && session != "" {
		k.awaitRoots(jsonrpc.Get(params, "targetInfo"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.gone {
		return
	}
	switch method {
	case "Target.attachedToTarget":
		k.attachedLocked(message, session, params)
	case "Target.detachedFromTarget":
		k.detachedLocked(message, params)
	case "Target.targetCreated", "Target.targetInfoChanged", "Target.targetDestroyed", "Target.targetCrashed",
		"Target.receivedMessageFromTarget":
		// The watcher reports targets; this connection discovers none.
	case "Inspector.targetCrashed", "Inspector.targetReloadedAfterCrash":
		if t := k.targetLocked(session); t != nil {
			t.crashed = jsonrpc.GetString(message, "method") == "Inspector.targetCrashed"
		}
		k.toClient.Put(message)
	case "Page.javascriptDialogOpening", "Page.javascriptDialogClosed":
		k.dialogLocked(session, method, params)
		k.toClient.Put(message)
	default:
		k.toClient.Put(message)
	}
}

// attachedLocked tells the client that a CDP session with a target has begun.
func (k *Client) attachedLocked(message []byte, parent string, params json.RawMessage) {
	b := k.session.browser
	session, info := jsonrpc.GetString(params, "sessionId"), jsonrpc.Get(params, "targetInfo")
	id := jsonrpc.GetString(info, "targetId")
	a, at := &attachment{target: id, context: jsonrpc.GetString(info, "browserContextId"), parent: parent}, parent
	var by *attachRequest
	if parent == "" && k.page == "" {
		by = k.nextAttachRequestLocked(id)
		a.root, at = by.root, by.root.session
	}
	if by == nil && parent != "" && b.targets[id].giveBelowLocked(k, parent) {
		k.calls.Send(parent, "Target.detachFromTarget", map[string]string{"sessionId": session})
		return
	}
	if b.ownerLocked(info) != k.session || by != nil && !k.isWantedLocked(by) {
		// A tab has led to a target of Chrome's own user interface, or the client
		// no longer wants the session.
		if by != nil && by.auto {
			delete(a.root.byAuto, id)
		}
		k.calls.resumeAndDetach(parent, session)
		return
	}
	if by != nil && by.auto {
		a.root.byAuto[id] = session
	}
	k.attached[session] = a
	if t := b.targets[id]; t != nil {
		k.attachLocked(t, 1)
		if (by == nil || by.auto) && t.isBlockedBy(k) {
			params = jsonrpc.Set(params, "waitingForDebugger", json.RawMessage("true"))
		}
		if jsonrpc.GetString(info, "url") == "" { // the client may have been told of a later one
			params = jsonrpc.Set(params, "targetInfo", t.visibleInfo())
		}
	}
	k.toClient.Put(wire.Event(at, "Target.attachedToTarget", params))
}

// requestAttachLocked asks Chrome for a session with a target, on behalf of a
// root.
func (k *Client) requestAttachLocked(target string, by *attachRequest, done func(json.RawMessage, error)) {
	b := k.session.browser
	k.attachRequests[target] = append(k.attachRequests[target], by)
	k.calls.Begin("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true},
		func(result json.RawMessage, err error) {
			if err != nil {
				b.mu.Lock()
				k.dropAttachRequestLocked(target, slices.Index(k.attachRequests[target], by))
				b.mu.Unlock()
			}
			done(result, err)
		})
}

// nextAttachRequestLocked returns the request for the session that Chrome has
// just announced. Chrome announces sessions in the order of the requests.
func (k *Client) nextAttachRequestLocked(target string) *attachRequest {
	if len(k.attachRequests[target]) == 0 {
		return &attachRequest{root: k.root}
	}
	by := k.attachRequests[target][0]
	k.dropAttachRequestLocked(target, 0)
	return by
}

func (k *Client) dropAttachRequestLocked(target string, i int) {
	if i < 0 {
		return
	}
	if k.attachRequests[target] = slices.Delete(k.attachRequests[target], i, i+1); len(k.attachRequests[target]) == 0 {
		delete(k.attachRequests, target)
	}
}

// isWantedLocked reports whether the root of a request still wants the session.
func (k *Client) isWantedLocked(by *attachRequest) bool {
	return k.roots[by.root.session] == by.root && (!by.auto || by.root.auto != nil)
}

// detachedLocked tells the client that a CDP session has ended.
func (k *Client) detachedLocked(message []byte, params json.RawMessage) {
	session := jsonrpc.GetString(params, "sessionId")
	a := k.attached[session]
	if a == nil {
		return // the client does not know it
	}
	k.forgetLocked(session)
	switch {
	case a.root != nil && a.root.session != "":
		message = wire.Event(a.root.session, "Target.detachedFromTarget", params)
	case a.from != nil && a.parent != "": // it was a watcher's
		message = wire.Event(a.parent, "Target.detachedFromTarget", params)
	}
	k.toClient.Put(message)
}

// forgetLocked forgets a CDP session that has ended, and the sessions below it.
func (k *Client) forgetLocked(session string) {
	b := k.session.browser
	a := k.attached[session]
	delete(k.attached, session)
	k.ended.Wake()
	k.unanswered.dropSession(session)
	delete(k.discover, session)
	delete(k.downloads, session)
	delete(k.focusing, session)
	delete(k.metrics, session)
	for below, c := range k.attached {
		if c.parent == session {
			k.forgetLocked(below)
			k.takeBackLocked(below, c)
		}
	}
	if a.root != nil && a.root.byAuto[a.target] == session {
		delete(a.root.byAuto, a.target)
	}
	k.tabReleasedLocked(a)
	t := b.targets[a.target]
	if t == nil {
		return
	}
	k.attachLocked(t, -1)
	delete(t.dialogs, told{k, session})
	if !k.isAttachedLocked(a.target) {
		t.leaveLocked(k)
	} else if a.root != nil {
		t.unblockLocked(blocker{k, a.root})
	}
}

// attachLocked notes that the client has a CDP session more or less with a target. Of a person's nobody is told.
func (k *Client) attachLocked(t *target, n int) {
	if k.person == nil {
		t.attachments += n
		k.session.clients.notifyChangeLocked(t)
	}
}

// tabReleasedLocked notes that the client resumes or leaves a tab. It will not
// see the tab's page then, and nothing says which page that is: all pages that
// it has not seen resume.
func (k *Client) tabReleasedLocked(a *attachment) {
	b := k.session.browser
	if t := b.targets[a.target]; t == nil || t.typ != "tab" {
		return
	}
	for _, t := range k.session.targetsLocked() {
		if !k.isAttachedLocked(t.id) && !k.isAttachingLocked(t.id) {
			t.unblockLocked(blocker{client: k})
		}
	}
}

// isAttachingLocked reports whether the client has requested a session with a
// target.
func (k *Client) isAttachingLocked(target string) bool {
	return len(k.attachRequests[target]) > 0
}

func (k *Client) isAttachedLocked(target string) bool {
	for _, a := range k.attached {
		if a.target == target {
			return true
		}
	}
	return false
}

// targetGoneLocked ends what waits for a target that is gone.
func (k *Client) targetGoneLocked(t *target) {
	k.ended.Wake()
	for _, r := range k.roots {
		r.callWaitersLocked(t.id)
		if r.byAuto[t.id] == "" {
			delete(r.byAuto, t.id)
		}
	}
}

// autoAttachLocked attaches a root of the client to a target for its
// auto-attach. done is called when the client has been told, or will not be.
func (k *Client) autoAttachLocked(r *root, t *target, done func()) {
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
	b := k.session.browser
	k.requestAttachLocked(t.id, &attachRequest{r, true}, func(_ json.RawMessage, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			delete(r.byAuto, t.id)
			t.unblockLocked(blocker{k, r})
		}
		r.callWaitersLocked(t.id)
	})
}

// callWaitersLocked calls the functions that wait for an attachment.
func (r *root) callWaitersLocked(target string) {
	waiting := r.waiting[target]
	delete(r.waiting, target)
	for _, done := range waiting {
		done()
	}
}

// noteUse notes that the client uses a CDP session's target.
func (k *Client) noteUse(session string) {
	now := time.Now().UnixNano()
	k.session.used.Store(now)
	u := k.lastUse.Load()
	if u == nil || u.session != session {
		b := k.session.browser
		b.mu.Lock()
		u = &use{session: session}
		if a := k.attached[session]; a != nil {
			u.target = b.targets[a.target]
		} else if session == "" && k.page != "" {
			u.target = b.targets[k.page]
		}
		b.mu.Unlock()
		k.lastUse.Store(u)
	}
	if u.target != nil {
		u.target.used.Store(now)
	}
}

// reply answers a command of the client.
func (k *Client) reply(c policy.Command, result json.RawMessage) {
	k.toClient.Put(policy.Result(c, result))
	k.answered(c)
}

// refuse answers a command of the client with an error.
func (k *Client) refuse(c policy.Command, err error) {
	var e *policy.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(policy.ServerError, "%v", err)
	}
	k.toClient.Put(policy.Failure(c, e))
	k.answered(c)
}

// answered notes that a command of the client has an answer which is not Chrome's own.
func (k *Client) answered(c policy.Command) {
	if id, err := strconv.Atoi(string(c.ID)); err == nil && k.unanswered.drop(id) {
		k.touch()
	}
}
