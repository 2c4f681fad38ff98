package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"btools/lib/jsonrpc"
)

// hears notes what a child says.
type hears struct {
	said chan string
	over chan error
}

func (h *hears) FromChild(m *jsonrpc.Message) { h.said <- string(m.Raw) }
func (h *hears) Ended(why error)              { h.over <- why }

// site is a server by streamable HTTP, of mcp-go, behind a handler that a test changes.
type site struct {
	*httptest.Server
	mcp     *server.MCPServer
	release chan struct{} // ends the calls of "slow"
	stopped chan struct{} // has a value for each that was cancelled

	mu      sync.Mutex
	before  func(w http.ResponseWriter, r *http.Request) (answered bool)
	handler http.Handler
	methods []string
}

func newSite(t *testing.T) *site {
	s := &site{release: make(chan struct{}), stopped: make(chan struct{}, 1)}
	s.mcp = server.NewMCPServer("remote", "1", server.WithToolCapabilities(true))
	s.mcp.AddTool(mcp.NewTool("echo", mcp.WithString("text")), func(ctx context.Context, r mcp.CallToolRequest) (
		*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("echo " + r.GetString("text", "")), nil
	})
	s.mcp.AddTool(mcp.NewTool("slow"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.Meta != nil {
			server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 1})
		}
		select {
		case <-s.release:
			return mcp.NewToolResultText("late"), nil
		case <-ctx.Done():
			s.stopped <- struct{}{}
			return nil, ctx.Err()
		}
	})
	s.renew()
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// renew has the server forget its sessions, as one that was restarted has.
func (s *site) renew() {
	h := server.NewStreamableHTTPServer(s.mcp, server.WithStateful(true))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	before, handler := s.before, s.handler
	s.methods = append(s.methods, r.Method)
	s.mu.Unlock()
	if before == nil || !before(w, r) {
		handler.ServeHTTP(w, r)
	}
}

func (s *site) set(before func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func answers(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// guest is a child at a site.
type guest struct {
	*Process
	*hears
	t *testing.T
}

func visit(t *testing.T, spec Spec, err error) *guest {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{hears: &hears{make(chan string, 100), make(chan error, 1)}, t: t}
	if g.Process, err = Start(t.Context(), new(Programs).Start, &spec, Endpoint{}, g.hears, io.Discard,
		DefaultLimits); err != nil {
		t.Fatal(err)
	}
	go g.Run()
	t.Cleanup(func() { g.Stop(nil) })
	return g
}

func (g *guest) initialize() (string, error) {
	result, err := g.Call(g.t.Context(), "initialize", json.RawMessage(
		`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	if err == nil {
		g.Send(jsonrpc.Request(nil, "notifications/initialized", nil))
	}
	return string(result), err
}

// wants compares the result of a call.
func (g *guest) wants(want, tool, args string) {
	g.t.Helper()
	result, err := g.Call(g.t.Context(), "tools/call", json.RawMessage(`{"name":"`+tool+`","arguments":`+args+`}`))
	if err != nil || !strings.Contains(string(result), want) {
		g.t.Errorf("%s: %s, %v, want %s", tool, result, err, want)
	}
}

// hear waits for a message.
func (g *guest) hear(want string) {
	g.t.Helper()
	for {
		select {
		case got := <-g.said:
			if strings.Contains(got, want) {
				return
			}
		case <-time.After(10 * time.Second):
			g.t.Fatalf("no %s", want)
		}
	}
}

// end waits for the end of the child.
func (g *guest) end(want string) {
	g.t.Helper()
	select {
	case why := <-g.over:
		if why == nil || !strings.Contains(why.Error(), want) || strings.Contains(why.Error(), "s3cret") {
			g.t.Errorf("it ended: %v, want %s", why, want)
		}
	case <-time.After(10 * time.Second):
		g.t.Fatalf("it has not ended: %s", want)
	}
}

// A child at a URL is spoken to as one that is a process: requests, progress, notices that
// cancel, and notifications of the server's own.
func TestRemote(t *testing.T) {
	s := newSite(t)
	spec, err := Remote("r", s.URL+"/mcp?key=s3cret", nil, "")
	g := visit(t, spec, err)
	if got, err := g.initialize(); err != nil || !strings.Contains(got, `"name":"remote"`) {
		t.Fatal(got, err)
	}
	g.wants("echo a", "echo", `{"text":"a"}`)
	if tools, err := g.Pages(t.Context(), "tools/list", "tools"); err != nil || len(tools) != 2 {
		t.Errorf("%s, %v", tools, err)
	}
	n := g.NewID()
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"tools/call",` +
		`"params":{"name":"slow","arguments":{},"_meta":{"progressToken":"t"}}}`))
	late := make(chan string, 1)
	if err := g.Relay(n, m, func(m *jsonrpc.Message, err error) { late <- fmt.Sprint(err, m) }); err != nil {
		t.Fatal(err)
	}
	g.hear(`"progressToken":"t"`)
	g.wants("echo meanwhile", "echo", `{"text":"meanwhile"}`)
	g.Cancel(n, "enough") // which does not wait for the answer to what it cancels
	<-s.stopped
	// The stream of the server's own messages may not be there yet.
	for done := false; !done; {
		s.mcp.AddTool(mcp.NewTool(fmt.Sprint("new", time.Now().UnixNano())), nil)
		select {
		case m := <-g.said:
			done = strings.Contains(m, "tools/list_changed")
		case <-time.After(20 * time.Millisecond):
		}
	}
	g.Stop(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.methods[len(s.methods)-1]; last != "DELETE" {
		t.Errorf("the last request is %s: the session goes on", last)
	}
	select {
	case got := <-late:
		t.Errorf("a cancelled call is answered: %s", got)
	default:
	}
}

// A server that is lost ends the child, whose calls say why, but not its secrets.
func TestRemoteIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*site)
		want string
	}{
		"refused":   {func(s *site) { s.set(answers(401)) }, "/mcp answers 401 Unauthorized: it needs a login"},
		"forbidden": {func(s *site) { s.set(answers(403)) }, "/mcp answers 403 Forbidden"},
		"gateway":   {func(s *site) { s.set(answers(502)) }, "/mcp answers 502 Bad Gateway"},
		"restarted": {func(s *site) { s.renew() }, "it has ended the session"},
		"another server": {func(s *site) { s.set(redirects("http://127.0.0.1:1/x?k=s3cret")) },
			"it redirects to http://127.0.0.1:1/x, another server"},
		"away": {func(s *site) {
			s.CloseClientConnections()
			s.Listener.Close()
		}, "cannot reach http://127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			spec, err := Remote("r", s.URL+"/mcp?key=s3cret", map[string]string{"X-Key": "s3cret"}, "")
			g := visit(t, spec, err)
			if got, err := g.initialize(); err != nil {
				t.Fatal(got, err)
			}
			g.wants("echo a", "echo", `{"text":"a"}`)
			c.lose(s)
			_, err = g.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"echo","arguments":{}}`))
			if text := fmt.Sprint(err); !strings.Contains(text, "child r ended (") || strings.Contains(text, "s3cret") {
				t.Errorf("the call says %v", err)
			}
			g.end(c.want)
		})
	}
}

func redirects(to string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		return true
	}
}

// A server that refuses one request goes on.
func TestRemoteRefusesOne(t *testing.T) {
	s := newSite(t)
	spec, err := Remote("r", s.URL+"/mcp", nil, "")
	g := visit(t, spec, err)
	if got, err := g.initialize(); err != nil {
		t.Fatal(got, err)
	}
	g.wants("echo a", "echo", `{"text":"a"}`)
	s.set(answers(429))
	if _, err := g.Call(t.Context(), "ping", nil); err == nil || !strings.Contains(err.Error(), "429 Too Many") {
		t.Errorf("%v", err)
	}
	s.set(nil)
	g.wants("echo b", "echo", `{"text":"b"}`)
}

// The stream of an answer is resumed after the last event that came.
func TestRemoteResumes(t *testing.T) {
	s := newSite(t)
	var resumed string
	ended := 0
	began := time.Now()
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(body)
		switch {
		case r.Method == "GET" && r.Header.Get("Last-Event-ID") != "":
			resumed = r.Header.Get("Last-Event-ID")
			w.Header().Set("Content-Type", "text/event-stream")
			if ended++; ended < 3 { // more of them must not keep both sides busy
				fmt.Fprint(w, "id: e1\nretry: 0\ndata:\n\n")
				break
			}
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{\"n\": 9007199254740993}}\n\n")
		case m != nil && m.Method == "initialize":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: e1\nretry: 1\ndata:\n\n")
		default:
			w.WriteHeader(405)
		}
		return true
	})
	spec, err := Remote("r", s.URL+"/mcp", nil, "")
	g := visit(t, spec, err)
	if got, err := g.initialize(); err != nil || got != `{"n":9007199254740993}` || resumed != "e1" {
		t.Errorf("%s, %v, after %q", got, err, resumed)
	}
	if took := time.Since(began); took < 3*leastRetry {
		t.Errorf("it was resumed three times in %v", took)
	}
}

// The token is read when the child starts.
func TestRemoteToken(t *testing.T) {
	s := newSite(t)
	got := make(chan string, 1)
	s.set(func(_ http.ResponseWriter, r *http.Request) bool {
		got <- r.Header.Get("Authorization")
		return false
	})
	file := filepath.Join(t.TempDir(), "token")
	spec, err := Remote("r", s.URL+"/mcp", nil, file)
	if err != nil || spec.Check() == nil {
		t.Errorf("%v, and there is no token", err)
	}
	os.WriteFile(file, []byte("s3cret\n"), 0o600)
	g := visit(t, spec, nil)
	go g.initialize()
	if auth := <-got; auth != "Bearer s3cret" {
		t.Errorf("it sends %q", auth)
	}
	s.set(nil)
}
