//go:build linux

package cmdtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"btools/lib/tail"
)

// WebHost is a host by HTTP.
type WebHost struct {
	T       *testing.T
	Url     string
	Session string
	mu      sync.Mutex
	last    int
}

// NewWebHost starts a session as a host that can be asked.
func NewWebHost(t *testing.T, url string) *WebHost {
	t.Helper()
	return InitializeWeb(t, url, `{"elicitation":{}}`)
}

// InitializeWeb starts a session as a host with these capabilities.
func InitializeWeb(t *testing.T, url, capabilities string) *WebHost {
	t.Helper()
	_, h, body := Post(t, url, nil, strings.Replace(FirstRequest("2025-11-25"), `{"elicitation":{}}`, capabilities, 1))
	host := &WebHost{T: t, Url: url, Session: h.Get("Mcp-Session-Id")}
	if host.Session == "" {
		t.Fatalf("got %v, want a session", body)
	}
	return host
}

// Ask sends a request and returns its answer, and the messages before it. The answer
// to a request that is refused is an error with the text of the refusal.
func (h *WebHost) Ask(method, params string) (answer *RPC, before []*RPC) {
	h.T.Helper()
	h.mu.Lock()
	h.last++
	id := fmt.Sprintf(`"h%d"`, h.last)
	h.mu.Unlock()
	_, _, body := Post(h.T, h.Url, map[string]string{"Mcp-Session-Id": h.Session},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	for line := range strings.Lines(body) {
		r := &RPC{Line: strings.TrimPrefix(line, "data: ")}
		if json.Unmarshal([]byte(r.Line), r) != nil {
			continue
		}
		if r.Method == "" && string(r.ID) == id {
			return r, before
		}
		before = append(before, r)
	}
	return &RPC{Line: body, Error: &RPCError{Message: body}}, before
}

// AwaitTools waits until tools are listed, as that of MCP does.
func (h *WebHost) AwaitTools(tools ...string) {
	h.T.Helper()
	listed(h.T, tools, func() []string {
		r, _ := h.Ask("tools/list", "{}")
		return r.toolNames(h.T)
	})
}

// Tool calls a tool and returns its result; an error is one whose text says why.
func (h *WebHost) Tool(name, args string) ToolResult {
	h.T.Helper()
	r, _ := h.Ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
	if r.Error != nil {
		return ToolResult{IsError: true, Content: []Content{{Text: r.Error.Message}}}
	}
	return r.Tool(h.T)
}

// EndSession ends the session.
func (h *WebHost) EndSession() {
	h.T.Helper()
	r, _ := http.NewRequest("DELETE", h.Url, nil)
	r.Header.Set("Mcp-Session-Id", h.Session)
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 204 {
		h.T.Errorf("%+v, %v, want 204", x, err)
	}
}

// ServeMCP runs a bmcp for many hosts, and returns its address.
func (w *World) ServeMCP(env []string, args ...string) (url string, stop func()) {
	w.T.Helper()
	url, s := w.WebMCP(env, args...)
	return url, func() {
		if err := Terminate(s); err != nil {
			w.T.Errorf("bmcp has ended: %v", err)
		}
	}
}

// WebMCP does what ServeMCP does, but its caller ends the process.
func (w *World) WebMCP(env []string, args ...string) (url string, s *exec.Cmd) {
	w.T.Helper()
	s = w.Cmd("bmcp", append([]string{"--http", "0", "-f", "mcp.url"}, args...)...)
	s.Env, s.Dir = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "HOME=" + w.Dir}, env), w.Dir
	said := &tail.Tail{Max: 16 << 10}
	s.Stderr = said
	out := StartRead(w.T, s)
	StopAtEnd(w.T, s, said, func() { Terminate(s) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.TrimSpace(line), s
}

// FirstRequest returns the first request of a host.
func FirstRequest(version string) string {
	return `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`
}

// Post sends a message by HTTP, and returns what comes of it.
func Post(t *testing.T, url string, headers map[string]string, body string) (int, http.Header, string) {
	t.Helper()
	r, _ := http.NewRequest("POST", url, strings.NewReader(body))
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	return a.StatusCode, a.Header, string(b)
}

// Progress calls a tool, and returns what it says and the progress before that.
func (h *WebHost) Progress(name, args string) (answer ToolResult, all []string) {
	h.T.Helper()
	r, before := h.Ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":"token"}}`, name,
		args))
	for _, m := range before {
		if m.Method == "notifications/progress" && strings.Contains(string(m.Params), `"token"`) {
			all = append(all, string(m.Params))
		}
	}
	return r.Tool(h.T), all
}
