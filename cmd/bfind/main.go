// Bfind lists the installed browsers, best first.
package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/find"
	"btools/lib/record"
)

func main() {
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bfind", Usage: "list the installed browsers, best first",
			Examples: []string{"bfind", "bfind --first -f browser.path",
				"bfind --type chromium,chrome --first | blaunch -"},
			Flags: []ucli.Flag{
				&ucli.StringFlag{Name: "path", Usage: "list the executable `FILE` first"},
				&ucli.StringFlag{Name: "type", Usage: "list only `TYPE[,TYPE]`, of " +
					strings.Join(record.Types, ", ")},
				&ucli.StringFlag{Name: "channel", Usage: "list only `CHANNEL`: stable, esr, beta, dev, " +
					"canary or testing"},
				&ucli.BoolFlag{Name: "first", Usage: "list only the best one"},
				&ucli.BoolFlag{Name: "all", Usage: "also list browsers that speak neither CDP nor BiDi"},
				&ucli.BoolFlag{Name: "probe", Usage: "run each with --version, for 3 s at most"},
			},
			Prints: &cli.Records{Columns: []cli.Column{
				{Head: "TYPE", Field: "browser.type"}, {Head: "CHANNEL", Field: "browser.channel", Spare: 1},
				{Head: "VERSION", Field: "browser.version"},
				{Head: "SOURCE", Field: "browser.source", Spare: 2}, {Head: "PATH", Field: "browser.path"}}},
			Do: run, Values: map[string]cli.Values{"CHANNEL": cli.Of(find.Channels...)},
		},
		About: "As a filter, it adds a browser to each record that has none.",
	})
}

func run(c *cli.Context) error {
	o := find.Options{Path: c.String("path"), Channel: c.String("channel"), All: c.Bool("all"), Probe: c.Bool("probe"),
		Getenv: c.Getenv, Home: c.Home()}
	if t := c.String("type"); t != "" {
		o.Types = strings.Split(t, ",")
		for i, t := range o.Types {
			o.Types[i] = record.Canonical(t)
			if t == record.WebKit {
				o.All = true // it serves neither
			} else if !slices.Contains(record.Types, o.Types[i]) {
				return c.UsageError("--type is one or more of %s, not %q", strings.Join(record.Types, ", "), t)
			}
		}
	}
	if !slices.Contains(find.Channels, o.Channel) && o.Channel != "" {
		return c.UsageError("--channel is one of %s, not %q", strings.Join(find.Channels, ", "), o.Channel)
	}
	all := sync.OnceValues(func() ([]record.Browser, error) { return browsers(c, o) }) // after the first record
	filtered, err := c.Filter("printing those of the browsers", func(rec *record.Record) error {
		found, err := all()
		if err != nil {
			return err
		}
		has, err := rec.Get("browser", new(record.Browser))
		switch {
		case err != nil:
			return exit.Errorf(exit.Data, "%v", err)
		case has:
			return nil
		case len(found) == 0:
			return none(o)
		}
		rec.MustSet("browser", found[0])
		return nil
	})
	if filtered || err != nil {
		return err
	}
	found, err := all()
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return none(o)
	}
	if c.Bool("first") {
		found = found[:1]
	}
	var rs []*record.Record
	for _, b := range found {
		rs = append(rs, record.Of("browser", b))
	}
	return c.Out.Print(nil, rs...)
}

// browsers returns the installed browsers, and logs warnings.
func browsers(c *cli.Context, o find.Options) ([]record.Browser, error) {
	found, warnings, err := find.Browsers(context.Background(), o)
	for _, w := range warnings {
		c.Log.Warn(w.Error())
	}
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: err}
	}
	return found, nil
}

func none(o find.Options) error {
	if what := strings.TrimSpace(o.Channel + " " + strings.Join(o.Types, " or ")); what != "" {
		return &exit.Error{Code: exit.Unavailable, Err: errors.New("no " + what + " found"),
			Hint: "bfind without --type and --channel lists what is there"}
	}
	return &exit.Error{Code: exit.Unavailable, Err: errors.New("no browser found"),
		Hint: "install one (on Debian: apt-get install chromium), or name it with --path or BTOOLS_BROWSER"}
}
