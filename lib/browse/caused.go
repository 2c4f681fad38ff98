package browse

import (
	"fmt"
	"slices"
	"strconv"
)

// Before is the moment before a call: what comes after it is taken as caused by the
// call.
type Before struct {
	t       *Tab
	then    mark
	dialog  *Dialog
	crashed bool

	loader, url string // of its document
	leaving     string // the address for which it was leaving; "": it was not
}

// Before is now.
func (t *Tab) Before() *Before {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.beforeLocked()
}

func (t *Tab) beforeLocked() *Before {
	b := &Before{t: t, then: t.markLocked(), dialog: t.dialog, crashed: t.crashed, loader: t.loader, url: t.url}
	if t.isLeaving() {
		b.leaving = t.starting[t.main.id].url
	}
	return b
}

// Left is the current tab as it is now, nil if there is none.
func (b *Browser) Left() *Before {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil
	}
	return b.current.beforeLocked()
}

// Is reports whether the tab is one of this connection.
func (b *Before) Is(of *Browser) bool { return b.t.b == of }

// Events are what has happened since to the tab, and what it has opened.
func (b *Before) Events() (all []string) {
	t := b.t
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	switch {
	case t.closed:
		all = append(all, "The tab was closed")
	case t.crashed && !b.crashed:
		all = append(all, "The page has crashed")
	case t.navigations > b.then.navigations && (b.then.navigations > 0 || t.url != "about:blank"): // else it is new
		all = append(all, "The page went to "+Redacted(t.addressLocked()))
	}
	if t.dialog != nil && t.dialog != b.dialog {
		all = append(all, fmt.Sprintf("A dialog has opened: %q", t.dialog.Message))
	}
	for _, url := range b.vanishedLocked() {
		if !t.closed || url != Redacted(t.url) {
			all = append(all, "The tab of "+url+" was closed: by its page, or as one of more than --tab-limit of bmcp "+
				"allows")
		}
	}
	if n := t.b.opened - b.then.opened; n > 0 {
		all = append(all, fmt.Sprintf("Tabs have opened: %d", n))
	}
	return all
}

// Vanished are the addresses of the tabs that have closed since, and not by a tool.
func (b *Before) Vanished() (urls []string) {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	return b.vanishedLocked()
}

func (b *Before) vanishedLocked() (urls []string) {
	n := min(b.t.b.vanishings-b.then.vanishings, len(b.t.b.vanished))
	for _, url := range b.t.b.vanished[len(b.t.b.vanished)-n:] {
		urls = append(urls, Redacted(url))
	}
	return urls
}

// Opens reports whether tabs have been opened since.
func (b *Before) Opens() bool {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	return b.t.b.opened > b.then.opened
}

// IsNew reports whether a tab was not open then.
func (b *Before) IsNew(s TabState) bool { return s.Number > b.then.opened }

// Sent are the requests that scripts of the page have sent since, the latest last: method, address and what came of it.
func (b *Before) Sent() (all []string) {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	for _, r := range b.t.traffic.all {
		if r.serial <= b.then.requests || r.Type != "fetch" && r.Type != "xhr" && r.Type != "ping" {
			continue
		}
		answer := "no answer yet"
		switch {
		case r.Status != 0: // of an answer whose body nobody reads, Chrome says in the end that it has failed
			answer = strconv.Itoa(r.Status)
		case r.Failure != "":
			answer = r.Failure
		}
		all = append(all, fmt.Sprintf("%s %s (%s)", r.Method, Redacted(r.URL), answer))
	}
	return all
}

// Files are the names of the downloads that the page has begun since.
func (b *Before) Files() []string {
	b.t.b.mu.Lock()
	defer b.t.b.mu.Unlock()
	n := min(b.t.downloads-b.then.downloads, len(b.t.files))
	return slices.Clone(b.t.files[len(b.t.files)-n:])
}
