package virtual

import (
	"context"
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
	"btools/lib/webstorage"
)

// hidden is a page of the session's context that no client sees, on a connection with which it ends.
type hidden struct {
	*webstorage.Page
	session *Session
	link    *link
}

func (hs *hiding) open(ctx context.Context) (*hidden, error) {
	h := &hidden{}
	opened := make(chan struct{})
	l, err := hs.s.browser.dial(ctx, func(method, session string, params json.RawMessage) {
		<-opened // at once: l is only about to be stored
		webstorage.Answer(h.link, method, session, params)
	})
	h.link = l
	close(opened)
	if err != nil {
		return nil, err
	}
	h.session = hs.s
	hs.begin()
	h.Page, err = webstorage.OpenPage(ctx, l, hs.s.base)
	hs.s.browser.sync(ctx) // so that its events have come
	own := hs.end(h.Page)
	if err != nil {
		l.close()
		return nil, err
	}
	if own != "" {
		hs.s.link.Call(ctx, "", "Target.detachFromTarget", map[string]string{"sessionId": own})
	}
	return h, nil
}

// close closes the page. In Chromium it ends with its connection; a chrome-headless-shell leaves it open.
func (h *hidden) close() {
	if h != nil {
		h.session.link.Send("", "Target.closeTarget", map[string]string{"targetId": h.Target()})
		h.link.close()
	}
}

// hiding is whether hidden pages of a session are being opened. The browser's lock guards it.
type hiding struct {
	s       *Session
	opening int           // number of them
	over    chan struct{} // closed when there are none
}

// postponed is an event of the watcher about a new target.
type postponed struct {
	from       *link
	method, id string
	params     json.RawMessage
}

// begin begins the opening of a hidden page, which disown ends. In a chrome-headless-shell it is a page as any other
// (seen in 156), with a tab. Nobody knows its ID before its events come: until then, those of the session's new pages
// are postponed.
func (hs *hiding) begin() {
	hs.s.browser.mu.Lock()
	defer hs.s.browser.mu.Unlock()
	if hs.opening++; hs.opening == 1 {
		hs.over = make(chan struct{})
	}
}

// postponeLocked reports whether an event of the watcher is handled later.
func (b *Browser) postponeLocked(from *link, method string, params json.RawMessage) bool {
	info := jsonrpc.Get(params, "targetInfo")
	id := jsonrpc.GetString(info, "targetId")
	if info == nil {
		id = jsonrpc.GetString(params, "targetId")
	}
	if !slices.ContainsFunc(b.later, func(e postponed) bool { return e.id == id }) {
		s := b.contexts[jsonrpc.GetString(info, "browserContextId")]
		typ := jsonrpc.GetString(info, "type")
		if b.tabsAreMarked || s == nil || s.hiding.opening == 0 || b.targets[id] != nil ||
			typ != "page" && typ != "tab" {
			return false
		}
	}
	b.later = append(b.later, postponed{from, method, id, params})
	return true
}

// end ends the opening of a hidden page, nil if it has failed. The page and its tab are not the clients'. It returns
// the session's own CDP session with it, if any.
func (hs *hiding) end(page *webstorage.Page) (own string) {
	b := hs.s.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if page != nil {
		id := page.Target()
		b.disowned[id] = true
		tab := ""
		for _, e := range b.later {
			if e.id == id {
				if tab != "" { // which is created just before
					b.disowned[tab] = true
				}
				break
			}
			if e.method == "Target.targetCreated" && jsonrpc.GetString(e.params, "targetInfo", "type") == "tab" {
				tab = e.id
			}
		}
		if t := b.targets[id]; t != nil { // its events have come before
			own = t.own
			t.releaseLocked()
			b.removeLocked(t)
		}
	}
	if hs.opening--; hs.opening > 0 {
		return own
	}
	close(hs.over)
	later := b.later
	b.later = nil
	for _, e := range later {
		if !b.postponeLocked(e.from, e.method, e.params) { // it may be of another session
			b.eventLocked(e.from, e.method, e.params)
		}
	}
	return own
}

// sync returns when all events that Chrome has sent so far have been handled.
func (hs *hiding) sync(ctx context.Context) error {
	if err := hs.s.browser.sync(ctx); err != nil {
		return err
	}
	hs.s.browser.mu.Lock()
	hidden, hiding := hs.over, hs.opening > 0
	hs.s.browser.mu.Unlock()
	if !hiding {
		return nil
	}
	return wait.For(ctx, hidden)
}
