package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/extension/keep"
	"btools/lib/flags"
	"btools/lib/owned"
	"btools/lib/sibling"
)

// hubLinger is how long an own hub runs while no instance needs it: between two
// leases, none may.
const hubLinger = 10 * time.Second

// forever is the time that a browser may take to join.
const forever = 100 * 365 * 24 * time.Hour

// newHubs returns the keeper of the hub for instances whose browsers join.
func newHubs(c *cli.Context) *keep.Keeper {
	return &keep.Keeper{Store: c.State(), Stderr: c.Messages, Linger: hubLinger, Args: flags.Quieter(c)}
}

// joined waits for a browser that joins, and holds it with "bproxy join".
func joined(ctx context.Context, c *cli.Context, hubs *keep.Keeper, messages io.Writer,
	now <-chan struct{}) (*sibling.Browser, error) {
	h, release, err := hubs.Use(ctx)
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no browser can join: %w", err)}
	}
	path, err := sibling.Sibling("bproxy")
	if err != nil {
		release()
		return nil, err
	}
	argv := slices.Concat([]string{path, "join", "--session", "--output=json", fmt.Sprintf("--port=%d", h.Port)},
		flags.Quieter(c), owned.BindArgs())
	b, err := sibling.Launch(ctx, sibling.Spec{Argv: argv, Timeout: forever, Grace: c.Duration("stop-timeout"),
		Stderr: messages, Now: now, Once: true})
	if err != nil {
		release()
		return nil, err
	}
	go func() {
		<-b.Ended()
		release()
	}()
	return b, nil
}
