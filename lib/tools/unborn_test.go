package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// between is the address of a relay to a browser that passes on what change returns for
// a command; nil: nothing.
func between(t *testing.T, endpoint string, change func(command []byte) []byte) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := websocket.Accept(w, r)
		if err != nil {
			return
		}
		browser, err := websocket.Dial(r.Context(), endpoint)
		if err != nil {
			t.Error(err)
			client.Close(websocket.Normal, "")
			return
		}
		pass := func(from, to *websocket.Conn, change func([]byte) []byte) {
			defer to.Close(websocket.Normal, "")
			for {
				m, err := from.Next()
				if err != nil {
					return
				}
				b, err := m.Bytes()
				if err != nil {
					return
				}
				if b = change(b); b != nil && to.Write(b) != nil {
					return
				}
			}
		}
		go pass(browser, client, func(b []byte) []byte { return b })
		pass(client, browser, change)
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// A new tab whose renderer is never there, or dies when it is to load its first page,
// is replaced.
func TestUnbornTabs(t *testing.T) {
	t.Parallel()
	site := newPages(t)
	endpoint, _ := chrometest.StartShell(t)
	for _, c := range []struct{ name, command, instead, tool, args string }{
		{"navigate", "Page.navigate", "Page.crash", "browser_navigate", `{"url":%q}`},
		{"new tab that dies", "Page.navigate", "Page.crash", "browser_tabs", `{"action":"new","url":%q}`},
		{"new tab that is not born", "Runtime.runIfWaitingForDebugger", "", "browser_tabs",
			`{"action":"new","url":%q}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			armed := make(chan bool, 1)
			relay := between(t, endpoint, func(b []byte) []byte {
				if jsonrpc.GetString(b, "method") != c.command {
					return b
				}
				select {
				case <-armed:
				default:
					return b
				}
				if c.instead == "" {
					return nil
				}
				return fmt.Appendf(nil, `{"id":%s,"method":%q,"sessionId":%q}`, jsonrpc.Get(b, "id"), c.instead,
					jsonrpc.GetString(b, "sessionId"))
			})
			h := serve(t, relay, 800*time.Millisecond)
			h.wants(false, "", "browser_tabs", `{"action":"list"}`)
			armed <- true
			h.wants(false, site+"/form", c.tool, fmt.Sprintf(c.args, site+"/form"))
			if len(armed) > 0 {
				t.Errorf("no %s was kept back", c.command)
			}
			h.wants(false, "form", "browser_evaluate", `{"function":"() => location.pathname.slice(1)"}`)
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				list, _, _ := h.call("browser_tabs", `{"action":"list"}`)
				if strings.Count(list, "\n- ") == 1 && strings.Contains(list, "(current) [Form]") {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the tab that was replaced is still there: %s", list)
				}
			}
			h.wants(false, "", "browser_close", `{}`)
		})
	}
}
