// Package sessions gives virtual browsers addresses. A Registry keeps a book of the
// sessions on the current Chrome: it creates a session when its address is
// first used, and ends it when it is no longer used.
package sessions

import (
	"context"
	"errors"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/history"
	book "btools/lib/sessions"
	"btools/lib/settings"
	"btools/lib/spell"
	"btools/lib/virtual"
)

// Registry is a set of sessions. Set its fields before use, and Close it.
type Registry struct {
	// Book has the sessions, whose policy the caller sets.
	book.Book
	// Chrome returns the current Chrome and launches one if necessary. It is in
	// use until release is called.
	Chrome func(ctx context.Context) (b *virtual.Browser, release func(), err error)
	// Defaults is what sessions are like that New has not created.
	Defaults Wanted
	// OpenTrace, if not nil, opens the trace of a session; nil: it has none.
	OpenTrace func(name string, s settings.Settings) (Trace, error)
	// OpenDownloads, if not nil, opens the downloads of a session, whose events
	// go to tell; if it is nil or returns nil, the browser puts them where it does.
	OpenDownloads func(name string, s settings.Settings, tell func(string, downloads.File)) (*downloads.Files, error)
	// Default is the name of the session that has the browser's profile; "":
	// none.
	Default string
	// Foreign says that another program owns the Chrome.
	Foreign bool
	// Root is the name of the session behind the port's own address; "": each
	// client gets a session of its own there.
	Root string
	// Base is the path below which the registry answers requests; "": that of the
	// port itself.
	Base string

	events history.Log[Event]
	create func(context.Context, Key, Wanted) (book.Session, func(), error) // set by tests
}

// Key identifies a session.
type Key = book.Key

// place is what an entry of the book is for: the session at an address.
type place struct {
	registry *Registry
	key      Key
	wanted   Wanted
	isOpen   bool // its trace and its downloads are
	trace    Trace
}

// needing is a session that has its Chrome kept until it ends.
type needing struct {
	book.Session
	release func()
}

func (n *needing) End(ctx context.Context) error {
	defer n.release()
	return n.Session.End(ctx)
}

// Use returns a session and creates it if necessary: once for all that wait for
// it. Call done when it is no longer used.
func (g *Registry) Use(ctx context.Context, k Key) (s *virtual.Session, done func(), err error) {
	e, used, err := g.use(ctx, k, nil)
	if err != nil {
		return nil, nil, err
	}
	return sessionOf(used), e.Leave, nil
}

func sessionOf(s book.Session) *virtual.Session { return s.(*needing).Session.(*virtual.Session) }

// use waits for a session. If one is wanted, it must be new.
func (g *Registry) use(ctx context.Context, k Key, wanted *Wanted) (*book.Entry, book.Session, error) {
	e, s, err := g.Book.Use(ctx, k, wanted != nil, func() (book.Owner, book.Traits) {
		p := &place{registry: g, key: k, wanted: g.Defaults}
		if wanted != nil {
			p.wanted = *wanted
		}
		p.wanted.keep = g.keeps(k)
		return p, book.Traits{Keeps: p.wanted.keep, Profile: g.isDefault(k)}
	})
	switch {
	case errors.Is(err, book.ErrExists):
		e := errExists(k.Name)
		e.Hint = "bproxy session end " + k.Name + " ends it"
		return nil, nil, e
	case errors.Is(err, book.ErrFull):
		e := control.Errorf(control.SessionLimit, "there are already %s, as many as --max-sessions allows",
			spell.Count(g.Max, "session"))
		e.Hint = "bproxy session list shows them, and bproxy session end NAME ends one"
		return nil, nil, e
	}
	return e, s, err
}

func errExists(name string) *control.Error {
	return control.Errorf(control.SessionExists, "there is already a session %q", name)
}

// New creates a named session. It fails if there is one with this name.
func (g *Registry) New(ctx context.Context, name string, wanted Wanted) (api.Session, error) {
	if err := CheckName(name); err != nil {
		return api.Session{}, err
	}
	e, _, err := g.use(ctx, Key{Name: name}, &wanted)
	if err != nil {
		return api.Session{}, err
	}
	defer e.Leave()
	i, _ := e.Info()
	return i, nil
}

// Hold reserves a named session for a holder: once a client has created it, it
// lasts until release ends it, however long nobody uses it. It fails if there is
// one with this name.
func (g *Registry) Hold(name string) (release func(), err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if release, err = g.Reserve(Key{Name: name}); err != nil {
		return nil, errExists(name)
	}
	return release, nil
}

// isDefault reports whether a session has the browser's profile.
func (g *Registry) isDefault(k Key) bool { return k.Kind == book.Named && k.Name == g.Default }

// keeps reports whether a session has a running save. Another program's profile is not
// copied, and nor are its tabs opened again.
func (g *Registry) keeps(k Key) bool {
	return k.Kind == book.Named && g.MakeDir != nil && !(g.Foreign && g.isDefault(k))
}

// Open opens the session on the current Chrome.
func (p *place) Open(ctx context.Context, from *virtual.Saved) (book.Session, error) {
	g := p.registry
	if !p.isOpen {
		var err error
		if g.OpenTrace != nil {
			p.trace, err = g.OpenTrace(p.key.Name, p.wanted.Settings)
		}
		if err == nil {
			err = g.openDownloads(p.key, &p.wanted)
		}
		if err != nil {
			return nil, err
		}
		p.isOpen = true
	}
	wanted, create := p.wanted, g.create
	if create == nil {
		create = g.onChrome
	}
	wanted.saved = from
	s, release, err := create(ctx, p.key, wanted)
	if err != nil {
		return nil, err
	}
	return &needing{s, release}, nil
}

// Tell records an event.
func (p *place) Tell(event, why string) {
	p.registry.addEvent(Event{Event: event, Session: p.key.Name, Kind: p.key.Kind, Why: why})
}

// Close closes what belongs to the address.
func (p *place) Close() {
	if p.wanted.files != nil {
		p.wanted.files.Close()
	}
	if p.trace != nil {
		p.trace.Close()
	}
}

// attempts is how many Chromes are tried for a session, in case the first has
// just died; deathTimeout is how long its death may take to be noticed.
const (
	attempts     = 2
	deathTimeout = time.Second
)

// onChrome creates a session on the current Chrome.
func (g *Registry) onChrome(ctx context.Context, k Key, wanted Wanted) (book.Session, func(), error) {
	options, err := wanted.options(g.isDefault(k))
	if err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		b, release, err := g.Chrome(ctx)
		if err != nil {
			return nil, nil, err
		}
		s, err := b.NewSession(ctx, options)
		if err == nil {
			return s, release, nil
		}
		died := false
		select {
		case <-b.Done():
			died = true
		case <-ctx.Done():
		case <-time.After(deathTimeout):
		}
		release()
		if !died || try == attempts {
			return nil, nil, err
		}
	}
}

// Find returns the session with this name, which must exist; a hibernated one
// comes back. Call done when it is no longer used.
func (g *Registry) Find(ctx context.Context, name string) (s *virtual.Session, done func(), err error) {
	all := g.Named(name, false)
	if len(all) == 0 {
		return nil, nil, errNone(name)
	}
	return g.Use(ctx, all[0].Key)
}

// Attach is the answer to attach: a person looks at the session with this name, which that does not use.
func (g *Registry) Attach(ctx context.Context, r api.AttachRequest) (any, error) {
	all := g.Named(r.Session, false)
	if len(all) == 0 {
		return nil, errNone(r.Session)
	}
	if r.Wake {
		_, done, err := g.Use(ctx, all[0].Key)
		if err != nil {
			return nil, err
		}
		done()
	}
	s := all[0].Session()
	if s == nil {
		return nil, all[0].NotOpen()
	}
	return sessionOf(s).Taken(r), nil
}

func errNone(name string) error {
	return control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
}

// End ends the sessions with this name, and returns when nothing of them is
// left.
func (g *Registry) End(ctx context.Context, name string) error {
	all := g.Named(name, true)
	if len(all) == 0 {
		return errNone(name)
	}
	return g.Book.End(ctx, all)
}

// Free hibernates a session now, and returns when it is hibernated. It is an error if
// a client is connected to it, or connects meanwhile.
func (g *Registry) Free(ctx context.Context, name string) error { return g.Book.Free(ctx, clip(name)) }
