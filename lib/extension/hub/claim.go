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
	return h.await(ctx, func() (*Link, error) {
		for _, i := range h.connectedLocked() {
			if as != "" && i.claimedAsLocked(as) {
				return nil, fmt.Errorf("the name %q is in use", as)
			}
		}
		l := h.firstLocked(func(i Info) bool { return !i.Claimed && wanted(i) })
		if l != nil {
			l.Instance.claim = &claim{as}
			context.AfterFunc(ctx, func() { h.unclaim(l.Instance) })
		}
		return l, nil
	})
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
