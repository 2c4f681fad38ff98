package upstream

import (
	"encoding/json"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
)

// cdpArgs are the arguments of the extension's call cdp.
func cdpArgs(tab int64, child, method string, params json.RawMessage) json.RawMessage {
	out := make([]byte, 0, len(params)+len(method)+96)
	out = strconv.AppendInt(append(out, `{"tabId":`...), tab, 10)
	if child != "" {
		out = strconv.AppendQuote(append(out, `,"sessionId":`...), child)
	}
	out = strconv.AppendQuote(append(out, `,"method":`...), method)
	out = append(append(out, `,"params":`...), params...)
	return append(out, '}')
}

// commandLocked executes a command on a session with a tab.
func (s *session) commandLocked(k command) {
	c, t := s.conn, s.tab
	domain, verb, _ := strings.Cut(k.method, ".")
	switch {
	case k.method == "Target.setAutoAttach" && s.isHolder():
		s.holdLocked(k)
		return
	case k.method == "Target.setAutoAttach":
		s.autoAttachLocked(k)
		return
	case k.method == "Runtime.runIfWaitingForDebugger" && s.child == "":
		if !s.isHolder() {
			t.resumeLocked(c.browser)
		}
		c.reply(k, nil, nil)
		return
	case isRootMethod(k.method):
		c.rootLocked(k, s)
		return
	case s.isHolder():
		c.reply(k, nil, noMethod(k.method))
		return
	case k.method == "Page.close" && s.child == "":
		k.method = "Target.closeTarget"
		c.targetLocked(k, s)
		return
	case k.method == "Emulation.setFocusEmulationEnabled" && !t.started && !t.opened:
		// A tab of the user shows that it is debugged only when it is used.
		t.later = append(t.later, [2]string{k.method, string(k.params)})
		c.reply(k, nil, nil)
		return
	}
	p := t.pastLocked(s.child)
	var then func()
	switch verb {
	case "enable":
		then = s.enableLocked(p, domain)
	case "disable":
		if s.enabled[domain] {
			s.disableLocked(p, domain)
		}
		if p.enabled[domain] > 0 || s.keepsLocked(domain) {
			c.reply(k, nil, nil)
			return
		}
	}
	s.forwardLocked(k.method, k.params, func(result json.RawMessage, err error) {
		b := c.browser
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.over {
			return // as Chrome, which answers no session that has ended
		}
		if err == nil && then != nil {
			then()
		}
		if err == nil && k.method == "Page.addScriptToEvaluateOnNewDocument" {
			s.scripts = append(s.scripts, jsonrpc.GetString(result, "identifier"))
		}
		c.reply(k, result, err)
	})
}

// resumeLocked lets a tab go to the URL for which it was opened.
func (t *tab) resumeLocked(b *Browser) {
	if t.start != "" && t.start != "about:blank" {
		raw, _ := json.Marshal(map[string]string{"url": t.start})
		b.link.Begin("cdp", cdpArgs(t.id, "", "Page.navigate", raw), true, func(json.RawMessage, error) {})
	}
	t.start = ""
}

// holdLocked attaches a session with a tab to the tab's page.
func (s *session) holdLocked(k command) {
	on := string(jsonrpc.Get(k.params, "autoAttach")) == "true"
	if on && !s.auto {
		s.conn.attachLocked(s.tab, s.tab.target, s.id, false)
	}
	s.auto = on
	s.conn.reply(k, nil, nil)
}

// enableLocked notes that a session wants the events of a domain. It returns
// what Chrome would have told it before the answer, and does not as another
// session has enabled the domain before.
func (s *session) enableLocked(p *past, domain string) func() {
	if s.enabled[domain] {
		return nil
	}
	s.enabled[domain] = true
	p.enabled[domain]++
	if p.enabled[domain] == 1 || domain != "Runtime" {
		return nil
	}
	return func() {
		for _, id := range p.order {
			s.conn.event(s.id, "Runtime.executionContextCreated", p.contexts[id])
		}
	}
}

// disableLocked notes that a session wants no more events of a domain.
func (s *session) disableLocked(p *past, domain string) {
	delete(s.enabled, domain)
	if p.enabled[domain]--; p.enabled[domain] <= 0 {
		delete(p.enabled, domain)
	}
}

// keepsLocked reports whether a domain stays enabled although no session wants
// its events: downloads are told about with those of the page.
func (s *session) keepsLocked(domain string) bool { return s.child == "" && domain == "Page" }

// autoAttachLocked attaches a session to what is below its page, and tells it
// of what is known already.
func (s *session) autoAttachLocked(k command) {
	p := s.tab.pastLocked(s.child)
	was := s.auto
	s.auto = string(jsonrpc.Get(k.params, "autoAttach")) == "true"
	if s.othersAttach() {
		if s.auto && !was {
			for child, params := range p.children {
				s.childLocked(child, params)
			}
		}
		s.conn.reply(k, nil, nil)
		return
	}
	s.forwardLocked(k.method, k.params, func(result json.RawMessage, err error) {
		b := s.conn.browser
		b.mu.Lock()
		defer b.mu.Unlock()
		if !s.over {
			s.conn.reply(k, result, err)
		}
	})
}

// othersAttach reports whether another session attaches to what is below the
// same page.
func (s *session) othersAttach() bool {
	for o := range s.tab.sessions {
		if o != s && o.auto && o.child == s.child && !o.isHolder() {
			return true
		}
	}
	return false
}

// childLocked tells a session about a frame or a worker below its page.
func (s *session) childLocked(child string, params json.RawMessage) {
	own := newSession(s.conn, s.tab, child, s.id)
	own.target = jsonrpc.GetString(params, "targetInfo", "targetId")
	own.id = child + "." + strconv.Itoa(len(s.conn.sessions)) + "." + s.id
	s.conn.sessions[own.id] = own
	params = jsonrpc.Set(params, "sessionId", quote(own.id))
	info := jsonrpc.Set(jsonrpc.Get(params, "targetInfo"), "browserContextId", quote(s.tab.context))
	s.conn.event(s.id, "Target.attachedToTarget", jsonrpc.Set(params, "targetInfo", info))
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}

func (t *tab) pastLocked(child string) *past {
	p := t.memory[child]
	if p == nil {
		p = newPast()
		t.memory[child] = p
	}
	return p
}

// forwardLocked sends a command to chrome.debugger. done may be nil.
func (s *session) forwardLocked(method string, params json.RawMessage, done func(json.RawMessage, error)) {
	b, t := s.conn.browser, s.tab
	if done == nil {
		done = func(json.RawMessage, error) {}
	}
	if !t.started {
		t.started = true
		for _, l := range t.later {
			b.link.Begin("cdp", cdpArgs(t.id, "", l[0], json.RawMessage(l[1])), true, func(json.RawMessage, error) {})
		}
		t.later = nil
	}
	if !t.pages { // downloads are told about with the events of the page
		t.pages = true
		b.link.Begin("cdp", cdpArgs(t.id, "", "Page.enable", json.RawMessage("{}")), true,
			func(json.RawMessage, error) {})
	}
	b.link.Begin("cdp", cdpArgs(t.id, s.child, method, params), true, done)
}

// cdpLocked handles an event of chrome.debugger.
func (b *Browser) cdpLocked(args json.RawMessage) {
	t := b.tabs[number(args, "tabId")]
	if t == nil {
		return
	}
	child, method, params := jsonrpc.GetString(args, "sessionId"), jsonrpc.GetString(args, "method"),
		jsonrpc.Get(args, "params")
	p := t.pastLocked(child)
	switch below := jsonrpc.GetString(params, "sessionId"); method {
	case "Target.attachedToTarget", "Target.detachedFromTarget":
		switch {
		case below == "": // not from Chrome
		case method == "Target.attachedToTarget":
			t.attachedLocked(p, child, params)
		default:
			t.detachedLocked(p, below)
		}
		return
	case "Runtime.executionContextCreated":
		id := string(jsonrpc.Get(params, "context", "id"))
		if p.contexts[id] == nil {
			p.order = append(p.order, id)
		}
		p.contexts[id] = params
	case "Runtime.executionContextDestroyed":
		p.dropContext(string(jsonrpc.Get(params, "executionContextId")))
	case "Runtime.executionContextsCleared":
		clear(p.contexts)
		p.order = nil
	case "Page.downloadWillBegin":
		b.downloadBegunLocked(t, params)
	case "Page.downloadProgress":
		b.downloadProgressLocked(params)
	}
	t.tellLocked(p, child, method, params)
	if method == "Page.frameNavigated" && jsonrpc.GetString(params, "type") == "BackForwardCacheRestore" {
		t.restoredLocked(p, child, params)
	}
}

// tellLocked tells the sessions with a page, a frame or a worker of an event.
func (t *tab) tellLocked(p *past, child, method string, params json.RawMessage) {
	domain, _, _ := strings.Cut(method, ".")
	for s := range t.sessions {
		if s.child == child && !s.isHolder() && (s.enabled[domain] || p.enabled[domain] == 0 && domain != "Page") {
			s.conn.event(s.id, method, params)
		}
	}
}

// restoredLocked tells that a document from the back/forward cache is loaded.
// Chrome does not, and clients wait for it: they launch their browsers without
// that cache, which a user's browser has.
func (t *tab) restoredLocked(p *past, child string, params json.RawMessage) {
	frame, loader := jsonrpc.Get(params, "frame", "id"), jsonrpc.Get(params, "frame", "loaderId")
	for _, name := range []string{"commit", "DOMContentLoaded", "load", "networkIdle"} {
		event := jsonrpc.Set(nil, "frameId", frame)
		event = jsonrpc.Set(jsonrpc.Set(event, "loaderId", loader), "name", quote(name))
		t.tellLocked(p, child, "Page.lifecycleEvent", jsonrpc.Set(event, "timestamp", json.RawMessage("0")))
	}
	if jsonrpc.Get(params, "frame", "parentId") == nil {
		t.tellLocked(p, child, "Page.domContentEventFired", json.RawMessage(`{"timestamp":0}`))
		t.tellLocked(p, child, "Page.loadEventFired", json.RawMessage(`{"timestamp":0}`))
	}
}

func (p *past) dropContext(id string) {
	delete(p.contexts, id)
	for i, o := range p.order {
		if o == id {
			p.order = append(p.order[:i:i], p.order[i+1:]...)
			return
		}
	}
}

// attachedLocked tells all sessions with auto-attach of a new child.
func (t *tab) attachedLocked(p *past, parent string, params json.RawMessage) {
	child := jsonrpc.GetString(params, "sessionId")
	p.children[child] = jsonrpc.Set(params, "waitingForDebugger", json.RawMessage("false"))
	for s := range t.sessions {
		if s.auto && s.child == parent && !s.isHolder() {
			s.childLocked(child, params)
		}
	}
}

// detachedLocked ends the sessions with a child that is gone.
func (t *tab) detachedLocked(p *past, child string) {
	delete(p.children, child)
	if below := t.memory[child]; below != nil { // Chrome does not tell of these
		for grandchild := range below.children {
			t.detachedLocked(below, grandchild)
		}
	}
	for s := range t.sessions {
		if s.child == child {
			s.endLocked(true)
		}
	}
	delete(t.memory, child)
}
