// Package login watches a browser in which a person logs in, and keeps what a
// state has of it: the cookies of its default context, and the storage of the
// origins that its pages show. It does not save the state.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/wait"
	"btools/lib/webstorage"
)

// The browser stays when its last window is closed, so that the state is read
// after all that its pages have done. It is also read now and then before that,
// for a person may quit the browser, and a browser may crash.

const (
	settle    = time.Second     // from a navigation to the reading after it
	interval  = 5 * time.Second // between readings of pages that do not navigate
	maxShare  = 20              // of the time, one in so many is spent on reading
	lastly    = time.Minute     // for the reading after the last page was closed
	pageBound = time.Second     // for a page to say what its frames are
)

// Watcher watches one browser. Wait for its end.
type Watcher struct {
	pipe    *wire.Pipe
	context string // the default browser context
	work    sync.WaitGroup
	reading chan struct{}    // of one element, which is in it while the state is read
	hidden  *webstorage.Page // in which storage is read, while reading; nil: none is open
	changed chan struct{}    // of one element: a page has navigated
	emptied chan struct{}    // of one element: the last page was closed
	closed  chan struct{}

	mu      sync.Mutex
	pages   map[string]page // by target
	visits  webstorage.Visits
	latest  *logins.State
	readAt  time.Time
	origins map[string]logins.Origin // of the latest state
	lost    []string                 // what is missing in it
	failed  error                    // of the latest reading
}

// page is a page that the person sees.
type page struct {
	url       string
	isDefault bool // it is in the default browser context
}

// Open opens the first page of a browser that was started without one, and
// watches it: a browser that reads commands from out, and answers on in.
func Open(ctx context.Context, in io.Reader, out io.Writer, url string) (*Watcher, error) {
	w := &Watcher{reading: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		emptied: make(chan struct{}, 1), closed: make(chan struct{}), pages: map[string]page{}}
	w.pipe = wire.NewPipe(in, out, w.event)
	contexts, err := w.pipe.Call(ctx, "", "Target.getBrowserContexts", nil)
	if err == nil {
		w.mu.Lock()
		w.context = jsonrpc.GetString(contexts, "defaultBrowserContextId")
		w.mu.Unlock()
		_, err = w.pipe.Call(ctx, "", "Target.setDiscoverTargets", map[string]any{"discover": true})
	}
	if err == nil {
		_, err = w.pipe.Call(ctx, "", "Target.createTarget", map[string]any{"url": url, "newWindow": true})
	}
	if err == nil { // now: Chrome opens no hidden page when it has no window (Chromium 156)
		w.hidden, err = webstorage.OpenPage(ctx, w.pipe, "")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open its window: %w", err)
	}
	w.work.Go(w.run)
	return w, nil
}

// Closed is closed when the last page has been closed and the state after that
// has been read.
func (w *Watcher) Closed() <-chan struct{} { return w.closed }

// Wait returns when the browser has ended and nothing is left of the watcher.
func (w *Watcher) Wait() {
	w.work.Wait()
	w.pipe.Wait()
}

// State returns the state as it is now or, if it cannot be read any more, the
// latest one; lost says what is missing in it.
func (w *Watcher) State(ctx context.Context) (state *logins.State, lost []string, err error) {
	if !wait.Closed(w.closed) {
		w.read(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return nil, nil, w.failed
	}
	lost = w.lost
	if w.failed != nil {
		age := time.Since(w.readAt).Round(time.Second / 10)
		lost = append(slices.Clone(lost), fmt.Sprintf("what changed in the last %v: %v", age, w.failed))
	}
	return w.latest, lost, nil
}

// event handles an event of the browser.
func (w *Watcher) event(p *wire.Pipe, method, session string, params json.RawMessage) {
	webstorage.Answer(p, method, session, params)
	if session != "" {
		return
	}
	switch method {
	case "Target.targetCreated", "Target.targetInfoChanged":
		w.visit(jsonrpc.Get(params, "targetInfo"))
	case "Target.targetDestroyed":
		w.mu.Lock()
		defer w.mu.Unlock()
		id := jsonrpc.GetString(params, "targetId")
		if _, was := w.pages[id]; !was {
			return
		}
		if delete(w.pages, id); len(w.pages) == 0 {
			signal(w.emptied)
		}
	}
}

// visit notes what a target shows.
func (w *Watcher) visit(info json.RawMessage) {
	id, typ, url := jsonrpc.GetString(info, "targetId"), jsonrpc.GetString(info, "type"), jsonrpc.GetString(info, "url")
	w.mu.Lock()
	defer w.mu.Unlock()
	if typ != "page" && typ != "iframe" { // the hidden page is "other"
		return
	}
	isDefault := w.context == "" || jsonrpc.GetString(info, "browserContextId") == w.context
	if typ == "page" {
		before, known := w.pages[id]
		w.pages[id] = page{url, isDefault}
		if known && before.url == url {
			return
		}
	}
	if isDefault && webstorage.OriginOf(url) != "" {
		w.visits.Add(url)
		signal(w.changed)
	}
}

// signal leaves a signal for the goroutine that receives it.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run reads the state now and then, and a last time when the last page has been
// closed.
func (w *Watcher) run() {
	pause := interval
	for {
		select {
		case <-w.changed:
			select { // the page goes on to set its cookies
			case <-time.After(settle):
			case <-w.emptied:
			case <-w.pipe.Done():
			}
		case <-w.emptied:
		case <-time.After(pause):
		case <-w.pipe.Done():
			return
		}
		began := time.Now()
		isLast := !w.hasPages()
		ctx, cancel := context.WithTimeoutCause(context.Background(), lastly,
			fmt.Errorf("it took more than %v", lastly))
		w.read(ctx)
		cancel()
		if isLast && !w.hasPages() {
			close(w.closed)
			return
		}
		pause = max(interval, maxShare*time.Since(began))
	}
}

func (w *Watcher) hasPages() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pages) > 0
}

// read reads the state.
func (w *Watcher) read(ctx context.Context) {
	var state *logins.State
	var lost []string
	var err error
	select {
	case w.reading <- struct{}{}:
		state, lost, err = w.readAll(ctx)
		<-w.reading
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed = err; err != nil {
		return
	}
	w.latest, w.lost, w.readAt, w.origins = state, lost, time.Now(), map[string]logins.Origin{}
	for _, o := range state.Origins {
		w.origins[o.Origin] = o
	}
}

// readAll reads the cookies and the storage. The storage of an origin that
// cannot be read is that of before.
func (w *Watcher) readAll(ctx context.Context) (state *logins.State, lost []string, err error) {
	state = &logins.State{Origins: []logins.Origin{}}
	origins := w.originsToRead(ctx)
	if state.Cookies, err = webstorage.Cookies(ctx, w.pipe, ""); err != nil {
		return nil, nil, fmt.Errorf("cannot read the cookies: %w", err)
	}
	if len(origins) > 0 {
		state.Origins, lost, err = w.readStorage(ctx, origins)
	}
	return state, lost, err
}

// readStorage returns the storage of those of the origins that have any.
func (w *Watcher) readStorage(ctx context.Context, origins []string) (found []logins.Origin, lost []string, err error) {
	w.mu.Lock()
	before := w.origins
	w.mu.Unlock()
	for _, origin := range slices.Sorted(slices.Values(origins)) {
		o, gaps, err := w.readOrigin(ctx, origin)
		switch {
		case errors.Is(err, wire.ErrDisconnected):
			return nil, nil, err
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil:
			lost = append(lost, fmt.Sprintf("the storage of %s: %v", origin, err))
			if old, ok := before[origin]; ok {
				found = append(found, old)
			}
		case o != nil:
			found = append(found, *o)
		}
		for _, gap := range gaps {
			lost = append(lost, origin+": "+gap)
		}
	}
	return found, lost, nil
}

// readOrigin reads the storage of an origin in the hidden page, or in another one
// if that has failed.
func (w *Watcher) readOrigin(ctx context.Context, origin string) (o *logins.Origin, gaps []string, err error) {
	if w.hidden == nil {
		if w.hidden, err = webstorage.OpenPage(ctx, w.pipe, ""); err != nil {
			return nil, nil, err
		}
	}
	o, gaps, err = w.hidden.Read(ctx, origin)
	if err != nil {
		w.hidden.Close()
		w.hidden = nil
	}
	return o, gaps, err
}

// originsToRead returns the origins that pages have shown, and those of their
// frames.
func (w *Watcher) originsToRead(ctx context.Context) []string {
	var pages []string
	w.mu.Lock()
	for target, p := range w.pages {
		if p.isDefault {
			pages = append(pages, target)
		}
	}
	w.mu.Unlock()
	frames := map[string]bool{}
	var work sync.WaitGroup
	var mu sync.Mutex
	for _, target := range pages {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pageBound) // a page may be hung
			defer cancel()
			tree := w.frameTree(ctx, target)
			mu.Lock()
			defer mu.Unlock()
			webstorage.AddOrigins(frames, tree)
		})
	}
	work.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for origin := range frames {
		w.visits.Add(origin)
	}
	return w.visits.Latest()
}

// frameTree returns the FrameTree of a page, nil if it does not tell it.
func (w *Watcher) frameTree(ctx context.Context, target string) json.RawMessage {
	got, err := w.pipe.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true})
	if err != nil {
		return nil
	}
	session := jsonrpc.GetString(got, "sessionId")
	defer w.pipe.Send("", "Target.detachFromTarget", map[string]string{"sessionId": session})
	got, _ = w.pipe.Call(ctx, session, "Page.getFrameTree", nil)
	return jsonrpc.Get(got, "frameTree")
}
