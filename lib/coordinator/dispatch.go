package coordinator

import (
	"context"
	"encoding/json"
	"errors"
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
	"btools/lib/spell"
	"btools/lib/tools"
)

// fast relays a tool call at once if nothing has to be waited for, and reports
// whether it did.
func (s *Session) fast(m *jsonrpc.Message, req *request) bool {
	r, ok := s.tools(req.env.Audience).route(jsonrpc.GetString(m.Params, "name"))
	if !ok || r.pools {
		return false
	}
	args := jsonrpc.Get(m.Params, "arguments")
	at, ok := s.tryAcquire(r, args)
	if !ok {
		return false
	}
	var p *process
	if sup := s.supervisor(r.child, leasedBrowser(at), req.env.Audience); sup != nil {
		s.replace(sup, isOfChild(req.task()))
		if s.turns.isFirst(r.group(args), sup) {
			p = sup.running()
		}
	}
	if p == nil {
		if at != nil {
			at.Release()
		}
		return false
	}
	if s.attachLease(req, at) {
		s.forward(p, r.rename(m), req)
	}
	return true
}

// tryAcquire is acquire for the case that nothing has to be waited for and nothing
// is wrong.
func (s *Session) tryAcquire(r route, args json.RawMessage) (at *source.Lease, ok bool) {
	if !r.child.drives {
		return nil, true
	}
	w, err := r.which(args)
	if err != nil {
		return nil, false
	}
	at = s.browsers.TryTake(w)
	return at, at != nil
}

// leasedBrowser is the browser of a lease; without a lease, none.
func leasedBrowser(p *source.Lease) source.Browser {
	if p == nil {
		return source.Browser{}
	}
	return p.Browser
}

// attachLease has a request hold a lease until it ends, and reports whether it has
// not ended yet.
func (s *Session) attachLease(req *request, at *source.Lease) bool {
	if at == nil {
		return true
	}
	req.lease = at
	var watch, over bool
	s.read(func(t *table) { watch, over = t.Hold(&req.Request, pending.Lease{Release: at.Release, Died: at.Died}) })
	switch {
	case over:
		at.Release()
	case watch:
		s.do(func() { s.watch(at.Died) })
	}
	return !over
}

// rename returns the call as the child expects it.
func (r *route) rename(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	if jsonrpc.GetString(params, "name") != r.name {
		params = jsonrpc.Set(params, "name", jsonrpc.Quote(r.name))
	}
	args := jsonrpc.Get(params, "arguments")
	stripped := args
	if r.pools {
		stripped = jsonrpc.Delete(jsonrpc.Delete(args, "browser_pool"), "browser_instance")
	}
	if r.sessions {
		stripped = jsonrpc.Delete(args, "session_id")
	}
	if r.joined {
		stripped = jsonrpc.Delete(stripped, "instanceId")
	}
	if r.states {
		stripped = jsonrpc.Delete(stripped, "state")
	}
	if len(stripped) != len(args) {
		params = jsonrpc.Set(params, "arguments", stripped)
	}
	if &params[0] == &m.Params[0] {
		return m
	}
	return m.WithParams(params)
}

// serve answers a request.
func (s *Session) serve(ctx context.Context, m *jsonrpc.Message, req *request) {
	switch m.Method {
	case "server/discover":
		result, err := s.ourAnswer(ctx, m)
		if err != nil {
			s.fail(req, err)
			return
		}
		s.introduce(req, result)
	case "subscriptions/listen":
		s.listen(ctx, req, m)
	case "tools/list":
		s.startAll(req.env.Audience, false)
		told := time.AfterFunc(toldAfter, s.c.tellAwaited)
		s.c.await(ctx, s.c.Limits.List, func(l *childCatalog) chan struct{} { return l.toolsKnown })
		told.Stop()
		s.replyList(req, "tools", req.env.Tasks.Listed(s.lists.give(req.env.Audience).tools, bulkName))
	case "tools/call":
		s.call(ctx, m, req)
	case "ping":
		s.result(req, json.RawMessage("{}"))
	case "logging/setLevel":
		level := json.RawMessage(slices.Clone(m.Params))
		s.level.Store(&level)
		for _, p := range s.children.running() {
			if jsonrpc.Get(p.capabilities, "logging") != nil {
				p.tell(m.Method, m.Params)
			}
		}
		s.result(req, json.RawMessage("{}"))
	case "prompts/list":
		s.collect(ctx, req, m.Method, "prompts", "prompts", "name")
	case "resources/list":
		s.collect(ctx, req, m.Method, "resources", "resources", "uri", s.listBlobs()...)
	case "resources/templates/list":
		var own []json.RawMessage
		if s.c.keeps() {
			own = append(own, json.RawMessage(blobTemplate))
		}
		s.collect(ctx, req, m.Method, "resources", "resourceTemplates", "uriTemplate", own...)
	case "prompts/get":
		s.byOwner(ctx, m, req, "prompts", jsonrpc.GetString(m.Params, "name"))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		uri := jsonrpc.GetString(m.Params, "uri")
		if m.Method == "resources/read" && s.c.keeps() && blobs.IsURI(uri) {
			s.readBlob(req, uri)
			return
		}
		s.byOwner(ctx, m, req, "resources", uri)
	case "completion/complete":
		if name := jsonrpc.GetString(m.Params, "ref", "name"); name != "" {
			s.byOwner(ctx, m, req, "prompts", name)
		} else {
			s.byOwner(ctx, m, req, "resources", jsonrpc.GetString(m.Params, "ref", "uri"))
		}
	default:
		if req.env.Tasks.HasMethod(m.Method) {
			s.serveTasks(ctx, m, req)
			return
		}
		if len(s.c.Children) == 1 && req.env.Era.HasHandshake() {
			s.toChild(ctx, &s.c.Children[0], m, req)
			return
		}
		s.fail(req, jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method))
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
	s.result(req, result)
}

// process returns a child for a request that is not bound to a browser.
func (s *Session) process(ctx context.Context, child *Child) (*supervisor, *process, error) {
	b := source.Browser{}
	if child.drives {
		var err error
		if b, err = s.browsers.Target(ctx); err != nil {
			return nil, nil, err
		}
	}
	sup := s.supervisor(child, b, audienceOf(ctx))
	if sup == nil {
		return nil, nil, source.ErrEnded
	}
	s.assign(ctx, sup)
	p, err := sup.get(ctx)
	return sup, p, err
}

func (s *Session) toChild(ctx context.Context, child *Child, m *jsonrpc.Message, req *request) {
	sup, p, err := s.process(ctx, child)
	if err != nil {
		s.fault(req, err)
		return
	}
	if s.turns.wait(ctx, req.turn) {
		sup.note(m)
		s.forward(p, m, req)
	}
}

// find returns the route of a tool. If the tool is unknown, it waits until the
// children have listed theirs.
func (s *Session) find(ctx context.Context, name string) (route, bool) {
	to := audienceOf(ctx)
	r, ok := s.tools(to).route(name)
	if ok {
		return r, true
	}
	s.startAll(to, true)
	s.c.await(ctx, s.c.Limits.List, func(l *childCatalog) chan struct{} { return l.toolsFresh })
	r, ok = s.tools(to).route(name)
	return r, ok
}

// call answers the call of a tool.
func (s *Session) call(ctx context.Context, m *jsonrpc.Message, req *request) {
	name := jsonrpc.GetString(m.Params, "name")
	if s.c.isOwn(name) {
		result, err := s.ourAnswer(ctx, m)
		if err != nil {
			s.fail(req, err)
			return
		}
		s.result(req, result)
		return
	}
	r, ok := s.find(ctx, name)
	if !ok {
		s.fail(req, s.unknown(ctx, name))
		return
	}
	at, err := s.acquire(ctx, r, req.turn, jsonrpc.Get(m.Params, "arguments"))
	if err != nil {
		s.fault(req, err)
		return
	}
	if !s.attachLease(req, at) {
		return
	}
	p, err := s.at(ctx, r.child, at)
	if err != nil {
		s.fault(req, err)
		return
	}
	if s.turns.wait(ctx, req.turn) {
		s.forward(p, r.rename(m), req)
	}
}

// acquire leases a browser for a call; it returns nil if the child needs none.
func (s *Session) acquire(ctx context.Context, r route, t *turn, args json.RawMessage) (*source.Lease, error) {
	if !r.child.drives {
		return nil, nil
	}
	w, err := r.which(args)
	if err != nil {
		return nil, err
	}
	if w == (source.BrowserRef{}) {
		s.warm(r.child, audienceOf(ctx))
	}
	at, err := s.takeInTurn(ctx, t, w)
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
			sup.get(s.ctx)
		}
	})
}

func (r *route) which(args json.RawMessage) (w source.BrowserRef, err error) {
	if r.pools {
		var err2 error
		w.Pool, err = source.NameIn(args, "browser_pool")
		w.Instance, err2 = source.NameIn(args, "browser_instance")
		err = errors.Join(err, err2)
	}
	if r.sessions {
		w.Session, err = source.SessionIn(args)
	}
	if r.joined && err == nil {
		w.Instance, err = source.NameIn(args, "instanceId")
	}
	if r.states && err == nil {
		w.State, err = source.StateIn(args)
	}
	return w, err
}

// at returns the running child for a leased browser.
func (s *Session) at(ctx context.Context, child *Child, at *source.Lease) (*process, error) {
	sup := s.supervisor(child, leasedBrowser(at), audienceOf(ctx))
	if sup == nil {
		return nil, source.ErrEnded
	}
	s.assign(ctx, sup)
	return sup.get(ctx)
}

// unknown is the error for a tool that no child has. It names the tool that was meant,
// and the children that could not be started.
func (s *Session) unknown(ctx context.Context, name string) error {
	e := jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown tool: %s", name)
	known := slices.Collect(maps.Keys(s.tools(audienceOf(ctx)).routes))
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
