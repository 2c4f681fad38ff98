package firefox

import (
	"fmt"
	"slices"

	"btools/lib/browse"
)

// shown is how many documents a tab has shown, and the address of the latest one.
type shown struct {
	documents int
	url       string
}

// At is the page of the current tab at a moment. The zero value is no page.
type At struct {
	b       *Browser
	tab     string
	shown   shown
	leaving string // the address for which it was leaving; "": it was not
}

// At returns the page of the current tab now.
func (b *Browser) At() At {
	b.mu.Lock()
	defer b.mu.Unlock()
	return At{b, b.current, b.shown[b.current], b.loading[b.current]}
}

// Document identifies the document that the current tab shows.
func (b *Browser) Document() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.current, " ", b.shown[b.current].documents)
}

// Strayed returns why what an agent knew of a page does not hold for the one that is open, nil if it does.
func (b *Browser) Strayed(was At) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.shown[was.tab]
	switch {
	case was.b != b:
		return nil
	case !slices.Contains(b.tabs, was.tab):
		return browse.ErrNextTab
	case was.tab != b.current:
		return nil
	}
	return browse.WentBy(now.documents-was.shown.documents, was.shown.url, was.leaving, now.url)
}
