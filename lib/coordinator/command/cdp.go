package command

import (
	"btools/lib/agent/source"
	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/settings"
)

// checkCDP refuses what contradicts a browser that runs.
func checkCDP(c *cli.Context, ch choice) error {
	if !c.IsSet("cdp") {
		return c.UsageError("--isolated is for --cdp")
	}
	at, err := endpoint(c)
	switch {
	case err != nil:
		return c.UsageError("--cdp: %v", err)
	case c.Bool("extension"):
		return c.UsageError("--cdp and --extension exclude each other")
	case c.Bool("isolated") && c.Bool("shared"):
		return c.UsageError("--isolated and --shared exclude each other")
	case ch.service || ch.configured || c.IsSet("pool-config") || c.IsSet("env-file"):
		return c.UsageError("--cdp and pools exclude each other")
	case c.Bool("isolated") && at.Session:
		return c.UsageError("--isolated needs the endpoint of a Chromium: %s has one context", at.URL)
	case c.IsSet("state") && !c.Bool("isolated"):
		return c.UsageError("--state needs --isolated with --cdp: the browser has the logins of its user")
	}
	for _, name := range ofPages {
		if c.IsSet(name) && !c.Bool("isolated") && !at.Session {
			return c.UsageError("--%s needs --isolated with --cdp: the tabs are those of its user", name)
		}
	}
	for _, name := range append(settings.Flags(settings.Launches), "idle") {
		if c.Given(name) {
			return c.UsageError("--%s has no effect: the browser of --cdp runs already", name)
		}
	}
	for _, name := range virtualFlags() {
		if at.Session && c.IsSet(name) {
			return c.UsageError("--%s has no effect: %s is a session, which is as its owner has begun it", name, at.URL)
		}
	}
	return nil
}

// ofPages are the settings of a session that change what its pages are or reach.
var ofPages = []string{"allow-origins", "block-origins", "block-private", "device", "user-agent", "geolocation",
	"timezone", "locale", "header", "offline", "grant", "init-script"}

// endpoint is that of --cdp.
func endpoint(c *cli.Context) (source.Endpoint, error) {
	at, err := source.ParseEndpoint(c.String("cdp"))
	return at.In(c.State()), err
}

// atEndpoint is the browser that runs.
func atEndpoint(c *cli.Context, adjust func(*source.Sharing)) (*source.Source, error) {
	at, err := endpoint(c)
	if err != nil {
		return nil, err
	}
	how, err := sharing(c)
	if err != nil {
		return nil, err
	}
	adjust(&how)
	how.Idle = 0 // it is not ours to stop
	return source.Attached(c.State(), c.Messages, flags.Quieter(c), how, at), nil
}
