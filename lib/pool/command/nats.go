package command

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/guard"
	"btools/lib/pool/bus"
	"btools/lib/pool/config"
	"btools/lib/pool/gateway"
	"btools/lib/pool/offer"
	"btools/lib/record"
	"btools/lib/settings"
)

// hostsOf returns how a command finds other hosts: by the servers of --nats, and otherwise as the configuration says.
func hostsOf(c *cli.Context, cfg *config.Config) (h settings.Hosts, err error) {
	if cfg != nil {
		h = cfg.Global.Hosts
	}
	if list := c.String("nats"); list != "" {
		var s settings.Settings
		for _, r := range settings.Rows(settings.Global) {
			if r.Name == "nats" {
				err = r.Set(&s, settings.Global, list, settings.Files{})
			}
		}
		if err != nil {
			return h, c.UsageError("--nats %v", err)
		}
		h.NATS = s.Hosts.NATS
	}
	if h.Name == "" {
		h.Name = h.User
	}
	if h.Name == "" {
		if h.Name, err = os.Hostname(); err != nil {
			return h, err
		}
	}
	return h, nil
}

// network is a connection to the hosts.
type network struct {
	*bus.NATS
	hosts   settings.Hosts
	users   sync.WaitGroup // after which it is closed
	metrics *hostMetrics

	mu      sync.Mutex
	changed []func(up bool)
}

// onChange has a function called when the connection is up or down.
func (n *network) onChange(do func(up bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = append(n.changed, do)
}

// tell logs that no server has answered for a while, and that one does again.
func (n *network) tell(log *slog.Logger) {
	late := time.AfterFunc(nameWait, func() {
		if since, last := n.Down(); !since.IsZero() {
			log.Warn(fmt.Sprintf("no NATS server has answered for %v: %v", nameWait, last))
		}
	})
	n.onChange(func(up bool) {
		if !up {
			late.Reset(nameWait)
		} else if !late.Stop() {
			log.Info("a NATS server is connected")
		}
	})
}

// connectNATS connects to the servers of NATS, of which none need answer yet.
func connectNATS(c *cli.Context, h settings.Hosts) (*network, error) {
	n := &network{hosts: h, metrics: newHostMetrics()}
	var err error
	keys := bus.Keys{Servers: h.NATS, Name: h.Name, Credentials: h.Credentials, Seed: h.Seed, User: h.User,
		PasswordFile: h.PasswordFile, CA: h.CA, Cert: h.Cert, Key: h.Key}
	n.NATS, err = bus.Connect(keys, c.Log, func(up bool) {
		n.mu.Lock()
		all := n.changed
		n.mu.Unlock()
		for _, do := range all {
			do(up)
		}
	})
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot connect to NATS: %w", err)
	}
	n.metrics.nats = n.NATS
	return n, nil
}

// httpClient returns what sends requests to the HTTPS of hosts.
func httpClient(h settings.Hosts) (*http.Client, error) {
	t := &http.Transport{TLSClientConfig: &tls.Config{}, ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 64,
		IdleConnTimeout: time.Minute, DialContext: (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout: connectTime}
	if h.HostsCA != "" {
		b, err := os.ReadFile(h.HostsCA)
		if err != nil {
			return nil, exit.Errorf(exit.Config, "cannot read HOSTS_CA: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(b) {
			return nil, exit.Errorf(exit.Config, "HOSTS_CA %s has no certificate", h.HostsCA)
		}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for the host alone
	}}, nil
}

// connectTime is how long the connection to a host may take.
const connectTime = time.Second

// tokenOf returns the token for hosts, or what reads it from its file.
func tokenOf(h settings.Hosts) func() (string, error) {
	return func() (string, error) {
		path, is := strings.CutPrefix(h.Token, "@")
		if !is {
			return h.Token, nil
		}
		b, err := os.ReadFile(path)
		return strings.TrimSpace(string(b)), err
	}
}

// newGateway returns a gateway to the hosts of a network, of which one may be this process.
func newGateway(ctx context.Context, c *cli.Context, n *network, self string) (*gateway.Gateway, error) {
	h := n.hosts
	if h.Token == "" {
		return nil, &exit.Error{Code: exit.Config, Err: errors.New("no token for the hosts is set"),
			Hint: "HOSTS_TOKEN=@FILE, in bpool.toml or as " + config.Prefix + "HOSTS_TOKEN, names the file that has it"}
	}
	to, err := httpClient(h)
	if err != nil {
		return nil, err
	}
	regions := h.Regions
	if len(regions) == 0 {
		regions = []string{h.Region}
	}
	g, err := gateway.New(ctx, gateway.Options{Bus: n, Down: n.Down, Self: self, User: h.Name, Regions: regions,
		FarAfter: h.FarAfter, First: h.Place == settings.First, Token: tokenOf(h), HTTP: to, Plain: h.Plain,
		Log: c.Log, Count: n.metrics.count})
	if err == nil {
		n.onChange(g.Changed)
		if down, _ := n.Down(); !down.IsZero() {
			g.Changed(false)
			if down, _ := n.Down(); down.IsZero() { // it was told before
				g.Changed(true)
			}
		}
	}
	return g, err
}

// leaseElsewhere leases a browser of another host, and serves it on this machine until close is called.
func leaseElsewhere(ctx context.Context, c *cli.Context, r gateway.Request) (rec *record.Record, ended func() string,
	end func(), err error) {
	cfg, err := load(c)
	if err != nil {
		return nil, nil, nil, err
	}
	h, err := hostsOf(c, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	n, err := connectNATS(c, h)
	if err != nil {
		return nil, nil, nil, err
	}
	own, stop := context.WithCancel(context.Background())
	g, err := newGateway(own, c, n, "")
	if err != nil {
		stop()
		n.Close()
		return nil, nil, nil, err
	}
	t := gateway.NewLent(g, endpointGuard(c), nil)
	end = func() {
		stop()
		t.Close()
		n.Close()
	}
	notice := time.AfterFunc(noticeDelay, func() {
		if where := g.Waiting()[r.Pool]; where != "" { // else it has just been answered
			c.Log.Info("waiting for an instance of pool " + r.Pool + " on another host: " + where)
		}
	})
	rec, err = t.Hold(ctx, ctx, gateway.LoanRequest{Request: r, By: &control.Peer{UID: os.Geteuid(), PID: os.Getpid()}})
	notice.Stop()
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	id := record.Member[record.Lease](rec, "lease").ID
	return rec, func() string {
		return watchLease(own, c, func(after int) (api.Notices, error) {
			n, _, err := t.Notices(own, id, after)
			return n, err
		})
	}, end, nil
}

// endpointGuard returns the guard of a port for the browsers of leases.
func endpointGuard(c *cli.Context) guard.Guard {
	return guard.Guard{NoPages: true, Browsers: guard.NewBrowsers(c.State())}
}

// joinNATS connects the service to other machines, if it is to be found by NATS or to find hosts, until it has a
// successor. A service with pools and leases by HTTP is a host; one with a token for hosts is a gateway.
func (h *handler) joinNATS(ctx context.Context, c *cli.Context, cfg *config.Config, private bool) (*network, error) {
	hosts, err := hostsOf(c, cfg)
	isGateway := hosts.Token != ""
	if err != nil || len(hosts.NATS) == 0 || private && !isGateway {
		return nil, err
	}
	if h.leases == nil && !isGateway {
		return nil, c.UsageError("a service that is found by NATS needs --http and --token-file, by which others " +
			"lease; one that leases from others needs HOSTS_TOKEN")
	}
	n, err := connectNATS(c, hosts)
	if err != nil {
		return nil, err
	}
	n.tell(c.Log)
	if !isGateway {
		return n, nil
	}
	self := ""
	if h.isHost() {
		self = hosts.Name
	}
	ctx, stop := context.WithCancelCause(ctx)
	g, err := newGateway(ctx, c, n, self)
	if err != nil {
		stop(err)
		n.Close()
		return nil, err
	}
	n.users.Add(1)
	go func() {
		defer n.users.Done()
		select {
		case <-h.left:
		case <-ctx.Done():
		}
		stop(errStopping)
		g.Left()
	}()
	h.standard.Store(&cfg.Global)
	h.lent = gateway.NewLent(g, endpointGuard(c), h.service.NoteElsewhere)
	n.metrics.lent = h.lent
	if h.leases != nil {
		h.leases.Lent = h.lent
	}
	return n, nil
}

// isHost reports whether clients of other machines lease from the service.
func (h *handler) isHost() bool { return h.leases != nil && len(h.service.Names()) > 0 }

// beHost makes the service known to the gateways of other machines, if it is a host, until it has a successor. Unless
// it succeeds another process of the same service, there must be no other host of its name.
func (h *handler) beHost(ctx context.Context, n *network, url string, succeeds bool, log *slog.Logger) error {
	if n == nil {
		return nil
	}
	defer h.metrics().own.MustRegister(n.metrics)
	defer func() { // whatever uses it
		go func() {
			n.users.Wait()
			n.Close()
		}()
	}()
	if !h.isHost() {
		return nil
	}
	if h.public != nil {
		url = h.public.String()
	}
	if !succeeds {
		if err := n.checkName(ctx); err != nil {
			return err
		}
	}
	v := h.service
	host := &offer.Host{Bus: n, Pools: v.Offers, Name: n.hosts.Name, Region: n.hosts.Region, URL: url,
		Boot: h.leases.Boot, Version: semantic(cli.Release()), Log: log, Drain: h.drainBy, Count: n.metrics.offered}
	n.metrics.host = host
	n.onChange(host.Changed)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		select {
		case <-h.left:
		case <-ctx.Done():
		}
	}()
	n.users.Go(func() {
		if err := host.Run(ctx, v.Offers.Changed()); err != nil {
			log.Error("this host is not offered to others: " + err.Error())
		}
	})
	return nil
}

// nameWait is how long a host looks for another one of its name, if a server answers.
const nameWait = 2 * time.Second

// checkName returns an error if another host has the name.
func (n *network) checkName(ctx context.Context) error {
	if n.Await(ctx, nameWait) != nil {
		return nil // no server answers yet
	}
	all, err := n.Hosts(ctx, nameWait, 100*time.Millisecond)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Host == n.hosts.Name && other.Region == n.hosts.Region {
			return &exit.Error{Code: exit.Config,
				Err:  fmt.Errorf("another host is called %s: that at %s", other.Host, other.URL),
				Hint: "NATS_NAME gives each host a name of its own"}
		}
	}
	return nil
}

// semantic returns a version as micro services of NATS have it.
func semantic(version string) string {
	if regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`).MatchString(version) {
		return version
	}
	return "0.0.0"
}

// newBoot returns the ID of a process.
func newBoot() string { return rand.Text()[:12] }

// hostRow is what Hosts prints of a host.
type hostRow struct {
	Name    string         `json:"name"`
	Region  string         `json:"region"`
	Address string         `json:"address"`
	Version string         `json:"version"`
	State   string         `json:"state"` // up, draining, suspect, no NATS
	Total   int            `json:"total"`
	Free    int            `json:"free"`
	Waiting int            `json:"waiting"`
	Pools   []bus.PoolLoad `json:"pools"`
}

// HostRecords are the records that Hosts prints.
var HostRecords = &cli.Records{Columns: []cli.Column{
	{Head: "HOST", Field: "host.name"}, {Head: "REGION", Field: "host.region", Spare: 2},
	{Head: "STATE", Field: "host.state"}, {Head: "TOTAL", Field: "host.total"}, {Head: "FREE", Field: "host.free"},
	{Head: "WAITING", Field: "host.waiting"}, {Head: "ADDRESS", Field: "host.address", Spare: 3},
	{Head: "VERSION", Field: "host.version", Spare: 4}},
	Members: map[string]any{"host": hostRow{}}}

// findHosts returns a connection to NATS, and the hosts that can be found by it.
func findHosts(c *cli.Context) (*network, []bus.Load, error) {
	cfg, err := load(c)
	if err != nil {
		return nil, nil, err
	}
	h, err := hostsOf(c, cfg)
	if err != nil {
		return nil, nil, err
	}
	if len(h.NATS) == 0 {
		return nil, nil, c.UsageError("no server of NATS is named: give --nats, or set NATS in bpool.toml")
	}
	n, err := connectNATS(c, h)
	if err != nil {
		return nil, nil, err
	}
	var all []bus.Load
	if err = n.Await(context.Background(), connectWait); err == nil {
		all, err = n.Hosts(context.Background(), time.Second, 300*time.Millisecond)
	}
	if err != nil {
		n.Close()
		return nil, nil, err
	}
	return n, all, nil
}

// Hosts prints the hosts that can be found.
func Hosts(c *cli.Context) error {
	n, all, err := findHosts(c)
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	here, _ := api.Pools.Ask(ctx, running(c), api.Of{}) // none may run
	var rows []hostRow
	for _, l := range all {
		row := hostRow{Name: l.Host, Region: l.Region, Address: l.URL, Version: l.Version, State: "up", Pools: l.Pools}
		is := func(h api.HostStatus) bool { return h.Name == l.Host }
		switch suspect := func(h api.HostStatus) bool { return is(h) && h.Suspect }; {
		case l.Draining:
			row.State = "draining"
		case slices.ContainsFunc(here.Hosts, suspect):
			row.State = "suspect"
		}
		here.Hosts = slices.DeleteFunc(here.Hosts, is)
		for _, p := range l.Pools {
			row.Total, row.Free, row.Waiting = row.Total+p.Total, row.Free+p.Free, row.Waiting+p.Waiting
		}
		rows = append(rows, row)
	}
	for _, h := range here.Hosts { // of a retired process as well
		is := func(r hostRow) bool { return r.Name == h.Name }
		if h.Leases > 0 && !slices.ContainsFunc(rows, is) {
			rows = append(rows, hostRow{Name: h.Name, Address: h.URL, State: "no NATS", Pools: []bus.PoolLoad{}})
		}
	}
	for _, row := range rows {
		if err := c.Out.Write(record.Of("host", row)); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		c.Log.Info("no host answers")
	}
	return c.Out.Close()
}

// connectWait is how long a command waits for a server of NATS.
const connectWait = 5 * time.Second
