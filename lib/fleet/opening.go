package fleet

import (
	"context"
	"errors"
	"time"

	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// opening is the opening of a session, and what came of it.
type opening struct {
	entry   *Entry
	ctx     context.Context // ends when nobody needs it any more
	end     context.CancelFunc
	ready   chan struct{} // closed when the session is open, or is not
	session Session
	err     error
	kept    *record.Time      // as of when it is kept; nil: it is not yet
	fault   error             // why it could not be kept last; nil: it could
	unsaved *virtual.Snapshot // of that time; nil: it is saved

	drowsy chan struct{} // it is to be hibernated; has room for one
	todo   chan func()   // what is done while the session is not looked at
}

// endTimeout is how long the pages of a session may take to close before the
// session counts as ended.
const endTimeout = 5 * time.Second

// run opens a session after another one has ended, and ends it when nobody needs it.
func (o *opening) run(before <-chan struct{}, from *virtual.Saved) {
	e, f := o.entry, o.entry.fleet
	var s Session
	err := errCalledOff
	if before == nil {
		s, err = f.open(o.ctx, e, from)
	} else {
		select {
		case <-before:
			s, err = f.open(o.ctx, e, from)
		case <-o.ctx.Done():
		}
	}
	if o.opened(s, err, from != nil) {
		o.attend()
	}
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		s.End(ctx) // pages that do not close end with Chrome
	}
	if before != nil {
		<-before
	}
}

// opened notes what has come of an opening, and reports whether it is needed.
func (o *opening) opened(s Session, err error, restored bool) bool {
	e, f := o.entry, o.entry.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	defer close(o.ready)
	switch {
	case e.opening != o:
		o.err = errCalledOff
		return false
	case err != nil:
		o.err, e.opening = err, nil
		if f.table.Failed(&e.Session) {
			e.finishLocked()
		}
		return false
	}
	o.session, e.past = s, nil
	event := "created"
	if restored {
		event, e.restored = "restored", new(record.Now())
		if e.lost = nil; e.saved != nil {
			e.lost = e.saved.Lost
		}
	}
	e.tell(Event{Event: event})
	s.TellControl(func(event, who string) { e.tellControl(s, event, who) })
	f.table.Opened(&e.Session, s.Used)
	f.sweepLocked()
	return true
}

// attend looks after a session until it is not needed any more.
func (o *opening) attend() {
	e, f := o.entry, o.entry.fleet
	var due <-chan time.Time
	var last looks
	if e.Keeps {
		every := lookEvery
		if f.pathOf(e.Key) != "" {
			every = lookOften
		}
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		due = ticks.C
	}
	for {
		select {
		case <-o.ctx.Done():
			return
		case <-o.session.Done():
			f.mu.Lock()
			e.checkLocked()
			f.mu.Unlock()
			<-o.ctx.Done() // at once, unless its holder has to say so
			return
		case <-due:
			last.look(o.session.Used(), func() { o.look() })
		case <-o.drowsy:
			o.hibernate()
		case do := <-o.todo:
			do()
		}
	}
}

// hasCrashed reports whether a session has ended with its Chrome.
func hasCrashed(s Session) bool {
	return wait.Closed(s.Done()) && errors.Is(s.Err(), virtual.ErrBrowserEnded)
}
