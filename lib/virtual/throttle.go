package virtual

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
)

// The pages of a session that nobody has used for a while are hidden: Chrome paints them no more, which is most of
// what an animated page costs (of 20 of them, hidden ones took a hundredth of the CPU). Their scripts, timers and
// connections go on, so that a client may wait for an event. What keeps a page visible is the emulation of focus, of
// the session itself and of clients such as Playwright, so both are switched off; and since no command hides a page,
// it is frozen and thawed at once, which leaves it hidden.

// throttle is whether the pages of a session are hidden. The browser's lock guards isWaking.
type throttle struct {
	s        *Session
	on       atomic.Bool  // some pages are
	recorded atomic.Int64 // time of the last frame of a screencast that a client took, in Unix nanoseconds
	waking   sync.Mutex   // held while pages become visible
	isWaking bool         // a command waits for that
}

// throttleChecks is how often a session is looked at within the time after which it is throttled.
const throttleChecks = 6

// watch throttles the session whenever it has not been used for the time of its options. It does nothing in a browser
// with windows, which somebody may watch.
func (th *throttle) watch() {
	after := th.s.options.Throttle
	if after <= 0 || !strings.Contains(jsonrpc.GetString(th.s.browser.version, "userAgent"), "Headless") {
		return
	}
	tick := time.NewTicker(max(after/throttleChecks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			th.hideUnused(time.Now().Add(-after))
		case <-th.s.life.ctx.Done():
			return
		}
	}
}

// hideUnused throttles the session if it has not been used since then.
func (th *throttle) hideUnused(since time.Time) {
	th.s.browser.mu.Lock()
	unused := !th.s.life.isOver() && th.isUnusedLocked(since)
	th.s.browser.mu.Unlock()
	if unused {
		th.hide(since)
	}
}

// isUnusedLocked reports whether the session has not been used since then, nor
// recorded, and no command waits for its pages.
func (th *throttle) isUnusedLocked(since time.Time) bool {
	last := max(th.s.used.Load(), th.recorded.Load())
	return last < since.UnixNano() && !th.isWaking && !th.s.isBusyLocked()
}

// hide hides the session's pages that do not play anything.
func (th *throttle) hide(since time.Time) {
	b := th.s.browser
	b.mu.Lock()
	pages := map[*target]string{}
	for _, t := range th.s.pages.attachedLocked() {
		if t.canThrottle() {
			pages[t] = t.own
		}
	}
	b.mu.Unlock()
	for t, own := range pages {
		if th.plays(own) {
			delete(pages, t)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	th.on.Store(true) // before the check: a command notes its use before it looks
	if th.s.life.isOver() || !th.isUnusedLocked(since) {
		th.on.Store(th.hasHiddenLocked())
		return
	}
	for t, own := range pages {
		if b.targets[t.id] == t && t.canThrottle() {
			th.hideLocked(t, own)
		}
	}
	th.on.Store(th.hasHiddenLocked())
}

// canThrottle reports whether a page can be throttled: it runs, has something to run, and no client has frozen it.
func (t *target) canThrottle() bool {
	return t.typ == "page" && t.prepared && !t.isPaused() && !t.crashed && !t.closing && !t.throttled && !t.frozen &&
		jsonrpc.GetString(t.info, "url") != "about:blank"
}

// hasHiddenLocked reports whether a page is hidden.
func (th *throttle) hasHiddenLocked() bool {
	return slices.ContainsFunc(th.s.pages.attachedLocked(), func(t *target) bool { return t.throttled })
}

// playing is true in a page that plays audio or video, in itself or in frames of its origin.
const playing = `(function plays(d) {
	for (const m of d.querySelectorAll("audio, video")) if (!m.paused && !m.ended) return true;
	for (const f of d.querySelectorAll("iframe, frame")) if (f.contentDocument && plays(f.contentDocument)) return true;
	return false;
})(document)`

// playsTimeout bounds how long a page may take to say whether it plays. One that is too busy cannot be throttled.
const playsTimeout = time.Second

// plays reports whether a page, given by the session's own CDP session, plays anything, or does not say.
func (th *throttle) plays(own string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), playsTimeout)
	defer cancel()
	got, err := th.s.link.Call(ctx, own, "Runtime.evaluate",
		map[string]any{"expression": playing, "returnByValue": true, "silent": true})
	return err != nil || string(jsonrpc.Get(jsonrpc.Get(got, "result"), "value")) != "false"
}

const focusEmulation = "Emulation.setFocusEmulationEnabled"

// hideLocked hides a page.
func (th *throttle) hideLocked(t *target, own string) {
	t.throttled = true
	for k, session := range th.focusingLocked(t) {
		k.calls.Send(session, focusEmulation, map[string]bool{"enabled": false})
	}
	th.s.link.Send(own, focusEmulation, map[string]bool{"enabled": false})
	for _, state := range []string{"frozen", "active"} {
		th.s.link.Send(own, "Page.setWebLifecycleState", map[string]string{"state": state})
	}
}

// focusingLocked returns the CDP sessions of clients that emulate the focus of a page.
func (th *throttle) focusingLocked(t *target) func(yield func(*Client, string) bool) {
	return func(yield func(*Client, string) bool) {
		for k := range th.s.clients.all {
			for session := range k.overrides.focusing {
				if k.sessions.targetLocked(session) == t && !yield(k, session) {
					return
				}
			}
		}
	}
}

// wakeTimeout bounds how long a command waits until the pages are visible.
const wakeTimeout = 2 * time.Second

// becomesVisible is a promise of a page that is kept when the page is visible: the
// answer to the emulation of focus may come earlier.
const becomesVisible = `new Promise(visible => {
	const look = () => {
		if (document.hidden) return;
		document.removeEventListener("visibilitychange", look);
		visible();
	};
	document.addEventListener("visibilitychange", look);
	look();
})`

// wake shows the pages that are throttled, and returns when they are visible.
func (th *throttle) wake(ctx context.Context) {
	if !th.on.Load() {
		return
	}
	th.waking.Lock() // other clients' commands wait, too
	defer th.waking.Unlock()
	b := th.s.browser
	var answers []chan struct{}
	begin := func(c *calls, session, method string, params any) {
		answered := make(chan struct{})
		answers = append(answers, answered)
		c.Begin(session, method, params, func(json.RawMessage, error) { close(answered) })
	}
	focus := map[string]bool{"enabled": true}
	b.mu.Lock()
	th.isWaking = true
	for _, t := range th.s.pages.attachedLocked() {
		if !t.throttled {
			continue
		}
		t.throttled = false
		begin(th.s.link.calls, t.own, focusEmulation, focus)
		for k, session := range th.focusingLocked(t) {
			begin(k.calls, session, focusEmulation, focus)
		}
		begin(th.s.link.calls, t.own, "Runtime.evaluate",
			map[string]any{"expression": becomesVisible, "awaitPromise": true, "silent": true})
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout) // a page that has crashed does not answer
	defer cancel()
	for _, answered := range answers {
		wait.For(ctx, answered)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	th.s.Touch() // the command is about to be sent
	th.isWaking = false
	th.on.Store(false)
}

// noteVisibility notes what a client's command changes that throttling changes, too.
func (o *overrides) noteVisibility(c policy.Command) {
	b := o.k.session.browser
	switch c.Method {
	case focusEmulation:
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(o.focusing, c.Session)
		if string(jsonrpc.Get(c.Params, "enabled")) == "true" {
			o.focusing[c.Session] = true
		}
	case "Page.setWebLifecycleState":
		b.mu.Lock()
		defer b.mu.Unlock()
		if t := o.k.sessions.targetLocked(c.Session); t != nil {
			t.frozen = jsonrpc.GetString(c.Params, "state") == "frozen"
		}
	}
}
