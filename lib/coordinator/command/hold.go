package command

import (
	"context"
	"errors"
	"os"
	"time"

	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/lifetime"
	"btools/lib/proc"
	"btools/lib/run"
)

// Hold runs a child for its owner: when the owner is gone it ends the child,
// and in any case what the child leaves behind, wherever that has got to.
func Hold(c *cli.Context) error {
	if c.Command == nil {
		return c.UsageError("hold is bmcp's own: it needs -- CMD")
	}
	path, err := run.Find(c.Command)
	if err != nil {
		return err
	}
	owner, err := flags.ReadOwner(c)
	if err != nil {
		return err
	}
	if err := proc.Subreaper(); err != nil {
		c.Log.Debug("orphans can't be adopted: " + err.Error())
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	owner.Watch(ctx, stop)
	// The arguments and the environment have the browser already.
	child := run.Command{Path: path, Argv: c.Command, Grace: c.Duration("stop-timeout"),
		// Signals must not end this process until the clean-up is complete.
		Signals: lifetime.Catch(),
		Started: func() {
			os.Stdin.Close() // the child's alone: their ends are to be seen
			os.Stdout.Close()
		}}
	err = child.Run(ctx)
	for end := time.Now().Add(5 * time.Second); len(proc.KillDescendants()) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.Join(err, errors.New("what the child has started does not end"))
		}
	}
	return err
}
