// Package sessions gives virtual browsers addresses. A Registry keeps the
// sessions on the current Chrome: it creates a session when its address is
// first used, and ends it when it is no longer used. Serve answers requests to
// a session's address as a browser's endpoint would.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/exit"
	"btools/lib/history"
	"btools/lib/record"
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
	// Max bounds the number of sessions that are not hibernated.
	Max int
	// Hibernate is how long a named session is not used until it is hibernated, once
	// no client is connected: it is saved to a file, and its part of the browser is
	// freed. Its next user gets it back. 0: never. MakeDir returns the directory for the files, which nobody
	// else may read, and Log takes what goes wrong.
	Hibernate time.Duration
	MakeDir   func(context.Context) (string, error)
	Log       *slog.Logger
	// Defaults are the settings of sessions that New has not created.
	Defaults Settings
	// OpenTrace, if not nil, opens the trace of a session; nil: it has none.
	OpenTrace func(name string, s Settings) (Trace, error)
	// OpenDownloads, if not nil, opens the downloads of a session, whose events
	// go to tell; if it is nil or returns nil, the browser puts them where it does.
	OpenDownloads func(name string, s Settings, tell func(event string, f downloads.File)) (*downloads.Files, error)
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
	create func(context.Context, Key, Settings) (session, func(), error) // set by tests

	mu      sync.Mutex
	table   table
	holds   map[string]bool // names of sessions that are held
	timer   wait.Timer
	closed  bool
	running sync.WaitGroup
}

// session is a *virtual.Session, or a fake one in tests.
type session interface {
	Used() time.Time
	Done() <-chan struct{}
	Err() error
	Snapshot(context.Context) (*virtual.Snapshot, error)
	Look(context.Context) (*virtual.Snapshot, error)
	Stats() api.Stats
	End(context.Context) error
}

// lifecycle is the running part of a session's entry.
type lifecycle struct {
	*creation
	trace Trace // nil: none
	files *downloads.Files
	end   context.CancelFunc
	gone  chan struct{} // closed when nothing of it is left

	hibernate, wake chan struct{} // each has room for one
	saved           chan struct{} // closed when it was hibernated or could not be, and then another one

	running *virtual.Saved // its running save, which its goroutine writes; nil: none yet
}

// creation is the creation of a session and what came of it. A session that was
// hibernated has another one.
type creation struct {
	ready    chan struct{} // closed when it has been created or has failed
	session  session       // nil also while it is hibernated
	err      error
	info     api.Session  // while it is hibernated
	restored *record.Time // when it came back; nil: it was never hibernated

	kept atomic.Pointer[record.Time] // as of when there is a running save; nil: there is none yet
}

// isOver reports whether a session has ended by itself.
func (c *creation) isOver() bool {
	return c != nil && c.session != nil && wait.Closed(c.session.Done())
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
func (g *Registry) New(ctx context.Context, name string, settings Settings) (api.Session, error) {
	if err := CheckName(name); err != nil {
		return api.Session{}, err
	}
	k := Key{Name: name}
	e, err := g.use(ctx, k, &settings)
	if err != nil {
		return api.Session{}, err
	}
	defer g.leave(e)
	return infoOf(k, e.creation), nil
}

// Hold reserves a named session for a holder: once a client has created it, it
// lasts until release ends it, however long nobody uses it. It fails if there is
// one with this name.
func (g *Registry) Hold(name string) (release func(), err error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	k := Key{Name: name}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.table.entries[k] != nil || g.holds[name] {
		return nil, control.Errorf(control.SessionExists, "there is already a session %q", name)
	}
	if g.holds == nil {
		g.holds = map[string]bool{}
	}
	g.holds[name] = true
	return func() {
		g.mu.Lock()
		delete(g.holds, name)
		e := g.table.entries[k]
		g.mu.Unlock()
		if e != nil {
			g.endEntries(context.Background(), []*entry{e})
		}
	}, nil
}

// use waits for a session. With settings, it must be new.
func (g *Registry) use(ctx context.Context, k Key, settings *Settings) (*entry, error) {
	e, c, err := g.enter(k, settings)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		g.leave(e)
		return nil, err
	}
	return e, nil
}

func (g *Registry) enter(k Key, settings *Settings) (*entry, *creation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, errClosed
	}
	if g.table.entries == nil {
		g.table = table{grace: g.Grace, idle: g.Idle, hibernate: g.Hibernate, max: g.Max,
			entries: map[Key]*entry{}}
	}
	if e := g.table.entries[k]; e != nil && e.isOver() && !g.crashedLocked(e) {
		g.table.drop(e) // before its own goroutine does: clients may return at once
	}
	if g.table.entries[k] != nil && settings != nil {
		e := control.Errorf(control.SessionExists, "there is already a session %q", k.Name)
		e.Hint = "bproxy session end " + k.Name + " ends it"
		return nil, nil, e
	}
	e, create, err := g.table.enter(k)
	switch {
	case err != nil:
		return nil, nil, err
	case create && e.creation != nil:
		now := time.Now()
		e.used = func() time.Time { return now }
		e.creation = &creation{ready: make(chan struct{}), info: e.info, restored: &record.Time{Time: now}}
		e.wake <- struct{}{}
	case create:
		ctx, cancel := context.WithCancel(context.Background())
		e.creation = &creation{ready: make(chan struct{})}
		e.gone, e.end = make(chan struct{}), cancel
		e.hibernate, e.wake = make(chan struct{}, 1), make(chan struct{}, 1)
		e.saved = make(chan struct{})
		e.isProfile = k.Kind == Named && k.Name == g.Default
		e.held = k.Kind == Named && g.holds[k.Name]
		if settings == nil {
			settings = &g.Defaults
		}
		g.running.Go(func() { g.run(ctx, e, *settings) })
	}
	return e, e.creation, nil
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

// sweepLocked ends the sessions whose time is over, has those hibernated that
// nobody uses, and schedules the next sweep.
func (g *Registry) sweepLocked() {
	now := time.Now()
	ended, drowsy, next, ok := g.table.expire(now)
	for _, e := range ended {
		e.end()
	}
	for _, e := range drowsy {
		e.hibernate <- struct{}{}
	}
	if ok {
		g.timer.Start(next.Sub(now), g.sweep)
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
	trace, err := g.openTrace(e.key, settings)
	if trace != nil {
		defer trace.Close()
	}
	if err == nil {
		err = g.openDownloads(e.key, &settings)
	}
	if settings.files != nil {
		defer settings.files.Close()
	}
	g.mu.Lock()
	e.trace, e.files = trace, settings.files
	g.mu.Unlock()
	create := g.create
	if create == nil {
		create = g.onChrome
	}
	event, why := "created", ""
	settings.keep = g.keeps(e.key)
	for {
		var s session
		var release func()
		if err == nil {
			s, release, err = create(ctx, e.key, settings)
		}
		asleep := g.created(ctx, e, s, err)
		if err == nil {
			g.addEvent(Event{Event: event, Session: e.key.Name, Kind: e.key.Kind})
			g.setRunning(e, settings.saved) // until there is a newer one
			settings.saved = g.await(ctx, e, s)
			why = ""
			if wait.Closed(s.Done()) {
				why = s.Err().Error()
			}
			end(s)
			release()
			asleep = settings.saved != nil
		}
		if asleep {
			event = "restored"
			g.addEvent(Event{Event: "hibernated", Session: e.key.Name, Why: why})
			asleep = e.awaitWake(ctx)
		}
		if !asleep {
			settings.saved.Remove()
			if event == "restored" || err == nil {
				g.addEvent(Event{Event: "ended", Session: e.key.Name, Kind: e.key.Kind})
			}
			return
		}
		err = nil
	}
}

// created notes that a session has been created, or why not. It reports whether
// it is hibernated as before.
func (g *Registry) created(ctx context.Context, e *entry, s session, err error) (asleep bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := e.creation
	defer close(c.ready)
	if err == nil {
		c.session = s
		g.table.created(e, s.Used)
		g.sweepLocked()
		return false
	}
	if c.err = err; ctx.Err() != nil {
		c.err = errEnded
	}
	if asleep = g.table.failed(e) && ctx.Err() == nil; asleep {
		e.creation = &creation{info: c.info}
	}
	return asleep
}

// await waits until a session ends or is hibernated; nil: it ends. A session whose
// Chrome has ended is hibernated with its running save.
func (g *Registry) await(ctx context.Context, e *entry, s session) *virtual.Saved {
	var due <-chan time.Time
	var last Looks
	if g.keeps(e.key) {
		ticks := time.NewTicker(LookEvery)
		defer ticks.Stop()
		due = ticks.C
	}
	for {
		select {
		case <-ctx.Done():
		case <-s.Done():
		case <-due:
			last.Look(s.Used(), func() { g.look(ctx, e, s) })
			continue
		case <-e.hibernate:
			if saved := g.hibernate(ctx, e, s); saved != nil {
				g.setRunning(e, nil)
				return saved
			}
			continue
		}
		g.mu.Lock()
		crashed := ctx.Err() == nil && (e.session != s || g.crashedLocked(e))
		if !crashed {
			g.table.drop(e)
		}
		saved := e.running
		e.running = nil
		g.mu.Unlock()
		select {
		case <-e.hibernate: // it was about to be hibernated
		default:
		}
		if !crashed {
			saved.Remove()
			return nil
		}
		return saved
	}
}

// end ends a session. Pages that do not close end with Chrome.
func end(s session) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	s.End(ctx)
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

// infoOf describes a session that has been created.
func infoOf(k Key, c *creation) api.Session {
	return api.Session{Name: k.Name, Anonymous: k.Kind != Named, Hibernation: api.Hibernation{RestoredAt: c.restored},
		KeptAt: c.kept.Load(), Stats: c.session.Stats()}
}

// List returns the sessions that have been created, the oldest first.
func (g *Registry) List() []api.Session {
	all := []api.Session{}
	created := map[Key]*creation{}
	g.mu.Lock()
	for k, e := range g.table.entries {
		switch {
		case e.session != nil:
			created[k] = e.creation
		case e.state == asleep:
			i := e.info
			i.IdleSeconds = time.Since(e.used()).Round(time.Millisecond).Seconds()
			all = append(all, i)
		}
	}
	g.mu.Unlock()
	for k, c := range created { // each asks the browser, without the lock
		all = append(all, infoOf(k, c))
	}
	slices.SortFunc(all, func(a, b api.Session) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
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

// Find returns the session with this name, which must exist; a hibernated one
// comes back. Call done when it is no longer used.
func (g *Registry) Find(ctx context.Context, name string) (s *virtual.Session, done func(), err error) {
	all := g.entriesWhere(func(e *entry) bool { return e.key.Name == name && e.state != creating })
	if len(all) == 0 {
		return nil, nil, control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
	}
	return g.Use(ctx, all[0].key)
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
	g.timer.Stop()
	g.mu.Unlock()
	g.EndAll(context.Background())
	g.running.Wait()
}
