package remote

import (
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
	boot     string // of the host's process
	leases   []held
	answered time.Time // when the last hold that was answered was sent
}

type held struct {
	id    string
	since time.Time // when its grant was requested
}

// Add notes a lease that the host has granted, for a request that was sent at a time.
func (h *Holds) Add(sent time.Time, lease, boot string) {
	h.leases = append(h.leases, held{lease, sent})
	if h.boot == "" || sent.After(h.answered) { // a grant is a sign of life
		h.boot, h.answered = boot, sent
	}
}

// Remove notes that a lease has been released.
func (h *Holds) Remove(lease string) {
	h.leases = slices.DeleteFunc(h.leases, func(l held) bool { return l.id == lease })
}

// Leases returns the IDs of the leases.
func (h *Holds) Leases() (ids []string) {
	for _, l := range h.leases {
		ids = append(ids, l.id)
	}
	return ids
}

// Answered notes the answer to a hold that was sent at a time, and returns the leases that the host does not have any
// more. Another process of the host has none of its leases that it does not name.
func (h *Holds) Answered(sent time.Time, boot string, gone []string) (lost []string) {
	if sent.Before(h.answered) {
		return nil // an answer that is older than another
	}
	h.answered, h.boot = sent, boot
	h.leases = slices.DeleteFunc(h.leases, func(l held) bool {
		// One that was granted after the hold was sent is none of its business.
		is := slices.Contains(gone, l.id) && !l.since.After(sent)
		if is {
			lost = append(lost, l.id)
		}
		return is
	})
	return lost
}

// Lost returns the leases that are lost at a time because the host has not answered, and when it must be called again;
// the zero time: there are no leases.
func (h *Holds) Lost(now time.Time) (lost []string, again time.Time) {
	if len(h.leases) == 0 {
		return nil, time.Time{}
	}
	if end := h.answered.Add(LossTime); end.After(now) {
		return nil, end
	}
	lost = h.Leases()
	h.leases = nil
	return lost, time.Time{}
}
