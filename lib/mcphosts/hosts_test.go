package mcphosts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"
)

var (
	local  = Entry{Command: "/bin/bmcp", Args: []string{"--mcp", `a "b"`}, Env: map[string]string{"A": "b=c"}}
	remote = Entry{URL: "http://127.0.0.1:8931/mcp", Token: true}
)

// What is in a file stays in it, byte by byte, around the entry.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ host, file string }{
		{"cursor", ""},
		{"cursor", "{}"},
		{"cursor", "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"b\"} // last\n  },\n  \"z\": 1\n}\n"},
		{"cursor", "{\"mcpServers\": {\"browser\": {\"command\": \"old\"}, \"a\": {}}}"},
		{"zed", "{\n  \"theme\": \"One\", /* c */\n  \"context_servers\": {\n    \"a\": {},\n  },\n}\n"},
		{"opencode", "{\"$schema\": \"s\"}"},
		{"codex", "model = \"m\" # mine\n\n[mcp_servers.a]\ncommand = \"b\"\n"},
		{"codex", "[mcp_servers.browser]\ncommand = \"old\"\nargs = []\n\n[other]\nx = 1\n"},
		{"goose", "# mine\nextensions:\n  a:\n    type: stdio\nGOOSE_MODE: auto\n"},
		{"goose", "GOOSE_MODE: auto\n"},
	} {
		h, _ := Find(x.host)
		for _, e := range []Entry{local, remote} {
			got, err := h.Merge([]byte(x.file), e)
			if err != nil {
				t.Fatalf("%s %q: %v", x.host, x.file, err)
			}
			pieces := strings.FieldsFunc(x.file, func(r rune) bool { return strings.ContainsRune("{}\n", r) })
			for _, kept := range pieces {
				if kept = strings.Trim(kept, " ,"); !strings.Contains(string(got), kept) &&
					!strings.Contains(kept, "old") && kept != `"browser":` && kept != "args = []" {
					t.Errorf("%s: %q is missing in\n%s", x.host, kept, got)
				}
			}
			want := e.Command
			if e.URL != "" {
				want = e.URL
			}
			if n := strings.Count(string(got), want); n != 1 || strings.Contains(string(got), "old") {
				t.Errorf("%s: the entry stands there %d times:\n%s", x.host, n, got)
			}
			switch {
			case h.keys != nil:
				v, err := hujson.Parse(got)
				if err != nil || x.host != "zed" && strings.Contains(string(v.Pack()), ",\n}") {
					t.Errorf("%s: %v\n%s", x.host, err, got)
				}
				standard, _ := hujson.Standardize(got)
				var all map[string]map[string]any
				json.Unmarshal(standard, &all) // of members that are no objects nothing
				if all[h.keys[0]][Name] == nil {
					t.Errorf("%s: no entry in\n%s", x.host, got)
				}
			case x.host == "codex":
				var all struct {
					Servers map[string]any `toml:"mcp_servers"`
				}
				if err := toml.Unmarshal(got, &all); err != nil || all.Servers[Name] == nil {
					t.Errorf("%v in\n%s", err, got)
				}
			}
			again, err := h.Merge(got, e)
			if err != nil || string(again) != string(got) {
				t.Errorf("%s: the second time, %v:\n%s\nnot\n%s", x.host, err, again, got)
			}
		}
	}
}

// What can't be read is refused, and nothing else is done with it.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	for host, file := range map[string]string{
		"cursor": `{"mcpServers": `, "vscode": `{"servers": []}`, "zed": `[]`, "codex": "a = \n",
		"goose": "extensions: {a: {}}\n",
	} {
		h, _ := Find(host)
		if got, err := h.Merge([]byte(file), local); err == nil {
			t.Errorf("%s takes %q: %s", host, file, got)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, h := range Hosts {
		link, ok := h.Link(local)
		if ok != (h.link != "") || ok && (!strings.HasPrefix(link, h.link) || strings.ContainsAny(link, " \"{")) {
			t.Errorf("%s: %q", h.Name, link)
		}
		if p, err := h.Path(); err != nil || strings.ContainsAny(p, "~") || strings.Contains(p, "CONFIG") {
			t.Errorf("%s: %q, %v", h.Name, p, err)
		}
	}
	if h, _ := Find("claude-desktop"); h.Check(remote) == nil || h.Check(local) != nil {
		t.Error("claude-desktop has no servers by address")
	}
}
