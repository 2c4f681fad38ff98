package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/lifetime"
	"btools/lib/sibling"
	"btools/lib/state"
)

// backend owns the browser behind the proxy, which is launched on demand.
type backend struct {
	supply.Runner
	owned bool           // false: another program launches and stops it
	one   *OneConnection // to the browser; nil: there may be any number

	state   *state.Store // the browsers of this machine; nil: not known
	log     *slog.Logger
	changed func() // called at each launch and end
	// unconnected is called when the last WebSocket of a browser has closed.
	unconnected func()
	held        func() bool // somebody has been given the browser; nil: nobody

	mu         sync.Mutex    // not held while logging, which may block
	epoch      chan struct{} // closed by closeWebSockets; requests that arrived before it fail
	lastEpoch  chan struct{} // the one before, which is closed
	epochBegan time.Time
}

// errClosed is the error of requests after the end.
var errClosed = &exit.Error{Code: exit.TryAgain, Err: errors.New("the proxy is stopping")}

// acquire returns the browser, which is launched if none is running. The caller leaves it.
func (b *backend) acquire(ctx context.Context, epoch <-chan struct{}) (*supply.Chrome, error) {
	c, err := b.Enter()
	if err != nil {
		return nil, err
	}
	if err = b.Await(ctx, c, epoch); err == nil {
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
	if b.owned {
		b.log.Info("launched the browser", "type", c.Type(), "id", c.Browser.Instance.ID,
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
		b.log.Info("no " + use + " for " + c.Idle.Timeout.String() + ": stopping the browser")
	}
}

// Changed tells the proxy's owner.
func (b *backend) Changed() { b.changed() }

// Over logs why a browser has ended by itself.
func (b *backend) Over(c *supply.Chrome) error {
	exit := c.Cause()
	if c.EndedByItself() {
		log := b.log.Info
		switch exit = c.Browser.Err(); {
		case exit != nil:
			log = b.log.Warn
		case b.wasStopped(c.Browser.Instance.ID):
			exit = errors.New("it was stopped by blaunch stop or a signal")
		default:
			exit = errors.New("it ended by itself")
			if b.held != nil && b.held() {
				log = b.log.Warn
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
	if b.state == nil || id == "" {
		return false
	}
	f, err := b.state.Read()
	return err == nil && slices.ContainsFunc(f.Exits,
		func(e state.Exit) bool { return e.ID == id && e.Reason == lifetime.Stopped.Error() })
}

// errNotOwned is the error of commands to a browser of another program.
func (b *backend) errNotOwned() error {
	if b.owned {
		return nil
	}
	return control.Errorf(control.NotOwned, "this proxy does not own its browser: it cannot launch or stop it")
}

func (b *backend) relaunch(ctx context.Context, over options.Options, force bool) error {
	if err := b.errNotOwned(); err != nil {
		return err
	}
	return b.Relaunch(ctx, over, force)
}
