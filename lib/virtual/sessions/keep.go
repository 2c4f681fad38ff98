package sessions

import (
	"context"
	"errors"
	"time"

	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A named session has a running save: a file with its logins and tabs, which is
// written anew when they have changed. If its Chrome ends, crashed or replaced, the
// session is hibernated with it, and its next user gets it back.

// LookEvery is how often it is asked whether it is time for a look. A session is looked
// at for a tenth of the time at most, unless that would be later than lookWhileIdle: a
// busy machine looks slowly, too.
const (
	LookEvery     = 2 * time.Second
	lookWhileIdle = 30 * time.Second
	lookShare     = 10
)

// Looks are the times of the latest look at a session.
type Looks struct{ begin, end time.Time }

// isDue reports whether it is time for another look.
func (l Looks) isDue(used, now time.Time) bool {
	if now.Before(l.end.Add(min(lookShare*l.end.Sub(l.begin), lookWhileIdle))) {
		return false
	}
	return used.After(l.begin) || now.Sub(l.begin) >= lookWhileIdle
}

// Look calls look if it is time for one.
func (l *Looks) Look(used time.Time, look func()) {
	if now := time.Now(); l.isDue(used, now) {
		look()
		*l = Looks{now, time.Now()}
	}
}

// keeps reports whether a session has a running save. Another program's profile is not
// copied, and nor are its tabs opened again.
func (g *Registry) keeps(k Key) bool {
	return k.Kind == Named && g.MakeDir != nil && !(g.Foreign && k.Name == g.Default)
}

// look writes the running save of a session anew if it has changed.
func (g *Registry) look(ctx context.Context, e *entry, s session) {
	began := record.Now()
	snapshot, err := s.Look(ctx)
	if snapshot != nil && err == nil {
		var saved *virtual.Saved
		if saved, err = g.save(ctx, snapshot); err == nil {
			g.setRunning(e, saved)
		}
	}
	switch {
	case err == nil:
		g.mu.Lock()
		e.creation.kept.Store(&began)
		g.mu.Unlock()
	case !wait.Closed(s.Done()) && ctx.Err() == nil:
		g.Log.Warn("cannot keep a session", "session", e.key.Name, "error", err)
	}
}

// setRunning replaces the running save of a session.
func (g *Registry) setRunning(e *entry, saved *virtual.Saved) {
	g.mu.Lock()
	saved, e.running = e.running, saved
	g.mu.Unlock()
	saved.Remove()
}

// crashedLocked hibernates a session whose Chrome has ended, and reports whether it
// has.
func (g *Registry) crashedLocked(e *entry) bool {
	s := e.session
	if s == nil || e.running == nil || g.closed || g.table.entries[e.key] != e || !wait.Closed(s.Done()) ||
		!errors.Is(s.Err(), virtual.ErrBrowserEnded) {
		return false
	}
	info, used := infoOf(e.key, e.creation), s.Used()
	info.Hibernated = true
	e.used = func() time.Time { return used }
	e.creation = &creation{info: info}
	e.state = asleep
	e.savedLocked()
	return true
}
