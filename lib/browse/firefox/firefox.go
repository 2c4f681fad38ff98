// Package firefox drives a Firefox for an agent, by WebDriver BiDi: it navigates, takes
// snapshots, acts on elements and evaluates, with the scripts of lib/browse. What else
// lib/browse does, only Chromium's protocol can.
package firefox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/bidi"
	"btools/lib/browse"
	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// Bounds of what a page takes, as lib/browse has them.
const (
	actionTimeout   = 5 * time.Second  // until an element can be acted on
	navigateTimeout = 18 * time.Second // until there is a document that is parsed
	settleTimeout   = 5 * time.Second  // for what an action has caused
	scriptTimeout   = 15 * time.Second // for a page that runs a script
	evaluateTimeout = 20 * time.Second // for the script of an agent
	frameTimeout    = 3 * time.Second  // for a frame, without which the page does
	answerPatience  = time.Second      // for the answer of a page that runs no script
	snapshotTime    = 5 * time.Second
	searchTime      = 10 * time.Second
	startsWithin    = 100 * time.Millisecond // a navigation that an action causes
)

const (
	maxFrames = 8  // bounds how deep frames in frames are shown
	maxFiles  = 16 // bounds the names of downloads that are told of
)

// Browser is a Firefox.
type Browser struct {
	conn   *bidi.Conn
	second time.Duration // that bounds are counted in; tests have a shorter one

	mu      sync.Mutex
	changed wait.Broadcast // there was an event
	tabs    []string       // the contexts of the tabs, in the order of their opening
	current string         // "": none is open
	dialogs map[string]Dialog
	loading map[string]string // where a navigation in a tab leads
	empty   map[string]int    // the status that a tab's latest navigation has no page by
	begun   map[string]int    // how many navigations there were in a tab
	shown   map[string]shown  // what a tab has shown
	labels  map[string]string // of tabs, by which an agent names them
	opened  map[string]int    // which tab it was of all that have been opened, from 1
	count   int               // of tabs that have been opened
	begins  int               // how many downloads pages have begun
	files   []string          // the names of the latest of them
	made    []string          // tabs that were opened here
	parents map[string]string // of frames
	mute    map[string]bool   // frames that have not answered, until they do
	frames  []string          // contexts of frames: the first is that of f1e…
	nextRef int

	emulates emulate.Emulation // who has the turn has it
}

// Dialog is a dialog that is open.
type Dialog struct{ Type, Message string }

// Open connects to ws://HOST:PORT/session. Bounds are counted in seconds of that length;
// 0: of that of a second.
func Open(ctx context.Context, url string, second time.Duration) (*Browser, error) {
	b := &Browser{second: cmp.Or(second, time.Second), dialogs: map[string]Dialog{},
		loading: map[string]string{}, empty: map[string]int{}, begun: map[string]int{},
		shown: map[string]shown{}, labels: map[string]string{}, opened: map[string]int{},
		parents: map[string]string{}, mute: map[string]bool{},
		nextRef: 1}
	conn, err := bidi.Dial(ctx, url, b.event)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	err = conn.Call(ctx, "session.subscribe", map[string]any{"events": []string{"browsingContext",
		responseStarted}}, nil)
	var tree struct{ Contexts []node }
	if err == nil {
		err = conn.Call(ctx, "browsingContext.getTree", map[string]int{"maxDepth": 0}, &tree)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range tree.Contexts {
		b.addLocked(n.Context)
	}
	return b, nil
}

// of is a bound in the browser's seconds.
func (b *Browser) of(bound time.Duration) time.Duration {
	return time.Duration(float64(bound) * b.second.Seconds())
}

// Close ends the session. The browser and its tabs stay.
func (b *Browser) Close() { b.conn.Close() }

// Gone is closed when the connection has ended.
func (b *Browser) Gone() <-chan struct{} { return b.conn.Done() }

// node is a document's place in the answer to browsingContext.getTree.
type node struct {
	Context, URL string
	Children     []node
}

func (b *Browser) addLocked(tab string) {
	if !slices.Contains(b.tabs, tab) {
		b.tabs = append(b.tabs, tab)
		b.count++
		b.opened[tab] = b.count
	}
	if b.current == "" {
		b.current = tab
	}
}

const responseStarted = "network.responseStarted"

// event notes what an event tells.
func (b *Browser) event(method string, params json.RawMessage) {
	tab := jsonrpc.GetString(params, "context")
	b.mu.Lock()
	defer b.mu.Unlock()
	switch strings.TrimPrefix(method, "browsingContext.") {
	case "contextCreated":
		if parent := jsonrpc.GetString(params, "parent"); parent != "" {
			b.parents[tab] = parent
		} else {
			b.addLocked(tab)
		}
	case "contextDestroyed":
		delete(b.dialogs, tab)
		delete(b.loading, tab)
		delete(b.empty, tab)
		delete(b.begun, tab)
		delete(b.shown, tab)
		delete(b.opened, tab)
		delete(b.labels, tab)
		delete(b.parents, tab)
		delete(b.mute, tab)
		i := slices.Index(b.tabs, tab)
		if i < 0 {
			break
		}
		b.tabs = slices.Delete(b.tabs, i, i+1)
		if b.current == tab {
			if b.current = ""; len(b.tabs) > 0 {
				b.current = b.tabs[max(0, min(i, len(b.tabs))-1)]
			}
		}
	case "userPromptOpened":
		b.dialogs[tab] = Dialog{jsonrpc.GetString(params, "type"), jsonrpc.GetString(params, "message")}
	case "userPromptClosed":
		delete(b.dialogs, tab)
	case "navigationStarted":
		b.loading[tab] = jsonrpc.GetString(params, "url")
		delete(b.empty, tab)
		b.begun[tab]++
	case responseStarted: // Firefox says no more of a navigation that this ends
		var status int
		json.Unmarshal(jsonrpc.Get(params, "response", "status"), &status)
		if browse.IsEmpty(status) && jsonrpc.GetString(params, "navigation") != "" {
			b.empty[tab] = status
			delete(b.loading, tab)
		}
	case "downloadWillBegin":
		b.begins++
		if b.files = append(b.files, jsonrpc.GetString(params, "suggestedFilename")); len(b.files) > maxFiles {
			b.files = b.files[1:]
		}
		delete(b.loading, tab)
	case "navigationCommitted":
		delete(b.loading, tab)
		b.shown[tab] = shown{b.shown[tab].documents + 1, jsonrpc.GetString(params, "url")}
	case "navigationFailed", "navigationAborted", "fragmentNavigated":
		delete(b.loading, tab)
	}
	b.changed.Wake()
}

// wait waits until a condition holds, which is asked for with the lock held after each
// event.
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
			return bidi.ErrDisconnected
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Tab is a tab as lists show it.
type Tab struct {
	State
	Label   string // by which an agent names it; "": none
	Current bool
}

// Tabs are the open tabs, in the order of their opening.
func (b *Browser) Tabs(ctx context.Context) []Tab {
	b.mu.Lock()
	tabs, current := slices.Clone(b.tabs), b.current
	b.mu.Unlock()
	all := make([]Tab, len(tabs))
	var asked sync.WaitGroup // all at once: some may not answer
	for i, tab := range tabs {
		asked.Go(func() {
			all[i] = Tab{State: b.state(ctx, tab), Current: tab == current}
		})
	}
	asked.Wait()
	for i, label := range b.Labels() {
		if i < len(all) {
			all[i].Label = label
		}
	}
	return all
}

// State is what results say of a tab.
type State struct {
	URL, Title string // URL is "" if it is not known
	Status     int    // of HTTP, by which the document came; 0: it is not known
	Leaving    string // the address of the page that is to come; "": none is
}

// state returns what the page of a tab tells.
func (b *Browser) state(ctx context.Context, tab string) (s State) {
	short, cancel := context.WithTimeout(ctx, b.of(answerPatience))
	defer cancel()
	if b.dialogIn(tab) != nil || b.run(short, tab, "page", nil, &s) != nil {
		return State{URL: b.url(ctx, tab)}
	}
	return s
}

// url returns the address of a tab; "": it is not known.
func (b *Browser) url(ctx context.Context, tab string) string {
	var tree struct{ Contexts []node }
	err := b.conn.Call(ctx, "browsingContext.getTree", map[string]any{"root": tab, "maxDepth": 0}, &tree)
	if err != nil || len(tree.Contexts) != 1 {
		return ""
	}
	return tree.Contexts[0].URL
}

// State is the state of the current tab.
func (b *Browser) State(ctx context.Context) (s State) {
	tab, err := b.tab(ctx)
	if err != nil {
		return s
	}
	s = b.state(ctx, tab)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Leaving = browse.Redacted(b.loading[tab])
	return s
}

// New opens a blank tab, which becomes the current one.
func (b *Browser) New(ctx context.Context) error {
	tab, err := b.open(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.current = tab
	b.mu.Unlock()
	return b.activate(ctx, tab)
}

// CloseOpened closes the tabs that were opened here.
func (b *Browser) CloseOpened() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	b.mu.Lock()
	all := slices.Clone(b.made)
	b.mu.Unlock()
	for _, tab := range all {
		b.conn.Call(ctx, "browsingContext.close", map[string]string{"context": tab}, nil) // which may be gone
	}
}

// Inherit takes over the tabs that an earlier connection has opened.
func (b *Browser) Inherit(before *Browser) {
	before.mu.Lock()
	made := slices.Clone(before.made)
	before.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = made
}

// closeBound is how long the tabs may take to close.
const closeBound = 2 * time.Second

// open opens a blank tab behind the others: one in front would wait for the page that was
// there before, which may run a script without end.
func (b *Browser) open(ctx context.Context) (tab string, err error) {
	var made struct{ Context string }
	err = b.conn.Call(ctx, "browsingContext.create", map[string]any{"type": "tab", "background": true}, &made)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(made.Context)
	b.made = append(b.made, made.Context)
	return made.Context, nil
}

// switchPatience is how long a tab may take to come to the front. It is there before, but
// Firefox waits for the page that was there, too.
const switchPatience = 500 * time.Millisecond

// activate brings a tab to the front.
func (b *Browser) activate(ctx context.Context, tab string) error {
	of := map[string]string{"context": tab}
	for isAgain := false; ; isAgain = true {
		err := b.callFor(ctx, b.of(switchPatience), tab, "browsingContext.activate", of, nil)
		b.mu.Lock()
		isOpen := slices.Contains(b.tabs, tab)
		b.mu.Unlock()
		switch {
		case errors.Is(err, errLate):
			return nil
		case errors.Is(err, errClosed) && isOpen && !isAgain: // Firefox also says so when another tab closes just then
			continue
		}
		return err
	}
}

// Select makes the tab with an index the current one.
func (b *Browser) Select(ctx context.Context, index int) error {
	tab, err := b.at(index)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.current = tab
	b.mu.Unlock()
	return b.activate(ctx, tab)
}

// Label gives the tab with an index a label; -1: the current one.
func (b *Browser) Label(index int, label string) error {
	tab, err := b.at(index)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.labels, func(_, other string) bool { return other == label })
	b.labels[tab] = label
	return nil
}

// Labels are those of the tabs, by index; "": it has none.
func (b *Browser) Labels() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, tab := range b.tabs {
		all = append(all, b.labels[tab])
	}
	return all
}

// CloseTab closes the tab with an index; -1: the current one.
func (b *Browser) CloseTab(ctx context.Context, index int) error {
	tab, err := b.at(index)
	if err != nil {
		return err
	}
	b.mu.Lock()
	last := len(b.tabs) == 1
	b.mu.Unlock()
	if last { // without a tab, Firefox would end
		if err := b.New(ctx); err != nil {
			return err
		}
	}
	return b.close(ctx, tab)
}

// close closes a tab, whatever its page does: it is not asked.
func (b *Browser) close(ctx context.Context, tab string) error {
	err := b.call(ctx, tab, "browsingContext.close", map[string]string{"context": tab}, nil)
	if err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return b.wait(ctx, func() bool { return !slices.Contains(b.tabs, tab) })
}

func (b *Browser) at(index int) (tab string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if index < 0 && b.current != "" {
		return b.current, nil
	}
	if index < 0 || index >= len(b.tabs) {
		return "", fmt.Errorf("there is no tab %d: there are %d, counted from 0", index, len(b.tabs))
	}
	return b.tabs[index], nil
}

// tab returns the current tab, and opens one if none is open.
func (b *Browser) tab(ctx context.Context) (string, error) {
	if tab, err := b.at(-1); err == nil {
		return tab, nil
	}
	if err := b.New(ctx); err != nil {
		return "", err
	}
	return b.at(-1)
}

// Dialog returns the dialog that is open in the current tab; nil: there is none.
func (b *Browser) Dialog() *Dialog {
	tab, err := b.at(-1)
	if err != nil {
		return nil
	}
	return b.dialogIn(tab)
}

// AsksToLeave reports whether a beforeunload is open, as browse.Tab has it.
func (b *Browser) AsksToLeave() bool {
	d := b.Dialog()
	return d != nil && d.Type == "beforeunload"
}

func (b *Browser) dialogIn(tab string) *Dialog {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d, open := b.dialogs[tab]; open {
		return &d
	}
	return nil
}

// HandleDialog accepts or dismisses the dialog that is open.
func (b *Browser) HandleDialog(ctx context.Context, accept bool, prompt *string) error {
	tab, err := b.at(-1)
	if err != nil || b.dialogIn(tab) == nil {
		return errors.New("no dialog is open")
	}
	params := map[string]any{"context": tab, "accept": accept}
	if prompt != nil {
		params["userText"] = *prompt
	}
	since := b.mark(tab)
	if err := b.call(ctx, tab, "browsingContext.handleUserPrompt", params, nil); err != nil {
		return err
	}
	return b.settle(ctx, tab, since)
}

// Before is the moment before a call.
type Before struct{ tabs, files int }

// Before is now.
func (b *Browser) Before() Before {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Before{b.count, b.begins}
}

// Caused are the indexes of the tabs that pages have opened since, and the names of the
// downloads that they have begun.
func (b *Browser) Caused(since Before) (tabs []int, files []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, tab := range b.tabs {
		if b.opened[tab] > since.tabs && tab != b.current { // that one the call itself has opened
			tabs = append(tabs, i)
		}
	}
	n := min(b.begins-since.files, len(b.files))
	return tabs, slices.Clone(b.files[len(b.files)-n:])
}

// Navigate loads an address and waits until the document is parsed, and for a while
// until it is loaded.
func (b *Browser) Navigate(ctx context.Context, typed string) (address string, err error) {
	if address, err = browse.Address(typed); err != nil {
		return "", err
	}
	tab, err := b.tab(ctx)
	if err != nil {
		return "", err
	}
	if !b.answers(tab, 2*answerPatience) { // it would keep the next page waiting
		if tab, err = b.replace(tab); err != nil {
			return "", err
		}
	}
	before := b.Before()
	_, err = b.orDialog(ctx, tab, func() error {
		return b.callFor(ctx, b.of(navigateTimeout), tab, "browsingContext.navigate",
			map[string]string{"context": tab, "url": address, "wait": "interactive"}, nil)
	})
	switch e := (*bidi.Error)(nil); {
	case errors.Is(err, errLate):
		return "", b.unloaded(ctx, tab, address)
	case errors.As(err, &e):
		b.mu.Lock()
		status := b.empty[tab]
		b.mu.Unlock()
		if status != 0 {
			return "", browse.NoPage(address, status)
		}
		said := strings.ReplaceAll(e.Message, address, browse.Redacted(address))
		return "", fmt.Errorf("cannot load %s: %s", browse.Redacted(address), said)
	}
	if _, files := b.Caused(before); len(files) > 0 && err == nil {
		return address, browse.ErrDownload
	}
	if err == nil && b.dialogIn(tab) == nil {
		b.orDialog(ctx, tab, func() error {
			_, err := b.script(ctx, tab, loaded)
			return err
		})
	}
	return address, err
}

// unloaded is why a page was not loaded in time. It is not waited for any more.
func (b *Browser) unloaded(ctx context.Context, tab, address string) error {
	b.mu.Lock()
	_, leaves := b.loading[tab]
	b.mu.Unlock()
	if !b.answers(tab, answerPatience) {
		return b.late(tab, navigateTimeout)
	}
	short, cancel := context.WithTimeout(ctx, b.of(answerPatience))
	defer cancel()
	b.script(short, tab, "window.stop()")
	if leaves {
		return fmt.Errorf("%s was not loaded within %v: its server has not answered, and the page that was open "+
			"still is", browse.Redacted(address), b.of(navigateTimeout))
	}
	return fmt.Errorf("%s was not loaded within %v: it is not complete", browse.Redacted(address),
		b.of(navigateTimeout))
}

// Go goes back in the history of the tab, or forward.
func (b *Browser) Go(ctx context.Context, forward bool) error {
	delta, where := -1, "before"
	if forward {
		delta, where = 1, "after"
	}
	err := b.leave(ctx, "browsingContext.traverseHistory", map[string]any{"delta": delta})
	if e := (*bidi.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("there is no page %s this one in the history", where)
	}
	return err
}

// Reload loads the page again.
func (b *Browser) Reload(ctx context.Context) error {
	return b.leave(ctx, "browsingContext.reload", map[string]any{"wait": "interactive"})
}

// leave has the tab show another document.
func (b *Browser) leave(ctx context.Context, method string, params map[string]any) error {
	tab, err := b.tab(ctx)
	if err != nil {
		return err
	}
	if !b.answers(tab, 2*answerPatience) {
		return b.late(tab, answerPatience)
	}
	since := b.mark(tab)
	params["context"] = tab
	_, err = b.orDialog(ctx, tab, func() error { return b.call(ctx, tab, method, params, nil) })
	if err != nil {
		return err
	}
	return b.settle(ctx, tab, since)
}

// orDialog calls a function that a dialog in a tab may hold up, and returns when it
// has returned or a dialog is open: then the function goes on until the context ends.
func (b *Browser) orDialog(ctx context.Context, tab string, do func() error) (returned bool, err error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	opened := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		opened <- b.wait(ctx, func() bool {
			_, open := b.dialogs[tab]
			return open
		})
	}()
	select {
	case err := <-done:
		return true, err
	case err := <-opened:
		if err == nil {
			return false, nil
		}
		return true, <-done
	}
}

func (b *Browser) mark(tab string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun[tab]
}

// settle waits for what an action causes: a navigation that begins soon, until its
// document is there and parsed, or a dialog.
func (b *Browser) settle(ctx context.Context, tab string, since int) error {
	soon, cancel := context.WithTimeout(ctx, startsWithin)
	begun := b.wait(soon, func() bool { return b.begun[tab] > since || b.dialogs[tab] != Dialog{} }) == nil
	cancel()
	if begun {
		long, cancel := context.WithTimeout(ctx, b.of(settleTimeout))
		defer cancel()
		b.arrive(long, tab)
		b.orDialog(long, tab, func() error {
			_, err := b.script(long, tab, loaded)
			return err
		})
	}
	return context.Cause(ctx)
}

// arrive waits until a navigation in a tab is over. A page that comes out of Firefox's
// memory of earlier pages is not told of: then the tab is where the navigation leads.
func (b *Browser) arrive(ctx context.Context, tab string) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, arrivalPause)
		over := b.wait(short, func() bool {
			_, loads := b.loading[tab]
			return !loads || b.dialogs[tab] != Dialog{} || !slices.Contains(b.tabs, tab)
		}) == nil
		cancel()
		b.mu.Lock()
		to := b.loading[tab]
		b.mu.Unlock()
		if over || b.url(ctx, tab) == to {
			return
		}
	}
}

// arrivalPause is how often it is asked where a tab is.
const arrivalPause = 200 * time.Millisecond

// loaded waits until a document is parsed, and for a while until all that it needs is
// there.
const loaded = `(async () => {
	const happens = (name) => new Promise((done) => addEventListener(name, () => done(), { once: true }))
	if (document.readyState === 'loading') await happens('DOMContentLoaded')
	if (document.readyState !== 'complete') {
		await Promise.race([happens('load'), new Promise((done) => setTimeout(done, 3000))])
	}
	return 0
})()`
