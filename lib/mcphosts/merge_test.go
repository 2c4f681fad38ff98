package mcphosts

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var (
	local  = Entry{Command: "/bin/bmcp", Args: []string{"--mcp", `a "b"`}, Env: map[string]string{"A": "b=c"}}
	remote = Entry{URL: "http://127.0.0.1:8931/mcp", Token: true}
)

// What local is in a file of each format.
const (
	inJSON = `"browser": {
      "command": "/bin/bmcp",
      "args": [
        "--mcp",
        "a \"b\""
      ],
      "env": {
        "A": "b=c"
      }
    }`
	inTOML = `command = "/bin/bmcp"
args = ["--mcp", "a \"b\""]
env = { "A" = "b=c" }
`
	inYAML = `  browser:
    name: browser
    enabled: true
    timeout: 300
    type: stdio
    cmd: "/bin/bmcp"
    args: ["--mcp", "a \"b\""]
    envs: {"A": "b=c"}
`
	old = "command = \"old\"\nargs = []\n"
)

// Everything else in a file stays, byte by byte.
func TestMerge(t *testing.T) {
	t.Parallel()
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	deeper := strings.ReplaceAll("\n"+strings.TrimSuffix(inYAML, "\n"), "\n", "\n  ")[1:] + "\n"
	for _, x := range []struct{ host, file, want string }{
		{"cursor", "", "{\n  \"mcpServers\": {\n    " + inJSON + "\n  }\n}\n"},
		{"cursor", "{}", "{\n  \"mcpServers\": {\n    " + inJSON + "\n  }\n}"},
		{"cursor",
			"{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"b\"} // last\n  },\n  \"z\": 1\n}\n",
			"{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"b\"}, // last\n    " + inJSON +
				"\n  },\n  \"z\": 1\n}\n"},
		{"cursor", `{"mcpServers": {"browser": {"command": "old"}, "a": {}}}`,
			`{"mcpServers": {` + inJSON + `, "a": {}}}`},
		// Of two with one name the last one counts.
		{"cursor", `{"mcpServers": {"browser": 1}, "mcpServers": {"browser": {}}}`,
			`{"mcpServers": {"browser": 1}, "mcpServers": {` + inJSON + `}}`},
		{"zed", "{\n  \"theme\": \"One\", /* c */\n  \"context_servers\": {\n    \"a\": {},\n  },\n}\n",
			"{\n  \"theme\": \"One\", /* c */\n  \"context_servers\": {\n    \"a\": {},\n    " + inJSON +
				",\n  },\n}\n"},

		{"codex", "m = \"m\" # mine\n\n[mcp_servers.a]\ncommand = \"b\"\n",
			"m = \"m\" # mine\n\n[mcp_servers.a]\ncommand = \"b\"\n\n[mcp_servers.browser]\n" + inTOML},
		{"codex", crlf("m = \"m\"\n"), crlf("m = \"m\"\n\n[mcp_servers.browser]\n" + inTOML)},
		{"codex", "[mcp_servers.browser]\n" + old + "\n# of other\n[other]\nx = 1\n",
			"[mcp_servers.browser]\n" + inTOML + "\n# of other\n[other]\nx = 1\n"},
		{"codex", "[mcp_servers.browser] # mine\n" + old, "[mcp_servers.browser] # mine\n" + inTOML},
		{"codex", " [mcp_servers.browser]\n" + old, " [mcp_servers.browser]\n" + inTOML},
		{"codex", "[mcp_servers.\"browser\"]\n" + old, "[mcp_servers.\"browser\"]\n" + inTOML},
		{"codex", "[mcp_servers . browser]\n" + old, "[mcp_servers . browser]\n" + inTOML},
		{"codex", "[mcp_servers.browser]", "[mcp_servers.browser]\n" + inTOML},
		{"codex", crlf("[mcp_servers.browser]\n" + old), crlf("[mcp_servers.browser]\n" + inTOML)},
		{"codex", "[mcp_servers.browser]\n" + old + "[mcp_servers.browser.env]\nX = \"1\"\n[mcp_servers.c]\n",
			"[mcp_servers.browser]\n" + inTOML + "[mcp_servers.c]\n"},

		{"goose", "# mine\nextensions:\n  a:\n    type: stdio\nGOOSE_MODE: auto\n",
			"# mine\nextensions:\n" + inYAML + "  a:\n    type: stdio\nGOOSE_MODE: auto\n"},
		{"goose", "extensions: # mine\n\n    # of a\n    a:\n        type: stdio\n",
			"extensions: # mine\n" + deeper + "\n    # of a\n    a:\n        type: stdio\n"},
		{"goose", "\"extensions\":\n  a: {}", "\"extensions\":\n" + inYAML + "  a: {}\n"},
		{"goose", "GOOSE_MODE: auto\nextensions:", "GOOSE_MODE: auto\nextensions:\n" + inYAML},
		{"goose", crlf("extensions:\n  a: {}\n"), crlf("extensions:\n" + inYAML + "  a: {}\n")},
		{"goose", "GOOSE_MODE: auto", "GOOSE_MODE: auto\nextensions:\n" + inYAML},
		{"goose", "# mine\n", "# mine\nextensions:\n" + inYAML},
	} {
		h, _ := Find(x.host)
		got, err := h.Merge([]byte(x.file), local)
		if err != nil || string(got) != x.want {
			t.Errorf("%s %q: %v\n%s\nwant\n%s", x.host, x.file, err, got, x.want)
		}
		for _, e := range []Entry{local, remote} {
			checkMerge(t, h, []byte(x.file), e)
		}
	}
}

// A file that cannot be parsed, or in which the entry would change something else, is refused.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ host, file, why string }{
		{"cursor", `{"mcpServers": `, "unexpected EOF"},
		{"cursor", `null`, "not an object"},
		{"vscode", `{"servers": []}`, "its servers is not an object"},
		{"zed", `[]`, "cannot unmarshal array"},
		{"codex", "a = \n", "expected value"},
		{"codex", "mcp_servers = 1\n", "its mcp_servers is not an object"},
		{"codex", "mcp_servers = { browser = { command = \"old\" } }\n", "form"},
		{"codex", "mcp_servers.browser.command = \"old\"\n", "form"},
		{"codex", "[mcp_servers]\nbrowser = { command = \"old\" }\n", "form"},
		{"codex", "[mcp_servers.browser.env]\nX = \"1\"\n", "form"},
		{"codex", "[mcp_servers.browser]\n[other]\n[mcp_servers.browser.env]\nX = \"1\"\n", "form"},
		{"codex", "x = '''\n[mcp_servers.browser]\n'''\n", "form"},
		{"goose", "extensions: {a: {}}\n", "form"},
		{"goose", "extensions: {}\n", "form"},
		{"goose", "extensions:\n- a\n", "its extensions is not an object"},
		{"goose", "extensions:\n  browser:\n    cmd: old\n", "it has a browser already"},
		{"goose", "extensions:\n  \"browser\":\n    cmd: old\n", "form"},
		{"goose", "{GOOSE_MODE: auto}\n", "form"},
		{"goose", "a: 1\n---\nb: 1\n", "more than one document"},
		{"goose", "a: 1\n...\n", "form"},
		{"goose", "a: |\n  text", "form"}, // which would get a line end
	} {
		h, _ := Find(x.host)
		if got, err := h.Merge([]byte(x.file), local); err == nil || !strings.Contains(err.Error(), x.why) {
			t.Errorf("%s %q: %v, want %q: %s", x.host, x.file, err, x.why, got)
		}
	}
	h, _ := Find("cursor")
	err := h.Check(Entry{Env: map[string]string{"A": "\xff"}})
	if err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a value that JSON cannot have: %v", err)
	}
}

func FuzzMergeJSON(f *testing.F) {
	fuzzMerge(f, "zed", "{}", `{"context_servers":{"browser":{"command":"old"},"a":null},"context_servers":{}}`,
		"{\n  \"a\": [1, 1e99], // c\n  \"context_servers\": {\n    \"b\": {}, /* c */\n  },\n}\n")
}

func FuzzMergeTOML(f *testing.F) {
	fuzzMerge(f, "codex", "a = 1 # c\n[b]\nc = '''\n[d]\n'''\n", "mcp_servers = { browser = { } }\n",
		"[mcp_servers . \"browser\"] # c\nx = [\n[1]]\r\n[mcp_servers.browser.env]\nY = 1979-05-27\n# c\n[[e]]\n")
}

func FuzzMergeYAML(f *testing.F) {
	fuzzMerge(f, "goose", "# c\nextensions: # c\n\n    a: &x\n      b: [c, 'd']\ne: |\n  f\ng: *x\n",
		"\"extensions\":\r\n  browser: {}\r\n---\n", "extensions: {a: {<<: b}}\n...\n", "? a\n: - b\n")
}

func fuzzMerge(f *testing.F, host string, files ...string) {
	h, _ := Find(host)
	for _, file := range files {
		f.Add([]byte(file), "x\x7fy\ax\u0085\ufeff\U0001f600", `"'\#`)
	}
	f.Fuzz(func(t *testing.T, file []byte, a, b string) {
		e := Entry{Command: a, Args: []string{b, a}, Env: map[string]string{a: b, b: a}}
		if h.Check(e) == nil {
			checkMerge(t, h, file, e)
		}
	})
}

// checkMerge checks a merge that is not refused: the result says what the file and the
// entry say, it stays the second time, and if there was no such entry, no byte is lost.
func checkMerge(t *testing.T, h Host, file []byte, e Entry) {
	input := bytes.Clone(file)
	got, err := h.Merge(file, e)
	if !bytes.Equal(file, input) {
		t.Fatalf("Merge has changed its input %q to %q", input, file)
	}
	if err != nil {
		return
	}
	before, was := without(t, h, input)
	after, entry := without(t, h, got)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%s %q: besides the entry %q says %v, not %v", h.Name, file, got, after, before)
	}
	if is, want := asJSON(t, entry), asJSON(t, said(h, e)); is != want {
		t.Errorf("%s %q: the entry in %q is %s, want %s", h.Name, file, got, is, want)
	}
	if again, err := h.Merge(got, e); err != nil || string(again) != string(got) {
		t.Errorf("%s: the second time, %v:\n%s\nnot\n%s", h.Name, err, again, got)
	}
	if was == nil && !isWithin(bytes.TrimSpace(input), got) {
		t.Errorf("%s: bytes of %q are missing in %q", h.Name, input, got)
	}
}

// without returns what a file says without the entry and objects that are empty then,
// and the entry.
func without(t *testing.T, h Host, file []byte) (rest map[string]any, entry any) {
	rest = map[string]any{}
	if len(bytes.TrimSpace(file)) == 0 {
		return rest, nil
	}
	parse, _ := h.format()
	all, err := parse(file)
	if err != nil {
		t.Fatalf("%s: %v in %q", h.Name, err, file)
	}
	if all == nil {
		return rest, nil
	}
	servers, _ := all[h.keys[0]].(map[string]any)
	entry = servers[Name]
	if delete(servers, Name); len(servers) == 0 {
		delete(all, h.keys[0])
	}
	return all, entry
}

// said returns what the entry is to say.
func said(h Host, e Entry) any {
	if h.text == nil {
		return h.entry(e)
	}
	m := map[string]any{}
	switch {
	case h.Name == "codex" && e.URL != "":
		m = map[string]any{"url": e.URL, "bearer_token_env_var": "BTOOLS_TOKEN"}
	case h.Name == "codex":
		m = map[string]any{"command": e.Command, "args": e.Args, "env": e.Env}
	case e.URL != "":
		m = map[string]any{"type": "streamable_http", "uri": e.URL,
			"headers": map[string]any{"Authorization": "Bearer TOKEN"}}
	default:
		m = map[string]any{"type": "stdio", "cmd": e.Command, "args": e.Args, "envs": e.Env}
	}
	if h.Name == "goose" {
		m["name"], m["enabled"], m["timeout"] = "browser", true, 300
	}
	return m
}

// asJSON returns a value as JSON, with the members of objects in order.
func asJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(b, &plain)
	}
	if err == nil {
		b, err = json.Marshal(plain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// isWithin reports whether all bytes of part are in whole, in their order.
func isWithin(part, whole []byte) bool {
	for _, b := range part {
		i := bytes.IndexByte(whole, b)
		if i < 0 {
			return false
		}
		whole = whole[i+1:]
	}
	return true
}
