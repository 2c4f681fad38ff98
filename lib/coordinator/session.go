package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"btools/lib/jsonrpc"
)

const (
	// greetWait is how long the host's greeting waits for children that are
	// run for the first time; hosts give up after a second.
	greetWait = 800 * time.Millisecond
	// listWait is how long its first question for their tools waits.
	listWait = 20 * time.Second
)

// legacy is the protocol that children are spoken to in, at most: the newest
// one with a handshake.
const legacy = "2025-11-25"

// Session is a host and its children.
type Session struct {
	c       *Coordinator
	send    func([]byte) // a message to the host
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	greeted chan struct{} // closed when the host may be asked something

	mu      sync.Mutex
	params  json.RawMessage // of the host's initialize; nil before
	level   json.RawMessage // the parameters of logging/setLevel
	kids    map[string]*kid // by child and browser
	flights map[string]*flight
	asks    map[int64]ask // what children ask the host, by our ID
	lastAsk int64
	watched map[<-chan struct{}]bool
	kept    map[string]*kept  // by pool
	owners  map[string]*Child // of resources and prompts, by kind and name
	listed  *merged           // the list that the host has seen; nil: none
	dirty   map[*process]bool // its list is asked for, and has changed since
	closed  bool
}

// flight is a request of the host that is being answered.
type flight struct {
	id     json.RawMessage
	tool   bool // a call of a tool
	modern bool
	p      *process // that answers it; nil: none yet
	n      int64    // its ID there
	place  *place
	cancel context.CancelFunc // of what is done for it
	done   bool
}

// ask is a request of a child that the host is to answer.
type ask struct {
	p  *process
	id json.RawMessage
}

// NewSession makes a session. Send is given each message to the host, in
// order.
func (c *Coordinator) NewSession(send func([]byte)) *Session {
	s := &Session{c: c, send: send, greeted: make(chan struct{}), kids: map[string]*kid{}, flights: map[string]*flight{}, asks: map[int64]ask{},
		watched: map[<-chan struct{}]bool{}, owners: map[string]*Child{}, kept: map[string]*kept{}, dirty: map[*process]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	c.sessions[s] = true
	c.mu.Unlock()
	return s
}

// Drain returns when every request is answered, or the context ends.
func (s *Session) Drain(ctx context.Context) {
	for {
		s.mu.Lock()
		n := len(s.flights)
		s.mu.Unlock()
		if n == 0 || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Close stops the session's children, and with them what is still being
// answered.
func (s *Session) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	kids := s.kids
	s.mu.Unlock()
	if closed {
		return
	}
	s.cancel()
	s.mu.Lock()
	for _, k := range s.kept {
		go func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.drop()
		}()
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, k := range kids {
		wg.Go(k.stop)
	}
	wg.Wait()
	s.work.Wait()
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
}

// Handle takes one message of the host. It does not wait for an answer.
func (s *Session) Handle(line []byte) {
	if !json.Valid(line) {
		s.send(jsonrpc.Failure(nil, jsonrpc.Errorf(jsonrpc.ParseError, "this is no JSON: %s", clip(line))))
		return
	}
	m, err := jsonrpc.Parse(line)
	switch {
	case m == nil:
		s.send(jsonrpc.Failure(nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "this is no request: a JSON object is")))
	case err != nil:
		s.send(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InvalidRequest, "this is no request: %v", err)))
	case m.IsResponse():
		s.answered(m)
	case m.IsNotification():
		s.notified(m)
	default:
		s.request(m)
	}
}

// request answers a request, or has it answered.
func (s *Session) request(m *jsonrpc.Message) {
	f := &flight{id: m.ID, modern: isModern(m.Params), tool: m.Method == "tools/call"}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(s.ctx)
	key := string(m.ID)
	s.mu.Lock()
	if _, twice := s.flights[key]; twice || key == "null" {
		s.mu.Unlock()
		f.cancel()
		s.send(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InvalidRequest, "a request with the id %s is being answered already", clip(m.ID))))
		return
	}
	s.flights[key] = f
	known := s.params != nil || f.modern
	s.mu.Unlock()
	switch {
	case m.Method == "initialize":
		s.initialize(m)
	case m.Method != "ping" && m.Method != "server/discover":
		if !known {
			s.fail(f, jsonrpc.Errorf(jsonrpc.InvalidRequest, "the first request is initialize, or says its protocol version in _meta"))
			return
		}
		s.greet()
	}
	if m.Method == "tools/call" && s.fast(m, f) {
		return
	}
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		s.serve(ctx, m, f)
	}()
}

// greet lets children ask the host.
func (s *Session) greet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.greeted) {
		close(s.greeted)
	}
}

// isModern reports whether a request is of the stateless protocol, by what it
// says of itself.
func isModern(params json.RawMessage) bool {
	return jsonrpc.GetString(params, "_meta", "io.modelcontextprotocol/protocolVersion") > legacy
}

// initialize starts the children.
func (s *Session) initialize(m *jsonrpc.Message) {
	s.mu.Lock()
	again := s.params != nil
	if s.params = slices.Clone(m.Params); s.params == nil {
		s.params = json.RawMessage("{}")
	}
	s.mu.Unlock()
	if !again {
		s.startAll()
	}
}

// startAll starts each child, for any browser: none of them is launched for
// it.
func (s *Session) startAll() {
	for i := range s.c.Children {
		child := &s.c.Children[i]
		s.work.Go(func() {
			b := Browser{}
			if child.takesEndpoint() {
				var err error
				if b, err = s.c.Browsers.any(s.ctx); err != nil {
					s.c.failed(child, err)
					return
				}
			}
			if k := s.kid(child, b); k != nil {
				k.get(s.ctx) // its error is noted
			}
		})
	}
}

// kid is the child for a browser, nil if the session is closed.
func (s *Session) kid(child *Child, b Browser) *kid {
	key := child.Name + "\x00"
	if child.takesEndpoint() {
		key += b.Pool + "\x00" + b.Instance + "\x00" + b.HTTPURL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	k := s.kids[key]
	if k == nil {
		k = &kid{session: s, child: child, browser: b}
		s.kids[key] = k
	}
	return k
}

// all are the children that run.
func (s *Session) all() (running []*process) {
	s.mu.Lock()
	var kids []*kid
	for _, k := range s.kids {
		kids = append(kids, k)
	}
	s.mu.Unlock()
	for _, k := range kids {
		if p := k.running(); p != nil {
			running = append(running, p)
		}
	}
	return running
}

// childParams are the parameters of a child's initialize: the host's, as the
// child is to offer it what it offers us.
func (s *Session) childParams() json.RawMessage {
	s.mu.Lock()
	params := s.params
	s.mu.Unlock()
	if v := jsonrpc.GetString(params, "protocolVersion"); v == "" || v > legacy {
		params = jsonrpc.Set(params, "protocolVersion", json.RawMessage(strconv.Quote(legacy)))
	}
	if jsonrpc.Get(params, "capabilities") == nil {
		params = jsonrpc.Set(params, "capabilities", json.RawMessage("{}"))
	}
	if jsonrpc.Get(params, "clientInfo") == nil {
		params = jsonrpc.Set(params, "clientInfo", json.RawMessage(`{"name":"bmcp","version":`+strconv.Quote(s.c.Release)+`}`))
	}
	return params
}

func (s *Session) logLevel() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// finish answers a request, once; what was held for it is let go.
func (s *Session) finish(f *flight, message []byte) {
	s.mu.Lock()
	if f.done {
		s.mu.Unlock()
		return
	}
	f.done = true
	delete(s.flights, string(f.id))
	place := f.place
	s.mu.Unlock()
	f.cancel()
	if message != nil {
		s.send(message)
	}
	if place != nil && place.release != nil {
		go place.release()
	}
}

func (s *Session) result(f *flight, result json.RawMessage) {
	if f.modern {
		result = modernResult(result)
	}
	s.finish(f, jsonrpc.Response(f.id, result))
}

func (s *Session) fail(f *flight, err error) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(jsonrpc.InternalError, "%v", err)
	}
	s.finish(f, jsonrpc.Failure(f.id, e))
}

// fault answers the call of a tool with an error that is for the agent to
// read.
func (s *Session) fault(f *flight, err error) {
	if !f.tool {
		s.fail(f, err)
		return
	}
	s.result(f, faultResult(err))
}

func faultResult(err error) json.RawMessage {
	text, _ := json.Marshal(err.Error())
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}],"isError":true}`)
}

// modernResult is a result as the stateless protocol wants it.
func modernResult(result json.RawMessage) json.RawMessage {
	if jsonrpc.Get(result, "resultType") == nil {
		result = jsonrpc.Set(result, "resultType", json.RawMessage(`"complete"`))
	}
	return result
}

// forward relays a request to a child, and its answer to the host.
func (s *Session) forward(p *process, m *jsonrpc.Message, f *flight) {
	s.mu.Lock()
	if f.done {
		s.mu.Unlock()
		return
	}
	f.p, f.n = p, p.newID()
	s.mu.Unlock()
	p.relay(f.n, m, func(got *jsonrpc.Message, err error) {
		if err == nil && f.place != nil && f.place.died != nil && len(got.Raw) < maxFault && string(jsonrpc.Get(got.Result, "isError")) == "true" {
			// It may be the end of the browser, which the child has noticed
			// before us: then the next call must not go there too.
			go func() {
				select {
				case <-f.place.died:
				case <-time.After(noticeDelay):
				}
				s.finish(f, s.answerOf(f, got))
			}()
			return
		}
		if err != nil {
			s.fault(f, err)
			return
		}
		s.finish(f, s.answerOf(f, got))
	})
}

const (
	maxFault    = 64 << 10 // bytes of a result that tells of a fault
	noticeDelay = 30 * time.Millisecond
)

// answerOf is a child's answer as the host gets it.
func (s *Session) answerOf(f *flight, got *jsonrpc.Message) []byte {
	result := got.Result
	switch {
	case result == nil:
		return got.WithID(f.id)
	case f.place != nil && f.place.Pool != "":
		result = withPlace(result, f.place)
	case !f.modern:
		return got.WithID(f.id)
	}
	if f.modern {
		result = modernResult(result)
	}
	return jsonrpc.Response(f.id, result)
}

// withPlace tells in a result which instance it is of.
func withPlace(result json.RawMessage, p *place) json.RawMessage {
	meta := jsonrpc.Get(result, "_meta")
	for _, v := range [][2]string{{"btools/instance", p.Instance}, {"btools/pool", p.Pool}} {
		quoted, _ := json.Marshal(v[1])
		meta = jsonrpc.Set(meta, v[0], quoted)
	}
	return jsonrpc.Set(result, "_meta", meta)
}

// notified handles a notification of the host.
func (s *Session) notified(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/initialized":
		s.greet()
	case "notifications/cancelled":
		s.cancelled(jsonrpc.Get(m.Params, "requestId"), jsonrpc.GetString(m.Params, "reason"))
	default:
		for _, p := range s.all() {
			p.in.Write(slices.Clone(m.Raw), false)
		}
	}
}

// cancelled has a request of the host answered no more.
func (s *Session) cancelled(id json.RawMessage, reason string) {
	s.mu.Lock()
	f := s.flights[string(id)]
	var p *process
	var n int64
	if f != nil {
		p, n = f.p, f.n
	}
	s.mu.Unlock()
	if f == nil {
		return // answered meanwhile
	}
	s.finish(f, nil)
	if p != nil {
		p.forget(n, reason)
	}
}

// answered passes the host's answer to the child that has asked.
func (s *Session) answered(m *jsonrpc.Message) {
	n, _ := strconv.ParseInt(string(m.ID), 10, 64)
	s.mu.Lock()
	a, ok := s.asks[n]
	delete(s.asks, n)
	s.mu.Unlock()
	if ok {
		a.p.in.Write(m.WithID(a.id), false)
	}
}

// fromChild handles what a child says of its own accord, in the order in which
// it says it.
func (s *Session) fromChild(p *process, m *jsonrpc.Message) {
	if m.IsRequest() {
		s.asked(p, m)
		return
	}
	switch m.Method {
	case "notifications/cancelled":
		id := string(jsonrpc.Get(m.Params, "requestId"))
		s.mu.Lock()
		for n, a := range s.asks {
			if a.p == p && string(a.id) == id {
				delete(s.asks, n)
				s.mu.Unlock()
				s.send(jsonrpc.Request(nil, m.Method, jsonrpc.Set(m.Params, "requestId", strconv.AppendInt(nil, n, 10))))
				return
			}
		}
		s.mu.Unlock()
	case "notifications/tools/list_changed":
		s.mu.Lock()
		_, asking := s.dirty[p]
		s.dirty[p] = asking
		s.mu.Unlock()
		if !asking {
			go s.refresh(p)
		}
	default:
		if !isClosed(s.greeted) {
			return
		}
		s.send(m.Raw)
	}
}

// refresh asks a child for its tools, again as long as it says meanwhile that
// they have changed.
func (s *Session) refresh(p *process) {
	for {
		s.mu.Lock()
		s.dirty[p] = false
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
		tools, err := pages(ctx, p, "tools/list", "tools")
		cancel()
		if err == nil {
			s.c.list(p.child, tools)
		} else if s.ctx.Err() == nil {
			s.c.failed(p.child, err)
		}
		s.mu.Lock()
		again := s.dirty[p] && err == nil
		if !again {
			delete(s.dirty, p)
		}
		s.mu.Unlock()
		if !again {
			return
		}
		time.Sleep(20 * time.Millisecond) // many changes are one
	}
}

// toolsChanged tells the host, if it has seen another list.
func (s *Session) toolsChanged() {
	now := s.c.tools()
	s.mu.Lock()
	tell := s.listed != nil && s.listed != now && s.params != nil
	s.mu.Unlock()
	if tell {
		s.send(jsonrpc.Request(nil, "notifications/tools/list_changed", nil))
	}
}

// needs are the capabilities that a host must have for what a child asks it.
var needs = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

// asked passes a child's request to the host, if that has said that it can
// answer it.
func (s *Session) asked(p *process, m *jsonrpc.Message) {
	if m.Method == "ping" {
		p.in.Write(jsonrpc.Response(m.ID, json.RawMessage("{}")), false)
		return
	}
	s.mu.Lock()
	can := jsonrpc.Get(s.params, "capabilities")
	need, ok := needs[m.Method]
	if s.closed || can == nil || ok && jsonrpc.Get(can, need) == nil {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the host has no %s", m.Method)), false)
		return
	}
	s.lastAsk++
	n := s.lastAsk
	s.asks[n] = ask{p, slices.Clone(m.ID)}
	s.mu.Unlock()
	s.send(m.WithID(strconv.AppendInt(nil, n, 10)))
}

// childEnded takes back what a child has asked, and has it started again when
// it is needed.
func (s *Session) childEnded(p *process) {
	s.mu.Lock()
	var open []int64
	for n, a := range s.asks {
		if a.p == p {
			open = append(open, n)
			delete(s.asks, n)
		}
	}
	var kids []*kid
	for _, k := range s.kids {
		kids = append(kids, k)
	}
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	for _, n := range open {
		s.send(jsonrpc.Request(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+strconv.FormatInt(n, 10)+`,"reason":"the child has ended"}`)))
	}
	for _, k := range kids {
		k.ended(p)
	}
	s.c.Log.Warn(p.gone().Error())
}

// watch has the calls on a browser fail when it dies.
func (s *Session) watch(died <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if died == nil || s.watched[died] {
		return
	}
	s.watched[died] = true
	go func() {
		select {
		case <-died:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		delete(s.watched, died)
		var lost []*flight
		for _, f := range s.flights {
			if f.place != nil && f.place.died == died && f.p != nil {
				lost = append(lost, f)
			}
		}
		s.mu.Unlock()
		for _, f := range lost { // whose place and child stay from now on
			s.fault(f, errBrowserDied)
			f.p.forget(f.n, "the browser has ended")
		}
	}()
}

var errBrowserDied = errors.New("the browser ended during this call: the next call gets a new one")
