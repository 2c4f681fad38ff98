package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	"btools/lib/flags"
	historycommand "btools/lib/history/command"
	"btools/lib/lifetime"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/pool/gateway"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/run"
	runcommand "btools/lib/run/command"
	"btools/lib/settings"
	"btools/lib/spell"
)

// socketOf returns the control socket that --socket or the environment names; "": neither
// does.
func socketOf(c *cli.Context) string { return client.PoolSocket(c.String("socket"), c.Getenv) }

// running returns the service of --socket, or the one that is running.
func running(c *cli.Context) client.Pool {
	return client.Pool{Store: c.State(), Socket: socketOf(c), Log: c.Log}
}

// ask makes one request to the service and returns the answer.
func ask[P, A any](c *cli.Context, method control.Method[P, A], params P) (A, error) {
	return method.Ask(context.Background(), running(c), params)
}

// statusColumns returns the columns of the table of a status. With wide, IDs of leases
// and errors are not shortened.
func statusColumns(wide bool, st api.PoolsStatus) []cli.Column {
	short, base := shortLeaseID, func(browser string) string { // the last element of a path
		return browser[strings.LastIndexByte(browser, filepath.Separator)+1:]
	}
	if wide {
		short, base = nil, nil
	}
	all := []cli.Column{
		{Head: "POOL", Field: "status.pool"}, {Head: "ID", Field: "status.id"},
		{Head: "ALIAS", Field: "status.alias", Spare: 1},
		{Head: "BROWSER", Field: "status.browser", Show: base},
		{Head: "STATE", Field: "status.status", Color: stateColor},
		{Head: "HOLDER", Field: "status.holder"}, {Head: "BY", Field: "status.by", Spare: 6},
		{Head: "HELD", Field: "status.held"},
		{Head: "EXPIRES", Field: "status.lease_expires_at", Show: cli.Clock, Spare: 3},
		{Head: "LEASE", Field: "status.lease", Show: short, Spare: 2},
		{Head: "PID", Field: "status.process_id", Spare: 8}, {Head: "USES", Field: "status.uses", Spare: 9},
		{Head: "RESTARTS", Field: "status.restarts", Spare: 5},
		{Head: "MEMORY", Field: "status.memory_bytes", Show: cli.Size, Spare: 4},
		{Head: "ENDPOINT", Field: "status.http_url", Spare: 7}, {Head: "ERROR", Field: "status.error", Below: true},
	}
	onHost := func(i api.InstanceStatus) bool { return i.Host != "" }
	if slices.ContainsFunc(st.Pools, func(p api.PoolStatus) bool { return slices.ContainsFunc(p.Instances, onHost) }) {
		all = slices.Insert(all, 3, cli.Column{Head: "HOST", Field: "status.host", Spare: 1})
	}
	return all
}

// shortLeaseID returns the end of a lease's ID, which is enough to tell leases
// apart.
func shortLeaseID(lease string) string {
	if len(lease) > 6 {
		return "…" + lease[len(lease)-6:]
	}
	return lease
}

func stateColor(state string) cli.Color {
	switch state {
	case pool.Healthy:
		return cli.Green
	case pool.Failed:
		return cli.Red
	}
	return cli.Yellow
}

// instanceRow is a row of the status table.
type instanceRow struct {
	Pool  string `json:"pool"`
	Held  string `json:"held,omitempty"`  // how long it has been leased, for example 1m30s
	Error string `json:"error,omitempty"` // of the latest health check
	api.InstanceStatus
}

// PoolRecords are the records that Status prints.
var PoolRecords = &cli.Records{Columns: statusColumns(false, api.PoolsStatus{}),
	Members: map[string]any{"pools": nil, "summary": api.PoolsSummary{}}}

// Status prints the state of the pools: on a terminal a row for each instance,
// otherwise the JSON of the specification on one line.
func Status(c *cli.Context) error {
	fetch := func() (api.PoolsStatus, error) { return ask(c, api.Pools, api.Of{Pool: c.Arg()}) }
	if c.Bool("watch") {
		if !c.Out.Table() {
			return c.UsageError("--watch needs a terminal; bpool watch prints events, one a line")
		}
		return watchStatus(c, fetch)
	}
	st, err := fetch()
	if err != nil {
		return err
	}
	if wide := c.Bool("wide"); c.Out.Table() {
		return table(c.Table(c.Stdout, statusColumns(wide, st)), st, wide)
	}
	r := record.Of("pools", st.Pools)
	r.MustSet("summary", st.Summary)
	return c.Out.Print(nil, r)
}

// table prints a row for each instance.
func table(out *cli.Output, st api.PoolsStatus, wide bool) error {
	if wide {
		out.Wide()
	}
	var rows []*record.Record
	for _, p := range st.Pools {
		for _, i := range p.Instances {
			row := instanceRow{Pool: p.Name, InstanceStatus: i}
			row.Holder = pool.HolderOf(i)
			if i.LeaseDuration != nil {
				row.Held = (time.Duration(*i.LeaseDuration) * time.Millisecond).Round(time.Second).String()
			}
			if i.Health.Error != nil {
				row.Error = *i.Health.Error
				if !wide {
					row.Error = pool.FirstSentence(row.Error)
				}
				if i.NextTry != nil {
					row.Error += "; " + pool.NextTry(i.NextTry.Time, time.Now())
				}
			}
			rows = append(rows, record.Of("status", row))
		}
	}
	return out.Print(nil, rows...)
}

// watchStatus prints the status in place, every second.
func watchStatus(c *cli.Context, fetch func() (api.PoolsStatus, error)) error {
	const home, toEndOfLine, toEndOfScreen, cut, wrap = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[?7l", "\x1b[?7h"
	for ; ; time.Sleep(time.Second) {
		st, err := fetch()
		if err != nil {
			return err
		}
		var b bytes.Buffer
		s := st.Summary
		fmt.Fprintf(&b, "%s  %s: %d healthy, %d failed, %d leased, %d available; %d waiting\n\n",
			time.Now().Format(time.TimeOnly), spell.Count(s.Total, "instance"), s.Healthy, s.Failed, s.Leased,
			s.Available, s.Waiting)
		if err := table(c.Table(&b, statusColumns(c.Bool("wide"), st)), st, c.Bool("wide")); err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if height := c.Height(); height > 2 && len(lines) >= height {
			lines = append(lines[:height-2], fmt.Sprintf("and %d more", len(lines)-height+2))
		}
		for i, l := range lines {
			lines[i] = l + toEndOfLine + "\n"
		}
		if _, err := io.WriteString(c.Stdout, home+cut+strings.Join(lines, "")+wrap+toEndOfScreen); err != nil {
			return fmt.Errorf("cannot write the result: %w", err)
		}
	}
}

// holder returns the holder's name for the status: the command, the process
// that the lease is bound to, or the process that runs bpool.
func holder(cmd *runcommand.CMD, owner *proc.Identity) string {
	pid := os.Getppid()
	switch {
	case cmd.Given():
		return fmt.Sprintf("%s (%d)", cmd.Name(), os.Getpid())
	case owner != nil:
		pid = owner.PID
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil { // not on Linux
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid)
}

// The records of leases that are granted, released and renewed.
var (
	Granted = &cli.Records{Columns: []cli.Column{
		{Head: "LEASE", Field: "lease.id"}, {Head: "POOL", Field: "lease.pool"},
		{Head: "INSTANCE", Field: "lease.instance", Spare: 2}, {Head: "ENDPOINT", Field: "instance.http_url"},
		{Head: "EXPIRES", Field: "lease.expires_at", Show: cli.Clock, Spare: 1}}}
	Released = &cli.Records{Columns: []cli.Column{{Head: "RELEASED", Field: "lease.id"}}}
	Renewed  = &cli.Records{Columns: []cli.Column{
		{Head: "LEASE", Field: "lease.id"}, {Head: "EXPIRES", Field: "lease.expires_at", Show: cli.Clock}}}
)

// Lease leases an instance and prints its record, or runs a command with it.
func Lease(c *cli.Context) error {
	cmd, err := runcommand.Read(c, nil)
	if err != nil {
		return err
	}
	p := api.HoldRequest{Of: api.Of{Pool: c.Arg(), Instance: c.String("instance")}, Region: c.String("region"),
		TTL:   c.Duration("ttl").Milliseconds(),
		Bound: cmd.Given() || c.Bool("wait")}
	if p.Settings, err = flags.GivenSettings(c, settings.Lease); err != nil {
		return err
	}
	if c.IsSet("timeout") {
		p.Timeout = new(c.Duration("timeout").Milliseconds())
	}
	if err := flags.CheckDurations(c, "timeout", "ttl"); err != nil {
		return err
	}
	if c.IsSet("ttl") && p.TTL == 0 {
		return c.UsageError("--ttl must be at least 1ms, not %v", c.Duration("ttl"))
	}
	owner := cmd.Owner
	p.Confirm, p.Owner, p.Holder = !p.Bound, owner.PID, holder(cmd, owner.PID)
	if owner.FD != nil && !p.Bound {
		return c.UsageError("--bind-fd needs --wait or a command, so that bpool keeps running and can watch it")
	}
	elsewhere := c.String("nats") != ""
	if elsewhere {
		switch {
		case c.IsSet("socket"):
			return c.UsageError("--nats and --socket exclude each other")
		case !p.Bound:
			return c.UsageError("--nats needs a command or --wait: the lease ends with this process")
		case p.Instance != "":
			return c.UsageError("--nats and --instance exclude each other: hosts have instances of the same numbers")
		}
	}
	ctx, stop, _ := cmd.Begin(lifetime.Owner{FD: owner.FD}, false) // the service watches the process
	defer stop(nil)
	// obtain gets the lease. watch waits until it has ended, and end ends it.
	obtain := func() (r *record.Record, watch func() string, end func(), err error) {
		if elsewhere {
			return leaseElsewhere(ctx, c, elsewhereRequest(p))
		}
		cl, r, err := requestLease(ctx, c, p)
		if err != nil {
			return nil, nil, nil, err
		}
		watching, stopWatching := context.WithCancel(context.Background())
		of := api.Of{Lease: record.Member[record.Lease](r, "lease").ID}
		return r, func() string {
			return watchLease(watching, c, func(after int) (api.Notices, error) {
				return api.Watch.Ask(watching, cl, api.WatchRequest{Of: of, After: int64(after)})
			})
		}, func() { stopWatching(); cl.Close() }, nil
	}
	if cmd.Given() {
		end := func() {}
		defer func() { end() }()
		return cmd.Run(ctx, func() (run.Endpoint, error) {
			r, watch, release, err := obtain()
			if err != nil {
				return run.Endpoint{}, err
			}
			end = release
			i := record.Member[record.Instance](r, "instance")
			if err := cmd.Evidence.Add(ctx, cmd.Name(), i); err != nil {
				return run.Endpoint{}, err
			}
			go func() {
				if why := watch(); why != "" {
					c.Log.Warn(why + ": stopping " + cmd.Name())
					stop(errors.New(why))
				}
			}()
			return run.EndpointOf(i), nil
		})
	}
	if !p.Bound {
		return leaseUntilReleased(ctx, c, cmd, p)
	}
	r, watch, end, err := obtain()
	if err != nil {
		return err
	}
	defer end()
	if err := cmd.Print(r); err != nil {
		return err
	}
	ended := make(chan string, 1)
	go func() { ended <- watch() }()
	select {
	case why := <-ended:
		return exit.Errorf(exit.Unavailable, "%s", why)
	case <-ctx.Done():
		return nil
	}
}

// elsewhereRequest returns a request for a lease on another host.
func elsewhereRequest(p api.HoldRequest) gateway.Request {
	r := gateway.Request{Pool: cmp.Or(p.Pool, config.Default), Region: p.Region, Holder: p.Holder, Timeout: time.Minute}
	if p.Timeout != nil {
		r.Timeout = time.Duration(*p.Timeout) * time.Millisecond
	}
	if name, ok := p.Settings["state"]; ok {
		r.State, _ = json.Marshal(name)
	}
	return r
}

// leaseUntilReleased leases an instance that the user releases, and prints its record.
func leaseUntilReleased(ctx context.Context, c *cli.Context, cmd *runcommand.CMD, p api.HoldRequest) error {
	cl, r, err := requestLease(ctx, c, p)
	if err != nil {
		return err
	}
	defer cl.Close() // which ends a lease that is not confirmed
	// The lease ends with this process until it is confirmed. If the process is
	// killed before the record is printed, no unknown lease remains.
	if err := cmd.Print(r); err != nil {
		return err
	}
	return confirm(cl, record.Member[record.Lease](r, "lease").ID)
}

// requestLease requests a lease and returns its record and the connection that
// holds it until it is confirmed. A service that stops has a successor, such as after an
// update, which may have the lease.
func requestLease(ctx context.Context, c *cli.Context, p api.HoldRequest) (*control.Client, *record.Record, error) {
	began, most := time.Now(), client.StartWait
	left := func() time.Duration { return time.Duration(*p.Timeout)*time.Millisecond - time.Since(began) }
	if p.Timeout != nil {
		most = min(most, left())
	}
	for stopping := error(nil); ; {
		cl, r, err := requestOnce(ctx, c, p, most)
		if errors.Is(err, control.ErrNotBegun) { // it ended before it read
			err = cmp.Or(stopping, errStopping)
		}
		var e *control.Error
		switch {
		case err == nil:
			return cl, r, nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			if i := (*lifetime.Interrupted)(nil); errors.As(err, &i) {
				return nil, nil, &exit.Error{Code: exit.Signalled + int(i.Signal),
					Err: errors.New("interrupted before an instance was leased")}
			}
			return nil, nil, err
		case !errors.As(err, &e) && stopping != nil: // no other has come
			return nil, nil, stopping
		case e == nil || e.Code != control.Stopping:
			return nil, nil, err
		case stopping == nil:
			c.Log.Info("the service is stopping: waiting for the next one")
		}
		stopping = err
		if p.Timeout != nil {
			if most = left(); most <= 0 {
				return nil, nil, err
			}
			began, p.Timeout = time.Now(), new(most.Milliseconds())
		}
		select {
		case <-time.After(stoppingDelay):
		case <-ctx.Done():
		}
	}
}

// errStopping is the error of a service that has ended without an answer.
var errStopping error = control.Errorf(control.Stopping, "the service is stopping")

// stoppingDelay is how often a service that stops is asked whether it is another one by now.
const stoppingDelay = 100 * time.Millisecond

// requestOnce requests a lease of the service that runs, or comes within a time.
func requestOnce(ctx context.Context, c *cli.Context, p api.HoldRequest, most time.Duration) (*control.Client,
	*record.Record, error) {
	cl, err := running(c).Await(ctx, most)
	if err != nil {
		return nil, nil, err
	}
	defer logWaiting(c, p)()
	r, err := api.Hold.Ask(ctx, cl, p)
	if ctx.Err() != nil { // even if the answer arrived just now: the connection is closed
		err = context.Cause(ctx)
	}
	if err != nil {
		cl.Close()
		return nil, nil, err
	}
	return cl, r, nil
}

// confirm makes the lease outlive this process.
func confirm(cl *control.Client, id string) error {
	_, err := api.Renew.Ask(context.Background(), cl, api.RenewRequest{Of: api.Of{Lease: id}, Confirm: true})
	if err == nil || errors.As(err, new(*exit.Error)) {
		return err
	}
	return exit.Errorf(exit.Unavailable, "lease %s was printed, but could not be confirmed: %w", id, err)
}

// noticeDelay is how long programs wait before they say what they wait for.
const noticeDelay = time.Second

// logWaiting says what a request for a lease is waiting for, if that takes a
// while. Call answered when the request has been answered.
func logWaiting(c *cli.Context, p api.HoldRequest) (answered func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(noticeDelay):
		}
		callCtx, cancelCall := context.WithTimeout(ctx, noticeDelay)
		defer cancelCall()
		st, err := api.Pools.Ask(callCtx, running(c), api.Of{Pool: p.Pool})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.Log.Info("waiting for the service to answer")
			return
		}
		for _, ps := range st.Pools {
			if ps.Name != p.Pool && !(p.Pool == "" && (ps.IsDefault || len(st.Pools) == 1)) {
				continue
			}
			what := "pool " + ps.Name
			if p.Instance != "" {
				what = fmt.Sprintf("instance %q of pool %s", p.Instance, ps.Name)
			}
			if busy := pool.WhyNoLease(&ps, p.Instance, time.Now()); busy != "" {
				what += ": " + busy
			}
			if ps.Elsewhere != "" {
				what += "; on other hosts: " + ps.Elsewhere
			}
			c.Log.Info("waiting for " + what)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// watchLease waits until a lease or the context ends, and returns how the lease ended. Meanwhile it logs what happens
// to the browser: what comes next after a number of lines.
func watchLease(ctx context.Context, c *cli.Context, next func(after int) (api.Notices, error)) string {
	for after := 0; ; {
		n, err := next(after)
		if ctx.Err() != nil {
			return ""
		} else if err != nil {
			return "the lease ended with its service"
		}
		for _, line := range n.Lines {
			c.Log.Warn(line)
		}
		if n.Ended != "" {
			return n.Ended
		}
		after = n.Last
	}
}

// Release ends leases. It is not an error if a lease has already ended.
func Release(c *cli.Context) error {
	var err error
	ids := c.Args()
	if c.Bool("all") == (len(ids) > 0) {
		if len(ids) > 0 {
			return c.UsageError("--all and leases exclude each other")
		}
		if ids, err = c.InputIDs("lease", "name the leases to release, or --all"); err != nil {
			return err
		}
	}
	asked := []api.Of{{All: true}}
	if !c.Bool("all") {
		asked = nil
		for _, id := range ids {
			asked = append(asked, api.Of{Lease: id})
		}
	}
	for _, of := range asked {
		ended, err := ask(c, api.Release, of)
		if err != nil {
			return err
		}
		if len(ended) == 0 && !of.All {
			c.Log.Info("there is no lease " + of.Lease + "; it may have ended")
		}
		if err := c.Out.Write(ended...); err != nil {
			return err
		}
	}
	return c.Out.Close()
}

// Renew extends a lease and prints its record.
func Renew(c *cli.Context) error {
	id := c.Arg()
	if id == "" {
		return c.UsageError("name the lease to renew")
	}
	if err := flags.CheckDurations(c, "ttl"); err != nil {
		return err
	}
	r, err := ask(c, api.Renew, api.RenewRequest{Of: api.Of{Lease: id}, TTL: c.Duration("ttl").Milliseconds()})
	return c.Out.Print(err, r)
}

// Restart replaces the browsers of a pool, or of one instance: POOL[/ID].
func Restart(c *cli.Context) error {
	target := c.Arg()
	if target == "" {
		return c.UsageError("name the pool or the instance: POOL or POOL/ID")
	}
	name, instance, _ := strings.Cut(target, "/")
	n, err := ask(c, api.RestartInstances, api.Of{Pool: name, Instance: instance})
	if err != nil {
		return err
	}
	c.Log.Info(fmt.Sprintf("restarting %s (%s)", target, spell.Count(n.Instances, "instance")))
	return nil
}

// Scale changes the number of instances of a pool.
func Scale(c *cli.Context) error {
	args := c.Args()
	if len(args) != 2 {
		return c.UsageError("name the pool and the number: bpool scale POOL N")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return c.UsageError("%q is not a number of instances", args[1])
	}
	if _, err := ask(c, api.Scale, api.ScaleRequest{Of: api.Of{Pool: args[0]}, Instances: n}); err != nil {
		return err
	}
	c.Log.Info(fmt.Sprintf("pool %s has %s until the configuration is reloaded", args[0], spell.Count(n, "instance")))
	return nil
}

// Events are the records that Watch prints.
var Events = &cli.Records{Columns: []cli.Column{
	{Head: "TIME", Field: "event.time", Show: cli.Clock}, {Head: "EVENT", Field: "event.event"},
	{Head: "POOL", Field: "event.pool"}, {Head: "INSTANCE", Field: "event.instance"},
	{Head: "LEASE", Field: "event.lease", Show: shortLeaseID},
	{Head: "WHY", Field: "event.why", Below: true, Show: pool.FirstSentence},
}, Members: map[string]any{"event": pool.Event{}}}

// Watch prints events as they happen.
func Watch(c *cli.Context) error {
	ctx := context.Background()
	cl, err := running(c).Dial(ctx)
	if err != nil {
		return err
	}
	for after := int64(-1); ; after = 0 {
		err := historycommand.Print(ctx, cl, c.Out, "service", after, func(e pool.Event) int64 { return e.Number })
		cl.Close()
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.Stopping {
			return err
		}
		if cl, err = running(c).Await(ctx, client.StartWait); err != nil { // the successor's events
			return err
		}
	}
}
