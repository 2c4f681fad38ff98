// Package mcphosts knows how each host of MCP wants to be told of bmcp: the entry
// in its configuration, the file that it stands in, and its links. It makes and
// merges texts; lib/coordinator/command checks and writes them.
package mcphosts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is what the entry is called.
const Name = "browser"

// Entry is how a host runs bmcp, or reaches it at URL.
type Entry struct {
	Command string
	Args    []string
	Env     map[string]string
	URL     string // of a bmcp that runs with --http; "" for one that the host runs
	Token   bool   // it asks for a token
}

// token stands in an entry for the token, which is nobody's to print.
const token = "TOKEN"

// Host is a program that runs agents.
type Host struct {
	Name string
	// file is where its configuration is, from the working directory, the home
	// directory (~) or the user's configuration directory (CONFIG).
	file string
	// keys lead to the servers.
	keys []string
	// entry is what stands there in JSON.
	entry func(Entry) any
	// text is the whole entry in another format.
	text func(Entry) string
	// link is the prefix of a link that adds the entry, "" if it has none.
	link string
}

// Hosts are those that are known, by name.
var Hosts = []Host{
	{Name: "claude-code", file: ".mcp.json", keys: servers, entry: typed("", "http", "url")},
	{Name: "claude-desktop", file: "CONFIG/Claude/claude_desktop_config.json", keys: servers,
		entry: typed("", "", "")},
	{Name: "cline", file: "~/.cline/data/settings/cline_mcp_settings.json", keys: servers,
		entry: typed("", "streamableHttp", "url")},
	{Name: "codex", file: "~/.codex/config.toml", keys: []string{"mcp_servers"}, text: codex},
	{Name: "cursor", file: ".cursor/mcp.json", keys: servers, entry: typed("", "", "url"),
		link: "cursor://anysphere.cursor-deeplink/mcp/install?name=" + Name + "&config="},
	{Name: "gemini-cli", file: "~/.gemini/settings.json", keys: servers, entry: typed("", "", "httpUrl")},
	{Name: "goose", file: "~/.config/goose/config.yaml", keys: []string{"extensions"}, text: goose},
	{Name: "lm-studio", file: "~/.lmstudio/mcp.json", keys: servers, entry: typed("", "", "url"),
		link: "lmstudio://add_mcp?name=" + Name + "&config="},
	{Name: "opencode", file: "opencode.json", keys: []string{"mcp"}, entry: opencode},
	{Name: "vscode", file: ".vscode/mcp.json", keys: []string{"servers"}, entry: typed("stdio", "http", "url"),
		link: "vscode:mcp/install?"},
	{Name: "windsurf", file: "~/.codeium/windsurf/mcp_config.json", keys: servers, entry: typed("", "", "serverUrl")},
	{Name: "zed", file: "~/.config/zed/settings.json", keys: []string{"context_servers"},
		entry: typed("", "", "url")},
}

var servers = []string{"mcpServers"}

// Find returns the host with that name.
func Find(name string) (Host, bool) {
	i := slices.IndexFunc(Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return Host{}, false
	}
	return Hosts[i], true
}

// Names are those of all hosts, sorted.
func Names() (names []string) {
	for _, h := range Hosts {
		names = append(names, h.Name)
	}
	return names
}

// Where says to a person where the entry is to stand.
func (h Host) Where() string {
	if path, err := h.Path(); err == nil && strings.HasPrefix(h.file, "CONFIG/") {
		return path
	}
	return strings.TrimPrefix(h.file, "CONFIG/")
}

// Path is the file that the entry is to stand in.
func (h Host) Path() (string, error) {
	rest, ofHome := strings.CutPrefix(h.file, "~/")
	if ofHome {
		home, err := os.UserHomeDir()
		return filepath.Join(home, filepath.FromSlash(rest)), err
	}
	rest, ofConfig := strings.CutPrefix(h.file, "CONFIG/")
	if ofConfig {
		dir, err := os.UserConfigDir()
		return filepath.Join(dir, filepath.FromSlash(rest)), err
	}
	return filepath.FromSlash(h.file), nil
}

// Check reports what the host can't have.
func (h Host) Check(e Entry) error {
	if e.URL != "" && h.entry != nil && h.entry(e) == nil {
		return fmt.Errorf("%s starts its servers itself: leave out --http", h.Name)
	}
	words := slices.Concat(e.Args, []string{e.Command, e.URL}, slices.Sorted(maps.Keys(e.Env)),
		slices.Sorted(maps.Values(e.Env)))
	for _, w := range words {
		if !utf8.ValidString(w) {
			return fmt.Errorf("%q is not UTF-8, and the file of %s can have no other text", w, h.Name)
		}
	}
	return nil
}

// Text is the whole entry, to be pasted.
func (h Host) Text(e Entry) string {
	if h.text != nil {
		return h.text(e)
	}
	var all any = map[string]any{Name: h.entry(e)}
	for _, k := range slices.Backward(h.keys) {
		all = map[string]any{k: all}
	}
	return indented(all, "")
}

// Link is a link that adds the entry to the host; false if it knows none.
func (h Host) Link(e Entry) (string, bool) {
	switch {
	case h.link == "":
		return "", false
	case strings.HasPrefix(h.link, "vscode:"):
		server := map[string]any{"name": Name}
		b, _ := json.Marshal(h.entry(e))
		json.Unmarshal(b, &server)
		b, _ = json.Marshal(server)
		return h.link + url.QueryEscape(string(b)), true
	}
	b, _ := json.Marshal(h.entry(e))
	return h.link + url.QueryEscape(base64.StdEncoding.EncodeToString(b)), true
}

// indented is a value as people read it.
func indented(v any, prefix string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent(prefix, "  ")
	enc.SetEscapeHTML(false)
	enc.Encode(v)
	return b.String()
}

// typed is the entry of most hosts, with their words for a type and an address;
// a host without a word for the address runs its servers itself.
func typed(stdio, http, address string) func(Entry) any {
	type run struct {
		Type    string            `json:"type,omitempty"`
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env,omitempty"`
	}
	return func(e Entry) any {
		switch {
		case e.URL == "":
			return run{stdio, e.Command, append([]string{}, e.Args...), e.Env}
		case address == "":
			return nil
		}
		m := map[string]any{address: e.URL}
		if http != "" {
			m["type"] = http
		}
		if e.Token {
			m["headers"] = map[string]string{"Authorization": "Bearer " + token}
		}
		return m
	}
}

func opencode(e Entry) any {
	if e.URL != "" {
		m := map[string]any{"type": "remote", "url": e.URL, "enabled": true}
		if e.Token {
			m["headers"] = map[string]string{"Authorization": "Bearer " + token}
		}
		return m
	}
	return struct {
		Type    string            `json:"type"`
		Command []string          `json:"command"`
		Env     map[string]string `json:"environment,omitempty"`
		Enabled bool              `json:"enabled"`
	}{"local", append([]string{e.Command}, e.Args...), e.Env, true}
}

// codex returns the entry in TOML.
func codex(e Entry) string {
	text := "[mcp_servers." + Name + "]\n"
	if e.URL != "" {
		text += "url = " + quote(e.URL) + "\n"
		if e.Token {
			text += "bearer_token_env_var = \"BTOOLS_TOKEN\"\n"
		}
		return text
	}
	text += fmt.Sprintf("command = %s\nargs = [%s]\n", quote(e.Command), quoted(e.Args))
	if len(e.Env) > 0 {
		text += "env = { " + pairs(e.Env, " = ") + " }\n"
	}
	return text
}

// goose returns the entry in YAML.
func goose(e Entry) string {
	text := "extensions:\n  " + Name + ":\n    name: " + Name + "\n    enabled: true\n    timeout: 300\n"
	if e.URL != "" {
		text += "    type: streamable_http\n    uri: " + quote(e.URL) + "\n"
		if e.Token {
			text += "    headers: {\"Authorization\": \"Bearer " + token + "\"}\n"
		}
		return text
	}
	text += fmt.Sprintf("    type: stdio\n    cmd: %s\n    args: [%s]\n", quote(e.Command), quoted(e.Args))
	if len(e.Env) > 0 {
		text += "    envs: {" + pairs(e.Env, ": ") + "}\n"
	}
	return text
}

// quote returns a string as JSON, TOML and YAML all write it.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r <= 0xffff && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, quote(w))
	}
	return strings.Join(all, ", ")
}

// pairs returns the names and values in the order of the names.
func pairs(of map[string]string, between string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, quote(k)+between+quote(of[k]))
	}
	return strings.Join(all, ", ")
}
