package pool

import (
	"slices"
	"strings"

	"btools/lib/control/api"
)

// The browser of an instance with LAUNCH=extension is one that a person uses and
// that joins by its extension: "bproxy join" takes the place of blaunch. A lease
// has that browser, and not another person's after it: it ends when the browser
// leaves.

// left is the event of a lease that ends because its browser has left.
const left = "left"

// startState returns the state of an instance whose browser is not there yet.
func (r *runner) startState() string {
	if r.set.Extension {
		return Awaiting
	}
	return Starting
}

// endLeaseOfJoined ends the instance's lease after its browser has left.
func (s *slot) endLeaseOfJoined(why string) {
	v := s.service
	why = strings.TrimPrefix(why, "the browser has left: ")
	v.mu.Lock()
	if s.state == Healthy {
		s.setLocked(Awaiting)
	}
	s.notifyHolderLocked("has left: %s", why)
	l := s.lease
	v.mu.Unlock()
	if l != nil {
		l.end(left, why, false)
	}
}

// AllAwait reports whether all instances of the pool wait for a browser to join.
func AllAwait(p *api.PoolStatus) bool {
	return !slices.ContainsFunc(p.Instances, func(i api.InstanceStatus) bool { return i.Status != Awaiting })
}
