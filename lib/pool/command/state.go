package command

import (
	"context"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
	statecommand "btools/lib/logins/command"
	"btools/lib/state"
)

// States lists, saves or changes the states with which leases start.
func States(c *cli.Context) error {
	return statecommand.Run(c, func(ctx context.Context, save bool) (*control.Client, error) {
		if !save && socketOf(c) == "" { // none is started for its states
			f, err := c.State().Read()
			if err != nil {
				return nil, state.Explain(err)
			}
			if shared, _ := client.RunningPools(ctx, f); len(shared) != 1 {
				return nil, nil
			}
		}
		return running(c).Dial(ctx)
	}, func(lease string) api.Of { return api.Of{Lease: lease} })
}

// saveState saves the state of a lease.
func (h *handler) saveState(ctx context.Context, r api.StateRequest) (any, error) {
	return h.states.Save(ctx, r, func() (*logins.State, []string, error) {
		return h.of(r.Lease).LeaseState(ctx, r.Lease)
	})
}
