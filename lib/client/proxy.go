package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/extension"
	"btools/lib/record"
	"btools/lib/state"
)

// Proxy is a running bproxy or hub, and a Caller that makes each request on a connection of its own.
type Proxy struct {
	record.Proxy
	Control control.Path   `json:"control"`
	Record  *record.Record `json:"-"`
}

// Call makes a request.
func (p Proxy) Call(ctx context.Context, method string, params, result any) error {
	return explain(ctx, p.name(), p.Control.Call(ctx, method, params, result))
}

// Dial connects to the control socket.
func (p Proxy) Dial(ctx context.Context) (*control.Client, error) {
	c, err := control.Dial(ctx, string(p.Control))
	return c, explain(ctx, p.name(), err)
}

// Joined waits until the browser with this mark of its launch has joined the hub, and returns its place there.
func (p Proxy) Joined(ctx context.Context, mark string) (j record.Joined, err error) {
	rec, err := api.Hold.Ask(ctx, p, api.HoldRequest{Launch: mark})
	if err != nil {
		return j, err
	}
	if j = record.Member[record.Joined](rec, "joined"); j.ID == "" {
		return j, errors.New("the hub has not described it")
	}
	return j, nil
}

func (p Proxy) name() string { return fmt.Sprintf("the proxy with pid %d", p.PID) }

// Kind is a kind of proxies.
type Kind struct {
	Name string // of the command that starts one
	is   func(Proxy) bool
	only bool // a port does not find others
}

// The kinds of proxies.
var (
	Any      = Kind{"bproxy", func(Proxy) bool { return true }, false}
	Shared   = Kind{"bproxy share", func(p Proxy) bool { return p.Isolated }, false}
	Hubs     = Kind{"bproxy hub", func(p Proxy) bool { return p.Extension }, true}
	Watching = Kind{"bproxy share or bproxy hub", func(p Proxy) bool { return p.Isolated || p.Extension }, false}
)

// All returns the running proxies of the kind, the hub on the default port first.
func (k Kind) All(store *state.Store) (all []Proxy, err error) {
	f, err := store.Read()
	if err != nil {
		return nil, state.Explain(err)
	}
	for _, entry := range f.Proxies {
		p := Proxy{Control: control.Path(entry.Control), Record: entry.Record}
		entry.Record.Get("proxy", &p.Proxy)
		switch {
		case !entry.Process.Alive() || !k.is(p):
		case p.Extension && p.Port == extension.DefaultPort:
			all = slices.Insert(all, 0, p)
		default:
			all = append(all, p)
		}
	}
	return all, nil
}

// One returns the running proxy with this port or address, or, if name is "", the only one of the kind. how
// is what follows "name one of these ports" in the error for several.
func (k Kind) One(store *state.Store, how, name string) (Proxy, error) {
	all, err := k.All(store)
	if name != "" {
		return k.named(store, name)
	}
	switch all = Preferred(all); {
	case err != nil:
		return Proxy{}, err
	case len(all) == 1:
		return all[0], nil
	case len(all) > 1:
		return Proxy{}, exit.Errorf(exit.Usage, "several proxies are running; name one of these ports%s: %s", how,
			Ports(all))
	}
	hint := otherState
	if k.only {
		hint = "start one with " + k.Name
	}
	return Proxy{}, &exit.Error{Code: exit.Unavailable,
		Err: fmt.Errorf("no %s is running (looked in %s)", k.Name, store.Path()), Hint: hint}
}

// otherState is the hint for a running proxy that is not listed.
const otherState = "a bproxy started with another BTOOLS_STATE, XDG_RUNTIME_DIR or TMPDIR, " +
	"or by another user, is listed in another file"

// named returns the proxy with a port or address.
func (k Kind) named(store *state.Store, name string) (Proxy, error) {
	host, port := "", name
	if u, err := url.Parse(name); err == nil && u.Scheme == "http" && u.Hostname() != "" {
		if host, port = u.Hostname(), u.Port(); port == "" {
			port = "80"
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Proxy{}, exit.Errorf(exit.Usage, "%q is not a port or an address such as http://127.0.0.1:3300", name)
	}
	among := Any
	if k.only {
		among = k
	}
	all, err := among.All(store)
	if err != nil {
		return Proxy{}, err
	}
	i := slices.IndexFunc(all, func(p Proxy) bool {
		return strconv.Itoa(p.Port) == port &&
			(host == "" || host == p.Host || net.ParseIP(host).Equal(net.ParseIP(p.Host)))
	})
	if i >= 0 {
		return all[i], nil
	}
	missing := &exit.Error{Code: exit.Unavailable, Hint: "bproxy list shows the running proxies",
		Err: fmt.Errorf("no %s listens on port %s (looked in %s)", among.Name, name, store.Path())}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second); err == nil {
			conn.Close()
			missing.Hint = otherState
			missing.Err = fmt.Errorf("something listens on port %s, but it is not listed in %s", port, store.Path())
			break
		}
	}
	return Proxy{}, missing
}

// Preferred leaves out the proxies that belong to another program, such as bmcp, unless there are no others.
func Preferred(all []Proxy) []Proxy {
	own := slices.DeleteFunc(slices.Clone(all), func(p Proxy) bool { return p.Owner != "" })
	if len(own) > 0 {
		return own
	}
	return all
}

// Ports returns the ports of proxies, and whose they are, as a list for people.
func Ports(all []Proxy) string {
	var ports []string
	for _, p := range all {
		port := strconv.Itoa(p.Port)
		if p.Owner != "" {
			port += " (of " + p.Owner + ")"
		}
		ports = append(ports, port)
	}
	return strings.Join(ports, ", ")
}
