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

var _ Moment = (*Before)(nil)

// Before is now.
func (t *Tab) Before() Moment {
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
func (b *Browser) Left() Moment {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Front == nil {
		return nil
	}
	return b.Front.beforeLocked()
}

// Is reports whether the tab is one of this connection.
func (b *Before) Is(of Driver) bool { return b.t.b == of }

// Since returns what has happened since.
func (b *Before) Since() Changes {
	t := b.t
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	c := Changes{Known: true, Opens: t.b.opened > b.then.opened, Tabs: b.then.opened}
	n := min(t.downloads-b.then.downloads, len(t.files))
	c.Files = slices.Clone(t.files[len(t.files)-n:])
	tell := func(format string, args ...any) { c.Events = append(c.Events, fmt.Sprintf(format, args...)) }
	switch {
	case t.closed:
		tell("The tab was closed")
	case t.crashed && !b.crashed:
		tell("The page has crashed")
	case t.navigations > b.then.navigations && (b.then.navigations > 0 || t.url != "about:blank"): // else it is new
		tell("The page went to %s", Redacted(t.addressLocked()))
	}
	if t.dialog != nil && t.dialog != b.dialog {
		tell("A dialog has opened: %q", t.dialog.Message)
	}
	n = min(t.b.vanishings-b.then.vanishings, len(t.b.vanished))
	for _, url := range t.b.vanished[len(t.b.vanished)-n:] {
		url = Redacted(url)
		if c.Vanished = append(c.Vanished, url); !t.closed || url != Redacted(t.url) {
			tell("The tab of %s was closed: by its page, or as one of more than --tab-limit of bmcp allows", url)
		}
	}
	if c.Opens {
		tell("Tabs have opened: %d", t.b.opened-b.then.opened)
	}
	return c
}

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
