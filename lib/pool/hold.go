package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"btools/lib/control/api"
)

// Holding asks for leases to go on for their time to live. It is how a gateway says that it and its clients are alive.
type Holding struct {
	Leases []string       `json:"leases"`
	After  map[string]int `json:"after,omitempty"` // by lease: number of the last known line of its notices
	Wait   HoldTime       `json:"wait"`            // for which the answer may wait for news
}

// Held answers it.
type Held struct {
	Gone    []string               `json:"gone"`              // leases that have ended
	Unheard []string               `json:"unheard,omitempty"` // leases whose process has not answered
	Move    []string               `json:"move,omitempty"`    // leases that are to be moved now
	Notices map[string]api.Notices `json:"notices,omitempty"` // by lease: more lines, or its end
}

// HoldTime is a duration that JSON has as a string, such as 2s.
type HoldTime time.Duration

// maxHoldTime is how long the answer to a Holding waits at most.
const maxHoldTime = 10 * time.Second

// MarshalText returns the string.
func (t HoldTime) MarshalText() ([]byte, error) { return []byte(time.Duration(t).String()), nil }

// UnmarshalText reads it.
func (t *HoldTime) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf(`%q is no duration such as "2s"`, b)
	}
	*t = HoldTime(min(d, maxHoldTime))
	return nil
}

// HasNews reports whether there is something to tell.
func (h *Held) HasNews() bool { return len(h.Gone)+len(h.Move)+len(h.Notices) > 0 }

// Add adds what others have answered.
func (h *Held) Add(other Held) {
	h.Gone, h.Move = append(h.Gone, other.Gone...), append(h.Move, other.Move...)
	h.Unheard = append(h.Unheard, other.Unheard...)
	for id, n := range other.Notices {
		h.setNotices(id, n)
	}
}

func (h *Held) setNotices(id string, n api.Notices) {
	if h.Notices == nil {
		h.Notices = map[string]api.Notices{}
	}
	h.Notices[id] = n
}

// HoldOn extends leases of a token by their time to live, and waits for news of them, at most for the time of the
// request or until the context ends. Others has leases go on that this process does not know; nil: they are gone.
func (w View) HoldOn(ctx context.Context, p Holding, others func(context.Context, Holding) Held) Held {
	v, held, who := w.service, map[string]*lease{}, w.who.String()
	var known, there Held
	elsewhere := Holding{After: p.After, Wait: p.Wait}
	news := make(chan struct{}, 1)
	v.mu.Lock()
	for _, id := range p.Leases {
		switch l := v.leases[id]; {
		case l == nil:
			event := v.events.endOf(id)
			if event == "" || v.events.ownerOf(id) != who {
				elsewhere.Leases = append(elsewhere.Leases, id)
				continue
			}
			known.Gone = append(known.Gone, id)
			known.setNotices(id, api.Notices{Ended: EndReason(event, 0), Yielded: event == Yielded, Last: p.After[id]})
		case l.by.Token == nil || l.by.String() != who:
			known.Gone = append(known.Gone, id)
		default:
			held[id] = l
			l.gateway = true
			l.news = news // of the latest request alone
			l.expires = time.Now().Add(l.ttl)
			l.slot.pool.leases.Prolong(l.held, v.clock.until(l.ttl))
		}
	}
	v.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asked sync.WaitGroup
	switch {
	case len(elsewhere.Leases) == 0:
	case others == nil:
		there.Gone = elsewhere.Leases // which is no news
	default:
		asked.Go(func() {
			if there = others(ctx, elsewhere); there.HasNews() {
				cancel()
			}
		})
	}
	if v.awaitNews(ctx, p, held, news, &known); known.HasNews() {
		cancel()
	}
	asked.Wait()
	known.Add(there)
	return known
}

// awaitNews adds what is new of leases. If there is nothing, it waits for it, at most for the time of the request or
// until the context ends.
func (v *Service) awaitNews(ctx context.Context, p Holding, leases map[string]*lease, news <-chan struct{}, to *Held) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Wait))
	defer cancel()
	for {
		v.mu.Lock()
		drains := v.drains.Next()
		for id, l := range leases {
			if l.Notices.Has(p.After[id]) {
				to.setNotices(id, l.After(p.After[id]))
			}
			switch {
			case l.Ended != "":
				to.Gone = append(to.Gone, id)
			case l.isMovableLocked():
				to.Move = append(to.Move, id)
			}
		}
		v.mu.Unlock()
		if to.HasNews() || ctx.Err() != nil {
			return
		}
		select {
		case <-news:
		case <-drains:
		case <-ctx.Done():
		}
	}
}
