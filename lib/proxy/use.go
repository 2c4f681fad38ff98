package proxy

import (
	"context"
	"time"

	"btools/lib/fleet/supply"
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
func (b *backend) addTunnel(g *supply.Chrome, t *tunnel, epoch <-chan struct{}) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !wait.Closed(epoch) && g.Connect(t)
}

func (b *backend) removeTunnel(g *supply.Chrome, t *tunnel) {
	last := g.Disconnect(t)
	close(t.done)
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
	if c := b.Status().Current; c != nil {
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
