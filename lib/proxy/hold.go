package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"btools/lib/extension/hub"
	"btools/lib/fleet/book"
)

// Holder is who holds a browser that has joined.
type Holder struct {
	As string // finds the browser as its ID does; "": nothing does
	By string // may hold a browser several times; "": nobody does
}

// holds is who holds which browsers that have joined, and who waits for one. The hub's lock guards it.
type holds struct {
	free, launched book.Leases[*holding] // of the browsers that a person has started, and of those that a program has
	named          map[string]*named     // by the names of holders
}

// seat is the place of a browser in the book. It stays when the browser's connection is replaced.
type seat struct {
	in     *book.Leases[*holding]
	number int
	lease  *book.Lease[*holding] // nil: nobody holds it
	left   bool
}

// holding is what the holds of one program share.
type holding struct {
	by    string
	times int
}

// named is a hold with a name.
type named struct {
	*seat
	used map[string]bool // names of the sessions that were used below the name, which end with it
}

var errLeft = errors.New("the browser has left")

// isCalled reports whether a name is the ID or the port of an instance.
func isCalled(id string, port int, name string) bool { return id == name || strconv.Itoa(port) == name }

// enterLocked returns a seat for a browser that joins.
func (h *Hub) enterLocked(launched bool) *seat {
	s := &seat{in: &h.holds.free}
	if launched {
		s.in = &h.holds.launched
	}
	for h.atLocked(s.in, s.number) != nil {
		s.number++
	}
	return s
}

// atLocked returns the browser with a number in the book; nil: there is none.
func (h *Hub) atLocked(in *book.Leases[*holding], number int) *Joined {
	for _, j := range h.joined {
		if j.in == in && j.number == number {
			return j
		}
	}
	return nil
}

// leaveLocked forgets a browser that has left, and with it its holds.
func (h *Hub) leaveLocked(j *Joined) {
	delete(h.joined, j.Instance.ID)
	j.left = true
	j.in.Remove(j.number)
	j.in.Retire(j.number)
	j.in.FailBefore(j.number, time.Now(), errLeft)
	for name, n := range h.holds.named {
		if n.seat == j.seat {
			delete(h.holds.named, name)
		}
	}
}

// Hold returns a browser that nobody else holds: the one with an ID or a port, or with "" the longest connected of
// those that no program has launched. It waits for one until the context ends, in the order of the calls. The hold ends
// with the context, or when the browser leaves.
func (h *Hub) Hold(ctx context.Context, who Holder, name string) (*Joined, error) {
	for {
		if name != "" {
			if _, err := h.Join.Await(ctx, func(i hub.Info) bool { return isCalled(i.ID, i.Port, name) }); err != nil {
				return nil, err
			}
		}
		if j, err := h.hold(ctx, who, name); err != errLeft {
			return j, err
		}
	}
}

func (h *Hub) hold(ctx context.Context, who Holder, name string) (j *Joined, err error) {
	served := make(chan error, 1)
	h.mu.Lock()
	if j, err = h.takeLocked(ctx, who, name); j != nil || err != nil {
		h.mu.Unlock()
		return j, err
	}
	in, number := &h.holds.free, book.Any
	if name != "" {
		of := h.findLocked(name)
		if of == nil {
			h.mu.Unlock()
			return nil, errLeft
		}
		in, number = of.in, of.number
	}
	w, _ := in.Wait(number, math.MaxInt, time.Time{}, time.Time{}, func(n int, err error) {
		if err == nil {
			if err = h.checkNameLocked(who.As); err == nil {
				j = h.grantLocked(ctx, who, h.atLocked(in, n))
			} else {
				in.Put(n)
			}
		}
		served <- err
	})
	h.mu.Unlock()
	select {
	case err = <-served:
	case <-ctx.Done():
		h.mu.Lock()
		if in.Cancel(w) {
			served <- context.Cause(ctx)
		}
		h.mu.Unlock()
		err = <-served
	}
	return j, err
}

// TryHold returns a browser as Hold does, without waiting; nil: none is free.
func (h *Hub) TryHold(ctx context.Context, who Holder, name string) (*Joined, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.takeLocked(ctx, who, name)
}

// takeLocked holds a browser that is free, or that the holder may hold once more.
func (h *Hub) takeLocked(ctx context.Context, who Holder, name string) (*Joined, error) {
	if h.closed {
		return nil, errClosed
	}
	if err := h.checkNameLocked(who.As); err != nil {
		return nil, err
	}
	for _, j := range h.listLocked() {
		switch {
		case name == "" && j.in == &h.holds.launched, name != "" && !j.is(name):
			continue
		case j.lease != nil && who.By != "" && who.By == j.lease.Of.by:
		default:
			if _, ok := j.in.Take(j.number); !ok {
				continue
			}
		}
		return h.grantLocked(ctx, who, j), nil
	}
	return nil, nil
}

// checkNameLocked returns an error if a hold has a name.
func (h *Hub) checkNameLocked(name string) error {
	if h.holds.named[name] != nil {
		return fmt.Errorf("the name %q is in use", name)
	}
	return nil
}

// grantLocked gives a browser that was taken to a holder, until the context ends.
func (h *Hub) grantLocked(ctx context.Context, who Holder, j *Joined) *Joined {
	s := j.seat
	if s.lease == nil {
		s.lease = s.in.Hold(s.number, &holding{by: who.By}, time.Time{})
	}
	s.lease.Of.times++
	n := &named{seat: s, used: map[string]bool{}}
	if who.As != "" {
		h.holds.named[who.As] = n
	}
	context.AfterFunc(ctx, func() { h.release(n, who.As) })
	return j
}

// release ends a hold, and the sessions that were used below its name.
func (h *Hub) release(n *named, as string) {
	h.mu.Lock()
	if h.holds.named[as] == n {
		delete(h.holds.named, as)
	}
	s, l := n.seat, n.lease
	if l.Of.times--; l.Of.times == 0 {
		s.lease = nil
		s.in.Release(l)
		s.in.Free(l)
		if !s.left {
			s.in.Put(s.number)
		}
	}
	var j *Joined
	if !s.left {
		j = h.atLocked(s.in, s.number)
	}
	h.mu.Unlock()
	if j == nil {
		return // its sessions have ended
	}
	for session := range n.used {
		j.Sessions.End(context.Background(), session) // one that is not there has ended
	}
}

// IsHeld reports whether somebody holds a browser.
func (h *Hub) IsHeld(j *Joined) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return j.lease != nil
}
