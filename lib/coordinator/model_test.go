package coordinator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
)

// model says what becomes of the calls of a host of the stateless protocol, all
// of one child: what the host and the child hear of each event.
type model struct {
	calls     []*modelCall // in the order of their arrival
	questions int          // of the child so far
	ids       int          // of the host so far
	host      []string     // what the host hears of the event
	child     []string     // what the child hears of it
	tokens    map[string]*modelCall
}

type modelState int

const (
	modelOpen     modelState = iota // the host waits for the answer
	modelAsking                     // the same, but it is about to be asked
	modelAwaiting                   // the host is to come again
	modelAnswered                   // the same, but the answer is there
	modelOver
)

type modelCall struct {
	id     string // that the host waits for
	n      string // its ID at the child
	state  modelState
	asked  []string // what is to be answered
	tokens []string // the requestStates that are taken: the last one and the one before
	expire time.Time
}

func (m *model) hears(format string, a ...any) { m.host = append(m.host, fmt.Sprintf(format, a...)) }
func (m *model) toChild(format string, a ...any) {
	m.child = append(m.child, fmt.Sprintf(format, a...))
}

// target is the call that a question is taken to be about: one without
// questions, else one that waits at the child, else the oldest.
func (m *model) target() (target *modelCall) {
	rank := func(c *modelCall) int {
		switch {
		case len(c.asked) == 0:
			return 0
		case c.state != modelAwaiting:
			return 1
		}
		return 2
	}
	for _, c := range m.calls {
		if c.state <= modelAwaiting && (target == nil || rank(c) < rank(target)) {
			target = c
		}
	}
	return target
}

func (m *model) end(c *modelCall) {
	c.state = modelOver
	for _, token := range c.tokens {
		delete(m.tokens, token)
	}
	c.tokens = nil
}

// require has the host told, after a delay, what it is asked.
func (m *model) require(c *modelCall, delay time.Duration) {
	c.state = modelAwaiting
	c.expire = time.Now().Add(delay + DefaultLimits.AwaitInput)
	slices.Sort(c.asked)
	m.hears("%s requires %s", c.id, strings.Join(c.asked, ","))
}

// settle is the time after which a question is asked.
func (m *model) settle() {
	for _, c := range m.calls {
		if c.state == modelAsking && len(c.asked) == 0 {
			c.state = modelOpen
		} else if c.state == modelAsking {
			m.require(c, DefaultLimits.Settle)
		}
	}
}

// pass lets time pass.
func (m *model) pass(d time.Duration) {
	m.settle()
	end := time.Now().Add(d)
	for _, c := range m.calls {
		if (c.state == modelAwaiting || c.state == modelAnswered) && !c.expire.After(end) {
			if c.state == modelAwaiting {
				m.toChild("call %s cancelled", c.n)
			}
			m.end(c)
		}
	}
	time.Sleep(d)
}

// answered is the child's answer.
func (m *model) answered(c *modelCall, what string) {
	switch c.state {
	case modelOpen, modelAsking:
		m.hears("%s %s", c.id, what)
		m.end(c)
	case modelAwaiting:
		c.state = modelAnswered
		c.n = what
	}
}

// modelled does what the model says.
type modelled interface {
	// call, repeat and cancel are what the host does, the others the child.
	call(id string) (n string)
	repeat(id, token string, responses json.RawMessage)
	cancel(id string)
	question(key string)
	answer(n string)
	takeBack(key string)
	// heard are the messages that the host got since the last time, and what
	// the child did.
	heard() (host, child []string)
	close()
}

// modelRun compares something with the model.
type modelRun struct {
	*model
	modelled
	t *testing.T
}

// do lets both go through an event.
func (r *modelRun) do(op, arg byte) {
	pick := func(ok func(*modelCall) bool) *modelCall {
		var some []*modelCall
		for _, c := range r.calls {
			if ok(c) {
				some = append(some, c)
			}
		}
		if len(some) == 0 {
			return nil
		}
		return some[int(arg)%len(some)]
	}
	at := func(states ...modelState) func(*modelCall) bool {
		return func(c *modelCall) bool { return slices.Contains(states, c.state) }
	}
	switch op % 9 {
	case 0: // a new call
		r.ids++
		id := strconv.Itoa(r.ids)
		c := &modelCall{id: id}
		r.calls = append(r.calls, c)
		r.toChild("call")
		c.n = r.call(id)
	case 1: // a question
		r.questions++
		key := fmt.Sprint("q", r.questions)
		if c := r.target(); c == nil {
			r.toChild("%s refused", key)
		} else {
			if c.asked = append(c.asked, key); c.state == modelOpen {
				c.state = modelAsking
			}
		}
		r.question(key)
	case 2: // an answer
		if c := pick(at(modelOpen, modelAsking, modelAwaiting)); c != nil {
			n := c.n
			r.answered(c, "answered by "+n)
			r.modelled.answer(n)
		}
	case 3:
		r.pass(DefaultLimits.Settle)
	case 4, 5: // the host comes again, with some answers; 5: with the state before
		c := pick(at(modelAwaiting, modelAnswered))
		if c == nil {
			break
		}
		token := c.tokens[len(c.tokens)-1]
		if op%9 == 5 {
			token = c.tokens[0]
		}
		r.ids++
		c.id = strconv.Itoa(r.ids)
		responses := json.RawMessage("{}")
		asked := c.asked
		c.asked = nil
		for i, key := range asked {
			if arg>>(i%8)&1 == 1 {
				responses = jsonrpc.Set(responses, key, json.RawMessage(`{"action":"accept"}`))
				if c.state == modelAwaiting {
					r.toChild("%s accepted", key)
				}
			} else {
				c.asked = append(c.asked, key)
			}
		}
		slices.Sort(r.child)
		if c.state == modelAnswered {
			r.hears("%s %s", c.id, c.n)
			r.end(c)
		} else {
			for _, other := range c.tokens {
				delete(r.tokens, other)
			}
			c.tokens = []string{token}
			if c.state = modelOpen; len(c.asked) > 0 {
				r.require(c, 0)
			}
		}
		r.repeat(strconv.Itoa(r.ids), token, responses)
	case 6: // the host cancels
		c := pick(at(modelOpen, modelAsking, modelAwaiting, modelAnswered))
		if c == nil {
			break
		}
		if c.state != modelAnswered {
			r.toChild("call %s cancelled", c.n)
		}
		r.end(c)
		r.modelled.cancel(c.id)
	case 7: // the child takes a question back
		c := pick(func(c *modelCall) bool { return len(c.asked) > 0 && c.state <= modelAwaiting })
		if c == nil {
			break
		}
		key := c.asked[0]
		c.asked = c.asked[1:]
		r.takeBack(key)
	case 8: // time passes
		r.pass(DefaultLimits.AwaitInput / 4)
	}
	r.check(fmt.Sprintf("event %d, %d", op%9, arg))
}

// check compares what was heard.
func (r *modelRun) check(what string) {
	r.t.Helper()
	var host []string
	lines, child := r.heard()
	for _, line := range lines {
		m, err := jsonrpc.Parse([]byte(line))
		switch {
		case err != nil:
			r.t.Fatalf("%s: no message: %s", what, line)
		case jsonrpc.GetString(m.Result, "resultType") == "input_required":
			var asked map[string]json.RawMessage
			json.Unmarshal(jsonrpc.Get(m.Result, "inputRequests"), &asked)
			var keys []string
			for key := range asked {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			host = append(host, fmt.Sprintf("%s requires %s", m.ID, strings.Join(keys, ",")))
			i := slices.IndexFunc(r.calls, func(c *modelCall) bool { return c.id == string(m.ID) })
			c := r.calls[i]
			c.tokens = append(c.tokens, jsonrpc.GetString(m.Result, "requestState"))
			if len(c.tokens) > 2 {
				c.tokens = c.tokens[1:]
			}
		case jsonrpc.Get(m.Result, "n") != nil:
			host = append(host, fmt.Sprintf("%s answered by %s", m.ID, jsonrpc.Get(m.Result, "n")))
		default:
			host = append(host, fmt.Sprintf("%s fails: %s", m.ID, cmp.Or(firstText(m.Result), string(m.Error))))
		}
	}
	compare := func(who string, got, want []string) {
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			r.t.Fatalf("%s: the %s hears %q, want %q", what, who, got, want)
		}
	}
	compare("host", host, r.host)
	compare("child", child, r.child)
	r.host, r.child = nil, nil
}

// run lets both go through the events, and ends them.
func (r *modelRun) run(events []byte) {
	for ; len(events) > 1; events = events[2:] {
		r.do(events[0], events[1])
	}
	for _, c := range r.calls {
		if c.state == modelOpen || c.state == modelAsking {
			r.hears("%s fails: ### Error\n%s", c.id, source.ErrEnded)
		}
	}
	r.close()
	r.check("end")
}

// fuzzModel compares something with the model. Whatever host and child do, each
// call is answered once, or not at all if it is cancelled; the host is asked
// what the child asks, once it has settled; and each question is answered once.
func fuzzModel(f *testing.F, start func(t *testing.T) modelled) {
	f.Add([]byte{0, 0, 1, 0, 3, 0, 4, 1, 2, 0, 0, 0, 1, 0, 1, 0, 3, 0, 4, 2, 5, 2, 1, 0, 4, 255, 2, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 3, 0, 7, 0, 6, 1, 2, 0, 4, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 0, 7, 0, 3, 0, 1, 0, 3, 0, 2, 0, 6, 0, 0, 0, 1, 0, 8, 0, 2, 0, 4, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 3, 0, 1, 0, 3, 0, 6, 1, 5, 0, 5, 0, 1, 0, 1, 1, 4, 0, 4, 1, 4, 3, 4, 255})
	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) > 120 {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			r := &modelRun{model: &model{tokens: map[string]*modelCall{}}, modelled: start(t), t: t}
			r.run(events)
		})
	})
}

// modelledSession is a session, with its child.
type modelledSession struct {
	*fixture
	mu    sync.Mutex
	child []string // what it has heard
	last  string   // the ID of the call that it got last
}

func (s *modelledSession) call(id string) string {
	s.ask(statelessCall(id, ""))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *modelledSession) repeat(id, token string, responses json.RawMessage) {
	s.ask(statelessCall(id, `,"requestState":"`+token+`","inputResponses":`+string(responses)))
}

func (s *modelledSession) cancel(id string) {
	s.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
}

func (s *modelledSession) question(key string) {
	s.latest().say(`{"jsonrpc":"2.0","id":"` + key + `","method":"elicitation/create","params":{"message":"?"}}`)
}

func (s *modelledSession) answer(n string) {
	s.latest().say(`{"jsonrpc":"2.0","id":` + n + `,"result":{"n":` + n + `}}`)
}

func (s *modelledSession) takeBack(key string) {
	s.latest().say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + key + `"}}`)
}

func (s *modelledSession) heard() (host, child []string) {
	host = s.fixture.heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	child, s.child = s.child, nil
	return host, child
}

func (s *modelledSession) close() {
	s.fixture.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = nil // it may end before it is told
}

func FuzzRequests(f *testing.F) {
	fuzzModel(f, func(t *testing.T) modelled {
		s := &modelledSession{}
		s.fixture = newFixture(t, wellBehaved(func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case m.Method == "tools/call":
				s.last = string(m.ID)
				s.child = append(s.child, "call")
			case m.Method == "notifications/cancelled":
				s.child = append(s.child, fmt.Sprintf("call %s cancelled", jsonrpc.Get(m.Params, "requestId")))
			case m.IsResponse() && m.Error != nil:
				s.child = append(s.child, strings.Trim(string(m.ID), `"`)+" refused")
			case m.IsResponse():
				s.child = append(s.child, strings.Trim(string(m.ID), `"`)+" accepted")
			}
			return "", nil
		}))
		n := s.call(`"first"`) // starts the child
		s.answer(n)
		if host, _ := s.heard(); len(host) != 1 {
			t.Fatalf("the first call is answered %q", host)
		}
		return s
	})
}

// modelledTable is a table of requests, whose effects are noted.
type modelledTable struct {
	t        modelTable
	mu       sync.Mutex // timers are called side by side
	requests map[string]*pending.Request[modelChild, string]
	keys     int
	host     []string
	child    []string
}

type (
	modelTable  = pending.Table[modelChild, string]
	modelEffect = pending.Effect[modelChild, string]
	modelChild  string
)

func (modelChild) Alone(int64) bool { return true }

const theChild = modelChild("c")

// apply executes the effects of a change, as a session does.
func (s *modelledTable) apply(change func(*modelTable) []modelEffect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range change(&s.t) {
		switch e.Kind {
		case pending.Answer:
			if m, err := jsonrpc.Parse(e.Message); err == nil {
				s.host = append(s.host, string(m.WithID(e.ID)))
			}
		case pending.RequireInput:
			requests := json.RawMessage("{}")
			for key, question := range e.Questions {
				requests = jsonrpc.Set(requests, key, question)
			}
			result := jsonrpc.Set(json.RawMessage(`{"resultType":"input_required"}`), "inputRequests", requests)
			result = jsonrpc.Set(result, "requestState", jsonrpc.Quote(e.Key))
			s.host = append(s.host, string(jsonrpc.Response(e.ID, result)))
			time.AfterFunc(DefaultLimits.AwaitInput, func() {
				s.apply(func(t *modelTable) []modelEffect { return t.Expire(e.Request, e.Round) })
			})
		case pending.Settle:
			time.AfterFunc(DefaultLimits.Settle, func() {
				s.apply(func(t *modelTable) []modelEffect { return t.Settle(e.Request) })
			})
		case pending.Cancel:
			s.child = append(s.child, fmt.Sprintf("call %d cancelled", e.Number))
		case pending.Reply:
			s.child = append(s.child, strings.Trim(string(e.ID), `"`)+" accepted")
		case pending.Refuse:
			s.child = append(s.child, strings.Trim(string(e.ID), `"`)+" refused")
		}
	}
}

func (s *modelledTable) request(id string) *pending.Request[modelChild, string] {
	return &pending.Request[modelChild, string]{ID: json.RawMessage(id), Method: "tools/call", MayAsk: true}
}

func (s *modelledTable) call(id string) string {
	r := s.request(id)
	s.apply(func(t *modelTable) []modelEffect {
		if err := t.Add(r); err != nil || !t.Relay(r, theChild, int64(len(s.requests)+1)) {
			panic("a new request is refused")
		}
		return t.Relayed(r)
	})
	n := strconv.Itoa(len(s.requests) + 1)
	s.requests[n] = r
	s.child = append(s.child, "call")
	return n
}

func (s *modelledTable) repeat(id, token string, responses json.RawMessage) {
	r := s.request(id)
	r.Input = responses
	s.apply(func(t *modelTable) []modelEffect {
		if err := t.Add(r); err != nil {
			panic(err)
		}
		effects, err := t.Repeat(r, token)
		if err != nil {
			panic(err)
		}
		return effects
	})
}

func (s *modelledTable) cancel(id string) {
	s.apply(func(t *modelTable) []modelEffect {
		return append(t.Cancel(json.RawMessage(id), ""), t.Abandon(json.RawMessage(id))...)
	})
}

func (s *modelledTable) question(key string) {
	s.apply(func(t *modelTable) []modelEffect {
		return t.Ask(theChild, jsonrpc.Quote(key), key, json.RawMessage("{}"))
	})
}

func (s *modelledTable) answer(n string) {
	message := jsonrpc.Response(json.RawMessage("0"), json.RawMessage(`{"n":`+n+`}`))
	s.apply(func(t *modelTable) []modelEffect { return t.Finish(s.requests[n], message) })
}

func (s *modelledTable) takeBack(key string) {
	s.apply(func(t *modelTable) []modelEffect {
		t.TakeBack(theChild, jsonrpc.Quote(key))
		return nil
	})
}

func (s *modelledTable) heard() (host, child []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	host, child, s.host, s.child = s.host, s.child, nil, nil
	return host, child
}

func (s *modelledTable) close() {
	s.apply(func(t *modelTable) (effects []modelEffect) {
		open, _ := t.Close()
		for _, r := range open {
			effects = append(effects, t.Finish(r, jsonrpc.Response(r.ID, faultResult(source.ErrEnded)))...)
		}
		return append(effects, t.ExpireAll()...)
	})
	s.mu.Lock()
	s.child = nil
	s.mu.Unlock()
	time.Sleep(DefaultLimits.AwaitInput) // its timers end
}

// The core does by itself what the session does with it.
func FuzzTable(f *testing.F) {
	fuzzModel(f, func(*testing.T) modelled {
		s := &modelledTable{requests: map[string]*pending.Request[modelChild, string]{}}
		s.t = modelTable{MaxAwaiting: DefaultLimits.Awaiting, MaxQuestions: DefaultLimits.Questions,
			NewKey: func() string {
				s.keys++
				return fmt.Sprint("key", s.keys)
			}}
		return s
	})
}

// The end of a child answers the calls whose hosts wait, and is kept for those
// that come again.
func TestChildEndsWhileHostIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.say(`{"jsonrpc":"2.0","id":"q` + string(m.ID) + `","method":"elicitation/create","params":{}}`)
			}
			return "", nil
		}))
		f.ask(statelessCall("1", ""))
		time.Sleep(DefaultLimits.Settle)
		got := f.heard()
		if len(got) != 1 {
			t.Fatalf("%q", got)
		}
		m, _ := jsonrpc.Parse([]byte(got[0]))
		state := jsonrpc.GetString(m.Result, "requestState")
		f.ask(statelessCall("2", ""))
		f.latest().exit(errors.New("crashed"))
		f.wants("the second call", `"id":2,"result":{"resultType":"complete"`)
		f.ask(statelessCall("3", `,"requestState":"`+state+`"`))
		f.wants("the first call", `"id":3,"result":{"resultType":"complete"`)
	})
}
