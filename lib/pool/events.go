package pool

import (
	"context"
	"slices"

	"btools/lib/downloads"
	"btools/lib/history"
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

// events are the changes of a service's instances. They take no lock but their own: sessions report their downloads with
// their browser's lock.
type events struct{ history.Log[Event] }

// ofInstance adds an event of an instance.
func (l *events) ofInstance(event string, s *slot, why string) {
	l.add(Event{Event: event, Pool: s.poolName, Instance: s.set.ID, Why: why})
}

// ofLease adds an event of a lease.
func (l *events) ofLease(event string, of *lease, why string, download *downloads.File) {
	l.add(Event{Event: event, Pool: of.slot.poolName, Instance: of.slot.set.ID, Lease: of.id, By: of.by.String(),
		User: of.user, Holder: of.holder, Why: why, Download: download})
}

func (l *events) add(e Event) {
	l.Add(func(number int64, at record.Time) Event {
		e.Number, e.Time = number, at
		return e
	})
}

// endOf returns the event that ended a lease, or "" if it is not known.
func (l *events) endOf(lease string) string {
	e, _ := l.Latest(func(e Event) bool {
		return e.Lease == lease && slices.Contains([]string{"released", "expired", yielded, left}, e.Event)
	})
	return e.Event
}

// ownerOf returns the owner of a lease that may have ended, or "" if it is not known.
func (l *events) ownerOf(lease string) string {
	e, _ := l.Latest(func(e Event) bool { return e.Lease == lease && e.By != "" })
	return e.By
}

// Events returns the events after the given number, as history.Log.After does.
func (v *Service) Events(ctx context.Context, after int64) ([]Event, error) {
	return v.events.After(ctx, after)
}
