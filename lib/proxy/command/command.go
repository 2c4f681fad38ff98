// Package command implements the commands of bproxy.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/devtools"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/fleet/supply"
	"btools/lib/forward/limits"
	"btools/lib/front"
	"btools/lib/launch/options"
	statecommand "btools/lib/logins/command"
	"btools/lib/logins/remote"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/run"
	runcommand "btools/lib/run/command"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/systemd"
	"btools/lib/virtual"
)

// Proxies are the records of proxies, and of the browsers that have joined a hub.
var Proxies = &cli.Records{Columns: []cli.Column{
	{Head: "PORT", Field: "proxy.port"}, {Head: "PID", Field: "proxy.pid"}, {Head: "STATE", Field: "status.state"},
	{Head: "BROWSER", Field: "browser.type"}, {Head: "VERSION", Field: "browser.version"},
	{Head: "WEBSOCKETS", Field: "status.websockets"},
	{Head: "JOINED", Field: "joined.port"},
	{Head: "OWNER", Field: "proxy.owner", Spare: 1},
	{Head: "ENDPOINT", Field: "proxy.http_url"},
}, Members: map[string]any{"status": api.ProxyStatus{}}}

// Run serves until it is stopped, or as long as a command runs.
func Run(c *cli.Context) error {
	if err := checkHub(c); err != nil {
		return err
	}
	if c.Bool("extension") {
		return runHub(c)
	}
	rec, err := c.FirstRecord("the browser will be the one that the options name, else the best that is installed")
	if err != nil {
		return err
	}
	cmd, err := runcommand.Read(c, rec)
	if err != nil {
		return err
	}
	p, err := newProxy(c, rec)
	if err != nil {
		return err
	}
	protocol := protocolOf(p, rec)
	if err := checkIsolated(c, p, protocol); err != nil {
		return err
	}
	if err := run.Check(c.Command, protocol == record.BiDi); err != nil {
		return err
	}
	listeners, err := listen(c, rec)
	if err != nil {
		return err
	}
	ctx, stop, now := cmd.Begin(cmd.Owner, true)
	defer stop(nil)
	if p.Launch == nil {
		_, port, _ := net.SplitHostPort(listeners[0].Addr().String())
		p.Launch = launch(c, rec, now, "bproxy :"+port)
	}

	if cmd.Evidence != nil && p.Sessions == nil {
		p.Launch = recorded(c, cmd, p.Launch)
	}
	dir := state.NewDir()
	if p.Sessions != nil {
		p.Sessions.MakeDir, p.Sessions.Saves = dir.Make, true
	}
	if err := keepDownloads(c, p); err != nil {
		return err
	}
	if p.Spec.Foreign && !c.IsSet("target") {
		defer tellLeft(c, rec)
	}
	p.State = c.State()
	s := &service{proxy: p, states: remote.NewServer(statecommand.Store(c)),
		listed: list(c, rec, dir, listeners[0].Addr(), record.Proxy{Protocol: protocol, Isolated: p.Sessions != nil})}
	begin := func(restore func()) {
		p.Changed = restore
		p.Start()
	}
	serve := func(ctx context.Context) error { return p.Serve(ctx, listeners...) }
	return s.run(ctx, stop, c, cmd, begin, s.methods(), serve, func() (run.Endpoint, error) {
		e := s.at
		if e.Isolated && !c.IsSet("root-session") { // clients that are given one address share one browser
			e.WSURL = sessionOf(api.Session{Name: cmdSession}, e).WSURL
		}
		at := run.Endpoint{HTTPURL: e.HTTPURL, WSURL: e.WSURL, Port: e.Port, Protocol: e.Protocol}
		if p.Sessions == nil {
			return at, nil
		}
		return at, s.recordSessions(ctx, c, cmd.Evidence)
	})
}

// tellLeft tells how to stop the browser of a record on standard input, if it goes on
// when this program ends.
func tellLeft(c *cli.Context, rec *record.Record) {
	i := record.Member[record.Instance](rec, "instance")
	if f, err := c.State().Read(); err == nil && i.ID != "" {
		if e := f.Instance(i.ID); e != nil && e.Alive() {
			c.Log.Info(fmt.Sprintf("the browser %s goes on: blaunch stop %s ends it", i.ID, i.ID))
		}
	}
}

// newProxy returns a proxy with the settings of the flags and the record.
func newProxy(c *cli.Context, rec *record.Record) (*proxy.Proxy, error) {
	o, err := flags.ReadBrowser(c)
	if err != nil {
		return nil, err
	}
	if !c.Given("browser") && (rec != nil && rec.Raw("browser") != nil || c.IsSet("launch")) {
		// The record's browser overrides that of the variable. A launcher has the
		// variable itself, and may have no such option.
		o.Browser = ""
	}
	s, err := flags.ReadSettings(c, settings.Proxy)
	if err != nil {
		return nil, err
	}
	p := &proxy.Proxy{
		Runner: supply.Runner{Options: o, Spec: supply.Configured(s),
			Overlap: !c.IsSet("launch")}, // it is not known whether its launcher can
		Eager: c.Bool("eager"), Direct: c.Bool("direct"), Log: c.Log,
	}
	if err := flags.CheckDurations(c, "stop-timeout"); err != nil {
		return nil, err
	}
	if s.Timeout <= 0 {
		return nil, c.UsageError("--timeout must be a positive duration such as 15s, not %v", s.Timeout)
	}
	if err := readFront(c, &p.Front); err != nil {
		return nil, err
	}
	if p.Sessions, err = sessionsOf(c); err != nil {
		return nil, err
	}
	if p.Sessions != nil && p.Sessions.Defaults.Limits().Any() {
		p.Options.Args = append(slices.Clone(p.Options.Args), limits.ChromeArgs...)
	}
	foreign, err := target(c, rec)
	if err != nil {
		return nil, err
	}
	if foreign == nil && c.Bool("one-connection") {
		return nil, c.UsageError("--one-connection needs --target, or the record of a running browser on standard " +
			"input")
	}
	if foreign != nil {
		for _, f := range []string{"launch", "idle", "idle-by", "eager"} {
			if c.IsSet(f) && (f != "eager" || !c.Bool("one-connection")) {
				return nil, c.UsageError("--%s applies to a browser that bproxy launches, not to one that is "+
					"already running", f)
			}
		}
		b, err := sibling.Foreign(foreign)
		if err != nil {
			return nil, exit.Errorf(exit.Data, "cannot use the record: %v", err)
		}
		if err := takeOneConnection(c, rec, p, b.Instance.Protocol); err != nil {
			return nil, err
		}
		p.Spec.Foreign = true
		p.Launch = func(context.Context, options.Options, string) (*sibling.Browser, error) { return b, nil }
	}
	if path := c.String("trace"); c.IsSet("trace") && p.Sessions == nil {
		hidden, err := flags.ReadSecrets(c)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) // it holds what pages hold
		if err != nil {
			return nil, fmt.Errorf("cannot write the trace: %w", err)
		}
		p.Trace = &proxy.Trace{Out: hidden.JSONWriter(f), Log: c.Log}
	}
	return p, nil
}

// readFront sets what the flags say of who may connect to a port, and of how many do at once.
func readFront(c *cli.Context, f *front.Front) (err error) {
	f.Log, f.Guard.Origins = c.Log, c.StringSlice("allow-origin")
	if f.Limit = (front.Limit{Max: c.Int("max-connections"), Flag: "max-connections"}); f.Limit.Max < 1 {
		return c.UsageError("--max-connections must be 1 or more, not %d", f.Limit.Max)
	}
	f.Guard.Tokens, err = flags.OpenTokens(c, nil)
	return err
}

// takeOneConnection has all clients of a running browser share one connection to
// it, if the flags say so.
func takeOneConnection(c *cli.Context, rec *record.Record, p *proxy.Proxy, protocol string) error {
	switch {
	case !c.Bool("one-connection"):
		return nil
	case protocol == record.BiDi:
		return c.UsageError("--one-connection needs a browser that speaks CDP, not WebDriver BiDi")
	case c.Bool("direct"):
		return c.UsageError("--direct has clients connect to the browser themselves: it cannot be used with " +
			"--one-connection")
	}
	p.Spec.One = supply.NewOneConnection(func() (record.Instance, error) {
		r, err := target(c, rec) // another Chrome may have written the file
		if err != nil {
			return record.Instance{}, err
		}
		return sibling.Endpoint(r)
	})
	return nil
}

// target returns the record of a browser that another program owns: the one of
// --target, or the one on standard input; nil if there is none.
func target(c *cli.Context, rec *record.Record) (*record.Record, error) {
	t := c.String("target")
	if !c.IsSet("target") {
		if rec != nil && rec.Raw("instance") != nil {
			return rec, nil
		}
		return nil, nil
	}
	if filepath.Base(t) == devtools.ActivePort {
		var err error
		if t, err = devtools.ReadActivePort(t); err != nil {
			return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot find the browser: %w", err),
				Hint: "Chrome writes the file once remote debugging is allowed in chrome://inspect/#remote-debugging"}
		}
	}
	u, err := url.Parse(t)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "ws" {
		return nil, c.UsageError("--target must be http://HOST:PORT, ws://HOST:PORT/PATH or the file "+
			devtools.ActivePort+", not %q", t)
	}
	// All that is known of it.
	i := map[string]string{"protocol": record.CDP, u.Scheme + "_url": t}
	bidi := u.Path == "/session" || u.Scheme == "ws" && strings.HasPrefix(u.Path, "/session/")
	if bidi && !strings.Contains(u.Path, "/devtools/browser") { // which is a session's of --isolate
		i["protocol"] = record.BiDi
	}
	r := record.New()
	r.MustSet("instance", i)
	return r, nil
}

// listen opens the address of --listen, or takes the sockets from systemd.
func listen(c *cli.Context, rec *record.Record) ([]net.Listener, error) {
	ls, err := systemd.Listeners()
	if err != nil {
		return nil, exit.Errorf(exit.Config, "%v", err)
	}
	if len(ls) > 0 {
		for _, l := range ls {
			if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() && !c.IsSet("token-file") {
				return nil, exit.Errorf(exit.Config,
					"systemd listens on %v: without --token-file, bproxy serves only TCP on loopback addresses",
					l.Addr())
			}
		}
		return ls, nil
	}
	addr := c.String("listen")
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if rec != nil && rec.Raw("port") != nil && !c.IsSet("listen") {
		var n int
		if _, err := rec.Get("port", &n); err != nil || n < 0 || n > 65535 {
			return nil, exit.Errorf(exit.Data, "the record's port is not a port: %s", rec.Raw("port"))
		}
		host, _, _ := net.SplitHostPort(addr)
		addr = net.JoinHostPort(host, strconv.Itoa(n))
	}
	l, err := flags.Listen(c, "listen", addr)
	if err != nil {
		return nil, err
	}
	return []net.Listener{l}, nil
}

// protocolOf returns the protocol of the browser that will run, "" if it is
// known only after the launch.
func protocolOf(p *proxy.Proxy, rec *record.Record) string {
	if p.Spec.Foreign {
		if b, err := p.Launch(context.Background(), options.Options{}, ""); err == nil { // which finds it
			return b.Instance.Protocol
		}
		return ""
	}
	b := record.Browser{Type: p.Options.Browser}
	if b.Type == "" && rec != nil {
		rec.Get("browser", &b)
	}
	switch {
	case b.Type == record.Firefox:
		return record.BiDi
	case slices.Contains(record.Types, b.Type):
		return record.CDP
	}
	return ""
}

// launch returns a function that launches a browser with --launch, or with
// blaunch on behalf of owner.
func launch(
	c *cli.Context, rec *record.Record, now <-chan struct{}, owner string,
) func(context.Context, options.Options, string) (*sibling.Browser, error) {
	input := record.New()
	if rec != nil {
		input = rec.Clone()
		input.Delete("port") // it is the proxy's port
	}
	timeout, grace := c.Duration("timeout"), c.Duration("stop-timeout")
	return func(ctx context.Context, o options.Options, typ string) (*sibling.Browser, error) {
		var spec sibling.Spec
		if line := c.String("launch"); line != "" {
			spec = sibling.Spec{Argv: shellArgv(line, o.Argv()), Timeout: timeout, Grace: grace + sibling.Margin,
				Stderr: c.Messages}
		} else {
			if o.Browser == "" && input.Raw("browser") == nil {
				if o.Browser = typ; typ == record.HeadlessShell && o.Headless != nil && !*o.Headless {
					o.Browser = "" // a restart keeps what was not requested to change, and it has no windows
				}
			}
			var err error
			spec, err = sibling.Blaunch(timeout, grace, c.Messages, c.String("log-level"), c.String("log-format"),
				append(o.Argv(), "--owner="+owner))
			if err != nil {
				return nil, err
			}
			spec.Pipe = c.Bool("isolate") && sibling.HasPipes
		}
		spec.Input, spec.Now = input, now
		return sibling.Launch(ctx, spec)
	}
}

// shellArgv returns the arguments that run a command line, with more arguments,
// in a shell.
func shellArgv(line string, more []string) []string {
	if runtime.GOOS == "windows" {
		return append([]string{"cmd", "/c", line}, more...)
	}
	if words := strings.Fields(line); len(words) > 0 && !strings.ContainsAny(line, "\n;&|<>()$`\\\"'*?[]#~=%{}!") {
		if _, err := exec.LookPath(words[0]); err == nil { // one program: it gets our signal itself
			line = "exec " + line
		}
	}
	for _, a := range more {
		line += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return []string{"/bin/sh", "-c", line}
}

// service is a proxy with its control socket.
type service struct {
	*listed
	proxy  *proxy.Proxy
	states *remote.Server
}

// methods returns those of the control socket. Each answer of those for the browser is the
// status, as a record.
func (s *service) methods() *control.Mux {
	m := &control.Mux{Program: "bproxy"}
	acts := func(act func() error) control.Later {
		return func() (any, error) {
			if err := act(); err != nil {
				return nil, err
			}
			return s.status(), nil
		}
	}
	control.Handle(m, api.Status, func(context.Context, api.Of) (any, error) { return s.status(), nil })
	control.Handle(m, api.Launch, func(ctx context.Context, over options.Options) (any, error) {
		if wrong := over.Check(); wrong != "" {
			return nil, control.Errorf(control.BadRequest, "%s", wrong)
		}
		if over.Browser == record.Firefox && s.proxy.Sessions != nil {
			return nil, control.Errorf(control.BadRequest,
				"sessions need a browser that speaks CDP, which Firefox does not")
		}
		return acts(func() error { return s.proxy.Relaunch(ctx, over, false) }), nil
	})
	control.Handle(m, api.Restart, func(ctx context.Context, _ api.Of) (any, error) {
		return acts(func() error { return s.proxy.Relaunch(ctx, options.Options{}, true) }), nil
	})
	control.Handle(m, api.Stop, func(ctx context.Context, _ api.Of) (any, error) {
		return acts(func() error { return s.proxy.Stop(ctx) }), nil
	})
	control.Handle(m, api.Attach, func(ctx context.Context, r api.AttachRequest) (any, error) {
		if s.proxy.Sessions != nil {
			return s.shelves().attach(ctx, r)
		}
		_, rec := s.proxy.Status()
		if rec == nil {
			return nil, control.Errorf(control.Unavailable, "no browser runs")
		}
		return virtual.WatchBrowser(context.Background(), rec, "bproxy share gives each client a session, which can be")
	})
	ofBrowser := len(m.Methods())
	s.registerSessions(m)
	if s.proxy.Sessions == nil {
		for _, method := range m.Methods()[ofBrowser:] {
			control.Handle(m, control.Method[json.RawMessage, any](method),
				func(context.Context, json.RawMessage) (any, error) {
					return nil, control.Errorf(control.BadRequest, "this proxy has no sessions: start bproxy share")
				})
		}
	}
	return m
}

// status returns the service's current record.
func (s *service) status() *record.Record {
	status, browser := s.proxy.Status()
	r := s.record.Clone()
	if browser != nil {
		for _, member := range []string{"browser", "instance"} {
			if raw := browser.Raw(member); raw != nil {
				r.SetRaw(member, raw)
			}
		}
		i := record.Instance{Protocol: record.CDP}
		if _, err := browser.Get("instance", &i); err == nil {
			e := s.at
			setProtocol(&e, i.Protocol)
			r.MustSet("proxy", e)
		}
	}
	r.MustSet("status", status)
	return r
}
