package pool

import (
	"context"
	"slices"
	"sync"

	"btools/lib/downloads"
	"btools/lib/record"
)

// maxEvents is the number of past events that are kept.
const maxEvents = 1024

// Event is a change of an instance.
type Event struct {
	Number int64       `json:"number"` // counts the service's events from 1
	Time   record.Time `json:"time"`
	// Event is leased, released, expired, restarted, drained, the instance's new
	// state, download_started, downloaded, or download_failed.
	Event    string `json:"event"`
	Pool     string `json:"pool"`
	Instance string `json:"instance"`
	Lease    string `json:"lease,omitempty"`
	Why      string `json:"why,omitempty"` // the reason for a failure
	// Download is the file of download_started, downloaded and download_failed.
	Download *downloads.File `json:"download,omitempty"`
}

// events holds the latest events. Its lock is held by nobody who waits for
// another one: sessions report their downloads with their browser's lock.
type events struct {
	mu      sync.Mutex
	list    []Event
	last    int64
	changed chan struct{} // closed at the next event; nil if nobody waits
}

// eventLocked records an event.
func (v *Service) eventLocked(event string, s *slot, lease, why string) {
	v.events.add(Event{Event: event, Pool: s.poolName, Instance: s.set.ID, Lease: lease, Why: why})
}

func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	event.Number, event.Time = e.last, record.Now()
	if len(e.list) >= 2*maxEvents {
		e.list = slices.Delete(e.list, 0, maxEvents)
	}
	e.list = append(e.list, event)
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// endOf returns the event that ended a lease; "": it is not known.
func (e *events) endOf(lease string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range slices.Backward(e.list) {
		if one.Lease == lease && (one.Event == "released" || one.Event == "expired") {
			return one.Event
		}
	}
	return ""
}

// Events returns the events after the given number and waits until there is at
// least one. The oldest of them may be lost. After -1 it returns only new
// events. A number that is still to come belongs to an earlier service: then it
// returns all events.
func (v *Service) Events(ctx context.Context, after int64) ([]Event, error) {
	e := &v.events
	e.mu.Lock()
	defer e.mu.Unlock()
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
		e.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		e.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	from := max(0, len(e.list)-int(e.last-after))
	return slices.Clone(e.list[from:]), nil
}
