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
	"syscall"
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

// NewWebHost greets bmcp.
func NewWebHost(t *testing.T, url string) *WebHost {
	t.Helper()
	_, h, body := Post(t, url, nil, Greeting("2025-11-25"))
	host := &WebHost{T: t, Url: url, Session: h.Get("Mcp-Session-Id")}
	if host.Session == "" {
		t.Fatalf("got %v, want a session", body)
	}
	return host
}

// Lists waits until tools are listed, as mcp.lists does.
func (h *WebHost) Lists(tools ...string) {
	h.T.Helper()
	listed(h.T, tools, func() []string {
		_, _, body := Post(h.T, h.Url, map[string]string{"Mcp-Session-Id": h.Session},
			`{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{}}`)
		for line := range strings.Lines(body) {
			r := RPC{Line: line}
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &r) == nil &&
				string(r.ID) == `"list"` {
				return r.toolNames(h.T)
			}
		}
		h.T.Fatalf("no list of tools: %.500s", body)
		return nil
	})
}

// Tool calls a tool and returns its result; an error is one whose text says why.
func (h *WebHost) Tool(name, args string) (x ToolResult) {
	h.T.Helper()
	h.mu.Lock()
	h.last++
	id := fmt.Sprint("h", h.last)
	h.mu.Unlock()
	_, _, body := Post(h.T, h.Url, map[string]string{"Mcp-Session-Id": h.Session},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name,
			args))
	for line := range strings.Lines(body) {
		var r struct {
			ID     string
			Result *ToolResult
			Error  *struct{ Message string }
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &r) == nil && r.ID == id {
			if r.Error != nil {
				return ToolResult{IsError: true, Content: []Content{{Text: r.Error.Message}}}
			}
			return *r.Result
		}
	}
	return ToolResult{IsError: true, Content: []Content{{Text: body}}}
}

// Leaves ends the session.
func (h *WebHost) Leaves() {
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
		s.Process.Signal(syscall.SIGTERM)
		if err := s.Wait(); err != nil {
			w.T.Errorf("bmcp has ended: %v", err)
		}
	}
}

// WebMCP is serveMCP, whose process is the caller's to end.
func (w *World) WebMCP(env []string, args ...string) (url string, s *exec.Cmd) {
	w.T.Helper()
	s = w.Cmd("bmcp", append([]string{"--http", "0", "-f", "mcp.url"}, args...)...)
	s.Env, s.Dir = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "HOME=" + w.Dir}, env), w.Dir
	out, _ := s.StdoutPipe()
	said := &tail.Tail{Max: 16 << 10}
	s.Stderr = said
	if err := s.Start(); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		if s.ProcessState == nil {
			s.Process.Signal(syscall.SIGTERM)
			s.Wait()
		}
		if w.T.Failed() {
			w.T.Logf("bmcp, %v, says:\n%s", s.ProcessState, said)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.T.Fatal(err)
	}
	return strings.TrimSpace(line), s
}

// Greeting is the first request of a host.
func Greeting(version string) string {
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
	_, _, body := Post(h.T, h.Url, map[string]string{"Mcp-Session-Id": h.Session},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":%q,"arguments":%s,`+
			`"_meta":{"progressToken":"token"}}}`, name, args))
	for line := range strings.Lines(body) {
		data, _ := strings.CutPrefix(line, "data: ")
		var r RPC
		switch json.Unmarshal([]byte(data), &r); {
		case r.Method == "notifications/progress" && strings.Contains(string(r.Params), `"token"`):
			all = append(all, string(r.Params))
		case string(r.ID) == `"p"`:
			answer = r.Tool(h.T)
		}
	}
	return answer, all
}
