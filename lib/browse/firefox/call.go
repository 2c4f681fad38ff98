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
	"btools/lib/browse"
)

// Errors of a page, or of a browser, that does not answer.
var (
	errLate      = errors.New("there was no answer in time")
	errClosed    = errors.New("the tab was closed")
	errDialog    = errors.New("a dialog is open")
	errFrameGone = errors.New("the frame is not in the page any more")
	errOwn       = errors.New("the page has crashed, or is one of Firefox's own, which no script may see: " +
		"browser_navigate opens another one")
	errSilent = errors.New("the browser does not answer")
	errBusy   = errors.New("the page does not answer: a script of it runs without end, or it is too large. Its tab " +
		"was closed, and a blank one is in its place: browser_navigate loads a page")
)

const errFrame = browse.FrameError("a frame does not answer: a script of it runs without end")

// topLocked is the tab of a document, nil if there is none that is open.
func (b *Browser) topLocked(at string) *Tab {
	for b.parents[at] != "" {
		at = b.parents[at]
	}
	return b.tabLocked(at)
}

// call sends a command to a tab, or to a frame in one, and waits for its answer, for as
// long as a page may run a script, a frame for less. A tab that does not answer is
// replaced: nothing else stops its script.
func (b *Browser) call(ctx context.Context, at, method string, params, result any) error {
	b.mu.Lock()
	tab, isMute := b.topLocked(at), b.mute[at]
	b.mu.Unlock()
	most := browse.ScriptTimeout
	switch {
	case tab == nil:
		return errClosed
	case isMute:
		return errFrame
	case at != tab.id:
		most = browse.FrameTimeout
	}
	err := b.callFor(ctx, b.of(most), at, method, params, result)
	if !errors.Is(err, errLate) {
		return err
	}
	if at != tab.id && tab.answers(browse.AnswerPatience) {
		return errFrame
	}
	return tab.late(most)
}

// pastDialogs are commands that a dialog does not hold up.
var pastDialogs = []string{"browsingContext.activate", "browsingContext.close", "browsingContext.handleUserPrompt"}

// callFor is call with another bound, after which it is errLate. It gives up when the tab is closed, or a dialog opens
// that holds the answer back.
func (b *Browser) callFor(ctx context.Context, most time.Duration, at, method string, params, result any) error {
	b.mu.Lock()
	tab := b.topLocked(at)
	b.mu.Unlock()
	if tab == nil {
		return errClosed
	}
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
	err := b.answered(ctx, most, tab, !slices.Contains(pastDialogs, method), answer)
	if errors.Is(err, errLate) && at != tab.id { // it is asked no more until it answers
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mute[at] = len(answer) == 0
		return err
	}
	if err != nil {
		cancel()
	}
	switch e := (*bidi.Error)(nil); {
	case errors.As(err, &e) && e.Code == bidi.NoSuchFrame && at == tab.id:
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

// answered waits for the answer of a tab, which a dialog may hold up.
func (b *Browser) answered(ctx context.Context, most time.Duration, tab *Tab, held bool, answer <-chan error) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		b.mu.Lock()
		open, asks, changed := !tab.closed, tab.dialog != nil, b.changed.Next()
		b.mu.Unlock()
		select {
		case err := <-answer:
			if e := (*bidi.Error)(nil); errors.As(err, &e) && !open {
				return errClosed
			}
			return err
		default:
		}
		switch {
		case !open:
			return errClosed
		case held && asks:
			return errDialog
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

// isCaused reports whether an error only says what an action has caused.
func isCaused(err error) bool {
	return errors.Is(err, errDialog) || errors.Is(err, errClosed) || errors.Is(err, errFrameGone) || isLost(err)
}

// isLost reports whether an error says that a document was replaced before it answered.
func isLost(err error) bool {
	var e *bidi.Error
	return errors.As(err, &e) && strings.Contains(e.Message, "destroyed before query")
}

// answers reports whether a page answers soon: none of its scripts runs without end.
func (t *Tab) answers(within time.Duration) bool {
	return t.b.says(within, "script.evaluate", map[string]any{"expression": "0", "awaitPromise": false,
		"target": map[string]string{"context": t.id, "sandbox": sandbox}})
}

// Answers reports whether the browser itself answers soon.
func (b *Browser) Answers() bool { return b.says(browse.AnswerPatience, "session.status", struct{}{}) }

// says reports whether there is an answer, even an error, to a command.
func (b *Browser) says(within time.Duration, method string, params any) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.of(within), errLate)
	defer cancel()
	return !errors.Is(b.conn.Call(ctx, method, params, nil), errLate)
}

// late is why the tab has not answered in time. If it runs a script, it is replaced.
func (t *Tab) late(most time.Duration) error {
	switch {
	case t.answers(browse.AnswerPatience):
		return fmt.Errorf("the page did not answer within %v", t.b.of(most))
	case !t.b.Answers():
		return errSilent
	}
	if _, err := t.Replace(context.Background()); err != nil {
		return err
	}
	return errBusy
}

// Replace closes the tab, and opens a blank one in its place. That ends the script of the page.
func (t *Tab) Replace(ctx context.Context) (browse.Page, error) {
	b := t.b
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), b.of(5*browse.AnswerPatience), errSilent)
	defer cancel()
	other, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	b.Swap(t, other)
	b.mu.Lock()
	if b.Front == t {
		b.Front = other
	}
	b.mu.Unlock()
	err = b.conn.Call(ctx, "browsingContext.close", map[string]string{"context": t.id}, nil)
	if e := (*bidi.Error)(nil); errors.As(err, &e) && e.Code == bidi.NoSuchFrame {
		err = nil
	}
	return other, err
}
