package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// askable is the address of a browser that answers Btools.requestHuman by what it is given, and closes its connection
// for "".
func askable(t *testing.T) (endpoint string, answers chan string) {
	answers = make(chan string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r)
		if err != nil {
			return
		}
		defer ws.Close(websocket.Normal, "")
		ended := make(chan struct{})
		defer close(ended)
		for {
			m, err := ws.Next()
			if err != nil {
				return
			}
			b, _ := m.Bytes()
			if id := string(jsonrpc.Get(b, "id")); jsonrpc.GetString(b, "method") != "Btools.requestHuman" {
				ws.Write([]byte(`{"id":` + id + `,"result":{}}`))
			} else {
				go func() {
					select {
					case text := <-answers:
						if text == "" {
							ws.Close(websocket.Normal, "")
							return
						}
						ws.Write([]byte(`{"id":` + id + `,` + text + `}`))
					case <-ended:
					}
				}()
			}
		}
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http"), answers
}

// next is the next message of a server.
func (h *agent) next() *jsonrpc.Message {
	h.t.Helper()
	line, err := h.from.Line()
	if err != nil {
		h.t.Fatal(err)
	}
	m, err := jsonrpc.Parse(line)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// waits is the ask_id of a result that has no answer yet.
func waits(t *testing.T, m *jsonrpc.Message) string {
	t.Helper()
	id := jsonrpc.GetString(m.Result, "structuredContent", "ask_id")
	if id == "" {
		t.Fatalf("%s", m.Raw)
	}
	return id
}

// A call returns while a person thinks, whatever the host does, and the next one waits on.
func TestAskHumanInParts(t *testing.T) {
	t.Parallel()
	const second = 10 * time.Millisecond
	for _, stateless := range []bool{false, true} {
		endpoint, answers := askable(t)
		h := newAgent(t, Options{Endpoint: endpoint, Second: second, Stateless: stateless})
		h.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}`)
		call := func(args string) string {
			return h.start("tools/call", `{"name":"browser_ask_human","arguments":`+args+`}`)
		}
		says := func(id, want string) {
			t.Helper()
			if text, _ := said(h.answer(id).Result); !strings.Contains(text, want) {
				t.Errorf("stateless %v: %s, not %s", stateless, text, want)
			}
		}
		ask := func(action string) (q *jsonrpc.Message, id string) {
			id = call(`{"instructions":"Log in"}`)
			if q = h.next(); q.Method != "elicitation/create" {
				t.Fatalf("%s", q.Raw)
			}
			if stateless { // the host's request is answered: it waits for the next one
				time.Sleep(2 * second * time.Duration(askWait/time.Second))
				action = "accept"
			}
			if action != "" {
				h.send(string(jsonrpc.Response(q.ID, []byte(`{"action":"`+action+`"}`))))
			}
			return q, waits(t, h.answer(id))
		}
		_, id := ask("accept")
		says(call(`{"ask_id":"`+id+`"}`), id) // once more
		answers <- `"result":{"outcome":"done","note":"as \"Anna\"","url":"u"}`
		says(call(`{"ask_id":"`+id+`"}`), `The person says: "as \"Anna\""`)
		says(call(`{"ask_id":"`+id+`"}`), "has done it") // it is kept
		if q, id := ask(""); !stateless {
			h.send(string(jsonrpc.Response(q.ID, []byte(`{"action":"decline"}`)))) // after the call
			says(call(`{"ask_id":"`+id+`"}`), "the person declined")
		} else {
			answers <- `"result":{"outcome":"failed","note":"the session has ended"}`
			says(call(`{"ask_id":"`+id+`"}`), "it has failed: the session has ended")
		}
		for answer, want := range map[string]string{
			`"error":{"code":-32601,"message":"'Btools.requestHuman' wasn't found"}`: "needs a session of bproxy share",
			`"error":{"code":-32000,"message":"one ask at a time"}`:                  "one ask at a time",
			"": "the browser or its program has ended",
			`"result":{"outcome":"timeout","note":""}`: "nobody has answered in time",
		} {
			id := call(`{"instructions":"Log in"}`)
			answers <- answer
			var m *jsonrpc.Message
			for m = h.next(); m.Method != ""; m = h.next() { // the question, if it was early, and that it is over
			}
			if text, isError := said(m.Result); string(m.ID) != id || !isError || !strings.Contains(text, want) {
				t.Errorf("%s: %s", answer, m.Raw)
			}
		}
	}
	all := &Asks{}
	all.Close()
	endpoint, _ := askable(t)
	if k, err := all.begin(t.Context(), endpoint, "x", nil); err == nil {
		t.Error(fmt.Sprint(k))
	}
}
