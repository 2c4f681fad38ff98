package command

import (
	"slices"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
)

// FromShell is the group of the commands that a shell uses.
const FromShell = "from a shell"

// SessionFlag returns the flag that chooses a session of bmcp call.
func SessionFlag() []ucli.Flag {
	return []ucli.Flag{&ucli.StringFlag{Name: "session", Category: "Session:", EnvVars: []string{"BTOOLS_SESSION"},
		Usage: "the session `NAME`, of all who name it (default: that of the program that calls)"}}
}

// CallCommand returns bmcp call, which does what is given.
func CallCommand(do func(*cli.Context) error) *cli.Command {
	const result, started = "Result:", "Session:"
	return &cli.Command{Name: "call", Group: FromShell,
		Usage:     "run one tool, in a browser that stays for the next call",
		ArgsUsage: "[TOOL [ARG…]|'TOOL [ARG…]'…]",
		Examples: []string{
			"bmcp call navigate https://example.com",
			"bmcp call snapshot        # what is on the page, with a ref for each element",
			"bmcp call click e5",
			"bmcp call screenshot URL page.png",
			"bmcp call --once 'navigate URL' 'get_markdown --raw'   # in their own session",
			"bmcp call --session b navigate URL   # beside it, in a tab of its own",
			"bmcp call --bind-pid $$ …            # one session for each shell of xargs -P",
		},
		Do: do, Help: CallHelp,
		Values: map[string]cli.Values{"TOOL": OfferCall, "ARG": OfferCall,
			"--session": OfferSessions},
		Flags: slices.Concat(SessionFlag(), []ucli.Flag{
			&ucli.StringFlag{Name: "save", Category: result,
				Usage: "write the result alone to `FILE`: its picture, PDF, other data, or text; - is " +
					"standard output (default: data to a new file in the working directory)"},
			&ucli.BoolFlag{Name: "raw", Category: result,
				Usage: "print the result alone: what a script returns, the text of a page, a file's bytes"},
			&ucli.BoolFlag{Name: "json", Category: result,
				Usage: "print the result alone and the page as a line of JSON, with the members result, " +
					"error and page"},
			&ucli.BoolFlag{Name: "snapshot", Category: result,
				Usage: "after the result of an action, print what it has changed in the page"},
			&ucli.StringFlag{Name: "max-inline", Category: result,
				DefaultText: "8KiB, to a terminal 0",
				Usage: "cut a text longer than `SIZE`, 0: none; the last line names the command that prints " +
					"the rest"},
			&ucli.BoolFlag{Name: "batch", Category: result,
				Usage: "make the calls of standard input, one a line, and print a line of JSON for each"},
			&ucli.BoolFlag{Name: "bail", Category: result, Usage: "with --batch: end at the first error"},
			&ucli.BoolFlag{Name: "once", Category: started,
				Usage: "run the commands, each in quotes, in a session that ends with them"},
			&ucli.IntFlag{Name: "bind-pid", Category: started,
				Usage: "end the session when process `PID` has ended (default: the program that calls)"},
			&ucli.StringFlag{Name: "url", Category: started,
				Usage: "use the tools of the MCP server at `URL`, such as that of bmcp --http elsewhere"},
			&ucli.StringFlag{Name: "token-file", Category: started,
				Usage: "send the token in `FILE` to the server at --url"},
		}, CallFlags())}
}
