package mcp

import (
	"encoding/json"
	"strconv"

	"btools/lib/jsonrpc"
)

// Audience are the hosts that share the children of a session: the host that
// has begun it by a handshake, or, of the stateless protocol, all hosts that
// can be asked the same. A child speaks to one audience.
type Audience string

const (
	// OfHandshake is the host that has begun the session by a handshake.
	OfHandshake Audience = ""
	// AskNothing is the class of stateless hosts without sampling, elicitation
	// or roots; others are named by their capabilities.
	AskNothing Audience = "{}"
)

// AudienceOf returns the audience of a host of the stateless protocol.
func AudienceOf(capabilities json.RawMessage) Audience { return Audience(askable(capabilities)) }

// Askable is what children can ask an audience. Host are the parameters of its
// initialize, if it is that of the handshake.
func (to Audience) Askable(host json.RawMessage) string {
	if to != OfHandshake {
		return string(to)
	}
	return string(askable(jsonrpc.Get(host, "capabilities")))
}

// ChildParams are the parameters of a child's initialize: the host's, as the child is to
// offer the host what it offers bmcp. Us is what bmcp is, for a host that does not name
// itself.
func (to Audience) ChildParams(host, us json.RawMessage) json.RawMessage {
	params := host
	if to != OfHandshake {
		params = jsonrpc.Set(nil, "capabilities", json.RawMessage(to))
	}
	if v := jsonrpc.GetString(params, "protocolVersion"); v == "" || IsNewer(v) {
		params = jsonrpc.Set(params, "protocolVersion", json.RawMessage(strconv.Quote(Legacy)))
	}
	if jsonrpc.Get(params, "capabilities") == nil {
		params = jsonrpc.Set(params, "capabilities", json.RawMessage("{}"))
	}
	if jsonrpc.Get(params, "clientInfo") == nil {
		params = jsonrpc.Set(params, "clientInfo", jsonrpc.Delete(us, "title"))
	}
	return params
}

// askable returns the capabilities of a host that children may use. Others are left
// out, as each set of capabilities needs children of its own.
func askable(caps json.RawMessage) json.RawMessage {
	out := json.RawMessage("{}")
	for _, can := range []struct {
		name  string
		parts []string
	}{{"sampling", []string{"tools", "context"}}, {"roots", nil}, {"elicitation", []string{"url", "form"}}} {
		has := jsonrpc.Get(caps, can.name)
		if len(has) == 0 || has[0] != '{' {
			continue
		}
		parts := json.RawMessage("{}")
		for _, part := range can.parts {
			if jsonrpc.Get(has, part) != nil {
				parts = jsonrpc.Set(parts, part, json.RawMessage("{}"))
			}
		}
		out = jsonrpc.Set(out, can.name, parts)
	}
	if HasApps(caps) {
		out = jsonrpc.Set(out, "extensions", jsonrpc.Set(nil, AppsExtension, json.RawMessage(`{"mimeTypes":["`+AppType+
			`"]}`)))
	}
	return out
}

const (
	// AppsExtension is the capability of hosts that show MCP Apps.
	AppsExtension = "io.modelcontextprotocol/ui"
	// AppType is the type of the page of one.
	AppType = "text/html;profile=mcp-app"
)

// HasApps reports whether a host with these capabilities shows MCP Apps.
func HasApps(caps json.RawMessage) bool {
	for t := range jsonrpc.Elements(jsonrpc.Get(caps, "extensions", AppsExtension, "mimeTypes")) {
		if jsonrpc.String(t) == AppType {
			return true
		}
	}
	return false
}

// Needs are the capabilities that a host needs to answer the requests of children, by
// method.
var Needs = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation",
	"roots/list": "roots"}
