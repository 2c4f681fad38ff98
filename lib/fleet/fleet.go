// Package fleet is who uses which browser until when, as a shell around package book: one lock, timers, saves and
// events. Sessions of clients are virtual browsers on the current Chrome, and have addresses. It does not know where a
// Chrome comes from.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/book"
	"btools/lib/history"
	"btools/lib/settings"
	"btools/lib/spell"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Fleet is the sessions on a Chrome and on those that come after it. Set its fields before use, and Close it.
type Fleet struct {
	book.Policy
	// Chrome returns the current Chrome for the session of an entry, or for no entry with nil, and launches one if
	// necessary.
	Chrome func(ctx context.Context, e *Entry) (*virtual.Browser, Use, error)
	// Spare, if not nil, returns a session that was made in advance, for an entry of which nothing is saved.
	Spare func(ctx context.Context, e *Entry) (*virtual.Session, Use, error)
	// Defaults is what sessions are like that New has not created.
	Defaults Wanted
	// MakeDir returns a directory of this program, which nobody else may read. With Saves, sessions are saved there;
	// with Downloads, their downloads are there, and not where the browser puts them.
	MakeDir   func(context.Context) (string, error)
	Saves     bool
	Downloads bool
	Log       *slog.Logger
	Noun      string // of a session, in the log
	// Keep is the directory in which named sessions outlive the program; "": they end with it.
	Keep string
	// OpenTrace, if not nil, opens the trace of a session; nil: it has none.
	OpenTrace func(name string, s settings.Settings) (Trace, error)
	// Default is the name of the session that has the browser's profile; "":
	// none.
	Default string
	// Foreign says that another program owns the Chrome. Its profile is neither saved nor are its downloads taken: the
	// user works with that browser, and looks for the files where they always are.
	Foreign bool
	// Root is the name of the session behind the port's own address; "": each
	// client gets a session of its own there.
	Root string
	// Base is the path below which the fleet answers requests; "": that of the
	// port itself.
	Base string

	mu       sync.Mutex
	table    book.Table[*Entry]
	reserved map[Key]bool
	timer    wait.Timer
	closed   bool
	running  sync.WaitGroup
	events   history.Log[Event]
	begin    func(context.Context, *Entry, *virtual.Saved) (Session, Use, error) // set by tests
}

// Use keeps a Chrome for a session.
type Use struct {
	Opened func()      // is called when the session has been made, or could not be; nil: nobody wants to know
	Ended  func(error) // is called when the session has ended, with the error of its end
}

// isDefault reports whether a session has the browser's profile.
func (f *Fleet) isDefault(k Key) bool { return k.Kind == book.Named && k.Name == f.Default }

// keeps reports whether a session has a running save. Another program's profile is not
// copied, and nor are its tabs opened again.
func (f *Fleet) keeps(k Key) bool {
	return k.Kind == book.Named && f.Saves && !(f.Foreign && f.isDefault(k))
}

// explain returns an error as the client of a session gets it.
func (f *Fleet) explain(err error, k Key) error {
	switch {
	case errors.Is(err, errExists):
		e := control.Errorf(control.SessionExists, "there is already a session %q", k.Name)
		e.Hint = "bproxy session end " + k.Name + " ends it"
		return e
	case errors.Is(err, book.ErrFull):
		e := control.Errorf(control.SessionLimit, "there are already %s, as many as --max-sessions allows",
			spell.Count(f.Max, "session"))
		e.Hint = "bproxy session list shows them, and bproxy session end NAME ends one"
		return e
	}
	return err
}

// New creates a named session. It fails if there is one with this name.
func (f *Fleet) New(ctx context.Context, name string, wanted Wanted) (api.Session, error) {
	if err := CheckName(name); err != nil {
		return api.Session{}, err
	}
	e, _, err := f.use(ctx, Key{Name: name}, &wanted)
	if err != nil {
		return api.Session{}, err
	}
	defer e.Leave()
	i, _ := e.Info()
	return i, nil
}

// find returns the entry of the session with this name.
func (f *Fleet) find(name string) (*Entry, error) {
	all := f.named(name, false)
	if len(all) == 0 {
		return nil, errNone(name)
	}
	return all[0], nil
}

// Find returns the session with this name, which must exist; a hibernated one
// comes back. Call done when it is no longer used.
func (f *Fleet) Find(ctx context.Context, name string) (s *virtual.Session, done func(), err error) {
	e, err := f.find(name)
	if err != nil {
		return nil, nil, err
	}
	return f.Use(ctx, e.Key)
}

// Use returns a session and creates it if necessary: once for all that wait for
// it. Call done when it is no longer used.
func (f *Fleet) Use(ctx context.Context, k Key) (s *virtual.Session, done func(), err error) {
	e, used, err := f.use(ctx, k, nil)
	if err != nil {
		return nil, nil, err
	}
	return VirtualOf(used), e.Leave, nil
}

// VirtualOf returns the virtual browser of a session.
func VirtualOf(s Session) *virtual.Session {
	if n, ok := s.(*needing); ok {
		s = n.Session
	}
	return s.(*virtual.Session)
}

// Attach answers attach: a person looks at the session with this name, which that does not use.
func (f *Fleet) Attach(ctx context.Context, r api.AttachRequest) (any, error) {
	e, err := f.find(r.Session)
	if err != nil {
		return nil, err
	}
	if r.Wake {
		_, done, err := f.Use(ctx, e.Key)
		if err != nil {
			return nil, err
		}
		done()
	}
	return e.Attach(r)
}

func errNone(name string) error {
	return control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
}

// End ends the sessions with this name, and returns when nothing of them is
// left.
func (f *Fleet) End(ctx context.Context, name string) error {
	all := f.named(name, true)
	if len(all) == 0 {
		return errNone(name)
	}
	return f.end(ctx, all)
}
