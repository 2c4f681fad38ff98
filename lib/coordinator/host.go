package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/control/api"
	"btools/lib/coordinator/pending"
	"btools/lib/coordinator/turns"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
	"btools/lib/mcp/front"
	"btools/lib/results"
	"btools/lib/tools"
)

// Host is what one host talks to, or all hosts of the stateless protocol, with its children.
type Host struct {
	server      *Server
	name        string                 // unique
	called      atomic.Pointer[string] // the name of its sessions, which begins with what people call it; nil: not yet
	initialized chan struct{}          // closed when children may send requests to the host

	browsers        source.Browsers
	params          atomic.Pointer[json.RawMessage] // of the host's initialize; nil before
	version         atomic.Pointer[string]          // of the protocol, as agreed with the host; nil before
	level           atomic.Pointer[json.RawMessage] // the parameters of logging/setLevel; nil: the host has set none
	initializedOnce sync.Once                       // closes initialized

	// Each of these has a lock of its own. They are taken in this order: that of children, that of requests or of a
	// supervisor, that of a process.
	requests
	children
	turns turns.Queue[*supervisor, *source.Lease]
	list  *catalog.List

	handed results.Handed

	paging    sync.Mutex                 // held while the tools of another page are listed
	current   atomic.Pointer[supervisor] // of builtin, for the browser that the host has used last
	pageNames tools.PageNames            // in the lists of all its browsers

	asks tools.Asks // what people are asked for its agents
}

// NewHost makes what one host talks to, or several. It calls send for each
// message to a host, in order.
func (s *Server) NewHost(send front.Send, shared bool) *Host {
	h := s.newHost(send, shared)
	if shared {
		h.call("")
	}
	return h
}

// NewNamed makes what one host talks to, whose browser has a name of api.NameOf.
func (s *Server) NewNamed(name string, send front.Send) front.Host {
	h := s.newHost(send, false)
	h.called.Store(&name)
	return h
}

// maxCalled is how many characters of the name of a host's program are in that of its sessions, which has room for a
// session_id.
const maxCalled = 14

// call names the host's sessions by its program, unless they have a name.
func (h *Host) call(program string) {
	words := strings.FieldsFunc(strings.ToLower(program), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	called := strings.Join(words, "-")
	called = strings.Trim(called[:min(len(called), maxCalled)], "-")
	var random [2]byte
	rand.Read(random[:])
	name := api.NameOf(cmp.Or(called, "mcp") + "-" + hex.EncodeToString(random[:]))
	h.called.CompareAndSwap(nil, &name)
}

func (s *Server) newHost(send front.Send, shared bool) *Host {
	h := &Host{server: s, name: rand.Text(), initialized: make(chan struct{})}
	h.handed.Since = time.Now()
	h.requests.server, h.send = s, s.masked(send)
	h.table = table{MaxAwaiting: s.Limits.Awaiting, MaxQuestions: s.Limits.Questions, NewKey: rand.Text, Shared: shared}
	h.children.host = h
	h.children.supervisors, h.children.started = map[string]*supervisor{}, map[mcp.Audience]bool{}
	h.list = s.catalog.NewList()
	h.ctx, h.end = context.WithCancel(context.Background())
	h.browsers = s.Source.Of(h.ctx, h, shared)
	s.mu.Lock()
	s.hosts[h] = true
	s.mu.Unlock()
	return h
}

// masked returns what sends a host messages without secrets.
func (s *Server) masked(send front.Send) front.Send {
	if s.Secrets == nil {
		return send
	}
	return func(to json.RawMessage, last bool, message []byte) {
		for _, name := range []string{"result", "error", "params"} {
			if value := jsonrpc.Get(message, name); value != nil {
				message = jsonrpc.Set(message, name, s.Secrets.MaskJSON(value))
			}
		}
		send(to, last, message)
	}
}

// Drain implements Host.
func (h *Host) Drain(ctx context.Context) {
	h.endListening()
	for {
		if h.Open() == 0 || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Close implements Host: it stops the host's children.
func (h *Host) Close() {
	release := h.browsers.Leave() // before nothing can be done any more
	var open []*pendingRequest
	var first bool
	if h.read(func(t *table) { open, first = t.Close() }); !first {
		return
	}
	supervisors := h.children.close()
	h.endListening()
	for _, r := range open {
		r.Value.fault(source.ErrEnded)
	}
	h.end()
	h.asks.Close()
	h.apply(func(t *table) []effect { return t.ExpireAll() })
	h.endTasks()
	var wg sync.WaitGroup
	for _, sup := range supervisors {
		wg.Go(sup.stop)
	}
	release() // at once, whatever the children do
	wg.Wait()
	release() // what one has made again
	h.work.Wait()
	h.server.archive.Texts.Drop(h.name)
	h.server.tasks.Do(func(all *taskTable) { all.Drop(h.name) })
	h.server.mu.Lock()
	delete(h.server.hosts, h)
	h.server.mu.Unlock()
}

// Handle implements Host.
func (h *Host) Handle(m *jsonrpc.Message, err error) {
	switch {
	case m == nil:
		h.send(nil, true, jsonrpc.Failure(nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: expected a JSON object")))
	case err != nil:
		h.send(m.ID, true, jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: %v", err)))
	case m.IsResponse():
		h.relayAnswer(m)
	case m.IsNotification():
		h.notified(m)
	default:
		h.request(m)
	}
}

// request answers a request of the host, or starts what answers it.
func (h *Host) request(m *jsonrpc.Message) {
	req := h.newRequest(m)
	req.turn = req.newTurn()
	ctx, cancel := context.WithCancel(h.ctx)
	req.cancel = cancel
	h.accept(ctx, req)
}

// newRequest is a message as a request that is to be answered.
func (h *Host) newRequest(m *jsonrpc.Message) *request {
	req := &request{host: h, m: m, env: mcp.Read(m, h.handshakeForm(), h.server.us)}
	req.Request = pendingRequest{ID: m.ID, Method: m.Method, Token: req.env.Token, Level: req.env.Level,
		Subject: req.env.Subject, Input: req.env.Input, MayAsk: req.env.MayAsk, Value: req}
	return req
}

// handshakeForm is the form of tasks for the host of the handshake.
func (h *Host) handshakeForm() mcp.TaskForm {
	if version := h.version.Load(); version != nil && *version == mcp.Legacy {
		return mcp.AskedTasks
	}
	return mcp.NoTasks
}

// tools returns the tools for an audience, as they are known now.
func (h *Host) tools(to mcp.Audience) *catalog.Tools { return h.list.Tools(to) }

// accept answers a request, or starts what answers it.
func (h *Host) accept(ctx context.Context, req *request) {
	var err error
	h.read(func(t *table) { err = t.Add(&req.Request) })
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
	if !h.admit(ctx, req) {
		return
	}
	if req.Method == "tools/call" {
		call := &toolCall{request: req}
		if req.task() == nil && call.asTask(ctx) {
			return
		}
		if !h.server.isOwn(req.env.Name) {
			call.run(ctx)
			return
		}
	}
	h.turns.Add(req.turn, nil)
	h.do(func() { h.serve(ctx, req) })
}

// admit makes the host ready for a request. It reports whether that is to be
// served: it may be answered already.
func (h *Host) admit(ctx context.Context, req *request) bool {
	if req.env.Era.HasHandshake() {
		switch {
		case req.Method == "initialize":
			h.initialize(ctx, req)
			return false
		case req.Method == "ping":
			return true
		case h.hostParams() == nil:
			req.fail(jsonrpc.Errorf(jsonrpc.InvalidRequest,
				"the first request is initialize, or says its protocol version in _meta"))
			return false
		}
		h.allowQuestions()
		return true
	}
	if h.called.Load() == nil {
		h.call(jsonrpc.GetString(req.m.Params, "_meta", "io.modelcontextprotocol/clientInfo", "name"))
	}
	if req.env.Refused != nil {
		req.fail(req.env.Refused)
		return false
	}
	if !h.children.hasRoom(req.env.Audience, h.server.Limits.CapabilitySets) {
		req.env.Audience = mcp.AskNothing
	}
	if req.Method == "server/discover" {
		return true
	}
	h.allowQuestions()
	if req.resume() {
		return false
	}
	h.startAll(req.env.Audience, false)
	return true
}

// allowQuestions allows children to send requests to the host.
func (h *Host) allowQuestions() {
	h.initializedOnce.Do(func() { close(h.initialized) })
}

// initialize answers the host's initialize. If it accepts the host, it starts the
// children, which get the host's capabilities.
func (h *Host) initialize(ctx context.Context, req *request) {
	result, err := h.ourAnswer(req)
	if err != nil {
		req.fail(err)
		return
	}
	params := slices.Clone(req.m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	version := jsonrpc.GetString(result, "protocolVersion")
	h.version.CompareAndSwap(nil, &version)
	h.params.CompareAndSwap(nil, &params)
	h.list.Greet(jsonrpc.Get(h.hostParams(), "capabilities"))
	h.call(jsonrpc.GetString(params, "clientInfo", "name"))
	h.startAll(mcp.OfHandshake, false)
	h.do(func() {
		h.server.catalog.Await(ctx, catalog.Initialized, h.server.Limits.Catalog.Initialize)
		h.introduce(req, result)
	})
}

// hostParams are the parameters of the host's initialize, nil before it.
func (h *Host) hostParams() json.RawMessage {
	if params := h.params.Load(); params != nil {
		return *params
	}
	return nil
}

// notified handles a notification of the host.
func (h *Host) notified(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/initialized":
		h.allowQuestions()
	case "notifications/cancelled":
		id := jsonrpc.Get(m.Params, "requestId")
		h.Cancel(id, jsonrpc.GetString(m.Params, "reason"))
		h.apply(func(t *table) []effect { return t.Abandon(id) })
	case "notifications/progress": // of what a child has asked
		n, _ := strconv.ParseInt(string(jsonrpc.Get(m.Params, "progressToken")), 10, 64)
		var a serverRequest
		h.read(func(t *table) { a, _ = t.Asked(n) })
		if a.Token != nil {
			a.Child.Send(m.WithParams(jsonrpc.Set(m.Params, "progressToken", a.Token)).Raw)
		}
	default:
		for _, p := range h.children.running() {
			p.Send(slices.Clone(m.Raw))
		}
	}
}

// relayAnswer relays the host's answer to the child that has asked.
func (h *Host) relayAnswer(m *jsonrpc.Message) {
	n, _ := strconv.ParseInt(string(m.ID), 10, 64)
	var a serverRequest
	var ok bool
	if h.read(func(t *table) { a, ok = t.Reply(n) }); ok {
		h.noteAsked(a.Of)
		a.Child.Send(m.WithID(a.ID))
	}
}

// New implements Hosts.
func (s *Server) New(send front.Send, shared bool) front.Host { return s.NewHost(send, shared) }

// TakesBatches implements Host.
func (h *Host) TakesBatches() bool {
	return jsonrpc.GetString(h.hostParams(), "protocolVersion") == mcp.Batching
}

// InputSchema implements Host.
func (h *Host) InputSchema(tool string, capabilities json.RawMessage) json.RawMessage {
	r, _ := h.tools(mcp.AudienceOf(capabilities)).Route(tool)
	return jsonrpc.Get(r.Tool, "inputSchema")
}

// hasApps reports whether the host shows MCP Apps, and the built-in child has one.
func (req *request) hasApps() bool {
	builtin := func(child child.Spec) bool { return child.Builtin }
	return mcp.HasApps(json.RawMessage(req.env.Audience.Askable(req.host.hostParams()))) &&
		slices.ContainsFunc(req.host.server.Children, builtin) && len(req.host.server.catalog.Apps) > 0
}

// Name implements source.Owner.
func (h *Host) Name() string {
	if h.called.Load() == nil {
		h.call("")
	}
	return *h.called.Load()
}

// Away implements Host.
func (h *Host) Away() (busy bool) { return h.browsers.Away() }
