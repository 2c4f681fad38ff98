package virtual

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"btools/lib/websocket"
)

func TestFilter(t *testing.T) {
	for _, test := range []struct{ filter, wants, not string }{
		{"", "page iframe worker service_worker", "tab browser"},
		{"null", "page", "tab"},
		{"[]", "", "page tab browser"},
		{"[{}]", "page tab browser", ""},
		{`[{"type":"page"}]`, "page", "tab worker"},
		{`[{"type":"page","exclude":true},{}]`, "tab worker", "page"},
		{`[{},{"type":"page","exclude":true}]`, "page", ""},
		{`[{"type":"page","exclude":true}]`, "", "page tab"},
	} {
		f, err := newFilter(json.RawMessage(test.filter))
		if test.filter == "" {
			f, err = newFilter(nil)
		}
		if err != nil {
			t.Errorf("%s: %v", test.filter, err)
		}
		for _, typ := range strings.Fields(test.wants) {
			if !f.matches(typ) {
				t.Errorf("%s does not want %s", test.filter, typ)
			}
		}
		for _, typ := range strings.Fields(test.not) {
			if f.matches(typ) {
				t.Errorf("%s wants %s", test.filter, typ)
			}
		}
	}
	for _, wrong := range []string{"5", `{"type":"page"}`, `[5]`, `[{"type":5}]`,
		"[" + strings.Repeat("{},", maxFilter) + "{}]"} {
		if _, err := newFilter(json.RawMessage(wrong)); err == nil {
			t.Errorf("%.50s is taken", wrong)
		}
	}
}

func TestObjectWith(t *testing.T) {
	odd := "a\"\\\n\u2028<é"
	if object := objectWith(odd, quote(odd)); !json.Valid(object) {
		t.Errorf("%s", object)
	}
}

// pipe is both ends of a WebSocket.
func pipe(t *testing.T) (server, client *websocket.Conn) {
	t.Helper()
	got := make(chan *websocket.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(w, r); err == nil {
			got <- c
		}
	}))
	t.Cleanup(s.Close)
	client, err := websocket.Dial(t.Context(), strings.Replace(s.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	server = <-got
	t.Cleanup(func() {
		client.Close(websocket.Normal, "")
		server.Close(websocket.Normal, "")
	})
	return server, client
}

// What is put leaves in its order, also between what is written.
func TestOutboxKeepsTheOrder(t *testing.T) {
	server, client := pipe(t)
	o := newOutbox(server)
	done, gone := make(chan struct{}), make(chan struct{})
	go func() { o.run(done); close(gone) }()
	const n = 2000
	go func() {
		for i := range n {
			if m := []byte(strconv.Itoa(i)); i%3 == 0 {
				o.write(m)
			} else {
				o.put(m)
			}
		}
	}()
	for i := range n {
		m, err := client.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := m.Bytes(); string(b) != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, b)
		}
	}
	close(done)
	<-gone
	if err := o.write([]byte("late")); err == nil {
		t.Error("an outbox takes messages after its end")
	}
}

// A connection whose other side does not read is closed when too much waits.
func TestOutboxIsBounded(t *testing.T) {
	server, client := pipe(t)
	o := newOutbox(server)
	done, gone := make(chan struct{}), make(chan struct{})
	go func() { o.run(done); close(gone) }()
	message := make([]byte, 1<<20)
	for begun := time.Now(); ; {
		o.put(message)
		o.mu.Lock()
		queued, failed := o.queued, o.failed
		o.mu.Unlock()
		if queued > maxQueued {
			t.Fatalf("%d bytes are queued", queued)
		}
		if failed != nil {
			break
		}
		if time.Since(begun) > patience {
			t.Fatal("the outbox takes everything")
		}
	}
	for {
		m, err := client.Next()
		if err != nil {
			break
		}
		if _, err := m.Bytes(); err != nil {
			break
		}
	}
	close(done)
	<-gone
	if err := o.write(message); !errors.Is(err, errStalled) {
		t.Errorf("a closed outbox: %v", err)
	}
}
