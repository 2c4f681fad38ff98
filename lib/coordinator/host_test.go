package coordinator

import (
	"encoding/json"
	"strings"
	"testing"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// A host of the protocol that has them may send batches, after its initialize.
func TestTakesBatches(t *testing.T) {
	for version, want := range map[string]bool{"": false, "2024-11-05": false, mcp.Batching: true, mcp.Legacy: false} {
		s := withChildren(t).NewHost(func(json.RawMessage, bool, []byte) {}, false)
		if version != "" {
			s.Handle(jsonrpc.Parse([]byte(`{"id":1,"method":"initialize","params":{"protocolVersion":"` +
				version + `"}}`)))
		}
		if got := s.TakesBatches(); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}

// The schema of a tool is that of the list which hosts of the capabilities are given.
func TestInputSchema(t *testing.T) {
	c := withChildren(t, "a")
	s := c.NewHost(func(json.RawMessage, bool, []byte) {}, true)
	s.listTools(&c.Children[0], mcp.AskNothing,
		[]json.RawMessage{json.RawMessage(`{"name":"known","inputSchema":{"type":"object"}}`)})
	for name, want := range map[string]string{"known": `{"type":"object"}`, "nonesuch": ""} {
		if got := string(s.InputSchema(name, json.RawMessage("{}"))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The sessions of a host are called as its program is, and nobody guesses their names.
func TestHostIsCalled(t *testing.T) {
	c := withChildren(t)
	host := func(shared bool, lines ...string) *Host {
		h := c.NewHost(func(json.RawMessage, bool, []byte) {}, shared)
		for _, line := range lines {
			h.Handle(jsonrpc.Parse([]byte(line)))
		}
		return h
	}
	initialize := func(program string) []string {
		return []string{`{"id":1,"method":"initialize","params":{"protocolVersion":"` + mcp.Legacy +
			`","clientInfo":{"name":"` + program + `"}}}`}
	}
	for want, h := range map[string]*Host{
		"claude-code":   host(false, initialize("claude-code")...),
		"visual-studio": host(false, initialize("Visual Studio Code")...),
		"mcp":           host(false, initialize("名前")...),
		"cursor": host(false, `{"id":1,"method":"tools/list","params":{"_meta":{"`+mcp.MetaVersion+`":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"Cursor"}}}}`),
	} {
		name := h.Name()
		called := api.Called(name)
		if !strings.HasPrefix(called, want+"-") || len(called) != len(want)+5 || len(name) != len(called)+27 ||
			len(name) > 46 || h.Name() != name {
			t.Errorf("%s is called %s, its sessions %s", want, called, name)
		}
	}
	if several := host(true, initialize("claude-code")...); !strings.HasPrefix(several.Name(), "mcp-") {
		t.Errorf("several hosts are called %s", several.Name())
	}
	h := c.NewNamed(api.NameOf("shop"), func(json.RawMessage, bool, []byte) {})
	if api.Called(h.(*Host).Name()) != "shop" {
		t.Errorf("a host with a name is called %s", h.(*Host).Name())
	}
}
