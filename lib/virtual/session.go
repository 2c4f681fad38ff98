package virtual

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/record"
	"btools/lib/virtual/policy"
)

// Session is one virtual browser. Its parts are types of their own, which know it as s. The browser's lock guards what
// they have, unless they say otherwise.
type Session struct {
	id      string // its ID as a target
	options Options
	browser *Browser
	link    *link        // owns the contexts, and Chrome's state per connection
	base    string       // the context that clients see as the default one
	used    atomic.Int64 // time of the last use, in Unix nanoseconds; see Used
	life    life
	work    sync.WaitGroup
	lock    personLock

	contexts  map[string]bool // that clients have created
	clients   clientSet
	pages     pages
	hiding    hiding
	downloads downloadTable
	login     login
	keep      keeper
	throttle  throttle
	emulates  emulated
	proxy     sessionProxy
}

// life is how far a session is.
type life struct {
	started  time.Time
	begun    bool
	ctx      context.Context // ends when the session begins to end, with the reason
	end      context.CancelCauseFunc
	gone     chan struct{} // closed when all of its targets are gone
	finished chan struct{} // closed when its clients and goroutines have ended
}

// NewSession creates a session with one blank page.
func (b *Browser) NewSession(ctx context.Context, o Options) (*Session, error) {
	s := &Session{
		id: rand.Text(), options: o, browser: b, contexts: map[string]bool{},
		life: life{started: time.Now(), gone: make(chan struct{}), finished: make(chan struct{})},
	}
	s.life.ctx, s.life.end = context.WithCancelCause(context.Background())
	s.lock.s, s.throttle.s, s.hiding.s, s.proxy.s = s, s, s, s
	s.clients = clientSet{s: s, all: map[*Client]bool{}}
	s.pages = pages{s: s, windows: map[int64]bool{}}
	s.downloads = downloadTable{s: s, all: map[string]*download{}, wishes: map[string]wish{}}
	s.login = login{s: s, unfilled: map[string]*stored{}}
	s.keep = keeper{s: s, origins: map[string]*logins.Origin{}, changed: map[string]bool{}, gaps: map[string][]string{}}
	s.emulates = emulated{s: s, parts: map[string]string{}}
	s.used.Store(s.life.started.UnixNano())
	l, err := b.dial(ctx, s.event)
	if err != nil {
		return nil, err
	}
	s.link = l
	if err := s.proxy.open(ctx); err != nil {
		l.close()
		return nil, err
	}
	if err := b.addSession(s); err != nil {
		s.proxy.close()
		l.close()
		return nil, err
	}
	select {
	case b.startSlots <- struct{}{}:
		err = s.begin(ctx)
		<-b.startSlots
	case <-l.done:
		err = l.why
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = s.emulates.checkScripts(ctx)
	}
	b.mu.Lock()
	if err == nil {
		err = s.emulates.fault
	}
	s.life.begun = err == nil
	b.mu.Unlock()
	if err != nil {
		s.stop(err)
		<-s.life.finished
		return nil, err
	}
	s.Touch()
	return s, nil
}

// addSession adds a session, for which the browser waits at its end.
func (b *Browser) addSession(s *Session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return ErrBrowserEnded
	}
	b.sessions[s] = true
	s.work.Go(s.throttle.watch)
	b.work.Go(s.run)
	return nil
}

// run disconnects all clients when the session ends.
func (s *Session) run() {
	defer close(s.life.finished)
	defer s.lock.stop()
	select {
	case <-s.life.ctx.Done():
	case <-s.link.done:
		s.stop(s.link.why)
	}
	var clients sync.WaitGroup
	s.browser.mu.Lock()
	for k := range s.clients.all {
		clients.Go(func() { k.disconnect(s.Err()) })
	}
	s.browser.mu.Unlock()
	clients.Wait()
	s.link.close()
	s.work.Wait()
	if s.options.keepsDownloads() {
		s.options.Files.FailAll(downloads.Canceled)
	}
	s.proxy.close()
}

// begin creates the base context of the session and a page.
func (s *Session) begin(ctx context.Context) error {
	b := s.browser
	base := b.defaultContext
	if !s.options.DefaultContext {
		params, err := s.proxy.contextParams(nil)
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
	if err := s.downloads.take(ctx, s.base); err != nil {
		return fmt.Errorf("cannot watch downloads: %w", err)
	}
	now := s.options.Emulation
	if s.options.Emulated != nil {
		now = *s.options.Emulated
	}
	if err := s.emulates.grant(ctx, now, emulate.Emulation{}); err != nil {
		return err
	}
	if err := s.emulates.set(ctx, now); err != nil {
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
		blank = s.pages.blank()
	}
	if len(s.options.Tabs) > 0 {
		if err := s.pages.openTabs(ctx, s.options.Tabs); err != nil {
			return err
		}
		for _, t := range blank { // before a client sees one
			s.pages.closeForGood(t)
		}
		return nil
	}
	_, err := s.pages.openReady(ctx)
	return err
}

// claimContext makes a context the base context of a session, which may have ended.
func (b *Browser) claimContext(s *Session, base string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.life.isOver() {
		return s.Err()
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

// NewPage opens a page in the base context and returns its target ID, once the session knows the target.
func (s *Session) NewPage(ctx context.Context, url string) (string, error) {
	if err := s.lock.refusal(); err != nil {
		return "", err
	}
	s.login.fillFor(url)
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
		if s.hiding.sync(ctx) != nil { // the event of the watcher may still be on its way
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

// Targets returns Chrome's TargetInfo of each target that /json/list shows: pages, frames of other sites, workers.
func (s *Session) Targets() (infos []json.RawMessage) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for _, t := range s.targetsLocked() {
		if t.typ != "tab" {
			info := t.visibleInfo()
			if t.opens != "" && jsonrpc.GetString(info, "url") == "" {
				info = jsonrpc.Set(info, "url", quote(t.opens))
			}
			if s.lock.hides.Load() {
				info = policy.StructureOf(info)
			}
			infos = append(infos, info)
		}
	}
	return infos
}

// Stats returns the session's figures.
func (s *Session) Stats() api.Stats {
	st := api.Stats{
		IdleSeconds: time.Since(s.Used()).Round(time.Millisecond).Seconds(),
		StartedAt:   record.Time{Time: s.life.started},
		BytesIn:     s.clients.in.Load(), BytesOut: s.clients.out.Load(),
	}
	if s.options.Proxy != "" {
		st.Proxy = new(api.UpstreamStatus(s.proxy.to.Status()))
	}
	if s.options.isLimited() {
		st.Limits = &api.LimitsStatus{AllowOrigins: s.options.AllowOrigins, BlockOrigins: s.options.BlockOrigins,
			BlockPrivate: s.options.BlockPrivate}
		st.Limits.Refused, st.Limits.LastRefused = s.proxy.to.Refused()
	}
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	st.TabCount, st.Clients, st.Gaps = s.pages.open, len(s.clients.all)-s.clients.personsLocked(), s.keep.gapsLocked()
	if s.login.status != nil {
		st.State = new(*s.login.status)
	}
	st.Control, st.Ask = s.lock.status(), s.lock.askStatus()
	for k := range s.clients.all {
		in, out := k.bytes()
		st.BytesIn += in
		st.BytesOut += out
	}
	return st
}

// Downloads returns the files that the session has downloaded; nil if they are where its browser puts them.
func (s *Session) Downloads() *downloads.Files { return s.options.Files }

// Browser returns the Chrome of the session.
func (s *Session) Browser() *Browser { return s.browser }

// Done returns a channel that is closed when the session begins to end; Err says why.
func (s *Session) Done() <-chan struct{} { return s.life.ctx.Done() }

// Err returns why the session ended; it is set once Done is closed.
func (s *Session) Err() error { return context.Cause(s.life.ctx) }

// End disconnects the session's clients and closes its contexts. It returns
// when all of its pages are gone, or with the context's error.
func (s *Session) End(ctx context.Context) error {
	s.stop(ErrEnded)
	<-s.life.finished
	if s.options.DefaultContext {
		return nil
	}
	select {
	case <-s.life.gone:
		return nil
	case <-s.browser.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop starts the end of the session and does not wait.
func (s *Session) stop(why error) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	s.stopLocked(why)
}

func (s *Session) stopLocked(why error) {
	if s.life.isOver() {
		return
	}
	if used := time.Unix(0, s.used.Load()); used.After(s.browser.used) {
		s.browser.used = used
	}
	s.life.end(why)
	if b := s.browser; s.options.DefaultContext && b.contexts[s.base] == s { // its targets stay open
		for id, t := range b.targets {
			if t.session == s && t.context == s.base {
				t.releaseLocked()
				delete(b.targets, id)
			}
		}
		delete(b.contexts, s.base)
	}
	s.finishLocked()
}

// finishLocked removes a session that is over once its last target is gone.
func (s *Session) finishLocked() {
	b := s.browser
	if !s.life.isOver() || len(s.targetsLocked()) > 0 {
		return
	}
	select {
	case <-s.life.gone:
		return
	default:
	}
	close(s.life.gone)
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

// visibleInfo returns the target's info as clients see it.
func (t *target) visibleInfo() json.RawMessage { return t.shown(t.info) }

// shown returns an info of the target as clients see it: attached if one of them is,
// and with the URL that it is still to show. t may be nil.
func (t *target) shown(info json.RawMessage) json.RawMessage {
	attached := json.RawMessage("false")
	if t != nil && t.attachments > 0 {
		attached = json.RawMessage("true")
	}
	if t != nil && t.restoring != nil && isBlank(jsonrpc.GetString(info, "url")) {
		info = jsonrpc.Set(info, "url", quote(t.restoring.URL))
	}
	return jsonrpc.Set(info, "attached", attached)
}

// isOver reports whether the session has begun to end.
func (l *life) isOver() bool { return l.ctx.Err() != nil }

// within returns a context that ends with the session, too, and after a time.
func (l *life) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("it took more than %v", d))
	stop := context.AfterFunc(l.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// because returns why the session has ended if that explains an error.
func (l *life) because(err error) error { return cmp.Or(context.Cause(l.ctx), err) }
