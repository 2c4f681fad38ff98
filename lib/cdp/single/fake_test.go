package single

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// patience is how long a test waits before it says that something hangs.
const patience = time.Minute

// chrome is a fake browser behind one WebSocket at a time. It attaches and
// detaches sessions, and answers other commands with their own text and with
// their params as the result; Fake.long takes a length.
type chrome struct {
	t *testing.T

	mu       sync.Mutex
	asked    int   // how often it was connected to
	refusal  error // of connections
	conn     *websocket.Conn
	sessions map[string]bool
	detached []string
}

// newChrome returns a fake browser and what shares it.
func newChrome(t *testing.T) (*chrome, *Browser) {
	c := &chrome{t: t, sessions: map[string]bool{}}
	b := New(c.open)
	t.Cleanup(b.Close)
	return c, b
}

func (c *chrome) open(context.Context) (*websocket.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.refusal != nil {
		return nil, c.refusal
	}
	server, client := websocket.Pipe()
	c.conn, c.sessions = server, map[string]bool{}
	go c.serve(server)
	return client, nil
}

func (c *chrome) serve(conn *websocket.Conn) {
	for {
		m, err := conn.Next()
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			return
		}
		for _, answer := range c.answers(b) {
			if conn.Write(answer) != nil {
				return
			}
		}
	}
}

func (c *chrome) answers(b []byte) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, session := jsonrpc.Get(b, "id"), jsonrpc.GetString(b, "sessionId")
	params := jsonrpc.Get(b, "params")
	tail := "}"
	if session != "" {
		tail = fmt.Sprintf(`,"sessionId":%q}`, session)
	}
	result := func(json string) []byte { return fmt.Appendf(nil, `{"id":%s,"result":%s%s`, id, json, tail) }
	if session != "" && !c.sessions[session] {
		return [][]byte{fmt.Appendf(nil,
			`{"id":%s,"error":{"code":-32001,"message":"Session with given id not found."}}`, id)}
	}
	switch method := jsonrpc.GetString(b, "method"); method {
	case "Target.attachToBrowserTarget", "Target.attachToTarget":
		if jsonrpc.GetString(params, "targetId") == "none" {
			return [][]byte{fmt.Appendf(nil,
				`{"id":%s,"error":{"code":-32602,"message":"No target with given id found"}%s`, id, tail)}
		}
		own := fmt.Sprintf("%032X", len(c.sessions)+1)
		c.sessions[own] = true
		return [][]byte{fmt.Appendf(nil,
			`{"method":"Target.attachedToTarget","params":{"sessionId":%q,"targetInfo":{}}%s`, own, tail),
			result(fmt.Sprintf(`{"sessionId":%q}`, own))}
	case "Target.detachFromTarget":
		gone := jsonrpc.GetString(params, "sessionId")
		delete(c.sessions, gone)
		c.detached = append(c.detached, gone)
		return [][]byte{fmt.Appendf(nil,
			`{"method":"Target.detachedFromTarget","params":{"sessionId":%q}%s`, gone, tail), result("{}")}
	case "Fake.long":
		var n int
		json.Unmarshal(jsonrpc.Get(params, "length"), &n)
		return [][]byte{result(`"` + strings.Repeat("x", n) + `"`)}
	}
	if params == nil {
		params = json.RawMessage("{}")
	}
	return [][]byte{result(string(params))}
}

// say has the browser send a message.
func (c *chrome) say(message string) {
	c.t.Helper()
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if err := conn.Write([]byte(message)); err != nil {
		c.t.Fatal(err)
	}
}

// peer is a client in a test.
type peer struct {
	t      testing.TB
	conn   *websocket.Conn
	last   int
	events []string
}

// Dial opens a connection that is a WebSocket within this process.
func (b *Browser) Dial(ctx context.Context, target string) (*websocket.Conn, error) {
	c, err := b.Connect(ctx, target)
	if err != nil {
		return nil, err
	}
	server, client := websocket.Pipe()
	go c.Serve(server)
	return client, nil
}

func dial(t *testing.T, b *Browser, target string) *peer {
	t.Helper()
	conn, err := b.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &peer{t: t, conn: conn}
}

// hear returns the next message.
func (p *peer) hear() string {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { p.conn.Close(websocket.Normal, "") })
	defer late.Stop()
	m, err := p.conn.Next()
	if err != nil {
		p.t.Fatalf("cannot hear: %v", err)
	}
	b, err := m.Bytes()
	if err != nil {
		p.t.Fatalf("cannot hear: %v", err)
	}
	return string(b)
}

func (p *peer) say(message string) {
	p.t.Helper()
	if err := p.conn.Write([]byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a message and returns the next one.
func (p *peer) ask(message string) string {
	p.t.Helper()
	p.say(message)
	return p.hear()
}

// lost waits for the end of the connection.
func (p *peer) lost() error {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { p.conn.Close(websocket.Normal, "") })
	for {
		if _, err := p.conn.Next(); err != nil {
			if !late.Stop() {
				p.t.Fatal("the connection does not end")
			}
			return err
		}
	}
}
