// Package pool runs pools of browsers and leases them. An instance is a
// browser, or a session in a shared one, behind an endpoint that stays the
// same. It has one holder at a time.
package pool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/forward/limits"
	"btools/lib/front"
	"btools/lib/launch/options"
	"btools/lib/liveness"
	"btools/lib/logins"
	"btools/lib/pool/config"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/spell"
	"btools/lib/state"
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

	// While it is held, nothing is logged and no proxy is called: a blocked log
	// or a slow launch must not hold up other pools.
	mu           sync.Mutex
	pools        pools
	scaled       map[string]int // sizes set by Scale, by pool
	removed      []*pool        // from the configuration, with leases that go on
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
	ctx          context.Context
	stop         context.CancelFunc
}

// pool is one pool.
type pool struct {
	service *Service
	cfg     config.Pool
	leases  *book.Leases[*lease]
	slots   []*slot
	drained bool // grants no more leases
}

// New returns a service; Start starts its pools.
func New(cfg *config.Config, log *slog.Logger) *Service {
	v := &Service{Config: cfg, Log: log, leases: map[string]*lease{}, sessionAddrs: map[string]string{},
		scaled: map[string]int{}, unlogged: make(leaseLog, maxUnlogged)}
	v.metrics, v.clock = newMetrics(v), newClock(v.due)
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

// Apply changes the pools to those of a configuration. An instance whose
// settings stay the same keeps its browser and its lease; one that is changed
// or removed ends with its lease. The returned WaitGroup waits until the new
// instances are ready or have failed. If Apply returns an error, nothing has
// changed.
func (v *Service) Apply(cfg *config.Config) (*sync.WaitGroup, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.applyLocked(cfg)
}

func (v *Service) applyLocked(cfg *config.Config) (*sync.WaitGroup, error) {
	if v.closing {
		return nil, errStopping
	}
	// First the steps that can fail.
	var fresh []*slot
	kept := map[*slot]bool{}
	all := make(pools, len(cfg.Pools))
	for k, pc := range cfg.Pools {
		p := &pool{service: v, cfg: pc, leases: &book.Leases[*lease]{}}
		old := v.pools.named(pc.Name)
		if old != nil {
			p.leases, p.drained = old.leases, old.drained // waiting requests keep their order
		}
		all[k] = p
		v.metrics.initialize(pc.Name)
		for n, set := range pc.Instances {
			if old != nil && n < len(old.slots) && sameInstance(old.slots[n].set, set) {
				p.slots = append(p.slots, old.slots[n])
				kept[old.slots[n]] = true
				continue
			}
			s, err := p.newSlot(n, set)
			if err != nil {
				for _, s := range fresh {
					s.close()
				}
				return nil, err
			}
			p.slots = append(p.slots, s)
			fresh = append(fresh, s)
		}
	}
	// Then the others.
	for _, p := range v.pools {
		for _, s := range p.slots {
			if !kept[s] {
				s.retireLocked()
			}
		}
		k := slices.IndexFunc(all, func(q *pool) bool { return q.leases == p.leases })
		if k < 0 {
			p.leases.Fail(control.Errorf(control.PoolNotFound, "pool %s was removed", p.cfg.Name))
			v.removed = append(v.removed, p)
		} else if n := len(all[k].slots); n < len(p.slots) {
			p.leases.FailFrom(n, control.Errorf(control.InstanceNotFound,
				"the instance was removed: pool %s now has 0 to %d",
				p.cfg.Name, n-1))
		}
	}
	for _, p := range all {
		for _, s := range p.slots {
			s.pool = p
		}
	}
	for _, s := range fresh {
		if s.set.Profile == "" {
			continue
		}
		for _, old := range v.retired {
			if old.set.Profile == s.set.Profile {
				s.profileReleased = append(s.profileReleased, old.gone)
			}
		}
	}
	v.Config, v.pools = cfg, all
	up := &sync.WaitGroup{}
	for _, s := range fresh {
		s.startLocked(up)
	}
	for _, p := range all {
		for _, s := range p.slots {
			if kept[s] {
				s.syncQueueLocked()
			}
		}
		p.failWaitersLocked() // the last healthy instance may have been removed
	}
	return up, nil
}

// sameInstance reports whether an instance can keep running with other
// settings: those that concern only its pool may differ.
func sameInstance(a, b settings.Settings) bool {
	return reflect.DeepEqual(instanceSettings(a), instanceSettings(b))
}

// instanceSettings returns the settings without those that concern only the
// pool.
func instanceSettings(s settings.Settings) settings.Settings {
	s.LeaseTimeout, s.LeaseTTL, s.QueueLimit, s.State, s.Description = 0, 0, 0, "", ""
	s.Affinity, s.AffinityIdle = "", 0
	return s
}

// Scale changes the number of instances of a pool.
func (v *Service) Scale(name string, n int) error {
	if n < 1 || n > settings.MaxInstances {
		return control.Errorf(control.BadRequest, "a pool has 1 to %d instances, not %d", settings.MaxInstances, n)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	p, err := v.pools.find(name)
	if err != nil {
		return err
	}
	cfg := *v.Config
	cfg.Pools = slices.Clone(cfg.Pools)
	for i := range cfg.Pools {
		if cfg.Pools[i].Name == p.cfg.Name {
			cfg.Pools[i] = cfg.Pools[i].Resize(n)
		}
	}
	if err := cfg.Check(); err != nil {
		return control.Errorf(control.BadConfig, "%v", err)
	}
	if _, err = v.applyLocked(&cfg); err == nil {
		v.scaled[p.cfg.Name] = n
	}
	return err
}

// Changes describes side effects of a new configuration.
type Changes struct {
	// Unscaled are the pools whose size Scale had changed.
	Unscaled []Resized `json:"unscaled"`
}

// Resized is a pool whose number of instances has changed.
type Resized struct {
	Pool   string `json:"pool"`
	Before int    `json:"before"`
	Now    int    `json:"now"`
}

func (c Changes) String() string {
	s := "the configuration was reloaded"
	for _, r := range c.Unscaled {
		s += fmt.Sprintf("; pool %s has %s again (bpool scale had set %d)", r.Pool, spell.Count(r.Now, "instance"),
			r.Before)
	}
	return s
}

// Reload applies a configuration that was read again. It also resets the sizes
// that Scale changed.
func (v *Service) Reload(cfg *config.Config) (Changes, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := Changes{Unscaled: []Resized{}}
	if _, err := v.applyLocked(cfg); err != nil {
		return c, err
	}
	for _, p := range v.pools {
		if n, ok := v.scaled[p.cfg.Name]; ok && n != len(p.slots) {
			c.Unscaled = append(c.Unscaled, Resized{p.cfg.Name, n, len(p.slots)})
		}
	}
	clear(v.scaled)
	return c, nil
}

// Names returns the names of the pools.
func (v *Service) Names() (names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.Config.Pools {
		names = append(names, p.Name)
	}
	return names
}

// Has reports whether there is a lease.
func (v *Service) Has(lease string) bool { return v.lease(lease) != nil }

// pools are those of a configuration, in the order of their names.
type pools []*pool

// named returns the pool with the name, or nil.
func (ps pools) named(name string) *pool {
	for _, p := range ps {
		if p.cfg.Name == name {
			return p
		}
	}
	return nil
}

// newSlot creates an instance and opens its endpoint.
func (p *pool) newSlot(n int, set settings.Settings) (*slot, error) {
	v := p.service
	s := &slot{runner: v.newRunner(p.cfg.Name, set), gone: make(chan struct{}), pool: p, number: n}
	s.log = s.log.With("instance", set.ID)
	s.state = s.startState()
	if !set.Launch {
		return s, nil
	}
	if set.Isolation == settings.Context {
		var err error
		s.addr, err = p.sessionsAddrLocked()
		return s, err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot open the endpoint of %s/%s: %w", p.cfg.Name, set.ID, err)
	}
	s.listener, s.addr = l, l.Addr().String()
	s.watching = newWatching(v.Dir, set)
	s.proxy = &proxy.Proxy{
		Launch: func(ctx context.Context, o options.Options, _ string) (*sibling.Browser, error) {
			b, err := v.Launch(ctx, p.cfg.Name, set, o, s.held.member)
			v.metrics.launches.WithLabelValues(p.cfg.Name).Inc()
			if err != nil {
				v.metrics.failures.WithLabelValues(p.cfg.Name).Inc()
			} else {
				s.watchDownloads(ctx, b)
			}
			return b, err
		},
		Unconnected: s.resetDownloads, Held: func() bool { return len(s.held.all()) > 0 },
		State: v.State, Options: launchOptions(set), Idle: set.Idle,
		IdleByConnections: set.IdleBy == settings.Connections, Changed: s.wake,
		Health: supply.Health{Interval: set.HealthInterval, Timeout: set.HealthTimeout, Checked: s.checked},
		Front: front.Front{Limit: front.Limit{Max: maxRequests},
			Routes: []front.Route{{Path: front.DownloadsPath, Answer: s.answerDownloads}}},
		Log: s.log,
	}
	if !set.WSLWindows {
		s.proxy.Front.Guard.User = s.endpointUser
	}
	s.proxy.Start()
	s.browsers = s.proxy.Browsers()
	return s, nil
}

// launchOptions converts an instance's settings to blaunch's options.
func launchOptions(set settings.Settings) options.Options {
	set.Browser = record.Canonical(set.Browser)
	if set.Limits().Any() {
		set.Args = append(slices.Clone(set.Args), limits.ChromeArgs...)
	}
	return set.Options
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
				time.Since(s.runs().check.at)/3 > s.set.HealthInterval+liveness.Longest(s.set.HealthTimeout) {
				return p.cfg.Name + "/" + s.set.ID
			}
		}
	}
	return ""
}

// hasHealthCheckLocked reports whether the instance's health is checked.
func (s *slot) hasHealthCheckLocked() bool {
	return s.runs().isChecked || s.group != nil && s.group.chrome != nil
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

// lease returns the lease with an ID, or nil.
func (v *Service) lease(id string) *lease {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.leases[id]
}

// leasesWhere returns the leases for which is returns true.
func (v *Service) leasesWhere(is func(*lease) bool) (found []*lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.leases {
		if is(l) {
			found = append(found, l)
		}
	}
	return found
}

// Leases returns the number of leases.
func (v *Service) Leases() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.leases)
}

// find returns the pool with the name, or the default pool if the name is "".
func (ps pools) find(name string) (*pool, error) {
	var names []string
	for _, p := range ps {
		if p.cfg.Name == name || name == "" && p.cfg.IsDefault {
			return p, nil
		}
		names = append(names, p.cfg.Name)
	}
	return nil, control.Errorf(control.PoolNotFound, "no pool is named %q: %s", name,
		suggestion(strings.ToUpper(name), names))
}

// these returns the pool with the name, or all pools if the name is "".
func (ps pools) these(name string) (pools, error) {
	if name == "" {
		return ps, nil
	}
	p, err := ps.find(name)
	return pools{p}, err
}

// suggestion names the pool that was probably meant, or lists all pools.
func suggestion(name string, names []string) string {
	if near := spell.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	if len(names) == 1 {
		return "there is " + names[0]
	}
	return "there are " + strings.Join(names, ", ")
}

// slot returns the instance with the ID or alias.
func (p *pool) slot(name string) (*slot, error) {
	for _, s := range p.slots {
		if s.set.ID == name || s.set.Alias == name && name != "" {
			return s, nil
		}
	}
	has := "0"
	if last := len(p.slots) - 1; last > 0 {
		has = fmt.Sprintf("0 to %d", last)
	}
	return nil, control.Errorf(control.InstanceNotFound, "pool %s has no instance %q: it has %s%s", p.cfg.Name, name,
		has,
		p.aliases())
}

func (p *pool) aliases() string {
	var names []string
	for _, s := range p.slots {
		if s.set.Alias != "" {
			names = append(names, s.set.Alias)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " and " + strings.Join(names, ", ")
}

// Status returns the state of the named pool, or of all pools if the name is
// "".
func (v *Service) Status(name string) (*api.PoolsStatus, error) {
	v.mu.Lock()
	shown, err := v.pools.these(name)
	if err != nil {
		v.mu.Unlock()
		return nil, err
	}
	st, slots := shown.status()
	v.mu.Unlock()
	for i, s := range slots {
		s.addBrowserDetails(i)
	}
	return st, nil
}

// status returns the status without what the proxies know, because they
// are called without the lock, and the slot of each instance in it.
func (ps pools) status() (*api.PoolsStatus, map[*api.InstanceStatus]*slot) {
	all := map[*api.InstanceStatus]*slot{}
	st := &api.PoolsStatus{Pools: []api.PoolStatus{}, Summary: api.PoolsSummary{Pools: len(ps)}}
	for _, p := range ps {
		one, slots := p.status()
		st.Pools = append(st.Pools, one)
		st.Summary.Total += one.Total
		st.Summary.Healthy += one.Healthy
		st.Summary.Leased += one.Leased
		st.Summary.Available += one.Available
		st.Summary.Waiting += one.Waiting
		for k := range one.Instances {
			i := &one.Instances[k]
			all[i] = slots[k]
			if i.Status == Failed {
				st.Summary.Failed++
			}
		}
	}
	slices.SortFunc(st.Pools, func(a, b api.PoolStatus) int { return cmp.Compare(a.Name, b.Name) })
	return st, all
}

// status returns the pool's status and the slots of its instances.
func (p *pool) status() (api.PoolStatus, []*slot) {
	ps := api.PoolStatus{Name: p.cfg.Name, Description: p.cfg.Description, IsDefault: p.cfg.IsDefault,
		Total: len(p.slots), Waiting: p.leases.Waiting(), Affinity: p.cfg.Affinity,
		LeaseTTL: p.cfg.LeaseTTL.Milliseconds(), Interval: p.cfg.HealthInterval.Milliseconds(),
		Timeout: p.cfg.HealthTimeout.Milliseconds(), Instances: []api.InstanceStatus{}}
	slots := slices.Clone(p.slots)
	for _, l := range p.service.leases { // removed instances that end with their lease
		if l.slot.retired && l.slot.poolName == p.cfg.Name {
			slots = append(slots, l.slot)
		}
	}
	for _, s := range slots {
		i := s.status()
		if i.Status == Healthy {
			ps.Healthy++
			if !i.Leased {
				ps.Available++
			}
		}
		if i.Leased {
			ps.Leased++
		}
		ps.Instances = append(ps.Instances, i)
	}
	return ps, slots
}

func (s *slot) status() api.InstanceStatus {
	state, r := s.state, s.runs()
	if state == Healthy && (s.pool.drained || s.retired || s.service.closing) {
		state = Draining
	}
	i := api.InstanceStatus{
		ID: s.set.ID, Status: state, Browser: s.set.Browser, Headless: s.set.IsHeadless(),
		UserDataDir: s.set.Profile, WSLWindows: s.set.WSLWindows,
		Isolated: s.set.Isolated, Isolation: s.set.Isolation, Timeout: s.set.Timeout.Milliseconds(),
		Uses: r.uses, Restarts: s.restarts, Memory: r.memory, HibernateAfter: s.set.Hibernate.Milliseconds(),
	}
	if s.set.Alias != "" {
		i.Alias = &s.set.Alias
	}
	if l := s.lease; l != nil {
		ms := time.Since(l.started).Milliseconds()
		i.Leased, i.LeaseDuration, i.LeaseStarted, i.Lease = true, &ms, &record.Time{Time: l.started}, l.id
		i.Holder, i.By, i.User = l.holder, l.by.String(), l.user
		if since := l.held.Resting(); !since.IsZero() {
			i.LeaseIdle = new(s.service.clock.now().Sub(since).Milliseconds())
		}
		if l.ttl < noExpiry {
			i.LeaseExpires = &record.Time{Time: l.expires}
		}
	}
	if s.state == Failed && !r.retry.Off {
		i.NextTry = &record.Time{Time: r.retry.At}
	}
	switch {
	case s.proxy != nil:
		i.Endpoint = "http://" + s.addr
	case s.shares() && s.lease != nil:
		var at record.Instance
		s.setAddresses(&at, s.lease.id)
		i.Endpoint = at.HTTPURL
		s.lease.addSession(&i)
	}
	if !r.check.at.IsZero() {
		i.Health = api.HealthStatus{LastCheck: &record.Time{Time: r.check.at}, Responsive: r.check.responsive}
		if r.check.err != "" {
			i.Health.Error = new(r.check.err) // a copy, because the answer is written without the lock
		}
	}
	return i
}

// addBrowserDetails adds what only the record of the running browser tells.
func (s *slot) addBrowserDetails(st *api.InstanceStatus) {
	rec := s.browser()
	if rec == nil {
		return
	}
	var i record.Instance
	if ok, err := rec.Get("instance", &i); ok && err == nil && i.PID != 0 {
		st.ProcessID = &i.PID
	}
	var b record.Browser
	if ok, err := rec.Get("browser", &b); ok && err == nil && st.Browser == "" {
		st.Browser = b.Type
	}
}
