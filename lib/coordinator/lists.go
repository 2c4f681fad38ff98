package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
	"btools/lib/results"
)

// listTools records the tools of a child and notifies the hosts whose lists
// change.
func (h *Host) listTools(child *child.Spec, to mcp.Audience, tools []json.RawMessage) {
	tools, changed, err := h.server.catalog.Update(child, to.Askable(h.hostParams()), tools)
	if err != nil {
		h.server.catalog.Failed(child, err)
		return
	}
	h.list.Set(child, to, tools)
	all := []*Host{h}
	if changed {
		h.server.mu.Lock()
		all = slices.Collect(maps.Keys(h.server.hosts))
		h.server.mu.Unlock()
	}
	for _, one := range all {
		one.toolsChanged()
	}
}

// toolsChanged notifies the hosts that have seen another list.
func (h *Host) toolsChanged() {
	changed := h.list.Changed()
	const method = "notifications/tools/list_changed"
	if changed[mcp.OfHandshake] && h.hostParams() != nil {
		h.send(nil, false, jsonrpc.Request(nil, method, nil))
	}
	h.subscribers(method, nil, func(req *request) bool { return changed[req.env.Audience] })
}

// resultList answers with a whole list.
func (req *request) resultList(member string, all []json.RawMessage) {
	req.result(jsonrpc.Set(nil, member, jsonrpc.Array(all)))
}

// resultTools answers with a list of tools, and why those of other children are missing.
func (req *request) resultTools(all []json.RawMessage) {
	result := jsonrpc.Set(nil, "tools", jsonrpc.Array(req.env.Tasks.Listed(all, bulkName)))
	if _, why := req.host.server.catalog.Missing(); why != "" {
		result = jsonrpc.Set(result, "_meta", jsonrpc.Set(nil, results.MetaMissing, jsonrpc.Quote(why)))
	}
	req.result(result)
}

// collect answers with bmcp's own items and the merged lists of all children that
// have the capability and answer in time.
func (req *request) collect(ctx context.Context, capability, member, name string, own ...json.RawMessage) {
	h := req.host
	some := h.having(ctx, capability)
	lists := make([][]json.RawMessage, len(some))
	failed := make([]bool, len(some))
	var wg sync.WaitGroup
	for i, child := range some {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, h.server.catalog.Patience(child))
			defer cancel()
			_, p, err := req.process(ctx, child)
			if err == nil {
				lists[i], err = p.Pages(ctx, req.Method, member)
			}
			h.server.catalog.Answers(child, !errors.Is(err, context.DeadlineExceeded))
			if err != nil {
				h.server.Log.Warn("child " + child.Name + " does not answer " + req.Method + ": " + err.Error())
				failed[i] = true
			}
		})
	}
	wg.Wait()
	all := append([]json.RawMessage{}, own...)
	owners := map[string]*child.Spec{}
	for i, child := range some {
		for _, item := range lists[i] {
			key := jsonrpc.GetString(item, name)
			if json.Valid(item) && (owners[key] == nil || owners[key] == child) {
				owners[key] = child
				all = append(all, item)
			}
		}
	}
	h.list.SetOwners(member, owners, func(child *child.Spec) bool {
		i := slices.Index(some, child)
		return i >= 0 && failed[i]
	})
	req.resultList(member, all)
}

// byOwner relays a request to the child with the resource or prompt: the one that
// has listed it, or else the first one that knows it.
func (req *request) byOwner(ctx context.Context, capability, name string) {
	some := req.host.ofOwner(ctx, capability, name)
	if len(some) == 1 {
		req.toChild(ctx, some[0])
		return
	}
	req.endTurn() // it is for several: others don't wait for their answers
	var last error = jsonrpc.Errorf(jsonrpc.MethodNotFound, "no child has %s", capability)
	for _, child := range some {
		sup, p, err := req.process(ctx, child)
		if err == nil {
			p.logs(req.Level)
			theirs := req.env.Era.ToChild(req.m)
			var result json.RawMessage
			if result, err = p.Call(ctx, req.Method, theirs.Params); err == nil {
				sup.note(req)
				req.result(result)
				return
			}
			var e *jsonrpc.Error
			if errors.As(err, &e) {
				e.Code = req.env.Era.Code(e.Code)
			}
		}
		last = err
	}
	req.fail(last)
}

// ofOwner returns the children that may have a resource or prompt: the one that
// has listed it, or else all with the capability.
func (h *Host) ofOwner(ctx context.Context, capability, name string) []*child.Spec {
	if owner := h.list.Owner(capability, name); owner != nil {
		return []*child.Spec{owner}
	}
	return h.having(ctx, capability)
}

// having returns the children with a capability, once all are initialized.
func (h *Host) having(ctx context.Context, capability string) []*child.Spec {
	h.server.catalog.Await(ctx, catalog.Initialized, h.server.Limits.Catalog.List)
	return h.server.catalog.Having(capability)
}

// subscribe subscribes a host of the stateless protocol to a resource, and
// returns the children that know it.
func (req *request) subscribe(ctx context.Context, uri string) (some []*supervisor) {
	for _, child := range req.host.ofOwner(ctx, "resources", uri) {
		sup, p, err := req.process(ctx, child)
		if err == nil && p.can("resources", "subscribe") {
			sup.subscribe(uri, 1)
			some = append(some, sup)
		}
	}
	return some
}
