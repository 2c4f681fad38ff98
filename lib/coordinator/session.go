package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/coordinator/turns"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/front"
	"btools/lib/results"
)

// Session is one host, or all hosts of the stateless protocol, with its children.
type Session struct {
	c           *Coordinator
	name        string        // unique
	initialized chan struct{} // closed when children may send requests to the host

	browsers        source.Browsers
	params          atomic.Pointer[json.RawMessage] // of the host's initialize; nil before
	version         atomic.Pointer[string]          // of the protocol, as agreed with the host; nil before
	level           atomic.Pointer[json.RawMessage] // the parameters of logging/setLevel; nil: the host has set none
	initializedOnce sync.Once                       // closes initialized

	// Each of these has a lock of its own. That of children is taken before that of requests.
	requests
	children
	turns turns.Queue[*supervisor, *source.Lease]
	list  *List

	handed results.Handed
}

// NewSession makes a session, of one host or of several. It calls send for each
// message to a host, in order.
func (c *Coordinator) NewSession(send front.Send, shared bool) *Session {
	s := &Session{c: c, name: rand.Text(), initialized: make(chan struct{})}
	s.handed.Since = time.Now()
	s.requests.c, s.send = c, send
	s.table = table{MaxAwaiting: c.Limits.Awaiting, MaxQuestions: c.Limits.Questions, NewKey: rand.Text, Shared: shared}
	s.children.host = s
	s.children.supervisors, s.children.started = map[string]*supervisor{}, map[mcp.Audience]bool{}
	s.list = c.catalog.NewList()
	s.ctx, s.end = context.WithCancel(context.Background())
	s.browsers = c.Source.Of(s.ctx, s, shared)
	c.mu.Lock()
	c.sessions[s] = true
	c.mu.Unlock()
	return s
}

// Drain implements Host.
func (s *Session) Drain(ctx context.Context) {
	s.endListening()
	for {
		if s.Open() == 0 || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// why is the reason that a child cannot be started any more.
func (c *children) why() error {
	if c.host.ctx.Err() != nil {
		return source.ErrEnded
	}
	return source.ErrBrowserDied
}

// Close implements Host: it stops the session's children.
func (s *Session) Close() {
	release := s.browsers.Leave() // before nothing can be done any more
	var open []*pendingRequest
	var first bool
	if s.read(func(t *table) { open, first = t.Close() }); !first {
		return
	}
	supervisors := s.children.close()
	s.endListening()
	for _, r := range open {
		r.Value.fault(source.ErrEnded)
	}
	s.end()
	s.apply(func(t *table) []effect { return t.ExpireAll() })
	s.endTasks()
	var wg sync.WaitGroup
	for _, sup := range supervisors {
		wg.Go(sup.stop)
	}
	release() // at once, whatever the children do
	wg.Wait()
	release() // what one has made again
	s.work.Wait()
	s.c.archive.Texts.Drop(s.name)
	s.c.tasks.Do(func(all *taskTable) { all.Drop(s.name) })
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
}

// Handle implements Host.
func (s *Session) Handle(m *jsonrpc.Message, err error) {
	switch {
	case m == nil:
		s.send(nil, true, jsonrpc.Failure(nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: expected a JSON object")))
	case err != nil:
		s.send(m.ID, true, jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: %v", err)))
	case m.IsResponse():
		s.relayAnswer(m)
	case m.IsNotification():
		s.notified(m)
	default:
		s.request(m)
	}
}

// request answers a request of the host, or starts what answers it.
func (s *Session) request(m *jsonrpc.Message) {
	req := s.newRequest(m)
	req.turn = req.newTurn()
	ctx, cancel := context.WithCancel(s.ctx)
	req.cancel = cancel
	s.accept(ctx, req)
}

// newRequest is a message as a request that is to be answered.
func (s *Session) newRequest(m *jsonrpc.Message) *request {
	req := &request{host: s, m: m, env: mcp.Read(m, s.handshakeForm(), s.c.us)}
	req.Request = pendingRequest{ID: m.ID, Method: m.Method, Token: req.env.Token, Level: req.env.Level,
		Subject: req.env.Subject, Input: req.env.Input, MayAsk: req.env.MayAsk, Value: req}
	return req
}

// accept answers a request, or starts what answers it.
func (s *Session) accept(ctx context.Context, req *request) {
	var err error
	s.read(func(t *table) { err = t.Add(&req.Request) })
	switch {
	case errors.Is(err, pending.ErrClosed):
		err = source.ErrEnded
	case errors.Is(err, pending.ErrPending):
		err = fmt.Errorf("a request with the id %s is being answered already", jsonrpc.Clip(req.ID))
	}
	if err != nil {
		req.cancel()
		req.reply(req.ID, jsonrpc.Failure(req.ID, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%v", err)))
		return
	}
	if !s.admit(ctx, req) {
		return
	}
	if req.Method == "tools/call" {
		call := &toolCall{request: req}
		if req.task() == nil && call.asTask(ctx) {
			return
		}
		if !s.c.isOwn(req.env.Name) {
			call.run(ctx)
			return
		}
	}
	s.turns.Add(req.turn, nil)
	s.do(func() { s.serve(ctx, req) })
}

// admit makes the session ready for a request. It reports whether that is to be
// served: it may be answered already.
func (s *Session) admit(ctx context.Context, req *request) bool {
	if req.env.Era.HasHandshake() {
		switch {
		case req.Method == "initialize":
			s.initialize(ctx, req)
			return false
		case req.Method == "ping":
			return true
		case s.hostParams() == nil:
			req.fail(jsonrpc.Errorf(jsonrpc.InvalidRequest,
				"the first request is initialize, or says its protocol version in _meta"))
			return false
		}
		s.allowQuestions()
		return true
	}
	if req.env.Refused != nil {
		req.fail(req.env.Refused)
		return false
	}
	if !s.children.hasRoom(req.env.Audience, s.c.Limits.CapabilitySets) {
		req.env.Audience = mcp.AskNothing
	}
	if req.Method == "server/discover" {
		return true
	}
	s.allowQuestions()
	if req.resume() {
		return false
	}
	s.startAll(req.env.Audience, false)
	return true
}

// allowQuestions allows children to send requests to the host.
func (s *Session) allowQuestions() {
	s.initializedOnce.Do(func() { close(s.initialized) })
}

// initialize answers the host's initialize. If it accepts the host, it starts the
// children, which get the host's capabilities.
func (s *Session) initialize(ctx context.Context, req *request) {
	result, err := s.ourAnswer(req)
	if err != nil {
		req.fail(err)
		return
	}
	params := slices.Clone(req.m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	version := jsonrpc.GetString(result, "protocolVersion")
	s.version.CompareAndSwap(nil, &version)
	s.params.CompareAndSwap(nil, &params)
	s.startAll(mcp.OfHandshake, false)
	s.do(func() {
		s.c.catalog.Await(ctx, Initialized, s.c.Limits.Catalog.Initialize)
		s.introduce(req, result)
	})
}

// startAll starts each child whose tools are unknown or that could not be started.
// It launches no browser for them. With all, it also starts children whose tools
// are only known from their last run.
func (c *children) startAll(to mcp.Audience, all bool) {
	s := c.host
	started := c.start(to)
	if !started {
		s.do(func() { // where browsers are is to be seen before one is needed
			if _, err := s.browsers.Target(s.ctx); err != nil && s.ctx.Err() == nil {
				s.c.Log.Warn(err.Error())
			}
		})
	}
	for i := range s.c.Children {
		child := &s.c.Children[i]
		known, live := s.c.catalog.Known(child, to.Askable(s.hostParams()))
		switch {
		case s.c.catalog.Retry(child), !live && all:
		case started, known && !s.c.Eager:
			continue // it is started when it is called
		}
		s.do(func() {
			some, err := c.prestartTargets(s.ctx, child)
			if err != nil && s.ctx.Err() == nil {
				s.c.catalog.Note(child, err)
			}
			for _, b := range some {
				if sup := c.supervisor(child, b, to); sup != nil {
					s.do(func() {
						if _, err := sup.get(s.ctx, false); err != nil && s.ctx.Err() == nil {
							s.c.catalog.Note(child, err)
						}
					})
				}
			}
		})
	}
}

// prestartTargets are the browsers that a child is started for before it is
// called.
func (c *children) prestartTargets(ctx context.Context, child *Child) ([]source.Browser, error) {
	s := c.host
	if !child.drives {
		return []source.Browser{{}}, nil
	}
	if s.c.Eager {
		if all, err := s.browsers.Targets(ctx); err != nil || len(all) > 0 {
			return all, err
		}
	}
	b, err := s.browsers.Target(ctx)
	if err != nil {
		return nil, err
	}
	return []source.Browser{b}, nil
}

// hostParams are the parameters of the host's initialize, nil before it.
func (s *Session) hostParams() json.RawMessage {
	if params := s.params.Load(); params != nil {
		return *params
	}
	return nil
}

// notified handles a notification of the host.
func (s *Session) notified(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/initialized":
		s.allowQuestions()
	case "notifications/cancelled":
		id := jsonrpc.Get(m.Params, "requestId")
		s.Cancel(id, jsonrpc.GetString(m.Params, "reason"))
		s.apply(func(t *table) []effect { return t.Abandon(id) })
	case "notifications/progress": // of what a child has asked
		n, _ := strconv.ParseInt(string(jsonrpc.Get(m.Params, "progressToken")), 10, 64)
		var a serverRequest
		s.read(func(t *table) { a, _ = t.Asked(n) })
		if a.Token != nil {
			a.Child.Send(m.WithParams(jsonrpc.Set(m.Params, "progressToken", a.Token)).Raw)
		}
	default:
		for _, p := range s.children.running() {
			p.Send(slices.Clone(m.Raw))
		}
	}
}

// relayAnswer relays the host's answer to the child that has asked.
func (s *Session) relayAnswer(m *jsonrpc.Message) {
	n, _ := strconv.ParseInt(string(m.ID), 10, 64)
	var a serverRequest
	var ok bool
	if s.read(func(t *table) { a, ok = t.Reply(n) }); ok {
		s.noteAsked(a.Of)
		a.Child.Send(m.WithID(a.ID))
	}
}
