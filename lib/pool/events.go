package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/history"
	"btools/lib/record"
	"btools/lib/wait"
)

// Event is a change of an instance.
type Event struct {
	Number int64       `json:"number"` // counts the service's events from 1
	Time   record.Time `json:"time"`
	// Event is leased, released, expired, yielded, left, lost, moved, restarted, drained, hibernated, restored, taken,
	// given_back, asked, answered, the instance's new state, download_started, downloaded, or download_failed.
	Event    string `json:"event"`
	Pool     string `json:"pool"`
	Instance string `json:"instance"`
	Lease    string `json:"lease,omitempty"`
	// By, User and Holder are of the lease: its owner, as uid:1000 or token:ci, the name of a
	// user unless that runs the service, and the holder's name for itself.
	By     string `json:"by,omitempty"`
	User   string `json:"user,omitempty"`
	Holder string `json:"holder,omitempty"`
	Host   string `json:"host,omitempty"` // the host that has the instance; "": this one
	Why    string `json:"why,omitempty"`  // reason of a failure or of the end of a lease; the person who has taken over
	// Download is the file of download_started, downloaded and download_failed.
	Download *downloads.File `json:"download,omitempty"`
}

// events are the changes of a service's instances. They take no lock but their own: sessions report their downloads
// with their browser's lock.
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
		return e.Lease == lease && slices.Contains([]string{"released", "expired", Yielded, left, Lost}, e.Event)
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

// Notices are the latest lines for the holder of a lease, and its end. Their owner has a lock for them.
type Notices struct {
	api.Notices
	changed wait.Broadcast
}

// maxNotices is how many lines are kept for a holder that reads slowly.
const maxNotices = 100

// Add adds lines, and wakes the waiters, also for an end.
func (n *Notices) Add(lines ...string) {
	n.Last += len(lines)
	n.Lines = append(n.Lines, lines...)
	n.Lines = slices.Delete(n.Lines, 0, max(0, len(n.Lines)-maxNotices))
	n.changed.Wake()
}

// Has reports whether there are more notices than a number of lines.
func (n *Notices) Has(after int) bool { return n.Ended != "" || n.Last > after }

// After returns the notices after a number of lines.
func (n *Notices) After(line int) api.Notices {
	some := n.Notices
	from := min(len(n.Lines), max(0, len(n.Lines)-(n.Last-line)))
	some.Lines = slices.Clone(n.Lines[from:])
	return some
}

// Await waits until there are more notices than a number of lines, and returns them. The caller has the lock.
func (n *Notices) Await(ctx context.Context, lock sync.Locker, after int) (api.Notices, error) {
	for !n.Has(after) {
		more := n.changed.Next()
		lock.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		if lock.Lock(); ctx.Err() != nil {
			return api.Notices{}, context.Cause(ctx)
		}
	}
	return n.After(after), nil
}

// notices are those of one lease. The service's lock protects them.
type notices struct {
	Notices
	endedBy string          // reason of the end in the log
	news    chan<- struct{} // receives a value, if it has room, after another notice; nil: nobody waits there
}

// addLocked adds lines, and wakes the waiters.
func (n *notices) addLocked(lines ...string) {
	n.Add(lines...)
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// Lost is the event of a lease on another host that ends because of that.
const Lost = "lost"

// NoteElsewhere notes an event of a lease on another host, which has been held for a time.
func (v *Service) NoteElsewhere(e Event, held time.Duration) {
	v.events.add(e)
	if e.Event != "leased" && e.Event != "moved" {
		v.unlogged.add("a lease has ended", "pool", e.Pool, "instance", e.Instance, "host", e.Host, "lease", e.Lease,
			"by", e.By, "holder", e.Holder, "held_ms", held.Milliseconds(), "why", cmp.Or(e.Why, e.Event))
	}
}

// EndReason describes the end of a lease for its holder.
func EndReason(event string, ttl time.Duration) string {
	switch {
	case event == "released":
		return "the lease was released"
	case event == Yielded:
		return "the lease was given to another request, as its holder had not used it"
	case event == left:
		return "the lease has ended: its browser has left"
	case event == Lost:
		return "the lease has ended with its host"
	case ttl == 0: // no longer known
		return "the lease has expired"
	}
	return fmt.Sprintf("the lease has expired (time to live %v)", ttl)
}

// Notices waits until a lease has more lines than the holder has read, or has
// ended. Every call after the end returns at once.
func (v *Service) Notices(ctx context.Context, id string, after int) (api.Notices, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		if event := v.events.endOf(id); event != "" {
			return api.Notices{Ended: EndReason(event, 0), Yielded: event == Yielded, Last: after}, nil
		}
		return api.Notices{Ended: "there is no such lease; it may have ended", Last: after}, nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(v.ctx, stop)()
	n, err := l.Await(ctx, &v.mu, after)
	if err != nil && v.ctx.Err() != nil {
		return api.Notices{Ended: "the service has ended", Last: after}, nil
	}
	return n, err
}

// notifyHolderLocked tells the holder of the instance, if it is leased, what
// happened to the browser.
func (s *slot) notifyHolderLocked(format string, args ...any) {
	if s.lease != nil {
		s.lease.addLocked(fmt.Sprintf("the browser of %s/%s ", s.poolName, s.set.ID) + fmt.Sprintf(format, args...))
	}
}
