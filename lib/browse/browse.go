// Package browse drives a browser for an agent: its tabs, what an agent has to know
// of a page, and actions on elements that wait until the element can be acted on and
// afterwards until what they have caused is done. It speaks the Chrome DevTools
// Protocol on one connection. What agents call, and how results read, is in tools.
package browse

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/cdp"
	"btools/lib/cdp/wire"
	"btools/lib/storage"
)

// Times that bound what a page can make a caller wait for. Those of @playwright/mcp
// are the same, where it has one.
const (
	actionTimeout   = 5 * time.Second  // until an element can be acted on
	navigateTimeout = 60 * time.Second // until a document has been parsed
	beginTimeout    = 2 * time.Second  // for the renderer of a tab that was not used before
	loadTimeout     = 5 * time.Second  // then, until all that it needs is loaded
	settleTimeout   = 5 * time.Second  // for what an action has caused
	stateTimeout    = 5 * time.Second  // for a page's title: fifty pages at once take more than one
	scriptTimeout   = 15 * time.Second // for a page that runs a script
	evaluateTimeout = 30 * time.Second // for the script of an agent
)

// Browser is a connection to a browser.
type Browser struct {
	conn   *cdp.Conn
	script time.Duration // that a page's script may hold up a call: scriptTimeout

	mu      sync.Mutex
	changed chan struct{}      // closed at the next event
	targets map[string]*target // by CDP session
	tabs    []*Tab             // in the order of their opening
	current *Tab               // nil: none is open
	frames  []*frame           // that have had a number in refs, from 1
	nextRef int
	opened  int // tabs, ever

	hidden   map[string]bool // contexts and tabs that an agent does not see
	opening  int             // hidden tabs whose names are not known yet
	deferred []attached      // tabs that may be one of them

	refuses  func(ctx context.Context, address string) error // a file; nil: all are shown
	guarding bool                                            // files are asked for
	judging  sync.WaitGroup

	routes  []Route
	offline bool
	visits  storage.Visits
}

// target is a CDP session: of a page, or of frames of another site in one.
type target struct {
	session, id string
	tab         *Tab
	worlds      map[string]int // the execution contexts of our scripts, by frame
}

// Open connects to the browser at a WebSocket URL and attaches to its tabs.
func Open(ctx context.Context, url string) (*Browser, error) {
	b := &Browser{script: scriptTimeout, changed: make(chan struct{}), targets: map[string]*target{}, nextRef: 1,
		hidden: map[string]bool{}}
	ready := make(chan struct{}) // events come before the connection is known here
	conn, err := cdp.Dial(ctx, url, func(e cdp.Event) { <-ready; b.event(e) })
	if err != nil {
		return nil, err
	}
	b.conn = conn
	close(ready)
	b.conn.Begin("", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": onlyType("page")}, nil)
	err = conn.Call(ctx, "", "Target.setAutoAttach", autoAttach("page"), nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

func onlyType(kind string) []map[string]any {
	return []map[string]any{{"type": kind}, {"exclude": true}}
}

func autoAttach(kind string) map[string]any {
	return map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true,
		"filter": onlyType(kind)}
}

// Close ends the connection. Tabs stay open.
func (b *Browser) Close() {
	b.conn.Close()
	b.judging.Wait()
}

// Gone is closed when the connection has ended.
func (b *Browser) Gone() <-chan struct{} { return b.conn.Done() }

// Call sends a command to the browser itself.
func (b *Browser) Call(ctx context.Context, method string, params, result any) error {
	return b.conn.Call(ctx, "", method, params, result)
}

// attach sets up a target that Chrome keeps paused until then.
func (b *Browser) attach(parent string, session string, info targetInfo) {
	page := parent == "" && info.Type == "page"
	if !page && info.Type != "iframe" {
		b.conn.Begin(session, "Runtime.runIfWaitingForDebugger", nil, func(json.RawMessage, error) {
			b.conn.Begin(parent, "Target.detachFromTarget", map[string]string{"sessionId": session}, nil)
		})
		return
	}
	t := &target{session: session, id: info.TargetID, worlds: map[string]int{}}
	if page {
		t.tab = newTab(b, t, info)
		if b.isHidden(info) {
			t.tab.hidden = true
		} else {
			b.show(t.tab)
		}
	} else if p := b.targets[parent]; p != nil {
		t.tab = p.tab
		t.tab.parts = append(t.tab.parts, t)
	} else {
		return // its page has gone already
	}
	b.targets[session] = t
	for _, c := range []struct {
		method string
		params any
	}{
		{"Page.enable", nil},
		{"Page.setLifecycleEventsEnabled", map[string]bool{"enabled": true}},
		{"Runtime.enable", nil},
		{"Network.enable", map[string]int{"maxPostDataSize": maxPostData, "maxTotalBufferSize": maxBodies,
			"maxResourceBufferSize": maxBodies / 2}},
		{"Log.enable", nil},
		{"Page.setInterceptFileChooserDialog", map[string]bool{"enabled": true}},
		{"Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true}},
		{"Emulation.setScrollbarsHidden", map[string]bool{"hidden": true}}, // a viewport has the size that it is given
		{"Target.setAutoAttach", autoAttach("iframe")},
	} {
		b.conn.Begin(session, c.method, c.params, nil)
	}
	if !t.tab.hidden {
		b.visits.Add(info.URL)
		b.guarding = b.guarding || b.refuses != nil && isFile(info.URL)
		if b.guarding || len(b.routes) > 0 {
			b.pauseLocked(session)
		}
		if b.offline {
			b.connectLocked(session)
		}
	}
	begun := func(json.RawMessage, error) {
		if page {
			close(t.tab.begun)
		}
	}
	b.conn.Begin(session, "Runtime.runIfWaitingForDebugger", nil, begun)
}

// show lists a new tab.
func (b *Browser) show(t *Tab) {
	b.tabs = append(b.tabs, t)
	b.opened++
	t.number = b.opened
	if b.current == nil {
		b.current = t
	}
}

// Bounds in bytes of what Chrome keeps for us: of a request's body in its event, and
// of the bodies of a page's responses. Its own default for these is 100 MB a page.
const (
	maxPostData = 64 << 10
	maxBodies   = 20 << 20
)

// detach forgets a target whose session has ended.
func (b *Browser) detach(session string) {
	b.deferred = slices.DeleteFunc(b.deferred, func(a attached) bool { return a.session == session })
	t := b.targets[session]
	if t == nil {
		return
	}
	delete(b.targets, session)
	tab := t.tab
	tab.parts = slices.DeleteFunc(tab.parts, func(p *target) bool { return p == t })
	if tab.main != t {
		return
	}
	tab.closed = true
	for i, f := range b.frames {
		if f.tab == tab {
			b.frames[i] = &frame{} // its number is not used again
		}
	}
	i := slices.Index(b.tabs, tab)
	if i < 0 {
		return
	}
	b.tabs = slices.Delete(b.tabs, i, i+1)
	if b.current == tab {
		b.current = nil
		if len(b.tabs) > 0 {
			b.current = b.tabs[max(0, min(i, len(b.tabs))-1)]
		}
	}
}

// Errors of waiting.
var (
	errDialog  = errors.New("a dialog is open")
	errCrashed = errors.New("the page has crashed: browser_navigate loads one again")
	errClosed  = errors.New("the tab was closed")
)

// wait waits until a condition holds, which is asked for with the lock held after
// each event.
func (b *Browser) wait(ctx context.Context, is func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := is(), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-b.conn.Done():
			return wire.ErrDisconnected
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// TabState is a tab as lists show it.
type TabState struct {
	Number         int // of the tab among those of this connection, from 1; it stays the same
	URL, Title     string
	Current        bool
	Crashed, Blank bool
}

// Tabs are the open tabs, in the order of their opening. To ask the pages themselves
// would be use of them, and a limit closes the page that was not used for longest.
func (b *Browser) Tabs(ctx context.Context) (all []TabState) {
	var got struct {
		TargetInfos []struct{ TargetID, Title, URL string }
	}
	short, cancel := context.WithTimeoutCause(ctx, stateTimeout, errBusy)
	defer cancel()
	b.conn.Call(short, "", "Target.getTargets", nil, &got) // else what is known will do
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tabs {
		for _, info := range got.TargetInfos {
			if info.TargetID == t.main.id {
				t.url, t.title = info.URL, info.Title
				if isAddress(t.title, t.url) { // which Chrome takes if there is no title
					t.title = ""
				}
			}
		}
		all = append(all, TabState{t.number, t.url, t.title, t == b.current, t.crashed, t.url == "about:blank"})
	}
	return all
}

// isAddress reports whether a title is an address as Chrome shows it.
func isAddress(title, url string) bool {
	_, host, ok := strings.Cut(url, "://")
	return title == url || ok && strings.TrimSuffix(title, "/") == strings.TrimSuffix(host, "/")
}

// Count is the number of open tabs.
func (b *Browser) Count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tabs)
}

// Current is the tab that is acted on; it opens one if none is open.
func (b *Browser) Current(ctx context.Context) (*Tab, error) {
	b.mu.Lock()
	t := b.current
	b.mu.Unlock()
	if t != nil {
		return t, nil
	}
	return b.New(ctx)
}

// New opens a blank tab, which becomes the current one.
func (b *Browser) New(ctx context.Context) (*Tab, error) {
	var made struct{ TargetID string }
	if err := b.conn.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return nil, err
	}
	var t *Tab
	err := b.wait(ctx, func() bool {
		i := slices.IndexFunc(b.tabs, func(t *Tab) bool { return t.main.id == made.TargetID })
		if i >= 0 {
			t = b.tabs[i]
			b.current = t
		}
		return i >= 0 && t.parsed
	})
	return t, err
}

// at is the tab at an index, nil if there is none.
func (b *Browser) at(index int) *Tab {
	b.mu.Lock()
	defer b.mu.Unlock()
	if index < 0 || index >= len(b.tabs) {
		return nil
	}
	return b.tabs[index]
}

// Select makes the tab at an index the current one.
func (b *Browser) Select(ctx context.Context, index int) error {
	t := b.at(index)
	if t == nil {
		return b.noTab(index)
	}
	b.mu.Lock()
	b.current = t
	b.mu.Unlock()
	if err := b.conn.Call(ctx, t.main.session, "Page.bringToFront", nil, nil); err != nil && t.gone() == nil {
		return err
	}
	return nil
}

// CloseTab closes the tab at an index; -1: the current one.
func (b *Browser) CloseTab(ctx context.Context, index int) error {
	t := b.at(index)
	if index == -1 {
		b.mu.Lock()
		t = b.current
		b.mu.Unlock()
		if t == nil {
			return nil
		}
	}
	if t == nil {
		return b.noTab(index)
	}
	return b.closeTab(ctx, t)
}

// closeAgain is how long a tab may take to close until it is told again. Chrome gives
// a page that does not answer 500 ms, and begins anew with each command.
const closeAgain = time.Second

// closeTab closes a tab and returns when it is closed. Chrome forgets the command if
// the page is replaced at that moment: of 20 tabs whose page replaced itself for ever,
// 7 stayed at the first time, and none at the sixth.
func (b *Browser) closeTab(ctx context.Context, t *Tab) error {
	closed := func() bool { return t.closed }
	for {
		err := b.conn.Call(ctx, "", "Target.closeTarget", map[string]string{"targetId": t.main.id}, nil)
		soon, cancel := context.WithTimeout(ctx, closeAgain)
		late := b.wait(soon, closed)
		cancel()
		switch {
		case late == nil:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}
