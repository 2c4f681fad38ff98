package firefox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/bidi"
)

// Errors of a page, or of a browser, that does not answer.
var (
	errLate      = errors.New("there was no answer in time")
	errClosed    = errors.New("the tab was closed")
	errFrame     = errors.New("a frame does not answer: a script of it runs without end")
	errFrameGone = errors.New("the frame is not in the page any more")
	errOwn       = errors.New("the page has crashed, or is one of Firefox's own, which no script may see: " +
		"browser_navigate opens another one")
	errSilent = errors.New("the browser does not answer")
	errBusy   = errors.New("the page does not answer: a script of it runs without end, or it is too large. Its tab " +
		"was closed, and a blank one is in its place: browser_navigate loads a page")
)

// topLocked is the tab of a document; that itself: it is a tab, or none that is known.
func (b *Browser) topLocked(at string) string {
	for b.parents[at] != "" {
		at = b.parents[at]
	}
	return at
}

// call sends a command to a tab, or to a frame in one, and waits for its answer, for as
// long as a page may run a script, a frame for less. A tab that does not answer is
// replaced: nothing else stops its script.
func (b *Browser) call(ctx context.Context, at, method string, params, result any) error {
	b.mu.Lock()
	tab, isMute := b.topLocked(at), b.mute[at]
	b.mu.Unlock()
	most := scriptTimeout
	switch {
	case isMute:
		return errFrame
	case at != tab:
		most = frameTimeout
	}
	err := b.callFor(ctx, b.of(most), at, method, params, result)
	if !errors.Is(err, errLate) {
		return err
	}
	if at != tab && b.answers(tab, answerPatience) {
		return errFrame
	}
	return b.late(tab, most)
}

// callFor is call with another bound, after which it is errLate. It gives up when the tab
// is closed.
func (b *Browser) callFor(ctx context.Context, most time.Duration, at, method string, params, result any) error {
	b.mu.Lock()
	tab := b.topLocked(at)
	b.mu.Unlock()
	var raw json.RawMessage
	answer := make(chan error, 1)
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer cancel()
		answer <- b.conn.Call(long, method, params, &raw)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.mute, at)
	}()
	err := b.answered(ctx, most, tab, answer)
	if errors.Is(err, errLate) && at != tab { // it is asked no more until it answers
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mute[at] = len(answer) == 0
		return err
	}
	if err != nil {
		cancel()
	}
	switch e := (*bidi.Error)(nil); {
	case errors.As(err, &e) && e.Code == bidi.NoSuchFrame && at == tab:
		return errClosed
	case errors.As(err, &e) && e.Code == bidi.NoSuchFrame:
		return errFrameGone
	case errors.As(err, &e) && strings.Contains(e.Message, "parent process browsing contexts"):
		return errOwn
	case err != nil || result == nil:
		return err
	}
	return json.Unmarshal(raw, result)
}

// answered waits for the answer of a tab.
func (b *Browser) answered(ctx context.Context, most time.Duration, tab string, answer <-chan error) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		b.mu.Lock()
		open, changed := slices.Contains(b.tabs, tab), b.changed.Next()
		b.mu.Unlock()
		select {
		case err := <-answer:
			if e := (*bidi.Error)(nil); errors.As(err, &e) && !open {
				return errClosed
			}
			return err
		default:
		}
		if !open {
			return errClosed
		}
		select {
		case err := <-answer:
			return err
		case <-changed:
		case <-timer.C:
			return errLate
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isLost reports whether an error says that a document was replaced before it answered.
func isLost(err error) bool {
	var e *bidi.Error
	return errors.As(err, &e) && strings.Contains(e.Message, "destroyed before query")
}

// answers reports whether a page answers soon: none of its scripts runs without end.
func (b *Browser) answers(tab string, within time.Duration) bool {
	return b.says(within, "script.evaluate", map[string]any{"expression": "0", "awaitPromise": false,
		"target": map[string]string{"context": tab, "sandbox": sandbox}})
}

// Answers reports whether the browser itself answers soon.
func (b *Browser) Answers() bool { return b.says(answerPatience, "session.status", struct{}{}) }

// says reports whether there is an answer, even an error, to a command.
func (b *Browser) says(within time.Duration, method string, params any) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.of(within), errLate)
	defer cancel()
	return !errors.Is(b.conn.Call(ctx, method, params, nil), errLate)
}

// late is why a tab has not answered in time. If it runs a script, it is replaced.
func (b *Browser) late(tab string, most time.Duration) error {
	switch {
	case b.answers(tab, answerPatience):
		return fmt.Errorf("the page did not answer within %v", b.of(most))
	case !b.Answers():
		return errSilent
	}
	if _, err := b.replace(tab); err != nil {
		return err
	}
	return errBusy
}

// replace closes a tab whose page does not answer, and opens a blank one in its place.
// That ends the script of the page.
func (b *Browser) replace(tab string) (other string, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.of(5*answerPatience), errSilent)
	defer cancel()
	if other, err = b.open(ctx); err != nil {
		return "", err
	}
	b.mu.Lock()
	if i, j := slices.Index(b.tabs, tab), slices.Index(b.tabs, other); i >= 0 && j >= 0 {
		b.tabs[i], b.tabs[j] = other, tab
	}
	if b.current == tab {
		b.current = other
	}
	b.mu.Unlock()
	err = b.conn.Call(ctx, "browsingContext.close", map[string]string{"context": tab}, nil)
	if e := (*bidi.Error)(nil); errors.As(err, &e) && e.Code == bidi.NoSuchFrame {
		err = nil
	}
	return other, err
}
