package source

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
)

// pool is the browsers of a bpool service.
type bpool struct {
	fixed // for what only one browser is asked
	service
	src   *Source
	state string // with which leases start; "": as the service is configured

	// Under the lock of the book:
	pools  map[string]api.PoolStatus // by name; "": the default one
	looked time.Time                 // when these were asked for
}

// Pooled returns the source of the browsers of a bpool serve with these arguments, which bmcp owns and starts when it
// is needed. Leases start with a state; "": as the service is configured.
func Pooled(store *state.Store, log io.Writer, args []string, withState string) *Source {
	p := newPooled(withState)
	p.initOwn(store, func(ctx context.Context) (*process, error) {
		own, err := sibling.Service(ctx, log, "bpool", slices.Concat([]string{"serve"}, args)...)
		if err != nil {
			return nil, fmt.Errorf("cannot start bpool: %w", err)
		}
		var at struct{ Socket string }
		if _, err := own.Record.Get("service", &at); err != nil {
			own.Stop()
			return nil, err
		}
		p.forget()
		return &process{own, at.Socket}, nil
	})
	return p.src
}

// Served returns the source of the browsers of a bpool service that bmcp does not own. Dial looks for it each time, as
// it may have been restarted elsewhere. Leases start with a state; "": as the service is configured.
func Served(dial func(context.Context) (*control.Client, error), withState string) *Source {
	p := newPooled(withState)
	p.service.init(dial)
	p.src.States = p
	return p.src
}

func newPooled(withState string) *bpool {
	p := &bpool{src: &Source{}, state: withState, fixed: fixed{notOurs: errNotOurs}}
	p.src.pool = p
	p.src.init(Pool, p, Sharing{})
	p.lost = p.forget
	return p
}

// forget forgets the pools: the next service may have others.
func (s *bpool) forget() {
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	s.pools = nil
}

func (s *bpool) close() { s.service.close() }

// instance returns how an instance is now; nil: that is not known.
func (s *bpool) instance(ctx context.Context, pool, id string) *api.InstanceStatus {
	st, err := api.Pools.Ask(ctx, s, api.Of{Pool: pool})
	if err != nil || len(st.Pools) != 1 {
		return nil
	}
	return st.Pools[0].Find(id)
}

// instanceID returns the ID of the instance of a pool with this ID or alias.
func instanceID(p *api.PoolStatus, name string) string {
	if i := p.Find(name); i != nil {
		return i.ID
	}
	return name
}

// queue returns where tasks wait for an instance that they name, or for the one that their
// owner keeps. Others take any that is free: as many of them run as there are
// instances. An unknown pool is known once the task has its browser.
func (s *bpool) queue(owner string, w BrowserRef) tasks.Queue {
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	info := s.pools[w.Pool]
	key := "pool " + cmp.Or(info.Name, w.Pool) + "/" + instanceID(&info, w.Instance)
	kept := info.Affinity == affinitySession
	if w.Instance == "" && !kept && len(info.Instances) > 0 {
		return tasks.Queue{Key: key, Slots: len(info.Instances)}
	}
	if i := info.Find(w.Instance); w.Instance == "" || kept || i != nil && isVirtual(i) {
		key += " " + owner
	}
	return tasks.Queue{Key: key, Slots: 1}
}

// look asks for the pools and instances, and notes them.
func (s *bpool) look(ctx context.Context) (st api.PoolsStatus, err error) {
	if st, err = api.Pools.Ask(ctx, s, api.Of{}); err != nil {
		return st, err
	}
	pools := map[string]api.PoolStatus{}
	for _, p := range st.Pools {
		pools[p.Name] = p
		if p.IsDefault {
			pools[""] = p
		}
	}
	s.src.mu.Lock()
	s.pools, s.looked = pools, time.Now()
	s.src.mu.Unlock()
	return st, nil
}

// lookAgain is how old the knowledge of pools may be: a reloaded pool may have
// changed. A caller that finds it older does not wait for the update.
const lookAgain = time.Second

// info returns the status of a pool, about a second old at most; "" is the default one. One that is not known, which
// other hosts may have, is as a pool is by default.
func (s *bpool) info(ctx context.Context, name string) (api.PoolStatus, error) {
	s.src.mu.Lock()
	known := s.pools != nil
	old := known && time.Since(s.looked) > lookAgain
	if old {
		s.looked = time.Now()
		s.do(func() { s.look(s.ctx) })
	}
	s.src.mu.Unlock()
	if !known {
		if _, err := s.look(ctx); err != nil {
			return api.PoolStatus{}, err
		}
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	if p, is := s.pools[name]; is {
		return p, nil
	}
	return api.PoolStatus{Name: name, Affinity: affinitySession, LeaseTTL: time.Hour.Milliseconds()}, nil
}

// nowhere is the endpoint with which a child is started before there is a lease, if
// the endpoint depends on the lease. Nobody listens there.
var nowhere = Browser{HTTPURL: "http://127.0.0.1:1/session/none",
	WSURL: "ws://127.0.0.1:1/session/none/devtools/browser/none"}

// target returns the first instance of the default pool, with its endpoint or, if that depends on the lease, nowhere.
func (s *bpool) target(ctx context.Context) (Browser, error) {
	st, err := s.look(ctx)
	if err != nil {
		return Browser{}, err
	}
	for _, p := range st.Pools {
		if p.IsDefault && len(p.Instances) > 0 {
			if i := &p.Instances[0]; isVirtual(i) || isHidden(i) {
				return nowhere, nil
			}
			return browserOf(&p, &p.Instances[0]), nil
		}
	}
	return nowhere, nil // other hosts may have one
}

func (s *bpool) Targets(ctx context.Context) (all []Browser, err error) {
	st, err := s.look(ctx)
	for _, p := range st.Pools {
		for i := range p.Instances {
			if i := &p.Instances[i]; !isVirtual(i) && !isHidden(i) { // whose children start with the lease
				all = append(all, browserOf(&p, i))
			}
		}
	}
	return all, err
}

// isVirtual reports whether each lease of an instance has a virtual browser, or one of another host,
// with an endpoint of its own.
func isVirtual(i *api.InstanceStatus) bool { return i.Isolation == "context" || i.Host != "" }

// isHidden reports whether another user has leased an instance, whose endpoint the service
// does not show.
func isHidden(i *api.InstanceStatus) bool { return i.Leased && i.Lease == "" }

// browserOf returns an instance as a Browser, with its endpoint unless that depends on the lease.
func browserOf(p *api.PoolStatus, i *api.InstanceStatus) Browser {
	b := Browser{Pool: p.Name, Instance: i.ID, Type: i.Browser, Headless: i.Headless, Windows: i.WSLWindows,
		Profile: i.UserDataDir}
	b.Isolated, b.Virtual = i.Isolated || isVirtual(i), isVirtual(i)
	b.Hibernate = time.Duration(i.HibernateAfter) * time.Millisecond
	b.CallTimeout = time.Duration(i.Timeout) * time.Millisecond
	b.HealthInterval = time.Duration(p.Interval) * time.Millisecond
	b.HealthTimeout = time.Duration(p.Timeout) * time.Millisecond
	if i.Endpoint != "" && i.Browser == record.Firefox {
		b.BiDi = "ws" + i.Endpoint[len("http"):] + "/session"
	}
	if i.Endpoint != "" && !b.Virtual && i.Browser != record.Firefox { // whose BiDi only the builtin child speaks
		b.HTTPURL, b.WSURL = i.Endpoint, "ws"+i.Endpoint[len("http"):]+"/devtools/browser"
		if _, port, err := net.SplitHostPort(i.Endpoint[len("http://"):]); err == nil {
			b.Port, _ = strconv.Atoi(port)
		}
	}
	return b
}

func (s *bpool) SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error) {
	if !b.Virtual {
		return api.States{}, errNoLogins
	}
	r.Lease = b.Lease
	return api.StateSave.Ask(ctx, s, r)
}
