// Package firefox drives a Firefox for an agent, by WebDriver BiDi: its Browser is a browse.Driver, its Tab a
// browse.Page, with the scripts of lib/browse. What else a browse.Tab does, only Chromium's protocol can.
package firefox

import (
	"cmp"
	"context"
	"encoding/json"
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

// Times beside those of lib/browse.
const (
	evaluateTimeout = 20 * time.Second       // for the script of an agent: a page that goes on is replaced then
	startsWithin    = 100 * time.Millisecond // a navigation that an action causes
)

// maxFiles bounds the names of downloads that are told of.
const maxFiles = 16

// Browser is a Firefox.
type Browser struct {
	conn    *bidi.Conn
	second  time.Duration // that bounds are counted in; tests have a shorter one
	refuses bool          // no page shows a file

	mu      sync.Mutex
	changed wait.Broadcast // there was an event
	browse.TabList[*Tab]
	opened  int               // tabs, ever
	begins  int               // how many downloads pages have begun
	files   []string          // the names of the latest of them
	made    []string          // tabs that were opened here
	parents map[string]string // of frames
	mute    map[string]bool   // frames that have not answered, until they do
	refs    browse.Refs[*frame]

	emulates emulate.Emulation // who has the turn has it
}

var _ browse.Driver = (*Browser)(nil)

// Open connects to ws://HOST:PORT/session. Bounds are counted in seconds of that length; 0: of that of a second. The
// tabs that an earlier connection has opened, if there was one, are taken as opened here.
func Open(ctx context.Context, url string, second time.Duration, before *Browser) (*Browser, error) {
	b := &Browser{second: cmp.Or(second, time.Second), parents: map[string]string{}, mute: map[string]bool{}}
	b.refs, b.TabList = browse.NewRefs[*frame](&b.mu), browse.NewTabList[*Tab](&b.mu)
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
	if before != nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		b.made = slices.Clone(before.made)
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

// tabLocked returns the tab of a context that is one, nil if it is none.
func (b *Browser) tabLocked(id string) *Tab {
	i := slices.IndexFunc(b.All, func(t *Tab) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	return b.All[i]
}

// addLocked lists a tab, unless it is listed, and returns it.
func (b *Browser) addLocked(id string) *Tab {
	t := b.tabLocked(id)
	if t == nil {
		b.opened++
		t = newTab(b, id)
		b.All = append(b.All, t)
	}
	b.Front = cmp.Or(b.Front, t)
	return t
}

const responseStarted = "network.responseStarted"

// event notes what an event tells.
func (b *Browser) event(method string, params json.RawMessage) {
	id := jsonrpc.GetString(params, "context")
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.changed.Wake()
	switch t := b.tabLocked(id); strings.TrimPrefix(method, "browsingContext.") {
	case "contextCreated":
		if parent := jsonrpc.GetString(params, "parent"); parent != "" {
			b.parents[id] = parent
		} else {
			b.addLocked(id)
		}
	case "contextDestroyed":
		delete(b.parents, id)
		delete(b.mute, id)
		if t != nil {
			t.closed = b.Drop(t)
		}
	case "downloadWillBegin":
		b.begins++
		if b.files = append(b.files, jsonrpc.GetString(params, "suggestedFilename")); len(b.files) > maxFiles {
			b.files = b.files[1:]
		}
		fallthrough
	default:
		if t != nil {
			t.event(strings.TrimPrefix(method, "browsingContext."), params)
		}
	}
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

// Tabs are the open tabs, in the order of their opening.
func (b *Browser) Tabs(ctx context.Context) []browse.TabState {
	b.mu.Lock()
	tabs := slices.Clone(b.All)
	all := make([]browse.TabState, len(tabs))
	for i, t := range tabs {
		all[i] = browse.TabState{Number: t.number, Label: b.Names[t], Current: t == b.Front}
	}
	b.mu.Unlock()
	var asked sync.WaitGroup // all at once: some may not answer
	for i, t := range tabs {
		asked.Go(func() {
			s := t.State(ctx)
			all[i].URL, all[i].Title = s.URL, s.Title
		})
	}
	asked.Wait()
	return all
}

// GuardFiles has pages show no file, nor what else is of the machine: Firefox does not ask before it shows one.
func (b *Browser) GuardFiles(func(ctx context.Context, address string) error) { b.refuses = true }

// Current is the tab that is acted on; it opens one if none is open.
func (b *Browser) Current(ctx context.Context) (browse.Page, error) {
	if t, err := b.At(-1); err == nil {
		return t, nil
	}
	return b.New(ctx)
}

// New opens a blank tab, which becomes the current one.
func (b *Browser) New(ctx context.Context) (browse.Page, error) {
	t, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.Front = t
	b.mu.Unlock()
	return t, t.activate(ctx)
}

// CloseOpened closes the tabs that were opened here.
func (b *Browser) CloseOpened() {
	ctx, cancel := context.WithTimeout(context.Background(), browse.CloseBound)
	defer cancel()
	b.mu.Lock()
	all := slices.Clone(b.made)
	b.mu.Unlock()
	for _, tab := range all {
		b.conn.Call(ctx, "browsingContext.close", map[string]string{"context": tab}, nil) // which may be gone
	}
}

// open opens a blank tab behind the others: one in front would wait for the page that was
// there before, which may run a script without end.
func (b *Browser) open(ctx context.Context) (*Tab, error) {
	var made struct{ Context string }
	err := b.conn.Call(ctx, "browsingContext.create", map[string]any{"type": "tab", "background": true}, &made)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = append(b.made, made.Context)
	return b.addLocked(made.Context), nil
}

// Select makes the tab with an index the current one.
func (b *Browser) Select(ctx context.Context, index int) error {
	t, err := b.At(index)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.Front = t
	b.mu.Unlock()
	return t.activate(ctx)
}

// CloseTab closes the tab with an index; -1: the current one.
func (b *Browser) CloseTab(ctx context.Context, index int) error {
	t, err := b.At(index)
	if err != nil {
		return err
	}
	if b.Count() == 1 { // without a tab, Firefox would end
		if _, err := b.New(ctx); err != nil {
			return err
		}
	}
	return t.close(ctx)
}
