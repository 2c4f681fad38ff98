package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/wait"
)

// FromChild handles the requests and notifications of a child, in the order in
// which it sends them.
func (p *running) FromChild(m *jsonrpc.Message) {
	h := p.sup.host
	if m.IsRequest() {
		p.serve(m)
		return
	}
	switch m.Method {
	case "notifications/cancelled":
		var n int64
		var of json.RawMessage
		var sent bool
		h.read(func(t *table) { n, of, sent = t.TakeBack(p, jsonrpc.Get(m.Params, "requestId")) })
		if sent {
			h.noteAsked(of)
			h.send(nil, false, jsonrpc.Request(nil, m.Method,
				jsonrpc.Set(m.Params, "requestId", strconv.AppendInt(nil, n, 10))))
		}
	case "notifications/tools/list_changed":
		p.relist()
	case "notifications/progress":
		if token := jsonrpc.Get(m.Params, "progressToken"); token != nil {
			p.pass(m, false, func(r *pendingRequest) bool { return sameToken(r.Token, token) })
		}
	case "notifications/message":
		level := slices.Index(mcp.Levels, jsonrpc.GetString(m.Params, "level"))
		p.pass(m, true, func(r *pendingRequest) bool { return level >= r.Level })
	default:
		h.subscribers(m.Method, m.Params, func(*request) bool { return true })
		p.pass(m, true, func(r *pendingRequest) bool { return r.Value.env.Era.HasHandshake() })
	}
}

// sameToken reports whether two tokens of progress are the same: a child may write a
// text in another form.
func sameToken(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 || a[0] != '"' || b[0] != '"' {
		return string(a) == string(b)
	}
	var s, t string
	return json.Unmarshal(a, &s) == nil && json.Unmarshal(b, &t) == nil && s == t
}

// pass sends the host a notification as one of the request that it belongs to. A
// host of the stateless protocol gets no others, and no host progress of a request
// that the child has not. Guessed says that the notification does not name its
// request.
func (p *running) pass(m *jsonrpc.Message, guessed bool, belongs func(*pendingRequest) bool) {
	h := p.sup.host
	if !wait.Closed(h.initialized) {
		return
	}
	var to pending.Route
	var found bool
	h.read(func(t *table) { to, found = t.Route(p, guessed, belongs) })
	send := found || guessed && p.sup.audience == mcp.OfHandshake && h.hostParams() != nil
	if m.Method == "notifications/progress" && to.Repeated {
		send = to.Token != nil
		m = m.WithParams(jsonrpc.Set(m.Params, "progressToken", to.Token))
	}
	if send {
		host, m := related(to.To, m)
		h.send(host, false, m.Raw)
	}
}

// relist asks a child for its tools; if a tools/list is under way, another one
// follows it.
func (p *running) relist() {
	if p.listing.Swap(listChanged) == notListing {
		p.sup.host.do(p.refresh)
	}
}

// refresh asks a child for its tools, and repeats that while the child reports
// changes.
func (p *running) refresh() {
	h := p.sup.host
	for {
		p.listing.Store(isListing)
		ctx, cancel := context.WithTimeout(h.ctx, h.server.Limits.Start)
		tools, err := p.Pages(ctx, "tools/list", "tools")
		cancel()
		if err == nil && p.sup.listsPages() {
			h.listPages(p.sup, tools)
		} else if err == nil {
			h.listTools(p.sup.child, p.sup.audience, tools)
		} else if h.ctx.Err() == nil {
			h.server.catalog.Failed(p.sup.child, err)
		}
		if h.ctx.Err() != nil || p.Gone() != nil || p.listing.CompareAndSwap(isListing, notListing) {
			return
		}
		time.Sleep(20 * time.Millisecond) // several changes make one list
	}
}

// serve answers a request of a child, or has its audience answer it.
func (p *running) serve(m *jsonrpc.Message) {
	if m.Method == "ping" {
		p.Send(jsonrpc.Response(m.ID, json.RawMessage("{}")))
		return
	}
	need, ok := mcp.Needs[m.Method]
	switch {
	case p.sup.audience == mcp.OfHandshake:
		p.forwardToHost(m)
	case ok && jsonrpc.Get(json.RawMessage(p.sup.audience), need) != nil:
		p.requireInput(m)
	default:
		p.Send(jsonrpc.Failure(m.ID, errCannot(m)))
	}
}

// forwardToHost sends a child's request to the host, if the host can answer it.
func (p *running) forwardToHost(m *jsonrpc.Message) {
	h := p.sup.host
	need, ok := mcp.Needs[m.Method]
	can := jsonrpc.Get(h.hostParams(), "capabilities")
	meta := jsonrpc.Get(m.Params, "_meta")
	a := serverRequest{Child: p, ID: slices.Clone(m.ID), Token: slices.Clone(jsonrpc.Get(meta, "progressToken"))}
	var n int64
	var to json.RawMessage
	var err *jsonrpc.Error
	h.read(func(t *table) {
		n, to, err = t.AskDirectly(a, can != nil && (!ok || jsonrpc.Get(can, need) != nil), errCannot(m))
	})
	if err != nil {
		p.Send(jsonrpc.Failure(m.ID, err))
		return
	}
	own := strconv.AppendInt(nil, n, 10)
	if a.Token != nil { // children may choose the same tokens
		m = m.WithParams(jsonrpc.Set(m.Params, "_meta", jsonrpc.Set(meta, "progressToken", own)))
	}
	h.noteAsked(to)
	to, m = related(to, m)
	h.send(to, false, m.WithID(own))
}

func errCannot(m *jsonrpc.Message) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.MethodNotFound, "the host has no %s", m.Method)
}

// Ended cancels the server requests of a child that has ended; the next call
// starts the child again.
func (p *running) Ended(why error) {
	h := p.sup.host
	var open []int64
	var closed bool
	h.read(func(t *table) { open, closed = t.ChildEnded(p), t.Closed() })
	if closed {
		return
	}
	for _, n := range open {
		h.send(nil, false, jsonrpc.Request(nil, "notifications/cancelled",
			json.RawMessage(`{"requestId":`+strconv.FormatInt(n, 10)+`,"reason":"the child has ended"}`)))
	}
	p.sup.proc.Ended(p)
	h.setPages(p.sup, nil)
	if !errors.Is(why, errUnused) {
		h.server.Log.Warn(why.Error())
	}
}
