// Package command are the flags of the programs that wait for an application.
package command

import (
	"context"
	"errors"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/lifetime"
	"btools/lib/waitfor"
)

// Flags are the flags that name the applications for which CMD waits.
func Flags(category string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringSliceFlag{Name: "wait-for", Category: category,
			Usage: "before CMD, wait until `URL|HOST:PORT` is answered or accepts a connection (repeatable)"},
		&ucli.DurationFlag{Name: "wait-timeout", Category: category, Value: time.Minute,
			Usage: "give up after `DURATION` of --wait-for"},
	}
}

// Read reads the flags of Flags.
func Read(c *cli.Context) ([]waitfor.Target, error) {
	for _, f := range []string{"wait-for", "wait-timeout"} {
		if c.IsSet(f) && c.Command == nil {
			err := c.UsageError("--%s needs a command: -- CMD", f).(*exit.Error)
			err.Hint = "bport --wait URL|HOST:PORT waits without one"
			return nil, err
		}
	}
	return ReadTargets(c, "wait-for")
}

// ReadTargets reads the flag that names targets, and checks --wait-timeout.
func ReadTargets(c *cli.Context, flag string) (targets []waitfor.Target, err error) {
	for _, text := range c.StringSlice(flag) {
		t, err := waitfor.Parse(text)
		if err != nil {
			return nil, c.UsageError("--%s: %v", flag, err)
		}
		targets = append(targets, t)
	}
	switch {
	case c.IsSet("wait-timeout") && targets == nil:
		return nil, c.UsageError("--wait-timeout needs --%s", flag)
	case targets != nil && c.Duration("wait-timeout") <= 0:
		return nil, c.UsageError("--wait-timeout is a positive duration such as 60s, not %v",
			c.Duration("wait-timeout"))
	}
	return targets, nil
}

// Wait waits for targets, until a signal comes or the context ends.
func Wait(ctx context.Context, c *cli.Context, targets []waitfor.Target) error {
	if targets == nil {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	signals := lifetime.Listen(stop)
	err := waitfor.All(ctx, targets, c.Duration("wait-timeout"), func(text string) { c.Log.Info(text) })
	signals.Pause() // the next ones are for CMD
	if err == nil {
		err = context.Cause(ctx)
	}
	if i := (*lifetime.Interrupted)(nil); errors.As(err, &i) {
		return exit.Errorf(exit.Signalled+int(i.Signal), "interrupted while waiting for the application")
	}
	return err
}
