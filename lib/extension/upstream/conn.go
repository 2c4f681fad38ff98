package upstream

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// conn is a connection to the browser.
type conn struct {
	browser *Browser
	ws      *websocket.Conn
	out     *websocket.Outbox
	done    chan struct{}

	// Under the browser's lock:
	discovers bool // it is told about targets
	attaches  bool // it is attached to new ones
	downloads bool // it is told about downloads
	sessions  map[string]*session
}

// command is a command of a client.
type command struct {
	id      json.RawMessage
	method  string
	session string
	params  json.RawMessage
}

// serve answers commands until the connection ends. What belongs to it ends
// then, too.
func (c *conn) serve() {
	sent := make(chan struct{})
	go func() {
		c.out.Run(c.done)
		close(sent)
	}()
	for {
		m, err := c.ws.Next()
		if err != nil {
			break
		}
		b, err := m.Bytes()
		if err != nil {
			break
		}
		k := command{jsonrpc.Get(b, "id"), jsonrpc.GetString(b, "method"), jsonrpc.GetString(b, "sessionId"),
			jsonrpc.Get(b, "params")}
		if k.params == nil {
			k.params = json.RawMessage("{}")
		}
		c.handle(k)
	}
	close(c.done)
	<-sent
	c.ws.Close(websocket.Normal, "")
	c.release()
}

// release ends the sessions and contexts of a connection.
func (c *conn) release() {
	b := c.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
	for _, s := range c.sessions {
		s.endLocked(false)
	}
	for _, x := range b.contexts {
		if x.conn == c {
			b.disposeLocked(x)
		}
	}
}

// disposeLocked ends a context: its tabs are closed, and those that the user
// shares wait for another client.
func (b *Browser) disposeLocked(x *browserContext) {
	delete(b.contexts, x.id)
	b.latest = slices.DeleteFunc(b.latest, func(y *browserContext) bool { return x == y })
	for _, t := range b.tabs {
		switch {
		case t.context != x.id:
		case t.opened:
			b.send("close", map[string]int64{"tabId": t.id})
		default:
			b.moveLocked(t, b.home)
		}
	}
}

func (c *conn) event(session, method string, params any) {
	c.out.Put(wire.Event(session, method, params))
}

// reply answers a command.
func (c *conn) reply(k command, result json.RawMessage, err error) {
	out := append([]byte(`{"id":`), k.id...)
	if err != nil {
		e, ok := err.(*jsonrpc.Error)
		if !ok {
			e = &jsonrpc.Error{Code: serverError, Message: err.Error()}
		}
		raw, _ := json.Marshal(e)
		out = append(append(out, `,"error":`...), raw...)
	} else {
		if len(result) == 0 {
			result = json.RawMessage("{}")
		}
		out = append(append(out, `,"result":`...), result...)
	}
	if k.session != "" {
		out = strconv.AppendQuote(append(out, `,"sessionId":`...), k.session)
	}
	c.out.Put(append(out, '}'))
}

const (
	serverError     = -32000
	sessionNotFound = -32001
)

var (
	errNoSession = &jsonrpc.Error{Code: sessionNotFound, Message: "Session with given id not found."}
	errNoTarget  = &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "No target with given id found"}
	errContexts  = &jsonrpc.Error{Code: serverError, Message: "A browser that has joined by its extension has no " +
		"further browser contexts: its tabs share the logins of its user"}
)

func noMethod(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "'" + method + "' wasn't found"}
}

// handle executes a command.
func (c *conn) handle(k command) {
	b := c.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	s := c.sessions[k.session]
	switch {
	case s != nil:
		s.commandLocked(k)
	case k.session != "":
		c.reply(k, nil, errNoSession)
	default:
		c.rootLocked(k, nil)
	}
}

// session is a CDP session of a connection with a tab, or with a frame or a
// worker below one.
type session struct {
	id      string // "": the connection itself
	conn    *conn
	tab     *tab
	child   string // the session of chrome.debugger; "": the tab's own
	target  string // what it is with
	parent  string // the session that was told about it
	enabled map[string]bool
	auto    bool // it is attached to what is below it
	over    bool
	scripts []string // that it has added to new documents
}

func newSession(c *conn, t *tab, child, parent string) *session {
	s := &session{conn: c, tab: t, child: child, parent: parent, target: t.target, enabled: map[string]bool{}}
	t.sessions[s] = true
	return s
}

// attachLocked attaches the connection to a tab or its page, and tells it, on
// the session that has asked for it.
func (c *conn) attachLocked(t *tab, target, on string, paused bool) *session {
	s := newSession(c, t, "", on)
	s.target, s.id = target, rand.Text()
	c.sessions[s.id] = s
	c.event(on, "Target.attachedToTarget", map[string]any{"sessionId": s.id, "targetInfo": t.info(target),
		"waitingForDebugger": paused})
	return s
}

// isHolder reports whether a session is with a tab, not with its page.
func (s *session) isHolder() bool { return s.target == s.tab.holder }

// endLocked ends a session. Its connection is told if it did not ask for it.
// What nobody else needs is switched off in the browser.
func (s *session) endLocked(tell bool) {
	if s.over {
		return
	}
	s.over = true
	b, t := s.conn.browser, s.tab
	delete(t.sessions, s)
	delete(s.conn.sessions, s.id)
	for below := range t.sessions { // those with what is below it end with it
		if below.conn == s.conn && (below.child != "" || s.isHolder()) && below.parent == s.id && s.id != "" {
			below.endLocked(tell)
		}
	}
	if tell && s.id != "" {
		s.conn.event(s.parent, "Target.detachedFromTarget",
			map[string]string{"sessionId": s.id, "targetId": s.target})
	}
	if tell && s.id == "" {
		s.conn.browser.work.Go(func() { s.conn.ws.Close(websocket.Normal, "") })
	}
	p := t.memory[s.child]
	if b.tabs[t.id] != t || p == nil {
		return
	}
	if t.started && !t.usedLocked() && !t.opened {
		b.forgetLocked(t)
		return
	}
	if s.auto && !s.isHolder() && !s.othersAttach() { // else new frames wait for nobody
		s.forwardLocked("Target.setAutoAttach",
			json.RawMessage(`{"autoAttach":false,"waitForDebuggerOnStart":false,"flatten":true}`), nil)
	}
	for domain := range s.enabled {
		if s.disableLocked(p, domain); p.enabled[domain] == 0 && !s.keepsLocked(domain) {
			s.forwardLocked(domain+".disable", json.RawMessage("{}"), nil)
		}
	}
	for _, script := range s.scripts {
		raw, _ := json.Marshal(map[string]string{"identifier": script})
		s.forwardLocked("Page.removeScriptToEvaluateOnNewDocument", raw, nil)
	}
}

// usedLocked reports whether a session has enabled a domain of a tab, as clients
// do that use it.
func (t *tab) usedLocked() bool {
	for s := range t.sessions {
		if len(s.enabled) > 0 {
			return true
		}
	}
	return false
}

// forgetLocked detaches the debugger from a tab of the user that no client uses
// any more: what they have set ends with that.
func (b *Browser) forgetLocked(t *tab) {
	t.started, t.pages, t.later, t.memory = false, false, nil, map[string]*past{}
	b.send("detach", map[string]int64{"tabId": t.id})
}
