package proxy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"btools/lib/exit"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// backend is the owner of the proxy's Runner, and the WebSockets to its browser.
type backend struct {
	proxy *Proxy

	mu         sync.Mutex    // not held while logging, which may block
	epoch      chan struct{} // closed by closeWebSockets; requests that arrived before it fail
	lastEpoch  chan struct{} // epoch before this one, which is closed
	epochBegan time.Time
}

// errClosed is the error of requests after the end.
var errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the proxy is stopping")}

// errLate is the error of a browser that takes too long to be opened for sessions.
var errLate = errors.New("its WebSocket did not answer")

// acquire returns the browser, which is launched if none is running. The caller leaves it.
func (p *Proxy) acquire(ctx context.Context, epoch <-chan struct{}) (*supply.Chrome, error) {
	c, err := p.Enter()
	if err != nil {
		return nil, err
	}
	if err = p.Await(ctx, c, epoch); err == nil {
		return c, nil
	}
	if c.Failed() {
		c.LogFailure()
	}
	return nil, err
}

// Launched does nothing: who waits for the browser gets the error of its launch.
func (b *backend) Launched(_, _ *supply.Chrome, _ error) {}

// Running logs a launch.
func (b *backend) Running(c *supply.Chrome) {
	if !b.proxy.Spec.Foreign {
		b.proxy.Log.Info("launched the browser", "type", c.Type(), "id", c.Browser.Instance.ID,
			"endpoint", cmp.Or(sibling.Addr(c.Browser.Instance), "pipe"),
			"took_ms", time.Since(c.Began).Milliseconds())
	}
}

// Ending logs that a browser is stopped because it is idle.
func (b *backend) Ending(c *supply.Chrome) {
	use := "traffic" // what keeps a browser from being idle
	if c.Idle.ByConnections {
		use = "WebSocket"
	}
	if c.Cause() == supply.Unused {
		b.proxy.Log.Info("no " + use + " for " + c.Idle.Timeout.String() + ": stopping the browser")
	}
}

// Changed tells the proxy's owner.
func (b *backend) Changed() {
	if b.proxy.Changed != nil {
		b.proxy.Changed()
	}
}

// Over logs why a browser has ended by itself.
func (b *backend) Over(c *supply.Chrome) error {
	exit := c.Cause()
	if c.EndedByItself() {
		log := b.proxy.Log.Info
		switch exit = c.Browser.Err(); {
		case exit != nil:
			log = b.proxy.Log.Warn
		case b.wasStopped(c.Browser.Instance.ID):
			exit = errors.New("it was stopped by blaunch stop or a signal")
		default:
			exit = errors.New("it ended by itself")
			if b.proxy.Held != nil && b.proxy.Held() {
				log = b.proxy.Log.Warn
			}
		}
		log("the browser ended: " + exit.Error())
	}
	if c.Browser.Err() == nil {
		b.stopOrphan(c.Browser, c.Began) // its launcher may have been gone already
	}
	return exit
}

// wasStopped reports whether the browser's supervisor recorded that it was told
// to stop.
func (b *backend) wasStopped(id string) bool {
	if b.proxy.State == nil || id == "" {
		return false
	}
	f, err := b.proxy.State.Read()
	return err == nil && slices.ContainsFunc(f.Exits,
		func(e state.Exit) bool { return e.ID == id && e.Reason == lifetime.Stopped.Error() })
}

// epochAt returns the epoch of a request that arrived then, which fails when its epoch
// ends. Who may connect can change with closeWebSockets, and the request was checked
// after its arrival.
func (b *backend) epochAt(arrival time.Time) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !arrival.After(b.epochBegan) {
		return b.lastEpoch
	}
	return b.epoch
}

// addTunnel counts a WebSocket as use of the browser. It returns false if the
// browser is ending or the epoch has ended.
func (b *backend) addTunnel(g *supply.Chrome, t *tunnel, epoch <-chan struct{}) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !wait.Closed(epoch) && g.Connect(t)
}

func (b *backend) removeTunnel(g *supply.Chrome, t *tunnel) {
	last := g.Disconnect(t)
	close(t.done)
	if last && b.proxy.Unconnected != nil {
		b.proxy.Unconnected()
	}
}

// markClientGone notes that the client of a WebSocket is gone.
func (b *backend) markClientGone(t *tunnel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.clientGone = true
}

// awaitSessionEnd waits until each WebSocket of the generation has a client:
// the next session needs the one that is ending to be gone.
func (b *backend) awaitSessionEnd(ctx context.Context, g *supply.Chrome, epoch <-chan struct{}) error {
	for {
		var left <-chan struct{}
		b.mu.Lock()
		for _, c := range g.Conns() {
			if t := c.(*tunnel); t.clientGone {
				left = t.done
				break
			}
		}
		b.mu.Unlock()
		if left == nil {
			return nil
		}
		select {
		case <-left:
		case <-g.Done():
			return supply.ErrStopping
		case <-epoch:
			return supply.ErrCutOff
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// closeWebSockets closes the WebSockets of all clients, and fails the requests
// that wait for one.
func (b *backend) closeWebSockets() {
	b.mu.Lock()
	close(b.epoch)
	b.lastEpoch, b.epoch, b.epochBegan = b.epoch, make(chan struct{}), time.Now()
	var open []supply.Conn
	if c := b.proxy.Runner.Status().Current; c != nil {
		open = c.Conns()
	}
	for _, c := range open {
		c.(*tunnel).clientGone = true
	}
	b.mu.Unlock()
	for _, c := range open {
		c.(*tunnel).closeClient()
	}
}

// endDelay is how long a browser without an endpoint may take until it is seen
// to end.
const endDelay = 2 * time.Second

// reportUnreachable reports that a browser does not work as it should. If it
// does not end by itself, it is ended, provided that why is not nil. The result
// says whether the browser has ended or will end, so that the request can be
// tried with another one.
func (b *backend) reportUnreachable(g *supply.Chrome, why error) bool {
	if b.proxy.Spec.Foreign {
		return false
	}
	select {
	case <-g.Done():
		return true // the next user waits until it is gone
	case <-time.After(endDelay):
	}
	if why != nil {
		g.End(why) // the next user launches another one
	}
	return why != nil
}

// stopOrphan stops the browser of a launcher that exited before it, because no
// other program would. The record alone proves nothing: its process numbers may
// come from another machine. So the browser must be listed in the state file of
// this machine, have been launched since, and not be leased.
func (b *backend) stopOrphan(browser *sibling.Browser, since time.Time) {
	if b.proxy.State == nil || browser.Instance.ID == "" || browser.Record.Raw("lease") != nil {
		return
	}
	f, err := b.proxy.State.Read()
	if err != nil {
		return
	}
	entry := f.Instance(browser.Instance.ID)
	if entry == nil || entry.Record == nil || entry.Supervisor.PID != browser.Instance.SupervisorPID {
		return
	}
	var listed record.Instance
	if _, err := entry.Record.Get("instance", &listed); err != nil ||
		listed.StartedAt.Before(since.Truncate(time.Millisecond)) {
		return
	}
	if entry.Supervisor.Local() && entry.Supervisor.Signal(syscall.SIGTERM) == nil {
		b.proxy.Log.Warn("the launcher exited before its browser, which is stopped now: a launcher must run as long "+
			"as its browser, as blaunch --wait does", "id", browser.Instance.ID)
	}
}

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

// warnOfPort warns of what remains open by the debugging port of a browser that was opened for sessions.
func (p *Proxy) warnOfPort(ctx context.Context, browser *virtual.Browser) {
	if browser.KeepsPagesFromPort(ctx) {
		p.Log.Warn("the browser of the sessions has a debugging port: local programs, and pages of the session with " +
			"its own profile, can reach it and control all sessions; pages of other sessions cannot")
	} else {
		p.Log.Warn("the browser of the sessions has a debugging port: a page that goes there by itself controls the " +
			"whole browser, although sessions cannot open its address")
	}
}
