package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/control"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// A named session that nobody has used for a while, and that no client is
// connected to, can be hibernated: it is saved to a file, and its part of the
// browser is freed. Its entry stays, with its downloads and its trace, and its
// next user has it created again from the file.

// saveTimeout is how long a session may take to be saved.
const saveTimeout = time.Minute

// hibernate saves a session if nobody uses it meanwhile; nil: it goes on.
func (g *Registry) hibernate(ctx context.Context, e *entry, s session) *virtual.Saved {
	bounded, cancel := context.WithTimeoutCause(ctx, saveTimeout, fmt.Errorf("it took more than %v", saveTimeout))
	defer cancel()
	snapshot, err := s.Snapshot(bounded)
	var file *virtual.Saved
	if err == nil {
		file, err = g.save(bounded, snapshot)
	}
	if err != nil && !errors.Is(err, virtual.ErrBusy) && !wait.Closed(s.Done()) && ctx.Err() == nil {
		g.Log.Warn("cannot hibernate a session", "session", e.key.Name, "error", err)
	}
	info := infoOf(e.key, e.creation)
	info.Hibernated = true
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.sweepLocked()
	defer e.savedLocked()
	if !g.table.saved(e, err == nil, time.Now()) {
		file.Remove()
		return nil
	}
	used := s.Used()
	e.used = func() time.Time { return used } // nothing of the session itself stays
	e.creation = &creation{info: info}
	return file
}

// savedLocked wakes those that wait for the end of saving.
func (e *entry) savedLocked() {
	close(e.saved)
	e.saved = make(chan struct{})
}

// Free hibernates a session now, and returns when it is hibernated. It is an error if
// a client is connected to it, or connects meanwhile.
func (g *Registry) Free(ctx context.Context, name string) error {
	g.mu.Lock()
	e := g.table.entries[Key{Name: name}]
	if e == nil || e.state == creating {
		g.mu.Unlock()
		return control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
	}
	saved, began := e.saved, g.table.free(e)
	if began {
		e.hibernate <- struct{}{}
	}
	waits := e.state == saving
	g.mu.Unlock()
	if waits {
		select {
		case <-saved:
		case <-e.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case e.state == asleep:
		return nil
	case g.table.entries[e.key] != e:
		return control.Errorf(control.SessionNotFound, "the session %q has ended", clip(name))
	case waits && !e.visited:
		return control.Errorf(control.Failed, "the session %q cannot be saved now", clip(name))
	}
	return control.Errorf(control.TryAgain, "the session %q is in use", clip(name))
}

// save writes a snapshot to a new file.
func (g *Registry) save(ctx context.Context, snapshot *virtual.Snapshot) (*virtual.Saved, error) {
	dir, err := g.MakeDir(ctx)
	if err != nil {
		return nil, err
	}
	return snapshot.Save(dir)
}

// awaitWake waits until a hibernated session is used; false: it has ended.
func (e *entry) awaitWake(ctx context.Context) bool {
	select {
	case <-e.wake:
		return true
	case <-ctx.Done():
		return false
	}
}
