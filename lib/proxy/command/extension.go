package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/extension"
	"btools/lib/extension/hub"
	"btools/lib/flags"
	"btools/lib/guard"
	statecommand "btools/lib/logins/command"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/run"
	runcommand "btools/lib/run/command"
	"btools/lib/settings"
	"btools/lib/state"
)

// hubOnly are the flags that need --extension.
var hubOnly = []string{"ports", "all-tabs", "pairing-file", "no-pairing"}

// notForHub returns the flags that have no effect on browsers that join.
func notForHub() []string {
	has := append(settings.Flags(settings.Hub), "timeout") // of its own, for CMD
	return slices.DeleteFunc(append(settings.Flags(settings.Launches|settings.Proxy|settings.Share), "direct", "trace",
		"launch", "target", "one-connection", "isolate", "eager"), func(name string) bool {
		return slices.Contains(has, name)
	})
}

// checkHub refuses flags that do not go together.
func checkHub(c *cli.Context) error {
	if !c.Bool("extension") {
		for _, f := range hubOnly {
			if c.IsSet(f) {
				return optionOf("hub", f, "")
			}
		}
		return nil
	}
	for _, f := range notForHub() {
		if c.Given(f) {
			return c.UsageError("--%s has no effect on a browser that joins by its extension", f)
		}
	}
	return nil
}

// extensionHub is a running hub.
type extensionHub struct {
	*listed
	server *proxy.Hub
}

// joinDefault is where the extension looks for a hub.
var joinDefault = net.JoinHostPort("127.0.0.1", strconv.Itoa(extension.DefaultPort))

// runHub serves browsers that join by the extension until it is stopped, or as
// long as a command runs.
func runHub(c *cli.Context) error {
	cmd, err := runcommand.Read(c, nil)
	if err != nil {
		return err
	}
	dir := state.NewDir()
	server, codeFile, err := newHub(c, dir)
	if err != nil {
		return err
	}
	addr := c.String("listen")
	if addr == "" {
		addr = joinDefault
	}
	l, err := flags.Listen(c, "listen", addr)
	if err != nil {
		return err
	}
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() {
		return c.UsageError("a hub listens on loopback addresses only, not on %s", at.IP)
	}
	server.Join.Host = at.IP.String()
	h := &extensionHub{server: server, listed: list(c, nil, dir, at,
		record.Proxy{Protocol: record.CDP, Extension: true, PairingFile: codeFile})}
	ctx, stop, _ := cmd.Begin(cmd.Owner, true)
	defer stop(nil)
	begin := func(func()) { server.Start() }
	serve := func(ctx context.Context) error { return server.Serve(ctx, l) }
	return h.run(ctx, stop, c, cmd, begin, h.methods(), serve,
		func() (run.Endpoint, error) { return h.first(ctx, c) })
}

// newHub returns a hub with the settings of the flags, and the file with its pairing code.
func newHub(c *cli.Context, dir *state.Dir) (s *proxy.Hub, codeFile string, err error) {
	first, last, err := readPorts(c)
	if err != nil {
		return nil, "", err
	}
	set, err := flags.ReadSettings(c, settings.Hub)
	if err != nil {
		return nil, "", err
	}
	if err := flags.CheckDurations(c, "stop-timeout", "timeout"); err != nil {
		return nil, "", err
	}
	if codeFile, err = codePath(c); err != nil {
		return nil, "", err
	}
	code, err := readCode(c, codeFile)
	if err != nil {
		return nil, "", err
	}
	s = &proxy.Hub{
		Join: &hub.Hub{Code: code, Open: c.Bool("no-pairing"), First: first, Last: last, Version: cli.Release(),
			Log: c.Log},
		AllTabs: c.Bool("all-tabs"), Group: "btools", Log: c.Log, Settings: set}
	s.Front.Guard.Browsers = guard.NewBrowsers(c.State())
	if err := readFront(c, &s.Front); err != nil {
		return nil, "", err
	}
	s.MakeDir = dir.Make
	return s, codeFile, makeKeep(set.Downloads)
}

// readPorts reads --ports.
func readPorts(c *cli.Context) (first, last int, err error) {
	from, to, _ := strings.Cut(c.String("ports"), "-")
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, c.UsageError("--ports must be a range such as 3301-3399, not %q", c.String("ports"))
	}
	return first, last, nil
}

// codePath returns the path of the file with the pairing code.
func codePath(c *cli.Context) (string, error) {
	if c.IsSet("pairing-file") {
		return filepath.Abs(c.String("pairing-file"))
	}
	store, err := statecommand.Store(c)
	if err != nil {
		return "", exit.Errorf(exit.Config, "there is no place for the pairing code: set HOME, or use --pairing-file")
	}
	return filepath.Join(filepath.Dir(store.Dir), "pairing-code"), nil
}

// readCode reads the pairing code. A new one is printed on standard error, and so is
// any if somebody starts the hub on a terminal, unless none is needed.
func readCode(c *cli.Context, path string) (extension.Code, error) {
	code, made, err := extension.LoadCode(path)
	if err != nil {
		return "", exit.Errorf(exit.Config, "%v", err)
	}
	if (made || c.AtTerminal()) && !c.Bool("no-pairing") {
		fmt.Fprintf(c.Messages, "bproxy: the pairing code is %v (kept in %s)\n", code, path)
	}
	return code, nil
}

// first waits for the first browser that joins, and returns its endpoint.
func (h *extensionHub) first(ctx context.Context, c *cli.Context) (run.Endpoint, error) {
	ctx, done := patient(ctx, c, errors.New("timed out"))
	l, err := h.server.Join.Await(ctx, func(hub.Info) bool { return true })
	done()
	if err != nil {
		return run.Endpoint{}, &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("no browser has joined: %w", err)}
	}
	i := h.instance(l.Instance.ID, l.Instance.ID, record.Now())
	return run.Endpoint{ID: i.ID, HTTPURL: i.HTTPURL, WSURL: i.WSURL, Protocol: i.Protocol}, nil
}

// patient returns a context that ends after --timeout with this cause, and logs after a while what is waited for,
// unless done is called before.
func patient(ctx context.Context, c *cli.Context, late error) (bounded context.Context, done func()) {
	notice := time.AfterFunc(2*time.Second, func() { c.Log.Info("waiting for a browser to join by its extension") })
	cancel := context.CancelFunc(func() {})
	if d := c.Duration("timeout"); d > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d, late)
	}
	return ctx, func() {
		notice.Stop()
		cancel()
	}
}

// instance returns the member "instance" of a browser that has joined, and is found by a name.
func (h *extensionHub) instance(id, name string, since record.Time) record.Instance {
	at := h.at.HTTPURL + "/session/" + name
	return record.Instance{ID: id, Protocol: record.CDP, Host: h.at.Host, Port: h.at.Port, HTTPURL: at,
		WSURL: browserAt(at), Source: record.FromExtension, StartedAt: since}
}

// describe returns the record of a browser that has joined.
func (h *extensionHub) describe(j *proxy.Joined) *record.Record {
	r, i := h.record.Clone(), j.Info()
	r.MustSet("browser", map[string]any{"type": browserType(i.UserAgent), "version": chromeVersion(i.UserAgent),
		"protocols": []string{record.CDP}})
	at := h.instance(i.ID, i.ID, i.ConnectedAt)
	r.MustSet("instance", at)
	r.MustSet("joined", record.Joined{ID: i.ID, HTTPURL: at.HTTPURL, WSURL: at.WSURL, Port: i.Port,
		UserAgent: i.UserAgent, WindowID: i.WindowID, ConnectedAt: i.ConnectedAt, LastActivity: i.LastActivity,
		Tabs: i.Tabs, Claimed: h.server.IsHeld(j)})
	return r
}

// browserType returns the type of a browser by its user agent. Brave and
// Chromium name themselves Chrome.
func browserType(agent string) string {
	if strings.Contains(agent, " Edg/") {
		return record.Edge
	}
	return record.Chrome
}

func chromeVersion(agent string) string {
	_, rest, _ := strings.Cut(agent, "Chrome/")
	version, _, _ := strings.Cut(rest, " ")
	return version
}

// status returns the record of the hub.
func (h *extensionHub) status() *record.Record {
	r := h.record.Clone()
	s := api.ProxyStatus{State: proxy.Stopped, Connections: h.server.Front.Limit.Count()}
	for _, j := range h.server.List() {
		s.State = proxy.Ready
		for _, one := range j.Sessions.List() {
			s.WebSockets += one.Clients
		}
	}
	r.MustSet("status", s)
	return r
}

// methods returns those of the control socket.
func (h *extensionHub) methods() *control.Mux {
	m := &control.Mux{Program: "a hub"}
	control.Handle(m, api.Status, func(context.Context, api.Of) (any, error) { return h.status(), nil })
	control.Handle(m, api.List, func(ctx context.Context, p api.Of) (any, error) {
		if p.Instance != "" || p.All {
			return shelves(h.shelves).list(ctx, p)
		}
		all := []*record.Record{}
		for _, j := range h.server.List() {
			all = append(all, h.describe(j))
		}
		return all, nil
	})
	control.HandleLater(m, api.Stop, func(_ context.Context, p api.Of) (*record.Record, error) {
		j := h.server.Find(p.Instance)
		if j == nil {
			named := ""
			if p.Instance != "" {
				named = fmt.Sprintf(" with the ID or port %q", p.Instance)
			}
			return nil, control.Errorf(control.InstanceNotFound, "no browser is connected%s", named)
		}
		j.Disconnect()
		return h.status(), nil
	})
	control.HandleLater(m, api.Hold, h.claim)
	control.HandleLater(m, api.Release, shelves(h.shelves).release)
	control.Handle(m, api.Attach, func(ctx context.Context, r api.AttachRequest) (any, error) {
		if r.Session == "" {
			return nil, control.Errorf(control.Unavailable,
				"a browser that has joined is seen in its own window; its sessions are seen here")
		}
		return shelves(h.shelves).attach(ctx, r)
	})
	control.HandleLater(m, api.Watch, func(ctx context.Context, p api.WatchRequest) (any, error) {
		if p.Instance != "" {
			return h.awaitLeft(ctx, p.Instance)
		}
		events, err := h.server.Join.Events(ctx, p.After)
		return api.EventList[hub.Event]{Events: events}, err
	})
	return m
}

// awaitLeft waits until a browser has left.
func (h *extensionHub) awaitLeft(ctx context.Context, name string) (api.Notices, error) {
	j := h.server.Find(name)
	if j == nil {
		return api.Notices{Ended: "it has left"}, nil
	}
	select {
	case <-j.Done():
		return api.Notices{Ended: j.Err().Error()}, nil
	case <-ctx.Done():
		return api.Notices{}, context.Cause(ctx)
	}
}

// instancesOf returns the records of the browsers that have joined a hub.
func instancesOf(p client.Proxy) []*record.Record {
	rs, _ := api.List.Ask(context.Background(), p, api.Of{}) // or it has just ended
	return rs
}

// onInstance executes status or stop on the browser that the argument names, by
// its ID or the port of its extension's connection; nil: it names none.
func onInstance(c *cli.Context, method control.Method[api.Of, *record.Record]) (*record.Record, error) {
	name := c.Arg()
	if name == "" {
		return nil, nil
	}
	ps, err := client.Any.All(c.State())
	if err != nil || slices.ContainsFunc(ps, func(p client.Proxy) bool { return strconv.Itoa(p.Port) == name }) {
		return nil, err
	}
	for _, p := range ps {
		if !p.Extension {
			continue
		}
		for _, r := range instancesOf(p) {
			switch j := record.Member[record.Joined](r, "joined"); {
			case j.ID != name && strconv.Itoa(j.Port) != name:
			case method == api.Status:
				return r, nil
			case method == api.Stop:
				_, err := api.Stop.Ask(context.Background(), p, api.Of{Instance: j.ID})
				return r, err
			default:
				return nil, c.UsageError("%s does not apply to a browser that has joined by its extension", method)
			}
		}
	}
	if strings.HasPrefix(name, "inst_") {
		return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no browser %q has joined", name),
			Hint: "bproxy list shows those that have"}
	}
	return nil, nil
}

// Extension writes the extension to a directory.
func Extension(c *cli.Context) error {
	if c.Arg() == "" {
		return c.UsageError("expected one directory, into which the extension is written")
	}
	dir, err := filepath.Abs(c.Arg())
	if err != nil {
		return err
	}
	config := extension.Config{Hub: "http://" + joinDefault}
	if c.IsSet("hub") {
		config.Hub = c.String("hub")
	}
	if c.Bool("paired") {
		path, err := codePath(c)
		if err != nil {
			return err
		}
		if config.Code, _, err = extension.LoadCode(path); err != nil {
			return exit.Errorf(exit.Config, "%v", err)
		}
	}
	if err := extension.Write(dir, config); err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, dir)
	return nil
}
