package virtual

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// pages are the pages of a session, and what all of them are to have. The browser's lock guards it.
type pages struct {
	s                *Session
	open             int
	opening          int            // pages that clients have requested
	windows          map[int64]bool // that clients know
	ignoreCertErrors bool
}

// addLocked adds a new target.
func (p *pages) addLocked(t *target) {
	t.used.Store(time.Now().UnixNano())
	p.s.login.visitedLocked(t)
	if t.typ == "page" {
		p.open++
		if !p.s.life.isOver() {
			p.enforceLimitLocked(t)
			p.prepareLocked(t)
		}
	}
	if p.s.emulates.isWorkerLocked(t) && !p.s.life.isOver() {
		p.s.emulates.prepareWorkerLocked(t)
	}
	t.lastShown = string(t.visibleInfo())
	p.s.clients.notifyLocked(t, "Target.targetCreated",
		map[string]json.RawMessage{"targetInfo": json.RawMessage(t.lastShown)})
	if t.typ == "tab" {
		p.s.clients.autoAttachLocked(t)
	}
}

// removeLocked removes a target that is gone.
func (p *pages) removeLocked(t *target) {
	if t.typ == "page" {
		p.open--
		p.s.emulates.claimAllLocked(t)
	}
	t.own = ""
	if t.context != p.s.base && !p.s.contexts[t.context] {
		p.s.browser.forgetContextLocked(t.context)
	}
	for k := range p.s.clients.all {
		k.sessions.targetGoneLocked(t)
	}
	p.s.clients.notifyLocked(t, "Target.targetDestroyed", map[string]string{"targetId": t.id})
	p.s.finishLocked()
}

// attachedLocked returns the pages with which the session itself has a CDP session, the oldest first.
func (p *pages) attachedLocked() []*target {
	return slices.DeleteFunc(p.s.targetsLocked(), func(t *target) bool { return t.own == "" })
}

// inBaseLocked returns the pages of the session's base context that stay, the oldest first.
func (p *pages) inBaseLocked() []*target {
	return slices.DeleteFunc(p.s.targetsLocked(), func(t *target) bool {
		return t.typ != "page" || t.context != p.s.base || t.closing
	})
}

// byOwnLocked returns the page with which the session itself has this CDP session; nil if there is none.
func (p *pages) byOwnLocked(session string) *target {
	for _, t := range p.attachedLocked() {
		if t.own == session {
			return t
		}
	}
	return nil
}

// blank returns the blank pages.
func (p *pages) blank() (all []*target) {
	p.s.browser.mu.Lock()
	defer p.s.browser.mu.Unlock()
	for _, t := range p.s.targetsLocked() {
		if t.typ == "page" && isBlank(jsonrpc.GetString(t.info, "url")) {
			all = append(all, t)
		}
	}
	return all
}

// openReady opens a blank page and waits until it has been set up.
func (p *pages) openReady(ctx context.Context) (page string, err error) {
	if page, err = p.s.NewPage(ctx, "about:blank"); err == nil {
		err = p.awaitReady(ctx, page)
	}
	return page, err
}

// enforceLimitLocked closes a page if the new one is one too many.
func (p *pages) enforceLimitLocked(new *target) {
	if p.s.options.TabLimit == 0 {
		return
	}
	open := 0
	var oldest *target
	for _, t := range p.s.targetsLocked() {
		if t.typ != "page" || t.closing {
			continue
		}
		if open++; t != new && (oldest == nil || t.used.Load() < oldest.used.Load()) {
			oldest = t
		}
	}
	if open > p.s.options.TabLimit && oldest != nil {
		oldest.closing = true
		p.s.work.Go(func() { p.closeForGood(oldest) })
	}
}

// closeAgain is how long a page may take to close until Chrome is told again.
const closeAgain = 250 * time.Millisecond

// closeForGood closes a page and returns when it is gone. Chrome forgets the command
// if the page is replaced at that moment.
func (p *pages) closeForGood(t *target) {
	again := time.NewTicker(closeAgain)
	defer again.Stop()
	for {
		p.s.link.Send("", "Target.closeTarget", map[string]string{"targetId": t.id})
		select {
		case <-t.gone:
			return
		case <-again.C:
		case <-p.s.life.ctx.Done():
			return
		}
	}
}

// prepareLocked attaches the session itself to a new page, and sets the state that a whole browser would give it: the
// page has the focus, as if it were alone. Until it has answered, the page stays paused and no client navigates it:
// Chromium 156 repeats an unanswered setFocusEmulationEnabled to the next document before that exists, and the
// renderer crashes. A pop-up without an opener answers only after it has resumed, and so does a page of the headless
// shell that is made with an address: they get the focus with their document.
func (p *pages) prepareLocked(t *target) {
	b := p.s.browser
	severed := jsonrpc.Get(t.info, "openerId") != nil && string(jsonrpc.Get(t.info, "canAccessOpener")) != "true"
	t.ready = make(chan struct{})
	ready := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.prepared = true
		close(t.ready)
		t.unblockLocked(blocker{})
	})
	late := time.AfterFunc(readyTimeout, ready)
	done := func(json.RawMessage, error) {
		late.Stop()
		ready()
	}
	attached := func(own string, err error, paused bool) {
		next := func(json.RawMessage, error) {
			p.s.link.Begin(own, "Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true}, done)
		}
		b.mu.Lock()
		known := err == nil && b.targets[t.id] == t
		if !known || paused {
			next = func(json.RawMessage, error) { done(nil, err) }
		}
		gated := known && p.s.login.isGatedLocked(t)
		if known {
			t.own = own
			t.needsFocus = paused
			if severed {
				p.focusLocked(t) // it may have its document
			}
			if !paused {
				p.s.keep.beginLocked(t)
			}
			p.s.emulates.beginLocked(own, t.typ, func() {})
			if p.ignoreCertErrors {
				p.s.link.Send(own, "Security.setIgnoreCertificateErrors", map[string]bool{"ignore": true})
			}
		}
		if gated {
			p.s.link.Begin(own, "Fetch.enable", gate, next)
		}
		b.mu.Unlock()
		if !gated {
			next(nil, nil)
		}
	}
	p.s.link.Begin("", "Target.attachToTarget", map[string]any{"targetId": t.id, "flatten": true},
		func(got json.RawMessage, err error) {
			own := jsonrpc.GetString(got, "sessionId")
			if err != nil || severed || b.tabsAreMarked {
				attached(own, err, severed)
				return
			}
			p.s.link.Begin("", "Target.getTargetInfo", map[string]string{"targetId": t.id},
				func(got json.RawMessage, err error) {
					info := jsonrpc.Get(got, "targetInfo")
					b.mu.Lock()
					if err == nil && b.targets[t.id] == t {
						b.updateTargetLocked(info) // no event has its address before its document
					}
					paused := (t.isPaused() || !t.watched) && !isBlank(jsonrpc.GetString(info, "url"))
					b.mu.Unlock()
					attached(own, err, paused)
				})
		})
}

// readyTimeout bounds how long a new page waits for its preparation.
const readyTimeout = 5 * time.Second

// focusLocked gives the focus to a pop-up without an opener, and has it kept, once it has its first document.
func (p *pages) focusLocked(t *target) {
	if t.needsFocus && jsonrpc.GetString(t.info, "url") != "" {
		t.needsFocus = false
		p.s.link.Send(t.own, "Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true})
		p.s.keep.beginLocked(t)
	}
}

// awaitReady waits until a page has been set up.
func (p *pages) awaitReady(ctx context.Context, page string) error {
	p.s.browser.mu.Lock()
	t := p.s.browser.targets[page]
	p.s.browser.mu.Unlock()
	if t == nil || t.ready == nil {
		return nil
	}
	return wait.For(ctx, t.ready)
}
