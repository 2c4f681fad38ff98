// Bmcp is an MCP server that gives an agent browsers: it launches them when
// they are needed, and merges the tools of other MCP servers into its own.
package main

import (
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/coordinator/command"
	"btools/lib/flags"
	statecommand "btools/lib/logins/command"
	"btools/lib/mcphosts"
)

func main() {
	const shell, result, started = "from a shell", "Result:", "Session:"
	session := []ucli.Flag{&ucli.StringFlag{Name: "session", Category: started, EnvVars: []string{"BTOOLS_SESSION"},
		Usage: "the session `NAME`, of all who name it (default: that of the program that calls)"}}
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bmcp", Usage: "an MCP server for browsers and the tools that drive them", TakesCommand: true,
			Examples: []string{
				"claude mcp add browser -- bmcp           # Claude Code",
				"bmcp config vscode                       # the entry for another host",
				"bmcp call navigate https://example.com   # one tool, from a shell",
			},
			Common: []string{"mcp", "tools", "browser", "no-headless", "extension", "state", "http"},
			Do:     command.Run,
			Values: map[string]cli.Values{"--mcp": command.Specs, "--tools": command.Tools,
				"--state": statecommand.OfferOwn},
			Flags: slices.Concat(command.ServerFlags(), flags.Owner("Life:", "stop")),
		},
		Old: map[string]string{"browser-path": "browser", "no-vscode": "",
			"session-throttle": "throttle", "max-browsers": "max-sessions"},
		About: "Speaks MCP on standard input and output. With -- CMD, it offers the tools of CMD, an MCP server.",
		Commands: []*cli.Command{
			{Name: "config",
				Usage: "print the entry that makes a host run bmcp (" + strings.Join(mcphosts.Names(), ", ") +
					"); arguments of bmcp follow -- (a child's command a second --)",
				ArgsUsage:    "HOST",
				TakesCommand: true, Do: command.Config,
				Values: map[string]cli.Values{"HOST": command.Hosts, "--": cli.OwnArguments},
				Flags: []ucli.Flag{
					&ucli.StringSliceFlag{Name: "env",
						Usage: "set `K=V` in bmcp's environment, such as a variable of pools (repeatable)"},
					&ucli.BoolFlag{Name: "link", Usage: "print a link that adds the entry to the host"},
					&ucli.BoolFlag{Name: "write", Usage: "show what changes in the host's file, and write it"},
					&ucli.BoolFlag{Name: "yes", Usage: "with --write: do not ask"}}},
			{Name: "auth", Usage: "log in at the server of a child at a URL, by OAuth", ArgsUsage: "NAME|[NAME=]URL",
				Do: command.Auth,
				Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "config", Usage: "NAME is a [child.NAME] of `FILE`"},
					&ucli.BoolFlag{Name: "end", Usage: "delete the login"},
					&ucli.DurationFlag{Name: "timeout", Value: 5 * time.Minute,
						Usage: "wait `DURATION` for the person who logs in"}}},
			{Name: "call", Group: shell, Usage: "run one tool, in a browser that stays for the next call",
				ArgsUsage: "[TOOL [ARG…]]",
				Examples: []string{
					"bmcp call navigate https://example.com",
					"bmcp call snapshot        # what is on the page, with a ref for each element",
					"bmcp call click e5",
					"bmcp call --session b navigate URL   # beside it, in a tab of its own",
					"bmcp call --bind-pid $$ …            # one session for each shell of xargs -P",
				},
				Do: command.Call, Help: command.CallHelp,
				Values: map[string]cli.Values{"TOOL": command.OfferCall, "ARG": command.OfferCall,
					"--session": command.OfferSessions},
				Flags: slices.Concat(session, []ucli.Flag{
					&ucli.StringFlag{Name: "save", Category: result,
						Usage: "write the result alone to `FILE`: its picture, PDF, other data, or text; - is " +
							"standard output (default: data to a new file in the working directory)"},
					&ucli.BoolFlag{Name: "raw", Category: result,
						Usage: "print the result alone: what a script returns, the text of a page, a file's bytes"},
					&ucli.BoolFlag{Name: "snapshot", Category: result,
						Usage: "after the result of an action, print what it has changed in the page"},
					&ucli.StringFlag{Name: "max-inline", Category: result,
						DefaultText: "8KiB, to a terminal 0",
						Usage: "cut a text longer than `SIZE`, 0: none; the last line names the command that prints " +
							"the rest"},
					&ucli.BoolFlag{Name: "batch", Category: result,
						Usage: "make the calls of standard input, one a line, and print a line of JSON for each"},
					&ucli.BoolFlag{Name: "bail", Category: result, Usage: "with --batch: end at the first error"},
					&ucli.IntFlag{Name: "bind-pid", Category: started,
						Usage: "end the session when process `PID` has ended (default: the program that calls)"},
					&ucli.StringFlag{Name: "url", Category: started,
						Usage: "use the tools of the MCP server at `URL`, such as that of bmcp --http elsewhere"},
					&ucli.StringFlag{Name: "token-file", Category: started,
						Usage: "send the token in `FILE` to the server at --url"},
				}, command.CallFlags())},
			{Name: "sessions", Group: shell, Usage: "list the sessions of call", Do: command.Sessions},
			{Name: "end", Group: shell, Usage: "end a session of call", ArgsUsage: "[SESSION]", Do: command.End,
				Values: map[string]cli.Values{"SESSION": command.OfferSessions},
				Flags: slices.Concat(session, []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"}})},
			{Name: "skill", Group: shell, Usage: "print the skill by which a coding agent knows call",
				Do: command.Skill,
				Flags: []ucli.Flag{&ucli.StringFlag{Name: "install",
					Usage: "write it to `DIR`/btools/SKILL.md, where agents look: .claude/skills, .agents/skills"}}},
			{Name: "calls", Hidden: true, Usage: "keep the sessions of call", ArgsUsage: "SOCKET",
				Do: command.Service},
			{Name: "hold", Hidden: true, Usage: "run a child for bmcp", TakesCommand: true, Do: command.Hold,
				Flags: slices.Concat(flags.Owner("", "stop"), []ucli.Flag{
					&ucli.DurationFlag{Name: "stop-timeout", Value: 2 * time.Second,
						Usage: "give the child `DURATION` to end"}})},
		},
	})
}
