package command

import (
	"fmt"
	"os"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/agent/source"
	"btools/lib/cli"
	"btools/lib/extension/keep"
	"btools/lib/flags"
)

const joinedPools = "LAUNCH=extension makes a pool of browsers that join"

// checkExtension refuses what contradicts a browser that joins.
func checkExtension(c *cli.Context, ch choice) error {
	switch {
	case ch.service:
		return c.UsageError("--extension and --pool exclude each other: %s", joinedPools)
	case ch.configured || c.IsSet("pool-config") || c.IsSet("env-file"):
		return c.UsageError("--extension and pools exclude each other: %s", joinedPools)
	case c.IsSet("state"):
		return c.UsageError("--state has no effect with --extension: the browser has the logins of its user")
	}
	return without(c, "a browser that joins by its extension is its user's, and runs already", "session-idle")
}

// ofHub is the browser that joins.
func ofHub(c *cli.Context) (*source.Source, error) {
	how, err := sharing(c)
	if err != nil {
		return nil, err
	}
	hubs := &keep.Keeper{Store: c.State(), Stderr: c.Messages, Linger: time.Minute,
		Args: append(flags.Quieter(c), "--session-idle="+how.SessionIdle.String())}
	launched := &instances.Set{Hubs: hubs, Detect: detect, Dir: project(c), Home: c.Home(), Getenv: c.Getenv,
		Stderr: c.Messages}
	return source.OfHub(source.Joined{Hubs: hubs, As: fmt.Sprintf("bmcp-%d", os.Getpid()), Launched: launched},
		how.SessionIdle), nil
}
