// Bproxy is one stable debugging port; the browser behind it is launched only
// when it is needed.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	awaitcommand "btools/lib/await/command"
	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/proxy/command"
	"btools/lib/settings"
	statecommand "btools/lib/states/command"
)

func main() {
	const listen, browser, shared, joining, lives = "Port:", "Browser:", "Sessions:", "Joining:", "Life:"
	const running, ofSessions, ofBrowsers = "a running one", "its sessions", "joining"
	const port = "[PORT]"
	const chosen = "the port of the record on standard input, else one that the system chooses"
	listens := func(standard string) []ucli.Flag {
		return []ucli.Flag{
			&ucli.StringFlag{Name: "listen", Category: listen, DefaultText: standard,
				Usage: "listen on `HOST:PORT` or PORT"},
			&ucli.StringFlag{Name: "token-file", Category: listen,
				Usage: "require the token in `FILE` from every client"},
			&ucli.StringSliceFlag{Name: "allow-origin", Category: listen,
				Usage: "allow web pages from `ORIGIN` to connect (repeatable; * means any)"},
			&ucli.IntFlag{Name: "max-connections", Category: listen, Value: 512,
				Usage: "serve at most `N` connections at once"},
		}
	}
	browsers := func() []ucli.Flag {
		return slices.Concat([]ucli.Flag{
			&ucli.StringFlag{Name: "trace", Category: listen,
				Usage: "append every message, in both directions, to `FILE`; of sessions, to a file each in this " +
					"directory"},
			&ucli.StringFlag{Name: "launch", Category: browser,
				Usage: "launch with the shell command `CMDLINE`, which prints a record and keeps running " +
					"(default: blaunch --wait)"},
			&ucli.StringFlag{Name: "target", Category: browser,
				Usage: "use the browser at `URL|FILE` and launch none; FILE is its DevToolsActivePort"},
			&ucli.BoolFlag{Name: "one-connection", Category: browser,
				Usage: "use one WebSocket to the browser of --target for all clients: its user is asked once"},
		}, flags.Browser(settings.Launches, browser))
	}
	sharing := func() []ucli.Flag { return flags.Settings(settings.Share, settings.Sessions, shared, "session") }
	joins := func() []ucli.Flag {
		return []ucli.Flag{
			&ucli.StringFlag{Name: "ports", Category: joining, Value: "3301-3399",
				Usage: "give each browser that joins the lowest free port of `LOW-HIGH`"},
			&ucli.BoolFlag{Name: "all-tabs", Category: joining,
				Usage: "show clients all tabs of the browser, not only their own and those that the user shares"},
			&ucli.StringFlag{Name: "pairing-file", Category: joining,
				Usage: "keep the pairing code in `FILE` (default: in the user's state directory)"},
			&ucli.BoolFlag{Name: "no-pairing", Category: joining,
				Usage: "let any extension of a browser on this machine join, without the pairing code"},
		}
	}
	ends := func() []ucli.Flag {
		return append(slices.Concat(awaitcommand.Flags(lives), flags.Owner(lives, "stop")),
			&ucli.StringFlag{Name: "owner", Category: lives,
				Usage: "record `NAME` as the owner: commands then use other proxies, unless the port is named"},
			&ucli.DurationFlag{Name: "stop-timeout", Category: lives, Value: 5 * time.Second,
				Usage: "kill the browser, or CMD, if it has not ended `DURATION` after being asked to"})
	}
	runs := func() []ucli.Flag {
		return append(slices.Concat(ends(), flags.Evidence(lives),
			flags.Settings(settings.Proxy, settings.Lives, lives, "session")),
			&ucli.BoolFlag{Name: "eager", Category: lives,
				Usage: "launch the browser, or connect with --one-connection, at once"})
	}
	direct := &ucli.BoolFlag{Name: "direct", Category: listen,
		Usage: "show the browser's own address in /json, which bypasses the proxy"}
	// What share and hub set: options of bproxy itself before they were commands.
	const isolate, extension = "isolate", "extension"
	set := func(name string) ucli.Flag { return &ucli.BoolFlag{Name: name, Value: true, Hidden: true} }
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bproxy", Usage: "a stable debugging port that launches its browser on demand", TakesCommand: true,
			Examples: []string{
				"bproxy --listen 9222 --idle 10m    # the browser comes with the first client",
				"bproxy share --listen 9222         # each client gets a browser of its own",
				"bproxy -- npx @playwright/mcp --cdp-endpoint {cdp_endpoint}",
			},
			Flags: slices.Concat(listens(chosen), []ucli.Flag{direct}, browsers(), runs(), flags.Hidden(slices.Concat(
				[]ucli.Flag{&ucli.BoolFlag{Name: isolate}, &ucli.BoolFlag{Name: extension}}, sharing(), joins())...)),
			Common: []string{"listen", "browser", "target", "idle"},
			Do:     command.Run,
			Values: map[string]cli.Values{"PORT": command.Ports, "SESSION": command.SessionNames,
				"--root-session": command.SessionNames, "--default-session": command.SessionNames,
				"--state": statecommand.OfferOwn, "NAME|FILE": command.StateArgument, "TRACE": cli.Files,
				"INSTANCE|PORT": command.Joined, "--field": command.StatusFields},
		},
		Old: map[string]string{"session-throttle": "throttle"},
		About: "Prints its record as soon as it listens, and runs until it is stopped; with -- CMD, runs CMD against " +
			"the port.",
		Elsewhere: flags.Pages(),
		Commands: []*cli.Command{
			{Name: "share", Usage: "share one browser as many virtual ones, a session each", TakesCommand: true,
				Examples: []string{
					"bproxy share --listen 9222    # each client of port 9222 gets a session",
					"bproxy share --listen 9222 --state shop --hibernate 10m",
					"bproxy session list           # named by clients: …:9222/session/NAME",
				},
				Flags: slices.Concat(listens(chosen), browsers(), sharing(), runs(), []ucli.Flag{set(isolate)}),
				Do:    command.Run},
			{Name: "hub", Usage: "serve browsers that join by the extension, and launch none (on port 3300)",
				TakesCommand: true,
				Examples: []string{
					"bproxy extension ./ext               # load it in the browser, unpacked",
					"bproxy hub",
					"bproxy join -f instance.ws_url       # reserves one, until interrupted",
				},
				Flags: slices.Concat(listens("127.0.0.1:3300"), joins(),
					flags.Settings(settings.Hub, settings.Sessions, shared, "session"), ends(), []ucli.Flag{
						&ucli.DurationFlag{Name: "timeout", Category: lives, DefaultText: "0, never",
							Usage: "give up after `DURATION` without a browser for CMD"},
						set(extension)}),
				Do: command.Run},
			{Name: "list", Group: running,
				Usage: "list the running proxies, and the browsers that have joined a hub",
				Do:    command.List},
			{Name: "extension", Group: ofBrowsers,
				Usage:     "write the extension to a directory, from which a browser loads it unpacked",
				ArgsUsage: "DIR", Do: command.Extension, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "hub", DefaultText: "http://127.0.0.1:3300",
						Usage: "have it look for the hub at `URL`"},
					&ucli.BoolFlag{Name: "paired", Usage: "write the pairing code into it: its user enters none"},
					&ucli.StringFlag{Name: "pairing-file", Usage: "take the pairing code from `FILE`"},
				}},
			{Name: "join", Group: ofBrowsers,
				Usage: "reserve a browser of the hub: wait for a free one, print its " +
					"record, keep it until it leaves",
				ArgsUsage: "[INSTANCE|PORT]", Do: command.Join,
				Values: map[string]cli.Values{"--port": command.HubPorts}, Flags: slices.Concat([]ucli.Flag{
					&ucli.BoolFlag{Name: "session", Usage: "give the holder a session that ends with this command, " +
						"and print its address"},
					&ucli.DurationFlag{Name: "timeout", DefaultText: "0, never",
						Usage: "give up after `DURATION` without a browser"},
					&ucli.IntFlag{Name: "port", Usage: "use the hub on `PORT`"},
				}, flags.Owner("", "stop"))},
			{Name: "session", Group: ofSessions,
				Usage:     "list, create or end the sessions of bproxy share",
				ArgsUsage: "list|new|end [NAME]", Do: command.Sessions,
				Examples: []string{"bproxy session list", "bproxy session new agent-7 --state shop",
					"bproxy session end agent-7"},
				Values: map[string]cli.Values{"NAME": command.SessionToEnd, "--state": command.StateNames,
					"--field": command.SessionFields},
				Flags: append(flags.Settings(settings.Request, settings.Sessions, "", "session"),
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"})},
			{Name: "downloads", Group: ofSessions,
				Usage: "list or save the files that a session has downloaded", ArgsUsage: "SESSION",
				Do: command.Downloads, Values: map[string]cli.Values{"--field": command.DownloadFields},
				Flags: []ucli.Flag{
					&ucli.BoolFlag{Name: "wait", Usage: "wait until there is a download and none is in progress"},
					&ucli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "wait at most `DURATION`"},
					&ucli.StringFlag{Name: "save", Usage: "copy the complete files to `DIR`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
				}},
			{Name: "watch", Group: ofSessions,
				Usage: "print events of sessions as they happen", Do: command.Watch,
				Values: map[string]cli.Values{"--field": command.EventFields}, Flags: []ucli.Flag{
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
				}},
			{Name: "state", Group: ofSessions,
				Usage:     "save the logins of a session; list, show, delete, import or export saved ones",
				ArgsUsage: statecommand.ArgsUsage, Do: command.States,
				Values: map[string]cli.Values{"--field": statecommand.Fields},
				Flags: append(statecommand.Flags("SESSION"),
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"})},
			{Name: "cast", Group: ofSessions,
				Usage:     "record a page until it is closed or the command is interrupted",
				ArgsUsage: "[SESSION] FILE|DIR", Do: command.Cast,
				Examples: []string{"bproxy cast agent-7 film.html           # a page that plays it",
					"bproxy cast agent-7 film.webm --wait    # or .mp4: needs ffmpeg",
					"bproxy cast agent-7 frames              # a directory of images"},
				Values: map[string]cli.Values{"--page": command.Pages}, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "page", DefaultText: "the only one",
						Usage: "record the page with the target `ID`"},
					&ucli.BoolFlag{Name: "wait", Usage: "wait until there is a page that is not blank"},
					&ucli.IntFlag{Name: "fps", Value: 5, Usage: "record at most `N` frames a second"},
					&ucli.DurationFlag{Name: "duration", Usage: "end after `DURATION`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
					&ucli.StringFlag{Name: "token-file", Usage: "send the token in `FILE`"},
				}},
			{Name: "har", Group: ofSessions,
				Usage: "convert traces to one HTTP Archive (HAR 1.2) on standard output", ArgsUsage: "[TRACE|DIR…]",
				Examples: []string{"bproxy har run.jsonl >run.har",
					"bproxy har traces/ --page checkout >checkout.har",
					"zcat run.jsonl.gz | bproxy har >run.har"},
				Do: command.HAR, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "page", DefaultText: "all",
						Usage: "write the requests of the pages with `TEXT` in their URL or title, or as target ID"}}},
			{Name: "record", Hidden: true, Do: command.Record,
				Usage: "record a browser for a program that talks on standard input and output"},
			{Name: "status", Group: running,
				Usage: "show the state of a proxy", ArgsUsage: port, Do: command.Status},
			{Name: "launch", Group: running,
				Usage:     "launch its browser, or replace it with one that has other options",
				ArgsUsage: port, Do: command.Launch, Flags: flags.Browser(settings.Launches, browser)},
			{Name: "stop", Group: running,
				Usage: "stop its browser; the next connection launches another", ArgsUsage: port,
				Do: command.Stop},
			{Name: "restart", Group: running,
				Usage: "replace its browser with another of the same kind", ArgsUsage: port,
				Do: command.Restart},
		},
	})
}
