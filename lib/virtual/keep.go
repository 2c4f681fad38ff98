package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/webstorage"
)

// A session can be kept: it is read again and again while it runs, so that it goes
// on as it was a moment before if its Chrome ends without warning. Chrome tells what
// pages store, and no more than that is read. Nothing of it can be seen by a client
// or a page.

// runningSave is what has been read of a session. It belongs to Look, and the members below
// mu to the browser's lock.
type runningSave struct {
	last []byte // the cookies and tabs, as JSON

	// mu:
	gaps    map[string][]string       // what of each origin is not kept, and why
	origins map[string]*logins.Origin // as they were read last; nil: empty
	changed map[string]bool           // the origins whose storage pages have changed since
}

// here is the sessionStorage of a page.
type here struct {
	origin string
	items  json.RawMessage // an array of arrays with a name and a value; nil: it has changed
}

// keepLocked makes Chrome tell what a page stores.
func (s *Session) keepLocked(t *target) {
	own := s.ownSessions[t.id]
	if !s.options.Keep || own == "" || t.context != s.base {
		return
	}
	s.link.Send(own, "DOMStorage.enable", nil)
	s.trackLocked(t)
}

// trackLocked makes Chrome tell what the origin of a page stores in databases.
func (s *Session) trackLocked(t *target) {
	origin := webstorage.OriginOf(jsonrpc.GetString(t.info, "url"))
	if own := s.ownSessions[t.id]; s.options.Keep && own != "" && origin != "" && origin != t.tracked {
		t.tracked = origin
		s.running.changed[origin] = true // it may have stored something already
		s.link.Send(own, "Storage.trackIndexedDBForOrigin", map[string]string{"origin": origin})
	}
}

// stored notes that a page, given by the session's own CDP session, has stored
// something.
func (s *Session) stored(session string, params json.RawMessage) {
	id := jsonrpc.Get(params, "storageId")
	isLocal := string(jsonrpc.Get(id, "isLocalStorage")) != "false"
	if id == nil {
		id = params // of a database
	}
	origin, _ := strings.CutSuffix(jsonrpc.GetString(id, "storageKey"), "/")
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	if isLocal {
		if webstorage.OriginOf(origin) == origin { // Chrome keeps that of other sites' frames apart
			s.running.changed[origin] = true
		}
		return
	}
	for page, own := range s.ownSessions {
		if t := s.browser.targets[page]; own == session && t != nil {
			t.here.items = nil
		}
	}
}

// Look returns what the session needs to go on, as Snapshot does but for the scroll
// positions, also while it is used; nil: nothing has changed since it was called
// last. The session must be one that is kept. Calls must not overlap.
func (s *Session) Look(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout, fmt.Errorf("it took more than %v", saveTimeout))
	defer s.bind(ctx, cancel)()
	cookies, err := webstorage.Cookies(ctx, s.link, s.base)
	if err != nil {
		return nil, s.because(err)
	}
	found := &Snapshot{State: &logins.State{Cookies: cookies, Origins: []logins.Origin{}}, Tabs: s.keptTabs(ctx),
		Emulated: s.emulation()}
	read, err := s.readChanged(ctx)
	if err != nil {
		return nil, s.because(err)
	}
	now, err := json.Marshal(found)
	if err != nil || !read && bytes.Equal(now, s.running.last) {
		return nil, err
	}
	s.running.last = now
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	found.Lost = s.gapsLocked()
	for _, o := range s.unfilled {
		found.State.Origins = append(found.State.Origins, o.origin)
	}
	for origin, o := range s.running.origins {
		if o != nil && s.unfilled[origin] == nil {
			found.State.Origins = append(found.State.Origins, *o)
		}
	}
	return found, nil
}

// readChanged reads the storage of the origins that have changed it, and reports
// whether there were any.
func (s *Session) readChanged(ctx context.Context) (read bool, err error) {
	b := s.browser
	var origins []string
	b.mu.Lock()
	for origin := range s.running.changed {
		if s.unfilled[origin] == nil {
			origins = append(origins, origin)
			delete(s.running.changed, origin)
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
				s.running.changed[origin] = true
			}
		}
	}()
	h, err := s.openHidden(ctx)
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
		isNew := !slices.Equal(s.running.gaps[origin], lost)
		if err == nil {
			s.running.origins[origin] = o
		}
		if s.running.gaps[origin] = lost; len(lost) == 0 {
			delete(s.running.gaps, origin)
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
func (s *Session) gapsLocked() (all []string) {
	for _, origin := range slices.Sorted(maps.Keys(s.running.gaps)) {
		all = append(all, origin+": "+strings.Join(s.running.gaps[origin], "; "))
	}
	return all
}

// keptTabs returns the pages of the session's base context, the oldest first.
func (s *Session) keptTabs(ctx context.Context) []Tab {
	b := s.browser
	tabs := []Tab{}
	b.mu.Lock()
	var pages []*target
	for _, t := range s.targetsLocked() {
		if t.typ == "page" && t.context == s.base && !t.closing {
			pages = append(pages, t)
		}
	}
	b.mu.Unlock()
	for _, t := range pages {
		b.mu.Lock()
		own, url, restoring, h := s.ownSessions[t.id], jsonrpc.GetString(t.info, "url"), t.restoring, t.here
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
				h.items = s.itemsHere(ctx, t, own, origin)
			}
			tab.Page, _ = json.Marshal(map[string]any{"origin": origin, "scrolled": []any{}, "items": h.items})
		}
		tabs = append(tabs, tab)
	}
	return tabs
}

// itemsHere reads the sessionStorage of a page.
func (s *Session) itemsHere(ctx context.Context, t *target, own, origin string) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, tabTimeout)
	defer cancel()
	got, err := s.link.Call(ctx, own, "DOMStorage.getDOMStorageItems",
		map[string]any{"storageId": map[string]any{"storageKey": origin + "/", "isLocalStorage": false}})
	items := jsonrpc.Get(got, "entries")
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	switch {
	case err != nil || items == nil: // it is asked again
		t.here.items = nil
		return json.RawMessage("[]")
	case t.here.items != nil && t.here.origin == origin:
		t.here.items = items
	}
	return items
}
