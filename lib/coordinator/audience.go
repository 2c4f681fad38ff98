package coordinator

import (
	"encoding/json"
	"strconv"

	"btools/lib/jsonrpc"
)

// audience are the hosts that share the children of a session: the host that
// has begun it by a handshake, or, of the stateless protocol, all hosts that
// can be asked the same. A child speaks to one audience.
type audience string

const (
	// ofHandshake is the host that has begun the session by a handshake.
	ofHandshake audience = ""
	// askNothing are the hosts of the stateless protocol that can be asked
	// nothing; others are named by their capabilities.
	askNothing audience = "{}"
)

// askable is what children can ask an audience. Host are the parameters of its
// initialize, if it is that of the handshake.
func (to audience) askable(host json.RawMessage) string {
	if to != ofHandshake {
		return string(to)
	}
	return string(askable(jsonrpc.Get(host, "capabilities")))
}

// childParams are the parameters of a child's initialize: the host's, as the
// child is to offer it what it offers us.
func (to audience) childParams(host json.RawMessage, release string) json.RawMessage {
	params := host
	if to != ofHandshake {
		params = jsonrpc.Set(nil, "capabilities", json.RawMessage(to))
	}
	if v := jsonrpc.GetString(params, "protocolVersion"); v == "" || isNewer(v) {
		params = jsonrpc.Set(params, "protocolVersion", json.RawMessage(strconv.Quote(legacy)))
	}
	if jsonrpc.Get(params, "capabilities") == nil {
		params = jsonrpc.Set(params, "capabilities", json.RawMessage("{}"))
	}
	if jsonrpc.Get(params, "clientInfo") == nil {
		params = jsonrpc.Set(params, "clientInfo",
			json.RawMessage(`{"name":"bmcp","version":`+strconv.Quote(release)+`}`))
	}
	return params
}
