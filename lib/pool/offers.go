package pool

import (
	"crypto/rand"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
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

// Offers are the offers of a service.
type Offers struct {
	service *Service
	all     map[string]*offer // by ID; the service's lock guards it
	changed chan struct{}     // of capacity 1
}

func newOffers(v *Service) *Offers {
	return &Offers{service: v, all: map[string]*offer{}, changed: make(chan struct{}, 1)}
}

// Rooms returns how busy the pools are.
func (f *Offers) Rooms() (all []Room) {
	v := f.service
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

// Changed receives a value after changes of the rooms.
func (f *Offers) Changed() <-chan struct{} { return f.changed }

// note notes that a room has changed.
func (f *Offers) note() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Offer reserves a free instance of a pool. Unless the offer is returned, over is called when it has been leased, or
// has lapsed.
func (f *Offers) Offer(pool string, over func(leased bool)) (id string, ok bool) {
	v := f.service
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
	s.service.Offers.all[o.id] = o
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
	delete(o.slot.service.Offers.all, o.id)
}

// Return gives an offer back.
func (f *Offers) Return(id string) {
	f.service.mu.Lock()
	o := f.all[id]
	f.service.mu.Unlock()
	if o != nil {
		o.end()
	}
}

// errLapsed is the error of a request with an offer that has lapsed.
var errLapsed = control.Errorf(control.OfferLapsed, "the offer has lapsed")

// useOfferLocked returns the number of the instance of an offer to a pool, which ends.
func (p *pool) useOfferLocked(id string) (int, error) {
	o := p.service.Offers.all[id]
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
func (f *Offers) Want(pool string, began, until time.Time, serve func(offer string), over func(leased bool)) (
	cancel func(), before int, err error) {
	v := f.service
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
	var timer *time.Timer
	w, err := p.leases.Wait(book.Any, book.Unlimited, began, until, func(n int, err error) {
		timer.Stop()
		id := ""
		if err == nil {
			id = p.offerLocked(n, over)
		}
		v.running.Go(func() { serve(id) })
	})
	if err != nil {
		return nil, 0, err
	}
	end := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return p.leases.Cancel(w)
	}
	timer = time.AfterFunc(time.Until(until), func() {
		if end() {
			serve("")
		}
	})
	p.yieldLocked()
	return func() { timer.Stop(); end() }, w.Before(), nil
}
