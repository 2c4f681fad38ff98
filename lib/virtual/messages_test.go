package virtual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"

	coder "github.com/coder/websocket"
)

// dialRaw connects a client that can send what ours cannot: fragments, binary
// messages.
func dialRaw(t *testing.T, s *Session) *coder.Conn {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k, err := s.Connect(r.Context(), ""); err == nil {
			k.Accept(w, r)
		}
	}))
	t.Cleanup(server.Close)
	raw, _, err := coder.Dial(t.Context(), server.URL,
		&coder.DialOptions{CompressionMode: coder.CompressionContextTakeover, CompressionThreshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	raw.SetReadLimit(-1)
	t.Cleanup(func() { raw.CloseNow() })
	return raw
}

// Whatever its form, a message that the rules refuse does not reach Chrome: %s is
// a target of another session, to which each message tries to attach, or which
// it tries to list.
func TestMessagesOfEachForm(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	other := newSession(t, b, Options{})
	q := connect(t, other, "")
	foreign := q.pages()[0]
	s := newSession(t, b, Options{})
	raw := dialRaw(t, s)
	p, page := attached(t, s)
	request := func(message string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, m := range []string{message, `{"id":77,"method":"Browser.getVersion"}`} {
			if err := raw.Write(ctx, coder.MessageText, []byte(m)); err != nil {
				t.Fatalf("%.200s: %v", message, err)
			}
		}
		var told strings.Builder
		for {
			_, m, err := raw.Read(ctx)
			if err != nil {
				t.Fatalf("%.200s: %v", message, err)
			}
			if bytes.Contains(m, []byte(`"id":77,`)) {
				return told.String()
			}
			told.Write(m)
		}
	}
	params := fmt.Sprintf(`{"targetId":%q,"flatten":true}`, foreign)
	for _, message := range []string{
		`{"id":1,"method":"\u0054arget.attachToTarget","params":` + params + `}`,
		`{"id":1,"\u006dethod":"Target.attachToTarget","params":` + params + `}`,
		"{\"id\":1,\"method\":\"Browser.getVersion\"}\x00{\"id\":2,\"method\":\"Target.attachToTarget\",\"params\":" +
			params + "}",
		"{\"id\":1,\"method\":\"Runtime.evaluate\",\"params\":{\"x\":\"\"}}\x00{\"id\":2,\"method\":" +
			"\"Target.attachToTarget\",\"params\":" + params + "}\x00",
		`{"id":1,"method":"target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"TARGET.ATTACHTOTARGET","params":` + params + `}`,
		`{"id":1,"method":"Target.attachToTarget ","params":` + params + `}`,
		`{"id":1,"method":"Browser.getVersion","method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"Target.attachToTarget","method":"Browser.getVersion","params":` + params + `}`,
		`{"id":1,"method":"Browser.getVersion","\u006dethod":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"Browser.getVersion","Method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,"params":{}}`,
		`{"id":1,"method":"Target.attachToTarget","params":{"targetId":"x","targetId":"` + foreign +
			`","flatten":true}}`,
		`{"id":1,"method":"Target.attachToTarget","params":{"targetId":"` + foreign +
			`","TargetId":"x","flatten":true}}`,
		`{"id":1,"method":"Target.attachToTarget","params":{"\u0074argetId":"` + foreign + `","flatten":true}}`,
		`{"id":1,"method":"Target.attachToTarget","params":{"targetId":"` + foreign + `"}}`,
		`{"id":1,"method":"Target.attachToTarget","params":{"targetId":"` + foreign + `","flatten":false}}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,"sessionId":null}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,"sessionId":5}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,"sessionId":""}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,"sessionId":"x"}`,
		`{"id":"1","method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1.5,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1e3,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":-1,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":-1,"method":"Runtime.evaluate","params":{"expression":"1"},"sessionId":"` + page + `"}`,
		`{"id":9007199254740992,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":2147483648,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"method":"Target.attachToTarget","params":` + params + `}`,
		`[{"id":1,"method":"Target.attachToTarget","params":` + params + `}]`,
		`{"id":1,"method":"Browser.getVersion"}{"id":2,"method":"Target.attachToTarget","params":` + params + `}`,
		`/**/{"id":1,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"Target.attachToTarget","params":` + params + `,}`,
		"\ufeff" + `{"id":1,"method":"Target.attachToTarget","params":` + params + `}`,
		`{"id":1,"method":"Target.sendMessageToTarget","params":{"targetId":"` + foreign + `","message":"{}"}}`,
		`{"id":1,"method":"Target.setAutoAttach",` +
			`"params":{"autoAttach":true,"waitForDebuggerOnStart":false,"flatten":false}}`,
		`{"id":1,"method":"Target.setRemoteLocations","params":{"locations":[]}}`,
		`{"id":1,"method":"Target.exposeDevToolsProtocol","params":{"targetId":"` + foreign + `"}}`,
		`{"id":1,"method":"Target.autoAttachRelated","params":{"targetId":"` + foreign +
			`","waitForDebuggerOnStart":false}}`,
		"", " ", "null", "5", `""`, "{", `{"id":1,"method":5}`, `{"id":1,"method":null}`,
		strings.Repeat(`{"params":`, 5000),
		`{"id":1,"method":"Target.attachToTarget","params":` + strings.Repeat("[", 20000) + `}`,
	} {
		told := request(message)
		if strings.Contains(told, "attachedToTarget") || strings.Contains(told, `"result"`) {
			t.Errorf("%.200s: %.300s", message, told)
		}
	}

	// Two pending commands with the same id: each is answered.
	if told := request(`{"id":5,"method":"Target.getTargets"}`) +
		request(`{"id":5,"method":"Target.getTargets"}`); strings.Count(told, `"id":5,`) != 2 {
		t.Errorf("an id twice: %s", told)
	}
	// A message in many fragments, which Chrome gets as it was checked.
	w, err := raw.Writer(t.Context(), coder.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`{"id":6,"me`, `thod":"Target.getTar`, `gets","params":{"filter":[`,
		strings.Repeat(`{},`, 99) + `{}]`, strings.Repeat(" ", 100_000), `}}`} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if told := request(`{"id":7,"method":"Browser.getVersion"}`); !strings.Contains(told, `"id":6,"result"`) ||
		strings.Contains(told, foreign) {
		t.Errorf("a message in fragments: %s", told)
	}
	// A long one passes if its method carries a script; another one ends its client only.
	long := wire.Command("8", page, "Runtime.evaluate",
		map[string]any{"expression": "/*" + strings.Repeat("x", 17<<20) + "*/ 'long'"})
	if err := p.conn.Write(long); err != nil {
		t.Fatal(err)
	}
	for m := p.next(); string(jsonrpc.Get(m, "id")) != "8"; m = p.next() {
	}
	go p.conn.Write(wire.Command("9", "", "Target.getTargets", map[string]string{"x": strings.Repeat("x", 17<<20)}))
	for {
		_, err := p.conn.Next()
		if closed := (*websocket.CloseError)(nil); errors.As(err, &closed) && closed.Code != websocket.TooBig {
			t.Errorf("after a message that is too long: %v", err)
		}
		if err != nil {
			break
		}
	}
	if err := raw.Write(t.Context(), coder.MessageBinary,
		[]byte(`{"id":9,"method":"Browser.getVersion"}`)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := raw.Read(t.Context()); err != nil {
			if coder.CloseStatus(err) != coder.StatusUnsupportedData {
				t.Errorf("a binary message: %v", err)
			}
			break
		}
	}
	q.must("", "Browser.getVersion", nil)
	if ids := q.pages(); len(ids) != 1 || ids[0] != foreign || len(q.events) > 0 {
		t.Errorf("the other session has %v and was told %s", ids, q.events)
	}
}
