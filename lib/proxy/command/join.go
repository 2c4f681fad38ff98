package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/extension/hub"
	"btools/lib/flags"
	"btools/lib/fleet"
	"btools/lib/lifetime"
	"btools/lib/proxy"
	"btools/lib/record"
	runcommand "btools/lib/run/command"
)

// claim answers hold: it waits for a browser that nobody else has claimed, and describes it. The claim
// ends with the connection, whose end cancels the context.
func (h *extensionHub) claim(ctx context.Context, p api.HoldRequest) (*record.Record, error) {
	if p.Launch != "" {
		l, err := h.server.Join.Await(ctx, func(i hub.Info) bool { return i.Launch == p.Launch })
		if err != nil {
			return nil, err
		}
		if j := h.server.Find(l.Instance.ID); j != nil {
			return h.describe(j), nil
		}
		return nil, errHasLeft
	}
	if p.As != "" {
		if err := fleet.CheckName(p.As); err != nil {
			return nil, err
		}
	}
	for {
		hold := h.server.Hold
		if p.Now {
			hold = h.server.TryHold
		}
		j, err := hold(ctx, proxy.Holder{As: p.As, By: p.By}, p.Instance)
		if err == nil && j == nil {
			err = h.unclaimable(p.Instance)
		}
		if err != nil {
			return nil, err
		}
		r := h.describe(j)
		if p.As != "" {
			r.MustSet("instance", h.instance(j.Instance.ID, p.As, j.Info().ConnectedAt))
		}
		if !p.Own {
			return r, nil
		}
		if err = giveSession(ctx, j, r); err == nil {
			return r, nil
		}
		select {
		case <-j.Done(): // the next one may stay
		default:
			return nil, err
		}
	}
}

var errHasLeft = errors.New("the browser has left")

// unclaimable returns why a browser can't be claimed now.
func (h *extensionHub) unclaimable(name string) error {
	if h.server.Find(name) != nil {
		return control.Errorf(control.Unavailable, "the browser %q is in use by another program", name)
	}
	return h.unknown(name)
}

// unknown says that no browser has a name, and which there are.
func (h *extensionHub) unknown(name string) error {
	var ids []string
	for _, j := range h.server.List() {
		ids = append(ids, j.Instance.ID)
	}
	if len(ids) == 0 {
		return control.Errorf(control.InstanceNotFound, "there is no browser %.64q: none has joined", name)
	}
	return control.Errorf(control.InstanceNotFound, "there is no browser %.64q: those that have joined are %s", name,
		strings.Join(ids, ", "))
}

// giveSession gives the holder of a browser, which r describes, a session of its own. It ends with the context.
func giveSession(ctx context.Context, j *proxy.Joined, r *record.Record) error {
	name := "held-" + strings.ToLower(rand.Text()[:12])
	release, err := j.Sessions.Reserve(name)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, release)
	i := record.Member[record.Instance](r, "instance")
	i.HTTPURL += "/session/" + name
	i.WSURL = browserAt(i.HTTPURL)
	r.MustSet("instance", i)
	return nil
}

// Join claims a browser that has joined a hub, prints its record, and runs until
// the browser leaves.
func Join(c *cli.Context) error {
	cmd, err := runcommand.Read(c, nil)
	if err != nil {
		return err
	}
	if err := flags.CheckDurations(c, "timeout"); err != nil {
		return err
	}
	p, err := pick(c, client.Hubs)
	if err != nil {
		return err
	}
	ctx, stop, _ := cmd.Begin(cmd.Owner, true)
	defer stop(nil)
	conn, err := p.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // which ends the claim
	r, err := awaitClaim(ctx, c, conn)
	if err == nil {
		if err = cmd.Print(r); err != nil {
			return err
		}
		err = awaitLeft(ctx, conn, r)
	}
	if why := context.Cause(ctx); errors.Is(why, lifetime.Stopped) || errors.Is(why, lifetime.OwnerGone) {
		return nil
	}
	return err
}

// errNoBrowser means that no browser has joined in time.
var errNoBrowser = &exit.Error{Code: exit.TryAgain,
	Err:  errors.New("no free browser has joined in time"),
	Hint: "open the browser that has the extension, and look at the extension's button"}

// awaitClaim claims a browser, and waits for one as long as --timeout says.
func awaitClaim(ctx context.Context, c *cli.Context, conn *control.Client) (*record.Record, error) {
	ctx, done := patient(ctx, c, errNoBrowser)
	defer done()
	r, err := api.Hold.Ask(ctx, conn, api.HoldRequest{Of: api.Of{Instance: c.Arg()}, Own: c.Bool("session")})
	return r, hubError(err)
}

// awaitLeft waits until the browser has left, and returns why.
func awaitLeft(ctx context.Context, conn *control.Client, r *record.Record) error {
	of := api.Of{Instance: record.Member[record.Instance](r, "instance").ID}
	left, err := api.Watch.Ask(ctx, conn, api.WatchRequest{Of: of})
	if err != nil {
		return hubError(err)
	}
	return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("the browser has left: %s", left.Ended)}
}

// hubError returns the error of a request to a hub with its exit code.
func hubError(err error) error {
	if err == nil || errors.As(err, new(*exit.Error)) {
		return err
	}
	return exit.Errorf(exit.Unavailable, "the hub has ended: %w", err)
}
