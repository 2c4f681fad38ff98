package pool

import (
	"context"
	"slices"

	"btools/lib/record"
)

// maxEvents is how many events are kept for who asks late.
const maxEvents = 1024

// Event is something that happened to an instance.
type Event struct {
	Number   int64       `json:"number"` // of the service's events, from 1
	Time     record.Time `json:"time"`
	Event    string      `json:"event"` // leased, released, expired, restarted, drained, or the state that it is in now
	Pool     string      `json:"pool"`
	Instance string      `json:"instance"`
	Lease    string      `json:"lease,omitempty"`
	Why      string      `json:"why,omitempty"` // it failed
}

// events are the last events, under the service's lock.
type events struct {
	list    []Event
	last    int64
	changed chan struct{} // closed at the next event; nil while nobody waits
}

// eventLocked notes an event.
func (v *Service) eventLocked(event string, s *slot, lease, why string) {
	e := &v.events
	e.last++
	if len(e.list) >= 2*maxEvents {
		e.list = slices.Delete(e.list, 0, maxEvents)
	}
	e.list = append(e.list, Event{e.last, record.Now(), event, s.poolName, s.set.ID, lease, why})
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Events returns the events after the one with the number, of which the
// oldest may be lost; it waits until there is one. After -1 it returns only
// new ones, after a number that is yet to come, which is of the service before
// this one, all.
func (v *Service) Events(ctx context.Context, after int64) ([]Event, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := &v.events
	if after < 0 {
		after = e.last
	} else if after > e.last {
		after = 0
	}
	for e.last <= after {
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		more := e.changed
		v.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		v.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	from := max(0, len(e.list)-int(e.last-after))
	return slices.Clone(e.list[from:]), nil
}
