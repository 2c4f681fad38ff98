package command

import (
	"slices"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/flags"
	"btools/lib/results"
	"btools/lib/settings"
)

// ServerFlags returns the flags of bmcp.
func ServerFlags() []ucli.Flag {
	const children, large, browser, shared, pools, web = "Children:", "Large results:", "Browser:", "Virtual browsers:",
		"Pools:", "HTTP:"
	return slices.Concat([]ucli.Flag{
		&ucli.StringSliceFlag{Name: "mcp", Category: children,
			Usage: "offer the tools of the MCP server `[NAME=]SPEC` (builtin, an npm package, a command " +
				"with its arguments, or a URL; repeatable; default: builtin)"},
		&ucli.StringFlag{Name: "tools", Category: children,
			Usage: "list these tools of builtin: `NAME,…` (names, or the groups core, default, storage, " +
				"network, vision, testing and all; default: default); others can be called, too"},
		&ucli.StringFlag{Name: "page-tools", Category: children, Value: "tools",
			Usage: "offer the tools that pages declare (WebMCP) by `tools|list|off`: by two tools, listed " +
				"as page__NAME as well, or not"},
		&ucli.StringFlag{Name: "image-responses", Category: children, Value: "allow",
			Usage: "`allow|omit` images in the results of builtin; omit is for models that take none"},
		&ucli.BoolFlag{Name: "snapshot-files", Category: children,
			Usage: "save the snapshots after actions in files, as @playwright/mcp does, and link them in results"},
		&ucli.StringFlag{Name: "secrets", Category: children,
			Usage: "type the values in `FILE`, lines of NAME=VALUE, for {{NAME}}, and show no agent a value"},
		&ucli.BoolFlag{Name: "allow-unrestricted-file-access", Category: children,
			Usage: "let the tools and pages of builtin read any file, not only those in the roots of the host"},
		&ucli.StringFlag{Name: "config", Category: children,
			Usage: "run the children of `FILE`, which has tables [child.NAME]"},
		&ucli.BoolFlag{Name: "eager", Category: children,
			Usage: "start all children when a host connects, one per browser"},
		&ucli.BoolFlag{Name: "no-child", Category: children,
			Usage: "run no child: offer bmcp's own tools only"},
		&ucli.BoolFlag{Name: "no-bulk", Category: children,
			Usage: "leave out browser_execute_bulk, because it runs tools without the host's " +
				"confirmation of each"},
		&ucli.StringFlag{Name: "max-inline", Category: large,
			Usage: "cut results that have more than `SIZE`; browser_result reads the rest " +
				"(default: 50KiB for those of builtin, no limit for those of other children)"},
		&ucli.IntFlag{Name: "max-results", Category: large, Value: results.DefaultEntries,
			Usage: "keep `N` results that were cut, each for 5 minutes after its last use"},
		&ucli.BoolFlag{Name: "shared", Category: shared,
			Usage: "show all hosts the one browser whole, without session_id"},
	}, flags.Settings(settings.Agent, settings.Sessions, shared, "virtual browser"), []ucli.Flag{
		&ucli.StringFlag{Name: "pool-config", Category: pools, Usage: "run bpool serve with `FILE`"},
		&ucli.StringFlag{Name: "env-file", Category: pools,
			Usage: "read variables that the environment does not set from `FILE`, such as .env"},
		&ucli.BoolFlag{Name: "pool", Category: pools,
			Usage: "use the browsers of the bpool service that runs, or listens on $BTOOLS_POOL_SOCKET"},
		&ucli.StringFlag{Name: "socket", Category: pools,
			Usage: "use the browsers of the bpool service that listens on `FILE`"},
		&ucli.StringFlag{Name: "http", Category: web,
			Usage: "speak streamable HTTP on `HOST:PORT` or PORT (to many hosts, in place of standard input " +
				"and output)"},
		&ucli.StringFlag{Name: "token-file", Category: web,
			Usage: "require a token in `FILE` from every host"},
		&ucli.BoolFlag{Name: "share-auth", Category: web,
			Usage: "let all hosts use the logins of bmcp auth at children's servers"},
		&ucli.StringSliceFlag{Name: "allow-origin", Category: web,
			Usage: "allow web pages from `ORIGIN` to connect (repeatable; * means any)"},
	}, flags.Browser(settings.Agent, browser), []ucli.Flag{
		&ucli.BoolFlag{Name: "extension", Category: browser,
			Usage: "use a browser that joins by its extension (such as the one that a person uses; launch " +
				"none)"},
		&ucli.StringFlag{Name: "cdp", Category: browser,
			Usage: "use the browser that runs at `URL|PORT` as it is, with its tabs and logins (launch none)"},
		&ucli.BoolFlag{Name: "isolated", Category: browser,
			Usage: "use a context of its own in the browser of --cdp, which ends with the session"},
	}, flags.Settings(settings.Agent, settings.Lives, browser, ""))
}
