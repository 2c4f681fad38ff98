package command

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"btools/lib/cli"
	"btools/lib/coordinator"
	"btools/lib/exit"
	"btools/lib/extension/keep"
	statecommand "btools/lib/states/command"
)

// checkExtension refuses what contradicts a browser that joins.
func checkExtension(c *cli.Context, ch choice) error {
	switch {
	case ch.service:
		return c.UsageError("--extension and --pool exclude each other: LAUNCH=extension makes a pool of browsers that " +
			"join")
	case c.IsSet("pool-config") || c.IsSet("env-file"):
		return c.UsageError("--extension and pools exclude each other: LAUNCH=extension makes a pool of browsers that join")
	case ch.configured:
		return c.UsageError("--extension has no effect: pools are configured, and LAUNCH=extension makes one of browsers " +
			"that join")
	case c.IsSet("state"):
		return c.UsageError("--state has no effect with --extension: the browser has the logins of its user")
	}
	return without(c, "a browser that joins by its extension is its user's, and runs already", "session-idle")
}

// ofHub is the browser that joins.
func ofHub(c *cli.Context) (coordinator.Browsers, error) {
	how, err := sessionsOf(c)
	if err != nil {
		return nil, err
	}
	store, err := statecommand.Store(c)
	if err != nil {
		return nil, exit.Errorf(exit.Config, "there is no place for the pairing code: set HOME")
	}
	level := c.String("log-level")
	if level == "info" {
		level = "warn"
	}
	hubs := &keep.Keeper{Store: c.State(), Stderr: c.Messages, Linger: time.Minute, Args: []string{
		"--log-level=" + level, "--log-format=" + c.String("log-format"), "--session-idle=" + how.Idle.String()}}
	code := filepath.Join(filepath.Dir(store.Dir), "pairing-code")
	return coordinator.OfHub(coordinator.Joined{Hubs: hubs, As: fmt.Sprintf("bmcp-%d", os.Getpid()),
		Advice: fmt.Sprintf("Ask the user to open the browser that has the btools extension, and to look at the "+
			"extension's button. If no browser has it yet: \"bproxy extension DIR\" writes it to a directory, which is "+
			"loaded unpacked at chrome://extensions; a click on its button asks for the pairing code, which is in %s",
			code)}, how.Idle), nil
}
