// Package sessions gives virtual browsers addresses. A Registry has sessions on
// whatever Chrome there is: one is created when its address is first used, and
// ends when nobody uses it any more. Serve is what the address answers, as a
// browser's endpoint would.
package sessions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Registry is a set of sessions. Set its fields before anything else, and Close
// it.
type Registry struct {
	// Chrome supplies the present Chrome, launched if need be. It is needed
	// until release is called.
	Chrome func(ctx context.Context) (b *virtual.Browser, release func(), err error)
	// Grace is how long an anonymous session lives after its last connection,
	// Idle how long a named one without a client's traffic; 0: for good.
	Grace, Idle time.Duration
	// Max bounds the sessions.
	Max int
	// TabLimit bounds the pages of each; 0: no bound.
	TabLimit int
	// Default is the name of the session that has the browser's profile; "":
	// none has.
	Default string
	// Root is the name of the session that the port's own address leads to; "":
	// each client gets a session of its own there.
	Root string

	create func(context.Context, Key) (session, func(), error) // a test's

	mu      sync.Mutex
	table   table
	timer   *time.Timer
	closed  bool
	running sync.WaitGroup
}

// session is a *virtual.Session.
type session interface {
	Used() time.Time
	Done() <-chan struct{}
	End(context.Context) error
}

// lifecycle is what runs a session.
type lifecycle struct {
	ready   chan struct{} // closed when it is there, or can't be
	session session
	err     error
	end     context.CancelFunc
	gone    chan struct{} // closed when nothing of it is left
}

// isOver reports whether a session has ended by itself.
func (l *lifecycle) isOver() bool {
	return l.session != nil && wait.Closed(l.session.Done())
}

// endTimeout is how long the pages of a session may take to close, before it is
// taken for ended.
const endTimeout = 5 * time.Second

var (
	errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the program is stopping")}
	errEnded  = &exit.Error{Code: exit.TryAgain, Err: errors.New("the session was ended while it was being created")}
)

// Use returns a session, which is created if it is not there: once, however
// many wait. Call done when it is not used any more.
func (g *Registry) Use(ctx context.Context, k Key) (s *virtual.Session, done func(), err error) {
	e, err := g.use(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	return e.session.(*virtual.Session), func() { g.leave(e) }, nil
}

func (g *Registry) use(ctx context.Context, k Key) (*entry, error) {
	e, err := g.enter(k)
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

func (g *Registry) enter(k Key) (*entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed
	}
	if g.table.entries == nil {
		g.table = table{grace: g.Grace, idle: g.Idle, max: g.Max, entries: map[Key]*entry{}}
	}
	if e := g.table.entries[k]; e != nil && e.isOver() {
		g.table.drop(e) // before its own goroutine does: its clients may be back at once
	}
	e, created, err := g.table.enter(k)
	if created {
		ctx, cancel := context.WithCancel(context.Background())
		e.ready, e.gone, e.end = make(chan struct{}), make(chan struct{}), cancel
		g.running.Go(func() { g.run(ctx, e) })
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

// sweepLocked ends the sessions whose time is over, and sees to it that it is
// called again when that of the next one is.
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

// run is the life of a session, until the context ends or the session does.
func (g *Registry) run(ctx context.Context, e *entry) {
	defer close(e.gone)
	defer e.end()
	create := g.create
	if create == nil {
		create = g.onChrome
	}
	s, release, err := create(ctx, e.key)
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
	e.session, e.err = s, err
	close(e.ready)
	g.mu.Unlock()
	if err != nil {
		return
	}
	defer release()
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	g.mu.Lock()
	g.table.drop(e)
	g.mu.Unlock()
	bounded, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	s.End(bounded) // pages that don't close end with Chrome
}

// attempts is how many Chromes are asked for a session, should the first one die
// just then; dying is how long that may take to be seen.
const (
	attempts     = 2
	deathTimeout = time.Second
)

// onChrome creates a session on the present Chrome.
func (g *Registry) onChrome(ctx context.Context, k Key) (session, func(), error) {
	for try := 1; ; try++ {
		b, release, err := g.Chrome(ctx)
		if err != nil {
			return nil, nil, err
		}
		s, err := b.NewSession(ctx, virtual.Options{Default: k.Kind == Named && k.Name == g.Default, TabLimit: g.TabLimit})
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

// Info is a session as others see it.
type Info struct {
	Name      string `json:"name"`
	Anonymous bool   `json:"anonymous,omitempty"` // it ends by itself when nobody is connected
	virtual.Stats
}

// List lists the sessions that are there, the oldest first.
func (g *Registry) List() []Info {
	all := []Info{}
	for k, s := range g.ready() {
		all = append(all, Info{Name: k.Name, Anonymous: k.Kind != Named, Stats: s.Stats()})
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// ready are those that are there.
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

// entriesWhere are the sessions that are wanted, with those that are being created.
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

// End ends the sessions with this name, and returns when nothing is left of
// them.
func (g *Registry) End(ctx context.Context, name string) error {
	all := g.entriesWhere(func(e *entry) bool { return e.key.Name == name })
	if len(all) == 0 {
		return control.Errorf(control.SessionNotFound, "there is no session %q", clip(name))
	}
	return g.endEntries(ctx, all)
}

// EndAll ends all sessions, and returns when nothing is left of them.
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
