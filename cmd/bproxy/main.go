// Bproxy is one stable debugging port; the browser behind it is launched only
// when it is needed.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/launch/options"
	"btools/lib/life"
	"btools/lib/proxy/command"
)

func main() {
	const listen, browser, shared, lives, safety = "Port:", "Browser:", "Sessions:", "Life:", "Safety:"
	const port = "[PORT]"
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bproxy", Usage: "a stable debugging port, with a browser behind it when it is needed", TakesCommand: true,
			Flags: slices.Concat([]ucli.Flag{
				&ucli.StringFlag{Name: "listen", Category: listen, DefaultText: "127.0.0.1:0",
					Usage: "listen on `HOST:PORT` or PORT (default: the port of the record on standard input, else the system " +
						"chooses one)"},
				&ucli.BoolFlag{Name: "direct", Category: listen,
					Usage: "have /json name the browser's own address, past the proxy"},
				&ucli.StringFlag{Name: "trace", Category: listen, Usage: "append every message, both ways, to `FILE`"},
				&ucli.StringFlag{Name: "launch", Category: browser,
					Usage: "launch with the shell's `CMDLINE`, which prints a record and stays (default: blaunch --wait)"},
				&ucli.StringFlag{Name: "target", Category: browser, Usage: "launch nothing: the browser is at `URL`"},
			}, options.Flags(browser), []ucli.Flag{
				&ucli.BoolFlag{Name: "isolate", Category: shared,
					Usage: "show each client a whole browser of its own, on one that all share"},
				&ucli.DurationFlag{Name: "session-grace", Category: shared, Value: 10 * time.Second,
					Usage: "end an anonymous session `DURATION` after its last connection"},
				&ucli.DurationFlag{Name: "session-idle", Category: shared, Value: 30 * time.Minute,
					Usage: "end a named session after `DURATION` without traffic; 0 is never"},
				&ucli.IntFlag{Name: "max-sessions", Category: shared, Value: 100, Usage: "have at most `N` sessions at once"},
				&ucli.IntFlag{Name: "tab-limit", Category: shared, DefaultText: "0, no limit",
					Usage: "have at most `N` pages in a session: one more closes the one unused for longest"},
				&ucli.StringFlag{Name: "default-session", Category: shared,
					Usage: "let the session `NAME` have the browser's profile and logins"},
				&ucli.StringFlag{Name: "root-session", Category: shared,
					Usage: "let the port's own address lead to the session `NAME`, not to a new one for each client"},
			}, life.Flags(lives, ""), []ucli.Flag{
				&ucli.BoolFlag{Name: "eager", Category: lives, Usage: "launch the browser at once"},
				&ucli.DurationFlag{Name: "idle", Category: lives, Usage: "stop the browser after `DURATION` without a WebSocket"},
				&ucli.DurationFlag{Name: "health-interval", Category: lives, Value: 20 * time.Second,
					Usage: "ask the browser how it is every `DURATION`; 0 is never"},
				&ucli.DurationFlag{Name: "health-timeout", Category: lives, Value: 5 * time.Second,
					Usage: "stop a browser that has not answered that after `DURATION`"},
				&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second,
					Usage: "give a launch up after `DURATION`"},
				&ucli.DurationFlag{Name: "stop-timeout", Category: lives, Value: 5 * time.Second,
					Usage: "give the browser, or CMD, `DURATION` to end before it is killed"},
				&ucli.StringFlag{Name: "token-file", Category: safety, Usage: "ask every client for the token in `FILE`"},
				&ucli.StringSliceFlag{Name: "allow-origin", Category: safety,
					Usage: "let web pages of `ORIGIN` connect (repeatable; * is any)"},
				&ucli.IntFlag{Name: "max-connections", Category: safety, Value: 512,
					Usage: "serve at most `N` connections at once"},
			}),
			Do: command.Run,
		},
		About: "Prints its record as soon as it listens and runs until told to stop; with -- CMD it runs CMD against the " +
			"port.",
		Commands: []*cli.Command{
			{Name: "list", Usage: "list the running proxies", Do: command.List},
			{Name: "session", Usage: "list the sessions of proxies that isolate, or end one by its name",
				ArgsUsage: "list|end [NAME]", Do: command.Sessions, Flags: []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "end all of them"},
					&ucli.IntFlag{Name: "port", Usage: "those of the proxy on `PORT`"},
				}},
			{Name: "status", Usage: "show the state of a proxy", ArgsUsage: port, Do: command.Remote("status")},
			{Name: "launch", Usage: "launch its browser, or replace it by one with other options", ArgsUsage: port,
				Do: command.Remote("launch"), Flags: options.Flags(browser)},
			{Name: "stop", Usage: "stop its browser; the next connection launches another", ArgsUsage: port,
				Do: command.Remote("stop")},
			{Name: "restart", Usage: "replace its browser by another of the same kind", ArgsUsage: port,
				Do: command.Remote("restart")},
		},
	})
}
