package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/extension"
	"btools/lib/extension/hub"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
	"btools/lib/websocket"
)

// world is a hub, and an extension that is played: what a real one does only
// when a person clicks.
type world struct {
	*testing.T
	hub   *Hub
	url   string
	conn  *websocket.Conn
	id    string
	tabs  atomic.Int64
	hold  atomic.Bool // commands to tabs are not answered
	stuck chan struct{}

	opens  atomic.Bool // tabs are opened when the test says so
	late   chan func() // opens one of them
	closed chan string // the IDs of tabs that were closed
}

const pairingCode = "ABCDEFGHIJKLMNOPQRST"

func startHub(t *testing.T) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	h := &Hub{Join: &hub.Hub{Code: pairingCode, Host: "127.0.0.1", First: 33100, Last: 33199, Log: log}, Group: "g",
		Settings: settings.Settings{SessionGrace: time.Second, MaxSessions: 10}, Log: log}
	h.Start()
	server := httptest.NewServer(&h.Front)
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	w := &world{T: t, hub: h, url: server.URL, stuck: make(chan struct{}, 100), late: make(chan func(), 100),
		closed: make(chan string, 100)}
	return w
}

// startJoined returns a hub which a browser has joined.
func startJoined(t *testing.T) *world {
	t.Helper()
	w := startHub(t)
	w.join("")
	return w
}

// join registers the played extension and answers the hub's calls.
func (w *world) join(id string) {
	w.Helper()
	challenge := fmt.Sprintf("%d.x", time.Now().UnixMilli())
	body, _ := json.Marshal(map[string]any{"userAgent": "Mozilla/5.0 Chrome/156.0.0.0", "windowId": 1,
		"instanceId": id, "run": "r", "challenge": challenge,
		"proof": extension.Code(pairingCode).Prove("register " + challenge)})
	req, _ := http.NewRequest(http.MethodPost, w.url+"/register", bytes.NewReader(body))
	req.Header.Set("Origin", extension.Origin)
	req.Header.Set("Sec-Fetch-Site", "none")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	var p hub.Place
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || json.Unmarshal(b, &p) != nil {
		w.Fatalf("%s %s", resp.Status, b)
	}
	conn, err := websocket.Dial(w.Context(), p.WebSocketURL)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close(websocket.Normal, "") })
	w.conn, w.id = conn, p.InstanceID
	conn.Write(fmt.Appendf(nil, `{"type":"hello","instanceId":%q,"browser":{"userAgent":"Chrome/156.0.0.0"}}`, w.id))
	welcome, err := conn.Next()
	if err != nil {
		w.Fatal(err)
	}
	welcome.Bytes()
	go w.play(conn)
}

// play answers calls until the connection ends.
func (w *world) play(conn *websocket.Conn) {
	for {
		m, err := conn.Next()
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			return
		}
		result := "{}"
		switch jsonrpc.GetString(b, "name") {
		case "list":
			result = `{"tabs":[]}`
		case "open":
			n := w.tabs.Add(1)
			result = fmt.Sprintf(`{"tabId":%d,"targetId":"T%d","url":"about:blank","group":%q}`, n, n,
				jsonrpc.GetString(b, "args", "group"))
			if w.opens.Load() {
				id, group := jsonrpc.GetString(b, "id"), jsonrpc.GetString(b, "args", "group")
				w.late <- func() {
					conn.Write(fmt.Appendf(nil, `{"type":"event","name":"tab","args":{"tabId":50,"targetId":"T50",`+
						`"url":"http://a/","group":%q,"openerTabId":1}}`, group)) // a pop-up
					conn.Write(fmt.Appendf(nil, `{"type":"event","name":"tab","args":%s}`, result))
					conn.Write(fmt.Appendf(nil, `{"type":"tool_result","id":%q,"result":%s}`, id, result))
				}
				continue
			}
		case "close":
			w.closed <- string(jsonrpc.Get(b, "args", "tabId"))
		case "cdp":
			if w.hold.Load() && jsonrpc.GetString(b, "args", "method") == "Runtime.evaluate" {
				w.stuck <- struct{}{}
				continue
			}
		}
		conn.Write(fmt.Appendf(nil, `{"type":"tool_result","id":%q,"result":%s}`, jsonrpc.GetString(b, "id"), result))
	}
}

// client is a client of the browser that has joined.
type client struct {
	*world
	conn *websocket.Conn
	last int
}

func (w *world) client() *client {
	w.Helper()
	at := "ws" + strings.TrimPrefix(w.url, "http") + "/session/" + w.id
	conn, err := websocket.Dial(w.Context(), at+"/devtools/browser")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &client{w, conn, 0}
}

func (c *client) send(session, method, params string) int {
	c.last++
	m := fmt.Sprintf(`{"id":%d,"method":%q,"params":%s`, c.last, method, params)
	if session != "" {
		m += fmt.Sprintf(`,"sessionId":%q`, session)
	}
	c.conn.Write([]byte(m + "}"))
	return c.last
}

// ask returns the result of a command, or its error.
func (c *client) ask(session, method, params string) json.RawMessage {
	c.Helper()
	id := c.send(session, method, params)
	for {
		m, err := c.conn.Next()
		if err != nil {
			c.Fatalf("%s: %v", method, err)
		}
		b, err := m.Bytes()
		if err != nil {
			c.Fatal(err)
		}
		if string(jsonrpc.Get(b, "id")) == fmt.Sprint(id) {
			if e := jsonrpc.Get(b, "error"); e != nil {
				return e
			}
			return jsonrpc.Get(b, "result")
		}
	}
}

// page attaches the client to its first page.
func (c *client) page() (session string) {
	c.Helper()
	for info := range jsonrpc.Elements(jsonrpc.Get(c.ask("", "Target.getTargets", "{}"), "targetInfos")) {
		got := c.ask("", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`,
			jsonrpc.GetString(info, "targetId")))
		return jsonrpc.GetString(got, "sessionId")
	}
	c.Fatal("the client has no page")
	return ""
}

// reason returns with which reason the connection of the client is closed.
func (c *client) reason() string {
	c.Helper()
	for {
		if _, err := c.conn.Next(); err != nil {
			var closed *websocket.CloseError
			if !errors.As(err, &closed) {
				c.Fatalf("the connection ended with %v", err)
			}
			return closed.Reason
		}
	}
}

// The user cancels Chrome's bar while a command waits: the clients are told why
// their connections end.
func TestUserEndsDebugging(t *testing.T) {
	w := startJoined(t)
	c, other := w.client(), w.client()
	page := c.page()
	other.page()
	w.hold.Store(true)
	c.send(page, "Runtime.evaluate", `{"expression":"1"}`)
	<-w.stuck
	w.conn.Close(4000, "the user has ended debugging in the browser")
	for _, one := range []*client{c, other} {
		if got := one.reason(); !strings.Contains(got, "the user has ended debugging in the browser") {
			t.Errorf("a client was told %q", got)
		}
	}
	w.hold.Store(false)
	w.join(w.id) // its user connects it again
	again := w.client()
	again.ask(again.page(), "Runtime.evaluate", `{"expression":"1"}`)
}

// Clients see tabs of their own only, and one that the user shares goes to the
// client that came last, until it is taken back.
func TestTabsOfClients(t *testing.T) {
	w := startJoined(t)
	c, other := w.client(), w.client()
	c.page()
	other.page()
	own := func(c *client) string { return string(c.ask("", "Target.getTargets", "{}")) }
	w.conn.Write([]byte(`{"type":"event","name":"tab","args":{"tabId":77,"targetId":"SHARED","url":"http://a/",` +
		`"title":"a","shared":true}}`))
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(own(c), "SHARED") && !strings.Contains(own(other), "SHARED") {
		if time.Now().After(deadline) {
			t.Fatal("nobody sees the tab that the user shares")
		}
	}
	if strings.Contains(own(c), "SHARED") == strings.Contains(own(other), "SHARED") {
		t.Error("two clients see the tab that the user shares")
	}
	if strings.Contains(own(c), `"T2"`) == strings.Contains(own(c), `"T1"`) {
		t.Errorf("a client sees %s", own(c))
	}
	holder := c
	if strings.Contains(own(other), "SHARED") {
		holder = other
	}
	w.conn.Write([]byte(`{"type":"event","name":"removed","args":{"tabId":77}}`))
	for strings.Contains(own(holder), "SHARED") {
		if time.Now().After(deadline) {
			t.Fatal("a client still sees the tab that the user has taken back")
		}
	}
}

// A client leaves while a tab is being opened for it, and while its page opens
// one: both are closed when they are there.
func TestClientLeavesEarly(t *testing.T) {
	w := startJoined(t)
	c := w.client()
	c.page()
	w.opens.Store(true)
	c.send("", "Target.createTarget", `{"url":"about:blank"}`)
	open := <-w.late
	c.conn.Close(websocket.Normal, "")
	if got := <-w.closed; got != "1" { // its context has ended
		t.Errorf("the tab %s was closed first", got)
	}
	open()
	left := map[string]bool{"2": true, "50": true}
	for len(left) > 0 {
		select {
		case id := <-w.closed:
			delete(left, id)
		case <-time.After(20 * time.Second):
			t.Fatalf("tabs are left: %v", left)
		}
	}
}

// Nothing that the extension sends stops the hub.
func TestOddEvents(t *testing.T) {
	w := startJoined(t)
	c := w.client()
	page := c.page()
	for _, e := range []string{
		`{"type":"event","name":"cdp"}`, `{"type":"event","name":"cdp","args":{"tabId":1}}`,
		`{"type":"event","name":"cdp","args":{"tabId":1,"method":"Target.attachedToTarget"}}`,
		`{"type":"event","name":"cdp","args":{"tabId":1,"method":"Target.detachedFromTarget","params":{}}}`,
		`{"type":"event","name":"cdp","args":{"tabId":99,"method":"Page.x"}}`,
		`{"type":"event","name":"tab","args":{"tabId":"x"}}`, `{"type":"event","name":"tab","args":[]}`,
		`{"type":"event","name":"removed"}`,
		`{"type":"event","name":"detached","args":{"tabId":-1}}`, `{"type":"event","name":"download","args":null}`,
		`{"type":"event","name":"cdp","args":{"tabId":2,"method":"Page.downloadProgress","params":{"guid":"x"}}}`,
	} {
		w.conn.Write([]byte(e))
	}
	for _, method := range []string{"Page.enable", "Page.disable", "Page.disable", "Runtime.enable", "Runtime.disable",
		"Runtime.disable", "Runtime.evaluate"} {
		if got := c.ask(page, method, "{}"); jsonrpc.Get(got, "message") != nil {
			t.Errorf("%s is answered %s", method, got)
		}
	}
	c.ask("", "Target.createTarget", `{"url":"about:blank"}`)
	for _, refused := range []string{"Target.createBrowserContext", "Browser.crash", "Tracing.start",
		"Extensions.loadUnpacked", "Browser.cancelDownload"} {
		if got := c.ask("", refused, "{}"); jsonrpc.Get(got, "message") == nil {
			t.Errorf("%s is answered %s", refused, got)
		}
	}
	if v := c.ask("", "Browser.getVersion", "{}"); jsonrpc.GetString(v, "product") != "Chrome/156.0.0.0" {
		t.Errorf("the version is %s", v)
	}
}
