package browse

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// What an agent names an element by, it has learnt of a page. The refs of a snapshot are those of one document; a
// selector or a text may match something on any page, so it is not used on one to which the page has gone by itself
// until a result has told the agent of that.

type knownKey struct{}

// Knowing returns a context for a call of an agent. Selectors are refused as soon as strayed returns an error.
func Knowing(ctx context.Context, strayed func() error) context.Context {
	return context.WithValue(ctx, knownKey{}, strayed)
}

// Strayed returns why selectors of a call are not used on the page that is open, nil if they are.
func Strayed(ctx context.Context) error {
	if strayed, ok := ctx.Value(knownKey{}).(func() error); ok {
		return strayed()
	}
	return nil
}

// WentBy returns the error of a page that has gone from one address to another by itself, nil if it has not. Documents
// is how many have come since; leaving is the address for which the page was known to leave.
func WentBy(documents int, was, leaving, now string) error {
	plain := func(address string) string {
		address, _, _ = strings.Cut(address, "#")
		return address
	}
	switch {
	case documents == 0, documents == 1 && leaving != "", plain(was) == plain(now), was == "", was == "about:blank":
		return nil
	}
	return &strayedError{fmt.Sprintf("the page went to %s by itself, and this was meant for %s: nothing was done on "+
		"the new page. A ref of a new snapshot, or the same call once more, is for that", Redacted(now), Redacted(was))}
}

// strayedError is that of a page that has gone to another address by itself.
type strayedError struct{ text string }

func (e *strayedError) Error() string { return e.text }

// ErrNextTab is the error of a tab that is the current one because the other was closed.
var ErrNextTab error = &strayedError{"the tab that this was meant for was closed, and another is the current one: " +
	"nothing was done there. The same call once more is for that"}

// Strayed returns why what an agent knew of the page then does not hold for the tab that is the current one now, nil if
// it does.
func (b *Before) Strayed(now Page) error {
	t := b.t
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	switch {
	case t != now && t.closed:
		return ErrNextTab
	case t != now, b.loader == "":
		return nil
	}
	i := slices.IndexFunc(t.documents, func(d document) bool { return d.loader == b.loader })
	since := maxDocuments
	if i >= 0 {
		since = len(t.documents) - 1 - i
	}
	return WentBy(since, b.url, b.leaving, t.url)
}

// CatchUp waits until all is known that the page has told before now, such as that it is another one, if it answers
// soon. Chrome tells that before it answers a question of now.
func (t *link) CatchUp() { t.answers(t.main.session) }

// Answers reports whether a dialog that is open is the one that was open then, if there was one.
func (b *Before) Answers(now Page) bool {
	t := now.(*Tab)
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return b.dialog == nil || t.dialog == nil || b.dialog == t.dialog
}
