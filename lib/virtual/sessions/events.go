package sessions

import (
	"context"
	"slices"
	"sync"

	"btools/lib/downloads"
	"btools/lib/record"
)

// maxEvents is the number of past events that are kept.
const maxEvents = 1024

// Event is a change of a session.
type Event struct {
	Number int64       `json:"number"` // counts the program's events from 1
	Time   record.Time `json:"time"`
	// Event is created, hibernated, restored, ended, download_started, downloaded
	// or download_failed.
	Event    string          `json:"event"`
	Session  string          `json:"session"`
	Why      string          `json:"why,omitempty"` // a download has failed: interrupted, canceled, limit
	Download *downloads.File `json:"download,omitempty"`
}

// events holds the latest events.
type events struct {
	mu      sync.Mutex
	list    []Event
	last    int64
	changed chan struct{} // closed at the next event; nil if nobody waits
}

// add records an event.
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

// Events returns the events after the given number and waits until there is at
// least one. The oldest of them may be lost. After -1 it returns only new
// events. A number that is still to come belongs to an earlier program: then it
// returns all events.
func (g *Registry) Events(ctx context.Context, after int64) ([]Event, error) {
	e := &g.events
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
