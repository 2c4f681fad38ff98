package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
	"btools/lib/results"
	"btools/lib/spell"
	"btools/lib/tools"
)

// noticeAfter is the delay before a message says what is being waited for.
const noticeAfter = 2 * time.Second

// levels are the log levels of MCP.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// wrongParams returns an error for a level of logs that is none, and for a cursor of a list: no list here
// has a second page but that of tasks.
func wrongParams(m *jsonrpc.Message) error {
	cursor := jsonrpc.GetString(m.Params, "cursor")
	switch m.Method {
	case "logging/setLevel":
		if level := jsonrpc.GetString(m.Params, "level"); !slices.Contains(levels, level) {
			return jsonrpc.Errorf(jsonrpc.InvalidParams, "level must be one of %s, not %q", strings.Join(levels, ", "),
				level)
		}
	case "tools/list", "resources/list", "resources/templates/list", "prompts/list":
		if cursor != "" {
			return jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no page %q of the list: it has one page", cursor)
		}
	}
	return nil
}

// serve answers a request.
func (h *Host) serve(ctx context.Context, req *request) {
	if err := wrongParams(req.m); err != nil {
		req.fail(err)
		return
	}
	switch m := req.m; m.Method {
	case "server/discover":
		result, err := h.ourAnswer(req)
		if err != nil {
			req.fail(err)
			return
		}
		h.introduce(req, result)
	case "subscriptions/listen":
		req.listen(ctx)
	case "tools/list":
		h.startAll(req.env.Audience, false)
		told := time.AfterFunc(noticeAfter, h.server.catalog.LogAwaited)
		h.server.catalog.Await(ctx, catalog.Listed, h.server.Limits.Catalog.List)
		told.Stop()
		req.resultTools(h.list.Give(req.env.Audience).Listed)
	case "tools/call": // of a tool of our own
		result, err := req.callOwn(ctx, req.env.Name, req.env.Args)
		if err != nil {
			req.fail(err)
			return
		}
		req.result(result)
	case "ping":
		req.result(json.RawMessage("{}"))
	case "logging/setLevel":
		level := json.RawMessage(slices.Clone(m.Params))
		h.level.Store(&level)
		for _, p := range h.children.running() {
			if p.can("logging") {
				p.Tell(m.Method, m.Params)
			}
		}
		req.result(json.RawMessage("{}"))
	case "prompts/list":
		req.collect(ctx, "prompts", "prompts", "name")
	case "resources/list":
		var own []json.RawMessage
		if !h.table.Shared {
			own = h.handed.ListBlobs(h.server.archive)
		}
		if req.hasApps() {
			own = append(own, tools.ViewResource())
		}
		req.collect(ctx, "resources", "resources", "uri", own...)
	case "resources/templates/list":
		var own []json.RawMessage
		if h.server.keeps() {
			own = append(own, json.RawMessage(results.BlobTemplate))
		}
		req.collect(ctx, "resources", "resourceTemplates", "uriTemplate", own...)
	case "prompts/get":
		req.byOwner(ctx, "prompts", req.env.Name)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		if m.Method == "resources/read" && h.server.keeps() && blobs.IsURI(req.env.URI) {
			req.readBlob()
			return
		}
		if m.Method == "resources/read" && req.env.URI == tools.ViewURI && req.hasApps() {
			req.result(jsonrpc.Set(nil, "contents", jsonrpc.Array([]json.RawMessage{tools.ViewContents()})))
			return
		}
		req.byOwner(ctx, "resources", req.env.URI)
	case "completion/complete":
		if name := jsonrpc.GetString(m.Params, "ref", "name"); name != "" {
			req.byOwner(ctx, "prompts", name)
		} else {
			req.byOwner(ctx, "resources", jsonrpc.GetString(m.Params, "ref", "uri"))
		}
	default:
		if req.env.Tasks.HasMethod(m.Method) {
			h.serveTasks(ctx, req)
			return
		}
		if len(h.server.Children) == 1 && req.env.Era.HasHandshake() {
			req.toChild(ctx, &h.server.Children[0])
			return
		}
		req.fail(jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method))
	}
}

// introduce answers with what bmcp and its children are, and what they can do.
func (h *Host) introduce(req *request, result json.RawMessage) {
	all, said := h.server.capabilities(jsonrpc.Get(result, "capabilities"), req.hasApps())
	form := req.env.Tasks
	if req.Method == "initialize" {
		form = h.handshakeForm() // which is known now
	}
	result = jsonrpc.Set(result, "capabilities", form.Offer(all))
	said = append([]string{h.server.instructions()}, said...)
	result = jsonrpc.Set(result, "instructions", jsonrpc.Quote(strings.Join(said, "\n\n")))
	req.result(result)
}

// process returns a child for a request that is not bound to a browser.
func (req *request) process(ctx context.Context, child *child.Spec) (*supervisor, *running, error) {
	b := source.Browser{}
	if child.Drives() {
		var err error
		if b, err = req.host.browsers.Target(ctx); err != nil {
			return nil, nil, err
		}
	}
	sup := req.host.supervisor(child, b, req.env.Audience)
	if sup == nil {
		return nil, nil, source.ErrEnded
	}
	p, err := req.start(ctx, sup)
	return sup, p, err
}

// start returns the process of a child, which a request is then for.
func (req *request) start(ctx context.Context, sup *supervisor) (*running, error) {
	req.host.turns.Assign(req.turn, sup)
	return sup.get(ctx, req.mayAsk())
}

func (req *request) toChild(ctx context.Context, child *child.Spec) {
	sup, p, err := req.process(ctx, child)
	if err != nil {
		req.fault(err)
		return
	}
	if req.host.turns.Wait(ctx, req.turn) {
		sup.note(req)
		req.forward(p, req.m)
	}
}

// find returns the route of a tool. If the tool is unknown, it waits until the
// children have listed theirs.
func (req *request) find(ctx context.Context, tool string) (catalog.Route, bool) {
	h, to := req.host, req.env.Audience
	r, ok := h.tools(to).Route(tool)
	if ok {
		return r, true
	}
	if r, ok = h.pageRoute(tool, to); ok {
		return r, true
	}
	h.startAll(to, true)
	h.server.catalog.Await(ctx, catalog.ListedNow, h.server.Limits.Catalog.List)
	r, ok = h.tools(to).Route(tool)
	return r, ok
}

// unknown is the error for a tool that no child has. It names the tool that was meant,
// and the children that could not be started.
func (req *request) unknown(name string) error {
	h := req.host
	e := jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown tool: %s", name)
	var known []string
	for _, tool := range h.tools(req.env.Audience).Listed {
		known = append(known, jsonrpc.GetString(tool, "name"))
	}
	slices.Sort(known)
	if hint := elsewhere[name]; hint != "" {
		e.Message += ": " + hint
	} else if near := spell.Nearest(name, known); near != "" {
		e.Message += ": did you mean " + near + "?"
	}
	if _, why := h.server.catalog.Missing(); why != "" {
		e.Message += "; " + why
	}
	return e
}
