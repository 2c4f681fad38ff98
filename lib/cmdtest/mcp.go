//go:build linux

package cmdtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// MCP is a bmcp whose host is the test.
type MCP struct {
	T     *testing.T
	W     *World
	Cmd   *exec.Cmd
	In    io.WriteCloser
	Lines chan string
	Errs  SyncBuffer
	last  int
}

// StartMCP starts a bmcp with variables of its own.
func (w *World) StartMCP(env []string, args ...string) *MCP {
	w.T.Helper()
	c := w.Cmd("bmcp", args...)
	c.Env = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache"}, env)
	c.Dir = w.Dir
	return w.Attach(c)
}

// Attach starts a bmcp that is set up, and is its host.
func (w *World) Attach(c *exec.Cmd) *MCP {
	w.T.Helper()
	m := &MCP{T: w.T, W: w, Cmd: c, Lines: make(chan string, 10000)}
	if _, ours := c.Stderr.(*os.File); ours || c.Stderr == nil {
		c.Stderr = &m.Errs
	}
	m.In, _ = m.Cmd.StdinPipe()
	out := StartRead(w.T, m.Cmd)
	go m.read(out)
	StopAtEnd(w.T, c, &m.Errs, func() {
		m.In.Close()
		c.Process.Signal(syscall.SIGTERM)
		m.Wait()
	})
	return m
}

func (m *MCP) read(out io.Reader) {
	defer close(m.Lines)
	for r := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		m.Lines <- line
	}
}

// MCP starts a bmcp and a session with it; its browser is fake.
func (w *World) MCP(env []string, args ...string) *MCP {
	w.T.Helper()
	m := w.StartMCP(slices.Concat([]string{"BTOOLS_BROWSER=" + Bin + "/fakebrowser"}, env), args...)
	m.Initialize(`{"roots":{},"sampling":{},"elicitation":{}}`)
	return m
}

// FakeChild is the command of a child that takes an endpoint.
func FakeChild() string { return Bin + "/fakechild {cdp_endpoint}" }

// Initialize starts a session with these capabilities of the host, and returns the answer.
func (m *MCP) Initialize(capabilities string) *RPC {
	m.T.Helper()
	r := m.Call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+
		`,"clientInfo":{"name":"test","version":"1"}}`)
	m.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

// Send sends a message.
func (m *MCP) Send(line string) {
	m.T.Helper()
	if _, err := io.WriteString(m.In, line+"\n"); err != nil {
		m.T.Fatalf("cannot send: %v", err)
	}
}

// End ends the host's messages, and waits for bmcp to end.
func (m *MCP) End() {
	m.In.Close()
	m.Wait()
}

// Wait waits for the end of bmcp.
func (m *MCP) Wait() {
	done := make(chan error, 1)
	go func() { done <- m.Cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(2 * Patience):
		m.T.Error("bmcp does not end")
		m.Cmd.Process.Kill()
		<-done
	}
}

// Next is the next message.
func (m *MCP) Next() *RPC {
	m.T.Helper()
	select {
	case line, ok := <-m.Lines:
		r := &RPC{Line: line}
		if !ok {
			m.T.Fatal("bmcp says nothing any more")
		}
		if err := json.Unmarshal([]byte(line), r); err != nil {
			m.T.Fatalf("no message: %v: %.200q", err, line)
		}
		return r
	case <-time.After(Patience):
		m.T.Fatal("no message came")
		return nil
	}
}

// Answer is the answer to a request; notifications that come before it are
// skipped.
func (m *MCP) Answer(id string) *RPC {
	m.T.Helper()
	for {
		if r := m.Next(); r.Method == "" && string(r.ID) == id {
			return r
		} else if r.Method == "" {
			m.T.Fatalf("an answer to %s, not to %s: %.300s", r.ID, id, r.Line)
		}
	}
}

// Start sends a request and returns its ID.
func (m *MCP) Start(method, params string) (id string) {
	m.T.Helper()
	m.last++
	id = fmt.Sprintf(`"r%d"`, m.last)
	m.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// Call sends a request and returns its answer.
func (m *MCP) Call(method, params string) *RPC {
	m.T.Helper()
	return m.Answer(m.Start(method, params))
}

// StartTool calls a tool and returns the ID of the request.
func (m *MCP) StartTool(name, args string) string {
	m.T.Helper()
	return m.Start("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// Tool calls a tool and returns its answer.
func (m *MCP) Tool(name, args string) *RPC {
	m.T.Helper()
	return m.Answer(m.StartTool(name, args))
}

// Tools are the names of the tools that are listed.
func (m *MCP) Tools() (names []string) {
	m.T.Helper()
	return m.Call("tools/list", "{}").toolNames(m.T)
}

// AwaitTools waits until tools are listed. A child has to be started, and perhaps
// to be fetched, which on a busy machine takes longer than bmcp's first list waits
// for it; a tool that is not known yet could not be called.
func (m *MCP) AwaitTools(tools ...string) {
	m.T.Helper()
	listed(m.T, tools, m.Tools)
}

// listed asks for the tools until all of these are among them.
func listed(t *testing.T, tools []string, list func() []string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got := list()
		missing := slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return slices.Contains(got, name) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q are not listed after two minutes, only %q", missing, got)
		}
	}
}

// RPC is a message.
type RPC struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *RPCError
	Line   string
}

// RPCError is the error of an answer.
type RPCError struct {
	Code    int
	Message string
	Data    json.RawMessage
}

// Into reads a result.
func (r *RPC) Into(t *testing.T, v any) {
	t.Helper()
	if r.Error != nil || json.Unmarshal(r.Result, v) != nil {
		t.Fatalf("no such result: %.500s", r.Line)
	}
}

// Tool reads the result of a tool.
func (r *RPC) Tool(t *testing.T) (x ToolResult) {
	t.Helper()
	r.Into(t, &x)
	return x
}

// MustSucceed asserts that a tool has succeeded, and returns its result.
func (r *RPC) MustSucceed(t *testing.T) ToolResult {
	t.Helper()
	x := r.Tool(t)
	if x.IsError {
		t.Fatalf("the tool has failed: %s", x.Text())
	}
	return x
}

// MustFail asserts that a tool has failed, and that its text says why.
func (r *RPC) MustFail(t *testing.T, why string) {
	t.Helper()
	if x := r.Tool(t); !x.IsError || !strings.Contains(x.Text(), why) {
		t.Errorf("got %.2000s, want an error with %q", r.Line, why)
	}
}

// toolNames are those of a list.
func (r *RPC) toolNames(t *testing.T) (names []string) {
	t.Helper()
	var x struct{ Tools []struct{ Name string } }
	r.Into(t, &x)
	for _, tool := range x.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// Text is the text in the result of a tool.
func (r *RPC) Text(t *testing.T) string {
	t.Helper()
	return r.Tool(t).Text()
}

// ToolResult is what a tool says.
type ToolResult struct {
	Content []Content
	IsError bool
	Meta    map[string]any `json:"_meta"`
	Struct  map[string]any `json:"structuredContent"`
}

// Content is a part of a result.
type Content struct {
	Text string
	Data []byte // of an image
}

// Text is all text of the result.
func (x ToolResult) Text() string {
	var all []string
	for _, c := range x.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// Stateless is what a request of the stateless protocol says of itself.
const Stateless = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"elicitation":{}}}`

// Required is a result that asks the host.
type Required struct {
	Type     string `json:"resultType"`
	State    string `json:"requestState"`
	Requests map[string]struct {
		Method string
		Params struct{ Message string }
	} `json:"inputRequests"`
}

// Key is that of the only question.
func (q Required) Key() (key string) {
	for key = range q.Requests {
	}
	return key
}

// Builtin starts a bmcp with its own tools and Chromium, in the directory files; its
// host names no roots.
func (w *World) Builtin(args ...string) *MCP {
	w.T.Helper()
	c := w.Cmd("bmcp", args...)
	c.Env = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache", "BTOOLS_BROWSER=chrome-headless-shell")
	if c.Dir = w.Dir + "/files"; os.MkdirAll(c.Dir, 0o700) != nil {
		w.T.Fatal("there is no directory for files")
	}
	m := w.Attach(c)
	m.Initialize(`{}`)
	return m
}

// MustTool calls a tool, asserts that it succeeds, and returns its result.
func (m *MCP) MustTool(tool, format string, args ...any) ToolResult {
	m.T.Helper()
	return m.Tool(tool, fmt.Sprintf(format, args...)).MustSucceed(m.T)
}

// MustFail calls a tool, and asserts that it fails with this part of the error.
func (m *MCP) MustFail(want, tool, format string, args ...any) {
	m.T.Helper()
	m.Tool(tool, fmt.Sprintf(format, args...)).MustFail(m.T, want)
}

// BrowserChildren are the arguments for two servers that drive one browser: the
// built-in one, and a program.
func BrowserChildren(t *testing.T) []string {
	t.Helper()
	return []string{"--mcp", "builtin", "--mcp", Clients(t) + "/node_modules/.bin/chrome-devtools-mcp " +
		"--no-usage-statistics --no-performance-crux"}
}

// AwaitTitle waits until the page of an agent has a title.
func (m *MCP) AwaitTitle(want string) {
	m.T.Helper()
	Until(m.T, "the title is "+want, func() bool {
		return strings.Contains(m.Tool("browser_evaluate", `{"function":"() => document.title"}`).Line, want)
	})
}

// Result calls a tool and returns its result, as MCP has it.
func (m *MCP) Result(name, args string) (json.RawMessage, error) {
	id := m.StartTool(name, args)
	for late := time.After(2 * Patience); ; {
		select {
		case line, ok := <-m.Lines:
			var r RPC
			if !ok || json.Unmarshal([]byte(line), &r) != nil {
				return nil, fmt.Errorf("bmcp has ended or writes no JSON: %.200q", line)
			}
			switch {
			case r.Method == "" && string(r.ID) == id && r.Error != nil:
				return nil, fmt.Errorf("error %d: %s", r.Error.Code, r.Error.Message)
			case r.Method == "" && string(r.ID) == id:
				return r.Result, nil
			}
		case <-late:
			return nil, fmt.Errorf("no answer within %v", 2*Patience)
		}
	}
}
