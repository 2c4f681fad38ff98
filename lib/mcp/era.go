// Package mcp is the Model Context Protocol as data: its versions, the names of its
// members, what a request says of itself, and the forms that answers and tasks have for
// each host. It has no connections and no state: the hosts of bmcp and its children are
// those of lib/coordinator. Tools and their results are the types of mcp-go.
package mcp

import (
	"encoding/json"
	"strconv"

	"btools/lib/jsonrpc"
)

// Era is the protocol of a request, where one differs from another.
type Era interface {
	// ToChild is a request as a child knows it.
	ToChild(m *jsonrpc.Message) *jsonrpc.Message
	// Result is the result of a method as the host knows it, Failure a child's
	// error, Code an error's code.
	Result(method string, result json.RawMessage) json.RawMessage
	Failure(method string, got *jsonrpc.Message) *jsonrpc.Message
	Code(code int) int
	// InputRequired is the result of a method that asks the host something; the
	// request has to be repeated with the key.
	InputRequired(method, key string, questions map[string]json.RawMessage) json.RawMessage
	// HasHandshake reports whether there is one host, which has begun the session by a
	// handshake. It is told what belongs to no request, and a method that we do not know
	// is for its only child.
	HasHandshake() bool
}

// Versions of the protocol.
const (
	// Legacy is the newest one with a handshake: what children are spoken to in,
	// at most.
	Legacy = "2025-11-25"
	// Batching is the one that has batches: arrays of messages. It is the only
	// one.
	Batching = "2025-03-26"
)

// IsNewer reports whether a version of the protocol has no handshake.
func IsNewer(version string) bool { return version > Legacy }

// handshake is the era of the protocols that begin with initialize: those
// that children are spoken to in.
type handshake struct{}

func (handshake) ToChild(m *jsonrpc.Message) *jsonrpc.Message             { return m }
func (handshake) Result(_ string, result json.RawMessage) json.RawMessage { return result }
func (handshake) Failure(_ string, got *jsonrpc.Message) *jsonrpc.Message { return got }
func (handshake) Code(code int) int                                       { return code }

// InputRequired is never called: its hosts are asked directly.
func (handshake) InputRequired(string, string, map[string]json.RawMessage) json.RawMessage {
	return nil
}

func (handshake) HasHandshake() bool { return true }

// Stateless is that of the stateless protocol.
type stateless struct {
	us  json.RawMessage // what bmcp is
	uri string          // of the resource of the request; "": it has none
}

// ToChild is the request as a child of the protocol before knows it.
func (d stateless) ToChild(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	meta := jsonrpc.Get(params, "_meta")
	for _, name := range []string{MetaVersion, MetaCapabilities, metaLogLevel, "io.modelcontextprotocol/clientInfo"} {
		meta = jsonrpc.Delete(meta, name)
	}
	params = jsonrpc.Set(params, "_meta", meta)
	for _, name := range []string{"inputResponses", "requestState", "task"} {
		params = jsonrpc.Delete(params, name)
	}
	return m.WithParams(params)
}

func (d stateless) Result(method string, result json.RawMessage) json.RawMessage {
	setDefault := func(object json.RawMessage, name, value string) json.RawMessage {
		if jsonrpc.Get(object, name) != nil {
			return object
		}
		return jsonrpc.Set(object, name, json.RawMessage(value))
	}
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read":
		result = setDefault(setDefault(result, "cacheScope", `"private"`), "ttlMs", "0")
	}
	meta := setDefault(jsonrpc.Get(result, "_meta"), metaServer, string(d.us))
	return setDefault(jsonrpc.Set(result, "_meta", meta), "resultType", `"complete"`)
}

// Failure returns an error about a resource as this protocol has it: it names the resource.
func (d stateless) Failure(method string, got *jsonrpc.Message) *jsonrpc.Message {
	code, err := strconv.Atoi(string(jsonrpc.Get(got.Error, "code")))
	if method != "resources/read" || err != nil || d.Code(code) != jsonrpc.InvalidParams {
		return got
	}
	e := jsonrpc.Set(got.Error, "code", strconv.AppendInt(nil, int64(d.Code(code)), 10))
	if jsonrpc.Get(e, "data") == nil && d.uri != "" {
		e = jsonrpc.Set(e, "data", jsonrpc.Set(nil, "uri", jsonrpc.Quote(d.uri)))
	}
	other, _ := jsonrpc.Parse(jsonrpc.Set(got.Raw, "error", e))
	return other
}

func (d stateless) Code(code int) int {
	if code == LegacyNotFound {
		return jsonrpc.InvalidParams
	}
	return code
}

func (d stateless) InputRequired(method, key string, questions map[string]json.RawMessage) json.RawMessage {
	requests := json.RawMessage("{}")
	for name, question := range questions {
		requests = jsonrpc.Set(requests, name, question)
	}
	result := jsonrpc.Set(jsonrpc.Set(nil, "requestState", jsonrpc.Quote(key)), "inputRequests", requests)
	return d.Result(method, jsonrpc.Set(result, "resultType", json.RawMessage(`"input_required"`)))
}

func (d stateless) HasHandshake() bool { return false }

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
