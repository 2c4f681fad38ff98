package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"btools/lib/control/api"
	"btools/lib/wait"
)

// notices are those of one lease. The service's lock protects them.
type notices struct {
	lines   []string // the latest ones
	last    int
	ended   string
	endedBy string // the same in the log: the event, or why
	yielded bool
	changed wait.Broadcast // there is another notice
}

// maxNotices is how many lines are kept for a holder that reads slowly.
const maxNotices = 100

// addLocked adds a line, unless it is "", and wakes the waiters.
func (n *notices) addLocked(line string) {
	if line != "" {
		n.last++
		n.lines = append(n.lines, line)
		if len(n.lines) > maxNotices {
			n.lines = slices.Delete(n.lines, 0, 1)
		}
	}
	n.changed.Wake()
}

// endReason describes the end of a lease for its holder.
func endReason(event string, ttl time.Duration) string {
	switch {
	case event == "released":
		return "the lease was released"
	case event == yielded:
		return "the lease was given to another request, as its holder had not used it"
	case event == left:
		return "the lease has ended: its browser has left"
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
			return api.Notices{Ended: endReason(event, 0), Yielded: event == yielded, Last: after}, nil
		}
		return api.Notices{Ended: "there is no such lease; it may have ended", Last: after}, nil
	}
	for l.ended == "" && l.last <= after {
		more := l.changed.Next()
		v.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		case <-v.ctx.Done():
		}
		v.mu.Lock()
		switch {
		case v.ctx.Err() != nil:
			return api.Notices{Ended: "the service has ended", Last: after}, nil
		case ctx.Err() != nil:
			return api.Notices{}, context.Cause(ctx)
		}
	}
	from := min(len(l.lines), max(0, len(l.lines)-(l.last-after)))
	return api.Notices{Ended: l.ended, Yielded: l.yielded, Lines: slices.Clone(l.lines[from:]), Last: l.last}, nil
}

// notifyHolderLocked tells the holder of the instance, if it is leased, what
// happened to the browser.
func (s *slot) notifyHolderLocked(format string, args ...any) {
	if s.lease != nil {
		s.lease.addLocked(fmt.Sprintf("the browser of %s/%s ", s.poolName, s.set.ID) + fmt.Sprintf(format, args...))
	}
}
