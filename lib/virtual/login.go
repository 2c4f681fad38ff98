package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/wait"
	"btools/lib/webstorage"
)

// A session that starts with a state has its cookies at once. The storage of an origin is filled just before the
// session's first document of that origin: the request for the document is held up meanwhile, and a page that no
// client sees shows a blank document of the origin, whose storage a script fills. So a session pays for the origins
// that it visits, and no page sees a storage that is not complete.
//
// Two kinds of documents are requested where nothing can hold them up. Chromium requests the one of a page that is
// opened with its URL before anybody can attach to the page: all origins are filled before. And a page can have others
// prefetched or prerendered: see isDue.

const (
	restoreTimeout = 5 * time.Minute // to fill the storage of the origins that are needed
	saveTimeout    = 5 * time.Minute // to read the storage of all origins
)

// login is the state that a session starts with. The browser's lock guards it.
type login struct {
	s           *Session
	status      *api.StateStatus   // nil: it has started with none
	startedWith []string           // the origins of the state
	unfilled    map[string]*stored // the origins of the state until they are needed
	visits      webstorage.Visits
}

// stored is the storage of an origin of the session's state.
type stored struct {
	origin logins.Origin
	bare   bool // the state has no cookie for it
	begun  bool
	done   chan struct{} // closed when it has been filled
}

// isDue reports whether the storage has to be filled before a document of another origin is shown, because that may
// have a document of this one prefetched, and show it without another request. Chrome prefetches from the same site,
// and from others if there is no cookie for the document's host (seen in Chromium 156).
func (o *stored) isDue(origin string) bool {
	return o.bare || webstorage.SiteOf(o.origin.Origin) == webstorage.SiteOf(origin)
}

// Restore gives a new session, which no client has used, the cookies of a state, and arranges for the storage of its
// origins. The session does not change the state, and nor may the caller. The name is for Stats, "" if it has none.
func (s *Session) Restore(ctx context.Context, name string, state *logins.State) error {
	if s.options.DefaultContext && name != "" {
		return errors.New("the session with the browser's own profile has its logins: it cannot start with a state")
	}
	if err := webstorage.SetCookies(ctx, s.link, s.base, state.Cookies); err != nil {
		return err
	}
	b := s.browser
	var gated sync.WaitGroup
	b.mu.Lock()
	if name != "" {
		s.login.status = &api.StateStatus{Name: name}
	}
	for _, o := range state.Origins {
		s.login.startedWith = append(s.login.startedWith, o.Origin)
		s.login.unfilled[o.Origin] = &stored{origin: o, bare: !state.HasCookieFor(o.Origin), done: make(chan struct{})}
	}
	for _, t := range s.pages.attachedLocked() {
		if s.login.isGatedLocked(t) {
			gated.Add(1)
			s.link.Begin(t.own, "Fetch.enable", gate, func(json.RawMessage, error) { gated.Done() })
		}
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		gated.Wait() // each command is answered, at the latest when the link ends
		close(done)
	}()
	return wait.For(ctx, done)
}

// isGatedLocked reports whether a target is a page with the session's state.
func (l *login) isGatedLocked(t *target) bool {
	return len(l.unfilled) > 0 && t.typ == "page" && t.context == l.s.base
}

// gate are the parameters of Fetch.enable that hold up documents.
var gate = map[string]any{"patterns": []map[string]string{{"urlPattern": "http*", "resourceType": "Document"}}}

// documentRequested fills the storage of the origins that a document which is held up may show, and lets it go on.
func (l *login) documentRequested(session string, params json.RawMessage) {
	proceed := func() {
		l.s.link.Send(session, "Fetch.continueRequest",
			map[string]string{"requestId": jsonrpc.GetString(params, "requestId")})
	}
	due := l.dueFor(jsonrpc.GetString(params, "request", "url"))
	if len(due) == 0 {
		proceed()
		return
	}
	l.s.work.Go(func() {
		l.fill(due)
		proceed()
	})
}

// dueFor returns the storage that has to be filled before a document is shown.
func (l *login) dueFor(url string) (due []*stored) {
	origin := webstorage.OriginOf(url)
	l.s.browser.mu.Lock()
	defer l.s.browser.mu.Unlock()
	for _, o := range l.unfilled {
		if o.isDue(origin) {
			due = append(due, o)
		}
	}
	return due
}

// fillAll fills all origins before a client can load pages that Fetch does not pause.
func (l *login) fillAll() {
	l.s.browser.mu.Lock()
	all := slices.Collect(maps.Values(l.unfilled))
	l.s.browser.mu.Unlock()
	l.fill(all)
}

// fillFor fills the storage of all origins before a page is opened with a URL.
func (l *login) fillFor(url string) {
	if !isBlank(url) {
		l.fillAll()
	}
}

// fill fills the storage of origins, each once.
func (l *login) fill(all []*stored) {
	if len(all) == 0 {
		return
	}
	var own []*stored
	l.s.browser.mu.Lock()
	for _, o := range all {
		if !o.begun {
			o.begun = true
			own = append(own, o)
		}
	}
	l.s.browser.mu.Unlock()
	ctx, cancel := l.s.life.within(l.s.life.ctx, restoreTimeout)
	defer cancel()
	if len(own) > 0 {
		h, fault := l.s.hiding.open(ctx)
		for _, o := range own {
			why, err := "", fault
			if err == nil {
				why, err = h.Fill(ctx, o.origin)
			}
			if l.s.options.DefaultContext {
				why = "" // its profile may have had it already
			}
			l.filled(o, why, err)
		}
		h.close()
	}
	for _, o := range all {
		<-o.done // whoever fills it bounds itself
	}
}

// filled notes that the storage of an origin has been filled, or could not be.
func (l *login) filled(o *stored, why string, err error) {
	if err != nil {
		why = err.Error()
	}
	b := l.s.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if why != "" && !l.s.life.isOver() {
		why = "cannot restore the storage of " + o.origin.Origin + ": " + why
		b.log.Warn(why)
		if l.status != nil {
			l.status.Error = why
		}
	}
	delete(l.unfilled, o.origin.Origin)
	l.s.keep.origins[o.origin.Origin] = &o.origin
	close(o.done)
	if len(l.unfilled) > 0 {
		return
	}
	for _, t := range l.s.pages.attachedLocked() {
		if t.context == l.s.base {
			l.s.link.Send(t.own, "Fetch.disable", nil)
		}
	}
}

// State returns the cookies and the storage of the session's base context, and what could not be read. The storage is
// that of the origins that the session has visited or started with.
func (s *Session) State(ctx context.Context) (state *logins.State, lost []string, err error) {
	ctx, cancel := s.life.within(ctx, saveTimeout)
	defer cancel()
	state = &logins.State{Origins: []logins.Origin{}}
	if state.Cookies, err = webstorage.Cookies(ctx, s.link, s.base); err != nil {
		return nil, nil, s.life.because(fmt.Errorf("cannot read the cookies: %w", err))
	}
	untouched, origins := s.login.originsToSave(ctx)
	state.Origins = append(state.Origins, untouched...)
	if len(origins) == 0 {
		return state, nil, nil
	}
	h, err := s.hiding.open(ctx)
	if err != nil {
		return nil, nil, s.life.because(err)
	}
	defer h.close()
	for _, origin := range origins {
		o, gaps, err := h.Read(ctx, origin)
		if err != nil {
			return nil, nil, s.life.because(fmt.Errorf("cannot read the storage of %s: %w", origin, err))
		}
		for _, gap := range gaps {
			lost = append(lost, origin+": "+gap)
		}
		if o != nil {
			state.Origins = append(state.Origins, *o)
		}
	}
	slices.SortFunc(state.Origins, func(a, b logins.Origin) int { return strings.Compare(a.Origin, b.Origin) })
	return state, lost, nil
}

// visitedLocked notes the origin of a document of the base context.
func (l *login) visitedLocked(t *target) {
	if t.context == l.s.base && t.typ == "page" {
		l.visits.Add(jsonrpc.GetString(t.info, "url"))
		l.s.keep.trackLocked(t)
	}
}

// originsToSave returns the storage of origins as the session started with it,
// which no page has seen, and the origins whose storage has to be read.
func (l *login) originsToSave(ctx context.Context) (untouched []logins.Origin, origins []string) {
	b := l.s.browser
	b.mu.Lock()
	var pages []string
	for _, t := range l.s.pages.attachedLocked() {
		pages = append(pages, t.own)
	}
	b.mu.Unlock()
	shown := map[string]bool{}
	for _, page := range pages {
		bounded, cancel := context.WithTimeout(ctx, findFrameTimeout) // a page may be hung
		tree, err := l.s.link.Call(bounded, page, "Page.getFrameTree", nil)
		cancel()
		if err == nil {
			webstorage.AddOrigins(shown, jsonrpc.Get(tree, "frameTree"))
		}
	}
	b.mu.Lock()
	for _, origin := range l.visits.Latest() {
		shown[origin] = true
	}
	var filling []*stored
	for origin, o := range l.unfilled {
		if o.begun || shown[origin] { // a page may have been shown that was not held up
			filling = append(filling, o)
			shown[origin] = true
		} else {
			untouched = append(untouched, o.origin)
		}
	}
	for _, o := range l.startedWith {
		if l.unfilled[o] == nil {
			shown[o] = true
		}
	}
	b.mu.Unlock()
	l.fill(filling)
	return untouched, slices.Collect(maps.Keys(shown))
}
