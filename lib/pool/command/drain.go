package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/pool"
	"btools/lib/pool/bus"
	"btools/lib/spell"
)

// Drain makes pools stop granting leases, or resumes. With --move the leases move to other hosts, those that are in use
// after --timeout. With --wait it returns when the leases have ended, or an error after --timeout.
func Drain(c *cli.Context) error {
	name := c.Arg()
	switch {
	case c.Bool("wait") && c.Bool("off"):
		return c.UsageError("--wait and --off exclude each other")
	case c.Bool("move") && c.Bool("off"):
		return c.UsageError("--move and --off exclude each other")
	case c.IsSet("timeout") && !c.Bool("wait") && !c.Bool("move"):
		return c.UsageError("--timeout is for --wait and --move")
	case c.IsSet("host") && c.String("socket") != "":
		return c.UsageError("--host and --socket exclude each other")
	}
	if err := flags.CheckDurations(c, "timeout"); err != nil {
		return err
	}
	over := time.Now().Add(c.Duration("timeout"))
	r := api.DrainRequest{Of: api.Of{Pool: name}, Off: c.Bool("off"), Move: c.Bool("move")}
	if r.Move {
		r.Within = c.Duration("timeout").Milliseconds()
	}
	if c.IsSet("host") {
		return drainHost(c, r, over)
	}
	n, err := ask(c, api.Drain, r)
	if err != nil {
		return err
	}
	tellDrain(c, r, "bpool drain --off", fmt.Sprintf("%s (%s)", poolsOf(r), spell.Count(n.Instances, "instance")))
	return awaitDrain(c, r, over, func() (left string, err error) {
		st, err := ask(c, api.Pools, api.Of{Pool: name})
		switch {
		case err != nil || ownLeases(&st) == 0:
			return "", err
		case r.Move:
			return pool.Stays(&st), nil
		}
		return pool.Holders(&st, time.Now()), nil
	})
}

// poolsOf names the pools of a drain request.
func poolsOf(r api.DrainRequest) string {
	if r.Pool == "" {
		return "all pools"
	}
	return "pool " + r.Pool
}

// tellDrain says what a drain request does, and how it ends.
func tellDrain(c *cli.Context, r api.DrainRequest, off, what string) {
	switch {
	case r.Off:
		c.Log.Info(what + ": leases are granted again")
	case r.Move:
		c.Log.Info(what + ": no more leases are granted until " + off + ", and leases move to other hosts")
	default:
		c.Log.Info(what + ": no more leases are granted until " + off)
	}
}

// awaitDrain waits with --wait until nothing is left, or until --timeout is over. Leases that are in use begin to move
// only then, for which it waits a while longer.
func awaitDrain(c *cli.Context, r api.DrainRequest, over time.Time, look func() (left string, err error)) error {
	if r.Move {
		over = over.Add(moveGrace)
	}
	for told := ""; c.Bool("wait"); time.Sleep(drainInterval) {
		left, err := look()
		if err != nil || left == "" {
			return err
		}
		if c.IsSet("timeout") && time.Now().After(over) {
			return exit.Errorf(exit.TryAgain, "not drained within %v, for %s", c.Duration("timeout"), left)
		}
		if told == "" {
			c.Log.Info("waiting for " + left)
			told = left
		}
	}
	return nil
}

// moveGrace is how long leases may take to move that were in use until the timeout.
const moveGrace = 30 * time.Second

// drainInterval is how often it is looked whether leases have ended.
const drainInterval = 200 * time.Millisecond

// drainHost is Drain for a host that NATS finds. The host asks no token: it ends no lease.
func drainHost(c *cli.Context, r api.DrainRequest, over time.Time) error {
	n, all, err := findHosts(c)
	if err != nil {
		return err
	}
	defer n.Close()
	host, err := hostNamed(all, c.String("host"))
	if err == nil && r.Move {
		err = checkMove(all, host, r.Pool)
	}
	if err != nil {
		return err
	}
	request := func(d bus.Drain) (got bus.Drained, err error) {
		subject := bus.HostSubject(host.Region, host.Host, "drain", bus.Token(n.hosts.Name), newBoot())
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		err = n.Request(ctx, subject, d, &got)
		if err == nil && got.Error != "" {
			return got, exit.Errorf(exit.Unavailable, "the host %s: %s", host.Host, got.Error)
		}
		if err != nil {
			return got, exit.Errorf(exit.Unavailable, "cannot drain the host %s: %w", host.Host, err)
		}
		return got, nil
	}
	_, err = request(bus.Drain{Pool: r.Pool, Off: r.Off, Move: r.Move, Within: r.Within})
	if err != nil {
		return err
	}
	tellDrain(c, r, "bpool drain --off --host "+c.String("host"), fmt.Sprintf("%s of %s", poolsOf(r), host.Host))
	return awaitDrain(c, r, over, func() (left string, err error) {
		got, err := request(bus.Drain{Pool: r.Pool, Move: r.Move, Look: true})
		if errors.Is(err, bus.ErrDown) || errors.Is(err, bus.ErrLate) {
			return "leases of " + host.Host + " (it has not answered)", nil // NATS may come back
		}
		return got.Left, err
	})
}

// drainTime is how long a host may take to answer a drain request.
const drainTime = 2 * time.Second

// hostNamed returns the host with a name, or with REGION/NAME.
func hostNamed(all []bus.Load, name string) (host bus.Load, err error) {
	var found []bus.Load
	var names []string
	for _, l := range all {
		if l.Host == name || l.Region+"/"+l.Host == name {
			found = append(found, l)
		}
		names = append(names, l.Region+"/"+l.Host)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return host, exit.Errorf(exit.Usage, "several hosts are called %s: name the region, as in %s/%s", name,
			found[0].Region, name)
	case len(all) == 0:
		return host, exit.Errorf(exit.Unavailable, "there is no host %q: none answers", name)
	}
	return host, exit.Errorf(exit.Unavailable, "there is no host %q: there are %s", name, strings.Join(names, ", "))
}

// checkMove returns an error if no other host can take the leases of a host's pool, or with "" of any.
func checkMove(all []bus.Load, of bus.Load, name string) error {
	var pools []string
	for _, p := range of.Pools {
		if name == "" || p.Name == name {
			pools = append(pools, p.Name)
		}
	}
	for _, l := range all {
		if l.Draining || l.Region == of.Region && l.Host == of.Host {
			continue
		}
		if slices.ContainsFunc(l.Pools, func(p bus.PoolLoad) bool { return slices.Contains(pools, p.Name) }) {
			return nil
		}
	}
	return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("no other host grants leases of %s, which %s has",
		strings.Join(pools, ", "), of.Host), Hint: "without --move the host is drained, and its leases go on there"}
}

// drainBy answers the drain request of another machine.
func (h *handler) drainBy(d bus.Drain) (got bus.Drained) {
	ctx := control.WithPeer(context.Background(), &control.Peer{UID: os.Geteuid(), PID: os.Getpid()})
	var err error
	if !d.Look {
		_, err = h.drain(ctx, api.DrainRequest{Of: api.Of{Pool: d.Pool}, Off: d.Off, Move: d.Move, Within: d.Within})
	}
	var st *api.PoolsStatus
	if err == nil {
		st, err = h.status(ctx, d.Pool)
	}
	if err != nil {
		return bus.Drained{Error: err.Error()}
	}
	got.Leases = ownLeases(st)
	switch got.OK = true; {
	case got.Leases == 0:
	case d.Move:
		got.Left = pool.Stays(st)
	default:
		got.Left = pool.Holders(st, time.Now())
	}
	return got
}

// ownLeases takes out what is not leased and the leases on other hosts, which no drain ends, and returns the number of
// the others.
func ownLeases(st *api.PoolsStatus) (n int) {
	others := func(i api.InstanceStatus) bool { return i.Host != "" || !i.Leased }
	for k := range st.Pools {
		p := &st.Pools[k]
		p.Instances = slices.DeleteFunc(p.Instances, others)
		n += len(p.Instances)
	}
	return n
}
