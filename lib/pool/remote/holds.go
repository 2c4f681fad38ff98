package remote

import (
	"maps"
	"slices"
	"time"
)

// Times of a lease on another host. The host ends it EndTime after the last hold arrived; its gateway counts LossTime
// from when it sent the last hold that was answered, so it knows first, at clock rates that differ by up to 20 %.
const (
	HoldTime = 2 * time.Second
	LossTime = 8 * time.Second
	EndTime  = 10 * time.Second
)

// Holds is the leases of one gateway on one host, and when they are lost. Its zero value has none.
type Holds struct {
	leases map[string]time.Time // when the last request was sent by which the host has them go on
}

// Add notes a lease that the host has granted, for a request that was sent at a time.
func (h *Holds) Add(sent time.Time, lease string) {
	if h.leases == nil {
		h.leases = map[string]time.Time{}
	}
	h.leases[lease] = sent
}

// Remove notes that a lease has been released.
func (h *Holds) Remove(lease string) { delete(h.leases, lease) }

// Leases returns the IDs of the leases.
func (h *Holds) Leases() []string { return slices.Sorted(maps.Keys(h.leases)) }

// Answered notes the answer to a hold of leases that was sent at a time, and returns those that the host does not have
// any more. The host has not had others go on, such as one that it has granted meanwhile.
func (h *Holds) Answered(sent time.Time, leases, gone []string) (lost []string) {
	for _, id := range leases {
		if last, is := h.leases[id]; is && sent.After(last) {
			h.leases[id] = sent
		}
	}
	for _, id := range gone {
		if _, is := h.leases[id]; is {
			delete(h.leases, id)
			lost = append(lost, id)
		}
	}
	return lost
}

// Lost returns the leases that are lost at a time because the host has not answered, and when it must be called again;
// the zero time: there are no leases.
func (h *Holds) Lost(now time.Time) (lost []string, again time.Time) {
	for id, last := range h.leases {
		end := last.Add(LossTime)
		switch {
		case !end.After(now):
			delete(h.leases, id)
			lost = append(lost, id)
		case again.IsZero() || end.Before(again):
			again = end
		}
	}
	return lost, again
}
