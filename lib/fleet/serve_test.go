package fleet

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/fleet/book"
	"btools/lib/fleet/kept"
	"btools/lib/front"
	"btools/lib/logins"
	"btools/lib/virtual"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// openChrome starts a Chromium for the test and opens it.
func openChrome(t *testing.T) *virtual.Browser {
	t.Helper()
	url, _ := chrometest.StartShell(t)
	b, err := virtual.Open(t.Context(), url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// serve serves a registry on a port and returns its host:port.
func serve(t *testing.T) (*Fleet, string) {
	t.Helper()
	b := openChrome(t)
	g := &Fleet{Policy: book.Policy{Grace: 10 * time.Second, Idle: time.Hour, Max: 10},
		Chrome: func(context.Context, *Entry) (*virtual.Browser, Use, error) {
			return b, Use{Ended: func(error) {}}, nil
		}}
	server := httptest.NewServer(&front.Front{Routes: []front.Route{{Answer: g.Answer}},
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(server.Close)
	t.Cleanup(g.Close)
	return g, strings.TrimPrefix(server.URL, "http://")
}

// request sends a request and returns the status and the body.
func request(t *testing.T, method, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// get requests JSON that must exist.
func get(t *testing.T, method, url string, into any) {
	t.Helper()
	status, body := request(t, method, url)
	if err := json.Unmarshal([]byte(body), into); status != 200 || err != nil {
		t.Fatalf("%s %s: %d %.300s (%v)", method, url, status, body, err)
	}
}

// dial connects to a WebSocket and has it do a command.
func dial(t *testing.T, url, command string) (*websocket.Conn, string) {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), url)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	if err := conn.Write([]byte(command)); err != nil {
		t.Fatal(err)
	}
	m, err := conn.Next()
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return conn, string(b)
}

func TestSessionsAddresses(t *testing.T) {
	t.Parallel()
	g, at := serve(t)
	var v map[string]string
	get(t, "GET", at+"/session/a/json/version/", &v)
	if want := "ws://" + at + "/session/a/devtools/browser/a"; v["webSocketDebuggerUrl"] != want {
		t.Errorf("the address is %q, want %q", v["webSocketDebuggerUrl"], want)
	}
	if !strings.Contains(v["Browser"], "/") || v["Protocol-Version"] != "1.3" ||
		!strings.HasPrefix(v["WebKit-Version"], "537.36 (@") || v["V8-Version"] == "" {
		t.Errorf("/json/version is %v", v)
	}
	if _, answer := dial(t, v["webSocketDebuggerUrl"],
		`{"id":1,"method":"Browser.getVersion"}`); !strings.Contains(answer,
		`"product"`) {
		t.Error(answer)
	}

	var mine, theirs []map[string]string
	get(t, "GET", at+"/session/a/json/list", &mine)
	get(t, "GET", at+"/session/b/json", &theirs)
	if len(mine) != 1 || len(theirs) != 1 || mine[0]["id"] == theirs[0]["id"] || mine[0]["type"] != "page" ||
		mine[0]["url"] != "about:blank" {
		t.Fatalf("a new session has %v, another has %v; want one blank page each", mine, theirs)
	}
	foreign := theirs[0]["id"]
	var page map[string]string
	get(t, "PUT", at+"/session/a/json/new?data:text/html,%3Ctitle%3Enew%3C/title%3E", &page)
	if page["url"] != "data:text/html,<title>new</title>" && page["url"] != "" {
		t.Errorf("the new page is %v", page)
	}
	if _, answer := dial(t, page["webSocketDebuggerUrl"],
		`{"id":1,"method":"Runtime.evaluate","params":{"expression":"6*7"}}`); !strings.Contains(answer, `"value":42`) {
		t.Errorf("the page's own WebSocket: %s", answer)
	}
	dial(t, page["webSocketDebuggerUrl"],
		`{"id":1,"method":"Runtime.evaluate","params":{"expression":"document.title = 'changed'"}}`)
	get(t, "GET", at+"/session/a/json/list", &mine) // Chrome tells nobody of that
	if !slices.ContainsFunc(mine, func(p map[string]string) bool { return p["title"] == "changed" }) {
		t.Errorf("a page has changed its title: %v", mine)
	}
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/session/a/json/activate/" + page["id"], 200, "Target activated"},
		{"GET", "/session/a/json/close/" + page["id"] + "/", 200, "Target is closing"},
		{"GET", "/session/a/json/activate/" + foreign, 404, "No such target id: " + foreign},
		{"GET", "/session/a/json/close/" + foreign, 404, "No such target id: " + foreign},
		{"GET", "/session/a/json/close/XX", 404, "No such target id: XX"},
		{"GET", "/session/a/json/new", 405, "PUT"},
		{"PUT", "/session/a/json/new?%20chrome://quit", 403, "chrome"},
		{"PUT", "/session/a/json/new?fi%0Ale:///etc/passwd", 403, "file"},
		{"GET", "/session/a/json/protocol", 200, `"domain": "Accessibility"`},
		{"GET", "/session/a/devtools/browser/a", 404, "no path"},
		{"GET", "/session/a/favicon.ico", 404, "no path"},
		{"GET", "/session/favicon/favicon.ico", 404, "no path"},
		{"GET", "/session/a%20b/json/version", 400, "1 to 64 letters"},
		{"GET", "/session/../json/version", 400, "1 to 64 letters"},
		{"GET", "/session/" + strings.Repeat("x", 65) + "/json", 400, "1 to 64 letters"},
		{"GET", "/json/list", 200, "[]"},
		{"PUT", "/json/new?about:blank", 404, "/session/NAME/json/new"},
		{"GET", "/json/close/" + foreign, 404, "/session/NAME/json/close"},
		{"GET", "/json/protocol", 200, `"domain": "Accessibility"`},
	} {
		if status, body := request(t, c.method, at+c.path); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %.300s; want %d %s", c.method, c.path, status, body, c.status, c.says)
		}
	}
	if _, err := websocket.Dial(t.Context(), "ws://"+at+"/session/a/devtools/page/"+foreign); err == nil {
		t.Error("a session has connected to a page of another")
	}
	if _, err := websocket.Dial(t.Context(), "ws://"+at+"/devtools/page/"+foreign); err == nil {
		t.Error("the port itself has connected to a page of a session")
	}
	if got := names(g); got != "a b" {
		t.Errorf("the sessions are %q, want a and b", got)
	}
}

// names are the names of the sessions that are there.
func names(g *Fleet) string {
	var all []string
	for _, s := range g.List() {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}

func TestAnonymousAddresses(t *testing.T) {
	t.Parallel()
	g, at := serve(t)
	var v, w map[string]string
	get(t, "GET", at+"/json/version", &v)
	get(t, "GET", at+"/json/version", &w)
	one, two := v["webSocketDebuggerUrl"], w["webSocketDebuggerUrl"]
	if one == two || !strings.HasPrefix(one, "ws://"+at+"/devtools/browser/") {
		t.Fatalf("the addresses of new sessions are %q and %q", one, two)
	}
	if len(g.List()) != 0 {
		t.Error("a session was created before anybody connected to it")
	}
	const create, pages = `{"id":1,"method":"Target.createTarget","params":{"url":"about:blank#mine"}}`,
		`{"id":1,"method":"Target.getTargets"}`
	first, answer := dial(t, one, create)
	if !strings.Contains(answer, "targetId") {
		t.Fatal(answer)
	}
	first.Close(websocket.Normal, "")
	if _, answer := dial(t, one, pages); !strings.Contains(answer, "#mine") {
		t.Errorf("a second connection to the address does not see the first one's page: %s", answer)
	}
	if _, answer := dial(t, two, pages); strings.Contains(answer, "#mine") {
		t.Errorf("another session sees the page: %s", answer)
	}
	own, answer := dial(t, "ws://"+at+"/devtools/browser", pages)
	if strings.Contains(answer, "#mine") {
		t.Errorf("a session of its own sees the page: %s", answer)
	}
	if n := len(g.List()); n != 3 {
		t.Errorf("there are %d sessions, want 3", n)
	}
	own.Close(websocket.Normal, "")
	for end := time.Now().Add(time.Minute); len(g.List()) != 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the session of one connection did not end with it")
		}
	}
}

// A session of which nothing has been saved comes back, too, if its program is killed, as it began.
func TestYoungSessionOutlivesProgram(t *testing.T) {
	t.Parallel()
	b, keep := openChrome(t), t.TempDir()
	program := func() *Fleet {
		g := &Fleet{Chrome: func(context.Context, *Entry) (*virtual.Browser, Use, error) {
			return b, Use{Ended: func(error) {}}, nil
		}, Keep: keep, Saves: true, Log: slog.New(slog.DiscardHandler), Noun: "session"}
		t.Cleanup(g.Close)
		return g
	}
	killed := program()
	login := &logins.State{Cookies: []logins.Cookie{{Name: "login", Value: "a", Domain: "a.test", Path: "/",
		Expires: -1}}, Origins: []logins.Origin{}}
	if _, err := killed.New(t.Context(), "a", Wanted{Login: login}); err != nil {
		t.Fatal(err)
	}
	if _, err := killed.New(t.Context(), "b", Wanted{}); err != nil {
		t.Fatal(err)
	}
	g := program()
	for name, cookies := range map[string]int{"a": 1, "b": 0} {
		s, done, err := g.Find(t.Context(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		state, _, err := s.State(t.Context())
		if err != nil || len(state.Cookies) != cookies {
			t.Errorf("%s comes back with %+v, %v", name, state, err)
		}
		done()
	}
	if err := g.End(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept.Path(keep, "a")); err == nil {
		t.Error("a session has ended, and what was saved first is there")
	}
}
