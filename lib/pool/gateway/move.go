package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"btools/lib/pool"
	"btools/lib/pool/remote"
	"btools/lib/pool/web"
)

// A lease moves from a host that is emptied to another one, which gets its saved session. The gateway alone says where
// the lease is. Until the move is over nobody uses the lease: the host that it leaves has frozen it, requests wait
// here, and nobody else knows the new one. After an error or a death at any step it is at one host, or ends at both.

// Times of a move.
const (
	unusedTime = 200 * time.Millisecond // for which requests may take that have begun before
	freezeTime = 20 * time.Second       // until the session is saved and the lease is frozen
	readTime   = 10 * time.Second       // of the session
	roomTime   = 3 * time.Second        // until another host has room
	// moveTime is the time until the lease is at the other host, or stays. The host that it leaves ends it then, by
	// itself at the latest EndTime after the last hold, and before it thaws.
	moveTime = 40 * time.Second
	// stayTime is how long a lease is not moved again that was not.
	stayTime = 2 * time.Second
)

// maxMoves is the number of leases of a host that move at a time.
const maxMoves = 4

// spot is where a lease is: its host, its ID and instance there, and its address for those who know its secret,
// BASE/lease/ID.SECRET, or "" if it has no browser.
type spot struct {
	host     *host
	id       string
	url      string
	instance string
}

// isAtLocked reports whether the lease is at a place.
func (l *Lease) isAtLocked(at spot) bool { return l.at.host == at.host && l.at.id == at.id }

// place returns where the lease is.
func (l *Lease) place() spot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

// Host returns the name of the lease's host.
func (l *Lease) Host() string { return l.place().host.name }

// enter returns where the lease is, which stays so until leave is called. It waits while the lease moves.
func (l *Lease) enter(ctx context.Context) (at spot, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.moves != nil {
		over := l.moves
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if l.mu.Lock(); err != nil {
			return at, nil, err
		}
	}
	l.uses++
	return l.at, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uses--
		l.left.Wake()
	}, nil
}

// moveLocked begins to move leases of the host.
func (h *host) moveLocked(ids []string) {
	for _, id := range ids {
		if l := h.leases[id]; l != nil && l.isDue() {
			h.gateway.running.Go(func() {
				h.moves <- struct{}{}
				l.move(spot{host: h, id: id})
				<-h.moves
			})
		}
	}
}

// isDue reports whether the lease has to be moved, and notes that it will be.
func (l *Lease) isDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isMoving || time.Now().Before(l.again) {
		return false
	}
	l.isMoving = true
	return true
}

// move moves the lease away from a host, if it is still there.
func (l *Lease) move(from spot) {
	over := make(chan struct{})
	l.mu.Lock()
	isThere := l.ctx.Err() == nil && l.isAtLocked(from)
	if isThere {
		from, l.moves = l.at, over
	}
	l.mu.Unlock()
	again := stayTime
	if isThere {
		again = l.moveFrom(from)
	}
	l.mu.Lock()
	lost := l.lost
	l.isMoving, l.moves, l.carried, l.lost, l.again = false, nil, false, nil, time.Now().Add(again)
	l.mu.Unlock()
	close(over)
	if lost != nil {
		l.lose(*lost)
	}
}

// moveFrom moves the lease, and returns for how long it must not be tried again.
func (l *Lease) moveFrom(from spot) (again time.Duration) {
	g, log := l.gateway, l.gateway.options.Log.With("lease", l.ID, "from", from.host.name)
	if g.ctx.Err() != nil {
		return l.stay(from, errors.New("its gateway is stopping, or was upgraded"))
	}
	l.awaitUnused()
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, moveTime)
	defer cancel()
	freezing, stop := context.WithTimeout(ctx, freezeTime)
	status, err := g.call(freezing, from.host.url+"/freeze", ofLease(from.id), nil)
	stop()
	if err != nil && status != 0 { // such as that it is in use, which the host tells of
		return stayTime
	}
	var session []byte
	if err == nil {
		session, err = l.read(ctx, from)
	}
	var to *Lease
	if err == nil {
		l.mu.Lock()
		l.carried = true
		l.mu.Unlock()
		r := l.request
		r.Timeout, r.Not, r.Session = roomTime, []string{from.host.name}, session
		to, err = g.Lease(ctx, r)
	}
	if err == nil && !l.switchTo(ctx, to) {
		to.Release(context.WithoutCancel(ctx))
		err = context.Cause(ctx)
	}
	if err == nil {
		g.options.Count(LeaseMoved, "moved")
		log.Info("a lease has moved to another host", "to", l.Host(), "took_ms", time.Since(began).Milliseconds())
		l.mu.Lock()
		moved := l.moved
		l.mu.Unlock()
		if moved != nil {
			moved(from.host.name)
		}
		g.running.Go(func() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), remote.EndTime)
			defer cancel()
			from.host.ask(ending, "/release", map[string]any{"lease": from.id, "moved": true}, nil)
		})
		return 0
	}
	if l.ctx.Err() != nil {
		return 0
	}
	g.options.Count(LeaseMoved, "stayed")
	log.Warn("a lease has not moved to another host", "took_ms", time.Since(began).Milliseconds(), "error", err)
	return l.stay(from, err)
}

// stay thaws the lease, which has not moved, and returns for how long it must not be tried again.
func (l *Lease) stay(at spot, why error) time.Duration {
	ctx, cancel := context.WithTimeout(l.ctx, remote.EndTime)
	defer cancel()
	off := map[string]any{"lease": at.id, "off": true, "why": why.Error()}
	if at.host.ask(ctx, "/freeze", off, nil) == nil {
		return stayTime
	}
	return pool.FreezeTime // it thaws by itself, and a request that is late may still freeze it
}

// awaitUnused waits a moment for requests to end that have begun before the move.
func (l *Lease) awaitUnused() {
	late := time.After(unusedTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.uses > 0 {
		left := l.left.Next()
		l.mu.Unlock()
		select {
		case <-left:
			l.mu.Lock()
		case <-late:
			l.mu.Lock()
			return
		}
	}
}

// read reads the saved session of the lease, which is frozen; nil: nothing has used it yet.
func (l *Lease) read(ctx context.Context, from spot) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	resp, err := l.gateway.do(ctx, from.url+"/session", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, web.MaxSession))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the host %s: its answer is %s", from.host.name, resp.Status)
	case len(b) >= web.MaxSession:
		return nil, fmt.Errorf("its session has %d bytes or more", web.MaxSession)
	}
	return b, nil
}

// switchTo makes the place of another lease that of this one, and reports whether it has: the move is not late, and the
// lease has not ended. From then on the host that it leaves is not asked to let it go on.
func (l *Lease) switchTo(ctx context.Context, to *Lease) bool {
	l.mu.Lock()
	if ctx.Err() != nil {
		l.mu.Unlock()
		return false
	}
	from, now := l.at, to.place()
	l.at, l.carried, l.lost, l.heard = now, false, nil, 0
	l.mu.Unlock()
	from.host.remove(from.id)
	now.host.mu.Lock()
	isHeld := now.host.leases[now.id] == to
	if isHeld {
		now.host.leases[now.id] = l
	}
	now.host.mu.Unlock()
	if !isHeld {
		l.end(to.Why())
	}
	return true
}

// loss is why a host does not have a lease.
type loss struct {
	reason string // one of Results
	why    error
}

// loseAt ends the lease, unless it is on its way to another host with its session or has arrived there.
func (l *Lease) loseAt(at spot, why loss) {
	l.mu.Lock()
	isThere, carried := l.isAtLocked(at), l.carried
	if isThere && carried {
		l.lost = &why
	}
	l.mu.Unlock()
	if isThere && !carried {
		l.lose(why)
	}
}

// lose ends a lease that its host does not have.
func (l *Lease) lose(why loss) {
	l.gateway.options.Count(LeaseLost, why.reason)
	l.end(why.why)
}
