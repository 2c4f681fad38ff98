// Package offer is a host on NATS: it offers slots of its pools to gateways of other machines while it has room, and
// keeps places in its queues for them. An offer is not a lease: it lapses, unless its gateway leases it by HTTPS.
package offer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"btools/lib/pool"
	"btools/lib/pool/bus"
)

// Pools is what a host offers.
type Pools interface {
	// Rooms returns how busy the pools are.
	Rooms() []pool.Room
	// Offer reserves a free slot for a short time. It calls over when the offer is leased or has lapsed.
	Offer(pool string, over func(leased bool)) (id string, ok bool)
	// Want queues a request that began at a time, until another one. It calls serve with an offer, or with "" if there
	// will be none, unless cancel was called before. Before is the number of requests before it.
	Want(pool string, began, until time.Time, serve func(id string), over func(leased bool)) (cancel func(), before int,
		err error)
	// Return gives an offer back.
	Return(id string)
}

// Connection is a bus on which hosts are found.
type Connection interface {
	bus.Bus
	Announce(bus.Service) (stop func(), err error)
}

// Host is a host. Set its fields, and then call Run.
type Host struct {
	Bus     Connection
	Pools   Pools
	Name    string
	Region  string
	URL     string // of its HTTPS
	Boot    string // ID of this process
	Version string // as SemVer
	Log     *slog.Logger
	Drain   func(bus.Drain) bus.Drained // answers drain requests
	Count   func(result string)         // counts an offer by its result, one of Results; nil: nobody counts

	mu       sync.Mutex
	gateways gateways
	free     map[string]func()    // ends the subscriptions of a pool with room
	rooms    map[string]pool.Room // when they were last looked at
	n        uint64               // of loads
	away     *time.Timer          // while there is no connection
	other    string               // boot of the last other host of this name
	wake     chan struct{}        // of capacity 1
	ctx      context.Context
	running  sync.WaitGroup
}

// Times of offers.
const (
	offerTime = time.Second     // until a gateway has answered an offer
	maxAge    = time.Hour       // of a request, and of its want
	maxID     = 64              // bytes of the ID of a want
	loadTime  = 5 * time.Second // between two loads, unless the host is drained
	keepTime  = 5 * time.Second // for which wants last without a connection
)

// What becomes of an offer.
const (
	leasedOffer   = "accepted"
	declinedOffer = "declined"
	lapsedOffer   = "lapsed"      // a gateway took it and has not leased the slot
	unheardOffer  = "unreachable" // no gateway has answered it
)

// Results are what becomes of offers.
var Results = []string{leasedOffer, declinedOffer, lapsedOffer, unheardOffer}

// Run serves until the context ends. Changed receives a value after a change of the rooms.
func (h *Host) Run(ctx context.Context, changed <-chan struct{}) error {
	if h.Count == nil {
		h.Count = func(string) {}
	}
	h.ctx, h.free, h.rooms, h.wake = ctx, map[string]func(){}, map[string]pool.Room{}, make(chan struct{}, 1)
	defer h.running.Wait()
	defer func() {
		for _, stop := range h.free {
			stop()
		}
	}()
	defer h.lost()
	defer h.Changed(true)
	known := h.names()
	stop, err := h.announce(known)
	if err != nil {
		return err
	}
	defer func() { stop() }()
	own, err := h.Bus.Subscribe(bus.HostSubjects(h.Region, h.Name), "", h.asked)
	if err != nil {
		return err
	}
	defer own()
	twin, err := h.Bus.Subscribe(bus.LoadSubject(h.Region, h.Name), "", h.twin)
	if err != nil {
		return err
	}
	defer twin()
	tick := time.NewTicker(loadTime)
	defer tick.Stop()
	var told time.Time
	var drained bool
	for {
		was := drained
		drained = h.look()
		if names := h.names(); !slices.Equal(names, known) { // the configuration has changed
			stop()
			if stop, err = h.announce(names); err != nil {
				stop = func() {}
				return err
			}
			known = names
		}
		if time.Since(told) >= loadTime || drained != was {
			told = time.Now()
			h.Bus.Publish(bus.LoadSubject(h.Region, h.Name), h.load(false))
		}
		select {
		case <-ctx.Done():
			h.Bus.Publish(bus.LoadSubject(h.Region, h.Name), h.load(true))
			return nil
		case <-changed:
		case <-h.wake:
		case <-tick.C:
			h.mu.Lock()
			h.gateways.clean(time.Now())
			h.mu.Unlock()
		}
	}
}

// twin says so if another host that is found has the name of this one; its process after an upgrade has its address.
func (h *Host) twin(m *bus.Message) {
	var l bus.Load
	if m.Read(&l) != nil || l.Boot == h.Boot || l.URL == h.URL || l.Gone || l.Boot == h.other {
		return
	}
	h.other = l.Boot
	h.Log.Error("another host is called " + h.Name + ": that at " + l.URL + "; NATS_NAME gives each a name of its own")
}

// names returns the names of the pools.
func (h *Host) names() (names []string) {
	for _, r := range h.Pools.Rooms() {
		names = append(names, r.Pool)
	}
	return names
}

func (h *Host) announce(pools []string) (stop func(), err error) {
	return h.Bus.Announce(bus.Service{Host: h.Name, Region: h.Region, Version: h.Version, URL: h.URL, Boot: h.Boot,
		Pools: pools, Load: h.loadOf, Want: h.want})
}

// look compares the rooms with those of before: a pool with room is in the group of those, and each slot that has
// become free is offered to a gateway that waits. It reports whether all pools are drained.
func (h *Host) look() (drained bool) {
	drained = true
	h.mu.Lock()
	hidden := time.Now().Before(h.gateways.hidden)
	h.mu.Unlock()
	for _, r := range h.Pools.Rooms() {
		drained = drained && r.Drained
		has := r.Free > 0 && r.Waiting == 0 && !r.Drained && !hidden
		switch stop := h.free[r.Pool]; {
		case has && stop == nil:
			h.enter(r.Pool)
		case !has && stop != nil:
			stop()
			delete(h.free, r.Pool)
		}
		before := h.rooms[r.Pool]
		h.rooms[r.Pool] = r
		if has { // an offer that comes back makes no room
			for range min(r.Free+r.Offered-before.Free-before.Offered, r.Free) {
				h.running.Go(func() { h.open(r.Pool) })
			}
		}
	}
	return drained
}

// enter listens to the asks for a pool, and to those of the host's rank.
func (h *Host) enter(pool string) {
	var stops []func()
	for _, rank := range []string{bus.Any, bus.RankOf(h.Name)} {
		stop, err := h.Bus.Subscribe(bus.FreeSubject(h.Region, pool, rank, bus.All, bus.All), bus.FreeGroup, h.ask)
		if err != nil {
			h.Log.Warn("cannot listen to requests for " + pool + ": " + err.Error())
			break
		}
		stops = append(stops, stop)
	}
	h.free[pool] = func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ask answers an ask with an offer, if there is still room.
func (h *Host) ask(m *bus.Message) {
	var a bus.Ask
	answer := bus.Offer{Code: bus.None, Host: h.Name}
	if of, ok := key(m); ok && m.Read(&a) == nil && !slices.Contains(a.Not, h.Name) && h.mayOffer(of) {
		if id, ok := h.Pools.Offer(a.Pool, func(leased bool) { h.over(of, leased) }); ok {
			answer = h.offer(id, a.Pool, "")
		}
	}
	m.Answer(answer)
}

// mayOffer reports whether a gateway may have an offer now.
func (h *Host) mayOffer(of gatewayKey) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gateways.of(of).later(time.Now()) == 0
}

func (h *Host) offer(id, pool, want string) bus.Offer {
	return bus.Offer{ID: id, Pool: pool, Want: want, URL: h.URL, Host: h.Name, Boot: h.Boot}
}

// open offers a free slot to one gateway that waits.
func (h *Host) open(pool string) {
	var a bus.Answer // guarded by the lock
	id, ok := h.Pools.Offer(pool, func(leased bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if leased || a.By != "" {
			h.usedLocked(a.By, leased)
		} else {
			h.Count(unheardOffer)
		}
	})
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, offerTime)
	defer cancel()
	var got bus.Answer
	err := h.Bus.Request(ctx, bus.OpenSubject(h.Region, pool, h.Name), h.offer(id, pool, ""), &got)
	h.mu.Lock()
	a = got
	h.mu.Unlock()
	if isRefused(got, err) {
		h.Pools.Return(id)
		if err == nil {
			h.Count(declinedOffer)
		}
	}
}

// isRefused reports whether a gateway does not lease the slot of an offer. One whose answer is late may.
func isRefused(a bus.Answer, err error) bool {
	return !errors.Is(err, bus.ErrLate) && (err != nil || !a.Yes)
}

// asked answers a message for this host alone.
func (h *Host) asked(m *bus.Message) {
	of, ok := key(m)
	if !ok {
		return
	}
	switch m.Tokens()[5] { // btools.v1.REGION.host.HOST.VERB.USER.GW
	case "want":
		h.want("", m)
	case "cancel":
		var c bus.Cancel
		if m.Read(&c) == nil {
			for _, id := range c.Offers {
				h.Pools.Return(id)
			}
			var ended []*want
			h.mu.Lock()
			for _, id := range c.Wants {
				if w := h.gateways.of(of).remove(id); w != nil {
					ended = append(ended, w)
				}
			}
			h.mu.Unlock()
			end(ended)
		}
	case "drain":
		var d bus.Drain
		if err := m.Read(&d); err == nil {
			h.running.Go(func() { m.Answer(h.Drain(d)) })
		}
	}
}

// key returns the gateway that has sent a message: the last two of at least seven tokens of its subject.
func key(m *bus.Message) (of gatewayKey, ok bool) {
	tokens := m.Tokens()
	n := len(tokens)
	if n < 7 {
		return of, false
	}
	return gatewayKey{tokens[n-2], tokens[n-1]}, true
}

// want gives a gateway a place in the queue of a pool.
func (h *Host) want(pool string, m *bus.Message) {
	var w bus.Want
	of, ok := key(m)
	if !ok || m.Read(&w) != nil || w.Want == "" || len(w.Want) > maxID || w.Age < 0 || w.Timeout <= 0 {
		return
	}
	if pool == "" {
		pool = w.Pool
	}
	now := time.Now()
	ms := func(n int64) time.Duration { return time.Duration(min(n, maxAge.Milliseconds())) * time.Millisecond }
	before, err := h.queue(of, pool, w.Want, now.Add(-ms(w.Age)), now.Add(ms(w.Timeout)))
	if err == nil {
		m.Answer(bus.Placed{Host: h.Name, Before: before})
	}
}

// queue queues a want, unless it is in the queue already.
func (h *Host) queue(of gatewayKey, pool, id string, began, until time.Time) (before int, err error) {
	h.mu.Lock()
	g := h.gateways.of(of)
	if w := g.wants[id]; w != nil {
		defer h.mu.Unlock()
		return w.before, nil
	}
	w := &want{pool: pool, began: began, until: until}
	if !g.add(id, w) {
		h.mu.Unlock()
		return 0, errors.New("the gateway has too many wants")
	}
	h.mu.Unlock()
	return h.wait(of, id, w)
}

// wait has a want wait in the queue of its pool.
func (h *Host) wait(of gatewayKey, id string, w *want) (before int, err error) {
	cancel, before, err := h.Pools.Want(w.pool, w.began, w.until,
		func(offer string) { h.serve(of, id, w, offer) },
		func(leased bool) {
			h.mu.Lock()
			silent := w.silent
			h.mu.Unlock()
			if leased || !silent { // else it was not taken
				h.over(of, leased)
			} else {
				h.Count(unheardOffer)
			}
		})
	h.mu.Lock()
	g := h.gateways.of(of)
	stands := g.wants[id] == w
	switch {
	case !stands: // it was cancelled or served meanwhile
	case err != nil:
		g.remove(id)
	default:
		w.cancel, w.before = cancel, before
	}
	h.mu.Unlock()
	if !stands && err == nil {
		cancel()
	}
	return before, err
}

// serve offers a slot to a gateway, whose want is at the head of the queue.
func (h *Host) serve(of gatewayKey, id string, w *want, offer string) {
	h.mu.Lock()
	g := h.gateways.of(of)
	later := g.later(time.Now())
	if stands := g.wants[id] == w; !stands || offer == "" || later > 0 {
		if stands && offer == "" {
			g.remove(id)
		}
		h.mu.Unlock()
		h.Pools.Return(offer)
		if stands && offer != "" { // others first
			time.AfterFunc(later, func() { h.wait(of, id, w) })
		}
		return
	}
	g.remove(id)
	g.open++
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, offerTime)
	var a bus.Answer
	err := h.Bus.Request(ctx, bus.OfferSubject(h.Region, of.user, of.id, h.Name), h.offer(offer, w.pool, id), &a)
	cancel()
	if isRefused(a, err) {
		h.Pools.Return(offer)
		if err == nil {
			h.Count(declinedOffer)
		} else {
			h.Count(unheardOffer)
		}
	}
	h.mu.Lock()
	w.silent = errors.Is(err, bus.ErrLate)
	ended := g.answered(time.Now(), w.pool, outcome(a, err))
	h.mu.Unlock()
	end(ended)
}

// over notes that a gateway has leased the slot of an offer, or has let it lapse.
func (h *Host) over(of gatewayKey, leased bool) {
	h.mu.Lock()
	ended := h.gateways.of(of).over(time.Now(), leased)
	h.usedLocked(of.user+"."+of.id, leased)
	h.mu.Unlock()
	end(ended)
}

// usedLocked notes that a gateway has used an offer or not, after which the host may hide.
func (h *Host) usedLocked(by string, leased bool) {
	if leased {
		h.Count(leasedOffer)
	} else {
		h.Count(lapsedOffer)
	}
	h.gateways.used(time.Now(), by, leased)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Wants returns the number of places that gateways have in the queues.
func (h *Host) Wants() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.gateways.users {
		n += u.wants
	}
	return n
}

func end(wants []*want) {
	for _, w := range wants {
		if w.cancel != nil {
			w.cancel()
		}
	}
}

// Changed notes that the connection is up or down. If it is not back soon, wants are forgotten that gateways do not
// repeat afterwards.
func (h *Host) Changed(up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away != nil {
		h.away.Stop()
		h.away = nil
	}
	if !up {
		h.away = time.AfterFunc(keepTime, h.lost)
	}
}

// lost forgets all wants.
func (h *Host) lost() {
	h.mu.Lock()
	ended := h.gateways.drop()
	h.mu.Unlock()
	end(ended)
}

// load returns the load of the host.
func (h *Host) load(gone bool) bus.Load {
	h.mu.Lock()
	h.n++
	l := bus.Load{N: h.n, Boot: h.Boot, Host: h.Name, Region: h.Region, Version: h.Version, URL: h.URL, Gone: gone,
		Draining: true}
	h.mu.Unlock()
	for _, r := range h.Pools.Rooms() {
		l.Draining = l.Draining && r.Drained
		l.Pools = append(l.Pools, bus.PoolLoad{Name: r.Pool, Total: r.Total, Free: r.Free, Waiting: r.Waiting})
	}
	return l
}

// loadOf returns the load of the host with one pool.
func (h *Host) loadOf(pool string) bus.Load {
	l := h.load(false)
	l.Pools = slices.DeleteFunc(l.Pools, func(p bus.PoolLoad) bool { return p.Name != pool })
	return l
}
