package offer

import (
	"errors"
	"time"

	"btools/lib/pool/bus"
)

// Bounds of gateways.
const (
	maxOpen     = 32     // offers to a gateway without an answer
	maxWants    = 10_000 // of a user in all queues
	firstPause  = 5 * time.Millisecond
	lastPause   = 200 * time.Millisecond
	maxSilent   = 2  // offers in a row without an answer
	maxLapsed   = 3  // offers in a row that were taken and not leased
	banLapses   = 20 // the same, of a user
	banInterval = 10 * time.Second
	// hideTime is how long a host that gateways cannot reach hides from them.
	hideTime = 30 * time.Second
)

// gateways is what is known of gateways. It has no lock and no clock.
type gateways struct {
	users map[string]*user
	// Offers in a row that were taken and not leased: their number, and by whom.
	lapsed int
	by     string
	others bool // they were of several gateways
	hidden time.Time
}

// user is a user of NATS with gateways.
type user struct {
	gateways map[string]*gateway
	wants    int
	lapses   int       // in a row
	until    time.Time // end of a pause, or of the last offer that has lapsed
}

// gatewayKey is a process of a user.
type gatewayKey struct{ user, id string }

// gateway is a gateway with wants.
type gateway struct {
	user   *user
	wants  map[string]*want
	open   int           // offers without an answer
	pause  time.Duration // after the last refusal
	until  time.Time     // end of that pause
	silent int
	lapses int // in a row
}

// want is a place in a queue.
type want struct {
	pool   string
	began  time.Time
	until  time.Time
	before int
	cancel func() // nil: it is not in the queue
	silent bool   // its offer has no answer
}

// of returns a gateway.
func (all *gateways) of(k gatewayKey) *gateway {
	u := all.users[k.user]
	if u == nil {
		u = &user{gateways: map[string]*gateway{}}
		if all.users == nil {
			all.users = map[string]*user{}
		}
		all.users[k.user] = u
	}
	g := u.gateways[k.id]
	if g == nil {
		g = &gateway{user: u, wants: map[string]*want{}}
		u.gateways[k.id] = g
	}
	return g
}

// drop forgets all wants, and returns them.
func (all *gateways) drop() (ended []*want) {
	for _, u := range all.users {
		for _, g := range u.gateways {
			ended = append(ended, g.drop("")...)
		}
	}
	return ended
}

// clean forgets gateways and users of which nothing is to be remembered.
func (all *gateways) clean(now time.Time) {
	for name, u := range all.users {
		for id, g := range u.gateways {
			if len(g.wants) == 0 && g.open == 0 && now.After(g.until) {
				delete(u.gateways, id)
			}
		}
		if len(u.gateways) == 0 && now.Sub(u.until) > banInterval {
			delete(all.users, name)
		}
	}
}

// add adds a want. It reports whether there was room.
func (g *gateway) add(id string, w *want) bool {
	if g.user.wants >= maxWants || g.user.lapses >= banLapses {
		return false
	}
	g.user.wants++
	g.wants[id] = w
	return true
}

// remove removes a want, and returns it; nil: there is none.
func (g *gateway) remove(id string) *want {
	w := g.wants[id]
	if w != nil {
		g.user.wants--
		delete(g.wants, id)
	}
	return w
}

// drop removes the wants for a pool or, with "", all, and returns them.
func (g *gateway) drop(pool string) (ended []*want) {
	for id, w := range g.wants {
		if pool == "" || w.pool == pool {
			ended = append(ended, g.remove(id))
		}
	}
	return ended
}

// later returns how long the gateway gets no offer; 0: it may have one now.
func (g *gateway) later(now time.Time) time.Duration {
	if g.open >= maxOpen {
		return firstPause
	}
	return max(0, g.until.Sub(now), g.user.until.Sub(now))
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
		if g.until = now.Add(g.pause); g.pause == lastPause {
			return g.drop(pool) // it wants what it does not take
		}
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
// the wants that end by that. After many lapses without a lease its user gets no offers for a while, and has no wants
// until it leases or has been forgotten.
func (g *gateway) over(now time.Time, leased bool) (ended []*want) {
	u := g.user
	if leased {
		g.lapses, u.lapses = 0, 0
		return nil
	}
	u.until = now
	if u.lapses++; u.lapses >= banLapses {
		u.until = now.Add(banInterval)
		for _, g := range u.gateways {
			ended = append(ended, g.drop("")...)
		}
	}
	if g.lapses++; g.lapses >= maxLapsed {
		g.lapses = 0
		ended = append(ended, g.drop("")...)
	}
	return ended
}

// used notes that a gateway has used an offer, or could not. A host of which several gateways in a row could use no
// offer hides: it can be reached by NATS, and not by HTTPS.
func (all *gateways) used(now time.Time, by string, leased bool) {
	if leased {
		all.lapsed, all.others, all.hidden = 0, false, time.Time{}
		return
	}
	all.others = all.others || all.lapsed > 0 && all.by != by
	all.by = by
	if all.lapsed++; all.lapsed >= maxLapsed && all.others {
		all.lapsed, all.others, all.hidden = 0, false, now.Add(hideTime)
	}
}
