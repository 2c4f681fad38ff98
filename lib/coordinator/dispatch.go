package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/results"
	"btools/lib/spell"
	"btools/lib/tools"
)

// call relays the call of a child's tool: at once if nothing has to be waited for.
// Otherwise it gets a turn, and waits in that.
func (s *Session) call(ctx context.Context, req *request) {
	r, known := s.tools(req.env.Audience).route(req.env.Name)
	var sup *supervisor // of a call that has its browser
	if known {
		w, err := source.RefIn(req.env.Args, r.stripped)
		if err != nil {
			req.fault(err)
			return
		}
		group := groupOf(r.child, w)
		if at, ok := s.tryTake(r, w, group); ok {
			if sup = req.hold(r.child, at); sup == nil {
				return
			}
			if p := sup.ready(req.mayAsk()); p != nil && s.turns.IsFirst(group, sup) {
				req.forward(p, r.rename(req.m))
				return
			}
		}
	}
	s.turns.Add(req.turn, sup)
	s.do(func() { s.callInTurn(ctx, req, r, sup) })
}

// tryTake leases a browser for a call, nil if its child needs none. It reports false if
// the call has to wait for one, or for others that do.
func (s *Session) tryTake(r route, w source.BrowserRef, group string) (at *source.Lease, ok bool) {
	switch {
	case !r.child.drives:
		return nil, true
	case !s.turns.IsFirst(group, nil):
		return nil, false
	}
	at = s.browsers.TryTake(w)
	return at, at != nil
}

// callInTurn goes on with a call that waits: for its tool if the route has no child, for
// its browser if there is no supervisor yet, for its child, and for the calls before it.
func (s *Session) callInTurn(ctx context.Context, req *request, r route, sup *supervisor) {
	if r.child == nil {
		var ok bool
		if r, ok = req.find(ctx, req.env.Name); !ok {
			req.fail(req.unknown(req.env.Name))
			return
		}
	}
	if sup == nil {
		at, err := s.take(ctx, r, req)
		if err != nil {
			req.fault(err)
			return
		}
		if sup = req.hold(r.child, at); sup == nil {
			return
		}
	}
	p, err := req.start(ctx, sup)
	if err != nil {
		req.fault(err)
		return
	}
	if s.turns.Wait(ctx, req.turn) {
		req.forward(p, r.rename(req.m))
	}
}

// hold has a request hold a lease until it ends, nil: it needs none. It returns the
// supervisor of the child for the browser, or nil if the request has ended.
func (req *request) hold(child *Child, at *source.Lease) *supervisor {
	b, s := source.Browser{}, req.host
	if at != nil {
		b, req.lease = at.Browser, at
		var watch, over bool
		s.read(func(t *table) {
			watch, over = t.Hold(&req.Request, pending.Lease{Release: at.Release, Died: at.Died})
		})
		switch {
		case over:
			at.Release()
			return nil
		case watch:
			s.do(func() { s.watch(at.Died) })
		}
	}
	sup := s.supervisor(child, b, req.env.Audience)
	if sup == nil {
		req.fault(source.ErrEnded)
	}
	return sup
}

// serve answers a request.
func (s *Session) serve(ctx context.Context, req *request) {
	switch m := req.m; m.Method {
	case "server/discover":
		result, err := s.ourAnswer(req)
		if err != nil {
			req.fail(err)
			return
		}
		s.introduce(req, result)
	case "subscriptions/listen":
		s.listen(ctx, req)
	case "tools/list":
		s.startAll(req.env.Audience, false)
		told := time.AfterFunc(toldAfter, s.c.tellAwaited)
		s.c.await(ctx, s.c.Limits.List, func(l *childCatalog) chan struct{} { return l.toolsKnown })
		told.Stop()
		s.replyList(req, "tools", req.env.Tasks.Listed(s.lists.give(req.env.Audience).tools, bulkName))
	case "tools/call":
		if !s.c.isOwn(req.env.Name) {
			s.callInTurn(ctx, req, route{}, nil)
			return
		}
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
		s.level.Store(&level)
		for _, p := range s.children.running() {
			if p.can("logging") {
				p.Tell(m.Method, m.Params)
			}
		}
		req.result(json.RawMessage("{}"))
	case "prompts/list":
		s.collect(ctx, req, m.Method, "prompts", "prompts", "name")
	case "resources/list":
		var own []json.RawMessage
		if !s.table.Shared {
			own = s.handed.ListBlobs(s.c.archive)
		}
		s.collect(ctx, req, m.Method, "resources", "resources", "uri", own...)
	case "resources/templates/list":
		var own []json.RawMessage
		if s.c.keeps() {
			own = append(own, json.RawMessage(results.BlobTemplate))
		}
		s.collect(ctx, req, m.Method, "resources", "resourceTemplates", "uriTemplate", own...)
	case "prompts/get":
		s.byOwner(ctx, req, "prompts", req.env.Name)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		if m.Method == "resources/read" && s.c.keeps() && blobs.IsURI(req.env.URI) {
			req.readBlob()
			return
		}
		s.byOwner(ctx, req, "resources", req.env.URI)
	case "completion/complete":
		if name := jsonrpc.GetString(m.Params, "ref", "name"); name != "" {
			s.byOwner(ctx, req, "prompts", name)
		} else {
			s.byOwner(ctx, req, "resources", jsonrpc.GetString(m.Params, "ref", "uri"))
		}
	default:
		if req.env.Tasks.HasMethod(m.Method) {
			s.serveTasks(ctx, req)
			return
		}
		if len(s.c.Children) == 1 && req.env.Era.HasHandshake() {
			s.toChild(ctx, req, &s.c.Children[0])
			return
		}
		req.fail(jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method))
	}
}

// introduce answers with what bmcp and its children are, and what they can do.
func (s *Session) introduce(req *request, result json.RawMessage) {
	all, said := s.c.capabilities(jsonrpc.Get(result, "capabilities"))
	form := req.env.Tasks
	if req.Method == "initialize" {
		form = s.handshakeForm() // which is known now
	}
	result = jsonrpc.Set(result, "capabilities", form.Offer(all))
	said = append([]string{s.c.instructions()}, said...)
	result = jsonrpc.Set(result, "instructions", jsonrpc.Quote(strings.Join(said, "\n\n")))
	req.result(result)
}

// mayAsk reports whether the request is the call of a task whose child may ask the host.
func (req *request) mayAsk() bool { return isOfChild(req.task()) }

// process returns a child for a request that is not bound to a browser.
func (req *request) process(ctx context.Context, child *Child) (*supervisor, *running, error) {
	b := source.Browser{}
	if child.drives {
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

func (s *Session) toChild(ctx context.Context, req *request, child *Child) {
	sup, p, err := req.process(ctx, child)
	if err != nil {
		req.fault(err)
		return
	}
	if s.turns.Wait(ctx, req.turn) {
		sup.note(req)
		req.forward(p, req.m)
	}
}

// find returns the route of a tool. If the tool is unknown, it waits until the
// children have listed theirs.
func (req *request) find(ctx context.Context, tool string) (route, bool) {
	s, to := req.host, req.env.Audience
	r, ok := s.tools(to).route(tool)
	if ok {
		return r, true
	}
	s.startAll(to, true)
	s.c.await(ctx, s.c.Limits.List, func(l *childCatalog) chan struct{} { return l.toolsFresh })
	r, ok = s.tools(to).route(tool)
	return r, ok
}

// take leases a browser for a call, in its turn; it returns nil if the child needs none.
func (s *Session) take(ctx context.Context, r route, req *request) (*source.Lease, error) {
	if !r.child.drives {
		return nil, nil
	}
	w, err := source.RefIn(req.env.Args, r.stripped)
	if err != nil {
		return nil, err
	}
	if w == (source.BrowserRef{}) {
		s.warm(r.child, req.env.Audience)
	}
	at, err := req.takeInTurn(ctx, w)
	if err != nil {
		return nil, source.Explain(err)
	}
	return at, nil
}

// warm starts a child while the host's own browser is being launched: the endpoint
// is known in advance.
func (s *Session) warm(child *Child, to mcp.Audience) {
	if !s.browsers.Early() {
		return
	}
	s.do(func() {
		at, err := s.browsers.Target(s.ctx)
		if err != nil {
			return // the call reports it
		}
		if sup := s.supervisor(child, at, to); sup != nil {
			sup.get(s.ctx, false)
		}
	})
}

// unknown is the error for a tool that no child has. It names the tool that was meant,
// and the children that could not be started.
func (req *request) unknown(name string) error {
	s := req.host
	e := jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown tool: %s", name)
	known := slices.Collect(maps.Keys(s.tools(req.env.Audience).routes))
	for _, own := range s.c.ownTools {
		known = append(known, jsonrpc.GetString(own, "name"))
	}
	slices.Sort(known)
	if hint := elsewhere[name]; hint != "" {
		e.Message += ": " + hint
	} else if group := tools.GroupOf(name); group != "" {
		e.Message += fmt.Sprintf(": bmcp --tools default,%s offers it", group)
	} else if near := spell.Nearest(name, known); near != "" {
		e.Message += ": did you mean " + near + "?"
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for i := range s.c.Children {
		if l := s.c.listings[s.c.Children[i].Name]; l.err != nil && !l.live {
			e.Message += "; " + l.err.Error()
		}
	}
	return e
}
