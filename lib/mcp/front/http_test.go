package front

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// testFront is a front by HTTP, for a bubble of synctest.
type testFront struct {
	*httpFront
	*recorder
	t *testing.T
}

func newTestFront(t *testing.T, limits Limits) *testFront {
	r := &recorder{}
	return &testFront{newHTTPFront(r, limits), r, t}
}

// ask makes a request in a session.
func (f *testFront) ask(ctx context.Context, method, session, body string,
	headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(body))
	r.Header.Set(sessionHeader, session)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.serve(w, r)
	return w
}

const (
	greeting    = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// greet begins a session.
func (f *testFront) greet(status int) (session string) {
	f.t.Helper()
	w := f.ask(f.t.Context(), http.MethodPost, "", greeting)
	if w.Code != status {
		f.t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	return w.Header().Get(sessionHeader)
}

// has checks whether there is a session.
func (f *testFront) has(session string, want bool) {
	f.t.Helper()
	w := f.ask(f.t.Context(), http.MethodPost, session, initialized)
	if got := w.Code == http.StatusAccepted; got != want {
		f.t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// One session too many ends the one that was not used for the longest time. If
// all are listened to, it is refused.
func TestMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits
		limits.Sessions = 2
		f := newTestFront(t, limits)
		first := f.greet(http.StatusOK)
		second := f.greet(http.StatusOK)
		time.Sleep(time.Second)
		f.has(first, true) // is used later
		third := f.greet(http.StatusOK)
		f.has(second, false)
		ctx, cancel := context.WithCancel(t.Context())
		listened := make(chan struct{}, 2)
		for _, session := range []string{first, third} {
			go func() {
				f.ask(ctx, http.MethodGet, session, "")
				listened <- struct{}{}
			}()
		}
		synctest.Wait()
		f.greet(http.StatusServiceUnavailable)
		cancel()
		<-listened
		<-listened
		f.greet(http.StatusOK)
	})
}

// A session that nobody uses is forgotten, and its host is closed.
func TestSessionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits
		limits.SessionIdle = time.Minute
		f := newTestFront(t, limits)
		session := f.greet(http.StatusOK)
		for range 3 {
			time.Sleep(time.Minute - time.Second)
			f.has(session, true)
		}
		f.last().heard()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.last().heard(); !reflect.DeepEqual(got, []string{"close"}) {
			t.Errorf("%q", got)
		}
		f.has(session, false)
	})
}

// A host whose connection is cut while it listens is away, until it says something.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFront(t, DefaultLimits)
		session := f.greet(http.StatusOK)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, cancel)
		f.ask(ctx, http.MethodGet, session, "")
		f.last().heard()
		time.Sleep(DefaultLimits.Lost + time.Second)
		if got := f.last().heard(); !reflect.DeepEqual(got, []string{"away"}) {
			t.Errorf("%q", got)
		}
	})
}

// What is wrong with a request is said with a status and an error of JSON-RPC, and no
// host hears of it.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits
		limits.Requests = 2
		f := newTestFront(t, limits)
		f.batches = true
		session := f.greet(http.StatusOK)
		host := f.last()
		const a, b = `{"jsonrpc":"2.0","id":"a","method":"m"}`, `{"jsonrpc":"2.0","id":"b","method":"m"}`
		go f.ask(t.Context(), http.MethodPost, session, a)
		synctest.Wait()
		refused := func(name, method, session, body string, status int, code int, why string, headers ...string) {
			t.Helper()
			host.heard()
			w := f.ask(t.Context(), method, session, body, headers...)
			if w.Code != status || !strings.Contains(w.Body.String(), fmt.Sprintf(`"code":%d,`, code)) ||
				!strings.Contains(w.Body.String(), why) {
				t.Errorf("%s: %d %s, want %d, %d and %q", name, w.Code, w.Body, status, code, why)
			}
			if got := host.heard(); got != nil {
				t.Errorf("%s: the host was given %q", name, got)
			}
		}
		for _, c := range []struct {
			name, method, session, body string
			status, code                int
			why                         string
		}{
			{"a method", "PUT", session, a, 405, -32600, "MCP has POST, GET and DELETE, not PUT"},
			{"no session", "GET", "", "", 400, -32600, "Mcp-Session-Id is missing"},
			{"another session", "POST", "other", a, 404, -32600, "initialize again"},
			{"no JSON", "POST", session, "{", 400, -32700, "not valid JSON"},
			{"no object", "POST", session, "7", 400, -32600, "not a request"},
			{"an ID", "POST", session, `{"id":null,"method":"m"}`, 400, -32600, "is a string or a number"},
			{"an open ID", "POST", session, a, 400, -32600, `\"\\\"a\\\"\" is being answered already`},
			{"no initialize", "POST", "", b, 400, -32600, "Mcp-Session-Id is missing"},
			{"parameters", "POST", "", `{"id":1,"method":"initialize"}`, 400, -32602, "an object of parameters"},
			{"an array without a session", "POST", "", `[` + b + `]`, 400, -32600, "not a request"},
			{"an empty array", "POST", session, `[]`, 400, -32600, "a batch has 1 to 1024 messages"},
			{"no messages", "POST", session, `[7]`, 400, -32600, "not a request"},
			{"one ID twice", "POST", session, `[` + b + `,` + b + `]`, 400, -32600, "is being answered already"},
		} {
			refused(c.name, c.method, c.session, c.body, c.status, c.code, c.why)
		}
		refused("a version", "POST", session, b, 400, -32600, "is not spoken here", "Mcp-Protocol-Version",
			"2020-01-01")
		refused("an event", "GET", session, "", 400, -32600, "", "Last-Event-ID", "7-0")
		host.batches = false
		refused("an array", "POST", session, `[`+b+`]`, 400, -32600, "protocol 2025-03-26")
		go f.ask(t.Context(), http.MethodPost, session, b)
		synctest.Wait()
		refused("too many", "POST", session, greeting, 429, -32600, "limit 2")
		if w := f.ask(t.Context(), http.MethodDelete, session, ""); w.Code != http.StatusNoContent {
			t.Errorf("the end of a session: %d %s", w.Code, w.Body)
		}
		f.has(session, false)
	})
}

// The requests of a batch have one stream, which ends with the last answer. One without
// requests has none.
func TestHTTPBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFront(t, DefaultLimits)
		f.batches = true
		session := f.greet(http.StatusOK)
		f.last().heard()
		answer := make(chan *httptest.ResponseRecorder)
		go func() {
			answer <- f.ask(t.Context(), http.MethodPost, session, `[{"id":"a","method":"m"},{"id":"b","method":"m"},`+
				initialized+`]`)
		}()
		synctest.Wait()
		if got := fmt.Sprint(f.last().heard()); got != `[m "a" m "b" notifications/initialized]` {
			t.Errorf("the host was given %s", got)
		}
		f.last().answer(`"b"`, `{}`)
		f.last().send(nil, false, []byte(`{"method":"of no request"}`))
		f.last().answer(`"a"`, `{}`)
		w := <-answer
		var data []string
		for line := range strings.Lines(w.Body.String()) {
			if d, ok := strings.CutPrefix(line, "data: {"); ok {
				data = append(data, strings.TrimSpace(d))
			}
		}
		if got := fmt.Sprint(data); w.Code != 200 ||
			got != `["jsonrpc":"2.0","id":"b","result":{}} "jsonrpc":"2.0","id":"a","result":{}}]` {
			t.Errorf("%d %s", w.Code, got)
		}
		w = f.ask(t.Context(), http.MethodPost, session, `[`+initialized+`]`)
		if w.Code != http.StatusAccepted || w.Body.Len() > 0 {
			t.Errorf("a notification: %d %s", w.Code, w.Body)
		}
	})
}

// The headers of a stateless request say what its body says, however that is read.
// Its host gets the answer with the ID that it gave.
func TestStatelessHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFront(t, DefaultLimits)
		f.schemas = map[string]string{"echo": `{"type":"object","properties":{
			"where":{"type":"string","x-mcp-header":"Where"}}}`}
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{}}`
		call := func(params string, headers ...string) *httptest.ResponseRecorder {
			done := make(chan *httptest.ResponseRecorder)
			go func() {
				headers = append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name",
					"echo"}, headers...)
				done <- f.ask(t.Context(), http.MethodPost, "",
					`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+params+`,`+meta+`}}`, headers...)
			}()
			synctest.Wait()
			for _, id := range f.opened() {
				f.last().answer(id, `{"well":true}`)
			}
			return <-done
		}
		for _, c := range []struct {
			params  string
			status  int
			headers []string
		}{
			{`"name":"echo"`, 200, nil},
			{`"name":"env"`, 400, nil},
			{`"name":"env","Name":"echo"`, 400, nil},
			{`"Name":"echo","name":"env"`, 400, nil},
			{`"name":"echo","Name":"env"`, 400, nil},
			{`"Name":"echo"`, 400, nil},
			{`"name":"env","name":"echo"`, 200, nil},
			{`"n\u0061me":"echo"`, 200, nil},
			{`"name":"echo"`, 400, []string{"Mcp-Protocol-Version", "2025-11-25"}},
			{`"name":"echo"`, 400, []string{"Mcp-Method", "tools/list"}},
			{`"name":"echo","arguments":{"where":"here"}`, 200, []string{"Mcp-Param-Where", "here"}},
			{`"name":"echo","arguments":{"where":"here"}`, 400, []string{"Mcp-Param-Where", "there"}},
		} {
			w := call(c.params, c.headers...)
			body := w.Body.String()
			if w.Code != c.status || w.Code == 200 && !strings.Contains(body, `"id":7,"result":{"well":true}`) {
				t.Errorf("%s %q: %d %s, want %d", c.params, c.headers, w.Code, body, c.status)
			}
		}
		if h := f.last(); !h.shared || len(f.all) != 1 {
			t.Errorf("%d hosts, want one that is shared", len(f.all))
		}
	})
}
