package proxy

import (
	"context"
	"errors"
	"time"

	"btools/lib/exit"
	"btools/lib/launcher"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// shared is a browser that sessions share, from the decision to connect to it.
type shared struct {
	ready   chan struct{} // closed when it is open or has failed to open
	cancel  context.CancelFunc
	browser *virtual.Browser
	err     error
}

// isOver reports whether the browser must be opened again.
func (s *shared) isOver() bool {
	return wait.Closed(s.ready) && (s.err != nil || wait.Closed(s.browser.Done()))
}

// errBiDi means that sessions cannot share the browser.
var errBiDi = &exit.Error{
	Code: exit.Unavailable,
	Err:  errors.New("the browser behind this port speaks WebDriver BiDi, and --isolate needs CDP"),
	Hint: "Firefox has one session at a time: bpool gives each client a Firefox of its own",
}

// chrome returns the browser for sessions and launches it if necessary. It
// counts as used until release is called.
func (p *Proxy) chrome(ctx context.Context) (browser *virtual.Browser, release func(), err error) {
	b := &p.backend
	epoch := b.epochAt(time.Now())
	for try := 1; ; try++ {
		g, err := b.acquire(ctx, epoch)
		if err != nil {
			return nil, nil, err
		}
		if g.browser.Instance.Protocol == record.BiDi {
			b.release(g)
			return nil, nil, errBiDi
		}
		browser, err := b.share(ctx, g, p.answerTimeout)
		if err == nil {
			b.addSession(g)
			b.release(g)
			return browser, func() { b.removeSession(g) }, nil
		}
		b.release(g)
		if try == attempts || ctx.Err() != nil || !b.reportUnreachable(g, g.stopReason(err)) {
			return nil, nil, noAnswer(err)
		}
	}
}

// share connects sessions to a generation's browser: once, until the connection
// is lost.
func (b *backend) share(ctx context.Context, g *generation, within time.Duration) (*virtual.Browser, error) {
	b.mu.Lock()
	s := g.shared
	switch {
	case g.ending:
		b.mu.Unlock()
		return nil, errStopping
	case s == nil || s.isOver():
		opening, cancel := context.WithTimeoutCause(context.Background(), within,
			errors.New("its WebSocket did not answer"))
		s = &shared{ready: make(chan struct{}), cancel: cancel}
		g.shared = s
		b.running.Go(func() { // never from zero: the generation is running
			defer cancel()
			s.browser, s.err = b.open(opening, g)
			close(s.ready)
		})
	}
	b.mu.Unlock()
	select {
	case <-s.ready:
		return s.browser, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (b *backend) open(ctx context.Context, g *generation) (browser *virtual.Browser, err error) {
	if g.mux != nil {
		browser, err = virtual.OpenOn(ctx, virtual.Over(g.mux), b.log)
	} else {
		browser, err = b.openPort(ctx, g.browser.Instance)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return browser, err
}

// openPort opens a browser that has a debugging port, and warns of what remains open by
// it.
func (b *backend) openPort(ctx context.Context, i record.Instance) (browser *virtual.Browser, err error) {
	path := ""
	if b.one != nil {
		browser, err = b.one.open(ctx, b.log)
	} else if path, err = socketPath(ctx, i); err == nil {
		browser, err = virtual.Open(ctx, "ws://"+launcher.Addr(i)+path, b.log)
	}
	switch {
	case err != nil:
		return nil, err
	case browser.KeepsPagesFromPort(ctx):
		b.log.Warn("the browser of the sessions has a debugging port: local programs, and pages of the session with " +
			"its own profile, can reach it and control all sessions; pages of other sessions cannot")
	default:
		b.log.Warn("the browser of the sessions has a debugging port: a page that goes there by itself controls the " +
			"whole browser, although sessions cannot open its address")
	}
	return browser, nil
}

// activeSince reports whether a generation's browser has sent anything to a
// session since then.
func (b *backend) activeSince(g *generation, then time.Time) bool {
	b.mu.Lock()
	s := g.shared
	b.mu.Unlock()
	if s == nil {
		return false
	}
	select {
	case <-s.ready:
		return s.browser != nil && s.browser.LastActivity().After(then)
	default:
		return false
	}
}

// closeShared ends the sessions of a generation that has ended.
func (b *backend) closeShared(g *generation) {
	b.mu.Lock()
	s := g.shared
	b.mu.Unlock()
	if s == nil {
		return
	}
	s.cancel()
	<-s.ready
	if s.browser != nil {
		s.browser.Close()
	}
}

// addSession counts a session as use of the browser, whether or not a client is
// connected to it.
func (b *backend) addSession(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.sessions++
}

// removeSession ends that use.
func (b *backend) removeSession(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.sessions--
	if b.byConnections {
		g.used = time.Now()
	}
}
