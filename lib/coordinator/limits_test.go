package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// Each limit has a default.
func TestDefaultLimits(t *testing.T) {
	defaults := reflect.ValueOf(DefaultLimits)
	for i := range defaults.NumField() {
		if defaults.Field(i).IsZero() {
			t.Errorf("%s has no default", defaults.Type().Field(i).Name)
		}
	}
	want := DefaultLimits
	want.Awaiting = 1
	if got := (Limits{Awaiting: 1}).orDefault(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// askHost has its child ask the host in each call.
func askHost(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
	if m.Method == "tools/call" {
		child.say(`{"jsonrpc":"2.0","id":"q` + string(m.ID) + `","method":"elicitation/create","params":{}}`)
	}
	return "", nil
}

// front is a front by HTTP, for a bubble of synctest.
type front struct {
	*httpFront
	t *testing.T
}

func newFront(t *testing.T, limits FrontLimits) *front {
	f := newFixtureWith(t, Limits{}, wellBehaved(askHost))
	return &front{newHTTPFront(f.c, limits), t}
}

// ask makes a request in a session.
func (f *front) ask(ctx context.Context, method, session, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(body))
	r.Header.Set(sessionHeader, session)
	w := httptest.NewRecorder()
	f.serve(w, r)
	return w
}

// greet begins a session.
func (f *front) greet(status int) (session string) {
	f.t.Helper()
	w := f.ask(f.t.Context(), http.MethodPost, "", hello)
	if w.Code != status {
		f.t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	return w.Header().Get(sessionHeader)
}

// has checks whether there is a session.
func (f *front) has(session string, want bool) {
	f.t.Helper()
	w := f.ask(f.t.Context(), http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := w.Code == http.StatusAccepted; got != want {
		f.t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// One session too many ends the one that was not used for the longest time. If
// all are listened to, it is refused.
func TestMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, FrontLimits{Sessions: 2, SessionIdle: time.Hour, Requests: 2})
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

// A session that nobody uses is forgotten.
func TestSessionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, FrontLimits{Sessions: 2, SessionIdle: time.Minute, Requests: 2})
		session := f.greet(http.StatusOK)
		for range 3 {
			time.Sleep(time.Minute - time.Second)
			f.has(session, true)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f.has(session, false)
	})
}

// One request too many that awaits input ends the oldest one.
func TestMaxAwaitingOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{Awaiting: 2, AwaitInput: time.Minute}, wellBehaved(askHost))
		var keys []string
		for n := range 3 {
			f.ask(statelessCall(fmt.Sprint(n), ""))
			time.Sleep(DefaultLimits.Settle)
			got := f.heard()
			if len(got) != 1 {
				t.Fatalf("%q", got)
			}
			m, _ := jsonrpc.Parse([]byte(got[0]))
			keys = append(keys, jsonrpc.GetString(m.Result, "requestState"))
		}
		f.ask(statelessCall("4", `,"requestState":"`+keys[0]+`"`))
		f.wants("the oldest", "too old")
		f.ask(statelessCall("5", `,"requestState":"`+keys[1]+`"`))
		f.wants("another", "input_required")
		time.Sleep(time.Minute + time.Second)
		f.ask(statelessCall("6", `,"requestState":"`+keys[2]+`"`))
		f.wants("later", "too old")
	})
}

// Hosts beyond the sets of capabilities share the children of a host that can
// be asked nothing.
func TestMaxCapabilitySets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{CapabilitySets: 2}, wellBehaved(askHost))
		for n, can := range []string{`"elicitation":{}`, `"roots":{}`, `"sampling":{}`, `"roots":{},"sampling":{}`} {
			f.ask(strings.Replace(statelessCall(fmt.Sprint(n), ""), `"elicitation":{}`, can, 1))
		}
		if f.started() != 3 {
			t.Errorf("%d children, want 3", f.started())
		}
	})
}

// A session has so many questions of a child open, and messages in a batch.
func TestLimitsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{Questions: 2}, wellBehaved(askHost))
		f.shakeHands()
		for n := range 3 {
			f.ask(callEcho(fmt.Sprint(n)))
		}
		f.wants("questions", "elicitation/create", "elicitation/create")
		params := json.RawMessage(`{"protocolVersion":"` + mcp.Batching + `"}`)
		f.params.Store(&params)
		ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		for n, array := range []string{"[]", "[" + ping + "," + ping + "]",
			"[" + ping + "," + ping + "," + ping + "]"} {
			_, _, err := batch(f, []byte(array), 2)
			if refused := err != nil; refused != (n != 1) {
				t.Errorf("batch %d: %v", n, err)
			}
		}
	})
}

// The answer to initialize waits for a child that does not answer, but not for
// long, and then declares whatever the child may have; nor does the list of tools.
func TestTimesOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Initialize: time.Second, List: 3 * time.Second, Start: 10 * time.Second}
		f := newFixtureWith(t, limits, func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) { return "", nil })
		f.ask(hello)
		f.wants("at once")
		time.Sleep(limits.Initialize)
		f.wants("initialize", `"prompts":{"listChanged":true}`)
		f.ask(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
		f.wants("at once")
		time.Sleep(limits.List)
		f.wants("list", `"id":"list"`)
		time.Sleep(limits.Start)
		f.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"coordinator_status","arguments":{}}}`)
		time.Sleep(limits.List)
		f.wants("status", "did not answer within 10s")
	})
}
