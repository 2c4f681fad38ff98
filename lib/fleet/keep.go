package fleet

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"btools/lib/fleet/book"
	"btools/lib/fleet/kept"
	"btools/lib/virtual"
)

// A named session can outlive the program: then its running save is DIR/NAME.json, which is there as soon as the
// session, stays if the program ends, however it ends, and goes when the session does. The next program with this
// directory has the session again as soon as its name is used.

// pathOf returns the file in which a session outlives the program; "": it does not.
func (f *Fleet) pathOf(k Key) string {
	if f.Keep == "" || !f.keeps(k) || f.isDefault(k) || CheckName(k.Name) != nil {
		return ""
	}
	return kept.Path(f.Keep, k.Name)
}

// recallLocked adds a session that an earlier program has kept, asleep, and returns its entry; nil: none has kept it. A
// damaged file is deleted.
func (f *Fleet) recallLocked(k Key) *Entry {
	path := f.pathOf(k)
	if path == "" || f.closed {
		return nil
	}
	saved, snapshot, err := virtual.Find(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.Log.Warn("cannot bring a session back", f.Noun, k.Name, "error", err)
			kept.Delete(f.Keep, k.Name)
		}
		return nil
	}
	if f.Idle > 0 && time.Since(saved.At) >= f.Idle {
		kept.Delete(f.Keep, k.Name)
		return nil
	}
	kept.DeleteUnfinished(path)
	w := f.Defaults
	if snapshot.Settings != nil {
		w.Settings = *snapshot.Settings
	}
	e := f.newEntry(k, w, book.Traits{Keeps: true, Held: f.reserved[k]})
	e.saved = saved
	f.table.Sleep(&e.Session, saved.At)
	f.addLocked(e) // one that is asleep is no session too many
	return e
}

// SaveAll saves the sessions that outlive the program once more, before their Chrome ends. A command of a client that
// was killed may have no answer: they are saved even so.
func (f *Fleet) SaveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSaveTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, e := range f.where(func(e *Entry) bool { return f.pathOf(e.Key) != "" }) {
		all.Go(func() {
			if err := e.Save(ctx, true); err != nil && !errors.Is(err, virtual.ErrBrowserEnded) {
				f.Log.Warn("cannot save a session at the end", f.Noun, e.Name, "error", err)
			}
		})
	}
	all.Wait()
}
