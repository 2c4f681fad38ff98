package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
	"btools/lib/fleet/kept"
	"btools/lib/logins"
	"btools/lib/private"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A session that is kept has a running save: a file with its logins and tabs, which is
// written anew when they have changed. If its Chrome ends, crashed or replaced, the
// session is hibernated with it, and its next user gets it back. One that nobody has
// used for a while, and that no client is connected to, is saved once more and then
// hibernated, too: its part of the browser is freed.

// lookEvery is how often it is asked whether it is time for a look. A session is looked
// at for a tenth of the time at most, unless that would be later than lookWhileIdle: a
// busy machine looks slowly, too.
const (
	lookEvery     = 2 * time.Second
	lookWhileIdle = 30 * time.Second
	lookShare     = 10
	lookOften     = time.Second // how often it is asked of a session that outlives the program

	lastSaveTimeout = 5 * time.Second // how long the last save may take before the program ends

	saveTimeout = time.Minute // how long a session may take to be saved
)

// looks are the times of the latest look at a session.
type looks struct{ begin, end time.Time }

// isDue reports whether it is time for another look.
func (l looks) isDue(used, now time.Time) bool {
	if now.Before(l.end.Add(min(lookShare*l.end.Sub(l.begin), lookWhileIdle))) {
		return false
	}
	return used.After(l.begin) || now.Sub(l.begin) >= lookWhileIdle
}

// look calls do if it is time for a look.
func (l *looks) look(used time.Time, do func()) {
	if now := time.Now(); l.isDue(used, now) {
		do()
		*l = looks{now, time.Now()}
	}
}

// look writes the running save of a session anew if it has changed.
func (o *opening) look() {
	e, f := o.entry, o.entry.fleet
	began := record.Now()
	snapshot, err := o.session.Look(o.ctx)
	if snapshot == nil {
		snapshot = o.unsaved
	}
	var saved *virtual.Saved
	if snapshot != nil && err == nil {
		o.unsaved = snapshot
		if saved, err = e.write(o.ctx, snapshot); err == nil {
			o.unsaved = nil
		}
	}
	o.warn("keep", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	o.fault = err
	switch {
	case e.opening != o:
		saved.Remove()
	case err == nil:
		o.kept = &began
		if saved != nil {
			e.adoptLocked(saved)
		}
	}
}

// adoptLocked replaces what is saved of an entry.
func (e *Entry) adoptLocked(saved *virtual.Saved) {
	if path := e.fleet.pathOf(e.Key); path == "" || saved.Move(path) != nil {
		e.saved.Remove()
	}
	e.saved = saved
}

// forgetLocked deletes what is saved of an entry.
func (e *Entry) forgetLocked() {
	e.saved.Remove()
	e.saved = nil
}

// hibernate saves a session and ends it, if nobody uses it meanwhile.
func (o *opening) hibernate() {
	e, f := o.entry, o.entry.fleet
	saved, err := o.save(o.ctx, false)
	if !errors.Is(err, virtual.ErrBusy) {
		o.warn("hibernate", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.opening != o {
		saved.Remove()
		return
	}
	if f.table.Saved(&e.Session, err == nil, time.Now()) {
		e.adoptLocked(saved)
		e.sleepLocked("")
	} else {
		saved.Remove()
	}
	e.rested.Wake()
	f.sweepLocked()
}

// warn logs an error, unless the session has ended.
func (o *opening) warn(verb string, err error) {
	e, f := o.entry, o.entry.fleet
	if err != nil && !wait.Closed(o.session.Done()) && o.ctx.Err() == nil {
		f.Log.Warn("cannot "+verb+" a "+f.Noun, f.Noun, e.Name, "error", err)
	}
}

// save writes all that a session needs to go on to a new file. Unless it is the last save, the session must not be in
// use.
func (o *opening) save(ctx context.Context, last bool) (*virtual.Saved, error) {
	e := o.entry
	ctx, cancel := context.WithTimeoutCause(ctx, saveTimeout, fmt.Errorf("it took more than %v", saveTimeout))
	defer cancel()
	snapshot, err := o.session.Snapshot(ctx, last)
	if err != nil {
		return nil, err
	}
	return e.write(ctx, snapshot)
}

// write writes a snapshot of an entry to a new file.
func (e *Entry) write(ctx context.Context, snapshot *virtual.Snapshot) (*virtual.Saved, error) {
	f := e.fleet
	if path := f.pathOf(e.Key); path != "" {
		if err := private.MakeDir(f.Keep); err != nil {
			return nil, err
		}
		snapshot.Settings = &e.wanted.Settings
		return snapshot.Save(f.Keep, kept.Prefix(path))
	}
	dir, err := f.MakeDir(ctx)
	if err != nil {
		return nil, err
	}
	return snapshot.Save(dir, "hibernated-")
}

// saveBlank writes the first save of an entry that outlives the program, while its session is made: one of which
// nothing else is saved comes back with its name, its settings and the logins that it starts with.
func (e *Entry) saveBlank(ctx context.Context, o virtual.Options) {
	f := e.fleet
	first := &virtual.Snapshot{State: &logins.State{}, Tabs: []virtual.Tab{}}
	if o.Login != nil {
		first.State = o.Login
	}
	saved, err := e.write(ctx, first)
	if err != nil {
		return // as the next save, which is told of
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.Has(&e.Session) {
		e.adoptLocked(saved)
	} else {
		saved.Remove()
	}
}

// Save saves the session of an entry as for hibernation, but the session goes on. It does
// nothing if there is none, or nothing is kept. Unless it is the last save, the session must not be in use.
func (e *Entry) Save(ctx context.Context, last bool) (err error) {
	f := e.fleet
	f.mu.Lock()
	o := e.opening
	none := o == nil || o.session == nil || !e.Keeps
	f.mu.Unlock()
	if none {
		return nil
	}
	done := make(chan struct{})
	do := func() {
		defer close(done)
		began := record.Now()
		var saved *virtual.Saved
		if saved, err = o.save(ctx, last); err != nil {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if e.opening != o {
			saved.Remove()
			return
		}
		e.adoptLocked(saved)
		o.kept = &began
	}
	select {
	case o.todo <- do:
		<-done
	case <-o.ctx.Done():
	case <-ctx.Done():
	}
	return err
}

// Free hibernates a named session now, and returns when it is hibernated. It is an error
// if a client is connected to it, or connects meanwhile.
func (f *Fleet) Free(ctx context.Context, name string) error {
	name = clip(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.entryLocked(Key{Name: name})
	if e == nil || e.State() == book.Creating {
		return control.Errorf(control.SessionNotFound, "there is no session %q", name)
	}
	return e.restLocked(ctx)
}

// restLocked hibernates the session of an entry now.
func (e *Entry) restLocked(ctx context.Context) error {
	f, name := e.fleet, e.Name
	if f.table.Rest(&e.Session) {
		e.opening.drowsy <- struct{}{}
	}
	waits := e.State() == book.Saving
	if waits {
		rested := e.rested.Next()
		f.mu.Unlock()
		select {
		case <-rested:
		case <-e.gone:
		case <-ctx.Done():
		}
		f.mu.Lock()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !f.table.Has(&e.Session):
		return control.Errorf(control.SessionNotFound, "the session %q has ended", name)
	case e.State() == book.Asleep:
		return nil
	case waits && !e.IsVisited():
		return control.Errorf(control.Failed, "the session %q cannot be saved now", name)
	}
	return control.Errorf(control.TryAgain, "the session %q is in use", name)
}
