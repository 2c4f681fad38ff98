package coordinator

import (
	"encoding/json"

	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/front"
)

// New implements Hosts.
func (c *Coordinator) New(send front.Send, shared bool) front.Host { return c.NewSession(send, shared) }

// Cancel implements Host.
func (s *Session) Cancel(id json.RawMessage, why string) {
	s.apply(func(t *table) []effect { return t.Cancel(id, why) })
}

// Open implements Host.
func (s *Session) Open() (n int) {
	s.read(func(t *table) { n = t.Len() })
	return n
}

// TakesBatches implements Host.
func (s *Session) TakesBatches() bool {
	return jsonrpc.GetString(s.hostParams(), "protocolVersion") == mcp.Batching
}

// InputSchema implements Host.
func (s *Session) InputSchema(tool string, capabilities json.RawMessage) json.RawMessage {
	return jsonrpc.Get(s.tools(mcp.AudienceOf(capabilities)).routes[tool].tool, "inputSchema")
}

// Mute implements Host: what children have asked the host fails, and what they will.
func (s *Session) Mute() {
	var asks []serverRequest
	s.read(func(t *table) { asks = t.Mute() })
	for _, a := range asks {
		a.Child.in.Write(jsonrpc.Failure(a.ID, pending.ErrMuted), false)
	}
}
