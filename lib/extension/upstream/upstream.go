// Package upstream answers for a browser that has joined a hub what a Chrome
// answers on its debugging port, so that lib/virtual can show it as browsers.
// Commands to tabs pass to chrome.debugger in the extension; the domains Target
// and Browser of the root, which that does not have, are answered here.
//
// chrome.debugger has one session for each tab. All CDP sessions with a tab
// share it: their events are sorted by the domains that each has enabled, and
// what Chrome tells a new session about the past is repeated from memory.
package upstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/extension/hub"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Browser is a browser that has joined. It is an Upstream of lib/virtual.
type Browser struct {
	// AllTabs shows the tabs of the user, too.
	AllTabs bool

	link *hub.Link
	name string // of its first group of tabs
	log  *slog.Logger
	home string // the browser's own context

	mu       sync.Mutex // nothing waits while holding it
	conns    map[*conn]bool
	tabs     map[int64]*tab
	targets  map[string]*tab
	contexts map[string]*browserContext
	latest   []*browserContext // in the order of their creation
	files    downloads
	over     bool
	work     sync.WaitGroup
}

// browserContext is what the root calls a browser context: tabs that belong to
// one client. They share the logins of the browser.
type browserContext struct {
	id       string
	conn     *conn // it ends with it
	filled   bool  // its first tab has been requested
	path     string
	behavior string // of downloads
}

// tab is a tab that clients may use.
type tab struct {
	id      int64
	target  string // of its page
	holder  string // the target of the type tab, which Puppeteer attaches to
	context string
	opener  string // its page's target
	url     string
	title   string
	shared  bool // by the user: it stays when its client ends
	opened  bool // for a client, or by a page of one

	sessions map[*session]bool
	started  bool             // a command has reached it
	pages    bool             // Page is enabled, for downloads
	later    [][2]string      // commands that wait for the first one: method, params
	start    string           // the URL to which it goes when it is resumed; "": none
	memory   map[string]*past // by the child's session
}

// past is what a new CDP session with a page, a frame or a worker must be told.
type past struct {
	enabled  map[string]int             // sessions, by domain
	contexts map[string]json.RawMessage // of JavaScript, by id
	order    []string
	children map[string]json.RawMessage // the params of Target.attachedToTarget, by session
}

func newPast() *past {
	return &past{enabled: map[string]int{}, contexts: map[string]json.RawMessage{},
		children: map[string]json.RawMessage{}}
}

// New returns the browser at the other end of a link, and takes over the link's
// events. It ends with the link; Wait for it then. Its clients see its tabs in groups
// with this name.
func New(link *hub.Link, name string, log *slog.Logger) *Browser {
	b := &Browser{link: link, name: name, log: log, home: rand.Text(), conns: map[*conn]bool{}, tabs: map[int64]*tab{},
		targets: map[string]*tab{}, contexts: map[string]*browserContext{}}
	link.Event = b.event
	b.work.Go(b.end)
	return b
}

// Open reads which tabs there are, and returns when the browser can be used.
func (b *Browser) Open(ctx context.Context) error {
	got, err := b.link.Call(ctx, "list", map[string]bool{"all": b.AllTabs})
	if err != nil {
		return fmt.Errorf("cannot list the tabs of the browser: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for raw := range jsonrpc.Elements(jsonrpc.Get(got, "tabs")) {
		b.tabLocked(raw)
	}
	return nil
}

// Wait returns when nothing of the browser is left, after its link has ended.
func (b *Browser) Wait() { b.work.Wait() }

// end ends all connections with the reason why the link has ended.
func (b *Browser) end() {
	<-b.link.Done()
	b.mu.Lock()
	b.over = true
	var conns []*conn
	for c := range b.conns {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	for _, c := range conns {
		c.ws.Close(websocket.GoingAway, b.link.Err().Error())
	}
}

// Addr is "": the browser has no endpoint of its own.
func (b *Browser) Addr() string { return "" }

// Dial opens a connection to the browser, or to one of its targets.
func (b *Browser) Dial(_ context.Context, target string) (*websocket.Conn, error) {
	server, client := websocket.Pipe()
	c := &conn{browser: b, ws: server, out: websocket.NewOutbox(server), sessions: map[string]*session{},
		done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.link.Err() != nil {
		return nil, fmt.Errorf("the browser has left: %w", b.link.Err())
	}
	if target != "" {
		t := b.targets[target]
		if t == nil {
			return nil, errors.New("no such target")
		}
		c.sessions[""] = newSession(c, t, "", "")
	}
	b.conns[c] = true
	b.work.Go(c.serve)
	return client, nil
}

// version is the answer to Browser.getVersion.
func (b *Browser) version() json.RawMessage {
	product := ""
	for _, v := range b.link.Browser.Versions {
		if v.Brand == "Chromium" {
			product = "Chrome/" + v.Version
		}
	}
	if product == "" { // Chrome/156.0.0.0
		_, rest, _ := strings.Cut(b.link.Browser.UserAgent, "Chrome/")
		number, _, _ := strings.Cut(rest, " ")
		product = "Chrome/" + number
	}
	raw, _ := json.Marshal(map[string]string{"protocolVersion": "1.3", "product": product, "revision": "",
		"userAgent": b.link.Browser.UserAgent, "jsVersion": ""})
	return raw
}

// tabLocked notes a tab, or a change of one, from what the extension says.
func (b *Browser) tabLocked(raw json.RawMessage) *tab {
	var d struct {
		TabID       int64   `json:"tabId"`
		TargetID    string  `json:"targetId"`
		URL         string  `json:"url"`
		Title       string  `json:"title"`
		OpenerTabID int64   `json:"openerTabId"`
		Group       *string `json:"group"`
		Shared      bool    `json:"shared"`
	}
	if json.Unmarshal(raw, &d) != nil || d.TabID == 0 || d.TargetID == "" {
		return nil
	}
	t := b.tabs[d.TabID]
	if t != nil && t.target != d.TargetID { // another page has taken its place
		b.removeLocked(t)
		t = nil
	}
	if t != nil {
		t.url, t.title = d.URL, d.Title
		if d.Shared && !t.shared {
			t.shared = true
			b.offerLocked(t)
		}
		b.tellLocked("Target.targetInfoChanged", t)
		return t
	}
	t = newTab(d.TabID, d.TargetID, b.home)
	t.url, t.title, t.shared, t.opened = d.URL, d.Title, d.Shared, d.Group != nil
	if o := b.tabs[d.OpenerTabID]; o != nil {
		if t.opener = o.target; t.opened || t.shared {
			t.context = o.context
		}
	}
	if d.Group != nil && b.contexts[*d.Group] != nil {
		t.context = *d.Group
	}
	b.addLocked(t)
	if t.opened && (b.hasLeftLocked(t.context) || b.hasLeftLocked(*d.Group)) {
		b.send("close", map[string]int64{"tabId": t.id})
	}
	if t.shared {
		b.offerLocked(t)
	}
	b.announceLocked(t, false)
	return t
}

// hasLeftLocked reports whether a context is that of a client that has left.
func (b *Browser) hasLeftLocked(context string) bool {
	return context != "" && context != b.home && b.contexts[context] == nil
}

func newTab(id int64, target, context string) *tab {
	return &tab{id: id, target: target, holder: rand.Text(), context: context, sessions: map[*session]bool{},
		memory: map[string]*past{}}
}

func (b *Browser) addLocked(t *tab) { b.tabs[t.id], b.targets[t.target], b.targets[t.holder] = t, t, t }

// offerLocked gives a tab that the user shares to the client that came last. If
// there is none, it waits for the next one.
func (b *Browser) offerLocked(t *tab) {
	if b.AllTabs || t.context != b.home {
		return
	}
	for _, x := range slices.Backward(b.latest) {
		if x.filled {
			b.moveLocked(t, x.id)
			return
		}
	}
}

// moveLocked moves a tab to another context. For clients it is another target.
func (b *Browser) moveLocked(t *tab, context string) {
	b.tellLocked("Target.targetDestroyed", t)
	for s := range t.sessions {
		s.endLocked(true)
	}
	t.context = context
	b.announceLocked(t, false)
}

// removeLocked forgets a tab that is gone.
func (b *Browser) removeLocked(t *tab) {
	if b.tabs[t.id] != t {
		return
	}
	delete(b.tabs, t.id)
	delete(b.targets, t.target)
	delete(b.targets, t.holder)
	for s := range t.sessions {
		s.endLocked(true)
	}
	b.tellLocked("Target.targetDestroyed", t)
}

// info is the TargetInfo of a tab's page, or of the tab itself.
func (t *tab) info(target string) map[string]any {
	info := map[string]any{"targetId": target, "type": "page", "title": t.title, "url": t.url,
		"attached": len(t.sessions) > 0, "canAccessOpener": t.opener != "", "browserContextId": t.context}
	switch {
	case target == t.holder:
		info["type"], info["embedderData"] = "tab", map[string]any{} // Chrome marks those of the user so
	case t.opener != "":
		info["openerId"] = t.opener
	}
	return info
}

// tellLocked tells those who discover targets about a tab and its page.
func (b *Browser) tellLocked(event string, t *tab) {
	for c := range b.conns {
		for _, target := range []string{t.holder, t.target} {
			switch {
			case !c.discovers:
			case event == "Target.targetDestroyed":
				c.event("", event, map[string]string{"targetId": target})
			default:
				c.event("", event, map[string]any{"targetInfo": t.info(target)})
			}
		}
	}
}

// announceLocked tells about a new tab, and attaches those to its page that
// want to be attached to each one. A paused one waits until it is resumed by one
// of them.
func (b *Browser) announceLocked(t *tab, paused bool) {
	b.tellLocked("Target.targetCreated", t)
	for c := range b.conns {
		if c.attaches {
			c.attachLocked(t, t.target, "", paused)
		}
	}
}

// event handles an event of the extension.
func (b *Browser) event(name string, args json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch name {
	case "cdp":
		b.cdpLocked(args)
	case "tab":
		b.tabLocked(args)
	case "removed":
		if t := b.tabs[number(args, "tabId")]; t != nil {
			b.removeLocked(t)
		}
	case "detached":
		if t := b.tabs[number(args, "tabId")]; t != nil {
			b.removeLocked(t) // it shows a page that Chrome keeps from extensions, or is closing
		}
	case "download":
		b.files.startedLocked(args, time.Now())
	}
}

func number(object json.RawMessage, name string) int64 {
	var n int64
	json.Unmarshal(jsonrpc.Get(object, name), &n)
	return n
}

// send sends the extension a call whose failure concerns nobody.
func (b *Browser) send(name string, args any) {
	b.link.Begin(name, args, false, func(json.RawMessage, error) {})
}
