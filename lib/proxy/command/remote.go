package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/state"
)

// statusTimeout is how long a proxy may take to report its status. It bounds
// the time of other methods itself: launches and stops have time limits.
const statusTimeout = 5 * time.Second

// proxies returns the running proxies.
func proxies(c *cli.Context) ([]state.Proxy, error) {
	f, err := c.State().Read()
	if err != nil {
		return nil, state.Explain(err)
	}
	var alive []state.Proxy
	for _, p := range f.Proxies {
		if p.Process.Alive() {
			alive = append(alive, p)
		}
	}
	return alive, nil
}

// List prints the status of every proxy.
func List(c *cli.Context) error {
	out, err := c.Output(columns, schema(), nil)
	if err != nil {
		return err
	}
	ps, err := proxies(c)
	if err != nil {
		return err
	}
	for _, p := range ps {
		r, err := ask(p, api.Status, api.Of{}, statusTimeout)
		if err != nil {
			c.Log.Warn(err.Error())
			r = p.Record
		}
		all := []*record.Record{r}
		if isHub(p) {
			all = append(all, instancesOf(p)...)
		}
		if err := write(out, nil, all...); err != nil {
			return err
		}
	}
	return out.Close()
}

// Status, Stop and Restart send one proxy a request and print its status; Launch sends the options of the flags.
var (
	Status  = requests(api.Status, none)
	Stop    = requests(api.Stop, none)
	Restart = requests(api.Restart, none)
	Launch  = requests(api.Launch, func(c *cli.Context) (options.Options, error) {
		o, err := flags.ReadBrowser(c)
		if !c.Given("browser") {
			o.Browser = "" // the variable applies to programs that start a proxy
		}
		return o, err
	})
)

func none(*cli.Context) (of api.Of, err error) { return of, err }

// requests returns a command that sends one proxy a request and prints its status.
func requests[P any](method control.Method[P, *record.Record], read func(*cli.Context) (P, error),
) func(*cli.Context) error {
	return func(c *cli.Context) error {
		out, err := c.Output(columns, schema(), nil)
		if err != nil {
			return err
		}
		params, err := read(c)
		if err != nil {
			return err
		}
		if r, err := onInstance(c, control.Method[api.Of, *record.Record](method)); r != nil || err != nil {
			if err == nil {
				err = errors.Join(out.Write(r), out.Close())
			}
			return err
		}
		p, err := pickByArgument(c)
		if err != nil {
			return err
		}
		r, err := ask(p, api.Status, api.Of{}, statusTimeout)
		if err == nil && string(method) != string(api.Status) {
			r, err = ask(p, method, params, 0)
		}
		if err != nil {
			return err
		}
		return errors.Join(out.Write(r), out.Close())
	}
}

// ask sends a proxy a request and returns the answer.
func ask[P, A any](p state.Proxy, method control.Method[P, A], params P, timeout time.Duration) (a A, err error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout,
			fmt.Errorf("the proxy with pid %d did not answer within %v: is it suspended?", p.Process.PID, timeout))
		defer cancel()
	}
	a, err = method.Ask(ctx, control.Path(p.Control), params)
	var e *control.Error
	if errors.As(err, &e) {
		return a, e.Exit()
	}
	return a, unreachable(p, err)
}

// unreachable gives the error of a connection to a proxy, if there is one, its exit
// code.
func unreachable(p state.Proxy, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &exit.Error{Code: exit.Unavailable,
			Err: fmt.Errorf("the proxy with pid %d has no control socket: %w", p.Process.PID, err)}
	case err != nil:
		return &exit.Error{Code: exit.TryAgain, Err: err}
	}
	return nil
}

// pickByArgument returns the proxy whose port is the argument, or the only one.
func pickByArgument(c *cli.Context) (state.Proxy, error) {
	args := c.Args()
	if len(args) > 1 {
		return state.Proxy{}, c.UsageError("expected one port, not %d", len(args))
	}
	ps, err := proxies(c)
	if err != nil {
		return state.Proxy{}, err
	}
	return pick(c, ps, args)
}

// pick returns the proxy whose port is the argument, or the only one.
func pick(c *cli.Context, ps []state.Proxy, args []string) (state.Proxy, error) {
	ports := portsOf(ps)
	if len(args) == 1 {
		if i := slices.Index(ports, args[0]); i >= 0 {
			return ps[i], nil
		}
	}
	if len(args) == 1 {
		if _, err := strconv.ParseUint(args[0], 10, 16); err != nil {
			return state.Proxy{}, c.UsageError("%q is not a port", args[0])
		}
		return state.Proxy{}, errNotListed(c, args[0])
	}
	ps = preferred(ps)
	switch len(ps) {
	case 0:
		return state.Proxy{}, &exit.Error{Code: exit.Unavailable,
			Err: fmt.Errorf("no bproxy is running (looked in %s)", c.State().Path()), Hint: otherStateHint}
	case 1:
		return ps[0], nil
	}
	return state.Proxy{}, c.UsageError("several proxies are running; name one of these ports: %s", described(ps))
}

func portsOf(ps []state.Proxy) (ports []string) {
	for _, p := range ps {
		ports = append(ports, strconv.Itoa(member(p).Port))
	}
	return ports
}

func member(p state.Proxy) (m record.Proxy) {
	p.Record.Get("proxy", &m)
	return m
}

// preferred leaves out the proxies that belong to another program, such as bmcp,
// unless there are no others.
func preferred(ps []state.Proxy) []state.Proxy {
	isOwned := func(p state.Proxy) bool { return member(p).Owner != "" }
	if own := slices.DeleteFunc(slices.Clone(ps), isOwned); len(own) > 0 {
		return own
	}
	return ps
}

// described returns the ports of proxies, and whose they are.
func described(ps []state.Proxy) string {
	ports := portsOf(ps)
	for i, p := range ps {
		if owner := member(p).Owner; owner != "" {
			ports[i] += " (of " + owner + ")"
		}
	}
	return strings.Join(ports, ", ")
}

// otherStateHint is the hint for a running proxy that is not listed.
const otherStateHint = "a bproxy started with another BTOOLS_STATE, XDG_RUNTIME_DIR or TMPDIR, " +
	"or by another user, is listed in another file"

// errNotListed returns the error that no proxy with this port is listed.
func errNotListed(c *cli.Context, port string) error {
	path := c.State().Path()
	e := &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no bproxy listens on port %s (looked in %s)", port, path),
		Hint: "bproxy list shows the running proxies"}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), dialTimeout); err == nil {
			conn.Close()
			e.Err, e.Hint = fmt.Errorf("something listens on port %s, but it is not listed in %s", port, path),
				otherStateHint
			break
		}
	}
	return e
}

// dialTimeout is how long a connection to a port of this machine may take.
const dialTimeout = time.Second
