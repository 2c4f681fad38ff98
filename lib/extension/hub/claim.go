package hub

import (
	"context"
	"fmt"
)

// claim is one holder's right to an instance.
type claim struct {
	as string // finds the instance as its ID does; "": nothing does
}

// Claim returns the link of the first connected instance for which wanted is
// true and that nobody has claimed, and waits for one until the context ends.
// The claim ends with the context, or with the instance. A holder that gives a
// name finds the instance by it, too. wanted must not wait.
func (h *Hub) Claim(ctx context.Context, as string, wanted func(Info) bool) (*Link, error) {
	for {
		l, changed, err := h.tryClaim(ctx, as, wanted)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryClaim claims an instance that is there. If there is none, it returns what
// is closed when that may have changed.
func (h *Hub) tryClaim(ctx context.Context, as string, wanted func(Info) bool) (*Link, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errStopping
	}
	for _, i := range h.connectedLocked() {
		if as != "" && i.claimedAsLocked(as) {
			return nil, nil, fmt.Errorf("the name %q is in use", as)
		}
	}
	for _, i := range h.connectedLocked() {
		if i.claim != nil || !wanted(i.link.infoLocked()) {
			continue
		}
		i.claim = &claim{as}
		context.AfterFunc(ctx, func() { h.unclaim(i) })
		return i.link, nil, nil
	}
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return nil, h.changed, nil
}

func (h *Hub) unclaim(i *Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.claim = nil
	h.notifyLocked()
}

func (i *Instance) claimedAsLocked(name string) bool {
	return i.claim != nil && i.claim.as == name
}

// IsClaim reports whether a name is that of a claim.
func (h *Hub) IsClaim(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.instances {
		if name != "" && i.claimedAsLocked(name) {
			return true
		}
	}
	return false
}
