package proxy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"btools/lib/fleet/supply"
	"btools/lib/record"
)

// firefox plays the browser: it has one session at a time, which outlives its
// connection.
type firefox struct {
	addr   string
	hangs  atomic.Bool // it answers nothing
	mu     sync.Mutex
	owner  *websocket.Conn // of the session
	ends   int             // of sessions
	hangUp bool            // in place of an answer to session.end, as after an error
}

func newFirefox(t testing.TB) *firefox {
	t.Helper()
	f := &firefox{}
	f.addr = listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for f.hangs.Load() && r.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			_, b, err := c.Read(context.Background())
			if err != nil {
				return
			}
			answer, ended := f.answer(c, b)
			if answer == nil || c.Write(context.Background(), websocket.MessageText, answer) != nil || ended &&
				c.Close(websocket.StatusNormalClosure, "") != nil {
				return
			}
		}
	}))
	return f
}

// answer answers a command; nil is none. After the one that says that the
// session has ended, the connection is closed.
func (f *firefox) answer(c *websocket.Conn, b []byte) (answer []byte, ended bool) {
	var m struct {
		ID     int64
		Method string
	}
	json.Unmarshal(b, &m)
	result, failed := any(struct{}{}), ""
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case m.Method == "session.new" && f.owner == nil:
		f.owner, result = c, map[string]string{"sessionId": "s"}
	case m.Method == "session.new":
		failed = "session not created"
	case m.Method == "session.end" && f.hangUp:
		return nil, false
	case m.Method == "session.end" && f.owner == c:
		f.owner, ended = nil, true
		f.ends++
	case m.Method != "session.status":
		failed = "invalid session id"
	}
	out := map[string]any{"type": "success", "id": m.ID, "result": result}
	if failed != "" {
		out = map[string]any{"type": "error", "id": m.ID, "error": failed}
	}
	answer, _ = json.Marshal(out)
	return answer, ended
}

// bidiClient is a client of Firefox.
type bidiClient struct {
	t testing.TB
	*websocket.Conn
}

func newBiDiClient(t testing.TB, addr string) bidiClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+addr+"/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return bidiClient{t, c}
}

func (c bidiClient) do(method string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"`+method+`","params":{}}`)); err != nil {
		c.t.Fatal(err)
	}
	_, b, err := c.Read(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// A session of Firefox whose client is disconnected is ended, and the browser
// serves the next client.
func TestCutEndsSession(t *testing.T) {
	t.Parallel()
	f := newFirefox(t)
	p := behind(browserAt(t, f.addr, record.BiDi))
	addr := serve(t, p)
	for n := range 50 {
		c := newBiDiClient(t, addr)
		if got := c.do("session.new"); !strings.Contains(got, "sessionId") {
			t.Fatalf("round %d: %s", n, got)
		}
		if n%3 == 1 {
			c.do("session.end") // and the browser's close is under way
		}
		p.CloseWebSockets()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, _ := p.Status(); s.Launches != 1 || f.ends != 50 {
		t.Errorf("%+v; %d sessions have ended", s, f.ends)
	}
}

// If a session cannot be ended, the browser is stopped; the last exit says why.
func TestSessionThatStays(t *testing.T) {
	t.Parallel()
	f := newFirefox(t)
	f.hangUp = true
	p := behind(browserAt(t, f.addr, record.BiDi))
	addr := serve(t, p)
	c := newBiDiClient(t, addr)
	c.do("session.new")
	c.CloseNow()
	until(t, "the browser is stopped", func() bool {
		s, _ := p.Status()
		return s.LastExit == supply.SessionLeft.Error()
	})
}

// Firefox has no /json; a client that requests it is told what to do instead.
func TestNoJSON(t *testing.T) {
	t.Parallel()
	p := behind(browserAt(t, newFirefox(t).addr, record.BiDi))
	code, body := send(t, serve(t, p), "/json/version")
	if code != 404 || !strings.Contains(body, "WebDriver BiDi, not CDP") || !strings.Contains(body, "/session") {
		t.Errorf("%d %s", code, body)
	}
}

// The session of a client that is gone in the middle of a message is ended, too.
func TestHalfAMessage(t *testing.T) {
	t.Parallel()
	f := newFirefox(t)
	p := behind(browserAt(t, f.addr, record.BiDi))
	c, in := upgrade(t, serve(t, p), "/session")
	status(t, in)
	text := `{"id":1,"method":"session.new","params":{}}`
	c.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
	b := make([]byte, 200)
	if n, err := in.Read(b); !strings.Contains(string(b[:n]), "sessionId") {
		t.Fatalf("session.new is answered with %q, %v", b[:n], err)
	}
	io.WriteString(c, "\x01\xe4\x00\x00\x00\x00{\"id\":2,") // a fragment of 100 bytes, of which 8 come
	c.Close()
	until(t, "the session has ended", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.ends == 1 })
	if s, _ := p.Status(); s.Launches != 1 || s.LastExit != "" {
		t.Errorf("%+v", s)
	}
}
