package coordinator

import (
	"encoding/json"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/front"
)

// New implements Hosts.
func (s *Server) New(send front.Send, shared bool) front.Host { return s.NewHost(send, shared) }

// TakesBatches implements Host.
func (h *Host) TakesBatches() bool {
	return jsonrpc.GetString(h.hostParams(), "protocolVersion") == mcp.Batching
}

// InputSchema implements Host.
func (h *Host) InputSchema(tool string, capabilities json.RawMessage) json.RawMessage {
	r, _ := h.tools(mcp.AudienceOf(capabilities)).Route(tool)
	return jsonrpc.Get(r.Tool, "inputSchema")
}
