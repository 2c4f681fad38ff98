package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/launcher"
	"btools/lib/record"
)

// pooled are the browsers of a bpool service.
type pooled struct {
	ctx  context.Context
	stop context.CancelFunc
	log  io.Writer
	own  *service // that we run; nil: the service is somebody else's

	mu     sync.Mutex
	sock   string
	free   []*control.Client
	types  map[string]poolInstance // by pool and instance
	pools  map[string]poolInfo     // by name; "": the default one
	looked time.Time               // when these were asked for
	dead   map[int]<-chan struct{} // by the browser's process
}

// Pooled are the browsers of the bpool service that listens on a socket, or,
// with arguments for it, of a bpool serve that is started when it is needed.
func Pooled(log io.Writer, sock string, args []string) Browsers {
	s := &pooled{log: log, sock: sock, dead: map[int]<-chan struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if args != nil {
		s.own = newService()
		s.own.run = func(ctx context.Context) (*launcher.Browser, error) { return s.start(ctx, args) }
	}
	return s
}

func (s *pooled) close() {
	s.mu.Lock()
	s.stop()
	for _, c := range s.free {
		c.Close()
	}
	s.mu.Unlock()
	if s.own != nil {
		s.own.close()
	}
}

func (s *pooled) start(ctx context.Context, args []string) (*launcher.Browser, error) {
	own, err := startService(ctx, s.log, "bpool", slices.Concat([]string{"serve"}, args)...)
	if err != nil {
		return nil, fmt.Errorf("cannot start bpool: %w", err)
	}
	var at struct{ Socket string }
	if _, err := own.Record.Get("service", &at); err != nil {
		own.Stop()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sock, s.types, s.pools = at.Socket, nil, nil
	return own, nil
}

// dial connects to the service; one of our own is started if it does not run.
func (s *pooled) dial(ctx context.Context) (*control.Client, error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, errors.New("bmcp is stopping")
	}
	if n := len(s.free); n > 0 {
		defer s.mu.Unlock()
		c := s.free[n-1]
		s.free = s.free[:n-1]
		return c, nil
	}
	s.mu.Unlock()
	if s.own != nil {
		if _, err := s.own.up(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	sock := s.sock
	s.mu.Unlock()
	return control.Dial(ctx, sock)
}

// call makes one call, again if the service has ended meanwhile.
func (s *pooled) call(ctx context.Context, method string, params, result any) (*control.Client, error) {
	for try := 0; ; try++ {
		c, err := s.dial(ctx)
		if err == nil {
			if err = c.Call(ctx, method, params, result); err == nil {
				return c, nil
			}
			var e *control.Error
			if errors.As(err, &e) {
				s.put(c)
				return nil, err
			}
			c.Close()
		}
		if ctx.Err() != nil || try == 2 {
			return nil, err
		}
		s.lost(ctx)
	}
}

// lost closes the connections to a service that has gone, and gives one of our
// own the time to have ended.
func (s *pooled) lost(ctx context.Context) {
	s.mu.Lock()
	for _, c := range s.free {
		c.Close()
	}
	s.free = nil
	s.mu.Unlock()
	if s.own == nil {
		return
	}
	own := s.own.running()
	if own == nil {
		return
	}
	select {
	case <-own.Ended():
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

func (s *pooled) put(c *control.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.free) >= 64 {
		c.Close()
		return
	}
	s.free = append(s.free, c)
}

// status is what the service says of its pools, or of one of them.
func (s *pooled) status(ctx context.Context, name string) (json.RawMessage, error) {
	var raw json.RawMessage
	c, err := s.call(ctx, "status", map[string]string{"pool_name": name}, &raw)
	if err != nil {
		return nil, err
	}
	s.put(c)
	return raw, nil
}

// poolInstance is what matters here of an instance's status.
type poolInstance struct {
	ID       string `json:"id"`
	Alias    string `json:"alias"`
	Browser  string `json:"browser"`
	Headless bool   `json:"headless"`
	Windows  bool   `json:"wsl_windows"`
	Endpoint string `json:"http_url"`
}

type poolStatus struct {
	Pools []poolInfo `json:"pools"`
}

type poolInfo struct {
	Name      string         `json:"name"`
	IsDefault bool           `json:"is_default"`
	Affinity  string         `json:"affinity"`
	LeaseTTL  int64          `json:"lease_ttl_ms"`
	Instances []poolInstance `json:"instances"`
}

// means reports whether a name is that of an instance: its ID or its alias.
func (p *poolInfo) means(name, id string) bool {
	return name == id || slices.ContainsFunc(p.Instances, func(i poolInstance) bool { return i.ID == id && i.Alias == name })
}

// look notes what instances there are.
func (s *pooled) look(ctx context.Context) (st poolStatus, err error) {
	raw, err := s.status(ctx, "")
	if err == nil {
		err = json.Unmarshal(raw, &st)
	}
	if err != nil {
		return st, err
	}
	types, pools := map[string]poolInstance{}, map[string]poolInfo{}
	for _, p := range st.Pools {
		pools[p.Name] = p
		if p.IsDefault {
			pools[""] = p
		}
		for _, i := range p.Instances {
			types[p.Name+"/"+i.ID] = i
		}
	}
	s.mu.Lock()
	s.types, s.pools, s.looked = types, pools, time.Now()
	s.mu.Unlock()
	return st, nil
}

// lookAgain is how old what is known of pools may be: one that is reloaded may
// be another. Who sees that it is older does not wait.
const lookAgain = time.Second

// info is what is known of a pool; "" is the default one.
func (s *pooled) info(ctx context.Context, name string) (poolInfo, error) {
	s.mu.Lock()
	known := s.pools != nil
	old := known && time.Since(s.looked) > lookAgain
	if old {
		s.looked = time.Now()
	}
	s.mu.Unlock()
	if old {
		go s.look(s.ctx)
	}
	if !known {
		if _, err := s.look(ctx); err != nil {
			return poolInfo{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools[name], nil
}

func (s *pooled) ready() *place { return nil }

// any is the first instance of the default pool: its endpoint is there
// whoever leases it.
func (s *pooled) any(ctx context.Context) (Browser, error) {
	st, err := s.look(ctx)
	if err != nil {
		return Browser{}, err
	}
	for _, p := range st.Pools {
		if p.IsDefault && len(p.Instances) > 0 {
			return browserOf(p.Name, p.Instances[0]), nil
		}
	}
	return Browser{}, errors.New("there is no default pool")
}

func (s *pooled) every(ctx context.Context) (all []Browser, err error) {
	st, err := s.look(ctx)
	for _, p := range st.Pools {
		for _, i := range p.Instances {
			all = append(all, browserOf(p.Name, i))
		}
	}
	return all, err
}

func browserOf(pool string, i poolInstance) Browser {
	b := Browser{Pool: pool, Instance: i.ID, Type: i.Browser, Headless: i.Headless, Windows: i.Windows}
	if i.Endpoint != "" && i.Browser != record.Firefox { // whose BiDi no child speaks to one that runs
		b.HTTPURL, b.WSURL = i.Endpoint, "ws"+i.Endpoint[len("http"):]+"/devtools/browser"
		if _, port, err := net.SplitHostPort(i.Endpoint[len("http://"):]); err == nil {
			b.Port, _ = strconv.Atoi(port)
		}
	}
	return b
}

func (s *pooled) acquire(ctx context.Context, poolName, instance, who string) (*place, error) {
	params := map[string]any{"hold": true, "keep": who, "holder": fmt.Sprintf("bmcp (%d)", os.Getpid())}
	if poolName != "" {
		params["pool"] = poolName
	}
	if instance != "" {
		params["instance"] = instance
	}
	rec := &record.Record{}
	c, err := s.call(ctx, "lease", params, rec)
	if err != nil {
		return nil, err
	}
	var l record.Lease
	var i record.Instance
	rec.Get("lease", &l)
	rec.Get("instance", &i)
	b := browserAt(i)
	b.Pool, b.Instance = l.Pool, l.Instance
	s.mu.Lock()
	known, ok := s.types[l.Pool+"/"+l.Instance]
	s.mu.Unlock()
	if !ok {
		if _, err := s.look(ctx); err == nil {
			s.mu.Lock()
			known = s.types[l.Pool+"/"+l.Instance]
			s.mu.Unlock()
		}
	}
	b.Type, b.Headless = known.Browser, known.Headless
	if i.Protocol == record.BiDi {
		b.HTTPURL, b.WSURL, b.Port = "", "", 0 // no child speaks it to a browser that runs
	}
	p := &place{Browser: b, again: func(ctx context.Context) (<-chan struct{}, bool) {
		rec, i := &record.Record{}, record.Instance{}
		if c.Call(ctx, "renew", map[string]string{"lease": l.ID}, rec) != nil {
			return nil, false
		}
		if rec.Get("instance", &i); i.PID == 0 {
			return nil, true
		}
		return s.watch(i.PID), true
	}, release: func() {
		release, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Call(release, "release", map[string]string{"lease": l.ID}, nil); err != nil {
			c.Close() // which releases it too
			return
		}
		s.put(c)
	}}
	if i.PID != 0 {
		p.died = s.watch(i.PID)
	}
	return p, nil
}

// watch is watch, once for each process.
func (s *pooled) watch(pid int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, died := range s.dead {
		if isClosed(died) {
			delete(s.dead, other)
		}
	}
	if s.dead[pid] == nil {
		s.dead[pid] = watch(s.ctx, pid)
	}
	return s.dead[pid]
}
