package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
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

// bproxy is one browser behind one bproxy.
type bproxy struct {
	service
	src   *Source
	store *state.Store

	// Under the lock of the book:
	at      client.Proxy
	cur     *Lease // nil: none is known to be up
	stopped string // why the last one was stopped here; "": it was not
}

// Proxied returns the source of one browser, which hosts share so. Its bproxy is started with these flags when it is
// needed.
func Proxied(store *state.Store, log io.Writer, flags []string, how Sharing) *Source {
	return newBproxy(store, log, flags, how).src
}

func newBproxy(store *state.Store, log io.Writer, flags []string, how Sharing) *bproxy {
	how.Kind = cmp.Or(how.Kind, SharedProfile)
	s := &bproxy{src: &Source{stops: true}, store: store}
	s.src.init(how.Kind, s, how)
	flags = slices.Concat([]string{"--owner=" + OwnerOf(os.Getpid())}, flags, how.flags())
	s.initOwn(store, func(ctx context.Context) (*process, error) { return s.start(ctx, log, flags) })
	return s
}

// start starts the proxy, on the port of its predecessor if there was one.
func (s *bproxy) start(ctx context.Context, log io.Writer, flags []string) (*process, error) {
	s.src.mu.Lock()
	port := s.at.Port
	s.src.mu.Unlock()
	held, err := sibling.Service(ctx, log, "bproxy", append(flags, "--listen=127.0.0.1:"+strconv.Itoa(port))...)
	if err != nil && port != 0 {
		held, err = sibling.Service(ctx, log, "bproxy", flags...)
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
			s.src.mu.Lock()
			s.at, s.cur = all[i], nil
			s.src.mu.Unlock()
			s.src.touch(s.src)
			return &process{held, string(all[i].Control)}, nil
		}
		err = errors.New("bproxy has not noted where it listens to us")
	}
	held.Stop()
	return nil, err
}

func (s *bproxy) Targets(context.Context) ([]Browser, error) { return nil, nil }

func (s *bproxy) target(ctx context.Context) (Browser, error) {
	if _, err := s.own.Get(ctx); err != nil {
		return Browser{}, err
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	return s.browserLocked(), nil
}

func (s *bproxy) browserLocked() Browser {
	return Browser{HTTPURL: s.at.HTTPURL, WSURL: s.at.WSURL, Port: s.at.Port}
}

func (s *bproxy) up(string, string) *Lease {
	if s.own.Running() == nil {
		return nil
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	if s.cur == nil || wait.Closed(s.cur.Died) {
		return nil
	}
	return s.cur
}

func (s *bproxy) acquire(ctx context.Context, _, _ string) (p *Lease, err error) {
	again(ctx, noticed, func() bool {
		if p = s.up("", ""); p == nil {
			if _, err = s.control(ctx, string(api.Launch), options.Options{}); err == nil {
				p = s.up("", "")
			}
		}
		return p != nil || err != nil
	})
	if p == nil {
		err = cmp.Or(err, context.Cause(ctx), errors.New("the browser ended as soon as it was launched"))
	}
	return p, err
}

// control sends the proxy a request, and records the browser.
func (s *bproxy) control(ctx context.Context, method string, o options.Options) (*record.Record, error) {
	var params any
	if method == string(api.Launch) {
		params = o
	}
	rec := &record.Record{}
	if err := s.Call(ctx, method, params, rec); err != nil {
		return nil, err
	}
	var i record.Instance
	ok, err := rec.Get("instance", &i)
	if err != nil {
		return nil, err
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
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
		s.cur = &Lease{Browser: b, Died: s.watch(i.PID), Release: func() {}}
		if now.LastExit != "" {
			s.cur.replaced = fmt.Sprintf("the browser had ended (%s) and was launched anew", now.LastExit)
			s.cur.restores = true
		}
		if s.src.HasSessions() {
			s.cur.look = s.src.lookAt(hostSession)
		}
	}
	return rec, nil
}

func (s *bproxy) status(ctx context.Context) (*record.Record, error) {
	s.src.mu.Lock()
	begun := s.at.PID != 0
	s.src.mu.Unlock()
	// The first proxy is started with the first host: it is waited for.
	if begun && s.own.Running() == nil {
		return nil, nil
	}
	return s.control(ctx, string(api.Status), options.Options{})
}

// endBound is how long the pages of a session may take to close.
const endBound = 5 * time.Second

func (s *bproxy) idOf(context.Context, string) (string, error) { return "", nil }

func (s *bproxy) end(_, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	api.Release.Ask(ctx, s.last(), api.Of{Session: name}) // what can't be ended ends with bproxy
}

func (s *bproxy) newSession(ctx context.Context, name, state string) error {
	_, err := api.Hold.Ask(ctx, s.last(),
		api.HoldRequest{Of: api.Of{Session: name}, Settings: settings.WithState(state)})
	return err
}

func (s *bproxy) SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error) {
	r.Session = cmp.Or(b.Session, hostSession)
	return api.StateSave.Ask(ctx, s.last(), r)
}

func (s *bproxy) list(ctx context.Context) []sessionStatus {
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return sessionsAt(ctx, s.last(), api.Of{})
}

// sessionsAt returns the sessions of a bproxy or hub; none if it does not answer.
func sessionsAt(ctx context.Context, at control.Caller, of api.Of) (all []sessionStatus) {
	all, _ = control.Method[api.Of, []sessionStatus](api.List).Ask(ctx, at, of)
	return all
}

// last returns the last proxy, which may have ended: what ends a session, or asks for one, starts none.
func (s *bproxy) last() client.Proxy {
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	return s.at
}

// Bounds of the time until a session is hibernated: until it is noticed that its
// clients have gone, and until it is saved.
const (
	leaveBound     = time.Second
	hibernateBound = 10 * time.Second
)

func (s *bproxy) hibernate(ctx context.Context, name string) (rests bool) {
	if s.own.Running() == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, hibernateBound)
	defer cancel()
	var e *control.Error
	again(ctx, leaveBound, func() bool {
		e = nil
		_, err := api.Rest.Ask(ctx, s.last(), api.Of{Session: name})
		rests = err == nil || errors.As(err, &e) && e.Code == control.SessionNotFound
		return e == nil || e.Code != control.TryAgain
	})
	return rests
}

// OwnerOf returns what the proxies of a bmcp have for their owner.
func OwnerOf(pid int) string { return "bmcp " + strconv.Itoa(pid) }
