package pool

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Notices is what a lease's holder may not know yet.
type Notices struct {
	// Ended is how the lease has ended, such as "it was released"; "" while it
	// lasts.
	Ended string `json:"ended,omitempty"`
	// Lines say what has happened to its browser, one sentence each, after as
	// many as the holder has read; Last is how many there are by now.
	Lines []string `json:"lines,omitempty"`
	Last  int      `json:"last"`
}

// notices is a lease's, under the service's lock.
type notices struct {
	lines   []string // the last ones
	last    int
	ended   string
	changed chan struct{} // closed at the next notice; nil while nobody waits
}

// maxNotices is how many lines of a lease's notices are kept for a slow reader.
const maxNotices = 100

// addLocked adds a line, if it is not "", and wakes who waits.
func (n *notices) addLocked(line string) {
	if line != "" {
		n.last++
		n.lines = append(n.lines, line)
		if len(n.lines) > maxNotices {
			n.lines = slices.Delete(n.lines, 0, 1)
		}
	}
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// endReason is an end of a lease as its holder is told.
func endReason(event string, ttl time.Duration) string {
	switch {
	case event == "released":
		return "the lease was released"
	case ttl == 0: // it is not known any more
		return "the lease's time to live is over"
	}
	return fmt.Sprintf("the time to live (%v) is over", ttl)
}

// Notices waits until there is more notices of a lease than those lines, or until it
// has ended, which is news each time that it is asked for.
func (v *Service) Notices(ctx context.Context, id string, after int) (Notices, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil {
		for _, e := range slices.Backward(v.events.list) {
			if e.Lease == id && (e.Event == "released" || e.Event == "expired") {
				return Notices{Ended: endReason(e.Event, 0), Last: after}, nil
			}
		}
		return Notices{Ended: "there is no such lease (any more)", Last: after}, nil
	}
	for l.ended == "" && l.last <= after {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		more := l.changed
		v.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		case <-v.ctx.Done():
		}
		v.mu.Lock()
		switch {
		case v.ctx.Err() != nil:
			return Notices{Ended: "the service has ended", Last: after}, nil
		case ctx.Err() != nil:
			return Notices{}, context.Cause(ctx)
		}
	}
	from := min(len(l.lines), max(0, len(l.lines)-(l.last-after)))
	return Notices{Ended: l.ended, Lines: slices.Clone(l.lines[from:]), Last: l.last}, nil
}

// notifyHolderLocked tells the holder of the instance's lease, if it has one,
// what has become of the browser.
func (s *slot) notifyHolderLocked(format string, args ...any) {
	if s.lease != nil {
		s.lease.addLocked(fmt.Sprintf("the browser of %s/%s ", s.poolName, s.set.ID) + fmt.Sprintf(format, args...))
	}
}
