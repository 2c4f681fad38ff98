package pool

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
	"btools/lib/tokens"
)

// An instance that is offered to a client of another machine is reserved for a short time. The offer is not a lease:
// Lease makes one of it, or it lapses.

// offerTime is the time until an offer lapses.
const offerTime = 2 * time.Second

// offer is an offer of an instance.
type offer struct {
	id    string
	slot  *slot
	timer *time.Timer       // that ends it
	over  func(leased bool) // unless it is returned; nil: nothing
}

// Room is how busy a pool is.
type Room struct {
	Pool    string
	Total   int
	Free    int
	Offered int
	Waiting int
	Drained bool
}

// Rooms returns how busy the pools are.
func (v *Service) Rooms() (all []Room) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pools {
		r := Room{Pool: p.cfg.Name, Total: len(p.slots), Drained: p.drained || v.closing}
		r.Free, r.Waiting = p.leases.Len()
		for _, s := range p.slots {
			if s.offer != nil {
				r.Offered++
			}
		}
		all = append(all, r)
	}
	return all
}

// RoomChanged receives a value after changes of the rooms.
func (v *Service) RoomChanged() <-chan struct{} { return v.roomChanged }

// noteRoom notes that a room has changed.
func (v *Service) noteRoom() {
	select {
	case v.roomChanged <- struct{}{}:
	default:
	}
}

// Offer reserves a free instance of a pool. Unless the offer is returned, over is called when it has been leased, or
// has lapsed.
func (v *Service) Offer(pool string, over func(leased bool)) (id string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pools.named(pool)
	if p == nil {
		return "", false
	}
	n, ok := p.leases.Take(book.Any)
	if !ok {
		return "", false
	}
	return p.offerLocked(n, over), true
}

// offerLocked makes an offer of an instance that was taken from the queue.
func (p *pool) offerLocked(n int, over func(leased bool)) (id string) {
	s := p.currentLocked().slots[n]
	o := &offer{id: rand.Text(), slot: s, over: over}
	s.offer = o
	s.service.offers[o.id] = o
	o.timer = time.AfterFunc(offerTime, func() {
		if o.end() && over != nil {
			over(false)
		}
	})
	return o.id
}

// end ends an offer, whose instance is free again. It reports whether it had not ended before.
func (o *offer) end() bool {
	v := o.slot.service
	v.mu.Lock()
	defer v.mu.Unlock()
	if o.slot.offer != o {
		return false
	}
	o.forgetLocked()
	if o.slot.retired {
		o.slot.stop()
	}
	o.slot.syncQueueLocked()
	return true
}

func (o *offer) forgetLocked() {
	o.timer.Stop()
	o.slot.offer = nil
	delete(o.slot.service.offers, o.id)
}

// Return gives an offer back.
func (v *Service) Return(id string) {
	v.mu.Lock()
	o := v.offers[id]
	v.mu.Unlock()
	if o != nil {
		o.end()
	}
}

// errLapsed is the error of a request with an offer that has lapsed.
var errLapsed = control.Errorf(control.OfferLapsed, "the offer has lapsed")

// useOfferLocked returns the number of the instance of an offer to a pool, which ends.
func (p *pool) useOfferLocked(id string) (int, error) {
	o := p.service.offers[id]
	if o == nil || o.slot.pool != p || o.slot.retired || o.slot.state != Healthy || p.drained {
		return 0, errLapsed
	}
	o.forgetLocked()
	if o.over != nil {
		p.service.running.Go(func() { o.over(true) })
	}
	return o.slot.number, nil
}

// Want queues a request for an instance of a pool, which began at a time. It calls serve in a goroutine of its own,
// with an offer as that of Offer, or with "" if there will be none until a time, unless cancel is called before.
func (v *Service) Want(pool string, began, until time.Time, serve func(offer string), over func(leased bool)) (
	cancel func(), before int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, err := v.pools.find(pool)
	switch {
	case err != nil:
		return nil, 0, err
	case v.closing:
		return nil, 0, errStopping
	case p.drained:
		return nil, 0, control.Errorf(control.Unavailable, "pool %s grants no leases", p.cfg.Name)
	}
	if n, ok := p.leases.Take(book.Any); ok {
		id := p.offerLocked(n, over)
		v.running.Go(func() { serve(id) })
		return func() {}, 0, nil
	}
	var w *book.Waiter
	end := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return p.leases.Cancel(w)
	}
	timer := time.AfterFunc(time.Until(until), func() {
		if end() {
			serve("")
		}
	})
	w, err = p.leases.Wait(book.Any, book.Unlimited, began, until, func(n int, err error) {
		timer.Stop()
		id := ""
		if err == nil {
			id = p.offerLocked(n, over)
		}
		v.running.Go(func() { serve(id) })
	})
	if err != nil {
		timer.Stop()
		return nil, 0, err
	}
	p.yieldLocked()
	return func() { timer.Stop(); end() }, w.Before(), nil
}

// HoldOn extends leases of a token by their time to live. It returns the leases of the token that have ended, those
// that this process does not have, and what waits until another one of them ends and returns it, or the context ends.
func (v *Service) HoldOn(t *tokens.Token, ids []string) (gone, elsewhere []string,
	ended func(context.Context) []string) {
	held := map[string]*lease{}
	v.mu.Lock()
	for _, id := range ids {
		l := v.leases[id]
		switch {
		case l == nil:
			elsewhere = append(elsewhere, id)
		case l.by.Token == nil || l.by.Token.Name != t.Name:
			gone = append(gone, id)
		default:
			held[id] = l
			l.expires = time.Now().Add(l.ttl)
			l.slot.pool.leases.Prolong(l.held, v.clock.until(l.ttl))
		}
	}
	v.mu.Unlock()
	return gone, elsewhere, func(ctx context.Context) (gone []string) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, l := range held {
			defer context.AfterFunc(l.ctx, cancel)()
		}
		<-ctx.Done()
		for id, l := range held {
			if l.ctx.Err() != nil {
				gone = append(gone, id)
			}
		}
		return gone
	}
}

// IsDrained reports whether no pool grants leases.
func (v *Service) IsDrained() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closing || !slices.ContainsFunc(v.pools, func(p *pool) bool { return !p.drained })
}
