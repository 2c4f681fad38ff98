package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/extension"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/websocket"
)

// Link is one connection of an instance.
type Link struct {
	// Instance is the browser at the other end.
	Instance *Instance
	// Browser is what it says of itself in its hello.
	Browser Browser
	// Event handles the events of the browser, in their order with the answers to
	// calls. It is set by Hub.Joined, and must not wait.
	Event func(name string, args json.RawMessage)

	conn   *websocket.Conn
	out    *websocket.Outbox
	done   chan struct{} // closed when it is over
	tabs   atomic.Int64
	used   atomic.Int64 // Unix nanoseconds
	heard  atomic.Int64 // when the latest message came, in Unix nanoseconds
	ending sync.Once

	mu      sync.Mutex
	pending map[string]*call
	calls   int
	why     error // not nil: it is over
}

// Browser is what a browser says of itself.
type Browser struct {
	UserAgent string `json:"userAgent"`
	Versions  []struct {
		Brand   string `json:"brand"`
		Version string `json:"version"`
	} `json:"versions"`
}

// call is a call without an answer so far.
type call struct {
	done  func(result json.RawMessage, err error)
	timer *time.Timer // nil: it has no bound
}

// CallError is an error that the extension returned.
type CallError = jsonrpc.Error

// Done returns a channel that is closed when the connection is over; Err says why.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns why the connection is over; nil: it is not.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

func (l *Link) active() time.Time { return time.Unix(0, l.used.Load()) }

// serveWebSocket serves the instance's port.
func (i *Instance) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	origins, open := r.Header.Values("Origin"), i.hub.IsOpenFor(r)
	if len(origins) > 1 || len(origins) == 1 && origins[0] != extension.Origin && !open {
		http.Error(w, "this port is for the extension of btools only", http.StatusForbidden)
		return
	}
	if r.URL.Path != i.key && !(open && r.URL.Path == "/") {
		http.NotFound(w, r)
		return
	}
	if !i.hub.enter(i) {
		http.NotFound(w, r)
		return
	}
	defer i.hub.work.Done()
	conn, err := websocket.Accept(w, r)
	if err != nil {
		return
	}
	conn.Stall = i.hub.times().silence
	l := &Link{Instance: i, conn: conn, out: websocket.NewOutbox(conn), done: make(chan struct{}),
		pending: map[string]*call{}, Event: func(string, json.RawMessage) {}}
	l.run()
}

// enter counts a connection to an instance's port, for which Close waits;
// false: the instance is gone.
func (h *Hub) enter(i *Instance) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !i.over {
		h.work.Add(1)
	}
	return !i.over
}

// run serves the connection until it is over.
func (l *Link) run() {
	h := l.Instance.hub
	late := time.AfterFunc(h.times().hello, func() { l.conn.Close(websocket.PolicyViolation, errNoHello.Error()) })
	err := l.greet()
	late.Stop()
	if err != nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() { l.out.Run(l.done) })
	work.Go(l.ping)
	why := l.read()
	h.drop(l, why)
	work.Wait()
}

// greet reads the hello, and makes the connection that of its instance.
func (l *Link) greet() error {
	h := l.Instance.hub
	m, err := l.conn.Next()
	if err != nil {
		return err
	}
	b, err := m.Bytes()
	if err != nil {
		return err
	}
	var hello struct {
		Type       string  `json:"type"`
		InstanceID string  `json:"instanceId"`
		Browser    Browser `json:"browser"`
		Tabs       int64   `json:"tabs"`
	}
	if err := json.Unmarshal(b, &hello); err != nil || hello.Type != "hello" {
		l.conn.Close(websocket.PolicyViolation, "the first message must be a hello")
		return errors.New("no hello")
	}
	if hello.InstanceID != l.Instance.ID {
		l.conn.Close(UnknownInstance, "unknown instance")
		return errors.New("unknown instance")
	}
	l.Browser = hello.Browser
	l.tabs.Store(hello.Tabs)
	l.hear()
	l.used.Store(time.Now().UnixNano())
	welcome, _ := json.Marshal(map[string]string{"type": "welcome", "instanceId": l.Instance.ID,
		"serverVersion": h.Version})
	l.out.Put(welcome) // calls that come with the join follow it
	if !h.join(l) {
		l.conn.Close(UnknownInstance, "unknown instance")
		return errors.New("the instance is gone")
	}
	return nil
}

// join makes a connection that of its instance, in the place of an older one;
// false: the instance is gone.
func (h *Hub) join(l *Link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := l.Instance
	if i.over {
		return false
	}
	i.deadline.Stop()
	old := i.link
	i.link, i.since = l, time.Now()
	if old != nil {
		old.stop(errReplaced)
	}
	h.tellLocked("connected", i, nil)
	if h.Joined != nil {
		h.Joined(l)
	}
	h.changed.Wake()
	return true
}

// stop ends the connection, once: all calls fail.
func (l *Link) stop(why error) {
	l.ending.Do(func() {
		l.mu.Lock()
		l.why = why
		pending := l.pending
		l.pending = nil
		l.mu.Unlock()
		close(l.done)
		for _, c := range pending {
			c.end(nil, fmt.Errorf("%w: %w", ErrDisconnected, why))
		}
		l.Instance.hub.work.Go(func() { l.conn.Close(websocket.GoingAway, why.Error()) })
	})
}

func (c *call) end(result json.RawMessage, err error) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.done(result, err)
}

func (l *Link) hear() { l.heard.Store(time.Now().UnixNano()) }

// ping asks the extension whether it is there. The extension must handle a
// message of its own for that: a ping of the WebSocket would not keep its
// worker alive.
func (l *Link) ping() {
	t := l.Instance.hub.times()
	tick := time.NewTicker(t.ping)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}
		if silent := time.Since(time.Unix(0, l.heard.Load())); silent > t.silence {
			l.Instance.hub.drop(l, fmt.Errorf("it has been silent for %v", silent.Round(time.Second)))
			return
		}
		l.out.Put([]byte(`{"type":"ping"}`))
	}
}

// read handles the extension's messages, and returns why there are no more.
func (l *Link) read() error {
	for {
		m, err := l.conn.Next()
		if err != nil {
			return reason(err)
		}
		b, err := m.Bytes()
		if err != nil {
			return reason(err)
		}
		l.hear()
		if !json.Valid(b) {
			return errors.New("it sent what is not JSON")
		}
		switch typ := jsonrpc.GetString(b, "type"); typ {
		case "tool_result":
			l.answered(jsonrpc.GetString(b, "id"), jsonrpc.Get(b, "result"), nil)
		case "tool_error":
			l.answered(jsonrpc.GetString(b, "id"), nil, asError(jsonrpc.Get(b, "error")))
		case "event":
			l.used.Store(time.Now().UnixNano())
			l.Event(jsonrpc.GetString(b, "name"), jsonrpc.Get(b, "args"))
		case "pong":
			if n, err := strconv.ParseInt(string(jsonrpc.Get(b, "tabs")), 10, 64); err == nil {
				l.tabs.Store(n)
			}
		}
	}
}

// reason returns why a connection has ended, in the extension's own words if it
// gave any.
func reason(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) && closed.Reason != "" {
		return errors.New(closed.Reason)
	}
	if errors.As(err, &closed) {
		return errors.New("the browser has closed the connection")
	}
	return errors.New("the connection to the browser was lost")
}

// asError returns the error of a tool_error: an object of CDP, or a text.
func asError(raw json.RawMessage) error {
	var e jsonrpc.Error
	if json.Unmarshal(raw, &e) == nil && e.Message != "" {
		return &e
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || text == "" {
		text = "the extension reports an error without a message"
	}
	return &jsonrpc.Error{Code: -32000, Message: text}
}

func (l *Link) answered(id string, result json.RawMessage, err error) {
	l.mu.Lock()
	c := l.pending[id]
	delete(l.pending, id)
	l.mu.Unlock()
	if c != nil { // else it is too late, or a duplicate
		c.end(result, err)
	}
}

// Begin sends a call and does not wait. The connection's reader calls done
// once; it must not wait either. A call without an answer fails after 30 s,
// unless it is patient. args is raw JSON, or a value to encode.
func (l *Link) Begin(name string, args any, patient bool, done func(result json.RawMessage, err error)) {
	c := &call{done: done}
	l.mu.Lock()
	if l.why != nil {
		l.mu.Unlock()
		go done(nil, fmt.Errorf("%w: %w", ErrDisconnected, l.Err())) // the caller may hold a lock that done takes
		return
	}
	l.calls++
	id := "call_" + strconv.Itoa(l.calls)
	if !patient {
		c.timer = time.AfterFunc(l.Instance.hub.times().call, func() { l.answered(id, nil, ErrTimeout) })
	}
	l.pending[id] = c
	l.mu.Unlock()
	l.used.Store(time.Now().UnixNano())
	raw, ok := args.(json.RawMessage)
	if !ok {
		raw, _ = json.Marshal(args)
	}
	l.out.Put(fmt.Appendf(make([]byte, 0, len(raw)+64), `{"type":"tool_call","id":%q,"name":%q,"args":%s}`, id, name,
		raw))
}

// Call sends a call and waits for its answer. The connection's reader must not
// call it.
func (l *Link) Call(ctx context.Context, name string, args any) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	got := make(chan answer, 1)
	l.Begin(name, args, false, func(result json.RawMessage, err error) { got <- answer{result, err} })
	select {
	case a := <-got:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Stopped is the code with which the hub closes the connection of a browser
// that must not come back until its user wants it to.
const Stopped = 4002

// Disconnect ends the connection. The browser joins again only when its user
// wants it to.
func (l *Link) Disconnect() {
	l.conn.Close(Stopped, "bproxy has disconnected the browser")
	l.Instance.hub.drop(l, errors.New("it was disconnected"))
}

// Info describes the link's instance.
func (l *Link) Info() Info {
	h := l.Instance.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.infoLocked()
}

func (l *Link) infoLocked() Info {
	i := l.Instance
	return Info{ID: i.ID, Port: i.Port, UserAgent: i.UserAgent, WindowID: i.WindowID,
		ConnectedAt: record.Time{Time: i.since}, LastActivity: record.Time{Time: l.active()},
		Tabs: int(l.tabs.Load()), Launch: i.Launch}
}
