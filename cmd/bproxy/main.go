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
	const listen, browser, lives, safety = "Port:", "Browser:", "Life:", "Safety:"
	const port = "[PORT]"
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bproxy", Usage: "a stable debugging port, with a browser behind it when it is needed", TakesCommand: true,
			Flags: slices.Concat([]ucli.Flag{
				&ucli.StringFlag{Name: "listen", Category: listen, DefaultText: "127.0.0.1:0", Usage: "listen on `HOST:PORT` or PORT (default: the port of the record on standard input, else the system chooses one)"},
				&ucli.BoolFlag{Name: "direct", Category: listen, Usage: "have /json name the browser's own address, past the proxy"},
				&ucli.StringFlag{Name: "trace", Category: listen, Usage: "append every message, both ways, to `FILE`"},
				&ucli.StringFlag{Name: "launch", Category: browser, Usage: "launch with the shell's `CMDLINE`, which prints a record and stays (default: blaunch --wait)"},
				&ucli.StringFlag{Name: "target", Category: browser, Usage: "launch nothing: the browser is at `URL`"},
			}, options.Flags(browser), life.Flags(lives, ""), []ucli.Flag{
				&ucli.BoolFlag{Name: "eager", Category: lives, Usage: "launch the browser at once"},
				&ucli.DurationFlag{Name: "idle", Category: lives, Usage: "stop the browser after `DURATION` without a WebSocket"},
				&ucli.DurationFlag{Name: "health-interval", Category: lives, Value: 20 * time.Second, Usage: "ask the browser how it is every `DURATION`; 0 is never"},
				&ucli.DurationFlag{Name: "health-timeout", Category: lives, Value: 5 * time.Second, Usage: "stop a browser that has not answered that after `DURATION`"},
				&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second, Usage: "give a launch up after `DURATION`"},
				&ucli.DurationFlag{Name: "stop-timeout", Category: lives, Value: 5 * time.Second, Usage: "give the browser, or CMD, `DURATION` to end before it is killed"},
				&ucli.StringFlag{Name: "token-file", Category: safety, Usage: "ask every client for the token in `FILE`"},
				&ucli.StringSliceFlag{Name: "allow-origin", Category: safety, Usage: "let web pages of `ORIGIN` connect (repeatable; * is any)"},
				&ucli.IntFlag{Name: "max-connections", Category: safety, Value: 512, Usage: "serve at most `N` connections at once"},
			}),
			Do: command.Run,
		},
		About: "Prints its record as soon as it listens and runs until told to stop; with -- CMD it runs CMD against the port.",
		Commands: []*cli.Command{
			{Name: "list", Usage: "list the proxies that run", Do: command.List},
			{Name: "status", Usage: "tell how a proxy is", ArgsUsage: port, Do: command.Remote("status")},
			{Name: "launch", Usage: "launch its browser, or replace it by one with other options", ArgsUsage: port, Do: command.Remote("launch"), Flags: options.Flags(browser)},
			{Name: "stop", Usage: "stop its browser; the next connection launches another", ArgsUsage: port, Do: command.Remote("stop")},
			{Name: "restart", Usage: "replace its browser by another of the same kind", ArgsUsage: port, Do: command.Remote("restart")},
		},
	})
}
