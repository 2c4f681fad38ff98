package coordinator

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
)

// stateless is the newest protocol: it has no handshake, each request says
// what its host can do. What a child asks meanwhile is the answer to the
// request, which the host makes again with what it is asked for.
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

// checkMeta refuses a request of the stateless protocol that does not say what
// it has to.
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

// checkVersion refuses a version that is not spoken.
func checkVersion(m *jsonrpc.Message) error {
	asked := jsonrpc.GetString(m.Params, "_meta", metaVersion)
	if asked == stateless {
		return nil
	}
	e := jsonrpc.Errorf(unsupportedVersion, "the protocol version %q is not spoken here", asked)
	e.Data, _ = json.Marshal(map[string]any{"supported": []string{stateless}, "requested": asked})
	return e
}

// subject is the name of what a request is about.
func subject(m *jsonrpc.Message) string {
	if m.Method == "resources/read" {
		return jsonrpc.GetString(m.Params, "uri")
	}
	return jsonrpc.GetString(m.Params, "name")
}

// askable are those of a host's capabilities that a child may make use of: no
// others, as each other set is another child.
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

// askLater has the host asked what a child asks, by the answer to the request
// that the child is answering.
func (s *Session) askLater(p *process, m *jsonrpc.Message) {
	key := string(m.ID)
	if key[0] == '"' {
		json.Unmarshal(m.ID, &key)
	}
	params := slices.Clone(m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	question := jsonrpc.Set(jsonrpc.Set(nil, "params", params), "method", quote(m.Method))
	p.curious.Store(true)
	s.apply(func(t *table) []effect { return t.Ask(p, slices.Clone(m.ID), key, question) })
}

// resume goes on with a request that has come again, and reports whether it
// is one.
func (s *Session) resume(m *jsonrpc.Message, again *flight) bool {
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
func (s *Session) listen(ctx context.Context, f *flight, m *jsonrpc.Message) {
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
	if s.read(func(t *table) { over = t.IsOver(&f.Request) }); over {
		return
	}
	s.send(f.ID, false, jsonrpc.Request(nil, "notifications/subscriptions/acknowledged",
		tagged(f.ID, jsonrpc.Set(nil, "notifications", agreed))))
	s.read(func(t *table) { t.Subscribe(&f.Request, slices.Clone(agreed)) }) // what comes must come after that
	s.lists.watch(f.audience)
	for _, raw := range uris {
		var uri string
		if json.Unmarshal(raw, &uri) != nil {
			continue
		}
		for _, k := range s.subscribe(ctx, uri) {
			context.AfterFunc(ctx, func() { s.do(func() { k.subscribe(uri, -1) }) })
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

// tagged are a notification's parameters with the subscription that it is for.
func tagged(id, params json.RawMessage) json.RawMessage {
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), metaSubscription, id))
}

// subscribers tells those that listen to such a notification.
func (s *Session) subscribers(method string, params json.RawMessage, concerns func(*flight) bool) {
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
	var some []*request
	s.read(func(t *table) {
		some = t.Subscribers(func(r *request, filter json.RawMessage) bool {
			return wants(filter) &&
				concerns(r.Value)
		})
	})
	for _, r := range some {
		s.send(r.ID, false, jsonrpc.Request(nil, method, tagged(r.ID, params)))
	}
}

// endListening answers those that listen.
func (s *Session) endListening() {
	var some []*request
	s.read(func(t *table) {
		some = t.Open(func(r *request) bool { return r.Method == "subscriptions/listen" })
	})
	for _, r := range some {
		s.result(r.Value, tagged(r.ID, json.RawMessage("{}")))
	}
}
