package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"btools/lib/jsonrpc"
)

// list answers with a whole list.
func (s *Session) list(f *flight, member string, all []json.RawMessage) {
	s.result(f, jsonrpc.Set(nil, member, jsonrpc.Array(all)))
}

// collect answers with the lists of all children that have such, and that
// answer in time.
func (s *Session) collect(ctx context.Context, f *flight, method, capability, member, name string) {
	some := s.having(ctx, capability)
	lists := make([][]json.RawMessage, len(some))
	failed := make([]bool, len(some))
	var wg sync.WaitGroup
	for i, child := range some {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.c.patience(child))
			defer cancel()
			_, p, err := s.process(ctx, child)
			if err == nil {
				lists[i], err = pages(ctx, p, method, member)
			}
			s.c.answers(child, !errors.Is(err, context.DeadlineExceeded))
			if err != nil {
				s.c.Log.Warn("child " + child.Name + " does not answer " + method + ": " + err.Error())
				failed[i] = true
			}
		})
	}
	wg.Wait()
	all := []json.RawMessage{}
	owners := map[string]*Child{}
	for i, child := range some {
		for _, item := range lists[i] {
			key := jsonrpc.GetString(item, name)
			if json.Valid(item) && (owners[key] == nil || owners[key] == child) {
				owners[key] = child
				all = append(all, item)
			}
		}
	}
	s.owners.update(member, owners, func(child *Child) bool {
		i := slices.Index(some, child)
		return i >= 0 && failed[i]
	})
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
	s.endTurn(f.turn) // it is for several: others don't wait for their answers
	var last error = jsonrpc.Errorf(jsonrpc.MethodNotFound, "no child has %s", capability)
	for _, child := range some {
		k, p, err := s.process(ctx, child)
		if err == nil {
			theirs := f.dialect.toChild(p, f, m)
			var result json.RawMessage
			if result, err = p.call(ctx, m.Method, theirs.Params); err == nil {
				k.note(m)
				s.result(f, result)
				return
			}
			var e *jsonrpc.Error
			if errors.As(err, &e) {
				e.Code = f.dialect.code(e.Code)
			}
		}
		last = err
	}
	s.fail(f, last)
}

// ofOwner are the children that can have a resource or prompt: the one that
// has listed it, else all that have such.
func (s *Session) ofOwner(ctx context.Context, capability, name string) []*Child {
	if owner := s.owners.find(capability, name); owner != nil {
		return []*Child{owner}
	}
	return s.having(ctx, capability)
}

// having are the children with a capability, once they have told theirs.
func (s *Session) having(ctx context.Context, capability string) []*Child {
	s.c.await(ctx, s.c.Limits.List, func(l *listing) chan struct{} { return l.greeted })
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
