//go:build linux

package cmdtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Wire is a client of a browser, or of what passes for one.
type Wire struct {
	T    *testing.T
	Conn *websocket.Conn
	last int
	told []string // the events that came before answers
	log  []string // the last messages both ways
}

// logged is how many messages a failed test shows.
const logged = 50

// Dial connects to a WebSocket.
func Dial(t *testing.T, url string) *Wire {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	c := &Wire{T: t, Conn: conn}
	t.Cleanup(func() {
		conn.Close(websocket.Normal, "")
		if t.Failed() && len(c.log) > 0 {
			t.Logf("the last messages of %s:\n%s", url, strings.Join(c.log, "\n"))
		}
	})
	return c
}

func (c *Wire) note(way string, m []byte) {
	c.log = append(c.log[max(0, len(c.log)-logged+1):], fmt.Sprintf("%s %.500s", way, m))
}

// Ask has the browser do a command, and returns its answer.
func (c *Wire) Ask(method, params string) string {
	c.T.Helper()
	c.last++
	command := fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, c.last, method, params)
	c.note("->", command)
	if err := c.Conn.Write(command); err != nil {
		c.T.Fatalf("%s: %v", method, err)
	}
	for {
		m, err := c.Conn.Next()
		if err != nil {
			c.T.Fatalf("%s: %v", method, err)
		}
		b, err := m.Bytes()
		if err != nil {
			c.T.Fatalf("%s: %v", method, err)
		}
		c.note("<-", b)
		if strings.HasPrefix(string(b), fmt.Sprintf(`{"id":%d,`, c.last)) {
			return string(b)
		}
		session := jsonrpc.GetString(b, "sessionId")
		if jsonrpc.GetString(b, "method") == "Inspector.targetCrashed" && session != "" &&
			strings.Contains(params, session) {
			c.T.Fatalf("%s: the page has crashed, and will not answer", method)
		}
		c.told = append(c.told, string(b))
	}
}

// AskUntilTold sends commands, so that the client is not idle, until an event has
// come.
func (c *Wire) AskUntilTold(method string) {
	c.T.Helper()
	Until(c.T, method, func() bool {
		c.Ask("Browser.getVersion", "{}")
		return slices.ContainsFunc(c.told, func(e string) bool { return strings.Contains(e, `"`+method+`"`) })
	})
}

// AwaitEnd waits until the connection has ended.
func (c *Wire) AwaitEnd() {
	c.T.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := c.Conn.Next(); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(Patience):
		c.T.Fatal("a client is still connected")
	}
}

// AskOnce connects, has a command done, and leaves.
func AskOnce(t *testing.T, url, method, params string) string {
	t.Helper()
	c := Dial(t, url)
	defer c.Conn.Close(websocket.Normal, "")
	return c.Ask(method, params)
}

// FirstPage connects to the first page of a session, which stays awake meanwhile.
func FirstPage(t *testing.T, base string) *Wire {
	t.Helper()
	defer Dial(t, "ws"+strings.TrimPrefix(base, "http")+"/devtools/browser").Conn.Close(1000, "")
	_, list := Get(t, http.MethodGet, base+"/json/list")
	_, ws, _ := strings.Cut(list, `"webSocketDebuggerUrl"`)
	fields := strings.Split(ws, `"`)
	if len(fields) < 2 {
		t.Fatalf("the session has no page: %s", list)
	}
	return Dial(t, fields[1])
}

// AwaitTitle waits until a page's title has some text.
func (c *Wire) AwaitTitle(title string) {
	c.T.Helper()
	Until(c.T, "the page shows "+title, func() bool {
		return strings.Contains(c.Ask("Runtime.evaluate", `{"expression":"document.title"}`), title)
	})
}

// Open navigates to a URL.
func (c *Wire) Open(url string) {
	c.T.Helper()
	c.Ask("Page.navigate", fmt.Sprintf(`{"url":%q}`, url))
}

// SaveVisitor saves a login for a site of members, which is not that of a member. It
// returns what reports whether it has changed.
func (w *World) SaveVisitor(site string) (changed func() bool) {
	w.T.Helper()
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	WriteFile(w.T, w.Dir+"/visitor.json",
		`{"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"visitor"}]}]}`)
	w.Run("bproxy", "state", "import", w.Dir+"/visitor.json").Exits(w.T, 0, "")
	export := func() string { return w.Run("bproxy", "state", "export", "visitor").Out }
	before := export()
	return func() bool { return export() != before }
}

// Click has the first page of a session click on an element.
func Click(t *testing.T, ws, page, id string) {
	t.Helper()
	target := AskOnce(t, ws, NewPage, fmt.Sprintf(`{"url":%q}`, page))
	var made struct {
		Result struct {
			TargetID string `json:"targetId"`
		}
	}
	if err := json.Unmarshal([]byte(target), &made); err != nil {
		t.Fatalf("%v: %s", err, target)
	}
	at, _, _ := strings.Cut(ws, "/devtools/")
	p := Dial(t, at+"/devtools/page/"+made.Result.TargetID)
	defer p.Conn.Close(websocket.Normal, "")
	Until(t, "the page has loaded", func() bool {
		return strings.Contains(p.Ask("Runtime.evaluate",
			fmt.Sprintf(`{"expression":"!!document.querySelector('#%s')"}`, id)), "true")
	})
	p.Ask("Runtime.evaluate", fmt.Sprintf(`{"expression":"document.querySelector('#%s').click()"}`, id))
}
