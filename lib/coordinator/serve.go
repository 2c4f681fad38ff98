package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"btools/lib/control"
	"btools/lib/jsonrpc"
)

// fast relays the call of a tool at once, if nothing has to be waited for. It
// reports whether it has.
func (s *Session) fast(m *jsonrpc.Message, f *flight) bool {
	r, ok := s.c.tools().routes[jsonrpc.GetString(m.Params, "name")]
	if !ok || r.pools {
		return false
	}
	b := Browser{}
	var at *place
	if r.child.takesEndpoint() {
		if at = s.c.Browsers.ready(); at == nil {
			return false
		}
		b = at.Browser
	}
	k := s.kid(r.child, b, f.capabilities())
	if k == nil {
		return false
	}
	p := k.running()
	if p == nil {
		return false
	}
	if s.place(f, at) {
		s.forward(p, r.rename(m), f)
	}
	return true
}

// place notes where a request is answered, unless it is answered already.
func (s *Session) place(f *flight, at *place) bool {
	if at == nil {
		return true
	}
	s.mu.Lock()
	done := f.done
	if !done {
		f.place = at
	}
	s.mu.Unlock()
	if done {
		at.release()
		return false
	}
	s.watch(at.died)
	return true
}

// rename is the call as the child knows it.
func (r *route) rename(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	if jsonrpc.GetString(params, "name") != r.name {
		params = jsonrpc.Set(params, "name", quote(r.name))
	}
	if r.pools {
		args := jsonrpc.Get(params, "arguments")
		if stripped := jsonrpc.Delete(jsonrpc.Delete(args, "browser_pool"), "browser_instance"); len(stripped) != len(args) {
			params = jsonrpc.Set(params, "arguments", stripped)
		}
	}
	if &params[0] == &m.Params[0] {
		return m
	}
	return withParams(m, params)
}

// withParams is the request with other parameters.
func withParams(m *jsonrpc.Message, params json.RawMessage) *jsonrpc.Message {
	other, _ := jsonrpc.Parse(jsonrpc.Set(m.Raw, "params", params))
	return other
}

// quote is a string in JSON.
func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // which a string never fails
	return b
}

// serve answers a request.
func (s *Session) serve(ctx context.Context, m *jsonrpc.Message, f *flight) {
	switch m.Method {
	case "initialize", "server/discover":
		if m.Method == "initialize" {
			wait, cancel := context.WithTimeout(ctx, greetWait)
			s.c.await(wait, func(l *listing) chan struct{} { return l.greeted })
			cancel()
		}
		result, err := s.ourAnswer(ctx, m)
		if err != nil {
			s.fail(f, err)
			return
		}
		all, said := s.c.capabilities(jsonrpc.Get(result, "capabilities"))
		result = jsonrpc.Set(result, "capabilities", all)
		if said = append([]string{jsonrpc.GetString(result, "instructions")}, said...); len(said) > 1 {
			result = jsonrpc.Set(result, "instructions", quote(strings.Join(said, "\n\n")))
		}
		s.result(f, result)
	case "subscriptions/listen":
		s.listen(ctx, f, m)
	case "tools/list":
		s.startAll(f.capabilities())
		wait, cancel := context.WithTimeout(ctx, listWait)
		s.c.await(wait, func(l *listing) chan struct{} { return l.listed })
		cancel()
		all := s.c.tools()
		s.mu.Lock()
		s.listed = all
		s.mu.Unlock()
		s.list(f, "tools", all.tools)
	case "tools/call":
		s.call(ctx, m, f)
	case "ping":
		s.result(f, json.RawMessage("{}"))
	case "logging/setLevel":
		s.mu.Lock()
		s.level = slices.Clone(m.Params)
		s.mu.Unlock()
		for _, p := range s.all() {
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
		if len(s.c.Children) == 1 && f.modern == nil {
			s.toChild(ctx, &s.c.Children[0], m, f)
			return
		}
		s.fail(f, jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method))
	}
}

// list answers with a whole list.
func (s *Session) list(f *flight, member string, all []json.RawMessage) {
	s.result(f, jsonrpc.Set(nil, member, jsonrpc.Array(all)))
}

// collect answers with the lists of all children that have such, and that
// answer in time.
func (s *Session) collect(ctx context.Context, f *flight, method, capability, member, name string) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	some := s.having(ctx, capability)
	lists := make([][]json.RawMessage, len(some))
	var wg sync.WaitGroup
	for i, child := range some {
		wg.Go(func() {
			_, p, err := s.process(ctx, child)
			if err == nil {
				lists[i], err = pages(ctx, p, method, member)
			}
			if err != nil {
				s.c.Log.Warn("child " + child.Name + " does not answer " + method + ": " + err.Error())
			}
		})
	}
	wg.Wait()
	all := []json.RawMessage{}
	s.mu.Lock()
	for i, child := range some {
		for _, item := range lists[i] {
			key := capability + "\x00" + jsonrpc.GetString(item, name)
			if json.Valid(item) && (s.owners[key] == nil || s.owners[key] == child) {
				s.owners[key] = child
				all = append(all, item)
			}
		}
	}
	s.mu.Unlock()
	s.list(f, member, all)
}

// byOwner relays a request to the child whose resource or prompt it is about:
// the one that has listed it, else the first that knows it.
func (s *Session) byOwner(ctx context.Context, m *jsonrpc.Message, f *flight, capability, name string) {
	some := s.ofOwner(ctx, capability, name)
	if len(some) == 1 {
		s.toChild(ctx, some[0], m, f)
		return
	}
	var last error = jsonrpc.Errorf(jsonrpc.MethodNotFound, "no child has %s", capability)
	for _, child := range some {
		k, p, err := s.process(ctx, child)
		if err == nil {
			theirs := m
			if f.modern != nil {
				theirs = f.forChild(p, m)
			}
			var result json.RawMessage
			if result, err = p.call(ctx, m.Method, theirs.Params); err == nil {
				k.note(m)
				s.result(f, result)
				return
			}
			var e *jsonrpc.Error
			if f.modern != nil && errors.As(err, &e) && e.Code == legacyNotFound {
				e.Code = jsonrpc.InvalidParams
			}
		}
		last = err
	}
	s.fail(f, last)
}

// ofOwner are the children that can have a resource or prompt: the one that
// has listed it, else all that have such.
func (s *Session) ofOwner(ctx context.Context, capability, name string) []*Child {
	s.mu.Lock()
	owner := s.owners[capability+"\x00"+name]
	s.mu.Unlock()
	if owner != nil {
		return []*Child{owner}
	}
	return s.having(ctx, capability)
}

// having are the children with a capability, once they have told theirs.
func (s *Session) having(ctx context.Context, capability string) []*Child {
	wait, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	s.c.await(wait, func(l *listing) chan struct{} { return l.greeted })
	return s.c.having(capability)
}

// subscribe subscribes a host of the stateless protocol to a resource, and
// returns the children that know it.
func (s *Session) subscribe(ctx context.Context, uri string) (some []*kid) {
	for _, child := range s.ofOwner(ctx, "resources", uri) {
		k, p, err := s.process(ctx, child)
		if err == nil && jsonrpc.Get(p.can, "resources", "subscribe") != nil {
			k.subscribe(uri, 1)
			some = append(some, k)
		}
	}
	return some
}

// process is a child that is not bound to a call's browser.
func (s *Session) process(ctx context.Context, child *Child) (*kid, *process, error) {
	b := Browser{}
	if child.takesEndpoint() {
		var err error
		if b, err = s.c.Browsers.any(ctx); err != nil {
			return nil, nil, err
		}
	}
	k := s.kid(child, b, capabilitiesOf(ctx))
	if k == nil {
		return nil, nil, errors.New("the session has ended")
	}
	p, err := k.get(ctx)
	return k, p, err
}

func (s *Session) toChild(ctx context.Context, child *Child, m *jsonrpc.Message, f *flight) {
	k, p, err := s.process(ctx, child)
	if err != nil {
		s.fault(f, err)
		return
	}
	k.note(m)
	s.forward(p, m, f)
}

// find is the route of a tool; if it is not known, once the children have
// listed theirs.
func (s *Session) find(ctx context.Context, name string) (route, bool) {
	r, ok := s.c.tools().routes[name]
	if ok {
		return r, true
	}
	s.startAll(capabilitiesOf(ctx))
	wait, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	s.c.await(wait, func(l *listing) chan struct{} { return l.said })
	r, ok = s.c.tools().routes[name]
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
	at, err := s.acquire(ctx, r, jsonrpc.Get(m.Params, "arguments"))
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
	s.forward(p, r.rename(m), f)
}

// acquire is a browser for a call, nil if the child needs none.
func (s *Session) acquire(ctx context.Context, r route, args json.RawMessage) (*place, error) {
	if !r.child.takesEndpoint() {
		return nil, nil
	}
	poolName, instance := "", ""
	if r.pools {
		var err, err2 error
		poolName, err = nameIn(args, "browser_pool")
		instance, err2 = nameIn(args, "browser_instance")
		if err = errors.Join(err, err2); err != nil {
			return nil, err
		}
	}
	at, err := s.take(ctx, poolName, instance)
	if err != nil {
		return nil, explain(err)
	}
	return at, nil
}

// nameIn is a name among a call's arguments, "" if it is not there: a text, or
// a number, as instances have such for names.
func nameIn(args json.RawMessage, name string) (string, error) {
	v := jsonrpc.Get(args, name)
	switch {
	case v == nil || string(v) == "null":
		return "", nil
	case v[0] == '"':
		return jsonrpc.GetString(args, name), nil
	case v[0] == '-' || v[0] >= '0' && v[0] <= '9':
		return string(v), nil
	}
	return "", fmt.Errorf("%s is a text, not %s", name, v)
}

// explain adds what to do to an error of the browsers.
func explain(err error) error {
	var e *control.Error
	if errors.As(err, &e) && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	return err
}

// at is the child for a place.
func (s *Session) at(ctx context.Context, child *Child, at *place) (*process, error) {
	b := Browser{}
	if at != nil {
		b = at.Browser
	}
	k := s.kid(child, b, capabilitiesOf(ctx))
	if k == nil {
		return nil, errors.New("the session has ended")
	}
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
