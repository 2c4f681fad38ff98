package proxy

import (
	"context"
	"maps"
	"slices"
)

// arrival is the present epoch: a request belongs to the one of its arrival,
// and is cut off at its end.
func (b *backend) arrival() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

func isOver(epoch <-chan struct{}) bool {
	select {
	case <-epoch:
		return true
	default:
		return false
	}
}

// enter counts a WebSocket as use of the browser; false if that is ending, or
// if the WebSocket's epoch is over.
func (b *backend) enter(g *generation, t *tunnel, epoch <-chan struct{}) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.over || isOver(epoch) {
		return false
	}
	g.open[t] = true
	b.running.Add(1) // not from zero: the generation runs
	return true
}

func (b *backend) leave(g *generation, t *tunnel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.running.Done()
	delete(g.open, t)
	close(t.left)
	b.restLocked(g)
}

// parting notes that a WebSocket has no client any more.
func (b *backend) parting(t *tunnel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.parting = true
}

// settled waits until no WebSocket of the generation is without a client: a
// session that is being ended makes room for the next.
func (b *backend) settled(ctx context.Context, g *generation, epoch <-chan struct{}) error {
	for {
		var left <-chan struct{}
		b.mu.Lock()
		for t := range g.open {
			if t.parting {
				left = t.left
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

// cutOff closes the WebSockets of the browser's clients, and has those that
// wait for one wait in vain.
func (b *backend) cutOff() {
	b.mu.Lock()
	close(b.epoch)
	b.epoch = make(chan struct{})
	var open []*tunnel
	if b.cur != nil {
		open = slices.Collect(maps.Keys(b.cur.open))
	}
	for _, t := range open {
		t.parting = true
	}
	b.mu.Unlock()
	for _, t := range open {
		t.part()
	}
}

// cut closes a browser's WebSockets.
func (b *backend) cut(g *generation) {
	b.mu.Lock()
	open := slices.Collect(maps.Keys(g.open))
	b.mu.Unlock()
	for _, t := range open {
		t.close()
	}
}

func (b *backend) idled(g *generation) {
	if b.endIdle(g) {
		b.log.Info("no WebSocket for " + b.idle.String() + ": stopping the browser")
	}
}

// endIdle ends a generation that nobody uses, and reports whether it did.
func (b *backend) endIdle(g *generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case g.over || len(g.open) > 0 || g.held > 0: // their end starts the timer anew
		return false
	case g.users > 0:
		g.idle.Reset(b.idle)
		return false
	}
	b.endLocked(g, Unused)
	return true
}
