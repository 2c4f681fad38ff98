package single

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Clients see their messages as on a connection of their own, over one.
func TestConnectionsShareOne(t *testing.T) {
	t.Parallel()
	c, b := newChrome(t)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			p := dial(t, b, "")
			for i := range 50 {
				want := fmt.Sprintf(`{"id":%d,"result":{"n":%d}}`, i, n)
				p.say(fmt.Sprintf(` { "id":%d, "method":"Fake.echo","params":{"n":%d} } `, i, n))
				if got := p.hear(); got != want {
					t.Errorf("client %d: got %s, want %s", n, got, want)
					return
				}
			}
		})
	}
	all.Wait()
	if c.asked != 1 {
		t.Errorf("the browser was asked %d times", c.asked)
	}
	if _, err := b.Dial(t.Context(), "none"); err == nil || err.Error() != "No target with given id found" {
		t.Errorf("a target that there is not: %v", err)
	}
}

// A connection has the CDP sessions that it began, and no others.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	_, b := newChrome(t)
	owner, other := dial(t, b, ""), dial(t, b, "")
	owner.say(`{"id":1,"method":"Target.attachToTarget","params":{"targetId":"a","flatten":true}}`)
	const child = `00000000000000000000000000000003` // after the two of the connections
	if got := owner.hear(); got != `{"method":"Target.attachedToTarget","params":{"sessionId":"`+child+
		`","targetInfo":{}}}` {
		t.Errorf("the event: %s", got)
	}
	if got := owner.hear(); got != `{"id":1,"result":{"sessionId":"`+child+`"}}` {
		t.Errorf("the answer: %s", got)
	}
	echo := func(session string) string {
		return fmt.Sprintf(`{"id":7,"method":"Fake.echo","sessionId":%q}`, session)
	}
	const none = `{"id":7,"error":{"code":-32001,"message":"Session with given id not found."}}`
	yes := `{"id":7,"result":{},"sessionId":"` + child + `"}`
	if got := owner.ask(echo(child)); got != yes {
		t.Errorf("the owner's: %s", got)
	}
	for _, s := range []string{child, strings.Repeat("0", 31) + "1", strings.Repeat("0", 31) + "2", "x"} {
		if got := other.ask(echo(s)); got != none {
			t.Errorf("another one's: %s", got)
		}
	}
	for message, want := range map[string]string{
		`{"id":7,"method":"Fake.echo","sessionId":""}`:                              `{"id":7,"result":{}}`,
		`{"id":7,"method":"Fake.echo","sessionId":"x","sessionId":"` + child + `"}`: "duplicate",
		`{"id":7,"method":"Fake.echo","session\u0049d":"` + child + `"}`:            "not found",
		`{"id":7,"method":"Fake.echo","params":{"a":tru}}`:                          "JSON",
		`nothing`:                         "must be an object",
		`{"id":"7","method":"Fake.echo"}`: "integer 'id'",
	} {
		if got := other.ask(message); !strings.Contains(got, want) {
			t.Errorf("%s: %s", message, got)
		}
	}
	owner.say(`{"id":8,"method":"Target.detachFromTarget","params":{"sessionId":"` + child + `"}}`)
	owner.hear()
	owner.hear()
	if got := owner.ask(echo(child)); got != none {
		t.Errorf("after its end: %s", got)
	}
}

// The end of a client ends its session, and no other client.
func TestClientsEnd(t *testing.T) {
	t.Parallel()
	c, b := newChrome(t)
	one, two := dial(t, b, ""), dial(t, b, "")
	one.ask(`{"id":1,"method":"Fake.echo"}`)
	one.conn.Close(websocket.Normal, "")
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		gone := slices.Clone(c.detached)
		c.mu.Unlock()
		if len(gone) == 1 && strings.HasSuffix(gone[0], "01") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the sessions that have ended: %v", gone)
		}
	}
	if got := two.ask(`{"id":1,"method":"Fake.echo"}`); got != `{"id":1,"result":{}}` {
		t.Errorf("the other client: %s", got)
	}
	c.say(`{"method":"Fake.event","params":{},"sessionId":"00000000000000000000000000000001"}`)
	c.say(`{"method":"Fake.event","params":{},"sessionId":"00000000000000000000000000000002"}`)
	if got := two.hear(); got != `{"method":"Fake.event","params":{}}` {
		t.Errorf("an event: %s", got)
	}
}

// Chrome may end a session, such as that with a page that is closed, or the
// WebSocket.
func TestBrowserEnds(t *testing.T) {
	t.Parallel()
	c, b := newChrome(t)
	page, whole := dial(t, b, "page"), dial(t, b, "")
	c.say(`{"method":"Target.detachedFromTarget","params":{"sessionId":"00000000000000000000000000000001"}}`)
	if got := page.hear(); got != targetClosed {
		t.Errorf("at the end of the target: %s", got)
	}
	page.lost()
	if asked, err := b.Check(t.Context()); !asked || err != nil {
		t.Errorf("while it is well: %v %v", asked, err)
	}
	whole.say(`{"id":1,"method":"Fake.echo"}`)
	if got := whole.hear(); got != `{"id":1,"result":{}}` {
		t.Errorf("the other one: %s", got)
	}
	c.conn.Close(websocket.GoingAway, "enough")
	var closed *websocket.CloseError
	if err := whole.lost(); !errors.As(err, &closed) || *closed != (websocket.CloseError{
		Code: websocket.GoingAway, Reason: "enough"}) {
		t.Errorf("at the end of the browser: %v", err)
	}
	if asked, err := b.Check(t.Context()); !asked || err != errEnded {
		t.Errorf("after its end: %v %v", asked, err)
	}
	if c.asked != 1 {
		t.Errorf("the browser was asked %d times", c.asked)
	}
	if got := dial(t, b, "").ask(`{"id":1,"method":"Fake.echo"}`); got != `{"id":1,"result":{}}` {
		t.Errorf("with the next one: %s", got)
	}
}

// A refusal counts for a while; what is no refusal does not.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := newChrome(t)
		if asked, err := b.Check(t.Context()); asked || err != nil {
			t.Errorf("before the first connection: %v %v", asked, err)
		}
		fails := func(want string) {
			t.Helper()
			if _, err := b.Dial(t.Context(), ""); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		const refused = `the browser has refused the connection: it answered "403 Forbidden": "no"`
		c.refusal = &websocket.RefusedError{Status: "403 Forbidden", Text: "no"}
		fails(refused)
		fails(refused)
		if c.asked != 1 {
			t.Errorf("the browser was asked %d times after one refusal", c.asked)
		}
		time.Sleep(refusalHolds + time.Second)
		c.refusal = errors.New("nobody listens")
		fails("nobody listens")
		fails("nobody listens")
		if c.asked != 3 {
			t.Errorf("the browser was asked %d times", c.asked)
		}
	})
}

// Who waits leaves; the question stays, and its answer counts for the next.
func TestQuestionOutlivesClient(t *testing.T) {
	t.Parallel()
	c, _ := newChrome(t)
	allow := make(chan struct{})
	b := New(func(ctx context.Context) (*websocket.Conn, error) {
		<-allow
		return c.open(ctx)
	})
	defer b.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if _, err := b.Dial(ctx, ""); err != enough {
		t.Errorf("got %v", err)
	}
	close(allow)
	dial(t, b, "").ask(`{"id":1,"method":"Fake.echo"}`)
	if c.asked != 1 {
		t.Errorf("the browser was asked %d times", c.asked)
	}
}

// Large messages keep their place, and a client that does not read them is
// dropped; the others go on.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	_, b := newChrome(t)
	m, err := b.await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.mostEach = 7_000_000
	deaf, reader, other := dial(t, b, ""), dial(t, b, ""), dial(t, b, "")
	length := func(i int) int { // less than the bound in all: a slow reader is not dropped
		if i%3 == 1 {
			return 2_000_000
		}
		return 0
	}
	for i := range 8 {
		deaf.conn.Write(fmt.Appendf(nil, `{"id":%d,"method":"Fake.long","params":{"length":2000000}}`, i))
		reader.say(fmt.Sprintf(`{"id":%d,"method":"Fake.long","params":{"length":%d}}`, i, length(i)))
	}
	var work sync.WaitGroup
	work.Go(func() {
		for i := range 8 {
			got := reader.hear()
			if want := fmt.Sprintf(`{"id":%d,`, i); !strings.HasPrefix(got, want) || len(got) < length(i) {
				t.Errorf("message %d is %.20s, of %d bytes", i, got, len(got))
			}
		}
	})
	for i := range 100 {
		if got := other.ask(fmt.Sprintf(`{"id":%d,"method":"Fake.echo"}`, i)); got != fmt.Sprintf(
			`{"id":%d,"result":{}}`, i) {
			t.Errorf("the other client: %s", got)
		}
	}
	work.Wait()
	deaf.lost()
	if got := other.ask(`{"id":1,"method":"Fake.echo"}`); got != `{"id":1,"result":{}}` {
		t.Errorf("afterwards: %s", got)
	}
}

// A message that is too long ends its client and no other one.
func TestTooLongMessages(t *testing.T) {
	t.Parallel()
	fake := &chrome{t: t, sessions: map[string]bool{}}
	server, conn := websocket.Pipe()
	go fake.serve(server)
	m := newMux(newSocket(conn, 1000))
	defer m.Close()
	ask := func(c *Client, length int) error {
		c.Put(wire.Command("1", "", "Fake.long", map[string]any{"length": length}))
		for {
			got, err := c.Next()
			if err != nil || strings.HasPrefix(string(got), `{"id":1,`) {
				return err
			}
		}
	}
	var clients []*Client
	for range 2 {
		c, err := m.Connect(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	var closed *websocket.CloseError
	if err := ask(clients[0], 100_000); !errors.As(err, &closed) || closed.Code != websocket.TooBig {
		t.Errorf("the client of a message that is too long: %v", err)
	}
	if err := ask(clients[1], 500); err != nil {
		t.Errorf("the other client: %v", err)
	}
}

func TestSessionOf(t *testing.T) {
	t.Parallel()
	long := `{"id":1,"a":"` + strings.Repeat("x", 200) + `","b":1}`
	for message, want := range map[string][2]string{
		long:                                        {"", long},
		`{"id":1,"result":{},"sessionId":"A"}`:      {"A", `{"id":1,"result":{}}`},
		`{"id":1,"sessionId":"A","result":{}}`:      {"A", `{"id":1,"result":{}}`},
		`{"id":1,"result":{"a":1,"sessionId":"A"}}`: {"", `{"id":1,"result":{"a":1,"sessionId":"A"}}`},
		`{"id":1,"result":"\",\"sessionId\":\"A"}`:  {"", `{"id":1,"result":"\",\"sessionId\":\"A"}`},
		`{"id":1,"a":"x,","sessionId":"A\u0041"}`:   {"AA", `{"id":1,"a":"x,"}`},
		`{}`: {"", `{}`},
	} {
		b := []byte(message)
		session, at := sessionOf(b)
		own := withoutSession(b, at)
		if session != want[0] || session != "" && string(own) != want[1] {
			t.Errorf("%s: %q, %s", message, session, own)
		}
	}
}

// The short way to find the session of a message finds the one that is there.
func FuzzSessionOf(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{},"sessionId":"A"}`))
	f.Add([]byte(`{"method":"A.b","params":{"sessionId":"B"},"sessionId":"A"}`))
	f.Add([]byte(`{"id":1,"result":"\",\"sessionId\":\"A"}`))
	f.Add([]byte(`{"sessionId":"A","result":[{"a":1,"sessionId":"B"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var object map[string]json.RawMessage
		if json.Unmarshal(b, &object) != nil || !utf8.Valid(b) {
			return
		}
		names := 0
		jsonrpc.Members(b, func(name, _ json.RawMessage) error { names++; return nil })
		if names != len(object) { // one is there twice
			return
		}
		var want string
		json.Unmarshal(object["sessionId"], &want)
		session, at := sessionOf(b)
		if session != want {
			t.Fatalf("%q has the session %q, not %q", b, want, session)
		}
		if session == "" {
			return
		}
		var left map[string]json.RawMessage
		if err := json.Unmarshal(withoutSession(b, at), &left); err != nil {
			t.Fatalf("without its session: %q: %v", b, err)
		}
		delete(object, "sessionId")
		if !maps.EqualFunc(object, left, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Fatalf("without its session: %q, want %q", left, object)
		}
	})
}
