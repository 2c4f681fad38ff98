package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/virtual"
)

// A session moves to another program as it was saved: it is frozen here, and begins there with what was kept. Who moves
// it ends it here afterwards, or else thaws it.

// CanFreeze reports whether Freeze would have an entry asleep, because nobody has used it for a while.
func (e *Entry) CanFreeze(unused time.Duration) bool {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	return e.fleet.table.CanFreeze(&e.Session, time.Now(), unused)
}

// Freeze hibernates the session of an entry, if it is open, and lets nobody use it until Thaw. It is an error if
// somebody has used it within a time; with now, its clients are disconnected instead.
func (e *Entry) Freeze(ctx context.Context, unused time.Duration, now bool) (err error) {
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	e.checkLocked()
	switch {
	case !f.table.Has(&e.Session):
		return ErrEnded
	case e.IsFrozen():
		return nil
	case e.Session.IsTaken():
		return control.Errorf(control.TryAgain, "a person has control of it")
	case e.files != nil && slices.ContainsFunc(e.files.List(), isRunning):
		return control.Errorf(control.TryAgain, "a download is running")
	case !f.table.CanFreeze(&e.Session, time.Now(), unused) && !(now && e.State() == book.Ready):
		return control.Errorf(control.TryAgain, "it is in use")
	}
	f.table.Freeze(&e.Session)
	defer func() {
		if err != nil {
			f.table.Thaw(&e.Session)
		}
	}()
	if o := e.opening; e.IsUsed() && o != nil {
		f.mu.Unlock()
		VirtualOf(o.session).Disconnect(virtual.ErrMoves)
		f.mu.Lock()
	}
	for {
		left := e.rested.Next()
		switch {
		case !f.table.Has(&e.Session):
			return ErrEnded
		case e.State() == book.Asleep:
			return nil
		case e.State() == book.Ready && !e.IsUsed():
			return e.restLocked(ctx)
		}
		f.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if f.mu.Lock(); err != nil {
			return err
		}
	}
}

func isRunning(f downloads.File) bool { return f.State == downloads.InProgress }

// Thaw lets the session of an entry be used again.
func (e *Entry) Thaw() {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	e.fleet.table.Thaw(&e.Session)
}

// Frozen returns what is kept of an entry that is frozen; nil: nothing has used it yet.
func (e *Entry) Frozen() (saved []byte, err error) {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	switch {
	case !e.IsFrozen() || e.State() != book.Asleep:
		return nil, control.Errorf(control.BadRequest, "the session is not frozen")
	case e.saved == nil:
		return nil, nil
	}
	return e.saved.Read()
}

// Receive returns what another program has kept of a session, which is written to a file in a directory.
func Receive(dir string, saved []byte) (*Kept, error) {
	snapshot, err := virtual.ReadSnapshot(saved)
	if err != nil {
		return nil, control.Errorf(control.BadRequest, "cannot use the session: %v", err)
	}
	of, err := snapshot.Save(dir, "hibernated-")
	if err != nil {
		return nil, fmt.Errorf("cannot keep the session: %w", err)
	}
	return &Kept{saved: of}, nil
}
