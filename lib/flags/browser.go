// Package flags are the flags that several programs have: who owns a program,
// which browser it launches, and where it listens.
package flags

import (
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/settings"
)

// Browser returns the flags that say what browser to launch, as those of a program at a
// place.
func Browser(at settings.Where, category string) (all []ucli.Flag) {
	for _, r := range settings.Rows(settings.Launches) {
		all = append(all, flagOf(r, at, category, ""))
	}
	return all
}

// Hidden returns flags that help texts don't show.
func Hidden(flags ...ucli.Flag) []ucli.Flag {
	for _, f := range flags {
		switch f := f.(type) {
		case *ucli.BoolFlag:
			f.Hidden = true
		case *ucli.IntFlag:
			f.Hidden = true
		case *ucli.StringFlag:
			f.Hidden = true
		case *ucli.StringSliceFlag:
			f.Hidden = true
		case *ucli.DurationFlag:
			f.Hidden = true
		}
	}
	return flags
}

// ReadBrowser reads the flags of Browser. What makes no sense is a usage error.
func ReadBrowser(c *cli.Context) (options.Options, error) {
	o := options.Options{Browser: record.Canonical(c.String("browser")), Args: c.StringSlice("arg"),
		WindowSize: c.String("window-size"), Env: c.StringSlice("env"), Sandbox: c.String("sandbox")}
	if c.Bool("headless") && c.Bool("no-headless") {
		return o, c.UsageError("--headless and --no-headless exclude each other")
	}
	if c.IsSet("headless") || c.IsSet("no-headless") {
		headless := c.Bool("headless") || !c.Bool("no-headless")
		o.Headless = &headless
	}
	if c.IsSet("no-default-args") {
		no := c.Bool("no-default-args")
		o.NoDefaultArgs = &no
	}
	// Paths are of this directory, whoever launches.
	for _, p := range []struct {
		name string
		to   *string
	}{{"profile", &o.Profile}, {"browser", &o.Browser}} {
		v := c.String(p.name)
		if p.name == "browser" && !options.IsPath(v) {
			continue
		}
		if c.IsSet(p.name) && v == "" {
			return o, c.UsageError("--%s is a directory, not %q", p.name, v)
		}
		if v != "" {
			abs, err := filepath.Abs(v)
			if err != nil {
				return o, err
			}
			*p.to = abs
		}
	}
	if err := o.Check(); err != "" {
		return o, c.UsageError("%s", err)
	}
	return o, nil
}
