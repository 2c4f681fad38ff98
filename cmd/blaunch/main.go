// Blaunch launches one browser, prints its record once its endpoint answers,
// and cleans up after it.
package main

import (
	"log/slog"
	"os"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/launch"
	"btools/lib/launch/command"
	statecommand "btools/lib/logins/command"
	"btools/lib/settings"
	awaitcommand "btools/lib/waitfor/command"
)

const browser, lives = "Browser:", "Life:"

func main() {
	stopTimeout := func() ucli.Flag {
		return &ucli.DurationFlag{Name: "stop-timeout", Category: lives, Value: 5 * time.Second,
			Usage: "give the browser `DURATION` to end before it is killed"}
	}
	cli.Main(&cli.Program{
		Tag: "owner",
		Command: cli.Command{
			Name: "blaunch", Usage: "launch a browser with its debugging endpoint open", TakesCommand: true,
			Examples: []string{
				"blaunch -- node script.js {ws_endpoint}    # a browser for one command",
				"bfind --type chrome --first | blaunch -    # one that stays until stopped",
				"blaunch stop --all",
			},
			Flags: slices.Concat(flags.Browser(settings.Launches, browser), []ucli.Flag{
				&ucli.StringFlag{Name: "url", Category: browser, Usage: "open `URL` (default: about:blank)"},
				&ucli.IntFlag{Name: "port", Category: browser,
					Usage: "open the endpoint on `PORT` (default: the port of the record, else the browser chooses)"},
				&ucli.StringFlag{Name: "state-save", Category: browser,
					Usage: "with --no-headless: save the logins of the window as the state `NAME` when it is closed"},
				&ucli.BoolFlag{Name: "extension", Category: browser,
					Usage: "load the btools extension, and wait until the browser has joined the hub by it"},
				&ucli.StringFlag{Name: "hub", Category: browser,
					Usage: "with --extension: join the hub with this `PORT|URL` (default: the only one that is " +
						"running)"},
				&ucli.BoolFlag{Name: "wait", Category: lives, Usage: "stay in the foreground until told to stop"},
				&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second,
					Usage: "give up if the endpoint doesn't answer within `DURATION`"},
				stopTimeout(),
				&ucli.DurationFlag{Name: "ttl", Category: lives,
					Usage: "stop the browser, and CMD, `DURATION` after it is ready (default: no limit)"},
			}, awaitcommand.Flags(lives), flags.Evidence(lives), flags.Owner(lives, "stop the browser"), []ucli.Flag{
				&ucli.IntFlag{Name: "pipe-fd", Category: lives,
					Usage: "with --wait: open no port; the browser reads commands from descriptor `N` and " +
						"writes to N+1"},
				&ucli.StringFlag{Name: "owner", Category: lives,
					Usage: "record `NAME` as the owner: stop --all then spares the browser"},
			}),
			Common: []string{"browser", "no-headless", "profile", "url", "port", "wait"},
			Do:     command.Launch, Prints: command.Browsers,
			Values: map[string]cli.Values{"ID": command.Instances, "--hub": command.Hubs,
				"--state-save": statecommand.OfferOwn},
		},
		About: "Prints the browser's record and leaves the browser running under a small supervisor. With --wait it " +
			"stays in the foreground; with -- CMD it runs CMD with the browser.",
		Elsewhere: flags.Pages(),
		Commands: []*cli.Command{
			{Name: "list", Usage: "list the running browsers", Do: command.List, Prints: command.Browsers},
			{Name: "stop", Usage: "stop browsers (given as arguments, or as IDs or records on standard input)",
				ArgsUsage: "[ID…]", Do: command.Stop, Prints: command.Browsers, Flags: []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "stop all but those that belong to another " +
						"program, such as bpool"},
					&ucli.BoolFlag{Name: "force", Usage: "with --all: stop those too"}, stopTimeout(),
				}},
			{Name: "gc", Usage: "clean up what dead processes left behind, and list it", Do: command.GC,
				Prints: command.Swept},
			{Name: "supervise", Hidden: true, Usage: "hold one browser for a blaunch that talks on standard " +
				"input and output",
				Flags: flags.Owner("", "stop"), Do: func(c *cli.Context) error {
					owner, err := flags.ReadOwner(c)
					if err != nil {
						return err
					}
					code := launch.Supervise(os.Stdin, os.Stdout, owner, c.State(),
						func(level, format string) *slog.Logger {
							return cli.NewLogger(c.Messages, "blaunch", level, format)
						})
					return exit.Status(code)
				}},
		},
	})
}
