// Package bidi is a client of WebDriver BiDi, the protocol by which Firefox is driven.
// What to do with a browser is not its business.
package bidi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Conn is a connection to a browser, with its only session.
type Conn struct {
	// Event gets each event of the browser, by the reader of the connection, which it
	// must not keep waiting. Set it by Dial.
	event func(method string, params json.RawMessage)

	url  string
	ws   *websocket.Conn
	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	last    int64
	pending map[string]chan []byte // by ID
}

// Error is an error that the browser has answered.
type Error struct{ Code, Message string }

func (e *Error) Error() string { return e.Message }

// Codes of errors that callers handle.
const (
	NoSuchFrame = "no such frame" // a tab or a frame that is gone
	NotCreated  = "session not created"
)

// ErrDisconnected is the error of calls when the connection has ended.
var ErrDisconnected = errors.New("the connection to the browser has ended")

// Dial connects to ws://HOST:PORT/session and makes a session, of which the browser has
// one at a time. Prompts stay open until they are handled.
func Dial(ctx context.Context, url string, event func(method string, params json.RawMessage)) (*Conn, error) {
	if before, is := late.Load(url); is { // a session that is asked for meanwhile would be refused
		select {
		case <-before.(chan struct{}):
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot drive the browser: %w", context.Cause(ctx))
		}
	}
	ws, err := websocket.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	c := &Conn{url: url, event: event, ws: ws, done: make(chan struct{}), pending: map[string]chan []byte{}}
	go c.read()
	made := make(chan error, 1)
	go func() {
		made <- c.Call(context.Background(), "session.new", map[string]any{"capabilities": map[string]any{
			"alwaysMatch": map[string]any{"unhandledPromptBehavior": map[string]string{"default": "ignore"}}}}, nil)
	}()
	select {
	case err = <-made:
		if err == nil {
			return c, nil
		}
		ws.Close(websocket.Normal, "")
		<-c.done
	case <-ctx.Done():
		err = context.Cause(ctx)
		c.behind(func() {
			if <-made == nil {
				c.Call(context.Background(), "session.end", nil, nil)
			}
		})
	}
	var e *Error
	if errors.As(err, &e) && e.Code == NotCreated && strings.Contains(e.Message, "active sessions") {
		err = errors.New("another program drives it: Firefox has one session at a time")
	}
	return nil, fmt.Errorf("cannot drive the browser: %w", err)
}

// late has the browsers that have not answered yet whether they have made or ended a
// session that nobody waits for any more, by URL: a chan struct{}, closed when they have.
var late sync.Map

// behind ends the session in the background, and closes the connection then, however late
// it is: a session outlives its connection, and keeps the browser from everybody else.
func (c *Conn) behind(end func()) {
	ended := make(chan struct{})
	late.Store(c.url, ended)
	go func() {
		end()
		c.ws.Close(websocket.Normal, "")
		late.CompareAndDelete(c.url, ended)
		close(ended)
	}()
}

// endTimeout is how long Close waits for the end of the session.
const endTimeout = 2 * time.Second

// Close ends the session and the connection, for a browser that does not answer in the
// background.
func (c *Conn) Close() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Call(context.Background(), "session.end", nil, nil)
	}()
	select {
	case <-ended:
		c.ws.Close(websocket.Normal, "")
		<-c.done
	case <-time.After(endTimeout):
		c.behind(func() { <-ended })
	}
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

func (c *Conn) read() {
	defer c.ws.Close(websocket.Normal, "") // which may wait for the other end
	defer close(c.done)
	for {
		m, err := c.ws.Next()
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			return
		}
		if jsonrpc.GetString(b, "type") == "event" {
			c.event(jsonrpc.GetString(b, "method"), jsonrpc.Get(b, "params"))
			continue
		}
		id := string(jsonrpc.Get(b, "id"))
		c.mu.Lock()
		waiting := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if waiting != nil {
			waiting <- b
		}
	}
}

// Call makes a call and decodes its result, unless that is nil.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan []byte, 1)
	c.mu.Lock()
	c.last++
	id := fmt.Sprint(c.last)
	c.pending[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()
	unsent := make(chan error, 1)
	go func() { // a browser that does not read keeps the writer waiting
		if c.ws.Write(fmt.Appendf(nil, `{"id":%s,"method":%q,"params":%s}`, id, method, raw)) != nil {
			unsent <- ErrDisconnected
		}
	}()
	select {
	case err := <-unsent:
		return err
	case b := <-answer:
		if jsonrpc.GetString(b, "type") != "success" {
			return &Error{jsonrpc.GetString(b, "error"), jsonrpc.GetString(b, "message")}
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(jsonrpc.Get(b, "result"), result)
	case <-c.done:
		return ErrDisconnected
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
