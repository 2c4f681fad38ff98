package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/forward"
	"btools/lib/proxy"
	"btools/lib/record"
	book "btools/lib/sessions"
	"btools/lib/state"
	"btools/lib/states"
	statecommand "btools/lib/states/command"
	"btools/lib/virtual/sessions"
)

// cmdSession is the session behind CMD's WebSocket address.
const cmdSession = "default"

// hibernatedIdle is --session-idle where sessions are hibernated: one costs no
// more than a file, and names that nobody uses any more must not pile up.
const hibernatedIdle = 30 * 24 * time.Hour

// sessionsOf returns the registry that the flags describe, nil without
// --isolate.
func sessionsOf(c *cli.Context) (*sessions.Registry, error) {
	if !c.Bool("isolate") {
		for _, f := range []string{"session-grace", "session-idle", "hibernate", "throttle",
			"max-sessions", "tab-limit", "default-session", "root-session", "proxy", "proxy-bypass",
			"downloads", "download-limit", "upload-root", "download-root", "state"} {
			if c.IsSet(f) {
				return nil, optionOf("share", f, fromVariable(c, f))
			}
		}
		return nil, nil
	}
	g := &sessions.Registry{
		Book: book.Book{Policy: book.Policy{Grace: c.Duration("session-grace"), Idle: c.Duration("session-idle"),
			Max: c.Int("max-sessions"), Hibernate: c.Duration("hibernate")}, Log: c.Log, Noun: "session"},
		Defaults: sessions.Settings{TabLimit: c.Int("tab-limit")}, Default: c.String("default-session"),
		Root: c.String("root-session"), OpenTrace: (&proxy.Traces{Dir: c.String("trace"), Log: c.Log}).Open,
	}
	if err := checkDurations(c, "session-grace", "session-idle", "hibernate", "throttle"); err != nil {
		return nil, err
	}
	g.Defaults.ThrottleMS = milliseconds(c.Duration("throttle"))
	if g.Hibernate > 0 && !c.IsSet("session-idle") {
		g.Idle = hibernatedIdle
	}
	switch {
	case g.Hibernate > 0 && g.Idle > 0 && g.Hibernate >= g.Idle:
		return nil, c.UsageError("--hibernate must be shorter than --session-idle (%v), which also ends hibernated "+
			"sessions", g.Idle)
	case c.Bool("direct"):
		return nil, c.UsageError("--direct bypasses the proxy and would expose the whole browser: it cannot be used " +
			"with sessions")
	case g.Max < 1 || g.Defaults.Check() != nil:
		return nil, c.UsageError("--max-sessions must be 1 or more, and --tab-limit 0 or more")
	}
	for _, f := range []string{"default-session", "root-session"} {
		if err := sessions.CheckName(c.String(f)); c.IsSet(f) && err != nil {
			return nil, c.UsageError("--%s: %v", f, err)
		}
	}
	if c.IsSet("trace") {
		if err := os.MkdirAll(c.String("trace"), 0o700); err != nil {
			return nil, exit.Errorf(exit.Config, "cannot create the directory of the traces: %v", err)
		}
	}
	var err error
	if g.Defaults.Proxy, g.Defaults.ProxyBypass, err = readProxy(c); err != nil {
		return nil, err
	}
	if err := readDownloads(c, &g.Defaults); err != nil {
		return nil, err
	}
	if g.Defaults.ProxyBypass != "" && g.Defaults.Proxy == "" {
		return nil, c.UsageError("--proxy-bypass needs --proxy")
	}
	if c.IsSet("state") {
		if g.Defaults.State = c.String("state"); g.Default != "" {
			return nil, c.UsageError("--state cannot be used with --default-session: " +
				"the browser's own profile has its logins")
		}
		if g.Defaults.States, err = checkState(c); err != nil {
			return nil, err
		}
	}
	if g.Defaults.Proxy != "" && g.Default != "" {
		return nil, c.UsageError("--proxy cannot be used with --default-session%s: the browser's own profile has the "+
			"proxy that the browser is launched with", fromVariable(c, "proxy"))
	}
	return g, nil
}

// optionOf refuses a flag of another command, for the options that bproxy itself
// had before there were commands.
func optionOf(command, flag, why string) error {
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--%s is an option of bproxy %s%s", flag, command, why),
		Hint: "see bproxy " + command + " --help"}
}

// checkState returns the store of the state of --state, which must be usable; an
// empty name means none.
func checkState(c *cli.Context) (*states.Store, error) {
	if c.String("state") == "" {
		return nil, nil
	}
	if err := states.CheckName(c.String("state")); err != nil {
		return nil, c.UsageError("--state: %v", err)
	}
	store, err := statecommand.Store(c)
	if err != nil {
		return nil, err
	}
	_, err = store.Load(c.String("state"))
	return store, err
}

// readProxy reads --proxy and --proxy-bypass, or the variable of the former.
// The URL of the proxy has its credentials.
func readProxy(c *cli.Context) (proxy, bypass string, err error) {
	bypass = c.String("proxy-bypass")
	if c.IsSet("proxy") {
		u, err := forward.Read(c.String("proxy"))
		if err != nil {
			return "", "", c.UsageError("--proxy%s: %v", fromVariable(c, "proxy"), err)
		}
		proxy = u.Secret()
	}
	return proxy, bypass, nil
}

// fromVariable names the variable that sets a flag, for a message.
func fromVariable(c *cli.Context, flag string) string {
	if flag == "proxy" && !c.Given(flag) {
		return " (which BTOOLS_PROXY sets)"
	}
	return ""
}

// checkIsolated refuses a browser that sessions cannot share.
func checkIsolated(c *cli.Context, p *proxy.Proxy, protocol string) error {
	if p.Sessions != nil && protocol == record.BiDi {
		return c.UsageError("sessions need a browser that speaks CDP, and Firefox speaks WebDriver BiDi: " +
			"bpool gives each client a Firefox of its own")
	}
	return nil
}

// sessionOf returns a session with its addresses.
func sessionOf(s api.Session, e record.Proxy) api.Session {
	base := ""
	if !s.Anonymous {
		base = "/session/" + s.Name
		s.HTTPURL = e.HTTPURL + base
	}
	s.WSURL = strings.Replace(e.HTTPURL, "http", "ws", 1) + base + "/devtools/browser/" + s.Name
	return s
}

// sessions returns the records of the sessions with a name; "": of all.
func (s *service) sessions(name string) []*record.Record {
	var e record.Proxy
	s.record.Get("proxy", &e)
	all := []*record.Record{}
	for _, i := range s.proxy.Sessions.List() {
		if name == "" || i.Name == name {
			all = append(all, sessionRecord(i, e))
		}
	}
	return all
}

func sessionRecord(s api.Session, e record.Proxy) *record.Record {
	r := record.New()
	r.MustSet("proxy", e)
	r.MustSet("session", sessionOf(s, e))
	return r
}

// newRequest names a session to create, and its settings where they differ from
// the proxy's.
type newRequest struct {
	Session string `json:"session"`
	sessions.Settings
}

// newSession answers hold: it creates a session and returns its record.
func (s *service) newSession(ctx context.Context, params json.RawMessage) (any, error) {
	n := newRequest{Settings: cloned(s.proxy.Sessions.Defaults)}
	var named struct {
		State string `json:"state"` // "": none, or the proxy's
	}
	if err := errors.Join(json.Unmarshal(params, &n), json.Unmarshal(params, &named)); err != nil {
		return nil, control.Errorf(control.BadRequest, "invalid parameters: %v", err)
	}
	if err := n.Check(); err != nil {
		return nil, err
	}
	if named.State != "" {
		var err error
		if n.States, err = s.states.Named(ctx, n.State); err != nil {
			return nil, err
		}
	}
	return control.Later(func() (any, error) {
		i, err := s.proxy.Sessions.New(ctx, n.Session, n.Settings)
		if err != nil {
			return nil, err
		}
		var e record.Proxy
		s.record.Get("proxy", &e)
		return sessionRecord(i, e), nil
	}), nil
}

// errNoSession is the error of a request that is about a session, and names none.
var errNoSession = control.Errorf(control.BadRequest, "the request names no session")

// registerSessions adds the methods for sessions.
func (s *service) registerSessions(m *control.Mux) {
	control.Handle(m, api.List, func(context.Context, api.Of) (any, error) { return s.sessions(""), nil })
	control.Handle(m, api.Watch, s.events)
	control.Handle(m, control.Method[json.RawMessage, *record.Record](api.Hold), s.newSession)
	control.Handle(m, api.Rest, func(ctx context.Context, p api.Of) (any, error) {
		if p.Session == "" {
			return nil, errNoSession
		}
		return control.Later(func() (any, error) { return struct{}{}, s.proxy.Sessions.Free(ctx, p.Session) }), nil
	})
	control.Handle(m, api.Release, func(ctx context.Context, p api.Of) (any, error) {
		if p.All == (p.Session != "") {
			return nil, control.Errorf(control.BadRequest, "release takes the name of a session, or all: true")
		}
		return control.Later(func() (any, error) {
			ended := s.sessions(p.Session)
			if p.All {
				return ended, s.proxy.Sessions.EndAll(ctx)
			}
			return ended, s.proxy.Sessions.End(ctx, p.Session)
		}), nil
	})
	control.Handle(m, api.Downloads, s.downloads)
	control.Handle(m, api.StateSave, s.saveState)
	s.states.Register(m)
}

var sessionColumns = []cli.Column{
	{Head: "SESSION", Field: "session.name"}, {Head: "PORT", Field: "proxy.port"},
	{Head: "TABS", Field: "session.tab_count"},
	{Head: "CLIENTS", Field: "session.clients"}, {Head: "IDLE", Field: "session.idle_seconds", Show: cli.Seconds},
	{Head: "OWNER", Field: "proxy.owner", Spare: 1}, {Head: "ENDPOINT", Field: "session.ws_url"},
}

// Sessions lists the sessions of the running proxies, or creates or ends
// sessions of one.
func Sessions(c *cli.Context) error {
	out, err := c.Output(sessionColumns, cli.Schema(map[string]any{"session": api.Session{}}), nil)
	if err != nil {
		return err
	}
	args := c.Args()
	for _, f := range settingFlags {
		if c.Given(f) && (len(args) == 0 || args[0] != "new") {
			return c.UsageError("--%s applies to a new session: session new NAME", f)
		}
	}
	switch {
	case len(args) == 1 && args[0] == "list" && !c.Bool("all"):
		err = listSessions(c, out)
	case len(args) == 2 && args[0] == "end" && !c.Bool("all"):
		err = endSessions(c, out, api.Of{Session: args[1]})
	case len(args) == 1 && args[0] == "end" && c.Bool("all"):
		err = endSessions(c, out, api.Of{All: true})
	case len(args) == 2 && args[0] == "new" && !c.Bool("all"):
		err = newSession(c, out, args[1])
	default:
		return c.UsageError("expected list, new NAME, end NAME, or end --all")
	}
	return errors.Join(err, out.Close())
}

func listSessions(c *cli.Context, out *cli.Output) error {
	ps, err := isolatedProxies(c)
	if err != nil {
		return err
	}
	for _, p := range ps {
		rs, err := ask(p, api.List, api.Of{All: true}, statusTimeout)
		err = write(out, err, rs...)
		if err != nil && c.IsSet("port") {
			return err
		} else if err != nil {
			c.Log.Warn(err.Error()) // the others can be listed
		}
	}
	return nil
}

func endSessions(c *cli.Context, out *cli.Output, of api.Of) error {
	find := isolatedProxy
	if !of.All {
		find = func(c *cli.Context) (state.Proxy, error) { return proxyOf(c, of.Session) }
	}
	p, err := find(c)
	if err != nil {
		return err
	}
	if owner := member(p).Owner; of.All && owner != "" && !c.IsSet("port") {
		return c.UsageError("the only proxy with sessions belongs to %s; to end them, name its port: --port %d", owner,
			member(p).Port)
	}
	rs, err := ask(p, api.Release, of, 0)
	return write(out, err, rs...)
}

// settingFlags are the flags of session new that override the settings of the
// proxy.
var settingFlags = []string{"tab-limit", "trace", "proxy", "proxy-bypass", "download-limit", "upload-root",
	"download-root", "state", "throttle"}

func newSession(c *cli.Context, out *cli.Output, name string) error {
	p, err := isolatedProxy(c)
	if err != nil {
		return err
	}
	params := map[string]any{"session": name}
	proxy, _, err := readProxy(c)
	if err != nil {
		return err
	}
	for _, f := range settingFlags {
		if c.IsSet(f) {
			params[strings.ReplaceAll(f, "-", "_")] = c.Value(f)
		}
	}
	if c.IsSet("trace") { // bproxy may have been started elsewhere
		var err error
		if params["trace"], err = filepath.Abs(c.String("trace")); err != nil {
			return err
		}
	}
	if proxy != "" {
		params["proxy"] = proxy
	}
	if c.IsSet("download-limit") {
		if params["download_limit"], err = readLimit(c); err != nil {
			return err
		}
	}
	delete(params, "throttle")
	if c.IsSet("throttle") {
		if err := checkDurations(c, "throttle"); err != nil {
			return err
		}
		params["throttle_ms"] = milliseconds(c.Duration("throttle"))
	}
	for _, f := range []string{"upload-root", "download-root"} {
		name := strings.ReplaceAll(f, "-", "_")
		delete(params, name)
		if c.IsSet(f) {
			if params[name+"s"], err = flags.ReadRoots(c, f); err != nil {
				return err
			}
		}
	}
	if name := c.String("state"); name != "" && states.CheckName(name) != nil {
		return c.UsageError("--state: %v", states.CheckName(name))
	}
	r, err := ask(p, control.Method[map[string]any, *record.Record](api.Hold), params, 0)
	return write(out, err, r)
}

// proxyOf returns the proxy that has a session: the one of --port, the only one
// with sessions, or the one that has a session of this name.
func proxyOf(c *cli.Context, name string) (state.Proxy, error) {
	ps, err := isolatedProxies(c)
	if err != nil || len(ps) < 2 {
		return isolatedProxy(c)
	}
	var have []state.Proxy
	for _, p := range ps {
		all, err := sessionsAt(p)
		if err != nil {
			c.Log.Warn(err.Error()) // another may have it
		}
		if slices.ContainsFunc(all, func(s api.Session) bool { return s.Name == name }) {
			have = append(have, p)
		}
	}
	have = preferred(have)
	switch len(have) {
	case 0:
		return state.Proxy{}, &exit.Error{Code: exit.Unavailable,
			Err:  fmt.Errorf("no proxy has a session %q (they listen on %s)", name, described(ps)),
			Hint: "bproxy session list shows all sessions"}
	case 1:
		return have[0], nil
	}
	return state.Proxy{}, c.UsageError("several proxies have a session %q; choose one with --port: %s", name,
		described(have))
}

// sessionsAt returns the sessions of a proxy.
func sessionsAt(p state.Proxy) (all []api.Session, err error) {
	rs, err := ask(p, api.List, api.Of{All: true}, statusTimeout)
	for _, r := range rs {
		var s api.Session
		r.Get("session", &s)
		all = append(all, s)
	}
	return all, err
}

// isolatedProxy returns the proxy of --port, or the only one with sessions.
func isolatedProxy(c *cli.Context) (state.Proxy, error) {
	return chosen(c, isIsolated, "bproxy share")
}

func isIsolated(p record.Proxy) bool { return p.Isolated }

// chosen returns the proxy of --port, or the only one for which is returns
// true; what names those.
func chosen(c *cli.Context, is func(record.Proxy) bool, what string) (state.Proxy, error) {
	ps, err := chosenProxies(c, is)
	if err != nil {
		return state.Proxy{}, err
	}
	switch ps = preferred(ps); {
	case len(ps) == 0:
		return state.Proxy{}, &exit.Error{Code: exit.Unavailable,
			Err: fmt.Errorf("no %s is running (looked in %s)", what, c.State().Path()), Hint: otherStateHint}
	case len(ps) > 1:
		return state.Proxy{}, c.UsageError("several proxies are running; choose one with --port: %s", described(ps))
	}
	return ps[0], nil
}

// isolatedProxies returns the proxies with sessions: the one of --port, or all.
func isolatedProxies(c *cli.Context) ([]state.Proxy, error) { return chosenProxies(c, isIsolated) }

func chosenProxies(c *cli.Context, is func(record.Proxy) bool) ([]state.Proxy, error) {
	ps, err := proxies(c)
	if err != nil {
		return nil, err
	}
	if c.IsSet("port") {
		p, err := pick(c, ps, []string{strconv.Itoa(c.Int("port"))})
		return []state.Proxy{p}, err
	}
	return slices.DeleteFunc(ps, func(p state.Proxy) bool { return !is(member(p)) }), nil
}

// write prints the records of an answer, unless there is an error.
func write(out *cli.Output, err error, rs ...*record.Record) error {
	for i := 0; err == nil && i < len(rs); i++ {
		err = out.Write(rs[i])
	}
	return err
}
