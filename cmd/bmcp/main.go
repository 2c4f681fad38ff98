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
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bmcp", Usage: "an MCP server for browsers and the tools that drive them", TakesCommand: true,
			Examples: []string{
				"claude mcp add browser -- bmcp           # Claude Code",
				"bmcp config vscode                       # the entry for another host",
				"bmcp call navigate https://example.com   # one tool, from a shell",
			},
			Common: []string{"mcp", "tools", "browser", "no-headless", "extension", "state", "http"},
			Do:     command.Run, Prints: command.Addresses,
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
			command.CallCommand(command.Call),
			{Name: "sessions", Group: command.FromShell, Usage: "list the sessions of call", Do: command.Sessions,
				Prints: command.SessionRecords},
			{Name: "end", Group: command.FromShell, Usage: "end a session of call", ArgsUsage: "[SESSION]",
				Do:     command.End,
				Values: map[string]cli.Values{"SESSION": command.OfferSessions},
				Flags: slices.Concat(command.SessionFlag(), []ucli.Flag{
					&ucli.BoolFlag{Name: "all", Usage: "end all sessions"}})},
			{Name: "skill", Group: command.FromShell, Usage: "print the skill by which a coding agent knows call",
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
