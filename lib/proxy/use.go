package proxy

import (
	"context"
	"maps"
	"slices"

	"btools/lib/wait"
)

// currentEpoch returns the present epoch. A request belongs to the epoch of its
// arrival and fails when that ends.
func (b *backend) currentEpoch() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
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
	b.running.Add(1) // never from zero: the generation is running
	return true
}

func (b *backend) removeTunnel(g *generation, t *tunnel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.running.Done()
	delete(g.open, t)
	close(t.done)
	b.startIdleTimerLocked(g)
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
	b.epoch = make(chan struct{})
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

func (b *backend) onIdle(g *generation) {
	if b.endIdle(g) {
		b.log.Info("no WebSocket for " + b.idle.String() + ": stopping the browser")
	}
}

// endIdle ends a generation without users, and reports whether it did.
func (b *backend) endIdle(g *generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case g.ending || len(g.open) > 0 || g.sessions > 0: // when these end, the timer starts again
		return false
	case g.users > 0:
		g.idle.Reset(b.idle)
		return false
	}
	b.endLocked(g, Unused)
	return true
}
