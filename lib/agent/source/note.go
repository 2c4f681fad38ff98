package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/control/api"
	"btools/lib/wait"
)

// Note tells the reader of a result about its browser.
type Note struct {
	Replaced string // it is not the same as before; told once
	Restored string // it was hibernated, or came back after a crash; told once
	Data     string // how its logins and stored data are then
	Unkept   string // what would not come back now; told once
	Where    string // which one it is, if the next result may come from another one
}

// loss is the end of a browser that was kept between calls.
type loss struct {
	pool, text string // how it ended; "": it has not
	back       bool   // its session is back in another instance
}

// Bproxy and bpool hibernate a browser that no client is connected to: they save
// it and free its pages. Children stay connected to theirs for days. So a browser
// that no call has used for a while rests: its children are stopped, and the
// next call starts them again, which brings the browser back.

// hibernated is what results tell of the hibernations of a browser, under the lock of its book.
type hibernated struct {
	pending bool          // it may have been hibernated since its last result
	unused  time.Duration // it had not been used for, then
	told    time.Time     // when it had come back before the last result that told so
}

// begin notes that the children of the browser were stopped, as it was not used for so long.
func (n *hibernated) begin(unused time.Duration) { n.pending, n.unused = true, unused }

// now returns how the browser of a lease is; nil: that is not known.
func (l *Lease) now(ctx context.Context) *api.Hibernation {
	if l.look == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return l.look(ctx)
}

// lookAt returns a function that asks how a session is.
func (s *Source) lookAt(name string) func(context.Context) *api.Hibernation {
	return func(ctx context.Context) *api.Hibernation {
		if now := s.session(ctx, "", name); now != nil {
			return &now.Hibernation
		}
		return nil
	}
}

// Note implements Browsers.
func (u *ownerUse) Note(ctx context.Context, at *Lease) (r Note) {
	if at.Died != nil && wait.Closed(at.Died) {
		return r // the next result is the one that is from another browser
	}
	news := at.notices.read()
	restored, now := u.restored(ctx, at)
	was, used, several, gone := u.see(at)
	if at.Pool != "" && (several || at.several) {
		r.Where = fmt.Sprintf("This result is from instance %s of pool %s.", at.Instance, at.Pool)
	}
	other := was != "" && at.ID != "" && was != at.ID
	switch {
	case gone.back:
		r.Data = dataOf(at.now(ctx))
		r.Restored = fmt.Sprintf("%s; its pages were reloaded, in instance %s", gone.text, at.Instance)
	case gone.pool != "":
		r.Replaced = fmt.Sprintf("%s; this is instance %s", gone.text, at.Instance)
	case gone.text != "":
		r.Replaced = gone.text
	case news != "" && used && !at.fresh:
		r.Replaced = news
	case restored != "": // in whichever process it is now
		r.Restored, r.Data = restored, dataOf(now)
	case !used || at.fresh || !other:
	default:
		r.Replaced = cmp.Or(at.replaced, "the browser was launched anew")
		now := at.now(ctx)
		if now == nil || now.RestoredAt == nil ||
			!at.restores && (at.replaced != "" || !u.isNews(at.note, now.RestoredAt.Time)) {
			break
		}
		if !at.restores { // bproxy has ended with it, and the next one does not know when
			now = nil
		}
		r.Replaced, r.Restored, r.Data = "", r.Replaced+"; its pages were reloaded", dataOf(now)
	}
	r.Unkept = u.unkept(ctx, at)
	return r
}

// dataOf describes the logins and the stored data of a browser that has come back; nil: its state is not known.
func dataOf(now *api.Hibernation) string {
	text := "Logins and stored data are as they were kept last, some seconds before."
	switch {
	case now == nil || now.RestoredAt == nil:
		return text
	case now.Crash != nil:
		age := now.Crash.EndedAt.Sub(now.Crash.KeptAt.Time).Round(time.Second)
		text = fmt.Sprintf("Logins and stored data are as they were %v before it ended, at %s: what has changed since "+
			"is lost.", max(age, time.Second), now.Crash.KeptAt.UTC().Format(time.TimeOnly+" MST"))
	default:
		text = "Logins and stored data are as before."
	}
	if len(now.Lost) > 0 {
		text += " Stored data that could not be kept is missing or older: " + strings.Join(now.Lost, ", ") + "."
	}
	return text
}

// unkeptEvery is the minimum time between requests for what of a browser is not kept.
const unkeptEvery = 2 * time.Second

// unkept returns, once, the stored data of a browser that would not come back if it ended; "": nothing new.
func (u *ownerUse) unkept(ctx context.Context, at *Lease) string {
	key, now := SeenKey(&at.Browser), time.Now()
	u.mu.Lock()
	was := u.unkepts[key]
	u.mu.Unlock()
	if at.look == nil || now.Sub(was.asked) < unkeptEvery {
		return ""
	}
	is := unkept{asked: now}
	if !was.asked.IsZero() { // else it has hardly begun
		if state := at.now(ctx); state != nil {
			is.told = state.Unkept
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.unkepts == nil {
		u.unkepts = map[string]unkept{}
	}
	u.unkepts[key] = is
	news := slices.DeleteFunc(slices.Clone(is.told), func(gap string) bool { return slices.Contains(was.told, gap) })
	return strings.Join(news, ", ")
}

// unkept is the stored data that is not kept, as results have told, and when it was asked for.
type unkept struct {
	asked time.Time
	told  []string
}

// restored tells, once, that the browser of a call was hibernated before it, and how it is now; "": it was not.
func (u *ownerUse) restored(ctx context.Context, at *Lease) (string, *api.Hibernation) {
	n := at.note
	if n == nil {
		return "", nil
	}
	u.mu.Lock()
	pending := n.pending
	u.mu.Unlock()
	if !pending {
		return "", nil
	}
	now := at.now(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if now == nil || now.Hibernated || !n.pending { // the call did not need it, or another one has told of it
		return "", nil
	}
	n.pending = false
	var back time.Time
	if now.RestoredAt != nil {
		back = now.RestoredAt.Time
	}
	if back.Equal(n.told) { // its children were back early enough
		return "", nil
	}
	n.told = back
	return fmt.Sprintf("this browser had not been used for %v and was hibernated; its pages were reloaded", n.unused),
		now
}

// isNews reports whether no result has told yet that a browser had come back at a time.
func (u *ownerUse) isNews(n *hibernated, back time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n == nil {
		return true
	}
	news := !back.Equal(n.told)
	n.told = back
	return news
}

// see notes the browser of a result. It returns the ID of the previous browser with its key, whether there was one,
// whether there are others, and, once, how the previous one was lost.
func (u *ownerUse) see(at *Lease) (was string, used, several bool, gone loss) {
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

// seenAs returns the ID of a joined browser in earlier results of the session, whether the calls named it or not.
func (u *ownerUse) seenAs(at *Lease) (was string, used bool) {
	of, _, _ := strings.Cut(at.ID, "/")
	for _, instance := range []string{"", of} {
		id := u.seen[SeenKey(&Browser{Instance: instance, Session: at.Session})]
		if strings.HasPrefix(id, of+"/") {
			return id, true
		}
	}
	return "", false
}

// loseLocked notes a loss for the next result, unless that tells of one already.
func (u *ownerUse) loseLocked(key string, l loss) {
	if u.lost == nil {
		u.lost = map[string]loss{}
	}
	u.lost[key] = cmp.Or(u.lost[key], l)
}

// SeenKey returns the key of a browser, the same for each process that takes its place.
func SeenKey(b *Browser) string { return b.Pool + "/" + b.Instance + "/" + b.Session }

// Endings of the texts about another browser, and about a hibernated one.
const (
	lostPages     = "Pages that were open before are gone, and logins unless a profile keeps them: navigate again."
	reloadedPages = "What was typed into the pages is gone, and so are the elements of earlier snapshots: take a " +
		"new one."
)

// Text returns the note as text for the agent.
func (r Note) Text() string {
	note := ""
	switch {
	case r.Replaced != "":
		note = "Note: " + r.Replaced + ". " + lostPages
	case r.Restored != "":
		note = "Note: " + r.Restored + ". " + r.Data + " " + reloadedPages
	}
	if r.Unkept != "" {
		note += "\nNote: stored data that does not come back if this browser ends without warning: " + r.Unkept + "."
	}
	return strings.TrimSpace(note + " " + r.Where)
}
