package command

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/fleet"
	statecommand "btools/lib/logins/command"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/settings"
)

// cmdSession is the session behind CMD's WebSocket address.
const cmdSession = "default"

// sessionsOf returns the registry that the flags describe, nil without
// --isolate.
func sessionsOf(c *cli.Context) (*fleet.Fleet, error) {
	if !c.Bool("isolate") {
		for _, f := range settings.Flags(settings.Share) {
			if c.IsSet(f) {
				return nil, optionOf("share", f, fromVariable(c, f))
			}
		}
		return nil, nil
	}
	s, err := flags.ReadSettings(c, settings.Share)
	if err != nil {
		return nil, err
	}
	if s.Hibernate > 0 && !c.IsSet("session-idle") {
		s.SessionIdle = settings.HibernatedIdle
	}
	switch {
	case s.Hibernate > 0 && s.SessionIdle > 0 && s.Hibernate >= s.SessionIdle:
		return nil, c.UsageError("--hibernate must be shorter than --session-idle (%v), which also ends hibernated "+
			"sessions", s.SessionIdle)
	case c.Bool("direct"):
		return nil, c.UsageError("--direct bypasses the proxy and would expose the whole browser: it cannot be used " +
			"with sessions")
	case s.ProxyBypass != "" && s.Proxy == "":
		return nil, c.UsageError("--proxy-bypass needs --proxy")
	case s.ProxyBypass != "" && s.Limits().Any():
		return nil, c.UsageError("--proxy-bypass cannot be used with --allow-origins, --block-origins and " +
			"--block-private: they judge all requests")
	case s.Limits().Any() && s.DefaultSession != "":
		return nil, c.UsageError("--allow-origins, --block-origins and --block-private cannot be used with " +
			"--default-session: the browser's own profile is its user's, which has no limits")
	case s.State != "" && s.DefaultSession != "":
		return nil, c.UsageError("--state cannot be used with --default-session: " +
			"the browser's own profile has its logins")
	case s.Proxy != "" && s.DefaultSession != "":
		return nil, c.UsageError("--proxy cannot be used with --default-session%s: the browser's own profile has the "+
			"proxy that the browser is launched with", fromVariable(c, "proxy"))
	}
	for flag, name := range map[string]string{"default-session": s.DefaultSession, "root-session": s.RootSession} {
		if err := fleet.CheckName(name); c.IsSet(flag) && err != nil {
			return nil, c.UsageError("--%s: %v", flag, err)
		}
	}
	if c.IsSet("trace") {
		if err := os.MkdirAll(c.String("trace"), 0o700); err != nil {
			return nil, exit.Errorf(exit.Config, "cannot create the directory of the traces: %v", err)
		}
	}
	hidden, err := flags.ReadSecrets(c)
	if err != nil {
		return nil, err
	}
	g := &fleet.Fleet{
		Policy: fleet.Policy(s), Log: c.Log, Noun: "session",
		Defaults: fleet.Wanted{Settings: s}, Default: s.DefaultSession, Root: s.RootSession, Keep: s.Keep,
		OpenTrace: (&proxy.Traces{Dir: c.String("trace"), Secrets: hidden, Log: c.Log}).Open,
	}
	if s.State != "" {
		if g.Defaults.States, err = statecommand.Store(c); err == nil {
			_, err = g.Defaults.States.Load(s.State)
		}
	}
	return g, err
}

// optionOf refuses a flag of another command, for the options that bproxy itself
// had before there were commands.
func optionOf(command, flag, why string) error {
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("--%s is an option of bproxy %s%s", flag, command, why),
		Hint: "see bproxy " + command + " --help"}
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
	s.WSURL = browserAt(e.HTTPURL+base) + "/" + s.Name
	return s
}

// sessionRecord returns the record of a session of a proxy.
func sessionRecord(s api.Session, e record.Proxy) *record.Record {
	r := record.Of("proxy", e)
	r.MustSet("session", sessionOf(s, e))
	return r
}

// newSession answers hold: it creates a session and returns its record.
func (s *service) newSession(ctx context.Context, r api.HoldRequest) (any, error) {
	n := s.proxy.Sessions.Defaults
	if err := r.Settings.Apply(&n.Settings, settings.Request); err != nil {
		return nil, control.Errorf(control.BadRequest, "%v", err)
	}
	if n.State != "" && r.Settings["state"] != nil {
		var err error
		if n.States, err = s.states.Named(ctx, n.State); err != nil {
			return nil, err
		}
	}
	return control.Later(func() (any, error) {
		i, err := s.proxy.Sessions.New(ctx, r.Session, n)
		if err != nil {
			return nil, err
		}
		return sessionRecord(i, s.at), nil
	}), nil
}

// errNoSession is the error of a request that is about a session, and names none.
var errNoSession = control.Errorf(control.BadRequest, "the request names no session")

// shelves returns the proxy's sessions.
func (s *service) shelves() shelves {
	return func(api.Of) ([]shelf, error) { return []shelf{{s.proxy.Sessions, s.at}}, nil }
}

// registerSessions adds the methods for sessions.
func (s *service) registerSessions(m *control.Mux) {
	here := s.shelves()
	control.Handle(m, api.List, here.list)
	control.HandleLater(m, api.Watch, func(ctx context.Context, p api.WatchRequest) (any, error) {
		events, err := s.proxy.Sessions.Events(ctx, p.After)
		return api.EventList[fleet.Event]{Events: events}, err
	})
	control.Handle(m, api.Hold, s.newSession)
	control.HandleLater(m, api.Rest, func(ctx context.Context, p api.Of) (any, error) {
		if p.Session == "" {
			return nil, errNoSession
		}
		return struct{}{}, s.proxy.Sessions.Free(ctx, p.Session)
	})
	control.HandleLater(m, api.Release, here.release)
	control.HandleLater(m, api.Downloads, s.downloads)
	control.Handle(m, api.StateSave, s.saveState)
	s.states.Register(m)
}

// SessionRecords are the records of sessions.
var SessionRecords = &cli.Records{Columns: []cli.Column{
	{Head: "SESSION", Field: "session.name"}, {Head: "PORT", Field: "proxy.port"},
	{Head: "TABS", Field: "session.tab_count"},
	{Head: "CLIENTS", Field: "session.clients"}, {Head: "IDLE", Field: "session.idle_seconds", Show: cli.Seconds},
	{Head: "HIBERNATED", Field: "session.hibernated", Spare: 2},
	{Head: "CONTROL", Field: "session.control.by", Spare: 3},
	{Head: "OWNER", Field: "proxy.owner", Spare: 1}, {Head: "ENDPOINT", Field: "session.ws_url"},
}, Members: map[string]any{"session": api.Session{}}}

// Sessions lists the sessions of the running proxies, or creates or ends
// sessions of one.
func Sessions(c *cli.Context) error {
	args := c.Args()
	for _, f := range settings.Flags(settings.Request) {
		if c.Given(f) && (len(args) == 0 || args[0] != "new") {
			return c.UsageError("--%s applies to a new session: session new NAME", f)
		}
	}
	switch {
	case len(args) == 1 && args[0] == "list" && !c.Bool("all"):
		return listSessions(c)
	case len(args) == 2 && args[0] == "end" && !c.Bool("all"):
		return endSessions(c, api.Of{Session: args[1]})
	case len(args) == 1 && args[0] == "end" && c.Bool("all"):
		return endSessions(c, api.Of{All: true})
	case len(args) == 2 && args[0] == "new" && !c.Bool("all"):
		return newSession(c, args[1])
	}
	return c.UsageError("expected list, new NAME, end NAME, or end --all")
}

func listSessions(c *cli.Context) error {
	ps, err := sharedProxies(c)
	if err != nil {
		return err
	}
	for _, p := range ps {
		rs, err := api.List.Ask(context.Background(), p, api.Of{All: true})
		if err == nil {
			err = c.Out.Write(rs...)
		}
		if err != nil && c.IsSet("port") {
			return err
		} else if err != nil {
			c.Log.Warn(err.Error()) // the others can be listed
		}
	}
	return c.Out.Close()
}

func endSessions(c *cli.Context, of api.Of) error {
	p, name, err := proxyOf(c, of.Session)
	if err != nil {
		return err
	}
	of.Session = name
	if of.All && p.Owner != "" && !c.IsSet("port") {
		return c.UsageError("the only proxy with sessions belongs to %s; to end them, name its port: --port %d",
			p.Owner, p.Port)
	}
	rs, err := api.Release.Ask(context.Background(), p, of)
	return c.Out.Print(err, rs...)
}

func newSession(c *cli.Context, name string) error {
	p, err := pick(c, client.Shared)
	if err != nil {
		return err
	}
	values, err := flags.GivenSettings(c, settings.Request)
	if err != nil {
		return err
	}
	r, err := api.Hold.Ask(context.Background(), p, api.HoldRequest{Of: api.Of{Session: name}, Settings: values})
	return c.Out.Print(err, r)
}

// pick returns the proxy of --port, or the only one of a kind.
func pick(c *cli.Context, kind client.Kind) (client.Proxy, error) {
	port := ""
	if c.IsSet("port") {
		port = strconv.Itoa(c.Int("port"))
	}
	return kind.One(c.State(), " with --port", port)
}

// sharedProxies returns the proxies with sessions: the one of --port, or all.
func sharedProxies(c *cli.Context) ([]client.Proxy, error) {
	if !c.IsSet("port") {
		return client.Shared.All(c.State())
	}
	p, err := pick(c, client.Shared)
	return []client.Proxy{p}, err
}

// proxyOf returns the proxy that has the session with a name, or the one of --port, and the session's whole name: the
// sessions of bmcp call have longer names than people call them. If none has it, or the name is "", it is the only
// proxy with sessions.
func proxyOf(c *cli.Context, name string) (client.Proxy, string, error) {
	ps, err := sharedProxies(c)
	if err != nil {
		return client.Proxy{}, "", err
	}
	var have []client.Proxy
	names := map[int]string{} // by port
	for _, p := range ps {
		if name == "" {
			break
		}
		all, err := sessionsAt(p)
		if err != nil {
			c.Log.Warn(err.Error()) // another may have it
		}
		if s := sessionIn(all, name); s != nil {
			have, names[p.Port] = append(have, p), s.Name
		}
	}
	switch have = client.Preferred(have); {
	case len(have) == 1:
		return have[0], names[have[0].Port], nil
	case len(have) > 1:
		return client.Proxy{}, "", c.UsageError("several proxies have a session %q; choose one with --port: %s", name,
			client.Ports(have))
	case name == "" || len(ps) < 2:
		p, err := pick(c, client.Shared)
		return p, name, err
	}
	return client.Proxy{}, "", &exit.Error{Code: exit.Unavailable,
		Err:  fmt.Errorf("no proxy has a session %q (they listen on %s)", name, client.Ports(ps)),
		Hint: "bproxy session list shows all sessions"}
}

// sessionIn returns the session that has a name or, if none has it, one that people call so; nil: there is none.
func sessionIn(all []api.Session, name string) *api.Session {
	for _, is := range []func(api.Session) bool{
		func(s api.Session) bool { return s.Name == name },
		func(s api.Session) bool { return s.IsCalled(name) },
	} {
		if i := slices.IndexFunc(all, is); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// sessionsAt returns the sessions of a proxy.
func sessionsAt(p client.Proxy) (all []api.Session, err error) {
	rs, err := api.List.Ask(context.Background(), p, api.Of{All: true})
	for _, r := range rs {
		all = append(all, record.Member[api.Session](r, "session"))
	}
	return all, err
}
