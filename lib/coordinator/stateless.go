package coordinator

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
)

// stateless is the newest protocol. It has no handshake: each request states what
// its host can do. A child's request to the host becomes the answer to the host's
// request, which the host repeats with its input.
const stateless = "2026-07-28"

// Error codes of the stateless protocol.
const (
	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
	legacyNotFound     = -32002 // of a resource, in the protocols before it
)

// Members of _meta.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// levels are those of log messages, the least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// isStateless reports whether a request is of the stateless protocol, by what it
// says of itself or by its method.
func isStateless(m *jsonrpc.Message) bool {
	return m.Method == "server/discover" || m.Method == "subscriptions/listen" ||
		isNewer(jsonrpc.GetString(m.Params, "_meta", metaVersion))
}

// checkMeta returns an error if a request of the stateless protocol lacks what it
// has to state.
func checkMeta(m *jsonrpc.Message) error {
	meta := jsonrpc.Get(m.Params, "_meta")
	if jsonrpc.GetString(meta, metaVersion) == "" {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing", metaVersion)
	}
	if caps := jsonrpc.Get(meta, metaCapabilities); len(caps) == 0 || caps[0] != '{' {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing, or no object",
			metaCapabilities)
	}
	return nil
}

// checkVersion returns an error for an unsupported version.
func checkVersion(m *jsonrpc.Message) error {
	asked := jsonrpc.GetString(m.Params, "_meta", metaVersion)
	if asked == stateless {
		return nil
	}
	e := jsonrpc.Errorf(unsupportedVersion, "the protocol version %q is not spoken here", asked)
	e.Data, _ = json.Marshal(map[string]any{"supported": []string{stateless}, "requested": asked})
	return e
}

// subject returns the name of what a request is about.
func subject(m *jsonrpc.Message) string {
	if m.Method == "resources/read" {
		return jsonrpc.GetString(m.Params, "uri")
	}
	return jsonrpc.GetString(m.Params, "name")
}

// askable are the capabilities of a host that children may use. Others are left
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
	return out
}

// requireInput sends a child's request to the host as the answer to the request
// that the child is answering.
func (s *Session) requireInput(p *process, m *jsonrpc.Message) {
	key := string(m.ID)
	if key[0] == '"' {
		json.Unmarshal(m.ID, &key)
	}
	params := slices.Clone(m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	question := jsonrpc.Set(jsonrpc.Set(nil, "params", params), "method", jsonrpc.Quote(m.Method))
	s.c.noteAsks(p.child)
	s.apply(func(t *table) []effect { return t.Ask(p, slices.Clone(m.ID), key, question) })
}

// resume continues a request that the host has repeated, and reports whether this
// is a repetition.
func (s *Session) resume(m *jsonrpc.Message, again *request) bool {
	state := jsonrpc.GetString(m.Params, "requestState")
	if state == "" {
		return false
	}
	var err error
	s.apply(func(t *table) (effects []effect) {
		effects, err = t.Repeat(&again.Request, state)
		return effects
	})
	if err != nil {
		s.fail(again, err)
	}
	return true
}

// listen acknowledges a subscription, which lasts until it is cancelled or the
// session ends.
func (s *Session) listen(ctx context.Context, req *request, m *jsonrpc.Message) {
	want := jsonrpc.Get(m.Params, "notifications")
	can, _ := s.c.capabilities(json.RawMessage(`{"tools":{}}`))
	agreed := json.RawMessage("{}")
	for name, capability := range map[string]string{"toolsListChanged": "tools", "promptsListChanged": "prompts",
		"resourcesListChanged": "resources"} {
		if string(jsonrpc.Get(want, name)) == "true" && jsonrpc.Get(can, capability) != nil {
			agreed = jsonrpc.Set(agreed, name, json.RawMessage("true"))
		}
	}
	var uris []json.RawMessage
	if jsonrpc.Get(can, "resources", "subscribe") != nil {
		uris = slices.Collect(upTo(s.c.Limits.Subscriptions,
			jsonrpc.Elements(jsonrpc.Get(want, "resourceSubscriptions"))))
	}
	if len(uris) > 0 {
		agreed = jsonrpc.Set(agreed, "resourceSubscriptions", jsonrpc.Array(uris))
	}
	var over bool
	if s.read(func(t *table) { over = t.IsOver(&req.Request) }); over {
		return
	}
	s.send(req.ID, false, jsonrpc.Request(nil, "notifications/subscriptions/acknowledged",
		tagged(req.ID, jsonrpc.Set(nil, "notifications", agreed))))
	s.read(func(t *table) { t.Subscribe(&req.Request, slices.Clone(agreed)) }) // what comes must come after that
	s.lists.watch(req.audience)
	for _, raw := range uris {
		var uri string
		if json.Unmarshal(raw, &uri) != nil {
			continue
		}
		for _, sup := range s.subscribe(ctx, uri) {
			context.AfterFunc(ctx, func() { s.do(func() { sup.subscribe(uri, -1) }) })
		}
	}
}

// upTo are the first values of a sequence.
func upTo[V any](n int, all iter.Seq[V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		left := n
		for v := range all {
			if left--; left < 0 || !yield(v) {
				return
			}
		}
	}
}

// tagged returns a notification's parameters with the ID of the subscription.
func tagged(id, params json.RawMessage) json.RawMessage {
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), metaSubscription, id))
}

// subscribers sends a notification to those who subscribed to it.
func (s *Session) subscribers(method string, params json.RawMessage, concerns func(*request) bool) {
	uri := jsonrpc.GetString(params, "uri")
	wants := func(filter json.RawMessage) bool {
		switch method {
		case "notifications/tools/list_changed":
			return jsonrpc.Get(filter, "toolsListChanged") != nil
		case "notifications/prompts/list_changed":
			return jsonrpc.Get(filter, "promptsListChanged") != nil
		case "notifications/resources/list_changed":
			return jsonrpc.Get(filter, "resourcesListChanged") != nil
		case "notifications/resources/updated":
			for v := range jsonrpc.Elements(jsonrpc.Get(filter, "resourceSubscriptions")) {
				var subscribed string
				json.Unmarshal(v, &subscribed)
				part, ok := strings.CutPrefix(uri, subscribed) // it, or what is below it
				if ok && subscribed != "" && (part == "" || strings.ContainsAny(part[:1], "/?#")) {
					return true
				}
			}
		}
		return false
	}
	var some []*pendingRequest
	s.read(func(t *table) {
		some = t.Subscribers(func(r *pendingRequest, filter json.RawMessage) bool {
			return wants(filter) &&
				concerns(r.Value)
		})
	})
	for _, r := range some {
		s.send(r.ID, false, jsonrpc.Request(nil, method, tagged(r.ID, params)))
	}
}

// endListening answers the subscriptions.
func (s *Session) endListening() {
	var some []*pendingRequest
	s.read(func(t *table) {
		some = t.Open(func(r *pendingRequest) bool { return r.Method == "subscriptions/listen" })
	})
	for _, r := range some {
		s.result(r.Value, tagged(r.ID, json.RawMessage("{}")))
	}
}
