package source

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"btools/lib/wait"
)

// Note is what the reader of a result has to know of its browser.
type Note struct {
	Replaced string // it is not the same as before; told once
	Restored string // it was hibernated, or came back after a crash; told once
	Where    string // which one it is, if the next result may come from another one
}

// loss is the end of a browser that was kept between calls.
type loss struct {
	pool, text string // what has become of it; "": nothing
	back       bool   // its session is back in another instance
}

// Note is what the reader of a result has to know of its browser. It is told once.
func (u *use) Note(ctx context.Context, at *Lease) (r Note) {
	if at.Died != nil && wait.Closed(at.Died) {
		return r // the next result is the one that is from another browser
	}
	news, restored := at.notices.read(), u.restored(ctx, at)
	was, used, several, gone := u.see(at)
	if at.Pool != "" && (several || at.several) {
		r.Where = fmt.Sprintf("This result is from instance %s of pool %s.", at.Instance, at.Pool)
	}
	other := was != "" && at.ID != "" && was != at.ID
	switch {
	case gone.back:
		r.Restored = fmt.Sprintf("%s; its pages were reloaded, in instance %s", gone.text, at.Instance)
	case gone.pool != "":
		r.Replaced = fmt.Sprintf("%s; this is instance %s", gone.text, at.Instance)
	case gone.text != "":
		r.Replaced = gone.text
	case news != "" && used && !at.fresh:
		r.Replaced = news
	case restored != "": // in whichever process it is now
		r.Restored = restored
	case !used || at.fresh || !other:
	case at.Pool != "":
		r.Replaced = fmt.Sprintf("the browser of instance %s of pool %s was replaced", at.Instance, at.Pool)
	case at.joined && at.ended == "": // the call has named it
		r.Replaced = "the browser had left, and has joined again"
	case at.joined:
		r.Replaced = fmt.Sprintf("the browser had left (%s), and one has joined since", at.ended)
	case at.ended != "":
		r.Replaced = fmt.Sprintf("the browser had ended (%s) and was launched anew", at.ended)
		if now := at.now(ctx); now != nil && now.RestoredAt != nil {
			r.Replaced, r.Restored = "", r.Replaced+"; its pages were reloaded"
		}
	default:
		r.Replaced = "the browser was launched anew"
	}
	return r
}

// restored says, once, that the browser of a call was hibernated before it; "": it was not.
func (u *use) restored(ctx context.Context, at *Lease) string {
	n := at.note
	if n == nil {
		return ""
	}
	u.mu.Lock()
	pending := n.pending
	u.mu.Unlock()
	if !pending {
		return ""
	}
	now := at.now(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if now == nil || now.Hibernated || !n.pending { // the call did not need it, or another one has told of it
		return ""
	}
	n.pending = false
	var back time.Time
	if now.RestoredAt != nil {
		back = now.RestoredAt.Time
	}
	if back.Equal(n.told) { // its children were back early enough
		return ""
	}
	n.told = back
	return fmt.Sprintf("this browser had not been used for %v and was hibernated; its pages were reloaded", n.unused)
}

// see notes the browser of a result. It returns the ID of the one before it with its key, whether there was one, and
// whether there are others; and what has become of it, once.
func (u *use) see(at *Lease) (was string, used, several bool, gone loss) {
	key := SeenKey(&at.Browser)
	u.mu.Lock()
	defer u.mu.Unlock()
	if was, used = u.seen[key]; !used && at.joined {
		was, used = u.seenAs(at)
	}
	if u.seen == nil {
		u.seen = map[string]string{}
	}
	u.seen[key] = at.ID
	gone = cmp.Or(u.lost[key], u.lost[""])
	delete(u.lost, key)
	delete(u.lost, "")
	return was, used, len(u.seen) > 1, gone
}

// seenAs returns the ID that a browser which has joined had for calls of the same session that named it, or named none.
func (u *use) seenAs(at *Lease) (was string, used bool) {
	of, _, _ := strings.Cut(at.ID, "/")
	for _, instance := range []string{"", of} {
		id := u.seen[SeenKey(&Browser{Instance: instance, Session: at.Session})]
		if strings.HasPrefix(id, of+"/") {
			return id, true
		}
	}
	return "", false
}

// loseLocked has the next result tell of a loss, unless it tells of one already.
func (u *use) loseLocked(key string, l loss) {
	if u.lost == nil {
		u.lost = map[string]loss{}
	}
	u.lost[key] = cmp.Or(u.lost[key], l)
}

// SeenKey is the key of a browser, whichever process it is now.
func SeenKey(b *Browser) string { return b.Pool + "/" + b.Instance + "/" + b.Session }

// What ends the text that tells of another browser, or of one that was
// hibernated.
const (
	lostPages     = "Pages that were open before are gone, and logins unless a profile keeps them: navigate again."
	reloadedPages = "Logins and stored data are as before. What was typed into the pages is gone, and so are the " +
		"elements of earlier snapshots: take a new one."
)

// Text is for the agent.
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
