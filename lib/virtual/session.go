package virtual

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/emulate"
	"btools/lib/forward"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/webstorage"
)

// Options are the properties of a session.
type Options struct {
	// Settings are those of sessions. With DefaultContext all files may be put into
	// forms, and there is no proxy; a client that is a process of this user may name its
	// own directories besides DownloadRoots.
	settings.Settings
	// DefaultContext makes the browser's default context the base context of the
	// session, with its profile, logins and extensions. The context outlives
	// the session. The session is the user's own: it may also open files and
	// trace its pages.
	DefaultContext bool
	// Files, if not nil, keep what the session downloads, wherever a client
	// wants it; whoever made them closes them after the session.
	Files *downloads.Files
	// Login, if not nil, has the cookies and the storage with which the session
	// starts: those of the state that the settings name.
	Login *logins.State
	// Keep has what the session stores reported to Look.
	Keep bool
	// Tabs are the pages that it starts with; none: a blank one. With DefaultContext they
	// are those of the browser.
	Tabs []Tab
	// Emulated, if not nil, is what clients had changed the emulation of the settings to.
	Emulated *emulate.Emulation
}

// Session is one virtual browser.
type Session struct {
	id      string // its ID as a target
	options Options
	browser *Browser
	lock    personLock
	seen    atomic.Int32       // how many persons look at it
	link    *link              // owns the contexts, and Chrome's state per connection
	base    string             // the context that clients see as the default one
	proxy   *forward.Forwarder // to the proxy of the options, and past kept; nil without either
	kept    netip.AddrPort     // the browser's own port, from which its pages are kept; zero: none
	started time.Time
	ended   chan struct{} // closed when it begins to end
	gone    chan struct{} // closed when all of its targets are gone
	why     error         // it ends
	work    sync.WaitGroup

	finished chan struct{} // closed when its clients and goroutines have ended

	used      atomic.Int64 // when it was used last, in Unix nanoseconds; see Used
	recorded  atomic.Int64 // when a client last took a frame of a screencast, in Unix nanoseconds
	throttled atomic.Bool  // some of its pages are; see throttle.go
	waking    sync.Mutex
	isWaking  bool // a command waits until they are visible

	in, out atomic.Int64 // bytes from and to clients that have disconnected

	// Under the browser's lock:
	contexts         map[string]bool // that clients have created
	clients          map[*Client]bool
	pages            int
	opening          int            // pages that clients have requested
	windows          map[int64]bool // that clients know
	ownSessions      map[string]string
	ignoreCertErrors bool // certificate errors
	downloads        map[string]*download
	wishes           map[string]wish    // what clients want done with downloads, by context
	state            *api.StateStatus   // nil: it has started with none
	startedWith      []string           // the origins of its state
	unfilled         map[string]*stored // of the state's origins, until they are needed
	visits           webstorage.Visits
	running          runningSave
	hiding           int           // hidden pages that are being opened
	hidden           chan struct{} // closed when there are none
	begun, over      bool

	emulating sync.Mutex // held while what it emulates changes, before the browser's lock
	emulates  emulated
}

// NewSession creates a session with one blank page.
func (b *Browser) NewSession(ctx context.Context, o Options) (*Session, error) {
	s := &Session{
		id: rand.Text(), options: o, browser: b, started: time.Now(), ended: make(chan struct{}),
		gone:     make(chan struct{}),
		finished: make(chan struct{}),
		contexts: map[string]bool{}, clients: map[*Client]bool{}, windows: map[int64]bool{},
		ownSessions: map[string]string{},
		downloads:   map[string]*download{}, wishes: map[string]wish{},
		unfilled: map[string]*stored{},
		running: runningSave{origins: map[string]*logins.Origin{}, changed: map[string]bool{},
			gaps: map[string][]string{}},
	}
	s.emulates.parts, s.lock.over = map[string]string{}, s.free
	s.used.Store(s.started.UnixNano())
	l, err := b.dial(ctx, s.event)
	if err != nil {
		return nil, err
	}
	s.link = l
	if err := s.openProxy(ctx); err != nil {
		l.close()
		return nil, err
	}
	if err := b.addSession(s); err != nil {
		s.closeProxy()
		l.close()
		return nil, err
	}
	if err = s.inStartSlot(ctx, s.begin); err == nil {
		err = s.checkScripts(ctx)
	}
	b.mu.Lock()
	if err == nil {
		err = s.emulates.fault
	}
	s.begun = err == nil
	b.mu.Unlock()
	if err != nil {
		s.end(err)
		return nil, err
	}
	s.Touch()
	return s, nil
}

// inStartSlot calls f when few enough other sessions are starting.
func (s *Session) inStartSlot(ctx context.Context, f func(context.Context) error) error {
	select {
	case s.browser.startSlots <- struct{}{}:
		defer func() { <-s.browser.startSlots }()
		return f(ctx)
	case <-s.link.done:
		return s.link.why
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addSession adds a session, for which the browser waits at its end.
func (b *Browser) addSession(s *Session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return ErrBrowserEnded
	}
	b.sessions[s] = true
	s.work.Go(s.watchUse)
	b.work.Go(s.run)
	return nil
}

// run disconnects all clients when the session ends.
func (s *Session) run() {
	defer close(s.finished)
	defer s.lock.stop()
	select {
	case <-s.ended:
	case <-s.link.done:
		s.stop(s.link.why)
	}
	var clients sync.WaitGroup
	s.browser.mu.Lock()
	for k := range s.clients {
		clients.Go(func() { k.disconnect(s.why) })
	}
	s.browser.mu.Unlock()
	clients.Wait()
	s.link.close()
	s.work.Wait()
	if s.keepsDownloads() {
		s.options.Files.FailAll(downloads.Canceled)
	}
	s.closeProxy()
}

// begin creates the base context of the session and a page.
func (s *Session) begin(ctx context.Context) error {
	b := s.browser
	base := b.defaultContext
	if !s.options.DefaultContext {
		params, err := s.contextParams(nil)
		if err != nil {
			return err
		}
		got, err := s.link.Call(ctx, "", "Target.createBrowserContext", params)
		if err != nil {
			return fmt.Errorf("cannot create a browser context: %w", err)
		}
		base = jsonrpc.GetString(got, "browserContextId")
	}
	if base == "" {
		return errors.New("the browser did not report its default browser context")
	}
	if err := b.claimContext(s, base); err != nil {
		return err
	}
	if err := s.takeDownloads(ctx, s.base); err != nil {
		return fmt.Errorf("cannot watch downloads: %w", err)
	}
	now := s.options.Emulation
	if s.options.Emulated != nil {
		now = *s.options.Emulated
	}
	if err := s.grant(ctx, now, emulate.Emulation{}); err != nil {
		return err
	}
	if err := s.emulate(ctx, now); err != nil {
		return err
	}
	if s.options.Login != nil {
		if err := s.Restore(ctx, s.options.State, s.options.Login); err != nil {
			return fmt.Errorf("cannot start with the state %q: %w", s.options.State, err)
		}
	}
	var blank []*target // of the browser, which opens one at its start
	if s.options.DefaultContext {
		if err := s.adopt(ctx); err != nil {
			return err
		}
		if len(s.options.Tabs) == 0 && s.Stats().TabCount > 0 {
			return nil
		}
		blank = s.blankPages()
	}
	if len(s.options.Tabs) > 0 {
		if err := s.openTabs(ctx, s.options.Tabs); err != nil {
			return err
		}
		for _, t := range blank {
			s.link.Send("", "Target.closeTarget", map[string]string{"targetId": t.id})
		}
		return nil
	}
	_, err := s.newReadyPage(ctx)
	return err
}

// grant gives the pages of the base context the permissions of an emulation, and takes away
// those of the one before. A default context is its user's, who is asked.
func (s *Session) grant(ctx context.Context, now, was emulate.Emulation) error {
	if s.options.DefaultContext {
		return nil
	}
	for _, c := range now.Grants(was) {
		c.Params["browserContextId"] = s.base
		if _, err := s.link.Call(ctx, "", c.Method, c.Params); err != nil {
			return fmt.Errorf("cannot grant %s: %w", c.Params["permission"].(map[string]string)["name"], err)
		}
	}
	return nil
}

func (s *Session) blankPages() (all []*target) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for _, t := range s.targetsLocked() {
		if t.typ == "page" && (Tab{URL: jsonrpc.GetString(t.info, "url")}).isBlank() {
			all = append(all, t)
		}
	}
	return all
}

// newReadyPage opens a blank page and waits until it has been set up.
func (s *Session) newReadyPage(ctx context.Context) (page string, err error) {
	if page, err = s.NewPage(ctx, "about:blank"); err == nil {
		err = s.awaitReady(ctx, page)
	}
	return page, err
}

// claimContext makes a context the base context of a session, which may have ended.
func (b *Browser) claimContext(s *Session, base string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.over {
		return s.why
	}
	if b.contexts[base] != nil {
		return errors.New("the browser's default context belongs to another session")
	}
	s.base = base
	b.contexts[base] = s
	return nil
}

// adopt takes over the existing targets of the default context.
func (s *Session) adopt(ctx context.Context) error {
	b := s.browser
	got, err := b.watcher.Call(ctx, "", "Target.getTargets", map[string]any{"filter": []map[string]any{{}}})
	if err != nil {
		return fmt.Errorf("cannot list the browser's targets: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for info := range jsonrpc.Elements(jsonrpc.Get(got, "targetInfos")) {
		if jsonrpc.GetString(info, "browserContextId") != s.base {
			continue
		}
		if t := b.updateTargetLocked(info); t != nil {
			t.watched = true // it runs already
		}
	}
	return nil
}

// NewPage opens a page in the base context and returns its target ID, once the
// session knows the target.
func (s *Session) NewPage(ctx context.Context, url string) (string, error) {
	if err := s.lock.refusal(); err != nil {
		return "", err
	}
	s.fillFor(url)
	got, err := s.link.Call(ctx, "", "Target.createTarget", map[string]any{"url": url, "browserContextId": s.base})
	if err != nil {
		return "", fmt.Errorf("cannot open a page: %w", err)
	}
	id := jsonrpc.GetString(got, "targetId")
	if s.Has(ctx, id) {
		s.browser.mu.Lock()
		defer s.browser.mu.Unlock()
		if t := s.browser.targets[id]; t != nil {
			t.opens = url
		}
	}
	return id, nil
}

// OnTarget executes a command whose only parameter is a target, on one of the session.
func (s *Session) OnTarget(ctx context.Context, method, target string) error {
	if !s.Has(ctx, target) {
		return errNoTarget
	}
	if err := s.lock.refusal(); err != nil {
		return err
	}
	_, err := s.link.Call(ctx, "", method, map[string]string{"targetId": target})
	return err
}

// Has reports whether a target belongs to the session.
func (s *Session) Has(ctx context.Context, target string) bool {
	for synced := false; ; synced = true {
		s.browser.mu.Lock()
		t := s.browser.targets[target]
		s.browser.mu.Unlock()
		if t != nil || synced {
			return t != nil && t.session == s
		}
		if s.sync(ctx) != nil { // the event of the watcher may still be on its way
			return false
		}
	}
}

// titlePatience is how long Chrome may take to list its targets.
const titlePatience = time.Second

// ReadTitles reads the titles of the targets: Chrome sends no event when a page changes
// its own. If Chrome does not answer, those that it has told of stay.
func (s *Session) ReadTitles(ctx context.Context) {
	b := s.browser
	ctx, cancel := context.WithTimeout(ctx, titlePatience)
	defer cancel()
	got, err := b.watcher.Call(ctx, "", "Target.getTargets", nil)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for info := range jsonrpc.Elements(jsonrpc.Get(got, "targetInfos")) {
		t := b.targets[jsonrpc.GetString(info, "targetId")]
		if title := jsonrpc.Get(info, "title"); t != nil && t.session == s && title != nil {
			t.info = jsonrpc.Set(t.info, "title", title)
		}
	}
}

// Targets returns Chrome's TargetInfo of each target that /json/list shows:
// pages, frames of other sites, workers.
func (s *Session) Targets() (infos []json.RawMessage) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for _, t := range s.targetsLocked() {
		if t.typ != "tab" {
			info := t.visibleInfo()
			if t.opens != "" && jsonrpc.GetString(info, "url") == "" {
				info = jsonrpc.Set(info, "url", quote(t.opens))
			}
			infos = append(infos, info)
		}
	}
	return infos
}

// Stats returns the session's figures.
func (s *Session) Stats() api.Stats {
	st := api.Stats{
		IdleSeconds: time.Since(s.Used()).Round(time.Millisecond).Seconds(), StartedAt: record.Time{Time: s.started},
		BytesIn: s.in.Load(), BytesOut: s.out.Load(),
	}
	if s.options.Proxy != "" {
		st.Proxy = new(api.UpstreamStatus(s.proxy.Status()))
	}
	if s.isLimited() {
		st.Limits = &api.LimitsStatus{AllowOrigins: s.options.AllowOrigins, BlockOrigins: s.options.BlockOrigins,
			BlockPrivate: s.options.BlockPrivate}
		st.Limits.Refused, st.Limits.LastRefused = s.proxy.Refused()
	}
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	st.TabCount, st.Clients, st.Gaps = s.pages, len(s.clients)-s.personsLocked(), s.gapsLocked()
	if s.state != nil {
		st.State = new(*s.state)
	}
	st.Control = s.lock.status()
	for k := range s.clients {
		in, out := k.bytes()
		st.BytesIn += in
		st.BytesOut += out
	}
	return st
}

// Downloads returns the files that the session has downloaded; nil: they are
// where its browser puts them.
func (s *Session) Downloads() *downloads.Files {
	if !s.keepsDownloads() {
		return nil
	}
	return s.options.Files
}

// Browser returns the Chrome of the session.
func (s *Session) Browser() *Browser { return s.browser }

// Done is closed when the session begins to end; Err says why.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Err returns why the session ended; it is set once Done is closed.
func (s *Session) Err() error { return s.why }

// End disconnects the session's clients and closes its contexts. It returns
// when all of its pages are gone, or with the context's error.
func (s *Session) End(ctx context.Context) error {
	s.end(ErrEnded)
	if s.options.DefaultContext {
		return nil
	}
	select {
	case <-s.gone:
		return nil
	case <-s.browser.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the session once; it returns when its clients and goroutines have
// ended.
func (s *Session) end(why error) {
	s.stop(why)
	<-s.finished
}

// stop starts the end of the session and does not wait.
func (s *Session) stop(why error) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	s.stopLocked(why)
}

func (s *Session) stopLocked(why error) {
	if s.over {
		return
	}
	s.over, s.why = true, why
	if used := time.Unix(0, s.used.Load()); used.After(s.browser.used) {
		s.browser.used = used
	}
	close(s.ended)
	if s.options.DefaultContext && s.browser.contexts[s.base] == s {
		s.abandonTargetsLocked()
	}
	s.finishLocked()
}

// abandonTargetsLocked forgets the targets of the browser's default context,
// which stay open.
func (s *Session) abandonTargetsLocked() {
	b := s.browser
	for id, t := range b.targets {
		if t.session == s && t.context == s.base {
			b.releaseLocked(t)
			delete(b.targets, id)
		}
	}
	delete(b.contexts, s.base)
}

// finishLocked removes a session that is over once its last target is gone.
func (s *Session) finishLocked() {
	b := s.browser
	if !s.over || len(s.targetsLocked()) > 0 {
		return
	}
	select {
	case <-s.gone:
		return
	default:
	}
	close(s.gone)
	if b.contexts[s.base] == s {
		delete(b.contexts, s.base)
	}
	for c := range s.contexts {
		delete(b.contexts, c)
	}
	delete(b.sessions, s)
}

// targetsLocked returns the session's targets, the oldest first.
func (s *Session) targetsLocked() (all []*target) {
	for _, t := range s.browser.targets {
		if t.session == s {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *target) int { return a.seq - b.seq })
	return all
}

// addTargetLocked adds a new target.
func (s *Session) addTargetLocked(t *target) {
	t.used.Store(time.Now().UnixNano())
	s.visitedLocked(t)
	if t.typ == "page" {
		s.pages++
		if !s.over {
			s.enforceTabLimitLocked(t)
			s.prepareLocked(t)
		}
	}
	if s.isWorkerLocked(t) && !s.over {
		s.prepareWorkerLocked(t)
	}
	t.lastShown = string(t.visibleInfo())
	s.notifyLocked(t, "Target.targetCreated", map[string]json.RawMessage{"targetInfo": json.RawMessage(t.lastShown)})
	if t.typ == "tab" {
		s.autoAttachLocked(t)
	}
}

func (s *Session) removeTargetLocked(t *target) {
	if t.typ == "page" {
		s.pages--
		s.claimAllLocked(t)
	}
	delete(s.ownSessions, t.id)
	if t.context != s.base && !s.contexts[t.context] {
		s.browser.forgetContextLocked(t.context)
	}
	for k := range s.clients {
		k.targetGoneLocked(t)
	}
	s.notifyLocked(t, "Target.targetDestroyed", map[string]string{"targetId": t.id})
	s.finishLocked()
}

// notifyChangeLocked notifies clients of a target whose info, as they see it,
// has changed.
func (s *Session) notifyChangeLocked(t *target) {
	info := string(t.visibleInfo())
	if info == t.lastShown {
		return
	}
	t.lastShown = info
	s.notifyLocked(t, "Target.targetInfoChanged", map[string]json.RawMessage{"targetInfo": json.RawMessage(info)})
}

// visibleInfo returns the target's info as clients see it.
func (t *target) visibleInfo() json.RawMessage { return t.shown(t.info) }

// shown returns an info of the target as clients see it: attached if one of them is,
// and with the URL that it is still to show. t may be nil.
func (t *target) shown(info json.RawMessage) json.RawMessage {
	attached := json.RawMessage("false")
	if t != nil && t.attachments > 0 {
		attached = json.RawMessage("true")
	}
	if t != nil && t.restoring != nil && (Tab{URL: jsonrpc.GetString(info, "url")}).isBlank() {
		info = jsonrpc.Set(info, "url", quote(t.restoring.URL))
	}
	return jsonrpc.Set(info, "attached", attached)
}

// notifyLocked sends an event to the clients that discover targets of this
// type.
func (s *Session) notifyLocked(t *target, method string, params any) {
	for k := range s.clients {
		for session, wanted := range k.discover {
			if wanted.matches(t.typ) {
				k.toClient.Put(wire.Event(session, method, params))
			}
		}
	}
}

// blockLocked adds the blockers of a new target: the clients that want to set
// it up, and that will see it directly or through its tab.
func (s *Session) blockLocked(t *target) {
	if (t.typ == "page" || s.isWorkerLocked(t)) && !s.over && !t.prepared {
		t.pause.blockers[blocker{}] = true // see prepareLocked
	}
	for k := range s.clients {
		for _, r := range k.roots {
			if r.wait && r.attaches(t) {
				t.pause.blockers[blocker{k, r}] = true
			} else if r.wait && t.typ == "page" && r.auto.matches("tab") {
				t.pause.blockers[blocker{client: k}] = true
			}
		}
	}
}

// autoAttachLocked attaches the clients with auto-attach to a target.
func (s *Session) autoAttachLocked(t *target) {
	for k := range s.clients {
		for _, r := range k.roots {
			if r.attaches(t) {
				k.autoAttachLocked(r, t, func() {})
			}
		}
	}
}

// enforceTabLimitLocked closes a page if the new one is one too many.
func (s *Session) enforceTabLimitLocked(new *target) {
	if s.options.TabLimit == 0 {
		return
	}
	open := 0
	var oldest *target
	for _, t := range s.targetsLocked() {
		if t.typ != "page" || t.closing {
			continue
		}
		if open++; t != new && (oldest == nil || t.used.Load() < oldest.used.Load()) {
			oldest = t
		}
	}
	if open > s.options.TabLimit && oldest != nil {
		oldest.closing = true
		s.work.Go(func() { s.closeForGood(oldest) })
	}
}

// closeAgain is how long a page may take to close until Chrome is told again.
const closeAgain = 250 * time.Millisecond

// closeForGood closes a page and returns when it is gone. Chrome forgets the command
// if the page is replaced at that moment.
func (s *Session) closeForGood(t *target) {
	again := time.NewTicker(closeAgain)
	defer again.Stop()
	for gone := false; !gone; {
		s.link.Send("", "Target.closeTarget", map[string]string{"targetId": t.id})
		select {
		case <-again.C:
		case <-s.ended:
			return
		}
		s.browser.mu.Lock()
		gone = s.browser.targets[t.id] != t
		s.browser.mu.Unlock()
	}
}

// prepareLocked attaches the session itself to a new page, and sets the state
// that a whole browser would give it: the page has the focus, as if it were
// alone. Until it has answered, the page stays paused and no client navigates
// it: Chromium 156 repeats an unanswered setFocusEmulationEnabled to the next
// document before that exists, and the renderer crashes. A pop-up without an
// opener answers only after it has resumed, and so does a page of the headless
// shell that is made with an address: they get the focus with their document.
func (s *Session) prepareLocked(t *target) {
	b := s.browser
	severed := jsonrpc.Get(t.info, "openerId") != nil && string(jsonrpc.Get(t.info, "canAccessOpener")) != "true"
	t.ready = make(chan struct{})
	ready := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.prepared = true
		close(t.ready)
		b.unblockLocked(t, blocker{})
	})
	late := time.AfterFunc(readyTimeout, ready)
	done := func(json.RawMessage, error) {
		late.Stop()
		ready()
	}
	attached := func(own string, err error, paused bool) {
		next := func(json.RawMessage, error) {
			s.link.Begin(own, "Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true}, done)
		}
		b.mu.Lock()
		known := err == nil && b.targets[t.id] == t
		if !known || paused {
			next = func(json.RawMessage, error) { done(nil, err) }
		}
		gated := known && s.isGatedLocked(t)
		if known {
			s.ownSessions[t.id] = own
			t.needsFocus = paused
			if severed {
				s.focusLocked(t) // it may have its document
			}
			if !paused {
				s.keepLocked(t)
			}
			s.beginEmulatingLocked(own, t.typ, func() {})
			if s.ignoreCertErrors {
				s.link.Send(own, "Security.setIgnoreCertificateErrors", map[string]bool{"ignore": true})
			}
		}
		if gated {
			s.link.Begin(own, "Fetch.enable", gate, next)
		}
		b.mu.Unlock()
		if !gated {
			next(nil, nil)
		}
	}
	s.link.Begin("", "Target.attachToTarget", map[string]any{"targetId": t.id, "flatten": true},
		func(got json.RawMessage, err error) {
			own := jsonrpc.GetString(got, "sessionId")
			if err != nil || severed || b.tabsAreMarked {
				attached(own, err, severed)
				return
			}
			s.link.Begin("", "Target.getTargetInfo", map[string]string{"targetId": t.id},
				func(got json.RawMessage, err error) {
					info := jsonrpc.Get(got, "targetInfo")
					b.mu.Lock()
					if err == nil && b.targets[t.id] == t {
						b.updateTargetLocked(info) // no event has its address before its document
					}
					paused := (t.isPaused() || !t.watched) && !(Tab{URL: jsonrpc.GetString(info, "url")}).isBlank()
					b.mu.Unlock()
					attached(own, err, paused)
				})
		})
}

// readyTimeout bounds how long a new page waits for its preparation.
const readyTimeout = 5 * time.Second

// focusLocked gives the focus to a pop-up without an opener, and has it kept, once it
// has its first document.
func (s *Session) focusLocked(t *target) {
	if t.needsFocus && jsonrpc.GetString(t.info, "url") != "" {
		t.needsFocus = false
		s.link.Send(s.ownSessions[t.id], "Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true})
		s.keepLocked(t)
	}
}

// awaitReady waits until a page has been set up.
func (s *Session) awaitReady(ctx context.Context, page string) error {
	s.browser.mu.Lock()
	t := s.browser.targets[page]
	s.browser.mu.Unlock()
	if t == nil || t.ready == nil {
		return nil
	}
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
