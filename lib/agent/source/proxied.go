package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/control"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/wait"
)

// proxied is one browser behind one bproxy.
type proxied struct {
	proxy *sibling
	store *state.Store
	log   io.Writer
	flags []string // of bproxy
	joins *joining // nil: it is launched by bproxy

	sessions Sessions

	watching sync.WaitGroup // browsers
	idle     idling
	seats    seats

	ids atomic.Int64 // session_ids that are in use
	// The session_ids that one host, and all hosts, may have at a time.
	maxIDsOfHost, maxIDs int

	lock    sync.Mutex
	owners  map[*parts]bool
	at      record.Proxy
	path    string // of its control socket
	cur     *Lease // nil: none is known to be up
	stopped string // why the last one was stopped here; "": it was not
}

// Proxied is one browser behind a bproxy that is started with these flags when
// it is needed, and how hosts share it.
func Proxied(store *state.Store, log io.Writer, flags []string, how Sessions) Source {
	s := &proxied{store: store, log: log, flags: slices.Concat(flags, how.flags()), sessions: how,
		maxIDsOfHost: maxIDsOfHost, maxIDs: maxIDs, owners: map[*parts]bool{}}
	s.proxy = newSibling(store, s.start)
	s.idle.after, s.idle.stop = how.BrowserIdle, s.stopIdle
	s.seats.table.Max, s.seats.table.Rest = how.MaxBrowsers, seatRest
	s.seats.vacate = func(v *virtual) bool { return v.of.vacate(v) }
	return s
}

func (s *proxied) Close() {
	s.seats.close()
	if s.joins != nil {
		s.joins.close()
	}
	s.proxy.close()
	s.idle.close()
	s.watching.Wait()
}

// start starts the proxy, on the port of its predecessor if there was one.
func (s *proxied) start(ctx context.Context) (*launcher.Browser, error) {
	s.lock.Lock()
	port := s.at.Port
	s.lock.Unlock()
	flags := append([]string{"--owner=bmcp " + strconv.Itoa(os.Getpid())}, s.flags...)
	held, err := launcher.Service(ctx, s.log, "bproxy", append(flags, "--listen=127.0.0.1:"+strconv.Itoa(port))...)
	if err != nil && port != 0 {
		held, err = launcher.Service(ctx, s.log, "bproxy", flags...)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start bproxy: %w", err)
	}
	var at record.Proxy
	_, err = held.Record.Get("proxy", &at)
	f, err2 := s.store.Read()
	if err = errors.Join(err, err2); err != nil {
		held.Stop()
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	i := slices.IndexFunc(f.Proxies, func(p state.Proxy) bool { return p.Process.PID == at.PID })
	if i < 0 {
		held.Stop()
		return nil, errors.New("bproxy has not noted where it listens to us")
	}
	s.at, s.path, s.cur = at, f.Proxies[i].Control, nil
	s.idle.begin()
	return held, nil
}

func (s *proxied) target(ctx context.Context) (Browser, error) {
	if s.joins != nil {
		return s.joins.target(ctx)
	}
	if _, err := s.proxy.Get(ctx); err != nil {
		return Browser{}, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.browserLocked(), nil
}

func (s *proxied) targets(ctx context.Context) ([]Browser, error) {
	b, err := s.target(ctx)
	return []Browser{b}, err
}

func (s *proxied) browserLocked() Browser {
	return Browser{HTTPURL: s.at.HTTPURL, WSURL: s.at.WSURL, Port: s.at.Port}
}

// up returns the browser if it is running, else nil.
func (s *proxied) up() *Lease {
	if s.joins != nil {
		return s.joins.up()
	}
	if s.proxy.Running() == nil {
		return nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.cur == nil || wait.Closed(s.cur.Died) {
		return nil
	}
	return s.cur
}

// acquire returns the browser, and launches it if necessary.
func (s *proxied) acquire(ctx context.Context) (*Lease, error) {
	if s.joins != nil {
		return s.joins.acquire(ctx)
	}
	if p := s.up(); p != nil {
		return p, nil
	}
	for end := time.Now().Add(noticed); ; {
		if _, err := s.control(ctx, "launch", options.Options{}); err != nil {
			return nil, err
		}
		if p := s.up(); p != nil {
			return p, nil
		}
		if time.Now().After(end) {
			return nil, errors.New("the browser ended as soon as it was launched")
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// noticed is how long the proxy may take to notice what bmcp has seen already:
// that its browser has ended.
const noticed = 5 * time.Second

// proxyStatus is what bproxy says of itself.
type proxyStatus struct {
	State     string `json:"state"`
	LastExit  string `json:"last_exit,omitempty"`
	LastError string `json:"last_error,omitempty"`

	Idle *float64 `json:"idle_seconds,omitempty"`
}

// control sends the proxy a request, repeats it if the proxy has ended meanwhile,
// and records the browser.
func (s *proxied) control(ctx context.Context, method string, o options.Options) (*record.Record, error) {
	var params any
	if method == "launch" {
		params = o
	}
	rec := &record.Record{}
	for try := 0; ; try++ {
		held, err := s.proxy.Get(ctx)
		if err != nil {
			return nil, err
		}
		s.lock.Lock()
		path := s.path
		s.lock.Unlock()
		if err = control.Call(ctx, path, method, params, rec); err == nil {
			break
		}
		if errors.As(err, new(*control.Error)) || ctx.Err() != nil || try == 2 {
			return nil, err
		}
		select { // its end may not have been noticed yet
		case <-held.Ended():
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	var i record.Instance
	ok, err := rec.Get("instance", &i)
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if !ok || i.PID == 0 {
		s.cur = nil
		return rec, nil
	}
	if s.cur == nil || s.cur.ID != i.ID {
		b := s.browserLocked()
		b.ID, b.Headless = i.ID, i.Headless
		var now proxyStatus
		rec.Get("status", &now)
		if s.stopped != "" {
			now.LastExit, s.stopped = s.stopped, ""
		}
		s.cur = &Lease{Browser: b, Died: watch(s.proxy.ctx, &s.watching, i.PID), Release: func() {},
			ended: now.LastExit}
		if s.sessions.Kind != SharedProfile {
			s.cur.look = s.lookAt(hostSession)
		}
	}
	return rec, nil
}

// status returns the proxy's record, nil while there is none.
func (s *proxied) status(ctx context.Context) (*record.Record, error) {
	if s.joins != nil {
		return s.joins.status(), nil
	}
	if s.proxy.Running() == nil {
		return nil, nil
	}
	return s.control(ctx, "status", options.Options{})
}

// endBound is how long the pages of a session may take to close.
const endBound = 5 * time.Second

// endSession ends a session of the proxy, or of a browser that has joined, if there is one.
func (s *proxied) endSession(instance, name string) {
	if s.joins != nil {
		s.joins.end(instance, name)
		return
	}
	s.call(context.Background(), "session_end", map[string]string{"name": name}) // what can't be ended ends with bproxy
}

// newSession starts a session of the proxy with a state.
func (s *proxied) newSession(ctx context.Context, name, state string) error {
	s.lock.Lock()
	path := s.path
	s.lock.Unlock()
	return control.Call(ctx, path, "session_new", map[string]string{"name": name, "state": state}, nil)
}

// list returns the records of the proxy's sessions.
func (s *proxied) list(ctx context.Context) json.RawMessage {
	if s.joins != nil {
		return s.joins.call(ctx, "session_list", nil)
	}
	return s.call(ctx, "session_list", nil)
}

// call sends the proxy a request, if it is running.
func (s *proxied) call(ctx context.Context, method string, params any) (result json.RawMessage) {
	if s.proxy.Running() == nil {
		return nil
	}
	s.lock.Lock()
	path := s.path
	s.lock.Unlock()
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	if control.Call(ctx, path, method, params, &result) != nil {
		return nil
	}
	return result
}
