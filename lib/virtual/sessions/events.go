package sessions

import (
	"context"

	"btools/lib/downloads"
	"btools/lib/record"
	book "btools/lib/sessions"
)

// Event is a change of a session.
type Event struct {
	Number int64       `json:"number"` // counts the program's events from 1
	Time   record.Time `json:"time"`
	// Event is created, hibernated, restored, ended, taken, given_back,
	// download_started, downloaded or download_failed.
	Event   string    `json:"event"`
	Session string    `json:"session"`
	Kind    book.Kind `json:"-"` // of one that is created or has ended
	// Why a download has failed (interrupted, canceled, limit), how the browser of
	// a session that is hibernated has ended, or which person has taken it over.
	Why      string          `json:"why,omitempty"`
	Download *downloads.File `json:"download,omitempty"`
}

// addEvent records an event.
func (g *Registry) addEvent(e Event) {
	g.events.Add(func(number int64, at record.Time) Event {
		e.Number, e.Time = number, at
		return e
	})
}

// Events returns the events after the given number, as history.Log.After does.
func (g *Registry) Events(ctx context.Context, after int64) ([]Event, error) {
	return g.events.After(ctx, after)
}
