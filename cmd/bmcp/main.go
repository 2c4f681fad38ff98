// Bmcp is an MCP server that gives an agent browsers: it launches them when
// they are needed, and merges the tools of other MCP servers into its own.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/coordinator/command"
	"btools/lib/launch/options"
	"btools/lib/life"
)

func main() {
	const children, browser, pools, front = "Children:", "Browser:", "Pools:", "HTTP:"
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bmcp", Usage: "an MCP server for browsers and the tools that drive them", TakesCommand: true, Do: command.Run,
			Flags: slices.Concat([]ucli.Flag{
				&ucli.StringSliceFlag{Name: "mcp", Category: children, Usage: "run the MCP server `[NAME=]SPEC`, an npm package or a command with its arguments (repeatable; default: @playwright/mcp)"},
				&ucli.StringFlag{Name: "config", Category: children, Usage: "run those of the [child.NAME] in `FILE`"},
				&ucli.BoolFlag{Name: "eager", Category: children, Usage: "start every child for every browser as soon as a host comes, not when it is called"},
				&ucli.BoolFlag{Name: "no-child", Category: children, Usage: "run none: only bmcp's own tools"},
				&ucli.StringFlag{Name: "pool-config", Category: pools, Usage: "run bpool serve with `FILE`"},
				&ucli.StringFlag{Name: "env-file", Category: pools, Usage: "read variables that the environment does not set from `FILE`, such as .env"},
				&ucli.BoolFlag{Name: "no-pool", Category: pools, Usage: "do not use the bpool service that runs"},
				&ucli.StringFlag{Name: "http", Category: front, Usage: "speak streamable HTTP on `HOST:PORT|PORT`, to many hosts, in place of standard input and output"},
				&ucli.StringFlag{Name: "token-file", Category: front, Usage: "ask every host for the token in `FILE`"},
				&ucli.StringSliceFlag{Name: "allow-origin", Category: front, Usage: "let web pages of `ORIGIN` ask (repeatable; * is any)"},
			}, options.Flags(browser), life.Flags("Life:", "")),
		},
		About: "Speaks MCP on standard input and output; -- CMD is a child.",
		Commands: []*cli.Command{
			{Name: "config", Usage: "print the entry that has a host run bmcp, with what is after -- as its arguments (a child's command after a second --)", ArgsUsage: "claude-code|claude-desktop|vscode|cursor|codex", TakesCommand: true, Do: command.Config},
			{Name: "hold", Hidden: true, Usage: "run a child for bmcp", TakesCommand: true, Do: command.Hold, Flags: slices.Concat(life.Flags("", ""), []ucli.Flag{
				&ucli.DurationFlag{Name: "stop-timeout", Value: 2 * time.Second, Usage: "give the child `DURATION` to end"}})},
		},
	})
}
