package coordinator

import (
	"encoding/json"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/front"
)

// New implements Hosts.
func (c *Coordinator) New(send front.Send, shared bool) front.Host { return c.NewSession(send, shared) }

// TakesBatches implements Host.
func (s *Session) TakesBatches() bool {
	return jsonrpc.GetString(s.hostParams(), "protocolVersion") == mcp.Batching
}

// InputSchema implements Host.
func (s *Session) InputSchema(tool string, capabilities json.RawMessage) json.RawMessage {
	r, _ := s.tools(mcp.AudienceOf(capabilities)).Route(tool)
	return jsonrpc.Get(r.Tool, "inputSchema")
}
