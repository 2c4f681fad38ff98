package proxy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/wait"
)

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
	failed := p.try(ctx, b.epochAt(time.Now()), func(g *generation) (opened error) {
		if g.browser.Instance.Protocol == record.BiDi {
			err = errBiDi
			return nil
		}
		if browser, opened = g.shared.Get(ctx); opened == nil {
			b.addSession(g)
			release = func() { b.removeSession(g) }
		}
		return opened
	})
	return browser, release, cmp.Or(failed, err)
}

// sharing returns what opens the browser of a generation for sessions: once for all, and
// again if the connection is lost.
func (b *backend) sharing(g *generation) *wait.Starter[*virtual.Browser] {
	return &wait.Starter[*virtual.Browser]{
		Start: func() (*virtual.Browser, error) {
			ctx, cancel := context.WithTimeoutCause(g.opening, b.within, errors.New("its WebSocket did not answer"))
			defer cancel()
			return b.open(ctx, g)
		},
		Gone: func(s *virtual.Browser) error {
			if wait.Closed(s.Done()) {
				return virtual.ErrBrowserEnded
			}
			return nil
		},
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
		browser, err = virtual.Open(ctx, "ws://"+sibling.Addr(i)+path, b.log)
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
	s := g.shared.Running()
	return s != nil && s.LastActivity().After(then)
}

// closeShared ends the sessions of a generation that has ended.
func (b *backend) closeShared(g *generation) {
	g.stopOpening()
	if s := g.shared.Close(errStopping); s != nil {
		s.Close()
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
