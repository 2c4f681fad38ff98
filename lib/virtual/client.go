package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// Errors of Connect.
var errNoTarget = errors.New("the session has no such target")

// IsNoTarget reports whether an error says that a session does not have a target.
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
	up       Conn // its own connection to Chrome
	toClient *outlet
	calls    *calls
	ctx      context.Context // ends with the client
	cancel   context.CancelFunc
	closing  sync.Once
	why      error

	turns      turns
	pressed    pressed
	unanswered unanswered
	lastUse    atomic.Pointer[use] // the page that was used last
	delivery   delivery

	// Under the browser's lock:
	sessions  cdpSessions
	downloads downloadEvents
	overrides overrides
	gone      bool // it is unregistered
}

// use is a CDP session and its target.
type use struct {
	session string
	target  *target
}

// Close ends a client that is not being served.
func (k *Client) Close() { k.disconnect(ErrEnded) }

// Accept answers the client's upgrade and serves it until one side is gone.
func (k *Client) Accept(w http.ResponseWriter, r *http.Request) error {
	k.delivery.ends = endsOf(r)
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
	k.conn, k.toClient = conn, &outlet{Outbox: websocket.NewOutbox(conn), k: k}
	b.mu.Lock()
	over, why := s.life.isOver(), s.Err()
	if !over {
		s.clients.all[k] = true
		if k.person == nil {
			s.Touch()
		}
		s.work.Add(1)
		if s.lock.hides.Load() {
			k.toClient.shut(s.lock.holdNow())
		}
	}
	b.mu.Unlock()
	if over {
		k.disconnect(why)
		return why
	}
	defer s.work.Done()
	if k.person != nil {
		s.clients.tellControl()
		s.clients.tellAsk()
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
		case errors.Is(why, ErrMoves):
			code, reason = websocket.ServiceRestart, why.Error()
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

// unregister removes the client from its session and from all that waits for it.
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
	for session, a := range k.sessions.attached {
		if t := b.targets[a.target]; t != nil {
			k.sessions.countLocked(t, -1)
		}
		k.sessions.takeBackLocked(session, a)
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
	if isAnswer && id < 0 || !isAnswer && isInspected(message) {
		return false
	}
	if isAnswer && k.unanswered.drop(id) {
		k.touch()
	}
	if k.toClient.sifts.Load() || !k.toClient.TryWrite(message) {
		return false
	}
	k.session.browser.noteActivity()
	return true
}

// fromChrome relays Chrome's messages. Answers and events of pages pass unchanged; events about targets are inspected.
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
		passes := isAnswer && id >= 0 || !isAnswer && !isInspected(head)
		if passes && !k.toClient.sifts.Load() {
			if err := m.relay(k.toClient.Outbox); err != nil {
				return err
			}
			continue
		}
		whole, err := m.Bytes()
		if err != nil {
			return errEnded(err)
		}
		if passes {
			k.toClient.Put(bytes.Clone(whole))
			continue
		}
		if isAnswer {
			k.calls.Answered(id, whole)
			continue
		}
		k.event(whole)
	}
}

// headSize is how many bytes of a message are enough to identify it by its id or method.
const headSize = 64

var (
	methodHead   = []byte(`{"method":"`)
	targetEvent  = []byte(`{"method":"Target.`)
	crashEvent   = []byte(`{"method":"Inspector.target`)
	dialogEvent  = []byte(`{"method":"Page.javascriptDialog`)
	chooserEvent = []byte(`{"method":"Page.fileChooserOpened"`)
)

// isInspected reports whether k.event handles a message. Chrome writes the
// method first; messages in another form are inspected, too.
func isInspected(head []byte) bool {
	if len(head) < len(methodHead) || string(head[:len(methodHead)]) != string(methodHead) {
		return true
	}
	return bytes.HasPrefix(head, targetEvent) || bytes.HasPrefix(head, crashEvent) ||
		bytes.HasPrefix(head, dialogEvent) || bytes.HasPrefix(head, chooserEvent)
}

// event handles an event about targets.
func (k *Client) event(message []byte) {
	b := k.session.browser
	method, params, session := jsonrpc.GetString(message, "method"), jsonrpc.Get(message, "params"),
		jsonrpc.GetString(message, "sessionId")
	if method == "Target.detachedFromTarget" {
		k.calls.FailSession(jsonrpc.GetString(params, "sessionId"))
		k.unanswered.dropSession(jsonrpc.GetString(params, "sessionId"))
		k.toClient.end(jsonrpc.GetString(params, "sessionId"))
		k.downloads.sync()
	}
	if method == "Target.attachedToTarget" && session != "" {
		k.sessions.awaitRoots(jsonrpc.Get(params, "targetInfo"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.gone {
		return
	}
	switch method {
	case "Target.attachedToTarget":
		k.sessions.attachedLocked(message, session, params)
	case "Target.detachedFromTarget":
		k.sessions.detachedLocked(message, params)
	case "Target.targetCreated", "Target.targetInfoChanged", "Target.targetDestroyed", "Target.targetCrashed",
		"Target.receivedMessageFromTarget":
		// The watcher reports targets; this connection discovers none.
	case "Inspector.targetCrashed", "Inspector.targetReloadedAfterCrash":
		if t := k.sessions.targetLocked(session); t != nil {
			t.crashed = jsonrpc.GetString(message, "method") == "Inspector.targetCrashed"
		}
		k.toClient.Put(message)
	case "Page.javascriptDialogOpening", "Page.javascriptDialogClosed":
		k.dialogLocked(session, method, params)
		k.toClient.Put(message)
	case "Page.fileChooserOpened":
		// A person's is not for a client that intercepts choosers, too: it would answer it when it may act again.
		if lock := &k.session.lock; !lock.closed.Load() || lock.isOf(k, false) {
			k.toClient.Put(message)
		}
	default:
		k.toClient.Put(message)
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
		if a := k.sessions.attached[session]; a != nil {
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
