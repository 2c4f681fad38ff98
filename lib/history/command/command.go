// Package command prints events as they happen, for bproxy and bpool.
package command

import (
	"context"
	"errors"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/record"
)

// Print prints the events of a program after one until it ends; -1: new ones. number returns the
// number of an event; program names the program.
func Print[E any](ctx context.Context, cl *control.Client, out *cli.Output, program string, after int64,
	number func(E) int64) error {
	for {
		got, err := api.Events[E]().Ask(ctx, cl, api.WatchRequest{After: after})
		if err != nil {
			if !errors.As(err, new(*control.Error)) {
				return exit.Errorf(exit.Unavailable, "the %s has ended", program)
			}
			return err
		}
		var rs []*record.Record
		for _, e := range got.Events {
			after = number(e)
			rs = append(rs, record.Of("event", e))
		}
		if err := out.Print(nil, rs...); err != nil { // a table waits for no more rows
			return err
		}
	}
}
