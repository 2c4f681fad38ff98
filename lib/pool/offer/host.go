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
	// Want queues a request that began at a time. It calls serve with an offer, or with "" if there will be none,
	// unless cancel was called before or until is over. Before is the number of requests before it.
	Want(pool string, began, until time.Time, serve func(id string), over func(leased bool)) (cancel func(), before int,
		err error)
	// Return gives an offer back.
	Return(id string)
	// Drain stops leasing from a pool or, with "", from all; with on false it starts again.
	Drain(pool string, on bool) (int, error)
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

	mu       sync.Mutex
	gateways gateways
	free     map[string]func()    // ends the subscriptions of a pool with room
	rooms    map[string]pool.Room // when they were last looked at
	n        uint64               // of loads
	ctx      context.Context
	running  sync.WaitGroup
}

// Times of offers.
const (
	offerTime = time.Second     // until a gateway has answered an offer
	maxAge    = time.Hour       // of a request
	loadTime  = 5 * time.Second // between two loads, unless the host is drained
)

// Run serves until the context ends. Changed receives a value after a change of the rooms.
func (h *Host) Run(ctx context.Context, changed <-chan struct{}) error {
	h.ctx, h.free, h.rooms, h.gateways = ctx, map[string]func(){}, map[string]pool.Room{}, gateways{}
	defer h.running.Wait()
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
			for _, stop := range h.free {
				stop()
			}
			return nil
		case <-changed:
		case <-tick.C:
			h.mu.Lock()
			h.gateways.clean(time.Now())
			h.mu.Unlock()
		}
	}
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
	for _, r := range h.Pools.Rooms() {
		drained = drained && r.Drained
		has := r.Free > 0 && r.Waiting == 0 && !r.Drained
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

// enter listens to the asks for a pool.
func (h *Host) enter(pool string) {
	stop, err := h.Bus.Subscribe(bus.FreeSubject(h.Region, pool, bus.All, bus.All, bus.All), bus.FreeGroup, h.ask)
	if err != nil {
		h.Log.Warn("cannot listen to requests for " + pool + ": " + err.Error())
		return
	}
	h.free[pool] = stop
}

// ask answers an ask with an offer, if there is still room.
func (h *Host) ask(m *bus.Message) {
	var a bus.Ask
	answer := bus.Offer{Code: bus.None, Host: h.Name}
	if m.Read(&a) == nil && !slices.Contains(a.Not, h.Name) {
		if id, ok := h.Pools.Offer(a.Pool, nil); ok {
			answer = h.offer(id, a.Pool, "")
		}
	}
	m.Answer(answer)
}

func (h *Host) offer(id, pool, want string) bus.Offer {
	return bus.Offer{ID: id, Pool: pool, Want: want, URL: h.URL, Host: h.Name, Boot: h.Boot}
}

// open offers a free slot to one gateway that waits.
func (h *Host) open(pool string) {
	id, ok := h.Pools.Offer(pool, nil)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, offerTime)
	defer cancel()
	var a bus.Answer
	err := h.Bus.Request(ctx, bus.OpenSubject(h.Region, pool, h.Name), h.offer(id, pool, ""), &a)
	if err != nil || !a.Yes {
		h.Pools.Return(id)
	}
}

// asked answers a message for this host alone.
func (h *Host) asked(m *bus.Message) {
	tokens := m.Tokens() // btools.v1.REGION.host.HOST.VERB.USER.GW
	if len(tokens) != 8 {
		return
	}
	switch tokens[5] {
	case "want":
		h.want("", m)
	case "cancel":
		var c bus.Cancel
		if m.Read(&c) == nil {
			h.mu.Lock()
			ended := h.gateways.of(key(tokens)).cancel(c.Wants)
			h.mu.Unlock()
			end(ended)
		}
	case "drain":
		var d bus.Drain
		if err := m.Read(&d); err == nil {
			_, err = h.Pools.Drain(d.Pool, !d.Off)
			m.Answer(map[string]any{"ok": err == nil, "error": text(err)})
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// key returns the part of a subject that names a gateway: its last two tokens.
func key(tokens []string) gatewayKey {
	n := len(tokens)
	return gatewayKey{tokens[n-2], tokens[n-1]}
}

// want gives a gateway a place in the queue of a pool.
func (h *Host) want(pool string, m *bus.Message) {
	var w bus.Want
	if m.Read(&w) != nil || w.Want == "" || w.Age < 0 || w.Timeout <= 0 {
		return
	}
	if pool == "" {
		pool = w.Pool
	}
	age := min(time.Duration(w.Age)*time.Millisecond, maxAge)
	now := time.Now()
	until := now.Add(time.Duration(w.Timeout) * time.Millisecond)
	before, err := h.queue(key(m.Tokens()), pool, w.Want, now.Add(-age), until)
	if err == nil {
		m.Answer(bus.Placed{Host: h.Name, Before: before})
	}
}

// queue queues a want, unless it is in the queue already.
func (h *Host) queue(of gatewayKey, pool, id string, began, until time.Time) (before int, err error) {
	h.mu.Lock()
	g := h.gateways.of(of)
	if w := g.wants[id]; w != nil {
		w.until = until
		before = w.before
		h.mu.Unlock()
		return before, nil
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
		func(leased bool) { h.over(of, leased) })
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.gateways.of(of)
	switch {
	case err != nil:
		g.remove(id)
	case g.wants[id] == w:
		w.cancel, w.before = cancel, before
	default:
		defer cancel() // it was cancelled or served meanwhile
	}
	return before, err
}

// serve offers a slot to a gateway, whose want is at the head of the queue.
func (h *Host) serve(of gatewayKey, id string, w *want, offer string) {
	h.mu.Lock()
	g := h.gateways.of(of)
	if g.wants[id] != w || offer == "" {
		if g.wants[id] == w {
			g.remove(id)
		}
		h.mu.Unlock()
		h.Pools.Return(offer)
		return
	}
	if later := g.later(time.Now()); later > 0 { // others first
		h.mu.Unlock()
		h.Pools.Return(offer)
		timer := time.AfterFunc(later, func() { h.wait(of, id, w) })
		context.AfterFunc(h.ctx, func() { timer.Stop() })
		return
	}
	g.remove(id)
	g.open++
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, offerTime)
	var a bus.Answer
	err := h.Bus.Request(ctx, bus.OfferSubject(h.Region, of.user, of.id, h.Name), h.offer(offer, w.pool, id), &a)
	cancel()
	if err != nil || !a.Yes {
		h.Pools.Return(offer)
	}
	h.mu.Lock()
	ended := g.answered(time.Now(), w.pool, outcome(a, err))
	h.mu.Unlock()
	end(ended)
}

// over notes that a gateway has leased the slot of an offer, or has let it lapse.
func (h *Host) over(of gatewayKey, leased bool) {
	h.mu.Lock()
	ended := h.gateways.of(of).over(time.Now(), leased)
	h.mu.Unlock()
	end(ended)
}

func end(wants []*want) {
	for _, w := range wants {
		if w.cancel != nil {
			w.cancel()
		}
	}
}

// Lost notes that the connection is gone: wants that are not repeated afterwards are forgotten.
func (h *Host) Lost() {
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
