package firefox

import (
	"context"
	"slices"

	"btools/lib/browse"
)

// moment is a tab at a time.
type moment struct {
	t              *Tab
	documents      int
	url, leaving   string  // leaving is the address for which the tab was leaving; "": it was not
	dialog         *dialog // nil: none was open
	opened, begins int
}

// Before is now.
func (t *Tab) Before() browse.Moment {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.beforeLocked()
}

func (t *Tab) beforeLocked() *moment {
	m := &moment{t: t, documents: t.documents, url: t.url, dialog: t.dialog, opened: t.b.opened, begins: t.b.begins}
	if t.leaving != nil {
		m.leaving = *t.leaving
	}
	return m
}

// Left is the current tab as it is now, nil if there is none.
func (b *Browser) Left() browse.Moment {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Front == nil {
		return nil
	}
	return b.Front.beforeLocked()
}

// Is reports whether the tab is one of this connection.
func (m *moment) Is(of browse.Driver) bool { return m.t.b == of }

// Since returns the tabs and the downloads that pages have begun since. What else has happened is not known.
func (m *moment) Since() browse.Changes {
	b := m.t.b
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(b.begins-m.begins, len(b.files))
	return browse.Changes{Opens: b.opened > m.opened, Tabs: m.opened, Files: slices.Clone(b.files[len(b.files)-n:])}
}

// Sent returns no requests: they are not known.
func (m *moment) Sent() []string { return nil }

// Rest does not wait: each action has waited for what it caused.
func (m *moment) Rest(context.Context) {}

// Strayed returns why what an agent knew of the page does not hold for the tab that is the current one now, nil if it
// does.
func (m *moment) Strayed(now browse.Page) error {
	m.t.b.mu.Lock()
	defer m.t.b.mu.Unlock()
	switch t := m.t; {
	case t != now && t.closed:
		return browse.ErrNextTab
	case t != now:
		return nil
	}
	return browse.WentBy(m.t.documents-m.documents, m.url, m.leaving, m.t.url)
}

// Answers reports whether a dialog that is open is the one that was open then, if there was one.
func (m *moment) Answers(browse.Page) bool {
	m.t.b.mu.Lock()
	defer m.t.b.mu.Unlock()
	return m.dialog == nil || m.t.dialog == nil || m.dialog == m.t.dialog
}
