package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/record"
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
// bmcp's own arguments, and --env its environment.
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
	env, err := environment(c)
	if err != nil {
		return err
	}
	if err := checkEntry(c, env); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return err
	}
	c.Log.Info("paste this into " + host.where)
	if host.key == "" {
		err = writeTOML(c.Stdout, self, c.Command, env)
	} else {
		type server struct {
			Type    string            `json:"type,omitempty"`
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env,omitempty"`
		}
		s := server{Command: self, Args: append([]string{}, c.Command...), Env: env}
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

// environment is what --env sets, by name.
func environment(c *cli.Context) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range c.StringSlice("env") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, c.UsageError("--env %s: K=V sets a variable", kv)
		}
		env[k] = v
	}
	return env, nil
}

// checkEntry refuses arguments and an environment that bmcp can't be run with.
// That a child is not there is only told: it may be where the host is.
func checkEntry(c *cli.Context, env map[string]string) error {
	var environ []string
	for k, v := range env {
		environ = append(environ, k+"="+v)
	}
	return c.Parse(c.Command, func(entry *cli.Context) error {
		if args := entry.Args(); len(args) > 0 {
			return entry.UsageError("%q is not an option of bmcp", args[0])
		}
		if err := conflicts(entry); err != nil {
			return err
		}
		all, err := children(entry)
		if err == nil {
			_, err = toolNames(entry, all)
		}
		var e *exit.Error
		if errors.As(err, &e) && (e.Code == exit.NotFound || e.Code == exit.CannotRun) {
			c.Log.Warn(err.Error())
			err = nil
		}
		if err != nil {
			return err
		}
		ch, err := choose(entry, environ)
		if err != nil || ch.service || ch.configured || entry.String("browser") == record.WebKit {
			return err
		}
		_, err = flags.ReadBrowser(entry)
		return err
	})
}

// writeTOML writes the entry as Codex has it.
func writeTOML(w io.Writer, self string, args []string, env map[string]string) error {
	var words, pairs []string
	for _, a := range args {
		words = append(words, strconv.Quote(a))
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, strconv.Quote(k)+" = "+strconv.Quote(env[k]))
	}
	text := fmt.Sprintf("[mcp_servers.browser]\ncommand = %s\nargs = [%s]\n", strconv.Quote(self),
		strings.Join(words, ", "))
	if len(pairs) > 0 {
		text += "env = { " + strings.Join(pairs, ", ") + " }\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
