package command

import (
	"strings"

	"btools/lib/cli"
	"btools/lib/mcp/child"
	"btools/lib/mcphosts"
	"btools/lib/tools"
)

// Specs offers children: those that people use, and programs.
func Specs(c *cli.Completion) {
	if i := strings.IndexByte(c.Word, '='); i >= 0 && !strings.ContainsAny(c.Word[:i], " /@") {
		c.Begin(i + 1) // NAME=
	}
	cli.Of(child.Builtin, "@playwright/mcp", "chrome-devtools-mcp", "https://")(c)
	cli.Programs(c)
}

// Tools offers the groups of builtin's tools, and the tools.
func Tools(c *cli.Completion) {
	cli.Of(tools.Groups()...)(c)
	names, _ := tools.Names("all")
	cli.Of(names...)(c)
}

// Hosts offers the hosts that config knows.
func Hosts(c *cli.Completion) {
	for _, h := range mcphosts.Hosts {
		c.Offer(h.Name, h.Where())
	}
}
