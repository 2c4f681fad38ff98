package source

import (
	"fmt"
	"strings"
	"sync"

	"btools/lib/wait"
)

// Note is what the reader of a result has to know of its browser.
type Note struct {
	Replaced string // it is not the same as before; told once
	Restored string // it was hibernated, or came back after a crash; told once
	Where    string // which one it is, if the next result may come from another one
}

// noteOn is the Note on the browser of a lease. Lost says, once, what has become of one that
// was kept; cameBack, whether the session of one that was launched anew is as it was kept.
func (b *seen) noteOn(p *Lease, lost func() loss, cameBack func() bool) (r Note) {
	key := SeenKey(&p.Browser)
	if p.Died != nil && wait.Closed(p.Died) {
		return r // the next result is the one that is from another browser
	}
	news, gone := p.notices.read(), lost()
	was, used, several := b.see(key, p.ID)
	several = several || p.several
	if v := p.virtual; v != nil {
		if lost := v.of.lostOf(v); lost != "" {
			r.Replaced = lost
			return r
		}
	}
	if p.Pool != "" && several {
		r.Where = fmt.Sprintf("This result is from instance %s of pool %s.", p.Instance, p.Pool)
	}
	other := was != "" && p.ID != "" && was != p.ID
	switch {
	case gone.back:
		r.Restored = fmt.Sprintf("%s; its pages were reloaded, in instance %s", gone.what, p.Instance)
	case gone.what != "":
		r.Replaced = fmt.Sprintf("%s; this is instance %s", gone.what, p.Instance)
	case news != "" && used && !p.fresh:
		r.Replaced = news
	case p.restored != "": // in whichever process it is now
		r.Restored = p.restored
	case !used || p.fresh || !other:
	case p.Pool != "":
		r.Replaced = fmt.Sprintf("the browser of instance %s of pool %s was replaced", p.Instance, p.Pool)
	case p.joined && p.ended == "": // the call has named it
		r.Replaced = "the browser had left, and has joined again"
	case p.joined:
		r.Replaced = fmt.Sprintf("the browser had left (%s), and one has joined since", p.ended)
	case p.ended != "":
		r.Replaced = fmt.Sprintf("the browser had ended (%s) and was launched anew", p.ended)
		if cameBack() {
			r.Replaced, r.Restored = "", r.Replaced+"; its pages were reloaded"
		}
	default:
		r.Replaced = "the browser was launched anew"
	}
	return r
}

// SeenKey is the key of a browser, whichever process it is now.
func SeenKey(b *Browser) string { return b.Pool + "/" + b.Instance + "/" + b.Session }

// lostOf returns, once, what has become of the virtual browser before this one.
func (b *parts) lostOf(v *virtual) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := v.lost
	v.lost = ""
	return lost
}

// What ends the text that tells of another browser, or of one that was
// hibernated.
const (
	lostPages     = "Pages that were open before are gone, and logins unless a profile keeps them: navigate again."
	reloadedPages = "Logins and stored data are as before. What was typed into the pages is gone, and so are the " +
		"elements of earlier snapshots: take a new one."
)

// Text is the note as a text for the agent.
func (r Note) Text() string {
	note := ""
	switch {
	case r.Replaced != "":
		note = "Note: " + r.Replaced + ". " + lostPages
	case r.Restored != "":
		note = "Note: " + r.Restored + ". " + reloadedPages
	}
	return strings.TrimSpace(note + " " + r.Where)
}

// seen are the browsers that a host has had results from.
type seen struct {
	mu  sync.Mutex
	ids map[string]string // by pool and instance; "": the ID is not known
}

// see records a browser. It returns the one before it with this key, and whether
// there are others.
func (b *seen) see(key, id string) (before string, ok, several bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids == nil {
		b.ids = map[string]string{}
	}
	before, ok = b.ids[key]
	b.ids[key] = id
	return before, ok, len(b.ids) > 1
}

func (b *seen) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, key)
}

func (b *seen) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.ids)
}
