package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// pool is the browsers of a bpool service.
type pool struct {
	plain
	ctx  context.Context
	stop context.CancelFunc
	log  io.Writer
	own  *server                                            // that we run; nil: the service is somebody else's
	find func(ctx context.Context) (*control.Client, error) // connects to the service

	state string // with which leases start; "": as the service is configured

	uses book
	work sync.WaitGroup // what close waits for

	// Under the lock of the book:
	sock   string // of our own
	free   []*control.Client
	pools  map[string]api.PoolStatus // by name; "": the default one
	looked time.Time                 // when these were asked for
	dead   map[int]<-chan struct{}   // by the browser's process
}

// Pooled are the browsers of a bpool serve with these arguments, which bmcp starts
// when it is needed and owns. Leases start with a state; "": as the service is configured.
func Pooled(store *state.Store, log io.Writer, args []string, withState string) Source {
	s := newPooled(withState)
	s.log = log
	s.own = newSibling(store, func(ctx context.Context) (*sibling.Browser, error) { return s.start(ctx, args) })
	s.find = func(ctx context.Context) (*control.Client, error) {
		if _, err := s.own.Get(ctx); err != nil {
			return nil, err
		}
		s.uses.mu.Lock()
		sock := s.sock
		s.uses.mu.Unlock()
		return control.Dial(ctx, sock)
	}
	return s
}

// Served are the browsers of a bpool service that bmcp does not own. Dial looks
// for it each time: it may have been restarted elsewhere. Leases start with a state; "": as the service is configured.
func Served(dial func(context.Context) (*control.Client, error), withState string) Source {
	s := newPooled(withState)
	s.find = dial
	return s
}

func newPooled(withState string) *pool {
	s := &pool{state: withState, dead: map[int]<-chan struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *pool) Kind() Kind { return Pool }

func (s *pool) Close() {
	s.uses.close()
	s.uses.mu.Lock()
	s.stop()
	for _, c := range s.free {
		c.Close()
	}
	s.uses.mu.Unlock()
	s.work.Wait()
	if s.own != nil {
		s.own.close()
	}
}

func (s *pool) start(ctx context.Context, args []string) (*sibling.Browser, error) {
	own, err := sibling.Service(ctx, s.log, "bpool", slices.Concat([]string{"serve"}, args)...)
	if err != nil {
		return nil, fmt.Errorf("cannot start bpool: %w", err)
	}
	var at struct{ Socket string }
	if _, err := own.Record.Get("service", &at); err != nil {
		own.Stop()
		return nil, err
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	s.sock, s.pools = at.Socket, nil
	return own, nil
}

// dial returns a connection to the service, and starts one of our own if it is not
// running.
func (s *pool) dial(ctx context.Context) (*control.Client, error) {
	s.uses.mu.Lock()
	if s.ctx.Err() != nil {
		s.uses.mu.Unlock()
		return nil, errors.New("bmcp is stopping")
	}
	if n := len(s.free); n > 0 {
		defer s.uses.mu.Unlock()
		c := s.free[n-1]
		s.free = s.free[:n-1]
		return c, nil
	}
	s.uses.mu.Unlock()
	return s.find(ctx)
}

// call makes one call, and repeats it if the service has ended meanwhile, or is about to.
func (s *pool) call(ctx context.Context, method string, params, result any) (*control.Client, error) {
	for try := 0; ; try++ {
		c, err := s.dial(ctx)
		if err == nil {
			if err = c.Call(ctx, method, params, result); err == nil {
				return c, nil
			}
			var e *control.Error
			if errors.As(err, &e) {
				if e.Code != control.Stopping || s.own != nil {
					s.put(c)
					return nil, err
				}
				c.Close()
				s.lost(ctx) // which may go on with the leases that it has
				select {    // the next one is another service's, with tries of its own
				case <-time.After(stoppingDelay):
					try = -1
					continue
				case <-ctx.Done():
					return nil, err
				}
			}
			c.Close()
		}
		if ctx.Err() != nil || try == 2 {
			return nil, err
		}
		s.lost(ctx)
	}
}

// stoppingDelay is how often a service that stops is asked whether it is another one by now.
const stoppingDelay = 250 * time.Millisecond

// lost closes the connections to a service that has gone, and gives our own
// service time to end.
func (s *pool) lost(ctx context.Context) {
	s.uses.mu.Lock()
	for _, c := range s.free {
		c.Close()
	}
	s.free, s.pools = nil, nil // the next one may have other pools
	s.uses.mu.Unlock()
	if s.own != nil {
		s.own.settle(ctx)
	}
}

func (s *pool) put(c *control.Client) {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if s.ctx.Err() != nil || len(s.free) >= 64 {
		c.Close()
		return
	}
	s.free = append(s.free, c)
}

// Call is call without the connection, as of a control.Caller.
func (s *pool) Call(ctx context.Context, method string, params, result any) error {
	c, err := s.call(ctx, method, params, result)
	if err == nil {
		s.put(c)
	}
	return err
}

func (s *pool) status(ctx context.Context, name string) (json.RawMessage, error) {
	return control.Method[api.Of, json.RawMessage](api.Status).Ask(ctx, s, api.Of{Pool: name})
}

// instanceID returns the ID of the instance of a pool with this ID or alias.
func instanceID(p *api.PoolStatus, name string) string {
	if i := p.Find(name); i != nil {
		return i.ID
	}
	return name
}

// queue is where tasks wait for an instance that they name, or for the one that their
// session keeps. Others take any that is free: as many of them run as there are
// instances. What is not known yet is known when the task has its browser.
func (s *pool) queue(owner string, w BrowserRef) tasks.Queue {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
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

// look updates what is known of pools and instances.
func (s *pool) look(ctx context.Context) (st api.PoolsStatus, err error) {
	raw, err := s.status(ctx, "")
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err != nil {
		return st, err
	}
	pools := map[string]api.PoolStatus{}
	for _, p := range st.Pools {
		pools[p.Name] = p
		if p.IsDefault {
			pools[""] = p
		}
	}
	s.uses.mu.Lock()
	s.pools, s.looked = pools, time.Now()
	s.uses.mu.Unlock()
	return st, nil
}

// lookAgain is how old the knowledge of pools may be: a reloaded pool may have
// changed. A caller that finds it older does not wait for the update.
const lookAgain = time.Second

// info returns what is known of a pool; "" is the default one.
func (s *pool) info(ctx context.Context, name string) (api.PoolStatus, error) {
	s.uses.mu.Lock()
	known := s.pools != nil
	old := known && time.Since(s.looked) > lookAgain
	if old && s.ctx.Err() == nil {
		s.looked = time.Now()
		s.work.Go(func() { s.look(s.ctx) })
	}
	s.uses.mu.Unlock()
	if !known {
		if _, err := s.look(ctx); err != nil {
			return api.PoolStatus{}, err
		}
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	return s.pools[name], nil
}

// nowhere is the endpoint that a child is started with before there is a lease, if
// the lease has the endpoint. Nobody listens there.
var nowhere = Browser{HTTPURL: "http://127.0.0.1:1/session/none",
	WSURL: "ws://127.0.0.1:1/session/none/devtools/browser/none"}

// target is the first instance of the default pool: its endpoint does not depend
// on the lease, or is nowhere for now.
func (s *pool) target(ctx context.Context) (Browser, error) {
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
	return Browser{}, errors.New("there is no default pool")
}

func (s *pool) targets(ctx context.Context) (all []Browser, err error) {
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

// isVirtual reports whether each lease of an instance has a virtual browser,
// with an endpoint of its own.
func isVirtual(i *api.InstanceStatus) bool { return i.Isolation == "context" }

// isHidden reports whether another user has leased an instance, whose endpoint the service
// does not show.
func isHidden(i *api.InstanceStatus) bool { return i.Leased && i.Lease == "" }

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

// watch is watch, once for each process.
func (s *pool) watch(pid int) <-chan struct{} {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	for other, died := range s.dead {
		if wait.Closed(died) {
			delete(s.dead, other)
		}
	}
	if s.dead[pid] == nil {
		if s.ctx.Err() != nil {
			return nil // close does not wait for it any more
		}
		s.dead[pid] = watch(s.ctx, &s.work, pid)
	}
	return s.dead[pid]
}
