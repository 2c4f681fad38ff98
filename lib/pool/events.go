package pool

import (
	"context"
	"slices"

	"btools/lib/record"
)

// maxEvents is the number of past events that are kept.
const maxEvents = 1024

// Event is a change of an instance.
type Event struct {
	Number   int64       `json:"number"` // counts the service's events from 1
	Time     record.Time `json:"time"`
	Event    string      `json:"event"` // leased, released, expired, restarted, drained, or the instance's new state
	Pool     string      `json:"pool"`
	Instance string      `json:"instance"`
	Lease    string      `json:"lease,omitempty"`
	Why      string      `json:"why,omitempty"` // the reason for a failure
}

// events holds the latest events. The service's lock protects it.
type events struct {
	list    []Event
	last    int64
	changed chan struct{} // closed at the next event; nil if nobody waits
}

// eventLocked records an event.
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

// Events returns the events after the given number and waits until there is at
// least one. The oldest of them may be lost. After -1 it returns only new
// events. A number that is still to come belongs to an earlier service: then it
// returns all events.
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
