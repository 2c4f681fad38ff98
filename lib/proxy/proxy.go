// Package proxy is a stable debugging port whose browser is launched when the
// first client connects. It accepts and checks requests, launches the browser
// on demand, and joins the connections. A Hub is such a port for browsers that
// come by themselves.
package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/http/httputil"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/state"
)

// Proxy is a proxy. Set its fields before Serve.
type Proxy struct {
	// Runner launches and stops the browser. The caller sets its Launch, Overlap and Options, and of its Spec
	// Foreign, One, Health and Idle, without Busy.
	supply.Runner
	// State, if not nil, lists the browsers of this machine. A browser that its
	// launcher has left behind is stopped, and none of them may connect.
	State *state.Store
	// Eager launches the browser, or connects to it by One, at once instead of at
	// the first connection.
	Eager bool
	// Direct shows the browser's own address in /json.
	Direct bool
	// Front serves the port: the caller sets its Guard, its Limit, and routes of its own.
	Front front.Front
	// Sessions, if not nil, share the browser: each client sees its session as
	// a browser of its own. Start sets where they get the browser.
	Sessions *fleet.Fleet
	// Trace, if not nil, records every message. Sessions have traces of their
	// own.
	Trace *Trace
	// Unconnected, if not nil, is called when the last WebSocket of a browser has
	// closed.
	Unconnected func()
	// Held, if not nil, reports whether somebody has been given the browser: then its end is worth a warning.
	Held func() bool
	// Changed, if not nil, is called at every launch and end of a browser.
	Changed func()
	Log     *slog.Logger

	answerTimeout time.Duration // limit of an answer of the browser; 0: answerTimeout
	backend       backend
	plain         *httputil.ReverseProxy
}

// Start makes the proxy ready to Serve.
func (p *Proxy) Start() {
	if p.answerTimeout == 0 {
		p.answerTimeout = answerTimeout
	}
	p.backend = backend{proxy: p, epoch: make(chan struct{})}
	p.Closed, p.Owner = errClosed, &p.backend
	p.Spec.Opened, p.Spec.Within, p.Spec.Late = p.warnOfPort, p.answerTimeout, errLate
	p.Spec.Grace, p.Spec.Log, p.Spec.Idle.Busy = endDelay, p.Log, isDownloading
	p.Front.Log = p.Log
	if p.State != nil {
		p.Front.Guard.Browsers = guard.NewBrowsers(p.State)
	}
	answer := p.serve
	switch {
	case p.Sessions != nil:
		p.Sessions.Chrome, p.Sessions.Foreign = p.chrome, p.Spec.Foreign
		answer = p.Sessions.Answer
	case p.Spec.One != nil:
		answer = p.serveOne
	default:
		p.plain = p.reverse()
	}
	p.Front.Routes = append(p.Front.Routes, front.Route{Answer: answer})
}

// Serve serves the listeners until the context ends. It then closes them and
// all connections, stops the browser, and returns when that is gone.
func (p *Proxy) Serve(ctx context.Context, listeners ...net.Listener) error {
	var wg sync.WaitGroup
	if p.Eager {
		wg.Go(func() {
			if err := p.begin(ctx); err != nil && ctx.Err() == nil {
				supply.LogFailure(p.Log, "no browser: ", err)
			}
		})
	}
	err := p.Front.Serve(ctx, nil, listeners...)
	if p.Trace != nil {
		// A trace that is not read blocks its connections.
		defer time.AfterFunc(time.Second, func() { p.Trace.Out.Close() }).Stop()
	}
	if p.Sessions != nil {
		p.Sessions.SaveAll()
	}
	p.Runner.Close()
	if p.Sessions != nil {
		p.Sessions.Close()
	}
	if p.Spec.One != nil {
		p.Spec.One.Close()
	}
	wg.Wait()
	return err
}

// begin launches the browser, or connects to it, before the first client.
func (p *Proxy) begin(ctx context.Context) error {
	if p.Spec.One != nil {
		return p.Spec.One.Await(ctx)
	}
	return p.Relaunch(ctx, options.Options{}, false)
}

// Relaunch launches the browser with these options on top of the last ones,
// unless it is already running with them; force replaces it in any case. A
// failure is returned and not logged.
func (p *Proxy) Relaunch(ctx context.Context, over options.Options, force bool) error {
	if err := p.errNotOwned(); err != nil {
		return err
	}
	return p.Runner.Relaunch(ctx, over, force)
}

// Stop stops the browser and returns when it is gone. The next connection
// launches another one.
func (p *Proxy) Stop(ctx context.Context) error {
	if err := p.errNotOwned(); err != nil {
		return err
	}
	return p.Runner.Stop(ctx, false)
}

// errNotOwned returns the error of commands to a browser of another program, or nil.
func (p *Proxy) errNotOwned() error {
	if !p.Spec.Foreign {
		return nil
	}
	return control.Errorf(control.NotOwned, "this proxy does not own its browser: it cannot launch or stop it")
}

// CloseWebSockets closes all open WebSockets. Requests that wait for the
// browser fail, so that none of them becomes a connection later.
func (p *Proxy) CloseWebSockets() { p.backend.closeWebSockets() }

// States of the browser.
const (
	Foreign      = "foreign"      // owned by another program
	Unresponsive = "unresponsive" // foreign, and it did not answer the last health check
	Stopped      = supply.Stopped
	Launching    = supply.Launching
	Ready        = supply.Ready
	Stopping     = supply.Stopping
)

// Status returns the proxy's state, and the browser's record if the browser is
// ready.
func (p *Proxy) Status() (api.ProxyStatus, *record.Record) {
	b := p.Runner.Status()
	s := api.ProxyStatus{State: b.State, Owned: !p.Spec.Foreign, Connections: p.Front.Limit.Count(),
		Launches: b.Launches, Options: b.Options}
	if b.Exit != nil {
		s.LastExit = b.Exit.Error()
	}
	if b.Failure != nil {
		s.LastError = b.Failure.Error()
	}
	if p.Spec.Foreign {
		s.State = Foreign
	}
	if p.Sessions != nil {
		s.Sessions = p.Sessions.List()
		s.ActiveSessions = new(len(s.Sessions))
		for _, one := range s.Sessions {
			s.WebSockets += one.Clients
		}
	}
	c := b.Current
	if c == nil {
		return s, nil
	}
	s.WebSockets += len(c.Conns())
	checked, checkErr := c.LastCheck()
	if !checked.IsZero() {
		s.LastCheck = new(checked)
	}
	if b.State == Ready {
		s.IdleSeconds = new(max(0, time.Since(c.LastUse()).Round(time.Millisecond).Seconds()))
	}
	if p.Spec.Foreign && checkErr != "" {
		s.State, s.LastError = Unresponsive, checkErr
	}
	if !c.WasLaunched() || !p.Spec.Foreign && b.State != Ready {
		return s, nil
	}
	return s, c.Browser.Record
}
