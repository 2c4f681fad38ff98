// Package proxy is one stable debugging port, behind which the browser is
// launched only when somebody connects: it accepts, checks, launches on
// demand, and joins the connections.
package proxy

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"btools/lib/guard"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/virtual/sessions"
	"btools/lib/wait"
)

// Proxy is a proxy. Set its fields before Serve.
type Proxy struct {
	// Launch launches a browser with these options; typ is the type of the
	// one before it, "" at first.
	Launch func(ctx context.Context, o options.Options, typ string) (*launcher.Browser, error)
	// Foreign says that Launch only finds a browser that somebody else holds.
	Foreign bool
	// Overlap says that Launch may launch a browser while another one runs, if
	// they have not one profile. One that is replaced is then stopped only
	// when the new one is there.
	Overlap bool
	// State, if not nil, tells which browsers run on this machine. One of them
	// that a launcher has left behind is stopped.
	State *state.Store
	// Options are the options of the first launch.
	Options options.Options
	// Eager launches at once, not at the first connection.
	Eager bool
	// Idle is how long a browser is kept without a WebSocket; 0: for good.
	Idle time.Duration
	// Health is how the browser is looked at.
	Health Health
	// Direct has /json show the browser's own address.
	Direct bool
	// Guard checks every request before anything else.
	Guard guard.Guard
	// MaxConnections bounds the client connections that are open; 0: no bound.
	MaxConnections int
	// Sessions, if not nil, share the browser: each client sees its session as
	// a whole browser. Start says where they get the browser from.
	Sessions *sessions.Registry
	// Trace, if not nil, writes every message down.
	Trace *Trace
	// Changed, if not nil, is told of every launch and end of a browser.
	Changed func()
	Log     *slog.Logger

	answerTimeout time.Duration // how long a browser may take to answer; 0: answerTimeout
	backend       backend
	plain         *httputil.ReverseProxy
	limit         guard.Limit
	server        *http.Server
}

// Health says how often a browser is asked how it is, never if that is 0, and
// how long it may take to answer. One that does not is stopped, unless it is
// foreign.
type Health struct{ Interval, Timeout time.Duration }

// Start makes the proxy ready to Serve.
func (p *Proxy) Start() {
	p.backend = backend{launch: p.Launch, owned: !p.Foreign, idle: p.Idle, health: p.Health, overlap: p.Overlap,
		state: p.State, log: p.Log, changed: p.Changed, opts: p.Options, epoch: make(chan struct{})}
	if p.Changed == nil {
		p.backend.changed = func() {}
	}
	if p.answerTimeout == 0 {
		p.answerTimeout = answerTimeout
	}
	if p.Sessions != nil {
		p.Sessions.Chrome = p.chrome
	}
	p.limit.Max, p.limit.Flag = p.MaxConnections, "max-connections"
	p.plain = p.reverse()
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		ConnState: p.limit.State, ErrorLog: p.errorLog(), DisableGeneralOptionsHandler: true,
	}
}

// errorLog has what net/http says about bad clients at level debug.
func (p *Proxy) errorLog() *log.Logger { return slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug) }

// Serve serves the listeners until the context ends. It then closes them and
// all connections, stops the browser, and returns when that is gone.
func (p *Proxy) Serve(ctx context.Context, listeners ...net.Listener) error {
	failed := make(chan error, len(listeners))
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() { failed <- p.server.Serve(p.limit.Listener(l)) })
	}
	if p.Eager {
		wg.Go(func() {
			if err := p.Relaunch(ctx, options.Options{}, false); err != nil && ctx.Err() == nil {
				logFailure(p.Log, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	p.server.Close()
	if p.Trace != nil {
		// A trace that nobody reads holds up its connections.
		defer time.AfterFunc(time.Second, func() { p.Trace.Out.Close() }).Stop()
	}
	p.backend.close()
	if p.Sessions != nil {
		p.Sessions.Close()
	}
	wg.Wait()
	return err
}

// Relaunch launches the browser with these options over the last ones, if it
// does not run so already; force replaces it regardless. Why it failed is not
// logged: the caller knows.
func (p *Proxy) Relaunch(ctx context.Context, over options.Options, force bool) error {
	return p.backend.relaunch(ctx, over, force)
}

// Stop stops the browser and returns when it is gone. The next connection
// launches another one.
func (p *Proxy) Stop(ctx context.Context) error { return p.backend.stop(ctx) }

// CloseWebSockets closes the WebSockets that are open. Requests that wait for the browser
// fail: they do not become connections of a later time.
func (p *Proxy) CloseWebSockets() { p.backend.closeWebSockets() }

// States of the browser.
const (
	Foreign      = "foreign"      // somebody else's
	Unresponsive = "unresponsive" // somebody else's, and it did not answer when last asked
	Stopped      = "stopped"
	Launching    = "launching"
	Ready        = "ready"
	Stopping     = "stopping"
)

// Exits of browsers that the proxy has stopped and that were well.
var (
	ToldToStop  = errors.New("it was told to stop")
	Unused      = errors.New("nobody used it")
	SessionLeft = errors.New("a client left a session that cannot be ended")
)

// Status is how a proxy is.
type Status struct {
	State       string          `json:"state"`       // stopped, launching, ready, stopping, foreign, or unresponsive
	Owned       bool            `json:"owned"`       // false: somebody else launches and stops the browser
	Connections int             `json:"connections"` // of clients, WebSockets included
	WebSockets  int             `json:"websockets"`
	Launches    int             `json:"launches"` // so far
	Options     options.Options `json:"options"`
	// Of a browser that sessions share:
	ActiveSessions *int            `json:"active_sessions,omitempty"`
	Sessions       []sessions.Info `json:"sessions,omitempty"`

	Exit     error  `json:"-"`                   // why the last browser ended; nil: none has
	LastExit string `json:"last_exit,omitempty"` // the same, for people
	// why the last launch failed, or a foreign browser is unresponsive
	// LastError is why the last launch failed, or why a browser of another owner
	// is unresponsive.
	LastError string       `json:"last_error,omitempty"`
	LastCheck *record.Time `json:"last_check,omitempty"` // when the browser was last asked how it is
}

// Status returns how the proxy is, and the browser's record if it is ready.
func (p *Proxy) Status() (Status, *record.Record) {
	s, browser := p.status()
	if p.Sessions != nil {
		s.Sessions = p.Sessions.List()
		s.ActiveSessions = new(len(s.Sessions))
		for _, one := range s.Sessions {
			s.WebSockets += one.Clients
		}
	}
	return s, browser
}

func (p *Proxy) status() (Status, *record.Record) {
	b := &p.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{State: Stopped, Owned: b.owned, Connections: p.limit.Count(), Launches: b.launches, Options: b.opts,
		Exit: b.lastExit, LastError: b.lastError}
	if s.Exit != nil {
		s.LastExit = s.Exit.Error()
	}
	g := b.current
	if !b.owned {
		s.State = Foreign
	}
	if g == nil {
		return s, nil
	}
	s.WebSockets = len(g.open)
	if !g.checked.IsZero() {
		s.LastCheck = new(g.checked)
	}
	launched := wait.Closed(g.ready) && g.err == nil
	gone := wait.Closed(g.gone)
	switch {
	case !b.owned && launched:
		if g.checkErr != "" {
			s.State, s.LastError = Unresponsive, g.checkErr
		}
		return s, g.browser.Record
	case !b.owned:
	case gone || g.ending && !launched:
	case g.ending:
		s.State = Stopping
	case launched:
		s.State = Ready
		return s, g.browser.Record
	default:
		s.State = Launching
	}
	return s, nil
}
