package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/downloads"
	"btools/lib/pool/share"
	"btools/lib/record"
	"btools/lib/sessions"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A lease of a shared browser that has not been used for a while, and that no
// client is connected to, can be hibernated: its session is saved to a file, and
// its seat is released. It needs no browser then. The next request of its
// holder has the session created again, in whichever browser there is.

// hibernation is what a lease needs for that. The service's lock protects it.
type hibernation struct {
	visits     int        // requests of the holder so far
	left       time.Time  // when the last of them ended
	timer      wait.Timer // when the next check is due
	saving     bool
	hibernated *share.Hibernated // nil: it is awake
	restored   *record.Time      // when it came back last; nil: never
	running    *runningSave      // nil: there is no session, or nothing keeps it
	reading    sync.Mutex        // held while the session is read, without the service's lock
}

// saveTimeout is how long a session may take to be saved.
const saveTimeout = time.Minute

// restLocked notes that a request of a lease's holder has ended.
func (v *Service) restLocked(l *lease) {
	after := l.slot.set.Hibernate
	if l.requests > 0 || after == 0 || v.Dir == nil || v.leases[l.id] != l {
		return
	}
	l.rest.left = time.Now()
	l.rest.timer.Start(min(after, sessions.Settle), func() { v.checkUnused(l) })
}

// checkUnused has a lease hibernated that has not been used for its time.
func (v *Service) checkUnused(l *lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := &l.rest
	if v.ctx.Err() != nil || v.leases[l.id] != l || l.requests > 0 || r.saving || l.seat == nil {
		return // the end of the next request starts the timer
	}
	after := l.slot.set.Hibernate
	s := l.seat.Session()
	if s == nil { // a client closed it, or has not waited for it
		r.timer.Reset(after)
		return
	}
	left := max(time.Until(s.Used().Add(after)), time.Until(r.left.Add(min(after, sessions.Settle))))
	if left > 0 {
		r.timer.Reset(left)
		return
	}
	r.saving = true
	seat, visits := l.seat, r.visits
	v.running.Go(func() { v.hibernate(l, seat, s, visits) })
}

// hibernate hibernates a lease if nobody uses it meanwhile.
func (v *Service) hibernate(l *lease, seat *share.Seat, s *virtual.Session, visits int) {
	saved, err := v.saveSession(l.ctx, l, s)
	v.mu.Lock()
	r := &l.rest
	r.saving = false
	goesOn := v.leases[l.id] == l && l.seat == seat
	done := err == nil && goesOn && r.visits == visits && seat.Keep(s, false)
	switch {
	case done:
		v.vacateLocked(l, l.hibernated(s, saved, s.Stats().TabCount), "")
	case goesOn && l.requests == 0:
		r.timer.Reset(l.slot.set.Hibernate) // the time begins anew
	}
	v.mu.Unlock()
	if done {
		return
	}
	saved.Remove()
	if err != nil && goesOn && !errors.Is(err, virtual.ErrBusy) && !wait.Closed(s.Done()) {
		v.Log.Warn("cannot hibernate a lease", "lease", l.id, "error", err)
	}
}

// hibernated returns a session of a lease that is saved.
func (l *lease) hibernated(s *virtual.Session, saved *virtual.Saved, tabs int) *share.Hibernated {
	return &share.Hibernated{Saved: saved, Files: s.Downloads(), StateName: l.login.stateName(), Tabs: tabs}
}

// saveSession saves the session of a lease to a file.
func (v *Service) saveSession(ctx context.Context, l *lease, s *virtual.Session) (*virtual.Saved, error) {
	l.rest.reading.Lock()
	defer l.rest.reading.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout, fmt.Errorf("it took more than %v", saveTimeout))
	defer cancel()
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return v.saveSnapshot(ctx, snapshot)
}

// saveSnapshot writes a snapshot to a new file.
func (v *Service) saveSnapshot(ctx context.Context, snapshot *virtual.Snapshot) (*virtual.Saved, error) {
	dir, err := v.Dir.Make(ctx)
	if err != nil {
		return nil, err
	}
	return snapshot.Save(dir)
}

// vacateLocked releases the seat of a lease whose session is saved; why says how its
// browser has ended, unless it is "".
func (v *Service) vacateLocked(l *lease, h *share.Hibernated, why string) {
	v.dropRunningLocked(l)
	if unused := l.rest.hibernated; unused != nil { // its client did not wait for it
		unused.Saved.Remove()
	}
	l.rest.hibernated = h
	if gone := l.seat.Release(l.slot.group.spareCountLocked()); gone != nil {
		l.previousClosed = gone
	}
	l.seat = nil
	v.eventLocked("hibernated", l.slot, l.id, why)
}

// wake notes that the holder of a lease gets this session. It reports whether
// the session is one that was hibernated.
func (v *Service) wake(l *lease, s *virtual.Session) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !l.seat.IsRestored(s) {
		return false
	}
	if h := l.rest.hibernated; h != nil && l.seat.Keep(s, true) {
		v.keepLocked(l, s, h)
		l.rest.hibernated, l.rest.restored = nil, &record.Time{Time: time.Now()}
		v.eventLocked("restored", l.slot, l.id, "")
	}
	return true
}

// forgetHibernatedLocked deletes what a lease was hibernated as, or could be. It reports
// whether it was.
func (v *Service) forgetHibernatedLocked(l *lease) bool {
	v.dropRunningLocked(l)
	l.rest.timer.Stop()
	h := l.rest.hibernated
	if h == nil {
		return false
	}
	l.rest.hibernated = nil
	v.dropLocked(h)
	return true
}

// dropLocked deletes a session that is saved, with its downloads.
func (v *Service) dropLocked(h *share.Hibernated) {
	if v.ctx.Err() == nil {
		v.running.Go(func() { // what cannot be deleted goes with the program
			h.Saved.Remove()
			if h.Files != nil {
				h.Files.Close()
			}
		})
	}
}

// tabsLocked returns how many tabs the session of a lease has; nil: it has not begun.
func (l *lease) tabsLocked() *int {
	if h := l.rest.hibernated; h != nil {
		return &h.Tabs
	}
	if l.seat == nil {
		return nil
	}
	if s := l.seat.Session(); s != nil {
		return new(s.Stats().TabCount)
	}
	return nil
}

// downloadsOfHibernated returns the downloads of a lease that is hibernated;
// false: it is not.
func (v *Service) downloadsOfHibernated(id string) (*downloads.Files, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.leases[id]; l != nil && l.rest.hibernated != nil {
		return l.rest.hibernated.Files, true
	}
	return nil, false
}
