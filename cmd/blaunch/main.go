// Blaunch launches one browser, prints its record once its endpoint answers,
// and cleans up after it.
package main

import (
	"log/slog"
	"os"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/launch"
	"btools/lib/launch/command"
	"btools/lib/life"
)

func main() {
	stopTimeout := func() ucli.Flag {
		return &ucli.DurationFlag{Name: "stop-timeout", Value: 5 * time.Second, Usage: "give the browser `DURATION` to end before it is killed"}
	}
	const browser, process, lives = "Browser:", "Process:", "Life:"
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "blaunch", Usage: "launch a browser with its debugging endpoint open", TakesCommand: true,
			Flags: append([]ucli.Flag{
				&ucli.StringFlag{Name: "browser", Category: browser, EnvVars: []string{"BTOOLS_BROWSER"}, Usage: "launch this `TYPE|PATH` (default: the record's on standard input, else the best that is installed)"},
				&ucli.BoolFlag{Name: "headless", Category: browser, Usage: "without a window (the default)"},
				&ucli.BoolFlag{Name: "no-headless", Category: browser, Usage: "with a window"},
				&ucli.StringFlag{Name: "profile", Category: browser, Usage: "use and keep the profile in `DIR` (default: a temporary one)"},
				&ucli.StringSliceFlag{Name: "arg", Category: browser, Usage: "pass `ARG` to the browser (repeatable)"},
				&ucli.BoolFlag{Name: "no-default-args", Category: browser, Usage: "pass only what the endpoint and the profile need"},
				&ucli.StringFlag{Name: "url", Category: browser, Usage: "open `URL` (default: about:blank)"},
				&ucli.StringFlag{Name: "window-size", Category: browser, Usage: "of `W,H` pixels"},
				&ucli.IntFlag{Name: "port", Category: process, Usage: "open the endpoint on port `N` (default: the record's, else the browser chooses)"},
				&ucli.StringSliceFlag{Name: "env", Category: process, Usage: "set `K=V` in the browser's environment (repeatable)"},
				&ucli.StringFlag{Name: "sandbox", Category: process, Value: "auto", Usage: "`auto`, on or off; auto is off for root, in CI, and where user namespaces are denied"},
				&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second, Usage: "give up if the endpoint doesn't answer within `DURATION`"},
				stopTimeout(),
				&ucli.DurationFlag{Name: "ttl", Category: lives, Usage: "stop the browser after `DURATION`"},
				&ucli.BoolFlag{Name: "wait", Category: lives, Usage: "stay in the foreground until told to stop"},
			}, life.Flags(lives, "the browser ")...),
			Do: command.Launch,
		},
		About: "Prints the browser's record and leaves it running under a small supervisor; with --wait it stays in the foreground, with -- CMD it runs CMD with the browser.",
		Commands: []*cli.Command{
			{Name: "list", Usage: "list the browsers that run", Do: command.List},
			{Name: "stop", Usage: "stop browsers, named by ID or by records on standard input", ArgsUsage: "[ID…]", Do: command.Stop, Flags: []ucli.Flag{
				&ucli.BoolFlag{Name: "all", Usage: "stop all of them"}, stopTimeout(),
			}},
			{Name: "gc", Usage: "sweep what dead processes left, and say what", Do: command.GC},
			{Name: "supervise", Hidden: true, Usage: "hold one browser for a blaunch that talks on standard input and output", Flags: life.Flags("", ""), Do: func(c *cli.Context) error {
				owner, err := life.FromFlags(c)
				if err != nil {
					return err
				}
				code := launch.Supervise(os.Stdin, os.Stdout, owner, c.State(), func(level, format string) *slog.Logger {
					return cli.NewLogger(os.Stderr, "blaunch", level, format)
				})
				return cli.Exit(code)
			}},
		},
	})
}
