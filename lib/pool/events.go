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
	// taken, given_back, the instance's new state, download_started, downloaded, or download_failed.
	Event    string `json:"event"`
	Pool     string `json:"pool"`
	Instance string `json:"instance"`
	Lease    string `json:"lease,omitempty"`
	// By, User and Holder are of the lease: its owner, as uid:1000 or token:ci, the name of a
	// user unless that runs the service, and the holder's name for itself.
	By     string `json:"by,omitempty"`
	User   string `json:"user,omitempty"`
	Holder string `json:"holder,omitempty"`
	Why    string `json:"why,omitempty"` // of a failure, of the end of a lease; who has taken over
	// Download is the file of download_started, downloaded and download_failed.
	Download *downloads.File `json:"download,omitempty"`
}

// eventLocked records an event of an instance.
func (v *Service) eventLocked(event string, s *slot, why string) {
	v.addEvent(Event{Event: event, Pool: s.poolName, Instance: s.set.ID, Why: why})
}

// leaseEventLocked records an event of a lease.
func (v *Service) leaseEventLocked(event string, l *lease, why string) {
	e := l.event()
	e.Event, e.Why = event, why
	v.addEvent(e)
}

// event returns an event of the lease, without what has happened.
func (l *lease) event() Event {
	return Event{Pool: l.slot.poolName, Instance: l.slot.set.ID, Lease: l.id, By: l.by.String(), User: l.user,
		Holder: l.holder}
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
