package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/cli"
)

// hosts are what config knows, with where the entry is to be pasted.
var hosts = map[string]struct {
	where string
	key   string // of the servers in JSON; "": TOML
}{
	"claude-code":    {".mcp.json of the project", "mcpServers"},
	"claude-desktop": {"claude_desktop_config.json", "mcpServers"},
	"vscode":         {".vscode/mcp.json", "servers"},
	"cursor":         {".cursor/mcp.json", "mcpServers"},
	"codex":          {"~/.codex/config.toml", ""},
}

// Config prints the entry that has a host run bmcp; what is after -- are
// bmcp's own arguments.
func Config(c *cli.Context) error {
	var names []string
	for n := range hosts {
		names = append(names, n)
	}
	slices.Sort(names)
	args := c.Args()
	known := strings.Join(names, ", ")
	if len(args) != 1 {
		return c.UsageError("name one host: %s", known)
	}
	if hosts[args[0]].where == "" {
		return c.UsageError("no host is known as %q: there are %s", args[0], known)
	}
	host := hosts[args[0]]
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return err
	}
	c.Log.Info("paste this into " + host.where)
	if host.key == "" {
		var quoted []string
		for _, a := range c.Command {
			quoted = append(quoted, strconv.Quote(a))
		}
		_, err = fmt.Fprintf(c.Stdout, "[mcp_servers.browser]\ncommand = %s\nargs = [%s]\n", strconv.Quote(self), strings.Join(quoted, ", "))
	} else {
		type server struct {
			Type    string   `json:"type,omitempty"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
		}
		s := server{Command: self, Args: append([]string{}, c.Command...)}
		if args[0] == "vscode" {
			s.Type = "stdio"
		}
		enc := json.NewEncoder(c.Stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(map[string]any{host.key: map[string]any{"browser": s}})
	}
	if err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}
