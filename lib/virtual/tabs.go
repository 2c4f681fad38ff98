package virtual

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/settings"
	"btools/lib/wait"
	"btools/lib/webstorage"
)

var (
	//go:embed scripts/tab.js
	tabScript string
	//go:embed scripts/reload.js
	reloadScript string
)

const (
	// tabTimeout is how long a page may take to describe itself: one that hangs keeps its URL only.
	tabTimeout = 5 * time.Second
	// defaultCommit is how long a new session waits for the servers of its tabs; the pages go on loading after that.
	defaultCommit = 2 * time.Second
	// scrollTimeout is how long the script of a page may take to scroll it: its 100 tries
	// take 10s, or longer if the page is busy.
	scrollTimeout = 30 * time.Second
	// world is the name of the JavaScript world of our own scripts in a page.
	world = "btools"
)

// Snapshot is what a session needs to go on in a context of its own: the same logins and pages. What clients have made
// besides, such as further contexts, is not part of it.
type Snapshot struct {
	State *logins.State `json:"state"`
	Tabs  []Tab         `json:"tabs"`
	Lost  []string      `json:"lost,omitempty"` // what of the storage is not in it, and why
	// Emulated is what the pages emulate.
	Emulated *emulate.Emulation `json:"emulated,omitempty"`
	// Settings are those of the session; nil: its keeper knows them.
	Settings *settings.Settings `json:"settings,omitempty"`
}

// ErrBusy means that a session is in use.
var ErrBusy = errors.New("the session is in use")

// Snapshot returns what the session needs to go on elsewhere. What could not be read is logged. The error is ErrBusy
// if the session is in use, unless it is saved for the last time.
func (s *Session) Snapshot(ctx context.Context, last bool) (*Snapshot, error) {
	if !last && s.isBusy() {
		return nil, ErrBusy
	}
	tabs := s.pages.tabs(ctx) // first: reading the state opens a page, if only a hidden one
	state, lost, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	for _, what := range lost {
		s.browser.log.Warn("a session is hibernated without some of its storage", "lost", what)
	}
	return &Snapshot{State: state, Tabs: tabs, Lost: lost, Emulated: s.emulates.now()}, nil
}

// Tab is a page that a session starts with.
type Tab struct {
	URL string `json:"url"`
	// Page is what a reload loses, as JSON: the scroll positions of its elements, and the
	// sessionStorage of its origin; nil: it is not known.
	Page json.RawMessage `json:"page,omitempty"`
}

// tabs returns the pages of the session's base context, the oldest first. A page
// whose server has not answered since the session began is as it was before.
func (p *pages) tabs(ctx context.Context) []Tab {
	b := p.s.browser
	b.mu.Lock()
	var tabs []Tab
	var own []string
	pages := p.inBaseLocked()
	for _, t := range pages {
		tab, session := Tab{URL: jsonrpc.GetString(t.info, "url")}, t.own
		if t.restoring != nil {
			tab, session = *t.restoring, ""
		} else if t.crashed {
			tab.Page, session = t.pageLocked(tab.URL), ""
		}
		tabs, own = append(tabs, tab), append(own, session)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, tabTimeout)
	defer cancel()
	var work sync.WaitGroup
	for i, session := range own {
		if session == "" || isBlank(tabs[i].URL) {
			continue
		}
		work.Go(func() {
			page, err := p.inWorld(ctx, session, "("+tabScript+")()")
			b.mu.Lock()
			defer b.mu.Unlock()
			if t := pages[i]; err != nil {
				b.log.Warn("a tab is saved as it was known last", "of", webstorage.OriginOf(tabs[i].URL), "error", err)
				tabs[i].Page = t.pageLocked(tabs[i].URL)
			} else {
				tabs[i].Page = page
				t.noteScrollLocked(tabs[i])
			}
		})
	}
	work.Wait()
	return tabs
}

// isBlank reports whether a page with this URL has no document of a server.
func isBlank(url string) bool { return url == "" || url == "about:blank" }

// inWorld evaluates an expression in a page, in a world of ours, and returns the JSON in the string that is its value.
func (p *pages) inWorld(ctx context.Context, session, expression string) (json.RawMessage, error) {
	got, err := p.s.link.Call(ctx, session, "Page.getFrameTree", nil)
	if err != nil {
		return nil, err
	}
	got, err = p.s.link.Call(ctx, session, "Page.createIsolatedWorld", map[string]string{
		"frameId": jsonrpc.GetString(got, "frameTree", "frame", "id"), "worldName": world})
	if err != nil {
		return nil, err
	}
	got, err = p.s.link.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": expression,
		"contextId": jsonrpc.Get(got, "executionContextId"), "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return nil, err
	}
	value := json.RawMessage(jsonrpc.GetString(got, "result", "value"))
	if !json.Valid(value) {
		return nil, errors.New("the script returned no JSON")
	}
	return value, nil
}

// openTabs opens the pages that a session starts with, and returns when each
// shows its new document, scrolled as it was, or that takes long.
func (p *pages) openTabs(ctx context.Context, tabs []Tab) error {
	for _, tab := range tabs { // what their documents would be held up for is filled meanwhile
		if due := p.s.login.dueFor(tab.URL); !isBlank(tab.URL) && len(due) > 0 {
			p.s.work.Go(func() { p.s.login.fill(due) })
		}
	}
	committed := make([]chan struct{}, len(tabs))
	for i, tab := range tabs { // in their order: a client's pages()[0] stays the first
		page, err := p.openReady(ctx)
		if err != nil {
			return err
		}
		committed[i] = make(chan struct{})
		p.s.work.Go(func() {
			defer close(committed[i])
			p.reload(page, tab)
		})
	}
	late := time.After(p.s.browser.commit)
	for _, c := range committed {
		select {
		case <-c:
		case <-late:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// reload navigates a new page to a tab's URL and gives it back what it knows. It
// waits as long as the server takes, and until the page is scrolled.
func (p *pages) reload(page string, tab Tab) {
	if isBlank(tab.URL) || p.s.browser.CheckURL(tab.URL) != nil {
		return
	}
	p.s.browser.mu.Lock()
	t, session := p.s.browser.targets[page], ""
	var scrolled chan struct{}
	if at := jsonrpc.Get(tab.Page, "scrolled"); at != nil && string(at) != "[]" {
		scrolled = make(chan struct{})
	}
	if t != nil && t.own != "" {
		session, t.restoring, t.scrolled = t.own, &tab, scrolled
		p.s.clients.notifyChangeLocked(t)
	}
	p.s.browser.mu.Unlock()
	if session == "" {
		return
	}
	ctx := p.s.life.ctx
	p.s.link.Send(session, "Page.enable", nil) // or no script runs in new documents, and none is reported
	if tab.Page != nil {
		// A document that is requested before the answer does not run it.
		got, _ := p.s.link.Call(ctx, session, "Page.addScriptToEvaluateOnNewDocument", map[string]string{
			"source": fmt.Sprintf("(%s)(%s)", reloadScript, tab.Page), "worldName": world})
		p.s.browser.mu.Lock()
		t.reloader = jsonrpc.GetString(got, "identifier")
		p.s.browser.mu.Unlock()
	}
	got, err := p.s.link.Call(ctx, session, "Page.navigate", map[string]string{"url": tab.URL})
	switch {
	case err != nil || jsonrpc.GetString(got, "errorText") != "":
	case string(jsonrpc.Get(got, "isDownload")) == "true":
		p.s.browser.mu.Lock()
		defer p.s.browser.mu.Unlock()
		p.restoredLocked(t)
	case scrolled != nil:
		wait.For(ctx, scrolled)
	}
}

// frameNavigated notes the first document of a page that is being restored. A blank
// one or Chrome's own about an error is not it: the tab waits for its server.
func (p *pages) frameNavigated(session string, params json.RawMessage) {
	frame := jsonrpc.Get(params, "frame")
	url := jsonrpc.GetString(frame, "url")
	if jsonrpc.Get(frame, "parentId") != nil || jsonrpc.Get(frame, "unreachableUrl") != nil ||
		isBlank(url) {
		return
	}
	p.s.work.Go(func() {
		ctx, cancel := p.s.life.within(p.s.life.ctx, readyTimeout)
		defer cancel()
		p.s.hiding.sync(ctx) // so that the target has the address of the document
		// The script runs with the document's first one, which may be later; or now.
		p.s.link.Call(ctx, session, "Runtime.evaluate", map[string]any{"expression": "0"})
		p.s.browser.mu.Lock()
		t := p.byOwnLocked(session)
		restored := p.restoredLocked(t)
		p.s.browser.mu.Unlock()
		if restored && t.scrolled != nil {
			defer close(t.scrolled)
			ctx, cancel := p.s.life.within(p.s.life.ctx, scrollTimeout)
			defer cancel()
			p.inWorld(ctx, session, "scrolled") // an error: the page shows another document by now
		}
	})
}

// restoredLocked forgets what a page was to show, and reports whether it was to show anything.
func (p *pages) restoredLocked(t *target) bool {
	if t == nil || t.restoring == nil {
		return false
	}
	t.noteScrollLocked(*t.restoring)
	t.restoring = nil
	if len(p.s.options.InitScript) == 0 {
		p.s.link.Send(t.own, "Page.disable", nil) // without it the script is gone
	} else if t.reloader != "" {
		p.s.link.Send(t.own, "Page.removeScriptToEvaluateOnNewDocument", map[string]string{"identifier": t.reloader})
	}
	p.s.clients.notifyChangeLocked(t)
	return true
}
