package pool

import (
	"errors"
	"time"

	"btools/lib/pool/share"
	"btools/lib/record"
	"btools/lib/sessions"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// The session of a lease has a running save, as those of bproxy have: a file with its
// logins and tabs, which is written anew when they have changed. If its browser ends, the
// lease is hibernated with it.

// runningSave is that of a session of a lease. The service's lock protects it.
type runningSave struct {
	session *virtual.Session
	saved   *virtual.Saved // nil: there is none yet
	tabs    int
	at      *record.Time // as of when; nil: it has not been looked at yet
}

// keepLocked keeps the session that a lease uses from now on. It has been restored from
// a file, unless that is nil.
func (v *Service) keepLocked(l *lease, s *virtual.Session, from *share.Hibernated) {
	if v.Dir == nil || l.rest.running != nil && l.rest.running.session == s {
		return
	}
	v.dropRunningLocked(l)
	r := &runningSave{session: s}
	if from != nil {
		r.saved, r.tabs = from.Saved, from.Tabs
	}
	l.rest.running = r
	v.running.Go(func() { v.keep(l, r) })
}

// keep looks at a session until it or its lease ends.
func (v *Service) keep(l *lease, r *runningSave) {
	ticks := time.NewTicker(sessions.LookEvery)
	defer ticks.Stop()
	var last sessions.Looks
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-r.session.Done():
			if !errors.Is(r.session.Err(), virtual.ErrBrowserEnded) {
				v.mu.Lock()
				defer v.mu.Unlock()
				if l.rest.running == r { // a client has closed it
					v.dropRunningLocked(l)
				}
			}
			return
		case <-ticks.C:
			last.Look(r.session.Used(), func() { v.look(l, r) })
		}
	}
}

// look writes the running save of a lease anew if its session has changed.
func (v *Service) look(l *lease, r *runningSave) {
	l.rest.reading.Lock()
	defer l.rest.reading.Unlock()
	began := record.Now()
	snapshot, err := r.session.Look(l.ctx)
	var saved *virtual.Saved
	if snapshot != nil && err == nil {
		saved, err = v.saveSnapshot(l.ctx, snapshot)
	}
	if err != nil {
		if !wait.Closed(r.session.Done()) && l.ctx.Err() == nil {
			v.Log.Warn("cannot keep the session of a lease", "lease", l.id, "error", err)
		}
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case l.rest.running != r:
		saved.Remove()
		return
	case saved != nil:
		r.saved.Remove()
		r.saved, r.tabs = saved, len(snapshot.Tabs)
	}
	r.at = &began
}

// dropRunningLocked deletes the running save of a lease.
func (v *Service) dropRunningLocked(l *lease) {
	if r := l.rest.running; r != nil {
		l.rest.running = nil
		r.saved.Remove()
	}
}

// rescueLocked hibernates a lease whose browser has ended, or is about to, with its
// running save, and reports whether there is one. Its holder gets a notice that begins
// with what.
func (v *Service) rescueLocked(l *lease, what string) bool {
	r := l.rest.running
	if r == nil || r.saved == nil || v.leases[l.id] != l || l.seat == nil ||
		wait.Closed(r.session.Done()) && !errors.Is(r.session.Err(), virtual.ErrBrowserEnded) ||
		!l.seat.Keep(r.session, false) {
		return false
	}
	l.rest.running = nil
	v.vacateLocked(l, l.hibernated(r.session, r.saved, r.tabs), "the browser "+what)
	l.slot.notifyHolderLocked("%s; the next connection gets its pages back", what)
	return true
}
