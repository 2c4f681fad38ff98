// Package browse drives a browser for an agent: its tabs, what an agent has to know of a page, and actions on elements
// that wait until the element can be acted on and afterwards until what they have caused is done. Driver and Page say
// what any browser does, and Elements does to the elements of a page what is the same in all. Browser and Tab do the
// rest, and more, by the Chrome DevTools Protocol on one connection. What agents call, and how results read, is in
// tools.
package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/webmcp"

	"btools/lib/cdp"
	"btools/lib/cdp/wire"
	"btools/lib/emulate"
	"btools/lib/wait"
)

// Times that bound what a page can make a caller wait for.
const (
	ActionTimeout   = 5 * time.Second  // until an element can be acted on
	NavigateTimeout = 20 * time.Second // until there is a document
	parseTimeout    = 10 * time.Second // then, until it has been parsed
	loadTimeout     = 5 * time.Second  // then, until all that it needs is loaded
	beginTimeout    = 10 * time.Second // for the renderer of a tab that was not used before
	SettleTimeout   = 5 * time.Second  // for what an action has caused
	ScriptTimeout   = 15 * time.Second // for a page that runs a script
	agentTimeout    = 24 * time.Second // for the script of an agent, a picture or a PDF
	FrameTimeout    = 3 * time.Second  // for a frame of another site, without which the page does
	leavePatience   = 2 * time.Second  // for a page that is about to be replaced
	AnswerPatience  = time.Second      // for the answer of a page that runs no script
)

// Browser is a connection to a browser.
type Browser struct {
	conn   *cdp.Conn
	second time.Duration // that bounds are counted in; tests have a shorter one

	mu      sync.Mutex
	changed wait.Broadcast     // there was an event
	targets map[string]*target // by CDP session
	TabList[*Tab]
	refs       Refs[*frame]
	vanished   []string // the addresses of the latest tabs that no tool has closed
	vanishings int      // how many they have been
	opened     int      // tabs, ever
	answers    int      // to commands of tabs, ever

	downloads int   // that have begun, ever
	number    int64 // that no other connection has

	work sync.WaitGroup // what goes on beside the calls

	guest
	hiding
	network
	storage
	emulation
}

// guest is which tabs were opened here, and by their pages.
type guest struct {
	b    *Browser
	made map[string]bool             // by ID
	tell func(tab string, open bool) // of these; nil: nobody
}

var _ Driver = (*Browser)(nil)

// target is a CDP session: of a page, or of frames of another site in one.
type target struct {
	session, id string
	tab         *Tab
	worlds      map[string]world // the execution contexts of ours, by frame
	patience    patience
}

// patience is how a target has answered the latest questions.
type patience int

const (
	answering patience = iota
	slow               // one was given up
	mute               // one was given up after the longest time: it is not asked for so long again
)

// Open connects to the browser at a WebSocket URL and attaches to its tabs. Bounds are
// counted in seconds of that length; 0: of that of a second.
func Open(ctx context.Context, url string, second time.Duration) (*Browser, error) {
	b := &Browser{second: cmp.Or(second, time.Second), number: time.Now().UnixNano(),
		targets: map[string]*target{}, hiding: hiding{hidden: map[string]bool{}},
		guest: guest{made: map[string]bool{}}}
	ready := make(chan struct{}) // events come before the connection is known here
	b.refs, b.TabList = NewRefs[*frame](&b.mu), NewTabList[*Tab](&b.mu)
	b.guest.b, b.hiding.b, b.network.b, b.storage.b, b.emulation.b = b, b, b, b, b
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

// Downloads returns a token that changes with each download and each connection.
func (b *Browser) Downloads() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.number, "+", b.downloads)
}

// of returns a bound in the browser's seconds.
func (b *Browser) of(bound time.Duration) time.Duration {
	return time.Duration(float64(bound) * b.second.Seconds())
}

// CloseOpened closes the tabs that were opened here, and by their pages.
func (g *guest) CloseOpened() {
	ctx, cancel := context.WithTimeout(context.Background(), CloseBound)
	defer cancel()
	g.b.mu.Lock()
	var all sync.WaitGroup
	for id := range g.made {
		all.Go(func() { g.b.Call(ctx, "Target.closeTarget", map[string]string{"targetId": id}, nil) }) // it may be gone
		g.noteMadeLocked(id, false)
	}
	g.b.mu.Unlock()
	all.Wait()
}

// TellOpened has tell told of the tabs that are opened here, and by their pages, and of their end. It must not wait.
// Those of an earlier connection, if there was one, are among them.
func (g *guest) TellOpened(before *Browser, tell func(tab string, open bool)) {
	made := map[string]bool{}
	if before != nil {
		before.mu.Lock()
		made = maps.Clone(before.made)
		before.mu.Unlock()
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.tell = tell
	maps.Copy(g.made, made)
}

// noteMadeLocked notes that a tab was opened here, or that one is gone.
func (g *guest) noteMadeLocked(id string, open bool) {
	if g.made[id] == open {
		return
	}
	if g.made[id] = open; !open {
		delete(g.made, id)
	}
	if g.tell != nil {
		g.tell(id, open)
	}
}

// CloseBound is how long the tabs may take to close.
const CloseBound = 2 * time.Second

// Close ends the connection. Tabs stay open.
func (b *Browser) Close() {
	b.conn.Close()
	b.work.Wait()
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
	t := &target{session: session, id: info.TargetID, worlds: map[string]world{}}
	if page {
		t.tab = newTab(b, t, info)
		if b.made[info.OpenerID] {
			b.noteMadeLocked(info.TargetID, true)
		}
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
		b.conn.Begin(session, webmcp.Enable.Method, nil, nil)
		b.visits.Add(info.URL)
		b.noteFileLocked(info.URL)
		if b.guarding || len(b.routes) > 0 {
			b.pauseLocked(session)
		}
		for _, c := range b.emulates.Commands(b.agent, emulate.Emulation{}) {
			b.conn.Begin(session, c.Method, c.Params, nil)
		}
	}
	b.conn.Begin(session, "Runtime.runIfWaitingForDebugger", nil, func(json.RawMessage, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.tab.begun = true
		b.changed.Wake()
	})
}

// show lists a new tab.
func (b *Browser) show(t *Tab) {
	b.All = append(b.All, t)
	b.opened++
	t.number = b.opened
	if b.Front == nil {
		b.Front = t
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
	tab.toolsGone(session, "")
	if tab.main != t {
		return
	}
	tab.closed = true
	for i, f := range b.refs.frames {
		if f != nil && f.tab == tab.frames {
			b.refs.frames[i] = nil // its number is not used again
		}
	}
	if !b.Drop(tab) {
		return
	}
	if !tab.closing {
		if b.vanished = append(b.vanished, tab.url); len(b.vanished) > maxDocuments {
			b.vanished = slices.Delete(b.vanished, 0, maxDocuments/2)
		}
		b.vanishings++
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
		ok, changed := is(), b.changed.Next()
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
	Label          string // by which an agent names it; "": none
	Current        bool
	Crashed, Blank bool
}

// Tabs are the open tabs, in the order of their opening. To ask the pages themselves
// would be use of them, and a limit closes the page that was not used for longest.
func (b *Browser) Tabs(ctx context.Context) (all []TabState) {
	var got struct {
		TargetInfos []struct{ TargetID, Title, URL string }
	}
	short, cancel := context.WithTimeoutCause(ctx, b.of(AnswerPatience), errSilent)
	defer cancel()
	b.conn.Call(short, "", "Target.getTargets", nil, &got) // else what is known will do
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.All {
		for _, info := range got.TargetInfos {
			if info.TargetID == t.main.id {
				t.url, t.title = info.URL, titleOf(info.Title, info.URL)
			}
		}
		url := cmp.Or(t.addressLocked(), t.starting[t.main.id].url)
		all = append(all, TabState{t.number, url, t.title, b.Names[t], t == b.Front, t.crashed, url == "about:blank"})
	}
	return all
}

// titleOf is the title of a page that Chrome calls so: one without a title is called by
// its address without the scheme, a file by its name.
func titleOf(called, address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme == "file" {
		rest = path.Base(rest)
	}
	if called == address || strings.TrimSuffix(called, "/") == strings.TrimSuffix(rest, "/") {
		return ""
	}
	return called
}

// Current is the tab that is acted on; it opens one if none is open.
func (b *Browser) Current(ctx context.Context) (Page, error) {
	if t, err := b.At(-1); err == nil {
		return t, nil
	}
	return b.New(ctx)
}

// New opens a blank tab, which becomes the current one.
func (b *Browser) New(ctx context.Context) (Page, error) {
	begin, cancel := context.WithTimeoutCause(ctx, b.of(beginTimeout), ErrUnborn)
	defer cancel()
	t, err := b.make(begin)
	if !errors.Is(err, ErrUnborn) {
		return t, err
	}
	if t != nil { // its renderer has died as it was born
		b.conn.Begin("", "Target.closeTarget", map[string]string{"targetId": t.main.id}, nil)
	}
	return b.make(ctx)
}

// make opens a tab and waits until its renderer and its document are there.
func (b *Browser) make(ctx context.Context) (*Tab, error) {
	var made struct{ TargetID string }
	if err := b.conn.Call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.noteMadeLocked(made.TargetID, true)
	b.mu.Unlock()
	var t *Tab
	err := b.wait(ctx, func() bool {
		i := slices.IndexFunc(b.All, func(t *Tab) bool { return t.main.id == made.TargetID })
		if i >= 0 {
			t = b.All[i]
			b.Front = t
		}
		return i >= 0 && t.begun && t.parsed
	})
	return t, err
}

// Select makes the tab at an index the current one.
func (b *Browser) Select(ctx context.Context, index int) error {
	t, err := b.At(index)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.Front = t
	b.mu.Unlock()
	b.conn.Begin(t.main.session, "Page.bringToFront", nil, nil)
	return nil
}

// CloseTab closes the tab at an index; -1: the current one.
func (b *Browser) CloseTab(ctx context.Context, index int) error {
	t, err := b.At(index)
	switch {
	case err != nil && index == -1: // none is open
		return nil
	case err != nil:
		return err
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
	b.mu.Lock()
	t.closing = true
	if t.dialog != nil {
		t.unblockLocked(t.dialog)
	}
	b.mu.Unlock()
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
