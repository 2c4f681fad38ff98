package hub

import (
	"context"
	"fmt"
	"slices"
)

// Claimant is a holder of instances.
type Claimant struct {
	As string // finds the instance as its ID does; "": nothing does
	By string // may claim an instance several times; "": only once
}

// Claim returns the link of the first connected instance for which wanted is
// true and that no other has claimed, and waits for one until the context ends.
// The claim ends with the context, or with the instance. A holder that gives a
// name finds the instance by it, too. wanted must not wait.
func (h *Hub) Claim(ctx context.Context, who Claimant, wanted func(Info) bool) (*Link, error) {
	return h.await(ctx, func() (*Link, error) { return h.claimLocked(ctx, who, wanted) })
}

// TryClaim is Claim without waiting; it returns nil if there is no such instance.
func (h *Hub) TryClaim(ctx context.Context, who Claimant, wanted func(Info) bool) (*Link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimLocked(ctx, who, wanted)
}

func (h *Hub) claimLocked(ctx context.Context, who Claimant, wanted func(Info) bool) (*Link, error) {
	var l *Link
	for _, i := range h.connectedLocked() {
		if who.As != "" && i.claimedAsLocked(who.As) {
			return nil, fmt.Errorf("the name %q is in use", who.As)
		}
		if l == nil && i.isFreeLocked(who) && wanted(i.link.infoLocked()) {
			l = i.link
		}
	}
	if l != nil {
		claim := &who
		l.Instance.claims = append(l.Instance.claims, claim)
		context.AfterFunc(ctx, func() { h.unclaim(l.Instance, claim) })
	}
	return l, nil
}

func (h *Hub) unclaim(i *Instance, claim *Claimant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.claims = slices.DeleteFunc(i.claims, func(c *Claimant) bool { return c == claim })
	h.changed.Wake()
}

func (i *Instance) claimedAsLocked(name string) bool {
	return slices.ContainsFunc(i.claims, func(c *Claimant) bool { return c.As == name })
}

// isFreeLocked reports whether nobody else has claimed an instance.
func (i *Instance) isFreeLocked(who Claimant) bool {
	return !slices.ContainsFunc(i.claims, func(c *Claimant) bool { return who.By == "" || c.By != who.By })
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
