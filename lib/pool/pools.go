package pool

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
	"btools/lib/pool/config"
	"btools/lib/settings"
	"btools/lib/spell"
)

// pool is one pool.
type pool struct {
	service *Service
	cfg     config.Pool
	leases  *book.Leases[*lease]
	slots   []*slot
	drains
}

// drains is how a pool is emptied.
type drains struct {
	drained bool      // grants no more leases
	moves   bool      // its leases move to other hosts
	late    time.Time // when those move that are in use; zero: never
}

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

// instances returns all instances of a pool, or the one that is named.
func (ps pools) instances(poolName, instance string) ([]*slot, error) {
	p, err := ps.find(poolName)
	if err != nil || instance == "" {
		if err != nil {
			return nil, err
		}
		return p.slots, nil
	}
	s, err := p.slot(instance)
	return []*slot{s}, err
}

// suggestion names the pool that was probably meant, or lists all pools.
func suggestion(name string, names []string) string {
	if near := spell.Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	switch len(names) {
	case 0:
		return "this service has none of its own"
	case 1:
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

func (p *pool) allFailed() bool {
	for _, s := range p.slots {
		if s.state != Failed {
			return false
		}
	}
	return true
}

// currentLocked returns the pool of the current configuration; p may belong to
// an earlier one.
func (p *pool) currentLocked() *pool {
	for _, q := range p.service.pools {
		if q.leases == p.leases {
			return q
		}
	}
	return p
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
		p := &pool{service: v, cfg: pc, leases: &book.Leases[*lease]{Queue: book.Queue{Changed: v.Offers.note}}}
		old := v.pools.named(pc.Name)
		if old != nil {
			p.leases, p.drains = old.leases, old.drains // waiting requests keep their order
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
	// Hosts means that other keys of NATS or of hosts are set, which are read at a start.
	Hosts bool `json:"hosts,omitempty"`
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
	if c.Hosts {
		s += "; keys of NATS or of hosts have changed, which bpool upgrade applies"
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
