package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/webstorage"
)

// A session can be kept: it is read again and again while it runs, so that it goes on as it was a moment before if its
// Chrome ends without warning. Chrome tells what pages store, and no more than that is read. Nothing of it can be seen
// by a client or a page.

// keeper is what has been read of a session that is kept. last belongs to Look, the rest to the browser's lock.
type keeper struct {
	s    *Session
	last []byte // the cookies and tabs, as JSON

	gaps    map[string][]string       // what of each origin is not kept, and why
	origins map[string]*logins.Origin // as they were read last; nil: empty
	changed map[string]bool           // the origins whose storage pages have changed since
}

// here is the sessionStorage of a page.
type here struct {
	origin string
	items  json.RawMessage // an array of arrays with a name and a value; nil: it has changed
}

// scroll is the scroll positions of a page. Reading them makes it paint, so that only a save at rest does; one that is
// made while the page is used goes on with those that it came back with, or had at the last such save.
type scroll struct {
	url       string          // of the page that had them
	positions json.RawMessage // as in Tab.Page
}

// noteScrollLocked notes the scroll positions of a page.
func (t *target) noteScrollLocked(tab Tab) {
	t.scroll = scroll{tab.URL, bytes.Clone(jsonrpc.Get(tab.Page, "scrolled"))}
}

// pageLocked returns what is known of a page without asking it, as in Tab.Page.
func (t *target) pageLocked(url string) json.RawMessage {
	origin := webstorage.OriginOf(url)
	if t.here.origin != origin {
		t.here = here{}
	}
	return t.withLocked(url, origin, t.here.items)
}

// withLocked returns Tab.Page with this sessionStorage.
func (t *target) withLocked(url, origin string, items json.RawMessage) json.RawMessage {
	if t.scroll.url != url {
		t.scroll = scroll{}
	}
	page, _ := json.Marshal(map[string]any{"origin": origin, "items": orNone(items),
		"scrolled": orNone(t.scroll.positions)})
	return page
}

// orNone returns an array of JSON; nil is an empty one.
func orNone(array json.RawMessage) json.RawMessage {
	if array == nil {
		return json.RawMessage("[]")
	}
	return array
}

// beginLocked makes Chrome tell what a page stores.
func (k *keeper) beginLocked(t *target) {
	if k.s.options.Keep && t.own != "" && t.context == k.s.base {
		k.s.link.Send(t.own, "DOMStorage.enable", nil)
		k.trackLocked(t)
	}
}

// trackLocked makes Chrome tell what the origin of a page stores in databases.
func (k *keeper) trackLocked(t *target) {
	origin := webstorage.OriginOf(jsonrpc.GetString(t.info, "url"))
	if k.s.options.Keep && t.own != "" && origin != "" && origin != t.tracked {
		t.tracked = origin
		k.changed[origin] = true // it may have stored something already
		k.s.link.Send(t.own, "Storage.trackIndexedDBForOrigin", map[string]string{"origin": origin})
	}
}

// stored notes that a page, given by the session's own CDP session, has stored something.
func (k *keeper) stored(session string, params json.RawMessage) {
	id := jsonrpc.Get(params, "storageId")
	isLocal := string(jsonrpc.Get(id, "isLocalStorage")) != "false"
	if id == nil {
		id = params // of a database
	}
	origin, _ := strings.CutSuffix(jsonrpc.GetString(id, "storageKey"), "/")
	k.s.browser.mu.Lock()
	defer k.s.browser.mu.Unlock()
	if isLocal {
		if webstorage.OriginOf(origin) == origin { // Chrome keeps that of other sites' frames apart
			k.changed[origin] = true
		}
		return
	}
	if t := k.s.pages.byOwnLocked(session); t != nil {
		t.here.items = nil
	}
}

// Look returns what the session needs to go on, as Snapshot does but for scroll positions that have changed, also while
// it is used; nil: nothing has changed since it was called last. The session must be one that is kept. Calls must not
// overlap.
func (s *Session) Look(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := s.life.within(ctx, saveTimeout)
	defer cancel()
	cookies, err := webstorage.Cookies(ctx, s.link, s.base)
	if err != nil {
		return nil, s.life.because(err)
	}
	found := &Snapshot{State: &logins.State{Cookies: cookies, Origins: []logins.Origin{}}, Tabs: s.keep.tabs(ctx),
		Emulated: s.emulates.now()}
	read, err := s.keep.readChanged(ctx)
	if err != nil {
		return nil, s.life.because(err)
	}
	now, err := json.Marshal(found)
	if err != nil || !read && bytes.Equal(now, s.keep.last) {
		return nil, err
	}
	s.keep.last = now
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	found.Lost = s.keep.gapsLocked()
	for _, o := range s.login.unfilled {
		found.State.Origins = append(found.State.Origins, o.origin)
	}
	for origin, o := range s.keep.origins {
		if o != nil && s.login.unfilled[origin] == nil {
			found.State.Origins = append(found.State.Origins, *o)
		}
	}
	return found, nil
}

// readChanged reads the storage of the origins that have changed it, and reports whether there were any.
func (k *keeper) readChanged(ctx context.Context) (read bool, err error) {
	b := k.s.browser
	var origins []string
	b.mu.Lock()
	for origin := range k.changed {
		if k.s.login.unfilled[origin] == nil {
			origins = append(origins, origin)
			delete(k.changed, origin)
		}
	}
	b.mu.Unlock()
	if len(origins) == 0 {
		return false, nil
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, origin := range origins {
			if err != nil {
				k.changed[origin] = true
			}
		}
	}()
	h, err := k.s.hiding.open(ctx)
	if err != nil {
		return false, err
	}
	defer h.close()
	for _, origin := range origins {
		o, lost, err := h.ReadQuietly(ctx, origin)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil { // it is read again when it changes
			lost = []string{err.Error()}
		}
		b.mu.Lock()
		isNew := !slices.Equal(k.gaps[origin], lost)
		if err == nil {
			k.origins[origin] = o
		}
		if k.gaps[origin] = lost; len(lost) == 0 {
			delete(k.gaps, origin)
		}
		b.mu.Unlock()
		for _, gap := range lost {
			if isNew {
				b.log.Warn("a session is kept without some of its storage", "lost", origin+": "+gap)
			}
		}
	}
	return true, nil
}

// gapsLocked returns what of the session's storage is not kept, and why.
func (k *keeper) gapsLocked() (all []string) {
	for _, origin := range slices.Sorted(maps.Keys(k.gaps)) {
		all = append(all, origin+": "+strings.Join(k.gaps[origin], "; "))
	}
	return all
}

// tabs returns the pages of the session's base context, the oldest first.
func (k *keeper) tabs(ctx context.Context) []Tab {
	b := k.s.browser
	tabs := []Tab{}
	b.mu.Lock()
	pages := k.s.pages.inBaseLocked()
	b.mu.Unlock()
	for _, t := range pages {
		b.mu.Lock()
		own, url, restoring, h := t.own, jsonrpc.GetString(t.info, "url"), t.restoring, t.here
		origin := webstorage.OriginOf(url)
		t.here.origin = origin
		if h.origin != origin || h.items == nil {
			h.items = nil
			t.here.items = json.RawMessage("[]") // unless it changes meanwhile
		}
		b.mu.Unlock()
		if restoring != nil {
			tabs = append(tabs, *restoring)
			continue
		}
		tab := Tab{URL: url}
		if origin != "" && own != "" {
			if h.items == nil {
				h.items = k.itemsHere(ctx, t, own, origin)
			}
			b.mu.Lock()
			tab.Page = t.withLocked(url, origin, h.items)
			b.mu.Unlock()
		}
		tabs = append(tabs, tab)
	}
	return tabs
}

// itemsHere reads the sessionStorage of a page.
func (k *keeper) itemsHere(ctx context.Context, t *target, own, origin string) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, tabTimeout)
	defer cancel()
	got, err := k.s.link.Call(ctx, own, "DOMStorage.getDOMStorageItems",
		map[string]any{"storageId": map[string]any{"storageKey": origin + "/", "isLocalStorage": false}})
	items := jsonrpc.Get(got, "entries")
	k.s.browser.mu.Lock()
	defer k.s.browser.mu.Unlock()
	switch {
	case err != nil || items == nil: // it is asked again
		t.here.items = nil
		return json.RawMessage("[]")
	case t.here.items != nil && t.here.origin == origin:
		t.here.items = items
	}
	return items
}
