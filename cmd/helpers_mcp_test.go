//go:build linux

package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/tail"
)

// mcp is a bmcp whose host is the test.
type mcp struct {
	t     *testing.T
	w     *world
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  syncBuffer
	last  int
}

// startMCP starts a bmcp with variables of its own.
func (w *world) startMCP(env []string, args ...string) *mcp {
	w.t.Helper()
	c := w.cmd("bmcp", args...)
	c.Env = slices.Concat(w.env, []string{"XDG_CACHE_HOME=" + w.dir + "/cache"}, env)
	c.Dir = w.dir
	return w.attach(c)
}

// attach starts a bmcp that is set up, and is its host.
func (w *world) attach(c *exec.Cmd) *mcp {
	w.t.Helper()
	m := &mcp{t: w.t, w: w, cmd: c, lines: make(chan string, 10000)}
	if c.Stderr == nil {
		c.Stderr = &m.errs
	}
	m.in, _ = m.cmd.StdinPipe()
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go m.read(out)
	w.t.Cleanup(func() {
		m.in.Close()
		if m.cmd.ProcessState == nil {
			m.cmd.Process.Signal(syscall.SIGTERM)
			m.wait()
		}
		if w.t.Failed() {
			w.t.Logf("bmcp says:\n%s", m.errs.String())
		}
	})
	return m
}

func (m *mcp) read(out io.Reader) {
	defer close(m.lines)
	for r := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		m.lines <- line
	}
}

// mcp starts a bmcp and greets it; its browser is fake.
func (w *world) mcp(env []string, args ...string) *mcp {
	w.t.Helper()
	m := w.startMCP(slices.Concat([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, env), args...)
	m.greet(`{"roots":{},"sampling":{},"elicitation":{}}`)
	return m
}

// fake is the command of a child that takes an endpoint.
func fake() string { return bin + "/fakechild {cdp_endpoint}" }

func (m *mcp) greet(capabilities string) *rpc {
	m.t.Helper()
	r := m.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+
		`,"clientInfo":{"name":"test","version":"1"}}`)
	m.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (m *mcp) send(line string) {
	m.t.Helper()
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		m.t.Fatalf("cannot send: %v", err)
	}
}

// end ends the host's messages, and waits for bmcp to end.
func (m *mcp) end() {
	m.in.Close()
	m.wait()
}

func (m *mcp) wait() {
	done := make(chan error, 1)
	go func() { done <- m.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(2 * patience):
		m.t.Error("bmcp does not end")
		m.cmd.Process.Kill()
		<-done
	}
}

// next is the next message.
func (m *mcp) next() *rpc {
	m.t.Helper()
	select {
	case line, ok := <-m.lines:
		r := &rpc{line: line}
		if !ok {
			m.t.Fatal("bmcp says nothing any more")
		}
		if err := json.Unmarshal([]byte(line), r); err != nil {
			m.t.Fatalf("no message: %v: %.200q", err, line)
		}
		return r
	case <-time.After(patience):
		m.t.Fatal("no message came")
		return nil
	}
}

// answer is the answer to a request; notifications that come before it are
// skipped.
func (m *mcp) answer(id string) *rpc {
	m.t.Helper()
	for {
		if r := m.next(); r.Method == "" && string(r.ID) == id {
			return r
		} else if r.Method == "" {
			m.t.Fatalf("an answer to %s, not to %s: %.300s", r.ID, id, r.line)
		}
	}
}

func (m *mcp) start(method, params string) (id string) {
	m.t.Helper()
	m.last++
	id = fmt.Sprintf(`"r%d"`, m.last)
	m.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

func (m *mcp) call(method, params string) *rpc {
	m.t.Helper()
	return m.answer(m.start(method, params))
}

func (m *mcp) startTool(name, args string) string {
	m.t.Helper()
	return m.start("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

func (m *mcp) tool(name, args string) *rpc {
	m.t.Helper()
	return m.answer(m.startTool(name, args))
}

func (m *mcp) tools() (names []string) {
	m.t.Helper()
	return m.call("tools/list", "{}").toolNames(m.t)
}

// lists waits until tools are listed. What a child is has to be started, and
// perhaps to be fetched, which on a busy machine takes longer than bmcp's first
// list waits for it; a tool that is not known yet could not be called.
func (m *mcp) lists(tools ...string) {
	m.t.Helper()
	listed(m.t, tools, m.tools)
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

// rpc is a message.
type rpc struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
	line string
}

// into reads a result.
func (r *rpc) into(t *testing.T, v any) {
	t.Helper()
	if r.Error != nil || json.Unmarshal(r.Result, v) != nil {
		t.Fatalf("no such result: %.500s", r.line)
	}
}

func (r *rpc) tool(t *testing.T) (x toolResult) {
	t.Helper()
	r.into(t, &x)
	return x
}

// toolNames are those of a list.
func (r *rpc) toolNames(t *testing.T) (names []string) {
	t.Helper()
	var x struct{ Tools []struct{ Name string } }
	r.into(t, &x)
	for _, tool := range x.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (r *rpc) text(t *testing.T) string {
	t.Helper()
	var all []string
	for _, c := range r.tool(t).Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// toolResult is what a tool says.
type toolResult struct {
	Content []struct{ Text string }
	IsError bool
	Meta    map[string]any `json:"_meta"`
	Struct  map[string]any `json:"structuredContent"`
}

func (x toolResult) text() string {
	var all []string
	for _, c := range x.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// stateless is what a request of the stateless protocol says of itself.
const stateless = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"elicitation":{}}}`

// withMeta is stateless with another member.
func withMeta(member string) string {
	return strings.Replace(stateless, "{", "{"+member+",", 1)
}

// required is a result that asks the host.
type required struct {
	Type     string `json:"resultType"`
	State    string `json:"requestState"`
	Requests map[string]struct {
		Method string
		Params struct{ Message string }
	} `json:"inputRequests"`
}

// key is that of the only question.
func (q required) key() (key string) {
	for key = range q.Requests {
	}
	return key
}

// serveMCP runs a bmcp for many hosts, and returns its address.
func (w *world) serveMCP(env []string, args ...string) (url string, stop func()) {
	w.t.Helper()
	url, s := w.webMCP(env, args...)
	return url, func() {
		s.Process.Signal(syscall.SIGTERM)
		if err := s.Wait(); err != nil {
			w.t.Errorf("bmcp has ended: %v", err)
		}
	}
}

// webMCP is serveMCP, whose process is the caller's to end.
func (w *world) webMCP(env []string, args ...string) (url string, s *exec.Cmd) {
	w.t.Helper()
	s = w.cmd("bmcp", append([]string{"--http", "0", "-f", "mcp.url"}, args...)...)
	s.Env, s.Dir = slices.Concat(w.env, []string{"XDG_CACHE_HOME=" + w.dir + "/cache", "HOME=" + w.dir}, env), w.dir
	out, _ := s.StdoutPipe()
	said := &tail.Tail{Max: 16 << 10}
	s.Stderr = said
	if err := s.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if s.ProcessState == nil {
			s.Process.Signal(syscall.SIGTERM)
			s.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("bmcp, %v, says:\n%s", s.ProcessState, said)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(line), s
}

// greeting is the first request of a host.
func greeting(version string) string {
	return `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`
}

// post sends a message by HTTP, and returns what comes of it.
func post(t *testing.T, url string, headers map[string]string, body string) (int, http.Header, string) {
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
