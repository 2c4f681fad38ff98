// Bproxy is one stable debugging port; the browser behind it is launched only
// when it is needed.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	downloadscommand "btools/lib/downloads/command"
	"btools/lib/flags"
	statecommand "btools/lib/logins/command"
	"btools/lib/proxy/command"
	"btools/lib/settings"
)

func main() {
	const running, ofSessions, ofBrowsers = "a running one", "its sessions", "joining"
	const port = "[PORT]"
	of := &ucli.IntFlag{Name: "port", Usage: "use the proxy on `PORT`"}
	cli.Main(&cli.Program{
		Tag: "owner",
		Command: cli.Command{
			Name: "bproxy", Usage: "a stable debugging port that launches its browser on demand", TakesCommand: true,
			Examples: []string{
				"bproxy --listen 9222 --idle 10m    # the browser comes with the first client",
				"bproxy share --listen 9222         # each client gets a browser of its own",
				"bproxy -- npx @playwright/mcp --cdp-endpoint {cdp_endpoint}",
			},
			Flags:  command.Flags(),
			Common: []string{"listen", "browser", "target", "idle"},
			Do:     command.Run, Prints: command.Proxies,
			Values: map[string]cli.Values{"PORT": command.Ports, "SESSION": command.SessionNames,
				"--root-session": command.SessionNames, "--default-session": command.SessionNames,
				"--state": statecommand.OfferOwn, "NAME|FILE": statecommand.Argument(command.StateNames),
				"TRACE":         cli.Files,
				"INSTANCE|PORT": command.Joined},
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
				Flags: command.ShareFlags(), Do: command.Run, Prints: command.Proxies},
			{Name: "hub", Usage: "serve browsers that join by the extension, and launch none (on port 3300)",
				TakesCommand: true,
				Examples: []string{
					"bproxy extension ./ext               # load it in the browser, unpacked",
					"bproxy hub",
					"bproxy join -f instance.ws_url       # reserves one, until interrupted",
				},
				Flags: command.HubFlags(), Do: command.Run, Prints: command.Proxies},
			{Name: "list", Group: running, Do: command.List, Prints: command.Proxies,
				Usage: "list the running proxies, and the browsers that have joined a hub"},
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
				ArgsUsage: "[INSTANCE|PORT]", Do: command.Join, Prints: command.Proxies,
				Values: map[string]cli.Values{"--port": command.HubPorts}, Flags: slices.Concat([]ucli.Flag{
					&ucli.BoolFlag{Name: "session", Usage: "give the holder a session that ends with this command, " +
						"and print its address"},
					&ucli.DurationFlag{Name: "timeout", DefaultText: "0, never",
						Usage: "give up after `DURATION` without a browser"},
					&ucli.IntFlag{Name: "port", Usage: "use the hub on `PORT`"},
				}, flags.Owner("", "stop"))},
			{Name: "session", Group: ofSessions,
				Usage:     "list, create or end the sessions of bproxy share",
				ArgsUsage: "list|new|end [NAME]", Do: command.Sessions, Prints: command.SessionRecords,
				Examples: []string{"bproxy session list", "bproxy session new agent-7 --state shop",
					"bproxy session end agent-7"},
				Values: map[string]cli.Values{"NAME": command.SessionToEnd, "--state": command.StateNames},
				Flags: append(flags.Settings(settings.Request, settings.Sessions, "", "session"),
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"}, of)},
			{Name: "downloads", Group: ofSessions,
				Usage: "list or save the files that a session has downloaded", ArgsUsage: "SESSION",
				Do: command.Downloads, Prints: downloadscommand.Records,
				Flags: append(downloadscommand.Flags(), of)},
			{Name: "watch", Group: ofSessions,
				Usage: "print events of sessions as they happen", Do: command.Watch,
				Prints: command.Events, Flags: []ucli.Flag{of}},
			{Name: "state", Group: ofSessions,
				Usage:     "save the logins of a session; list, show, delete, import or export saved ones",
				ArgsUsage: statecommand.ArgsUsage, Do: command.States, Prints: statecommand.Records,
				Flags: append(statecommand.Flags("SESSION"), of)},
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
					&ucli.DurationFlag{Name: "duration", Usage: "end after `DURATION`"}, of,
					&ucli.StringFlag{Name: "token-file", Usage: "send the token in `FILE`"},
				}},
			{Name: "view", Group: ofSessions, ArgsUsage: "[SESSION]", Do: command.View,
				Usage: "see the sessions of all programs on a page, and take one over",
				Examples: []string{"bproxy view                     # in your browser; over SSH the address",
					"bproxy view agent-7 --no-open   # the address of one session",
					"bproxy view --stop"},
				Values: map[string]cli.Values{"SESSION": command.ViewNames}, Flags: []ucli.Flag{
					&ucli.BoolFlag{Name: "control", Usage: "print an address that may take control, not only look"},
					&ucli.BoolFlag{Name: "no-open", Usage: "print the address, and open no browser"},
					&ucli.BoolFlag{Name: "stop", Usage: "end the page, its addresses and its connections"},
				}},
			{Name: "top", Group: ofSessions, Do: command.Top,
				Usage:    "see the sessions of all programs on the terminal, and take one over",
				Examples: []string{"bproxy top", "bproxy top | jq .sessions[].title   # a line of JSON a second"}},
			{Name: "ask", Group: ofSessions, ArgsUsage: "SESSION INSTRUCTIONS", Do: command.Ask, Prints: command.Asks,
				Usage: "ask a person to do something in a session, and wait until that is done",
				Examples: []string{"bproxy ask agent-7 'Log in to shop' --until 'text=Welcome'",
					"bproxy ask agent-7 'Solve the captcha' --shared --timeout 5m --no-open"},
				Values: map[string]cli.Values{"SESSION": command.ViewNames}, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "until",
						Usage: "the page offers to give back on `CONDITION`: url=GLOB, text=TEXT, selector=CSS or " +
							"cookie=NAME"},
					&ucli.BoolFlag{Name: "shared", Usage: "clients see the page meanwhile"},
					&ucli.DurationFlag{Name: "timeout", Value: 10 * time.Minute, Usage: "give up after `DURATION`"},
					&ucli.StringFlag{Name: "notify", Usage: "run `CMDLINE`, with the ask in its environment"},
					&ucli.BoolFlag{Name: "no-open", Usage: "open no browser"},
				}},
			{Name: "view-service", Hidden: true, Do: command.ViewService,
				Usage: "serve the page of view, which starts it"},
			{Name: "har", Group: ofSessions,
				Usage: "convert traces to one HTTP Archive (HAR 1.2) on standard output", ArgsUsage: "[TRACE|DIR…]",
				Examples: []string{"bproxy har run.jsonl >run.har",
					"bproxy har traces/ --page checkout >checkout.har",
					"zcat run.jsonl.gz | bproxy har >run.har"},
				Do: command.HAR, Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "page", DefaultText: "all",
						Usage: "write the requests of the pages with `TEXT` in their URL or title, or as target ID"},
					&ucli.BoolFlag{Name: "with-logins",
						Usage: "write cookies, Authorization and passwords, too"},
					flags.SecretsFlag("")}},
			{Name: "record", Hidden: true, Do: command.Record,
				Usage: "record a browser for a program that talks on standard input and output"},
			{Name: "status", Group: running, ArgsUsage: port, Do: command.Status, Prints: command.Proxies,
				Usage: "show the state of a proxy"},
			{Name: "launch", Group: running,
				Usage:     "launch its browser, or replace it with one that has other options",
				ArgsUsage: port, Do: command.Launch, Prints: command.Proxies,
				Flags: flags.Browser(settings.Launches, "Browser:")},
			{Name: "stop", Group: running, ArgsUsage: port, Do: command.Stop, Prints: command.Proxies,
				Usage: "stop its browser; the next connection launches another"},
			{Name: "restart", Group: running, ArgsUsage: port, Do: command.Restart, Prints: command.Proxies,
				Usage: "replace its browser with another of the same kind"},
		},
	})
}
