package pool

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"btools/lib/pool/config"
	"btools/lib/pool/share"
)

// group is the instances of a pool that share a browser; each lease has its own
// session. One browser at a time takes new leases. Browsers that it has
// replaced end with their last lease.
type group struct {
	service  *Service
	poolName string
	set      config.Settings // shared by all its instances
	wakeup   chan struct{}
	ctx      context.Context // ends with the group
	stop     context.CancelFunc

	// Used by run:
	retry
	hadBrowser bool // a browser has run before, so the next one counts as a restart

	// Protected by the service's lock:
	slots         []*slot         // without retired ones
	leases        int             // of its instances, including retired ones
	leased        int             // instances in slots that are leased
	chrome        *share.Chrome   // takes new leases; nil if there is none
	draining      []*share.Chrome // end with their last lease
	launchedAt    time.Time       // when chrome was launched
	uses          int             // leases that chrome has had
	replaceReason string          // why chrome must be replaced; "" if it need not be
	state         string
	err           error     // why the last browser failed
	retryAt       time.Time // when the next browser is launched
	demandRetryAt time.Time // the same while a request waits
	needed        bool      // a lease or request needs a browser and there is none
	forceReplace  bool      // replace all browsers now, even if they are leased
	waiting       int       // clients' requests that wait for a browser
	changed       chan struct{}
}

// groupSettings returns the settings that the instances of a group have in
// common.
func groupSettings(set config.Settings) config.Settings {
	set = instanceSettings(set)
	set.ID, set.Alias = "shared", ""
	return set
}

// joinLocked adds an instance to a group: to one of its pool with the same
// settings and a free slot, or to a new one. It marks up as done when the
// group's browser is ready, has failed, or waits for the first lease.
func (v *Service) joinLocked(s *slot, up *sync.WaitGroup) {
	set := groupSettings(s.set)
	for _, g := range v.groups {
		if g.poolName == s.poolName && len(g.slots) < set.PerBrowser && g.ctx.Err() == nil &&
			reflect.DeepEqual(g.set, set) {
			s.group = g
			g.slots = append(g.slots, s)
			s.check = g.checkLocked()
			s.retryAt, s.demandRetryAt = g.retryAt, g.demandRetryAt
			s.setLocked(g.state)
			g.setSparesLocked()
			return
		}
	}
	g := &group{service: v, poolName: s.poolName, set: set, wakeup: make(chan struct{}, 1), slots: []*slot{s},
		state: Starting, changed: make(chan struct{}), retry: newRetry()}
	g.ctx, g.stop = context.WithCancel(v.ctx)
	s.group = g
	v.groups = append(v.groups, g)
	up.Add(1)
	started := sync.OnceFunc(up.Done)
	v.running.Go(func() {
		defer started()
		g.run(started)
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

// wake makes the group check its state again.
func (g *group) wake() {
	select {
	case g.wakeup <- struct{}{}:
	default:
	}
}

// setLocked sets the state of all instances.
func (g *group) setLocked(state string) {
	g.state = state
	check := g.checkLocked()
	for _, s := range slices.Clone(g.slots) {
		s.check, s.retryAt, s.demandRetryAt = check, g.retryAt, g.demandRetryAt
		s.setLocked(state)
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// checkLocked returns the result of the latest health check.
func (g *group) checkLocked() check {
	if g.state == Failed {
		return check{at: time.Now(), err: g.err.Error()}
	}
	return check{at: time.Now(), responsive: g.state == Healthy}
}

// spareCountLocked returns how many spare sessions the browser should have.
func (g *group) spareCountLocked() int { return min(len(g.slots)-g.leased, g.set.Spares) }

func (g *group) setSparesLocked() {
	if g.chrome != nil {
		g.chrome.SetSpares(g.spareCountLocked())
	}
}
