package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// proxied is one browser behind one bproxy.
type proxied struct {
	oneBrowser
	proxy *server
	store *state.Store
	log   io.Writer
	flags []string // of bproxy

	watching sync.WaitGroup // browsers

	// Under the lock of the book:
	at      client.Proxy
	cur     *Lease // nil: none is known to be up
	stopped string // why the last one was stopped here; "": it was not
}

// Proxied is one browser behind a bproxy that is started with these flags when
// it is needed, and how hosts share it.
func Proxied(store *state.Store, log io.Writer, flags []string, how Sharing) Source {
	return newProxied(store, log, flags, how)
}

func newProxied(store *state.Store, log io.Writer, flags []string, how Sharing) *proxied {
	s := &proxied{store: store, log: log, flags: slices.Concat(flags, how.flags())}
	s.init(s, how)
	s.proxy = newSibling(store, s.start)
	s.stopUnused = s.stopIdle
	return s
}

func (s *proxied) Close() {
	s.uses.close()
	s.proxy.close()
	s.stopping.Wait()
	s.watching.Wait()
}

// start starts the proxy, on the port of its predecessor if there was one.
func (s *proxied) start(ctx context.Context) (*sibling.Browser, error) {
	s.uses.mu.Lock()
	port := s.at.Port
	s.uses.mu.Unlock()
	flags := append([]string{"--owner=bmcp " + strconv.Itoa(os.Getpid())}, s.flags...)
	held, err := sibling.Service(ctx, s.log, "bproxy", append(flags, "--listen=127.0.0.1:"+strconv.Itoa(port))...)
	if err != nil && port != 0 {
		held, err = sibling.Service(ctx, s.log, "bproxy", flags...)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start bproxy: %w", err)
	}
	var at record.Proxy
	_, err = held.Record.Get("proxy", &at)
	all, err2 := client.Any.All(s.store)
	if err = errors.Join(err, err2); err == nil {
		i := slices.IndexFunc(all, func(p client.Proxy) bool { return p.PID == at.PID })
		if i >= 0 {
			s.uses.mu.Lock()
			s.at, s.cur = all[i], nil
			s.uses.mu.Unlock()
			s.uses.touch(&s.oneBrowser)
			return held, nil
		}
		err = errors.New("bproxy has not noted where it listens to us")
	}
	held.Stop()
	return nil, err
}

func (s *proxied) target(ctx context.Context) (Browser, error) {
	if _, err := s.proxy.Get(ctx); err != nil {
		return Browser{}, err
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	return s.browserLocked(), nil
}

func (s *proxied) browserLocked() Browser {
	return Browser{HTTPURL: s.at.HTTPURL, WSURL: s.at.WSURL, Port: s.at.Port}
}

func (s *proxied) up(string, string) *Lease {
	if s.proxy.Running() == nil {
		return nil
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if s.cur == nil || wait.Closed(s.cur.Died) {
		return nil
	}
	return s.cur
}

func (s *proxied) acquire(ctx context.Context, _, _ string) (*Lease, error) {
	if p := s.up("", ""); p != nil {
		return p, nil
	}
	for end := time.Now().Add(noticed); ; {
		if _, err := s.control(ctx, string(api.Launch), options.Options{}); err != nil {
			return nil, err
		}
		if p := s.up("", ""); p != nil {
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

// control sends the proxy a request, repeats it if the proxy has ended meanwhile,
// and records the browser.
func (s *proxied) control(ctx context.Context, method string, o options.Options) (*record.Record, error) {
	var params any
	if method == string(api.Launch) {
		params = o
	}
	rec := &record.Record{}
	for try := 0; ; try++ {
		if _, err := s.proxy.Get(ctx); err != nil {
			return nil, err
		}
		err := s.Call(ctx, method, params, rec)
		if err == nil {
			break
		}
		if errors.As(err, new(*control.Error)) || ctx.Err() != nil || try == 2 {
			return nil, err
		}
		s.proxy.settle(ctx)
	}
	var i record.Instance
	ok, err := rec.Get("instance", &i)
	if err != nil {
		return nil, err
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if !ok || i.PID == 0 {
		s.cur = nil
		return rec, nil
	}
	if s.cur == nil || s.cur.ID != i.ID {
		b := s.browserLocked()
		b.ID, b.Headless = i.ID, i.Headless
		var now api.ProxyStatus
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

func (s *proxied) status(ctx context.Context) (*record.Record, error) {
	s.uses.mu.Lock()
	begun := s.at.PID != 0
	s.uses.mu.Unlock()
	// The first proxy is started with the first host: it is waited for.
	if begun && s.proxy.Running() == nil {
		return nil, nil
	}
	return s.control(ctx, string(api.Status), options.Options{})
}

// endBound is how long the pages of a session may take to close.
const endBound = 5 * time.Second

func (s *proxied) idOf(context.Context, string) (string, error) { return "", nil }

func (s *proxied) end(_, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	api.Release.Ask(ctx, s, api.Of{Session: name}) // what can't be ended ends with bproxy
}

func (s *proxied) newSession(ctx context.Context, name, state string) error {
	_, err := api.Hold.Ask(ctx, s, api.HoldRequest{Of: api.Of{Session: name}, Settings: settings.WithState(state)})
	return err
}

func (s *proxied) list(ctx context.Context) []session {
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return sessionsAt(ctx, s, api.Of{})
}

// sessionsAt returns the sessions of a bproxy or hub; none if it does not answer.
func sessionsAt(ctx context.Context, at control.Caller, of api.Of) (all []session) {
	all, _ = control.Method[api.Of, []session](api.List).Ask(ctx, at, of)
	return all
}

// Call sends the proxy a request.
func (s *proxied) Call(ctx context.Context, method string, params, result any) error {
	s.uses.mu.Lock()
	at := s.at
	s.uses.mu.Unlock()
	return at.Call(ctx, method, params, result)
}

// Bounds of the time until a session is hibernated: until it is noticed that its
// clients have gone, and until it is saved.
const (
	leaveBound     = time.Second
	hibernateBound = 10 * time.Second
)

func (s *proxied) hibernate(ctx context.Context, name string) bool {
	if s.proxy.Running() == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, hibernateBound)
	defer cancel()
	for end := time.Now().Add(leaveBound); ; {
		_, err := api.Rest.Ask(ctx, s, api.Of{Session: name})
		var e *control.Error
		switch {
		case err == nil, errors.As(err, &e) && e.Code == control.SessionNotFound:
			return true
		case e == nil || e.Code != control.TryAgain || time.Now().After(end):
			return false
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
