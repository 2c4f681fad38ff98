package pool

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/settings"
	"btools/lib/wait"
)

// group is the instances of a pool that share a browser; each lease has its own
// session. One browser at a time takes new leases. Browsers that it has
// replaced end with their last lease.
type group struct {
	runner               // of chrome and its successors, with the settings that the instances share
	gone   chan struct{} // closed when it and its browsers have ended

	// Protected by the service's lock:
	fleet    *fleet.Fleet    // the sessions of the leases of its instances
	slots    []*slot         // without retired ones
	leases   int             // of its instances, including retired ones
	leased   int             // instances in slots that are leased
	ahead    int             // leases for which a session is made before they are used
	chrome   *fleet.Chrome   // takes new leases; nil if there is none
	draining []*fleet.Chrome // end with their last lease
	needed   bool            // a lease or request needs a browser and there is none
	// mayReplace says that a successor has not failed since the last health check.
	mayReplace bool
	successor  supply.Grounds // of the latest replacement
	changed    wait.Broadcast
}

// groupSettings returns the settings that the instances of a group have in
// common.
func groupSettings(set settings.Settings) settings.Settings {
	set = instanceSettings(set)
	set.ID, set.Alias = "shared", ""
	return set
}

// joinLocked adds an instance to a group: to one of its pool with the same
// settings and a free slot, or to a new one. It marks up as done when the
// group's browser is ready, has failed, or waits for the first lease.
func (s *slot) joinLocked(up *sync.WaitGroup) {
	v, set := s.service, groupSettings(s.set)
	for _, g := range v.groups {
		if g.poolName == s.poolName && len(g.slots) < set.PerBrowser && g.ctx.Err() == nil &&
			reflect.DeepEqual(g.set, set) {
			s.group = g
			g.slots = append(g.slots, s)
			s.setLocked(g.state)
			g.setSparesLocked()
			return
		}
	}
	g := &group{runner: v.newRunner(s.poolName, set), gone: make(chan struct{}), slots: []*slot{s}}
	s.group = g
	g.fleet = g.newFleet()
	v.groups = append(v.groups, g)
	up.Add(1)
	g.hooks, g.browsers, g.started = g, g.newBrowsers(), sync.OnceFunc(up.Done)
	v.running.Go(func() {
		defer g.started()
		g.run()
		g.browsers.Close()
		g.fleet.Close()
		close(g.gone)
		v.mu.Lock()
		v.groups = slices.DeleteFunc(v.groups, func(o *group) bool { return o == g })
		v.mu.Unlock()
	})
}

// removeLocked removes a retired instance.
func (g *group) removeLocked(s *slot) {
	g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == s })
	if s.lease != nil {
		g.leased--
	}
	g.setSparesLocked()
	g.endIfUnusedLocked()
}

// endIfUnusedLocked ends the group if it has neither instances nor leases.
func (g *group) endIfUnusedLocked() {
	if len(g.slots) == 0 && g.leases == 0 {
		g.stop()
	}
}

// setLocked sets the state of all instances.
func (g *group) setLocked(state string) {
	g.state = state
	if state != Failed {
		g.check = check{at: time.Now(), responsive: state == Healthy}
	}
	for _, s := range slices.Clone(g.slots) {
		s.setLocked(state)
	}
	g.changed.Wake()
}

// setSparesLocked sets how many sessions the browser has in advance: for new leases, and for those that have not been
// used.
func (g *group) setSparesLocked() {
	if g.chrome != nil {
		g.chrome.SetSpares(min(len(g.slots)-g.leased, g.set.Spares) + g.ahead)
	}
}
