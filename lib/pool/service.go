// Package pool runs pools of browsers and leases them. An instance is a
// browser, or a session in a shared one, behind an endpoint that stays the
// same. It has one holder at a time.
package pool

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"btools/lib/launch/options"
	"btools/lib/liveness"
	"btools/lib/logins"
	"btools/lib/pool/config"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// Service runs the pools of a configuration. Create it with New and set Launch
// before Start.
type Service struct {
	Config *config.Config
	// Launch launches the browser of an instance of the pool. about returns members for messages about that browser:
	// its leases.
	Launch func(ctx context.Context, pool string, set settings.Settings, o options.Options,
		about func() []slog.Attr) (*sibling.Browser, error)
	Log *slog.Logger
	// LeaseLevel is the level of the messages about leases and requests for them.
	LeaseLevel slog.Level
	// State, if not nil, tells who stopped a browser.
	State *state.Store

	// Dir, if not nil, is where leases have directories for their downloads.
	Dir *state.Dir
	// TokenNames, if not nil, returns the names of the tokens that may lease.
	TokenNames func() []string
	// States are those that the configuration names; nil: there is no place for them.
	States *logins.Store
	// Offers are those to clients of other machines. New makes them.
	Offers *Offers

	// While it is held, nothing is logged and no proxy is called: a blocked log
	// or a slow launch must not hold up other pools.
	mu           sync.Mutex
	pools        pools
	scaled       map[string]int // sizes set by Scale, by pool
	removed      []*pool        // former pools with leases that go on
	retired      []*slot        // removed or changed, with browsers that still run
	groups       []*group
	sessionAddrs map[string]string // where the sessions of a pool are served
	leases       map[string]*lease
	kept         shelf
	closing      bool
	events       events
	metrics      *metrics
	running      sync.WaitGroup
	clock        clock
	userNames    userNames
	unlogged     leaseLog
	drains       wait.Broadcast // a pool is drained, or not any more
	ctx          context.Context
	stop         context.CancelFunc
}

// New returns a service; Start starts its pools.
func New(cfg *config.Config, log *slog.Logger) *Service {
	v := &Service{Config: cfg, Log: log, leases: map[string]*lease{}, sessionAddrs: map[string]string{},
		scaled: map[string]int{}, unlogged: make(leaseLog, maxUnlogged)}
	v.metrics, v.clock, v.Offers = newMetrics(v), newClock(v.due), newOffers(v)
	return v
}

// Start starts all instances in parallel. The channel is closed when each of
// them is ready or has failed.
func (v *Service) Start(ctx context.Context) (ready <-chan struct{}, err error) {
	v.mu.Lock()
	v.ctx, v.stop = context.WithCancel(ctx)
	v.mu.Unlock()
	v.running.Go(func() { v.unlogged.run(v.ctx, v.logLease) })
	up, err := v.Apply(v.Config)
	if err != nil {
		v.stop()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		up.Wait()
		close(done)
	}()
	return done, nil
}

// StopLeasing grants no more leases and fails the waiting requests.
func (v *Service) StopLeasing() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closing = true
	for _, p := range v.pools {
		p.leases.Fail(errStopping)
		for _, s := range p.slots {
			s.syncQueueLocked()
		}
	}
}

// Stop stops everything and waits until it has ended.
func (v *Service) Stop() {
	v.StopLeasing()
	v.mu.Lock()
	v.stop() // after this, nothing else is begun
	v.mu.Unlock()
	v.running.Wait()
	for _, l := range v.leasesWhere(func(*lease) bool { return true }) {
		v.unlogged.ended(l, "the service has ended")
		l.endOwn(false)()
	}
	v.unlogged.flush(v.logLease)
}

// Retire ends the service once its leases have ended: it grants none any more, and stops the browsers that
// are not leased. The channel is closed when those have ended.
func (v *Service) Retire() (stopped <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closing = true
	var ending []<-chan struct{}
	for _, p := range v.pools {
		p.leases.Fail(errStopping)
		slots := p.slots
		p.slots = nil // those with a lease are shown with it
		for _, s := range slots {
			s.retireLocked()
			switch {
			case s.proxy != nil && s.lease == nil:
				ending = append(ending, s.gone)
			case s.group != nil && s.group.leases == 0:
				ending = append(ending, s.group.gone)
			}
		}
	}
	done := make(chan struct{})
	v.running.Go(func() {
		defer close(done)
		for _, gone := range ending {
			<-gone
		}
	})
	return done
}

func (v *Service) logLease(m leaseMessage) {
	v.Log.Log(context.Background(), v.LeaseLevel, m.text, m.args...)
}

// StalledCheck names an instance whose health check is long overdue, or returns
// "". It is for a watchdog.
func (v *Service) StalledCheck() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pools {
		for _, s := range p.slots {
			// A third of the time, because three intervals may overflow a Duration.
			if s.state == Healthy && s.hasHealthCheckLocked() &&
				time.Since(s.runs().Check.At)/3 > s.set.HealthInterval+liveness.Longest(s.set.HealthTimeout) {
				return p.cfg.Name + "/" + s.set.ID
			}
		}
	}
	return ""
}

// hasHealthCheckLocked reports whether the instance's health is checked.
func (s *slot) hasHealthCheckLocked() bool {
	return s.runs().IsCheckedLocked() || s.group != nil && s.group.chrome != nil
}

// Unhealthy says what is wrong with the service as a whole: it is stopping, its
// health checks have stopped, or all instances of a pool have failed. It
// returns "" if nothing is wrong.
func (v *Service) Unhealthy() string {
	if s := v.StalledCheck(); s != "" {
		return "the health checks of " + s + " have stopped"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closing {
		return "the service is stopping"
	}
	for _, p := range v.pools {
		if p.allFailed() {
			return "pool " + p.cfg.Name + " has no healthy instances"
		}
	}
	return ""
}

// Restart replaces the browsers of a pool, or of one instance, at once and even
// if they are leased. If the instance shares its browser, only its session is
// replaced. It returns the number of instances.
func (v *Service) Restart(poolName, instance string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	slots, err := v.pools.instances(poolName, instance)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range slots {
		if s.group == nil && s.proxy == nil {
			continue
		}
		n++
		if s.group != nil && instance != "" {
			s.group.replaceSessionLocked(s)
			continue
		}
		s.runs().ForceReplace = true
		s.syncQueueLocked()
		s.runs().Wake()
	}
	return n, nil
}
