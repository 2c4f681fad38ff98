// Package command implements the commands of bpool.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/extension/keep"
	"btools/lib/flags"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/launch/options"
	"btools/lib/lifetime"
	"btools/lib/logins"
	statecommand "btools/lib/logins/command"
	"btools/lib/logins/remote"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/pool/gateway"
	"btools/lib/pool/successor"
	poolweb "btools/lib/pool/web"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/register"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/systemd"
	"btools/lib/tokens"
	"btools/lib/wsl"
)

// load reads the configuration and reports all errors together.
func load(c *cli.Context) (*config.Config, error) {
	if only := c.StringSlice("variable"); only != nil {
		return config.Load("", only)
	}
	vars, err := config.ReadVariables(c.String("env-file"), c.Log)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Path(c.String("config"), c.Getenv, c.Home()), os.Environ(), vars...)
	var bad *config.Error
	if errors.As(err, &bad) {
		return nil, &exit.Error{Code: exit.Config, Err: fmt.Errorf("the configuration is not valid:\n%w", bad),
			Hint: "bpool.toml(5) describes each key and has examples"}
	}
	if err == nil && c.String("leave") != "" {
		cfg.SkipLaunch(c.String("leave"))
	}
	return cfg, err
}

// loadServed reads the configuration of a service. One that only leases from other hosts needs no pool.
func loadServed(c *cli.Context) (*config.Config, error) {
	cfg, err := load(c)
	if err == nil && (c.String("nats") != "" || len(cfg.Global.Hosts.NATS) > 0) &&
		cfg.Global.Hosts.Token != "" {
		cfg.DropDefault()
	}
	return cfg, err
}

// service is the record member that serve prints.
type service struct {
	PID     int      `json:"pid"`
	Socket  string   `json:"socket"`
	HTTPURL string   `json:"http_url,omitempty"` // of --http
	Pools   []string `json:"pools"`
}

// Services are the records that Serve prints.
var Services = &cli.Records{Columns: []cli.Column{
	{Head: "PID", Field: "service.pid"}, {Head: "POOLS", Field: "service.pools"},
	{Head: "SOCKET", Field: "service.socket"},
}, Members: map[string]any{"service": service{}}}

// Serve runs the service until it is told to stop.
func Serve(c *cli.Context) (err error) {
	env, file := os.Environ(), runningFile()
	before, err := successor.Inherit()
	if err != nil {
		return err
	}
	defer func() { before.Fail(err) }()
	cfg, err := loadServed(c)
	if err != nil {
		return err
	}
	if err := flags.CheckDurations(c, "drain-timeout", "stop-timeout", "retire-timeout"); err != nil {
		return err
	}
	owner, err := flags.ReadOwner(c)
	if err != nil {
		return err
	}
	names := func() (all []string) { // until the service is there
		for _, p := range cfg.Pools {
			all = append(all, p.Name)
		}
		return all
	}
	web := &front.Front{Guard: guard.Guard{NoPages: true, Browsers: guard.NewBrowsers(c.State())}, Log: c.Log}
	if web.Guard.Tokens, err = flags.OpenTokens(c, func(all []tokens.Token) error {
		if cfg.Global.Hosts.Token != "" {
			return nil // other hosts may have them
		}
		return checkPools(all, names())
	}); err != nil {
		return err
	}
	public, err := secure(c, web)
	if err != nil {
		return err
	}
	var httpListener net.Listener
	httpURL := ""
	if addr := c.String("http"); addr != "" {
		if before != nil && len(before.Sockets) == 2 {
			httpListener = before.Sockets[1]
		} else if httpListener, err = flags.Listen(c, "http", addr); err != nil {
			return err
		}
		defer httpListener.Close()
		httpURL = "http://" + httpListener.Addr().String()
		if web.TLS != nil {
			httpURL = "https://" + httpListener.Addr().String()
		}
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signal.Ignore(syscall.SIGHUP) // SIGHUP reloads the configuration
	force := lifetime.Signals(stop)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	owner.Watch(ctx, stop)

	v := pool.New(cfg, c.Log)
	names = v.Names
	hubs := newHubs(c)
	defer hubs.Close()
	v.Launch, v.State, v.Dir = launch(c, hubs, force), c.State(), state.NewDir()
	if web.Guard.Tokens != nil {
		v.TokenNames = web.Guard.Tokens.Names
	}
	h := &handler{service: v, states: remote.NewServer(statecommand.Store(c)), public: public}
	v.States = h.states.Own()
	if owner.FD != nil { // the leases of one program, of which it tells itself
		v.LeaseLevel = slog.LevelDebug
	}
	reg, err := h.registration(c, before, owner.FD != nil)
	if err != nil {
		return err
	}
	if before == nil {
		if err := reg.Open(ctx); err != nil {
			return explainTaken(c, reg.Path, err)
		}
	} else {
		v.Launch = after(before.Launch, v.Launch)
	}
	notify := systemd.NewNotifier()
	u := &upgrade{c: c, ctx: ctx, handler: h, reg: reg, notify: notify, env: env, file: file, http: httpListener,
		private: owner.FD != nil, left: make(chan struct{}), hosts: cfg.Global.Hosts}
	h.upgrade, h.reload, web.Left = u.start, u.reload, u.left
	h.left = u.left
	web.Successor = front.Relay(u.successor, c.Log)
	// Not derived from ctx: browsers keep running while leases may end.
	serving, end := context.WithCancel(context.Background())
	defer end()
	ready, err := v.Start(serving)
	if before != nil && err == nil {
		err = u.succeed(ctx, before)
	}
	if httpListener != nil {
		web.Routes = h.routes(web)
		h.web = web
	}
	online, leave := context.WithCancel(serving)
	defer leave()
	var hosts *network
	if err == nil {
		hosts, err = h.joinNATS(online, c, cfg, owner.FD != nil)
	}
	if httpListener != nil {
		h.countFormer(serving)
		go serveHTTP(serving, httpListener, h, web)
	}
	if err == nil {
		err = h.beHost(online, hosts, httpURL, before != nil, c.Log)
	}
	reg.Serve(h.serve())
	if err == nil && before == nil {
		err = waitForStart(ctx, c, v, ready)
	} else if err == nil {
		go waitForStart(ctx, c, v, ready) // the watchdog does not wait
	}
	if err == nil && ctx.Err() == nil {
		err = c.Out.Print(nil, record.Of("service", service{os.Getpid(), reg.Path, httpURL,
			append([]string{}, v.Names()...)}))
		if before != nil {
			err = nil // who read the first record may have gone
		}
	}
	if err == nil && ctx.Err() == nil {
		notify.Tell("READY=1")
		var watchdog <-chan time.Time
		if notify.Watchdog > 0 {
			watchdog = time.Tick(notify.Watchdog / 2)
		}
		for ctx.Err() == nil {
			select {
			case <-watchdog:
				if slow := v.StalledCheck(); slow == "" {
					notify.Tell("WATCHDOG=1")
				} else {
					c.Log.Error("the health checks of " + slow + " have stopped")
				}
			case <-ctx.Done():
			case <-hup:
				go u.reloadAndTell() // the watchdog does not wait
			case <-u.left:
				notify = &systemd.Notifier{} // it follows the successor
				u.serveLeases(ctx, stop)
			}
		}
	}
	notify.Tell("STOPPING=1")
	u.end()
	if err == nil {
		defer h.stopFormer(force)()
		h.waitForLeases(c, force)
	}
	stopping := time.AfterFunc(noticeDelay,
		func() { c.Log.Info("stopping: waiting for the browsers to end; signal again to stop at once") })
	leave()
	if h.lent != nil {
		h.lent.Close()
	}
	v.Stop()
	stopping.Stop()
	if h.retired.Load() != nil {
		h.metrics().bequeath()
	}
	return errors.Join(err, v.Dir.Remove(), reg.Close()) // in this order: the entry names the directory
}

// registration describes how other programs find the service. A private service
// is found only by the program that owns it.
func (h *handler) registration(c *cli.Context, before *successor.Predecessor, private bool) (*register.Service, error) {
	store := c.State()
	var l net.Listener
	var path string
	var err error
	if before != nil {
		path = before.Sockets[0].Addr().String()
	} else if l, path, err = socket(c, store); err != nil {
		return nil, err
	}
	self := proc.Self()
	h.store, h.path = store, path
	h.entry = func() state.PoolService {
		e := state.PoolService{Process: self, Control: path, Names: h.service.Names(), Private: private,
			Dir: h.service.Dir.Path()}
		if at := h.retired.Load(); at != nil {
			e.Control, e.Former = *at, path
		}
		return e
	}
	return &register.Service{Store: store, Path: path, Listener: l, Shared: true, Log: c.Log,
		Entry: func() state.Service { return h.entry() }}, nil
}

// explainTaken adds who listens on the control socket if it is in use.
func explainTaken(c *cli.Context, path string, err error) error {
	var e *exit.Error
	if !errors.As(err, &e) || e.Code != exit.TryAgain {
		return err
	}
	f, _ := c.State().Read()
	if f == nil {
		return err
	}
	for _, p := range f.Pools {
		if p.Control == path && p.Process.Alive() {
			e.Err = fmt.Errorf("%w: the bpool service with pid %d", e.Err, p.Process.PID)
			e.Hint = "bpool status shows it; bpool serve --socket FILE runs another one beside it"
		}
	}
	return e
}

// waitForStart waits until every instance is ready or has failed, or the
// context ends, and warns of pools without healthy instances.
func waitForStart(ctx context.Context, c *cli.Context, v *pool.Service, ready <-chan struct{}) error {
	slow := time.NewTimer(noticeDelay)
	defer slow.Stop()
	for waiting := true; waiting; {
		select {
		case <-ready:
			waiting = false
		case <-slow.C:
			if st, err := v.Status(""); err == nil {
				s := st.Summary
				c.Log.Info(fmt.Sprintf("starting: %d of %d instances are up", s.Healthy, s.Total))
			}
		case <-ctx.Done():
			return nil
		}
	}
	st, err := v.Status("")
	if err != nil {
		return err
	}
	for _, p := range st.Pools {
		if p.Healthy == 0 { // it grants no leases, and its browsers' messages may go unread
			log := c.Log.Warn
			if pool.AllAwait(&p) {
				log = c.Log.Info // as it is meant to be
			}
			log("pool " + p.Name + ": " + pool.WhyNoLease(&p, "", time.Now()) + "; see bpool status " + p.Name)
		}
	}
	return nil
}

// waitForLeases gives the leases time to end.
func (h *handler) waitForLeases(c *cli.Context, now <-chan struct{}) {
	timeout := c.Duration("drain-timeout")
	h.service.StopLeasing()
	if h.held() > 0 && timeout > 0 {
		c.Log.Info(fmt.Sprintf("stopping: waiting up to %v for %s; signal again to stop at once", timeout, h.holders()))
	}
	late := time.After(timeout)
	for h.held() > 0 {
		select {
		case <-now:
			return
		case <-late:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// socket returns systemd's listener, if there is one, and the path of the
// control socket.
func socket(c *cli.Context, store *state.Store) (net.Listener, string, error) {
	ls, err := systemd.Listeners()
	if err != nil {
		return nil, "", exit.Errorf(exit.Config, "%v", err)
	}
	if len(ls) > 0 {
		a, ok := ls[0].Addr().(*net.UnixAddr)
		if !ok || len(ls) > 1 {
			return nil, "", exit.Errorf(exit.Config, "expected exactly one Unix socket from systemd")
		}
		return ls[0], a.Name, nil
	}
	path := socketOf(c)
	if path != "" {
		path, err = filepath.Abs(path)
	} else if path, err = store.Socket("bpool"); err != nil {
		err = state.Explain(err)
	}
	return nil, path, err
}

// launchFunc is the type of pool.Service's Launch.
type launchFunc = func(context.Context, string, settings.Settings, options.Options,
	func() []slog.Attr) (*sibling.Browser, error)

// launch returns a function that launches an instance's browser with blaunch, or
// waits for one that joins.
func launch(c *cli.Context, hubs *keep.Keeper, now <-chan struct{}) launchFunc {
	grace := c.Duration("stop-timeout")
	return func(ctx context.Context, pool string, set settings.Settings, o options.Options,
		about func() []slog.Attr) (*sibling.Browser, error) {
		messages := c.MessagesAbout(about)
		if set.Extension {
			return joined(ctx, c, hubs, messages, now)
		}
		blaunch := sibling.Blaunch
		if set.WSLWindows {
			blaunch = sibling.WindowsBlaunch
			if err := translatePaths(ctx, &o); err != nil {
				return nil, err
			}
		}
		args := append(o.Argv(), "--owner=bpool "+pool+"/"+set.ID)
		spec, err := blaunch(cmp.Or(set.Timeout, settings.MaxTimeout), grace, messages, c.String("log-level"),
			c.String("log-format"), args)
		if err != nil {
			return nil, err
		}
		spec.Now = now
		spec.Pipe = set.Isolation == settings.Context && sibling.HasPipes && !set.WSLWindows
		return sibling.Launch(ctx, spec)
	}
}

// translatePaths converts the paths in the options to Windows paths.
func translatePaths(ctx context.Context, o *options.Options) error {
	for _, path := range []*string{&o.Profile, &o.Browser} {
		if !filepath.IsAbs(*path) {
			continue // the type of a browser
		}
		win, err := wsl.Path(ctx, *path)
		if err != nil {
			return &exit.Error{Code: exit.Config, Err: fmt.Errorf("cannot launch a browser on Windows: %w", err)}
		}
		*path = win
	}
	return nil
}

// handler answers requests on the control socket.
type handler struct {
	service *pool.Service
	lent    *gateway.Lent // leases on other hosts; nil: there are none
	// standard is the settings of requests for pools that only other hosts have; nil: there are none.
	standard atomic.Pointer[settings.Settings]
	reload   func() (reloaded, error)
	states   *remote.Server
	public   *url.URL        // of --public-url; nil: as clients ask
	web      *front.Front    // of --http; nil: there is none
	leases   *poolweb.Server // by HTTP; nil: there are none
	made     sync.Once       // counts
	counts   *metrics
	upgrade  func() (api.Upgraded, error)
	left     <-chan struct{} // closed when there is a successor
	store    *state.Store
	path     string                   // of the service's control socket
	entry    func() state.PoolService // of this process in the state file
	// retired is the control socket of a service that has a successor; nil: it has none.
	retired atomic.Pointer[string]

	mu    sync.Mutex
	known []state.PoolService // retired processes before this one
}

// methods are those of the control socket.
func (h *handler) methods() *control.Mux {
	v, m := h.service, &control.Mux{Program: "bpool"}
	counted := func(n int, err error) (any, error) { return api.Instances{Instances: n}, err }
	control.HandleLater(m, api.Status, func(ctx context.Context, p api.Of) (*api.PoolsStatus, error) {
		return h.status(ctx, p.Pool)
	})
	control.Handle(m, api.Hold, func(ctx context.Context, p api.HoldRequest) (any, error) {
		return h.lease(ctx, p, nil)
	})
	release := control.Method[api.ReleaseRequest, []*record.Record](api.Release)
	control.Handle(m, release, func(ctx context.Context, p api.ReleaseRequest) (any, error) {
		ended := []released{}
		switch {
		case p.All:
			for _, id := range h.releaseOwn(callerOf(ctx)) {
				ended = append(ended, released{record.Version, leaseID{id}})
			}
		case p.Moved && v.Moved(p.Lease), !p.Moved && h.of(p.Lease).Release(p.Lease):
			ended = append(ended, released{record.Version, leaseID{p.Lease}})
		}
		return ended, nil
	})
	control.Handle(m, api.Renew, func(_ context.Context, p api.RenewRequest) (any, error) {
		if p.Confirm {
			return nil, h.of(p.Lease).Confirm(p.Lease)
		}
		if err := checkTimes(p.TTL, nil); err != nil {
			return nil, err
		}
		return h.of(p.Lease).Renew(p.Lease, time.Duration(p.TTL)*time.Millisecond)
	})
	control.Handle(m, api.Rest, func(_ context.Context, p api.Of) (any, error) {
		return struct{}{}, h.of(p.Lease).Rest(p.Lease)
	})
	control.Handle(m, api.RestartInstances, func(_ context.Context, p api.Of) (any, error) {
		return counted(v.Restart(p.Pool, p.Instance))
	})
	control.HandleLater(m, api.Drain, func(ctx context.Context, p api.DrainRequest) (api.Instances, error) {
		n, err := h.drain(ctx, p)
		return api.Instances{Instances: n}, err
	})
	control.HandleLater(m, api.Freeze, func(ctx context.Context, p api.FreezeRequest) (struct{}, error) {
		if p.Off {
			return struct{}{}, v.Thaw(p.Lease, p.Why)
		}
		return struct{}{}, v.Freeze(ctx, p.Lease)
	})
	control.Handle(m, api.Scale, func(_ context.Context, p api.ScaleRequest) (any, error) {
		return counted(p.Instances, v.Scale(p.Pool, p.Instances))
	})
	control.HandleLater(m, api.Reload, func(context.Context, struct{}) (reloaded, error) { return h.reload() })
	control.HandleLater(m, api.Upgrade, func(context.Context, struct{}) (api.Upgraded, error) { return h.upgrade() })
	control.Handle(m, api.Relay, h.relayed)
	control.Handle(m, api.HTTP, func(_ context.Context, r api.HTTPRequest) (any, error) {
		switch {
		case h.web == nil:
			return nil, control.Errorf(control.Unavailable, "the service has no --http")
		case h.hasLeft():
			return nil, errStopping
		}
		return control.Taken{Answer: struct{}{},
			Do: func(ctx context.Context, c net.Conn) { h.web.ServeConn(ctx, c, r.TLS) }}, nil
	})
	control.HandleLater(m, api.Watch, func(ctx context.Context, p api.WatchRequest) (any, error) {
		if p.Lease != "" {
			return h.notices(ctx, p)
		}
		here, leave := context.WithCancelCause(ctx)
		defer leave(nil)
		go func() {
			select {
			case <-h.left: // the next events are the successor's
				leave(errStopping)
			case <-here.Done():
			}
		}()
		events, err := v.For(callerOf(ctx)).Events(here, p.After)
		return api.EventList[pool.Event]{Events: events}, err
	})
	control.Handle(m, api.Attach, func(ctx context.Context, p api.AttachRequest) (any, error) {
		return h.of(p.Lease).Attach(ctx, p)
	})
	control.HandleLater(m, api.Downloads, h.downloads)
	control.Handle(m, api.StateSave, h.saveState)
	control.HandleLater(m, api.LeaseState, func(ctx context.Context, p api.Of) (api.States, error) {
		state, lost, err := h.of(p.Lease).LeaseState(ctx, p.Lease)
		if err != nil {
			return api.States{}, err
		}
		return api.States{Data: state.Export(), Lost: lost}, nil
	})
	h.states.Register(m)
	return m
}

// lease answers hold, with a state that the request itself has, if not nil.
func (h *handler) lease(ctx context.Context, p api.HoldRequest, inline *logins.State) (any, error) {
	if err := checkTimes(p.TTL, p.Timeout); err != nil {
		return nil, err
	}
	switch {
	case p.Owner == nil:
	case !p.Owner.Local() && p.Owner.Alive(): // its end cannot be watched from here
		e := control.Errorf(control.BadRequest, "process %d is in another PID namespace than the service", p.Owner.PID)
		e.Hint = "hold the lease with --wait, or give a command after --"
		return nil, e
	case !p.Owner.Alive():
		return nil, control.Errorf(control.BadRequest, "there is no running process with pid %d", p.Owner.PID)
	}
	var set settings.Settings
	if err := p.Settings.Apply(&set, settings.Lease); err != nil {
		return nil, control.Errorf(control.BadRequest, "%v", err)
	}
	var login *logins.Store
	if set.State != "" {
		var err error
		if login, err = h.states.Named(ctx, set.State); err != nil {
			return nil, err
		}
	}
	keep := p.Keep
	if p.Keep != "" {
		p.Keep = fmt.Sprintf("%v %s", callerOf(ctx), p.Keep) // the sessions of others are not this one's
	}
	r := pool.Request{Pool: p.Pool, Instance: p.Instance, TTL: time.Duration(p.TTL) * time.Millisecond, Held: p.Bound,
		Confirm: p.Confirm, Owner: p.Owner, Holder: p.Holder, KeepConnectionsFor: p.Keep,
		State: set.State, States: login, Inline: inline, By: callerOf(ctx), Offer: p.Offer, Session: p.Saved}
	r.Elsewhere = h.lent != nil && r.Instance == "" && r.Offer == "" && !p.Here
	if p.Timeout != nil {
		d := time.Duration(*p.Timeout) * time.Millisecond
		r.Timeout = &d
	}
	switch {
	case r.Elsewhere:
		return h.leaseAnywhere(ctx, r, keep, p.Region)
	case p.Region != "":
		return nil, control.Errorf(control.BadRequest, "cannot lease in region %s: the service leases from no other "+
			"hosts, as nats and hosts_token are not set, or the request names an instance", p.Region)
	}
	g, w, err := h.service.Lease(ctx, r)
	if w == nil {
		return h.leaseAnswer(ctx, g, err)
	}
	return control.Begun{Cancel: w.Cancel, Later: func() (any, error) {
		g, err := w.Wait()
		return h.leaseAnswer(ctx, g, err)
	}}, nil
}

// drain answers drain. Retired processes move their leases, too.
func (h *handler) drain(ctx context.Context, p api.DrainRequest) (instances int, err error) {
	if err := checkTimes(0, &p.Within); err != nil {
		return 0, err
	}
	if !p.Move {
		instances, err = h.service.Drain(p.Pool, !p.Off)
	} else {
		instances, err = h.service.Move(p.Pool, time.Duration(p.Within)*time.Millisecond)
	}
	if err == nil {
		for _, f := range h.former() {
			askOther(ctx, f.Control, api.Drain, p) // one that has ended has no leases
		}
	}
	return instances, err
}

// released is the record of a lease that has ended.
type released struct {
	V     int     `json:"v"`
	Lease leaseID `json:"lease"`
}

type leaseID struct {
	ID string `json:"id"`
}

// checkTimes rejects invalid durations.
func checkTimes(ttl int64, timeout *int64) error {
	const most = int64(settings.MaxDuration / time.Millisecond)
	if ttl < 0 || ttl > most || timeout != nil && (*timeout < 0 || *timeout > most) {
		return control.Errorf(control.BadRequest, "ttl_ms and timeout_ms must be from 0 to %d", most)
	}
	return nil
}

// leaseAnswer returns the result of hold.
func (h *handler) leaseAnswer(ctx context.Context, g *pool.Grant, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // the client disconnected just now
		h.service.Release(g.ID)
		return nil, context.Cause(ctx)
	}
	return g.Record, nil
}
