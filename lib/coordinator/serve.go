package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/coordinator/pending"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
)

// fast relays the call of a tool at once, if nothing has to be waited for. It
// reports whether it has.
func (s *Session) fast(m *jsonrpc.Message, f *flight) bool {
	r, ok := s.tools(f.audience).routes[jsonrpc.GetString(m.Params, "name")]
	if !ok || r.pools {
		return false
	}
	args := jsonrpc.Get(m.Params, "arguments")
	at, ok := s.readyFor(r, args)
	if !ok {
		return false
	}
	var p *process
	if k := s.kid(r.child, at.browser(), f.audience); k != nil {
		s.replace(k)
		if s.turns.isFirst(r.group(args), k) {
			p = k.running()
		}
	}
	if p == nil {
		if at != nil {
			at.release()
		}
		return false
	}
	if s.place(f, at) {
		s.forward(p, r.rename(m), f)
	}
	return true
}

// readyFor is acquire where nothing has to be waited for, and nothing is wrong.
func (s *Session) readyFor(r route, args json.RawMessage) (at *place, ok bool) {
	if !r.child.drives {
		return nil, true
	}
	w, err := r.which(args)
	if err != nil {
		return nil, false
	}
	at = s.browsers.ready(w)
	return at, at != nil
}

// browser is where a child for the place finds its browser.
func (p *place) browser() Browser {
	if p == nil {
		return Browser{}
	}
	return p.Browser
}

// place notes where a request is answered, unless it is answered already.
func (s *Session) place(f *flight, at *place) bool {
	if at == nil {
		return true
	}
	f.place = at
	var watch, over bool
	s.read(func(t *table) { watch, over = t.Hold(&f.Request, pending.Lease{Release: at.release, Died: at.died}) })
	switch {
	case over:
		at.release()
	case watch:
		s.do(func() { s.watch(at.died) })
	}
	return !over
}

// rename is the call as the child knows it.
func (r *route) rename(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	if jsonrpc.GetString(params, "name") != r.name {
		params = jsonrpc.Set(params, "name", quote(r.name))
	}
	args := jsonrpc.Get(params, "arguments")
	stripped := args
	if r.pools {
		stripped = jsonrpc.Delete(jsonrpc.Delete(args, "browser_pool"), "browser_instance")
	}
	if r.sessions {
		stripped = jsonrpc.Delete(args, "session_id")
	}
	if len(stripped) != len(args) {
		params = jsonrpc.Set(params, "arguments", stripped)
	}
	if &params[0] == &m.Params[0] {
		return m
	}
	return withParams(m, params)
}

// serve answers a request.
func (s *Session) serve(ctx context.Context, m *jsonrpc.Message, f *flight) {
	switch m.Method {
	case "server/discover":
		result, err := s.ourAnswer(ctx, m)
		if err != nil {
			s.fail(f, err)
			return
		}
		s.introduce(f, result)
	case "subscriptions/listen":
		s.listen(ctx, f, m)
	case "tools/list":
		s.startAll(f.audience, false)
		told := time.AfterFunc(toldAfter, s.c.tellAwaited)
		s.c.await(ctx, s.c.Limits.List, func(l *listing) chan struct{} { return l.listed })
		told.Stop()
		s.list(f, "tools", s.lists.give(f.audience).tools)
	case "tools/call":
		s.call(ctx, m, f)
	case "ping":
		s.result(f, json.RawMessage("{}"))
	case "logging/setLevel":
		level := json.RawMessage(slices.Clone(m.Params))
		s.level.Store(&level)
		for _, p := range s.children.running() {
			if jsonrpc.Get(p.can, "logging") != nil {
				p.tell(m.Method, m.Params)
			}
		}
		s.result(f, json.RawMessage("{}"))
	case "prompts/list":
		s.collect(ctx, f, m.Method, "prompts", "prompts", "name")
	case "resources/list":
		s.collect(ctx, f, m.Method, "resources", "resources", "uri")
	case "resources/templates/list":
		s.collect(ctx, f, m.Method, "resources", "resourceTemplates", "uriTemplate")
	case "prompts/get":
		s.byOwner(ctx, m, f, "prompts", jsonrpc.GetString(m.Params, "name"))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		s.byOwner(ctx, m, f, "resources", jsonrpc.GetString(m.Params, "uri"))
	case "completion/complete":
		if name := jsonrpc.GetString(m.Params, "ref", "name"); name != "" {
			s.byOwner(ctx, m, f, "prompts", name)
		} else {
			s.byOwner(ctx, m, f, "resources", jsonrpc.GetString(m.Params, "ref", "uri"))
		}
	default:
		if len(s.c.Children) == 1 && f.dialect.relaysUnknown() {
			s.toChild(ctx, &s.c.Children[0], m, f)
			return
		}
		s.fail(f, jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method))
	}
}

// introduce answers with what we are, and what we and the children can.
func (s *Session) introduce(f *flight, result json.RawMessage) {
	all, said := s.c.capabilities(jsonrpc.Get(result, "capabilities"))
	result = jsonrpc.Set(result, "capabilities", all)
	said = append([]string{s.c.instructions()}, said...)
	result = jsonrpc.Set(result, "instructions", quote(strings.Join(said, "\n\n")))
	s.result(f, result)
}

// process is a child that is not bound to a call's browser.
func (s *Session) process(ctx context.Context, child *Child) (*kid, *process, error) {
	b := Browser{}
	if child.drives {
		var err error
		if b, err = s.c.Browsers.any(ctx); err != nil {
			return nil, nil, err
		}
		b = s.own(b)
	}
	k := s.kid(child, b, audienceOf(ctx))
	if k == nil {
		return nil, nil, errEnded
	}
	s.placed(ctx, k)
	p, err := k.get(ctx)
	return k, p, err
}

func (s *Session) toChild(ctx context.Context, child *Child, m *jsonrpc.Message, f *flight) {
	k, p, err := s.process(ctx, child)
	if err != nil {
		s.fault(f, err)
		return
	}
	if s.turns.wait(ctx, f.turn) {
		k.note(m)
		s.forward(p, m, f)
	}
}

// find is the route of a tool; if it is not known, once the children have
// listed theirs.
func (s *Session) find(ctx context.Context, name string) (route, bool) {
	to := audienceOf(ctx)
	r, ok := s.tools(to).routes[name]
	if ok {
		return r, true
	}
	s.startAll(to, true)
	s.c.await(ctx, s.c.Limits.List, func(l *listing) chan struct{} { return l.said })
	r, ok = s.tools(to).routes[name]
	return r, ok
}

// call answers the call of a tool.
func (s *Session) call(ctx context.Context, m *jsonrpc.Message, f *flight) {
	name := jsonrpc.GetString(m.Params, "name")
	if s.c.isOwn(name) {
		result, err := s.ourAnswer(ctx, m)
		if err != nil {
			s.fail(f, err)
			return
		}
		s.result(f, result)
		return
	}
	r, ok := s.find(ctx, name)
	if !ok {
		s.fail(f, s.unknown(name))
		return
	}
	at, err := s.acquire(ctx, r, f.turn, jsonrpc.Get(m.Params, "arguments"))
	if err != nil {
		s.fault(f, err)
		return
	}
	if !s.place(f, at) {
		return
	}
	p, err := s.at(ctx, r.child, at)
	if err != nil {
		s.fault(f, err)
		return
	}
	if s.turns.wait(ctx, f.turn) {
		s.forward(p, r.rename(m), f)
	}
}

// acquire is a browser for a call, nil if the child needs none.
func (s *Session) acquire(ctx context.Context, r route, t *turn, args json.RawMessage) (*place, error) {
	if !r.child.drives {
		return nil, nil
	}
	w, err := r.which(args)
	if err != nil {
		return nil, err
	}
	if w == (which{}) {
		s.warm(r.child, audienceOf(ctx))
	}
	at, err := s.takeInTurn(ctx, t, w)
	if err != nil {
		return nil, explain(err)
	}
	return at, nil
}

// warm starts a child for the host's own browser while that is launched: where
// it will be is known before.
func (s *Session) warm(child *Child, to audience) {
	if !s.c.Browsers.early() {
		return
	}
	s.do(func() {
		at, err := s.c.Browsers.any(s.ctx)
		if err != nil {
			return // as the call will tell
		}
		if k := s.kid(child, s.own(at), to); k != nil {
			k.get(s.ctx)
		}
	})
}

// which is the browser that a call names.
type which struct{ pool, instance, session string }

func (r *route) which(args json.RawMessage) (w which, err error) {
	if r.pools {
		var err2 error
		w.pool, err = nameIn(args, "browser_pool")
		w.instance, err2 = nameIn(args, "browser_instance")
		err = errors.Join(err, err2)
	}
	if r.sessions {
		w.session, err = sessionIn(args)
	}
	return w, err
}

// explain adds what to do to an error of the browsers.
func explain(err error) error {
	var e *control.Error
	if errors.As(err, &e) && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	var ours *exit.Error
	if errors.As(err, &ours) && ours.Hint != "" {
		return fmt.Errorf("%w (%s)", err, ours.Hint)
	}
	return err
}

// at is the child for a place.
func (s *Session) at(ctx context.Context, child *Child, at *place) (*process, error) {
	k := s.kid(child, at.browser(), audienceOf(ctx))
	if k == nil {
		return nil, errEnded
	}
	s.placed(ctx, k)
	return k.get(ctx)
}

// unknown is the error for a tool that nobody has, with the children that
// could not be asked.
func (s *Session) unknown(name string) error {
	e := jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown tool: %s", name)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for i := range s.c.Children {
		if l := s.c.listings[s.c.Children[i].Name]; l.err != nil && !l.live {
			e.Message += "; " + l.err.Error()
		}
	}
	return e
}
