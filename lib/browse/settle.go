package browse

import (
	"context"
	"errors"
	"time"

	"btools/lib/cdp/wire"
)

// mark is a moment before an action: what has begun since is taken as caused by it.
type mark struct {
	navigations, parsings, requests, windows, opened, downloads, vanishings int
	at                                                                      time.Time
}

// effects are what actions on a tab cause, and how long that is waited for.
type effects struct {
	*frames
	records     *records
	downloads   int                  // that have begun, counted
	files       []string             // the names of the latest of them
	downloading map[string]time.Time // when those that run have begun
	windows     int                  // that the page has asked for, which become tabs
	windowAt    time.Time            // when it asked for the latest
}

func (t *effects) mark() mark {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.markLocked()
}

func (t *effects) markLocked() mark {
	return mark{t.navigations, t.parsings, t.records.traffic.serial, t.windows, t.b.opened, t.downloads,
		t.b.vanishings, time.Now()}
}

// Times for which one thing that an action has caused is waited for. A request that
// takes longer is one that waits for news.
const (
	requestPatience = 2 * time.Second
	askedPatience   = 200 * time.Millisecond // until the browser begins a navigation that the page asked for
	tabPatience     = 2 * time.Second
	filePatience    = 2 * time.Second // a longer download goes on
)

// awaited are the types of requests whose answers change what a page shows.
var awaited = map[string]bool{"fetch": true, "xhr": true, "script": true, "stylesheet": true}

// settle waits for the navigation and the requests that an action has caused, and no
// longer. What takes too long is not an error.
func (t *effects) settle(ctx context.Context, since mark) error {
	inner, cancel := context.WithTimeoutCause(ctx, t.b.of(SettleTimeout), errUnsettled)
	defer cancel()
	for {
		short, cancel := context.WithTimeoutCause(inner, t.b.of(AnswerPatience), errUnsettled)
		err := t.run(short, t.mainFrame(), "settle", nil, nil)
		cancel()
		waited, err2 := t.awaitCaused(inner, since)
		if err = errors.Join(err, err2); err != nil || !waited {
			return settled(ctx, err)
		}
	}
}

// Times in which the effect of an action is to show that no request tells of.
const (
	restTime = 150 * time.Millisecond // without a change
	restMost = 500 * time.Millisecond
)

// Rest waits until the document and its address have been at rest for a while. A timer may
// change them after an action, or have the page leave; then it waits for what begins by
// that, too. If the page has closed itself, that which is there now may have been told
// of it: Chrome holds back a message for up to 50 ms after an input.
func (b *Before) Rest(ctx context.Context) {
	t := b.t
	err := t.restAlone(ctx, b.then)
	var next *Tab
	short, cancel := context.WithTimeoutCause(ctx, t.b.of(AnswerPatience), errUnsettled)
	defer cancel()
	isClosed := func() bool {
		next = t.b.Front
		return t.closed || !isClosing(err)
	}
	if t.b.wait(short, isClosed) == nil && t.gone() == errClosed && next != nil {
		next.restAlone(ctx, next.mark())
	}
}

func isClosing(err error) bool { return errors.Is(err, errClosed) || errors.Is(err, wire.ErrDetached) }

func (t *effects) restAlone(ctx context.Context, since mark) error {
	inner, cancel := context.WithTimeoutCause(ctx, t.b.of(SettleTimeout), errUnsettled)
	defer cancel()
	for end := time.Now().Add(restMost); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		short, cancel := context.WithTimeoutCause(inner, left+t.b.of(AnswerPatience), errUnsettled)
		err := t.run(short, t.mainFrame(), "rest",
			map[string]any{"still": restTime.Milliseconds(), "most": left.Milliseconds()}, nil)
		cancel()
		waited, err2 := t.awaitCaused(inner, since)
		if err2 != nil || err != nil && !isPassing(err) || !waited {
			return err
		}
	}
}

// settleDownload waits for the file of a link that is one: nothing tells before that
// it begins.
func (t *effects) settleDownload(ctx context.Context, since mark) error {
	err := t.within(ctx, AnswerPatience, func() bool {
		return t.downloads > since.downloads || t.navigations > since.navigations || t.closed || t.crashed ||
			t.dialog != nil
	})
	if err == nil {
		_, err = t.awaitCaused(ctx, since)
	}
	return settled(ctx, err)
}

var errUnsettled = errors.New("the page is still changing")

// settled is the error of waiting, nil if it is only that the page is not done.
func settled(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errUnsettled), errors.Is(err, errCrashed), isCaused(err):
		return nil
	}
	return err
}

// awaitCaused waits until nothing that has begun since is under way, and reports
// whether it had to wait.
func (t *effects) awaitCaused(ctx context.Context, since mark) (waited bool, err error) {
	for {
		var left time.Duration
		t.b.mu.Lock()
		busy := t.busyLocked(since, time.Now(), &left)
		changed := t.b.changed.Next()
		t.b.mu.Unlock()
		if !busy {
			return waited, nil
		}
		waited = true
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		timer.Stop()
		if err != nil {
			return waited, err
		}
	}
}

// busyLocked reports whether something is under way, and how long at most to wait
// until it is asked again.
func (t *effects) busyLocked(since mark, now time.Time, left *time.Duration) bool {
	if t.closed || t.crashed || t.dialog != nil {
		return false
	}
	*left = SettleTimeout
	if t.isLeaving() || t.navigations > since.navigations && !t.parsed {
		return true
	}
	busy := false
	for frame, n := range t.starting {
		patience := requestPatience
		if !n.started {
			patience = askedPatience
		} else if t.navigations > since.navigations && frame != t.main.id {
			continue // frames of a page that has just come are its own business
		}
		if wait := n.at.Add(patience).Sub(now); n.at.After(since.at) && wait > 0 {
			busy, *left = true, min(*left, wait)
		}
	}
	for _, r := range t.records.traffic.all {
		if r.serial <= since.requests || r.Done || !awaited[r.Type] {
			continue
		}
		if wait := r.at.Add(requestPatience).Sub(now); wait > 0 {
			busy, *left = true, min(*left, wait)
		}
	}
	for _, began := range t.downloading {
		if wait := began.Add(filePatience).Sub(now); began.After(since.at) && wait > 0 {
			busy, *left = true, min(*left, wait)
		}
	}
	if wait := t.windowAt.Add(tabPatience).Sub(now); t.windows-since.windows > t.b.opened-since.opened && wait > 0 {
		busy, *left = true, min(*left, wait)
	}
	for _, other := range t.b.All {
		if other.number <= since.opened || other.parsed && !other.isLeaving() {
			continue
		}
		if wait := other.at.Add(tabPatience).Sub(now); wait > 0 {
			busy, *left = true, min(*left, wait)
		}
	}
	return busy
}
