package firefox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/bidi"
	"btools/lib/browse"
)

// ownSchemes are those of addresses that show files, or what is Firefox's own.
var ownSchemes = []string{"file", "view-source", "resource", "chrome", "jar"}

// Place is a tab in which another page can be opened: this one, or, if its page does not answer, one in its place.
func (t *Tab) Place(ctx context.Context) (browse.Page, error) {
	if t.answers(2 * browse.AnswerPatience) {
		return t, nil
	}
	return t.Replace(ctx) // it would keep the next page waiting
}

// Navigate loads an address and waits until the document is parsed, and for a while
// until it is loaded.
func (t *Tab) Navigate(ctx context.Context, typed string) (address string, err error) {
	scheme, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(typed)), ":")
	if t.b.refuses && slices.Contains(ownSchemes, scheme) {
		return "", fmt.Errorf("%s: addresses are not opened in Firefox", scheme)
	}
	if address, err = browse.Address(typed); err != nil {
		return "", err
	}
	before := t.Before()
	err = t.b.callFor(ctx, t.b.of(browse.NavigateTimeout), t.id, "browsingContext.navigate",
		map[string]string{"context": t.id, "url": address, "wait": "interactive"}, nil)
	switch e := (*bidi.Error)(nil); {
	case errors.Is(err, errLate):
		return "", t.unloaded(ctx, address)
	case errors.As(err, &e):
		t.b.mu.Lock()
		status := t.empty
		t.b.mu.Unlock()
		if status != 0 {
			return "", browse.NoPage(address, status)
		}
		said := strings.ReplaceAll(e.Message, address, browse.Redacted(address))
		return "", fmt.Errorf("cannot load %s: %s", browse.Redacted(address), said)
	}
	switch {
	case errors.Is(err, errDialog): // who answers it goes on
		return address, nil
	case err == nil && len(before.Since().Files) > 0:
		return address, browse.ErrDownload
	case err == nil:
		t.b.script(ctx, t.id, loaded)
	}
	return address, err
}

// unloaded is why a page was not loaded in time. It is not waited for any more.
func (t *Tab) unloaded(ctx context.Context, address string) error {
	t.b.mu.Lock()
	leaves := t.leaving != nil
	t.b.mu.Unlock()
	if !t.answers(browse.AnswerPatience) {
		return t.late(browse.NavigateTimeout)
	}
	short, cancel := context.WithTimeout(ctx, t.b.of(browse.AnswerPatience))
	defer cancel()
	t.b.script(short, t.id, "window.stop()")
	if leaves {
		return fmt.Errorf("%s was not loaded within %v: its server has not answered, and the page that was open "+
			"still is", browse.Redacted(address), t.b.of(browse.NavigateTimeout))
	}
	return fmt.Errorf("%s was not loaded within %v: it is not complete", browse.Redacted(address),
		t.b.of(browse.NavigateTimeout))
}

// Go goes back in the history of the tab, or forward.
func (t *Tab) Go(ctx context.Context, forward bool) error {
	delta, where := -1, "before"
	if forward {
		delta, where = 1, "after"
	}
	err := t.leave(ctx, "browsingContext.traverseHistory", map[string]any{"delta": delta})
	if e := (*bidi.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("there is no page %s this one in the history", where)
	}
	return err
}

// Reload loads the page again.
func (t *Tab) Reload(ctx context.Context) error {
	return t.leave(ctx, "browsingContext.reload", map[string]any{"wait": "interactive"})
}

// leave has the tab show another document.
func (t *Tab) leave(ctx context.Context, method string, params map[string]any) error {
	if !t.answers(2 * browse.AnswerPatience) {
		return t.late(browse.AnswerPatience)
	}
	since := t.mark()
	params["context"] = t.id
	if err := t.b.call(ctx, t.id, method, params, nil); err != nil && !errors.Is(err, errDialog) {
		return err
	}
	return t.settle(ctx, since)
}

func (t *Tab) mark() int {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.begun
}

// settle waits for what an action causes: a navigation that begins soon, until its
// document is there and parsed, or a dialog.
func (t *Tab) settle(ctx context.Context, since int) error {
	soon, cancel := context.WithTimeout(ctx, startsWithin)
	begun := t.b.wait(soon, func() bool { return t.begun > since || t.dialog != nil }) == nil
	cancel()
	if begun {
		long, cancel := context.WithTimeout(ctx, t.b.of(browse.SettleTimeout))
		defer cancel()
		t.arrive(long)
		t.b.script(long, t.id, loaded)
	}
	return context.Cause(ctx)
}

// arrive waits until a navigation is over. A page that comes out of Firefox's
// memory of earlier pages is not told of: then the tab is where the navigation leads.
func (t *Tab) arrive(ctx context.Context) {
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, arrivalPause)
		over := t.b.wait(short, func() bool { return t.leaving == nil || t.dialog != nil || t.closed }) == nil
		cancel()
		t.b.mu.Lock()
		to := t.leaving
		t.b.mu.Unlock()
		if over || to == nil || t.address(ctx) == *to {
			return
		}
	}
}

// arrivalPause is how often it is asked where a tab is.
const arrivalPause = 200 * time.Millisecond

// loaded waits until a document is parsed, and for a while until all that it needs is
// there.
const loaded = `(async () => {
	const happens = (name) => new Promise((done) => addEventListener(name, () => done(), { once: true }))
	if (document.readyState === 'loading') await happens('DOMContentLoaded')
	if (document.readyState !== 'complete') {
		await Promise.race([happens('load'), new Promise((done) => setTimeout(done, 3000))])
	}
	return 0
})()`
