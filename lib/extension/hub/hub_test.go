package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/extension"
	"btools/lib/guard"
	"btools/lib/websocket"
)

const (
	patience = 20 * time.Second
	first    = 33010
)

// hub is a hub with a registry of its own and 20 ports.
func testHub(t testing.TB, times limits) (*Hub, string) {
	t.Helper()
	h := &Hub{Code: "ABCDEFGHIJKLMNOPQRST", Host: "127.0.0.1", First: first, Last: first + 19, Version: "1",
		Log: slog.New(slog.DiscardHandler), limits: times}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.ServeRegister(w, r); err != nil {
			err.(*guard.Refusal).WriteResponse(w)
		}
	}))
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return h, s.URL
}

// quick are limits for tests that wait for one of them.
func quick(change func(*limits)) limits {
	l := limits{hello: time.Hour, call: time.Hour, ping: time.Hour, silence: time.Hour}
	change(&l)
	return l
}

// register registers a browser.
func register(url string, body map[string]any) (p Place, status int, text string) {
	raw, _ := json.Marshal(body)
	req, _ := http.NewRequest(http.MethodPost, url+"/register", bytes.NewReader(raw))
	req.Header.Set("Authorization", "Bearer abcde-fghij-klmno-pqrst")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return p, 0, err.Error()
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	b.ReadFrom(resp.Body)
	json.Unmarshal(b.Bytes(), &p)
	return p, resp.StatusCode, b.String()
}

// player plays the extension.
type player struct {
	t    testing.TB
	conn *websocket.Conn
}

// join registers a browser and says hello.
func join(t testing.TB, url string, body map[string]any) (Place, *player) {
	t.Helper()
	p, status, text := register(url, body)
	if status != http.StatusOK {
		t.Fatalf("the registration was answered %d: %s", status, text)
	}
	return p, hello(t, p, p.InstanceID)
}

func hello(t testing.TB, p Place, id string) *player {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), p.WebSocketURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	e := &player{t, conn}
	e.send(map[string]any{"type": "hello", "instanceId": id})
	return e
}

func (e *player) send(v any) {
	raw, ok := v.(string)
	if !ok {
		b, _ := json.Marshal(v)
		raw = string(b)
	}
	e.conn.Write([]byte(raw))
}

// next returns the next message.
func (e *player) next() (m map[string]any, err error) {
	got, err := e.conn.Next()
	if err != nil {
		return nil, err
	}
	b, err := got.Bytes()
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(b, &m)
}

// welcomed reads the welcome.
func (e *player) welcomed() *player {
	e.t.Helper()
	if m, err := e.next(); err != nil || m["type"] != "welcome" {
		e.t.Fatalf("got %v, %v, want a welcome", m, err)
	}
	return e
}

// closedWith returns with which code the hub closes the connection.
func (e *player) closedWith() (int, string) {
	e.t.Helper()
	for {
		if _, err := e.next(); err != nil {
			var c *websocket.CloseError
			if !errors.As(err, &c) {
				e.t.Fatalf("the connection ended with %v, not with a close", err)
			}
			return c.Code, c.Reason
		}
	}
}

// link waits for the link of an instance.
func link(t testing.TB, h *Hub, id string) *Link {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := h.Await(ctx, func(i Info) bool { return i.ID == id })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRegistration(t *testing.T) {
	h, url := testHub(t, limits{})
	var mu sync.Mutex
	var work sync.WaitGroup
	ids, ports, refused := map[string]bool{}, map[int]bool{}, 0
	for i := range 200 {
		work.Go(func() {
			p, status, text := register(url, map[string]any{"userAgent": fmt.Sprint("agent ", i), "windowId": i})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == http.StatusOK:
				if !validID().MatchString(p.InstanceID) || p.Port < first || p.Port > first+19 {
					t.Errorf("the place is %+v", p)
				}
				ids[p.InstanceID], ports[p.Port] = true, true
			case status == http.StatusServiceUnavailable && strings.Contains(text, NoPort):
				refused++
			default:
				t.Errorf("a registration was answered %d: %s", status, text)
			}
		})
	}
	work.Wait()
	if len(ids) != len(ports) || len(ids)+refused != 200 || len(ids) < 15 { // other programs may have some ports
		t.Errorf("200 registrations got %d IDs and %d ports, and %d were refused", len(ids), len(ports), refused)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.connectedLocked()) != 0 {
		t.Error("instances that have not said hello are listed as connected")
	}
}

func TestRegistrationNeedsTheCode(t *testing.T) {
	h, url := testHub(t, limits{})
	challenge := fmt.Sprintf("%d.n", time.Now().UnixMilli())
	old := fmt.Sprintf("%d.n", time.Now().Add(-time.Hour).UnixMilli())
	for name, body := range map[string]map[string]any{
		"nothing":           {"userAgent": "x"},
		"a wrong proof":     {"challenge": challenge, "proof": extension.Code("OTHER").Prove("register " + challenge)},
		"another's text":    {"challenge": challenge, "proof": h.Code.Prove("hub " + challenge)},
		"an old challenge":  {"challenge": old, "proof": h.Code.Prove("register " + old)},
		"no time":           {"challenge": "n", "proof": h.Code.Prove("register n")},
		"an empty proof":    {"challenge": "", "proof": ""},
		"a proof of itself": {"challenge": challenge, "proof": challenge},
	} {
		raw, _ := json.Marshal(body)
		resp, err := http.Post(url+"/register", "application/json", bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s, want 403", name, resp.Status)
		}
	}
	raw, _ := json.Marshal(map[string]any{"challenge": challenge, "proof": h.Code.Prove("register " + challenge)})
	resp, err := http.Post(url+"/register", "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p Place
	json.NewDecoder(resp.Body).Decode(&p)
	if !h.Code.Verify("hub "+challenge+" "+p.WebSocketURL, p.Proof) {
		t.Errorf("the hub does not prove that it has the code: %+v", p)
	}
}

// An instance that does not say hello gives back its port.
func TestNoHello(t *testing.T) {
	h, url := testHub(t, quick(func(l *limits) { l.hello = 50 * time.Millisecond }))
	for range 3 * 20 {
		_, status, text := register(url, anyone())
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("%d: %s", status, text)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		left, ports := len(h.instances), len(h.ports)
		h.mu.Unlock()
		if left == 0 && ports == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d instances and %d ports are left", left, ports)
		}
	}
}

// anyone is a registration without a past.
func anyone() map[string]any { return map[string]any{"userAgent": "x", "windowId": 1} }

func TestWebSocket(t *testing.T) {
	h, url := testHub(t, limits{})
	p, status, text := register(url, anyone())
	if status != http.StatusOK {
		t.Fatal(text)
	}
	at := strings.Replace(p.WebSocketURL, "ws:", "http:", 1)
	for name, origin := range map[string]string{"a web page": "http://evil.example",
		"another extension": "chrome-extension://x"} {
		req, _ := http.NewRequest(http.MethodGet, at, nil)
		req.Header.Set("Origin", origin)
		if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v, %v, want 403", name, resp, err)
		}
	}
	if resp, err := http.Get(at + "x"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a wrong path: %v, %v, want 404", resp, err)
	}
	if code, _ := hello(t, p, "inst_1706234567890_abc123").closedWith(); code != UnknownInstance {
		t.Errorf("an unknown ID was closed with %d, want %d", code, UnknownInstance)
	}
	one := hello(t, p, p.InstanceID).welcomed()
	l := link(t, h, p.InstanceID)
	two := hello(t, p, p.InstanceID).welcomed()
	code, reason := one.closedWith()
	if code != websocket.GoingAway || !strings.Contains(reason, "another connection") {
		t.Errorf("the first connection was closed with %d %q", code, reason)
	}
	<-l.Done()
	if l = link(t, h, p.InstanceID); l.Err() != nil {
		t.Errorf("the second connection is over: %v", l.Err())
	}
	two.conn.Close(4000, "the user has ended debugging")
	<-l.Instance.Done()
	if err := l.Instance.Err(); err == nil || err.Error() != "the user has ended debugging" {
		t.Errorf("the instance has gone with %v", err)
	}
	if again, _, _ := register(url, anyone()); again.Port != p.Port {
		t.Errorf("the next instance got port %d, want the free %d", again.Port, p.Port)
	}
}

func TestIDs(t *testing.T) {
	_, url := testHub(t, limits{})
	p, e := join(t, url, map[string]any{"userAgent": "x", "run": "1"})
	e.welcomed()
	same, _, _ := register(url, map[string]any{"instanceId": p.InstanceID, "run": "1"})
	if same.InstanceID != p.InstanceID || same.Port != p.Port {
		t.Errorf("the same browser got %+v, want its place %+v", same, p)
	}
	copied, _, _ := register(url, map[string]any{"instanceId": p.InstanceID, "run": "2"})
	if copied.InstanceID == p.InstanceID {
		t.Error("a copy of the profile got the instance of another browser")
	}
	kept, _, _ := register(url, map[string]any{"instanceId": "inst_1706234567890_abc123", "run": "3"})
	if kept.InstanceID != "inst_1706234567890_abc123" {
		t.Errorf("a browser that had an ID got %s", kept.InstanceID)
	}
	for _, bad := range []string{"../x", "inst_1_abc123", "inst_1706234567890_ABC123", "inst_1706234567890_abc123/x"} {
		if p, _, _ := register(url, map[string]any{"instanceId": bad}); p.InstanceID == bad {
			t.Errorf("the ID %q was accepted", bad)
		}
	}
}

func TestCalls(t *testing.T) {
	h, url := testHub(t, quick(func(l *limits) { l.call = 100 * time.Millisecond }))
	p, e := join(t, url, anyone())
	e.welcomed()
	l := link(t, h, p.InstanceID)
	type answer struct {
		result string
		err    error
	}
	begin := func(patient bool) chan answer {
		got := make(chan answer, 2)
		l.Begin("cdp", map[string]int{"tabId": 1}, patient, func(r json.RawMessage, err error) {
			got <- answer{string(r), err}
		})
		return got
	}
	call := begin(true)
	m, err := e.next()
	if err != nil || m["type"] != "tool_call" || m["name"] != "cdp" {
		t.Fatalf("the extension got %v, %v", m, err)
	}
	e.send(map[string]any{"type": "tool_result", "id": "call_77", "result": 1}) // unknown
	e.send(map[string]any{"type": "tool_result", "id": m["id"], "result": map[string]int{"a": 1}})
	e.send(map[string]any{"type": "tool_result", "id": m["id"], "result": 2}) // a duplicate
	if got := <-call; got.result != `{"a":1}` || got.err != nil {
		t.Errorf("the call returned %v", got)
	}
	if got := <-begin(false); !errors.Is(got.err, ErrTimeout) || got.err.Error() != "Timeout" {
		t.Errorf("a call without an answer returned %v, want Timeout", got.err)
	}
	e.next()
	call = begin(true)
	m, _ = e.next()
	e.send(map[string]any{"type": "tool_error", "id": m["id"],
		"error": map[string]any{"code": -32601, "message": "no"}})
	var cdp *CallError
	if got := <-call; !errors.As(got.err, &cdp) || cdp.Code != -32601 || cdp.Message != "no" {
		t.Errorf("a call that failed returned %v", got.err)
	}
	waiting := []chan answer{begin(true), begin(true), begin(false)}
	e.conn.Close(websocket.Normal, "")
	for _, w := range append(waiting, begin(true)) {
		if got := <-w; !errors.Is(got.err, ErrDisconnected) && !errors.Is(got.err, ErrTimeout) {
			t.Errorf("a call of an instance that has gone returned %v, want INSTANCE_DISCONNECTED", got.err)
		}
	}
}

// What does not answer pings is gone; what the extension sends is taken for
// nothing else than a message.
func TestSilenceAndGarbage(t *testing.T) {
	h, url := testHub(t, quick(func(l *limits) { l.ping, l.silence = 10*time.Millisecond, 300*time.Millisecond }))
	p, e := join(t, url, anyone())
	e.welcomed()
	l := link(t, h, p.InstanceID)
	for range 20 {
		if m, err := e.next(); err != nil || m["type"] != "ping" {
			t.Fatalf("got %v, %v, want a ping", m, err)
		}
		e.send(map[string]any{"type": "pong", "tabs": 3})
	}
	if i := l.Info(); i.Tabs != 3 {
		t.Errorf("the instance has %d tabs, want 3", i.Tabs)
	}
	<-l.Done()
	if !strings.Contains(l.Err().Error(), "silent") {
		t.Errorf("an instance that does not answer pings is gone with %v", l.Err())
	}
	for _, garbage := range []string{"{", "", "\x00\x01", `{"type":"hello"`, `[1,`} {
		p, e := join(t, url, anyone())
		e.welcomed()
		l := link(t, h, p.InstanceID)
		e.send(garbage)
		select {
		case <-l.Done():
		case <-time.After(patience):
			t.Fatalf("the connection goes on after %q", garbage)
		}
	}
	p, e = join(t, url, anyone())
	e.welcomed()
	l = link(t, h, p.InstanceID)
	for _, odd := range []string{`{"type":"tool_result"}`, `{"type":5}`, `[]`, `null`, `{}`,
		`{"type":"event","name":"no"}`} {
		e.send(odd)
	}
	e.send(`{"type":"pong","tabs":7}`)
	for end := time.Now().Add(patience); l.Info().Tabs != 7; time.Sleep(time.Millisecond) {
		if l.Err() != nil || time.Now().After(end) {
			t.Fatalf("messages without a meaning ended the connection: %v", l.Err())
		}
	}
}

// Thousands of browsers that come and go leave no port and no memory behind.
func TestChurn(t *testing.T) {
	rounds := 500
	if os.Getenv("CHURN") != "" {
		fmt.Sscan(os.Getenv("CHURN"), &rounds)
	}
	h, url := testHub(t, limits{})
	var before, after runtime.MemStats
	for i := range rounds {
		p, e := join(t, url, anyone())
		e.welcomed()
		l := link(t, h, p.InstanceID)
		done := make(chan error, 1)
		l.Begin("list", anyone(), false, func(_ json.RawMessage, err error) { done <- err })
		m, err := e.next()
		if err != nil {
			t.Fatal(err)
		}
		e.send(map[string]any{"type": "tool_result", "id": m["id"]})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e.conn.Close(websocket.Normal, "")
		<-l.Instance.Done()
		if i == rounds/5 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d rounds: the heap grew from %d to %d KiB", rounds, before.HeapAlloc>>10, after.HeapAlloc>>10)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.instances)+len(h.ports) > 0 {
		t.Errorf("%d instances and %d ports are left", len(h.instances), len(h.ports))
	}
}

func TestCloseTellsWhy(t *testing.T) {
	h, url := testHub(t, limits{})
	_, e := join(t, url, anyone())
	e.welcomed()
	go h.Close()
	if code, reason := e.closedWith(); code != websocket.GoingAway || reason != errStopping.Error() {
		t.Errorf("the hub's end was told as %d %q", code, reason)
	}
	if _, status, _ := register(url, anyone()); status != http.StatusServiceUnavailable {
		t.Errorf("a hub that is stopping answers a registration with %d", status)
	}
}
