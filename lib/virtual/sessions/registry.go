// Package sessions gives virtual browsers addresses. A Registry keeps the
// sessions on the current Chrome: it creates a session when its address is
// first used, and ends it when it is no longer used. Serve answers requests to
// a session's address as a browser's endpoint would.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/exit"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Registry is a set of sessions. Set its fields before use, and Close it.
type Registry struct {
	// Chrome returns the current Chrome and launches one if necessary. It is in
	// use until release is called.
	Chrome func(ctx context.Context) (b *virtual.Browser, release func(), err error)
	// Grace is how long an anonymous session lives after its last connection,
	// Idle how long a named one lives without a client's traffic; 0: for ever.
	Grace, Idle time.Duration
	// Max bounds the number of sessions.
	Max int
	// Defaults are the settings of sessions that New has not created.
	Defaults Settings
	// OpenTrace, if not nil, opens the trace of a session; nil: it has none.
	OpenTrace func(name string, s Settings) (Trace, error)
	// OpenDownloads, if not nil, opens the downloads of a session, whose events
	// go to tell; nil: its browser puts them where it does.
	OpenDownloads func(name string, s Settings, tell func(event string, f downloads.File)) (*downloads.Files, error)
	// Default is the name of the session that has the browser's profile; "":
	// none.
	Default string
	// Root is the name of the session behind the port's own address; "": each
	// client gets a session of its own there.
	Root string

	events events
	create func(context.Context, Key, Settings) (session, func(), error) // set by tests

	mu      sync.Mutex
	table   table
	timer   *time.Timer
	closed  bool
	running sync.WaitGroup
}

// session is a *virtual.Session, or a fake one in tests.
type session interface {
	Used() time.Time
	Done() <-chan struct{}
	End(context.Context) error
}

// lifecycle is the running part of a session's entry.
type lifecycle struct {
	ready   chan struct{} // closed when it has been created or has failed
	session session
	trace   Trace // nil: none
	err     error
	end     context.CancelFunc
	gone    chan struct{} // closed when nothing of it is left
}

// isOver reports whether a session has ended by itself.
func (l *lifecycle) isOver() bool {
	return l.session != nil && wait.Closed(l.session.Done())
}

// endTimeout is how long the pages of a session may take to close before the
// session counts as ended.
const endTimeout = 5 * time.Second

var (
	errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the program is stopping")}
	errEnded  = &exit.Error{Code: exit.TryAgain, Err: errors.New("the session was ended while it was being created")}
)

// Use returns a session and creates it if necessary: once for all that wait for
// it. Call done when it is no longer used.
func (g *Registry) Use(ctx context.Context, k Key) (s *virtual.Session, done func(), err error) {
	e, err := g.use(ctx, k, nil)
	if err != nil {
		return nil, nil, err
	}
	return e.session.(*virtual.Session), func() { g.leave(e) }, nil
}

// New creates a named session. It fails if there is one with this name.
func (g *Registry) New(ctx context.Context, name string, settings Settings) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	k := Key{Name: name}
	e, err := g.use(ctx, k, &settings)
	if err != nil {
		return Info{}, err
	}
	defer g.leave(e)
	return infoOf(k, e.session.(*virtual.Session)), nil
}

// use waits for a session. With settings, it must be new.
func (g *Registry) use(ctx context.Context, k Key, settings *Settings) (*entry, error) {
	e, err := g.enter(k, settings)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.ready:
		err = e.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		g.leave(e)
		return nil, err
	}
	return e, nil
}

func (g *Registry) enter(k Key, settings *Settings) (*entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed
	}
	if g.table.entries == nil {
		g.table = table{grace: g.Grace, idle: g.Idle, max: g.Max, entries: map[Key]*entry{}}
	}
	if e := g.table.entries[k]; e != nil && e.isOver() {
		g.table.drop(e) // before its own goroutine does: clients may return at once
	}
	if g.table.entries[k] != nil && settings != nil {
		e := control.Errorf(control.SessionExists, "there is already a session %q", k.Name)
		e.Hint = "bproxy session end " + k.Name + " ends it"
		return nil, e
	}
	e, created, err := g.table.enter(k)
	if created {
		ctx, cancel := context.WithCancel(context.Background())
		e.ready, e.gone, e.end = make(chan struct{}), make(chan struct{}), cancel
		if settings == nil {
			settings = &g.Defaults
		}
		g.running.Go(func() { g.run(ctx, e, *settings) })
	}
	return e, err
}

func (g *Registry) leave(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.table.leave(e, time.Now()) {
		e.end()
		return
	}
	g.sweepLocked()
}

// sweepLocked ends the sessions whose time is over, and schedules the next
// sweep.
func (g *Registry) sweepLocked() {
	now := time.Now()
	ended, next, ok := g.table.expire(now)
	for _, e := range ended {
		e.end()
	}
	switch {
	case !ok:
	case g.timer == nil:
		g.timer = time.AfterFunc(next.Sub(now), g.sweep)
	default:
		g.timer.Reset(next.Sub(now))
	}
}

func (g *Registry) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.sweepLocked()
	}
}

// run creates a session and runs it until the context or the session ends.
func (g *Registry) run(ctx context.Context, e *entry, settings Settings) {
	defer close(e.gone)
	defer e.end()
	create := g.create
	if create == nil {
		create = g.onChrome
	}
	trace, err := g.openTrace(e.key, settings)
	if err == nil {
		err = g.openDownloads(e.key, &settings)
	}
	if settings.files != nil {
		defer settings.files.Close()
	}
	var s session
	var release func()
	if err == nil {
		s, release, err = create(ctx, e.key, settings)
	}
	if trace != nil {
		defer trace.Close()
	}
	g.mu.Lock()
	if err == nil {
		g.table.created(e, s.Used)
		g.sweepLocked()
	} else {
		g.table.drop(e)
		if ctx.Err() != nil {
			err = errEnded
		}
	}
	e.session, e.trace, e.err = s, trace, err
	close(e.ready)
	g.mu.Unlock()
	if err != nil {
		return
	}
	defer release()
	g.events.add(Event{Event: "created", Session: e.key.Name})
	defer g.events.add(Event{Event: "ended", Session: e.key.Name})
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	g.mu.Lock()
	g.table.drop(e)
	g.mu.Unlock()
	bounded, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	s.End(bounded) // pages that do not close end with Chrome
}

func (g *Registry) openTrace(k Key, settings Settings) (Trace, error) {
	if g.OpenTrace == nil {
		return nil, nil
	}
	return g.OpenTrace(k.Name, settings)
}

// attempts is how many Chromes are tried for a session, in case the first has
// just died; deathTimeout is how long its death may take to be noticed.
const (
	attempts     = 2
	deathTimeout = time.Second
)

// onChrome creates a session on the current Chrome.
func (g *Registry) onChrome(ctx context.Context, k Key, settings Settings) (session, func(), error) {
	options, err := settings.options(k.Kind == Named && k.Name == g.Default)
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

// Info describes a session to other programs.
type Info struct {
	Name      string `json:"name"`
	Anonymous bool   `json:"anonymous,omitempty"` // it ends by itself once no client is connected
	virtual.Stats
}

func infoOf(k Key, s *virtual.Session) Info {
	return Info{Name: k.Name, Anonymous: k.Kind != Named, Stats: s.Stats()}
}

// List returns the sessions, the oldest first.
func (g *Registry) List() []Info {
	all := []Info{}
	for k, s := range g.ready() {
		all = append(all, infoOf(k, s))
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// ready returns the sessions that have been created.
func (g *Registry) ready() map[Key]*virtual.Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[Key]*virtual.Session{}
	for k, e := range g.table.entries {
		if s, ok := e.session.(*virtual.Session); ok {
			all[k] = s
		}
	}
	return all
}

// entriesWhere returns the entries for which wanted returns true, including
// those that are still being created.
func (g *Registry) entriesWhere(wanted func(*entry) bool) (all []*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.table.entries {
		if wanted(e) {
			all = append(all, e)
		}
	}
	return all
}

// Find returns the session with this name, which must have been created.
func (g *Registry) Find(name string) (*virtual.Session, error) {
	for k, s := range g.ready() {
		if k.Name == name {
			return s, nil
		}
	}
	return nil, control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
}

// End ends the sessions with this name, and returns when nothing of them is
// left.
func (g *Registry) End(ctx context.Context, name string) error {
	all := g.entriesWhere(func(e *entry) bool { return e.key.Name == name })
	if len(all) == 0 {
		return control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
	}
	return g.endEntries(ctx, all)
}

// EndAll ends all sessions, and returns when nothing of them is left.
func (g *Registry) EndAll(ctx context.Context) error {
	return g.endEntries(ctx, g.entriesWhere(func(*entry) bool { return true }))
}

func (g *Registry) endEntries(ctx context.Context, all []*entry) error {
	g.mu.Lock()
	for _, e := range all {
		g.table.drop(e)
		e.end()
	}
	g.mu.Unlock()
	for _, e := range all {
		select {
		case <-e.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close ends all sessions for good.
func (g *Registry) Close() {
	g.mu.Lock()
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.EndAll(context.Background())
	g.running.Wait()
}
