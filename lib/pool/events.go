package pool

import (
	"context"
	"slices"

	"btools/lib/downloads"
	"btools/lib/record"
)

// Event is a change of an instance.
type Event struct {
	Number int64       `json:"number"` // counts the service's events from 1
	Time   record.Time `json:"time"`
	// Event is leased, released, expired, yielded, left, restarted, drained, hibernated, restored,
	// the instance's new state, download_started, downloaded, or download_failed.
	Event    string `json:"event"`
	Pool     string `json:"pool"`
	Instance string `json:"instance"`
	Lease    string `json:"lease,omitempty"`
	Why      string `json:"why,omitempty"` // the reason for a failure
	// Download is the file of download_started, downloaded and download_failed.
	Download *downloads.File `json:"download,omitempty"`
}

// eventLocked records an event.
func (v *Service) eventLocked(event string, s *slot, lease, why string) {
	v.addEvent(Event{Event: event, Pool: s.poolName, Instance: s.set.ID, Lease: lease, Why: why})
}

// addEvent records an event. It takes no lock but that of the events: sessions
// report their downloads with their browser's lock.
func (v *Service) addEvent(e Event) {
	v.events.Add(func(number int64, at record.Time) Event {
		e.Number, e.Time = number, at
		return e
	})
}

// endOf returns the event that ended a lease; "": it is not known.
func (v *Service) endOf(lease string) string {
	e, _ := v.events.Latest(func(e Event) bool {
		return e.Lease == lease && slices.Contains([]string{"released", "expired", yielded, left}, e.Event)
	})
	return e.Event
}

// Events returns the events after the given number, as history.Log.After does.
func (v *Service) Events(ctx context.Context, after int64) ([]Event, error) {
	return v.events.After(ctx, after)
}
