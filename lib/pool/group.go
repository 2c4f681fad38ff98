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

// group is the instances of a pool that share a browser, each lease with a
// session of its own. One browser at a time takes leases; those that it has
// taken over from end with their last one.
type group struct {
	service  *Service
	poolName string
	set      config.Settings // that all of them have
	wakeup   chan struct{}
	ctx      context.Context // its life
	stop     context.CancelFunc

	// Used by run:
	retry
	hadBrowser bool // there has been a browser, whose successor counts as a restart

	// Under the service's lock:
	slots         []*slot         // that are not retired
	leases        int             // of its instances, retired ones too
	leased        int             // of those that are not
	chrome        *share.Chrome   // that takes leases; nil: there is none
	draining      []*share.Chrome // that end with their last lease
	launchedAt    time.Time       // when the one that takes leases was launched
	uses          int             // its leases
	replaceReason string          // why another one is to take its place; "": it is not
	state         string
	err           error     // it has failed
	retryAt       time.Time // when it is launched again
	demandRetryAt time.Time // the same while somebody waits for it
	needed        bool      // somebody needs a browser, of which there is none
	forceReplace  bool      // other browsers at once, even under leases
	waiting       int       // requests of holders that wait for a browser
	changed       chan struct{}
}

// groupSettings are the settings that the instances of a group have in common.
func groupSettings(set config.Settings) config.Settings {
	set = instanceSettings(set)
	set.ID, set.Alias = "shared", ""
	return set
}

// joinLocked gives an instance a place in a group: one of its pool with the
// same settings that has room, or a new one. It is done with up when its browser
// is there, has failed, or is left to the first lease.
func (v *Service) joinLocked(s *slot, up *sync.WaitGroup) {
	set := groupSettings(s.set)
	for _, g := range v.groups {
		if g.poolName == s.poolName && len(g.slots) < set.PerBrowser && g.ctx.Err() == nil && reflect.DeepEqual(g.set, set) {
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

// removeLocked takes out an instance that is retired.
func (g *group) removeLocked(s *slot) {
	g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == s })
	if s.lease != nil {
		g.leased--
	}
	g.setSparesLocked()
	g.endIfUnusedLocked()
}

// endIfUnusedLocked ends the group when it has neither instances nor leases.
func (g *group) endIfUnusedLocked() {
	if len(g.slots) == 0 && g.leases == 0 {
		g.stop()
	}
}

// wake has the group look at its state again.
func (g *group) wake() {
	select {
	case g.wakeup <- struct{}{}:
	default:
	}
}

// setLocked puts all instances into a state.
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

// checkLocked is what the last look at the browser saw.
func (g *group) checkLocked() check {
	if g.state == Failed {
		return check{at: time.Now(), err: g.err.Error()}
	}
	return check{at: time.Now(), responsive: g.state == Healthy}
}

// spareCountLocked is how many sessions the browser is to have ready.
func (g *group) spareCountLocked() int { return min(len(g.slots)-g.leased, g.set.Spares) }

func (g *group) setSparesLocked() {
	if g.chrome != nil {
		g.chrome.SetSpares(g.spareCountLocked())
	}
}
