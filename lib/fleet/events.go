package fleet

import (
	"context"

	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/record"
)

// Event is a change of a session.
type Event struct {
	Number int64       `json:"number"` // counts the program's events from 1
	Time   record.Time `json:"time"`
	// Event is created, hibernated, restored, ended, taken, given_back, asked, answered,
	// download_started, downloaded or download_failed.
	Event   string    `json:"event"`
	Session string    `json:"session"`
	Kind    book.Kind `json:"-"` // of one that is created or has ended
	// Why a download has failed (interrupted, canceled, limit), how the browser of
	// a session that is hibernated has ended, or which person has taken it over.
	Why      string          `json:"why,omitempty"`
	Download *downloads.File `json:"download,omitempty"`
}

// tell records an event of an entry.
func (e *Entry) tell(what Event) {
	what.Session, what.Kind = e.Name, e.Kind
	if e.wanted.Tell != nil {
		e.wanted.Tell(what)
		return
	}
	e.fleet.events.Add(func(number int64, at record.Time) Event {
		what.Number, what.Time = number, at
		return what
	})
}

// Events returns the events after the given number, as history.Log.After does.
func (f *Fleet) Events(ctx context.Context, after int64) ([]Event, error) {
	return f.events.After(ctx, after)
}
