package browse

import "slices"

// Before is the moment before a call: what comes after it is taken as caused by the
// call.
type Before struct {
	t    *Tab
	then mark
}

// Before is now.
func (t *Tab) Before() *Before { return &Before{t, t.mark()} }

// Opens reports whether tabs have been opened since.
func (b *Before) Opens() bool {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	return b.t.b.opened > b.then.opened
}

// IsNew reports whether a tab was not open then.
func (b *Before) IsNew(s TabState) bool { return s.Number > b.then.opened }

// Files are the names of the downloads that the page has begun since.
func (b *Before) Files() []string {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	n := min(b.t.downloads-b.then.downloads, len(b.t.files))
	return slices.Clone(b.t.files[len(b.t.files)-n:])
}
