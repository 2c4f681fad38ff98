package coordinator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	c.expire = time.Now().Add(delay + parkedFor)
	slices.Sort(c.asked)
	m.hears("%s requires %s", c.id, strings.Join(c.asked, ","))
}

// settle is the time after which a question is asked.
func (m *model) settle() {
	for _, c := range m.calls {
		if c.state == modelAsking && len(c.asked) == 0 {
			c.state = modelOpen
		} else if c.state == modelAsking {
			m.require(c, settleDelay)
		}
	}
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

// modelRun is a session that does what the model says.
type modelRun struct {
	*model
	*fixture
	t     *testing.T
	heard []string // by the child
	last  string   // the ID of the call that it got last
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
		r.ask(statelessCall(id, ""))
		c.n = r.last
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
		r.latest().say(`{"jsonrpc":"2.0","id":"` + key + `","method":"elicitation/create","params":{"message":"?"}}`)
	case 2: // an answer
		if c := pick(at(modelOpen, modelAsking, modelAwaiting)); c != nil {
			n := c.n
			r.answered(c, "answered by "+n)
			r.latest().say(`{"jsonrpc":"2.0","id":` + n + `,"result":{"n":` + n + `}}`)
		}
	case 3:
		r.settle()
		time.Sleep(settleDelay)
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
		r.ask(statelessCall(strconv.Itoa(r.ids), `,"requestState":"`+token+`","inputResponses":`+string(responses)))
	case 6: // the host cancels
		c := pick(at(modelOpen, modelAsking, modelAwaiting, modelAnswered))
		if c == nil {
			break
		}
		if c.state != modelAnswered {
			r.toChild("call %s cancelled", c.n)
		}
		r.end(c)
		r.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + c.id + `}}`)
	case 7: // the child takes a question back
		c := pick(func(c *modelCall) bool { return len(c.asked) > 0 && c.state <= modelAwaiting })
		if c == nil {
			break
		}
		key := c.asked[0]
		c.asked = c.asked[1:]
		r.latest().say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + key + `"}}`)
	case 8: // time passes
		wait := parkedFor / 4
		r.settle()
		end := time.Now().Add(wait)
		for _, c := range r.calls {
			if (c.state == modelAwaiting || c.state == modelAnswered) && !c.expire.After(end) {
				if c.state == modelAwaiting {
					r.toChild("call %s cancelled", c.n)
				}
				r.end(c)
			}
		}
		time.Sleep(wait)
	}
	r.check(fmt.Sprintf("event %d, %d", op%9, arg))
}

// check compares what was heard.
func (r *modelRun) check(what string) {
	r.t.Helper()
	var host []string
	for _, line := range r.fixture.heard() {
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
	compare("child", r.heard, r.child)
	r.host, r.child, r.heard = nil, nil, nil
}

// Whatever host and child do, each call is answered once, or not at all if it is
// cancelled; the host is asked what the child asks, once it has settled; and
// each question is answered once.
func FuzzRequests(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 3, 0, 4, 1, 2, 0, 0, 0, 1, 0, 1, 0, 3, 0, 4, 2, 5, 2, 1, 0, 4, 255, 2, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 3, 0, 7, 0, 6, 1, 2, 0, 4, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 0, 7, 0, 3, 0, 1, 0, 3, 0, 2, 0, 6, 0, 0, 0, 1, 0, 8, 0, 2, 0, 4, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 3, 0, 1, 0, 3, 0, 6, 1, 5, 0, 5, 0, 1, 0, 1, 1, 4, 0, 4, 1, 4, 3, 4, 255})
	f.Fuzz(func(t *testing.T, events []byte) {
		if len(events) > 120 {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			r := &modelRun{model: &model{tokens: map[string]*modelCall{}}, t: t}
			r.fixture = newFixture(t, wellBehaved(func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				switch {
				case m.Method == "tools/call":
					r.last = string(m.ID)
					r.heard = append(r.heard, "call")
				case m.Method == "notifications/cancelled":
					r.heard = append(r.heard, fmt.Sprintf("call %s cancelled", jsonrpc.Get(m.Params, "requestId")))
				case m.IsResponse() && m.Error != nil:
					r.heard = append(r.heard, strings.Trim(string(m.ID), `"`)+" refused")
				case m.IsResponse():
					r.heard = append(r.heard, strings.Trim(string(m.ID), `"`)+" accepted")
				}
				return "", nil
			}))
			r.ask(statelessCall(`"first"`, "")) // starts the child
			r.latest().say(`{"jsonrpc":"2.0","id":` + r.last + `,"result":{"n":0}}`)
			r.host, r.child = []string{`"first" answered by 0`}, []string{"call"}
			r.check("start")
			for ; len(events) > 1; events = events[2:] {
				r.do(events[0], events[1])
			}
			for _, c := range r.calls {
				if c.state == modelOpen || c.state == modelAsking {
					r.hears("%s fails: %s", c.id, errEnded)
				}
			}
			r.fixture.Close()
			r.heard = nil // the child may end before it is told
			r.check("end")
		})
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
		time.Sleep(settleDelay)
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
