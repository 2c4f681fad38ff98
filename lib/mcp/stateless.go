package mcp

import (
	"encoding/json"

	"btools/lib/jsonrpc"
)

// Stateless is the newest protocol. It has no handshake: each request states what
// its host can do. A child's request to the host becomes the answer to the host's
// request, which the host repeats with its input.
const Stateless = "2026-07-28"

// Error codes of the stateless protocol.
const (
	HeaderMismatch     = -32020
	MissingCapability  = -32021
	UnsupportedVersion = -32022
	LegacyNotFound     = -32002 // of a resource, in the protocols before it
)

// Members of _meta.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Levels are those of log messages, the least severe first.
var Levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// IsStateless reports whether a request is of the stateless protocol, by what it
// says of itself or by its method.
func IsStateless(m *jsonrpc.Message) bool {
	return isStateless(m.Method, jsonrpc.GetString(m.Params, "_meta", MetaVersion))
}

func isStateless(method, version string) bool {
	return method == "server/discover" || method == "subscriptions/listen" || IsNewer(version)
}

// Tagged returns a notification's parameters with the ID of the subscription.
func Tagged(id, params json.RawMessage) json.RawMessage {
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), MetaSubscription, id))
}
