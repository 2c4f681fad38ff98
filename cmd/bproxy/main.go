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
	statecommand "btools/lib/states/command"
)

func main() {
	const listen, browser, shared, joining, lives = "Port:", "Browser:", "Sessions:", "Joining:", "Life:"
	const running, ofSessions, ofBrowsers = "a running one", "its sessions", "joining"
	const port = "[PORT]"
	proxies := func(category string) []ucli.Flag {
		return []ucli.Flag{
			&ucli.StringFlag{Name: "proxy", Category: category, EnvVars: []string{"BTOOLS_PROXY"},
				Usage: "reach the network through the proxy at `URL`, with USER:PASSWORD@ if it needs them, or @FILE"},
			&ucli.StringFlag{Name: "proxy-bypass", Category: category,
				Usage: "reach the hosts in `LIST` without the proxy, such as .example.com;10.0.0.0/8"},
		}
	}
	files := func(category, limit string) []ucli.Flag {
		return []ucli.Flag{
			&ucli.StringFlag{Name: "download-limit", Category: category, Value: limit,
				Usage: "let a session download at most `SIZE`, such as 200MiB; 0 means no limit"},
			&ucli.StringSliceFlag{Name: "upload-root", Category: category,
				Usage: "let sessions put files of the directory `DIR` into forms (repeatable)"},
			&ucli.StringSliceFlag{Name: "download-root", Category: category,
				Usage: "let clients of any user name directories of `DIR` for their downloads (repeatable)"},
		}
	}
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
		}, flags.Browser(browser))
	}
	// sessions are those of a browser that is shared, and of one that joins.
	sessions := func(idle string) []ucli.Flag {
		return slices.Concat([]ucli.Flag{
			&ucli.DurationFlag{Name: "session-grace", Category: shared, Value: 10 * time.Second,
				Usage: "end an anonymous session `DURATION` after its last connection closes"},
			&ucli.DurationFlag{Name: "session-idle", Category: shared, Value: 30 * time.Minute,
				DefaultText: idle,
				Usage:       "end a named session after `DURATION` without traffic; 0 means never"},
			&ucli.DurationFlag{Name: "throttle", Category: shared, Value: time.Minute,
				Usage: "hide the pages of a session after `DURATION` without traffic, until its next command; " +
					"0 means never"},
			&ucli.IntFlag{Name: "max-sessions", Category: shared, Value: 100,
				Usage: "allow at most `N` sessions at once; hibernated sessions do not count"},
			&ucli.IntFlag{Name: "tab-limit", Category: shared, DefaultText: "0, no limit",
				Usage: "close the least recently used tab of a session with more than `N`"},
			&ucli.StringFlag{Name: "downloads", Category: shared,
				Usage: "keep the downloads of each session in `DIR`/NAME, also after its end"},
		}, files(shared, "1GiB"))
	}
	sharing := func() []ucli.Flag {
		return slices.Concat(sessions("30m, with --hibernate 30 days"), []ucli.Flag{
			&ucli.DurationFlag{Name: "hibernate", Category: shared, DefaultText: "0, never",
				Usage: "save a named session without connections after `DURATION` without traffic and free " +
					"its pages; the next connection gets it back"},
			&ucli.StringFlag{Name: "default-session", Category: shared,
				Usage: "give the session `NAME` the browser's own profile and logins"},
			&ucli.StringFlag{Name: "root-session", Category: shared,
				Usage: "send clients of the root address to the session `NAME`, not to a new one each"},
			&ucli.StringFlag{Name: "state", Category: shared,
				Usage: "start each session with the logins of the state `NAME`"},
		}, proxies(shared))
	}
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
		return append(append(ends(), flags.Evidence(lives)...),
			&ucli.BoolFlag{Name: "eager", Category: lives,
				Usage: "launch the browser, or connect with --one-connection, at once"},
			&ucli.DurationFlag{Name: "idle", Category: lives,
				Usage: "stop the browser after `DURATION` without client traffic (even if a client is connected)"},
			&ucli.StringFlag{Name: "idle-by", Category: lives, Value: "traffic",
				Usage: "count `traffic|connections` as use, for --idle: client messages and downloads, or open " +
					"WebSockets and sessions"},
			&ucli.DurationFlag{Name: "health-interval", Category: lives, Value: 20 * time.Second,
				Usage: "check the browser's health every `DURATION`; 0 means never"},
			&ucli.DurationFlag{Name: "health-timeout", Category: lives, Value: 5 * time.Second,
				Usage: "stop a browser that does not answer a health check within `DURATION`"},
			&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second,
				Usage: "give up a launch after `DURATION`"})
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
				Flags: slices.Concat(listens("127.0.0.1:3300"), joins(), sessions(""), ends(), []ucli.Flag{
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
				Flags: slices.Concat(proxies(""), files("", ""), []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"},
					&ucli.IntFlag{Name: "tab-limit", DefaultText: "that of the proxy",
						Usage: "close the least recently used tab of the new session with more than `N`; " +
							"0 means no limit"},
					&ucli.DurationFlag{Name: "throttle", DefaultText: "that of the proxy",
						Usage: "hide the pages of the new session after `DURATION` without traffic; 0 means never"},
					&ucli.StringFlag{Name: "trace", Usage: "append every message of the new session to `FILE`"},
					&ucli.StringFlag{Name: "state", Usage: "start the new session with the logins of the state `NAME`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
				})},
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
				ArgsUsage: port, Do: command.Launch, Flags: flags.Browser(browser)},
			{Name: "stop", Group: running,
				Usage: "stop its browser; the next connection launches another", ArgsUsage: port,
				Do: command.Stop},
			{Name: "restart", Group: running,
				Usage: "replace its browser with another of the same kind", ArgsUsage: port,
				Do: command.Restart},
		},
	})
}
