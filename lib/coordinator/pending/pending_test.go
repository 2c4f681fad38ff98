package pending

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"btools/lib/jsonrpc"
)

type child struct {
	name  string
	alone bool
}

func (c *child) Alone(int64) bool { return c.alone }

type (
	table   = Table[*child, string]
	request = Request[*child, string]
	effect  = Effect[*child, string]
)

func newTable() *table {
	keys := 0
	return &table{MaxAwaiting: 8, MaxQuestions: 4, NewKey: func() string {
		keys++
		return fmt.Sprint("key", keys)
	}}
}

// add adds the call of a tool, which a child answers unless c is nil.
func add(t *testing.T, all *table, id string, c *child) *request {
	t.Helper()
	r := &request{ID: json.RawMessage(id), Method: "tools/call", MayAsk: true}
	if err := all.Add(r); err != nil {
		t.Fatal(err)
	}
	if c != nil && !all.Relay(r, c, 1) {
		t.Fatal("nobody waits for the answer")
	}
	return r
}

// kinds checks what the effects are.
func kinds(t *testing.T, what string, effects []effect, want ...Kind) {
	t.Helper()
	var got []Kind
	for _, e := range effects {
		got = append(got, e.Kind)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func askIn(t *table, c *child, key string) []effect {
	return t.Ask(c, json.RawMessage(`"`+key+`"`), key, json.RawMessage("{}"))
}

// A request that is refused is none.
func TestRefusedRequests(t *testing.T) {
	all := newTable()
	add(t, all, "1", nil)
	for id, want := range map[string]error{"1": ErrPending, "null": ErrNull} {
		if err := all.Add(&request{ID: json.RawMessage(id)}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", id, err, want)
		}
	}
	if open, first := all.Close(); len(open) != 1 || !first {
		t.Errorf("%d are open", len(open))
	}
	if err := all.Add(&request{ID: json.RawMessage("2")}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want %v", err, ErrClosed)
	}
	if _, first := all.Close(); first {
		t.Error("closed twice")
	}
}

// A request is answered once, whoever comes second, and its lease released once.
func TestAnsweredOnce(t *testing.T) {
	all, c := newTable(), &child{}
	r := add(t, all, "1", nil)
	died := make(chan struct{})
	lease := Lease{Release: func() {}, Died: died}
	if watch, over := all.Hold(r, lease); !watch || over {
		t.Error("a new lease is not watched")
	}
	if lost := all.Lost(died); len(lost) != 0 {
		t.Error("a request is lost that no child has")
	}
	all.Relay(r, c, 1)
	if lost := all.Lost(died); len(lost) != 1 {
		t.Errorf("%d requests are lost", len(lost))
	}
	kinds(t, "fault", all.End(r, []byte("{}"), "lost"), Stop, Answer, Release, Cancel)
	kinds(t, "answer", all.Finish(r, []byte("{}")))
	kinds(t, "cancel", all.Cancel(r.ID, ""))
	if _, over := all.Hold(r, lease); !over {
		t.Error("a request that is over holds a lease")
	}
}

// A request that is cancelled while it is given to its child is cancelled there
// too.
func TestCancelledWhileItIsRelayed(t *testing.T) {
	all, c := newTable(), &child{}
	r := add(t, all, "1", c)
	kinds(t, "cancel", all.Cancel(r.ID, "enough"), Stop, Answer, Cancel)
	late := all.Relayed(r)
	if kinds(t, "relayed", late, Cancel); late[0].Reason != "enough" {
		t.Errorf("cancelled for %q", late[0].Reason)
	}
	if all.Relay(add(t, all, "1", nil), c, 2); all.Len() != 1 {
		t.Error("the ID is not free")
	}
}

// Too many that await input end the oldest.
func TestMaxAwaiting(t *testing.T) {
	all, c := newTable(), &child{}
	all.MaxAwaiting = 2
	var requests []*request
	for n := range 3 {
		r := add(t, all, fmt.Sprint(n), c)
		kinds(t, "question", askIn(all, c, fmt.Sprint("q", n)), Settle)
		effects := all.Settle(r)
		if requests = append(requests, r); n < 2 {
			kinds(t, "settled", effects, RequireInput)
			continue
		}
		kinds(t, "one too many", effects, RequireInput, Resume, Stop, Cancel)
		if e := effects[1]; e.Request != requests[0] {
			t.Errorf("%s ends, not the oldest", e.Request.ID)
		}
	}
	kinds(t, "the end", all.ExpireAll(), Resume, Stop, Cancel, Resume, Stop, Cancel)
}

// A host may use the ID of a request that awaits input for another one.
func TestIDOfARequestThatAwaitsInput(t *testing.T) {
	all, c := newTable(), &child{}
	r := add(t, all, "1", c)
	askIn(all, c, "q")
	round := all.Settle(r)[0].Round
	other := add(t, all, "1", nil)
	kinds(t, "stale", all.Expire(r, round-1))
	kinds(t, "expired", all.Expire(r, round), Resume, Stop, Cancel)
	if all.Len() != 1 || all.IsOver(other) {
		t.Error("the other request is gone")
	}
}

// Questions are bounded, of each kind.
func TestMaxQuestions(t *testing.T) {
	all, c := newTable(), &child{}
	add(t, all, "1", c)
	kinds(t, "first", askIn(all, c, "q0"), Settle)
	for n := 1; n < all.MaxQuestions; n++ {
		kinds(t, "another", askIn(all, c, fmt.Sprint("q", n)))
	}
	kinds(t, "one too many", askIn(all, c, "q"), Refuse)
	for n := range all.MaxQuestions {
		if _, to, err := all.AskDirectly(ServerRequest[*child]{Child: c}, true, nil); err != nil || string(to) != "1" {
			t.Fatalf("question %d: %v", n, err)
		}
	}
	if _, _, err := all.AskDirectly(ServerRequest[*child]{Child: c}, true, nil); err == nil {
		t.Error("one too many is asked")
	}
	if numbers := all.ChildEnded(c); len(numbers) != all.MaxQuestions {
		t.Errorf("%d end with their child", len(numbers))
	}
}

// The time of a request does not run out while its child waits for the host.
func TestLate(t *testing.T) {
	all, c := newTable(), &child{}
	r := add(t, all, "1", c)
	late := func(what string, over, again bool) {
		t.Helper()
		if o, a := all.Late(r); o != over || a != again {
			t.Errorf("%s: over %v, again %v", what, o, a)
		}
	}
	late("child", true, false)
	number, _, _ := all.AskDirectly(ServerRequest[*child]{Child: c, ID: json.RawMessage("7")}, true, nil)
	late("server request", false, true)
	if _, ok := all.Asked(number); !ok {
		t.Error("the server request is unknown")
	}
	if n, _, sent := all.TakeBack(c, json.RawMessage("7")); n != number || !sent {
		t.Error("the server request is not taken back")
	}
	askIn(all, c, "q")
	late("settling", true, false)
	all.Settle(r)
	late("awaiting input", false, true)
	all.Finish(r, []byte("{}"))
	late("answered", false, false)
}

// What a child of several hosts says is for nobody if it is not clear for whom.
func TestShared(t *testing.T) {
	all, c := newTable(), &child{}
	all.Shared = true
	add(t, all, "1", c)
	add(t, all, "2", c)
	anyRequest := func(*request) bool { return true }
	kinds(t, "ambiguous question", askIn(all, c, "q"), Refuse)
	if _, ok := all.Route(c, true, anyRequest); ok {
		t.Error("an ambiguous message has a route")
	}
	if to, ok := all.Route(c, false, anyRequest); !ok || string(to.To) != "1" {
		t.Error("a message that names its request has no route")
	}
	c.alone = true
	kinds(t, "question", askIn(all, c, "q"), Settle)
}

// A host that answers nothing any more is asked nothing.
func TestMute(t *testing.T) {
	all, c := newTable(), &child{}
	refusal := jsonrpc.Errorf(jsonrpc.MethodNotFound, "no")
	if _, _, err := all.AskDirectly(ServerRequest[*child]{Child: c}, false, refusal); err != refusal {
		t.Errorf("%v", err)
	}
	all.AskDirectly(ServerRequest[*child]{Child: c}, true, refusal)
	if left := all.Mute(); len(left) != 1 {
		t.Errorf("%d are not answered", len(left))
	}
	if _, _, err := all.AskDirectly(ServerRequest[*child]{Child: c}, true, refusal); err != ErrMuted {
		t.Errorf("%v", err)
	}
}

// A repetition brings what the host answers, and is for the same tool.
func TestRepeat(t *testing.T) {
	all, c := newTable(), &child{}
	r := add(t, all, "1", c)
	askIn(all, c, "a")
	askIn(all, c, "b")
	key := all.Settle(r)[0].Key
	other := add(t, all, "2", nil)
	other.Subject = "another tool"
	if _, err := all.Repeat(other, key); err != ErrKey {
		t.Errorf("another tool: %v", err)
	}
	again := add(t, all, "3", nil)
	again.Input = json.RawMessage(`{"a":{"x":1},"b":"no object"}`)
	effects, err := all.Repeat(again, key)
	if err != nil {
		t.Fatal(err)
	}
	kinds(t, "repetition", effects, Stop, Resume, Reply, RequireInput)
	if string(effects[2].Message) != `{"x":1}` || effects[2].Child != c || len(effects[3].Questions) != 1 {
		t.Errorf("%+v", effects)
	}
	kinds(t, "answer", all.Finish(r, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)), Stop)
	lost := add(t, all, "4", nil) // the answer to 3 did not reach the host
	effects, _ = all.Repeat(lost, key)
	if kinds(t, "the key before", effects, Stop, Resume, Answer); string(effects[2].ID) != "4" {
		t.Errorf("%s is answered", effects[2].ID)
	}
	if all.Len() != 1 { // the one for another tool
		t.Errorf("%d are open", all.Len())
	}
}

// A request that nobody waits for is answered also while it awaits input, or when it
// has awaited that for too long.
func TestDetached(t *testing.T) {
	for name, end := range map[string]func(*table, *request) []effect{
		"answered": func(all *table, r *request) []effect { return all.Finish(r, []byte("{}")) },
		"expired":  func(all *table, r *request) []effect { return all.Expire(r, r.round) },
	} {
		all, c := newTable(), &child{alone: true}
		r := &request{ID: json.RawMessage("1"), Method: "tools/call", MayAsk: true, Detached: true}
		if err := all.Add(r); err != nil || !all.Relay(r, c, 1) {
			t.Fatal(err)
		}
		kinds(t, name, askIn(all, c, "a"), Settle)
		kinds(t, name, all.Settle(r), RequireInput)
		if all.Len() > 0 {
			t.Errorf("%s: the host waits for it", name)
		}
		want := []Kind{Resume, Stop, Answer}
		if name == "expired" {
			want = append(want, Cancel)
		}
		kinds(t, name, end(all, r), want...)
		if !all.IsOver(r) {
			t.Errorf("%s: it goes on", name)
		}
	}
}

// A request can be answered at once and go on under another ID, with its progress.
func TestDetach(t *testing.T) {
	all, c := newTable(), &child{alone: true}
	r := &request{ID: json.RawMessage("1"), Method: "tools/call", Token: json.RawMessage(`"p"`)}
	if err := all.Add(r); err != nil {
		t.Fatal(err)
	}
	if _, open := all.Detach(r, json.RawMessage("2"), 7); open {
		t.Error("nobody answers it yet")
	}
	all.Relay(r, c, 5)
	if was, open := all.Detach(r, json.RawMessage("2"), 7); string(was) != "1" || !open || all.Len() > 0 {
		t.Errorf("it was %s, open: %v; the host waits for %d", was, open, all.Len())
	}
	kinds(t, "its first ID", all.Cancel(json.RawMessage("1"), ""))
	to, ok := all.Route(c, false, func(*request) bool { return true })
	if !ok || string(to.To) != "2" || string(to.Token) != `"p"` {
		t.Errorf("progress goes to %+v", to)
	}
	effects := all.Cancel(json.RawMessage("2"), "enough")
	kinds(t, "its second ID", effects, Stop, Answer, Cancel)
	if effects[2].Number != 7 || string(effects[1].ID) != "2" {
		t.Errorf("%+v", effects)
	}
	if _, open := all.Detach(r, json.RawMessage("3"), 8); open {
		t.Error("it is over")
	}
}
