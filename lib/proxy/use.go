package proxy

import (
	"context"
	"maps"
	"slices"
	"time"

	"btools/lib/wait"
)

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
func (b *backend) addTunnel(g *generation, t *tunnel, epoch <-chan struct{}) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.ending || wait.Closed(epoch) {
		return false
	}
	g.open[t] = true
	g.used = time.Now()
	b.running.Add(1) // never from zero: the generation is running
	return true
}

func (b *backend) removeTunnel(g *generation, t *tunnel) {
	defer b.running.Done()
	b.mu.Lock()
	delete(g.open, t)
	close(t.done)
	g.used = time.Now()
	last := len(g.open) == 0 && !g.ending
	b.mu.Unlock()
	if last {
		b.unconnected()
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
func (b *backend) awaitSessionEnd(ctx context.Context, g *generation, epoch <-chan struct{}) error {
	for {
		var left <-chan struct{}
		b.mu.Lock()
		for t := range g.open {
			if t.clientGone {
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
		case <-g.end:
			return errStopping
		case <-epoch:
			return errCutOff
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
	var open []*tunnel
	if b.current != nil {
		open = slices.Collect(maps.Keys(b.current.open))
	}
	for _, t := range open {
		t.clientGone = true
	}
	b.mu.Unlock()
	for _, t := range open {
		t.closeClient()
	}
}

// closeTunnels closes a browser's WebSockets.
func (b *backend) closeTunnels(g *generation) {
	b.mu.Lock()
	open := slices.Collect(maps.Keys(g.open))
	b.mu.Unlock()
	for _, t := range open {
		t.close()
	}
}

// noteUse notes that a client has used the browser.
func (b *backend) noteUse(g *generation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g.used = time.Now()
}

// lastUseLocked returns when the browser was used last; now, while it is in use.
func (b *backend) lastUseLocked(g *generation) time.Time {
	if g.users > 0 || b.byConnections && (len(g.open) > 0 || g.sessions > 0) {
		return time.Now()
	}
	last := g.used
	if b.byConnections {
		return last
	}
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	for t := range g.open {
		later(t.lastUse())
	}
	if s := g.shared.Running(); s != nil {
		later(s.Used())
	}
	return last
}

// idleSince returns when the browser was used last.
func (b *backend) idleSince(g *generation) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastUseLocked(g)
}

// downloadChecks is how often a running download is checked during the idle
// time of a browser.
const downloadChecks = 10

// onIdle ends a generation that has not been used for the idle time, or
// schedules the next check.
func (b *backend) onIdle(g *generation) {
	if !b.byConnections && time.Since(b.idleSince(g)) >= b.idle && isDownloading(g.browser.Instance.PID) {
		b.mu.Lock()
		defer b.mu.Unlock()
		g.used = time.Now()
		g.idle.Reset(b.idle / downloadChecks)
		return
	}
	if b.endIdle(g) {
		b.log.Info("no " + b.useName() + " for " + b.idle.String() + ": stopping the browser")
	}
}

// useName names what keeps a browser from being idle.
func (b *backend) useName() string {
	if b.byConnections {
		return "WebSocket"
	}
	return "traffic"
}

// endIdle ends a generation whose idle time is over, and reports whether it did.
func (b *backend) endIdle(g *generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.ending {
		return false
	}
	if left := b.idle - time.Since(b.lastUseLocked(g)); left > 0 {
		g.idle.Reset(left)
		return false
	}
	b.endLocked(g, Unused)
	return true
}
