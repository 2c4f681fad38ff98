package offer

import (
	"errors"
	"time"

	"btools/lib/pool/bus"
)

// Bounds of one gateway.
const (
	maxOpen     = 32     // offers without an answer
	maxWants    = 10_000 // in all queues
	firstPause  = 5 * time.Millisecond
	lastPause   = 200 * time.Millisecond
	maxSilent   = 2 // offers in a row without an answer
	maxLapsed   = 3 // offers in a row that were taken and not leased
	banLapses   = 20
	banInterval = 10 * time.Second
)

// gateways is what is known of gateways. It has no lock and no clock. Its zero value, made with make, has none.
type gateways map[gatewayKey]*gateway

// gatewayKey is a process of a user of NATS.
type gatewayKey struct{ user, id string }

// gateway is a gateway with wants.
type gateway struct {
	wants    map[string]*want
	open     int           // offers without an answer
	pause    time.Duration // after the last refusal
	until    time.Time     // end of that pause
	silent   int
	lapses   int       // in a row
	recently int       // lapses since
	since    time.Time // the begin of the interval
}

// want is a place in a queue.
type want struct {
	pool   string
	began  time.Time
	until  time.Time
	before int
	cancel func() // nil: it is not in the queue
}

// of returns a gateway.
func (all gateways) of(k gatewayKey) *gateway {
	g := all[k]
	if g == nil {
		g = &gateway{wants: map[string]*want{}}
		all[k] = g
	}
	return g
}

// drop forgets all wants, and returns them.
func (all gateways) drop() (ended []*want) {
	for k, g := range all {
		ended = append(ended, g.drop("")...)
		delete(all, k)
	}
	return ended
}

// clean forgets gateways of which nothing is to be remembered.
func (all gateways) clean(now time.Time) {
	for k, g := range all {
		if len(g.wants) == 0 && g.open == 0 && now.After(g.until) && now.Sub(g.since) > banInterval {
			delete(all, k)
		}
	}
}

// add adds a want. It reports whether there was room.
func (g *gateway) add(id string, w *want) bool {
	if len(g.wants) >= maxWants {
		return false
	}
	g.wants[id] = w
	return true
}

func (g *gateway) remove(id string) { delete(g.wants, id) }

// cancel removes wants, and returns them.
func (g *gateway) cancel(ids []string) (ended []*want) {
	for _, id := range ids {
		if w := g.wants[id]; w != nil {
			ended = append(ended, w)
			delete(g.wants, id)
		}
	}
	return ended
}

// drop removes the wants for a pool or, with "", all, and returns them.
func (g *gateway) drop(pool string) (ended []*want) {
	for id, w := range g.wants {
		if pool == "" || w.pool == pool {
			ended = append(ended, w)
			delete(g.wants, id)
		}
	}
	return ended
}

// later returns how long the gateway gets no offer; 0: it may have one now.
func (g *gateway) later(now time.Time) time.Duration {
	if g.open >= maxOpen {
		return firstPause
	}
	return max(0, g.until.Sub(now))
}

// result is what became of an offer.
type result int

const (
	accepted result = iota
	declined
	satisfied // declined, and the gateway has no request for the pool any more
	silent
	dead // nobody listens for the gateway
)

func outcome(a bus.Answer, err error) result {
	switch {
	case errors.Is(err, bus.ErrNobody):
		return dead
	case err != nil:
		return silent
	case a.Yes:
		return accepted
	case a.Left != nil && *a.Left == 0:
		return satisfied
	}
	return declined
}

// answered notes what became of an offer, and returns the wants that end by it.
func (g *gateway) answered(now time.Time, pool string, r result) (ended []*want) {
	g.open--
	if r != silent {
		g.silent = 0
	}
	switch r {
	case accepted:
		g.pause = 0
	case declined:
		g.pause = min(max(firstPause, 2*g.pause), lastPause)
		g.until = now.Add(g.pause)
	case silent:
		if g.silent++; g.silent >= maxSilent {
			return g.drop("")
		}
	case satisfied:
		return g.drop(pool)
	case dead:
		return g.drop("")
	}
	return nil
}

// over notes that the gateway has leased the slot of an offer that it had accepted, or has let it lapse. It returns
// the wants that end by that. After many lapses the gateway gets no offers for a while.
func (g *gateway) over(now time.Time, leased bool) (ended []*want) {
	if leased {
		g.lapses = 0
		return nil
	}
	if now.Sub(g.since) > banInterval {
		g.since, g.recently = now, 0
	}
	g.lapses++
	g.recently++
	if g.recently >= banLapses {
		g.until = now.Add(banInterval)
	}
	if g.lapses >= maxLapsed {
		g.lapses = 0
		return g.drop("")
	}
	return nil
}
