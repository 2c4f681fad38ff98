package proxy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"btools/lib/exit"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/virtual"
)

// errBiDi means that sessions cannot share the browser.
var errBiDi = &exit.Error{
	Code: exit.Unavailable,
	Err:  errors.New("the browser behind this port speaks WebDriver BiDi, and --isolate needs CDP"),
	Hint: "Firefox has one session at a time: bpool gives each client a Firefox of its own",
}

// chrome returns the browser for sessions and launches it if necessary. It
// counts as used until release is called.
func (p *Proxy) chrome(ctx context.Context, _ *fleet.Entry) (browser *virtual.Browser, u fleet.Use, err error) {
	b := &p.backend
	failed := p.try(ctx, b.epochAt(time.Now()), func(g *supply.Chrome) (opened error) {
		if g.Browser.Instance.Protocol == record.BiDi {
			err = errBiDi
			return nil
		}
		if browser, opened = g.Sessions(ctx); opened == nil {
			g.Hold()
			u.Ended = func(error) { g.Release() }
		}
		return opened
	})
	return browser, u, cmp.Or(failed, err)
}

// openPort opens a browser that has a debugging port, and warns of what remains open by
// it.
func (p *Proxy) openPort(ctx context.Context, of *sibling.Browser) (browser *virtual.Browser, err error) {
	path := ""
	if p.One != nil {
		browser, err = p.One.open(ctx, p.Log)
	} else if path, err = supply.SocketPath(ctx, of.Instance); err == nil {
		browser, err = virtual.Open(ctx, "ws://"+sibling.Addr(of.Instance)+path, p.Log)
	}
	switch {
	case err != nil:
		return nil, err
	case browser.KeepsPagesFromPort(ctx):
		p.Log.Warn("the browser of the sessions has a debugging port: local programs, and pages of the session with " +
			"its own profile, can reach it and control all sessions; pages of other sessions cannot")
	default:
		p.Log.Warn("the browser of the sessions has a debugging port: a page that goes there by itself controls the " +
			"whole browser, although sessions cannot open its address")
	}
	return browser, nil
}
