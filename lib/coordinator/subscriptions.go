package coordinator

import (
	"context"
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// requireInput sends a child's request to the host as the answer to the request
// that the child is answering.
func (p *running) requireInput(m *jsonrpc.Message) {
	h := p.sup.host
	key := string(m.ID)
	if key[0] == '"' {
		json.Unmarshal(m.ID, &key)
	}
	params := slices.Clone(m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	question := jsonrpc.Set(jsonrpc.Set(nil, "params", params), "method", jsonrpc.Quote(m.Method))
	h.server.catalog.NoteAsks(p.sup.child)
	h.apply(func(t *table) []effect { return t.Ask(p, slices.Clone(m.ID), key, question) })
}

// resume continues a request that the host has repeated, and reports whether this
// is a repetition.
func (again *request) resume() bool {
	if again.env.State == "" {
		return false
	}
	var err error
	again.host.apply(func(t *table) (effects []effect) {
		effects, err = t.Repeat(&again.Request, again.env.State)
		return effects
	})
	if err != nil {
		again.fail(err)
	}
	return true
}

// listen acknowledges a subscription, which lasts until it is cancelled or the
// host ends.
func (req *request) listen(ctx context.Context) {
	h := req.host
	can, _ := h.server.capabilities(json.RawMessage(`{"tools":{}}`), false)
	agreed, uris := mcp.Agree(jsonrpc.Get(req.m.Params, "notifications"), can, h.server.Limits.Subscriptions)
	var over bool
	if h.read(func(t *table) { over = t.IsOver(&req.Request) }); over {
		return
	}
	h.send(req.ID, false, jsonrpc.Request(nil, "notifications/subscriptions/acknowledged",
		mcp.Tagged(req.ID, jsonrpc.Set(nil, "notifications", json.RawMessage(agreed)))))
	h.read(func(t *table) { t.Subscribe(&req.Request, json.RawMessage(agreed)) }) // what comes must come after that
	h.list.Watch(req.env.Audience)
	for _, uri := range uris {
		for _, sup := range req.subscribe(ctx, uri) {
			context.AfterFunc(ctx, func() { h.do(func() { sup.subscribe(uri, -1) }) })
		}
	}
}

// subscribers sends a notification to those who subscribed to it.
func (r *requests) subscribers(method string, params json.RawMessage, concerns func(*request) bool) {
	var some []*pendingRequest
	r.read(func(t *table) {
		some = t.Subscribers(func(one *pendingRequest, filter json.RawMessage) bool {
			return mcp.Filter(filter).Wants(method, params) && concerns(one.Value)
		})
	})
	for _, one := range some {
		r.send(one.ID, false, jsonrpc.Request(nil, method, mcp.Tagged(one.ID, params)))
	}
}

// endListening answers the subscriptions.
func (r *requests) endListening() {
	var some []*pendingRequest
	r.read(func(t *table) {
		some = t.Open(func(r *pendingRequest) bool { return r.Method == "subscriptions/listen" })
	})
	for _, one := range some {
		one.Value.result(mcp.Tagged(one.ID, json.RawMessage("{}")))
	}
}
