package upstream

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
)

// rootLocked answers a command of the domains that only the root of a browser
// has; s is the session with a tab on which it came, nil for the root.
func (c *conn) rootLocked(k command, s *session) {
	b := c.browser
	answer := func(v any) {
		raw, _ := json.Marshal(v)
		c.reply(k, raw, nil)
	}
	switch k.method {
	case "Browser.getVersion":
		c.reply(k, b.version(), nil)
	case "Target.getBrowserContexts":
		ids := []string{}
		for _, x := range b.latest {
			ids = append(ids, x.id)
		}
		answer(map[string]any{"browserContextIds": ids, "defaultBrowserContextId": b.home})
	case "Target.createBrowserContext":
		c.createContextLocked(k)
	case "Target.disposeBrowserContext":
		x := b.contexts[jsonrpc.GetString(k.params, "browserContextId")]
		if x == nil {
			c.reply(k, nil, &jsonrpc.Error{Code: serverError, Message: "Failed to find context with id " +
				jsonrpc.GetString(k.params, "browserContextId")})
			return
		}
		b.disposeLocked(x)
		c.reply(k, nil, nil)
	case "Target.setDiscoverTargets":
		c.discovers = string(jsonrpc.Get(k.params, "discover")) == "true"
		if c.discovers {
			for id, t := range b.targets {
				c.event("", "Target.targetCreated", map[string]any{"targetInfo": t.info(id)})
			}
		}
		c.reply(k, nil, nil)
	case "Target.setAutoAttach":
		c.attaches = string(jsonrpc.Get(k.params, "autoAttach")) == "true"
		c.reply(k, nil, nil)
	case "Target.getTargets":
		infos, wanted := []any{}, wantedTypes(jsonrpc.Get(k.params, "filter"))
		for _, id := range slices.Sorted(maps.Keys(b.targets)) {
			if info := b.targets[id].info(id); wanted(info["type"].(string)) {
				infos = append(infos, info)
			}
		}
		answer(map[string]any{"targetInfos": infos})
	case "Target.createTarget":
		b.createTabLocked(c, k)
	case "Target.detachFromTarget":
		over := c.sessions[jsonrpc.GetString(k.params, "sessionId")]
		if over == nil || over.id == "" {
			c.reply(k, nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "No session with given id"})
			return
		}
		over.endLocked(true)
		c.reply(k, nil, nil)
	case "Target.getTargetInfo", "Target.attachToTarget", "Target.closeTarget", "Target.activateTarget",
		"Browser.getWindowForTarget":
		c.targetLocked(k, s)
	case "Browser.getWindowBounds", "Browser.setWindowBounds":
		b.windowLocked(c, k)
	case "Browser.setDownloadBehavior":
		b.downloadBehaviorLocked(c, k)
	case "Browser.cancelDownload":
		b.cancelDownloadLocked(c, k)
	case "Storage.getCookies", "Storage.setCookies", "Storage.clearCookies":
		c.cookiesLocked(k)
	case "SystemInfo.getProcessInfo":
		answer(map[string]any{"processInfo": []any{}})
	case "Security.setIgnoreCertificateErrors", "Runtime.runIfWaitingForDebugger":
		c.reply(k, nil, nil)
	default:
		c.reply(k, nil, noMethod(k.method))
	}
}

// wantedTypes returns which types of targets a filter selects: its first entry
// that matches decides. Without one, those of the type tab are left out.
func wantedTypes(raw json.RawMessage) func(typ string) bool {
	if raw == nil {
		raw = json.RawMessage(`[{"type":"tab","exclude":true},{}]`)
	}
	var filter []struct {
		Type    string `json:"type"`
		Exclude bool   `json:"exclude"`
	}
	json.Unmarshal(raw, &filter)
	return func(typ string) bool {
		for _, e := range filter {
			if e.Type == "" || e.Type == typ {
				return !e.Exclude
			}
		}
		return false
	}
}

// createContextLocked makes a context. Each connection has one: that of its
// virtual browser.
func (c *conn) createContextLocked(k command) {
	b := c.browser
	for _, x := range b.latest {
		if x.conn == c {
			c.reply(k, nil, errContexts)
			return
		}
	}
	x := &browserContext{id: rand.Text(), conn: c}
	b.contexts[x.id] = x
	b.latest = append(b.latest, x)
	raw, _ := json.Marshal(map[string]string{"browserContextId": x.id})
	c.reply(k, raw, nil)
}

// targetLocked answers a command that names a target, or means the one of its
// session.
func (c *conn) targetLocked(k command, s *session) {
	b := c.browser
	target := jsonrpc.GetString(k.params, "targetId")
	if target == "" && s != nil {
		target = s.target
	}
	t := b.targets[target]
	if t == nil {
		c.reply(k, nil, errNoTarget)
		return
	}
	done := func(_ json.RawMessage, err error) { c.reply(k, nil, err) }
	switch k.method {
	case "Target.getTargetInfo":
		raw, _ := json.Marshal(map[string]any{"targetInfo": t.info(target)})
		c.reply(k, raw, nil)
	case "Target.attachToTarget":
		parent := ""
		if s != nil {
			parent = s.id
		}
		own := c.attachLocked(t, target, parent, false)
		raw, _ := json.Marshal(map[string]string{"sessionId": own.id})
		c.reply(k, raw, nil)
	case "Target.closeTarget":
		b.link.Begin("close", map[string]int64{"tabId": t.id}, false, func(_ json.RawMessage, err error) {
			c.reply(k, json.RawMessage(`{"success":true}`), err)
		})
	case "Target.activateTarget":
		b.link.Begin("activate", map[string]int64{"tabId": t.id}, false, done)
	case "Browser.getWindowForTarget":
		b.link.Begin("window", map[string]int64{"tabId": t.id}, false, func(result json.RawMessage, err error) {
			c.reply(k, result, err)
		})
	}
}

// createTabLocked opens a tab for a client. It stays blank until those that
// attach to it have resumed it.
func (b *Browser) createTabLocked(c *conn, k command) {
	context := jsonrpc.GetString(k.params, "browserContextId")
	if x := b.contexts[context]; x != nil && !x.filled {
		x.filled = true
		for _, t := range b.tabs {
			if t.shared && t.context == b.home && !b.AllTabs {
				b.moveLocked(t, context)
			}
		}
	}
	url := jsonrpc.GetString(k.params, "url")
	// Chrome has no bound either: a tab that is opened late is noted, and closed if its client has left meanwhile.
	b.link.Begin("open", map[string]string{"group": context, "title": b.name}, true,
		func(result json.RawMessage, err error) {
			if err != nil {
				c.reply(k, nil, err)
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			t := b.openedLocked(result, context, url)
			if t == nil {
				c.reply(k, nil, &jsonrpc.Error{Code: serverError, Message: "Failed to open a new tab"})
				return
			}
			raw, _ := json.Marshal(map[string]string{"targetId": t.target})
			c.reply(k, raw, nil)
		})
}

// openedLocked announces a tab that was opened for a client.
func (b *Browser) openedLocked(raw json.RawMessage, context, url string) *tab {
	var d struct {
		TabID    int64  `json:"tabId"`
		TargetID string `json:"targetId"`
	}
	if json.Unmarshal(raw, &d) != nil || d.TabID == 0 || d.TargetID == "" {
		return nil
	}
	if t := b.tabs[d.TabID]; t != nil { // an event about it came first
		t.start = url
		t.resumeLocked(b)
		return t
	}
	t := newTab(d.TabID, d.TargetID, context)
	t.url, t.opened = "about:blank", true
	if context == "" {
		t.context = b.home
	}
	if url != "" && url != "about:blank" {
		t.start = url
	}
	b.addLocked(t)
	if b.hasLeftLocked(context) {
		b.send("close", map[string]int64{"tabId": t.id})
	}
	b.announceLocked(t, true)
	return t
}

// windowLocked reads or sets the bounds of a window.
func (b *Browser) windowLocked(c *conn, k command) {
	args := map[string]any{"windowId": number(k.params, "windowId")}
	if raw := jsonrpc.Get(k.params, "bounds"); k.method == "Browser.setWindowBounds" && raw != nil {
		bounds := map[string]json.RawMessage{}
		json.Unmarshal(raw, &bounds)
		if state := bounds["windowState"]; state != nil {
			bounds["state"] = state
			delete(bounds, "windowState")
		}
		args["bounds"] = bounds
	}
	b.link.Begin("window", args, false, func(result json.RawMessage, err error) {
		if k.method == "Browser.setWindowBounds" {
			result = nil
		}
		c.reply(k, result, err)
	})
}

// cookiesLocked sends a command about cookies to a tab of the context, as the
// root has none to ask. They are those of the user's profile.
func (c *conn) cookiesLocked(k command) {
	b := c.browser
	context := jsonrpc.GetString(k.params, "browserContextId")
	for _, t := range b.tabs {
		if context != "" && t.context != context || !t.opened && !t.started {
			continue
		}
		method := k.method
		if method == "Storage.clearCookies" {
			c.reply(k, nil, &jsonrpc.Error{Code: serverError,
				Message: "The cookies of a browser that has joined by its extension are not cleared as a whole"})
			return
		}
		params := jsonrpc.Delete(k.params, "browserContextId")
		b.link.Begin("cdp", cdpArgs(t.id, "", method, params), false, func(result json.RawMessage, err error) {
			c.reply(k, result, err)
		})
		return
	}
	c.reply(k, nil, &jsonrpc.Error{Code: serverError, Message: "cookies need an open tab"})
}

// isRootMethod reports whether a method is answered by rootLocked on every
// session.
func isRootMethod(method string) bool {
	domain, _, _ := strings.Cut(method, ".")
	return domain == "Browser" || domain == "Target" || domain == "SystemInfo"
}
