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
	"btools/lib/wait"
)

// fromChild handles what a child says of its own accord, in the order in which
// it says it.
func (s *Session) fromChild(p *process, m *jsonrpc.Message) {
	if m.IsRequest() {
		s.asked(p, m)
		return
	}
	switch m.Method {
	case "notifications/cancelled":
		var n int64
		var sent bool
		s.read(func(t *table) { n, sent = t.TakeBack(p, jsonrpc.Get(m.Params, "requestId")) })
		if sent {
			s.send(nil, false, jsonrpc.Request(nil, m.Method,
				jsonrpc.Set(m.Params, "requestId", strconv.AppendInt(nil, n, 10))))
		}
	case "notifications/tools/list_changed":
		s.relist(p)
	case "notifications/progress":
		token := jsonrpc.Get(m.Params, "progressToken")
		s.pass(p, m, false, func(r *request) bool { return string(r.Token) == string(token) })
	case "notifications/message":
		level := slices.Index(levels, jsonrpc.GetString(m.Params, "level"))
		s.pass(p, m, true, func(r *request) bool { return level >= r.Level })
	default:
		s.subscribers(m.Method, m.Params, func(*flight) bool { return true })
		s.pass(p, m, true, func(r *request) bool { return r.Value.dialect.hears() })
	}
}

// pass gives the host a notification as one of the request that it belongs to.
// A host of the stateless protocol gets no others. Guessed says that it does
// not name its request.
func (s *Session) pass(p *process, m *jsonrpc.Message, guessed bool, belongs func(*request) bool) {
	if !wait.Closed(s.greeted) {
		return
	}
	var to pending.Route
	var found bool
	s.read(func(t *table) { to, found = t.Route(p, guessed, belongs) })
	send := found || p.audience.hears(s)
	if m.Method == "notifications/progress" && to.Repeated {
		send = to.Token != nil
		m = withParams(m, jsonrpc.Set(m.Params, "progressToken", to.Token))
	}
	if send {
		s.send(to.To, false, m.Raw)
	}
}

// States of the list of a child's tools.
const (
	notListing  = iota
	isListing   // the child is asked for it
	listChanged // the same, but it has changed since
)

// relist has a child asked for its tools; if it is being asked, again.
func (s *Session) relist(p *process) {
	if p.listing.Swap(listChanged) == notListing {
		s.do(func() { s.refresh(p) })
	}
}

// refresh asks a child for its tools, again as long as it says meanwhile that
// they have changed.
func (s *Session) refresh(p *process) {
	for {
		p.listing.Store(isListing)
		ctx, cancel := context.WithTimeout(s.ctx, s.c.Limits.Start)
		tools, err := pages(ctx, p, "tools/list", "tools")
		cancel()
		if err == nil {
			s.listTools(p.child, p.audience, tools)
		} else if s.ctx.Err() == nil {
			s.c.failed(p.child, err)
		}
		if s.ctx.Err() != nil || p.gone() != nil || p.listing.CompareAndSwap(isListing, notListing) {
			return
		}
		time.Sleep(20 * time.Millisecond) // many changes are one
	}
}

// needs are the capabilities that a host must have for what a child asks it.
var needs = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation",
	"roots/list": "roots"}

// asked passes a child's request to the host, if that has said that it can
// answer it.
func (s *Session) asked(p *process, m *jsonrpc.Message) {
	if m.Method == "ping" {
		p.in.Write(jsonrpc.Response(m.ID, json.RawMessage("{}")), false)
		return
	}
	p.audience.ask(s, p, m)
}

// askDirectly passes a child's request to the host, if that can answer it.
func (s *Session) askDirectly(p *process, m *jsonrpc.Message) {
	need, ok := needs[m.Method]
	can := jsonrpc.Get(s.hostParams(), "capabilities")
	meta := jsonrpc.Get(m.Params, "_meta")
	a := ask{Child: p, ID: slices.Clone(m.ID), Token: slices.Clone(jsonrpc.Get(meta, "progressToken"))}
	var n int64
	var to json.RawMessage
	var err *jsonrpc.Error
	s.read(func(t *table) {
		n, to, err = t.AskDirectly(a, can != nil && (!ok || jsonrpc.Get(can, need) != nil), errCannot(m))
	})
	if err != nil {
		p.in.Write(jsonrpc.Failure(m.ID, err), false)
		return
	}
	own := strconv.AppendInt(nil, n, 10)
	if a.Token != nil { // those of several children may be the same
		m = withParams(m, jsonrpc.Set(m.Params, "_meta", jsonrpc.Set(meta, "progressToken", own)))
	}
	s.send(to, false, m.WithID(own))
}

func errCannot(m *jsonrpc.Message) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.MethodNotFound, "the host has no %s", m.Method)
}

// childEnded takes back what a child has asked, and has it started again when
// it is needed.
func (s *Session) childEnded(p *process) {
	var open []int64
	var closed bool
	s.read(func(t *table) { open, closed = t.ChildEnded(p), t.Closed() })
	if closed {
		return
	}
	for _, n := range open {
		s.send(nil, false, jsonrpc.Request(nil, "notifications/cancelled",
			json.RawMessage(`{"requestId":`+strconv.FormatInt(n, 10)+`,"reason":"the child has ended"}`)))
	}
	for _, k := range s.children.list() {
		k.proc.Ended(p)
	}
	s.c.Log.Warn(p.gone().Error())
}

// watch has the calls on a browser fail when it dies.
func (s *Session) watch(died <-chan struct{}) {
	select {
	case <-died:
	case <-s.ctx.Done():
	}
	s.apply(func(t *table) (effects []effect) {
		for _, r := range t.Lost(died) {
			effects = append(effects, t.End(r, faultOf(r.Value, errBrowserDied), "the browser has ended")...)
		}
		return effects
	})
}

var errBrowserDied = errors.New("the browser ended during this call: the next call gets a new one")
