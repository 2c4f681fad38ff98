package coordinator

import (
	"encoding/json"
	"testing"

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
