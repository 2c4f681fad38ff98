// Bproxy is one stable debugging port; the browser behind it is launched only
// when it is needed.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/proxy/command"
	statecommand "btools/lib/states/command"
)

func main() {
	const listen, browser, shared, joining, lives, safety = "Port:", "Browser:", "Sessions:", "Extension:", "Life:",
		"Safety:"
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
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bproxy", Usage: "a stable debugging port that launches its browser on demand", TakesCommand: true,
			Flags: slices.Concat([]ucli.Flag{
				&ucli.StringFlag{Name: "listen", Category: listen, DefaultText: "127.0.0.1:0",
					Usage: "listen on `HOST:PORT` or PORT (default: the port of the record on standard input, else " +
						"one that the system chooses)"},
				&ucli.BoolFlag{Name: "direct", Category: listen,
					Usage: "show the browser's own address in /json, which bypasses the proxy"},
				&ucli.StringFlag{Name: "trace", Category: listen,
					Usage: "append every message, in both directions, to `FILE`; with --isolate, to a " +
						"file for each session in this directory"},
				&ucli.StringFlag{Name: "launch", Category: browser,
					Usage: "launch with the shell command `CMDLINE`, which prints a record and keeps running " +
						"(default: blaunch --wait)"},
				&ucli.StringFlag{Name: "target", Category: browser,
					Usage: "use the browser at `URL`, or that of a file DevToolsActivePort, and launch none"},
				&ucli.BoolFlag{Name: "one-connection", Category: browser,
					Usage: "serve all clients over one WebSocket to the browser of --target, which asks its user once"},
			}, flags.Browser(browser), []ucli.Flag{
				&ucli.BoolFlag{Name: "isolate", Category: shared,
					Usage: "give each client a virtual browser of its own on one shared browser"},
				&ucli.DurationFlag{Name: "session-grace", Category: shared, Value: 10 * time.Second,
					Usage: "end an anonymous session `DURATION` after its last connection closes"},
				&ucli.DurationFlag{Name: "session-idle", Category: shared, Value: 30 * time.Minute,
					DefaultText: "30m, with --hibernate 30 days",
					Usage:       "end a named session after `DURATION` without traffic; 0 means never"},
				&ucli.DurationFlag{Name: "hibernate", Category: shared, DefaultText: "0, never",
					Usage: "save a named session without connections after `DURATION` without traffic and free " +
						"its pages; the next connection gets it back"},
				&ucli.DurationFlag{Name: "session-throttle", Category: shared, Value: time.Minute,
					Usage: "hide the pages of a session after `DURATION` without traffic, until its next command; " +
						"0 means never"},
				&ucli.IntFlag{Name: "max-sessions", Category: shared, Value: 100,
					Usage: "allow at most `N` sessions at once, hibernated ones apart"},
				&ucli.IntFlag{Name: "tab-limit", Category: shared, DefaultText: "0, no limit",
					Usage: "allow at most `N` pages in a session: one more closes the least recently used"},
				&ucli.StringFlag{Name: "default-session", Category: shared,
					Usage: "give the session `NAME` the browser's own profile and logins"},
				&ucli.StringFlag{Name: "root-session", Category: shared,
					Usage: "connect clients of the port's own address to the session `NAME`, not each to a new one"},
				&ucli.StringFlag{Name: "downloads", Category: shared,
					Usage: "keep the downloads of each session in `DIR`/NAME, also after its end"},
				&ucli.StringFlag{Name: "state", Category: shared,
					Usage: "start each session with the logins of the state `NAME`"},
			}, files(shared, "1GiB"), proxies(shared), []ucli.Flag{
				&ucli.BoolFlag{Name: "extension", Category: joining,
					Usage: "serve the browsers that join by the extension, and launch none, on port 3300 unless told " +
						"otherwise"},
				&ucli.StringFlag{Name: "ports", Category: joining, Value: "3301-3399",
					Usage: "give each browser that joins the lowest free port of `A-B`"},
				&ucli.BoolFlag{Name: "all-tabs", Category: joining,
					Usage: "show clients all tabs of the browser, not only their own and those that the user shares"},
				&ucli.StringFlag{Name: "pairing-file", Category: joining,
					Usage: "keep the pairing code in `FILE` (default: in the user's state directory)"},
				&ucli.BoolFlag{Name: "no-pairing", Category: joining,
					Usage: "let any extension of a browser on this machine join, without the pairing code"},
			}, flags.Owner(lives, ""), []ucli.Flag{
				&ucli.StringFlag{Name: "owner", Category: lives,
					Usage: "record `NAME` as the owner: commands then use other proxies, unless the port is named"},
				&ucli.BoolFlag{Name: "eager", Category: lives,
					Usage: "launch the browser, or connect with --one-connection, at once"},
				&ucli.DurationFlag{Name: "idle", Category: lives,
					Usage: "stop the browser after `DURATION` without traffic from a client, even if one is connected"},
				&ucli.StringFlag{Name: "idle-by", Category: lives, Value: "traffic",
					Usage: "count as use what clients send and downloads (traffic), or open WebSockets and sessions " +
						"(connections), for --idle: `WHAT`"},
				&ucli.DurationFlag{Name: "health-interval", Category: lives, Value: 20 * time.Second,
					Usage: "check the browser's health every `DURATION`; 0 means never"},
				&ucli.DurationFlag{Name: "health-timeout", Category: lives, Value: 5 * time.Second,
					Usage: "stop a browser that does not answer a health check within `DURATION`"},
				&ucli.DurationFlag{Name: "timeout", Category: lives, Value: 15 * time.Second,
					Usage: "give up a launch after `DURATION`"},
				&ucli.DurationFlag{Name: "stop-timeout", Category: lives, Value: 5 * time.Second,
					Usage: "kill the browser, or CMD, if it has not ended `DURATION` after being asked to"},
				&ucli.StringFlag{Name: "token-file", Category: safety,
					Usage: "require the token in `FILE` from every client"},
				&ucli.StringSliceFlag{Name: "allow-origin", Category: safety,
					Usage: "allow web pages from `ORIGIN` to connect (repeatable; * means any)"},
				&ucli.IntFlag{Name: "max-connections", Category: safety, Value: 512,
					Usage: "serve at most `N` connections at once"},
			}),
			Do: command.Run,
		},
		About: "Prints its record as soon as it listens, and runs until it is stopped; with -- CMD, runs CMD against " +
			"the port.",
		Commands: []*cli.Command{
			{Name: "list", Usage: "list the running proxies, and the browsers that have joined by the extension",
				Do: command.List},
			{Name: "extension", Usage: "write the extension to a directory, from which a browser loads it unpacked",
				ArgsUsage: "DIR", Do: command.Extension, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "hub", DefaultText: "http://127.0.0.1:3300",
						Usage: "have it look for the hub at `URL`"},
					&ucli.BoolFlag{Name: "paired", Usage: "write the pairing code into it: its user enters none"},
					&ucli.StringFlag{Name: "pairing-file", Usage: "take the pairing code from `FILE`"},
				}},
			{Name: "join", Usage: "hold a browser that has joined a hub: wait for one that is free, print its " +
				"record, and run until it leaves",
				ArgsUsage: "[INSTANCE|PORT]", Do: command.Join, Flags: slices.Concat([]ucli.Flag{
					&ucli.BoolFlag{Name: "session", Usage: "give the holder a session that ends with this command, " +
						"and print its address"},
					&ucli.DurationFlag{Name: "timeout", DefaultText: "0, never",
						Usage: "give up after `DURATION` without a browser"},
					&ucli.IntFlag{Name: "port", Usage: "use the hub on `PORT`"},
				}, flags.Owner("", ""))},
			{Name: "session", Usage: "list, create or end sessions of proxies with --isolate",
				ArgsUsage: "list|new|end [NAME]", Do: command.Sessions,
				Flags: slices.Concat(proxies(""), files("", ""), []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"},
					&ucli.IntFlag{Name: "tab-limit", DefaultText: "that of the proxy",
						Usage: "allow at most `N` pages in the new session"},
					&ucli.DurationFlag{Name: "throttle", DefaultText: "that of the proxy",
						Usage: "hide the pages of the new session after `DURATION` without traffic; 0 means never"},
					&ucli.StringFlag{Name: "trace", Usage: "append every message of the new session to `FILE`"},
					&ucli.StringFlag{Name: "state", Usage: "start the new session with the logins of the state `NAME`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
				})},
			{Name: "downloads", Usage: "list or save the files that a session has downloaded", ArgsUsage: "SESSION",
				Do: command.Downloads, Flags: []ucli.Flag{
					&ucli.BoolFlag{Name: "wait", Usage: "wait until there is a download and none is in progress"},
					&ucli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "wait at most `DURATION`"},
					&ucli.StringFlag{Name: "save", Usage: "copy the complete files to `DIR`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
				}},
			{Name: "watch", Usage: "print events of sessions as they happen", Do: command.Watch, Flags: []ucli.Flag{
				&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
			}},
			{Name: "state", Usage: "save the logins of a session, or list, show, delete, import or export saved ones",
				ArgsUsage: statecommand.ArgsUsage, Do: command.States, Flags: append(statecommand.Flags("SESSION"),
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"})},
			{Name: "cast", Usage: "record a page as Motion JPEG, until it is closed or the command is interrupted",
				ArgsUsage: "[SESSION] FILE.mjpeg|DIR", Do: command.Cast, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "page", DefaultText: "the only one",
						Usage: "record the page with the target `ID`"},
					&ucli.IntFlag{Name: "fps", Value: 5, Usage: "record at most `N` frames a second"},
					&ucli.DurationFlag{Name: "duration", Usage: "end after `DURATION`"},
					&ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"},
					&ucli.StringFlag{Name: "token-file", Usage: "send the token in `FILE`"},
				}},
			{Name: "har", Usage: "convert a trace to an HTTP Archive (HAR 1.2) on standard output", ArgsUsage: "TRACE",
				Do: command.HAR},
			{Name: "status", Usage: "show the state of a proxy", ArgsUsage: port, Do: command.Remote("status")},
			{Name: "launch", Usage: "launch its browser, or replace it with one that has other options",
				ArgsUsage: port, Do: command.Remote("launch"), Flags: flags.Browser(browser)},
			{Name: "stop", Usage: "stop its browser; the next connection launches another", ArgsUsage: port,
				Do: command.Remote("stop")},
			{Name: "restart", Usage: "replace its browser with another of the same kind", ArgsUsage: port,
				Do: command.Remote("restart")},
		},
	})
}
