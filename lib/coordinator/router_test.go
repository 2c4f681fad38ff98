package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
)

// withChildren is a coordinator with children that are never started.
func withChildren(t testing.TB, names ...string) *Server {
	o := Options{Source: source.ChildLaunched("firefox", true, ""), Release: "0", Log: slog.New(slog.DiscardHandler),
		Stderr: io.Discard,
		Detect: func(context.Context) ([]json.RawMessage, error) { return nil, nil }}
	for _, name := range names {
		o.Children = append(o.Children, child.Spec{Name: name, Argv: []string{"./none/" + name}})
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// testSession is a session without children, whose messages to the host are
// kept.
func testSession(t testing.TB) (s *Host, said func() []string) {
	var mu sync.Mutex
	var all []string
	s = withChildren(t).NewHost(func(_ json.RawMessage, _ bool, message []byte) {
		mu.Lock()
		defer mu.Unlock()
		if message != nil {
			all = append(all, string(message))
		}
	}, false)
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), all...)
	}
}

// Whatever a host says, each request is answered once, under its own ID, and
// nothing else is.
func FuzzHost(f *testing.F) {
	for _, lines := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
			`"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":"3","method":"tools/call","params":{"name":"coordinator_status","arguments":{}}}
{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"a"}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
{"jsonrpc":"2.0","id":7,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nonesuch","requestState":"x",` +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}
{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` +
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}}
{"jsonrpc":"2.0","id":3,"method":"server/discover"}`,
		"[]\n{}\nnull\n{\"id\":{},\"method\":\"ping\"}\n{\"id\":1,\"method\":\"ping\"}\n{\"id\":1,\"method\":\"ping\"}",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		s, said := testSession(t)
		asked := map[string]int{}
		cancels := false
		for line := range bytes.Lines(input) {
			line = bytes.TrimSpace(line)
			if len(line) == 0 {
				continue
			}
			m, err := jsonrpc.Parse(line)
			if m != nil && m.ID != nil && (err != nil || m.IsRequest()) && json.Valid(line) {
				asked[string(m.ID)]++
			}
			cancels = cancels || m != nil && m.Method == "notifications/cancelled"
			if json.Valid(line) { // else the front answers it
				s.Handle(jsonrpc.Parse(bytes.Clone(line)))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Drain(ctx)
		s.Close()
		for _, message := range said() {
			m, err := jsonrpc.Parse([]byte(message))
			if err != nil || !json.Valid([]byte(message)) {
				t.Fatalf("%q is no message: %v", message, err)
			}
			if m.IsResponse() && string(m.ID) != "null" {
				asked[string(m.ID)]--
			}
		}
		for id, n := range asked {
			if id != "null" && n != 0 && !(cancels && n > 0) {
				t.Errorf("%s is answered %d times too few, in %q", id, n, said())
			}
		}
	})
}

// Whatever a child says, each call to it is answered once, and what else
// reaches the host is a message.
func FuzzChild(f *testing.F) {
	for _, lines := range []string{
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n" +
			"{\"id\":2,\"error\":{\"code\":1,\"message\":\"m\"}}",
		`{"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{"_meta":{"progressToken":1}}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}
{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}
{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}
{"jsonrpc":"2.0","id":3,"result":{"isError":true}}`,
		"garbage\n{\"id\":1,\"result\":NaN}\n[]\n{\"id\":2}",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		s, said := testSession(t)
		s.Handle(jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"greeting","method":"initialize",` +
			`"params":{"protocolVersion":"2025-11-25",` +
			`"capabilities":{"sampling":{},"roots":{}}}}`)))
		s.Handle(jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
		program := newFakeProgram()
		s.server.Start = func(context.Context, *child.Spec, child.Endpoint, io.Writer) (child.Program, error) {
			return program, nil
		}
		p, err := newSupervisor(s, &child.Spec{Name: "c"}, source.Browser{}, mcp.OfHandshake, nil).run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answered := map[int]int{}
		for n := range 3 {
			m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{}}`))
			p.Relay(p.NewID(), m, func(*jsonrpc.Message, error) { answered[n]++ })
		}
		go io.Copy(io.Discard, program.inEnd)
		program.outEnd.Write(input)
		program.exit(nil)
		<-p.Done()
		for n := range 3 {
			if times := answered[n]; times != 1 {
				t.Errorf("call %d is answered %d times", n, times)
			}
		}
		for _, message := range said() {
			if strings.Contains(message, "\n") {
				t.Errorf("%q is no line", message)
			}
			if _, err := jsonrpc.Parse([]byte(message)); err != nil {
				t.Errorf("%q is no message: %v", message, err)
			}
		}
	})
}

// The host gets a child's progress of the child's own calls only.
func TestProgressOfOwnCalls(t *testing.T) {
	s, said := testSession(t)
	s.Handle(jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"greeting","method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)))
	s.Handle(jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
	child := func(name string) *running { return &running{sup: &supervisor{host: s, child: &child.Spec{Name: name}}} }
	good, bad := child("good"), child("bad")
	for i, c := range []struct {
		token string
		of    *running
	}{{`"good"`, good}, {"7", good}, {`"b\u0061d"`, bad}} {
		m, err := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
			`"params":{"_meta":{"progressToken":%s}}}`, i, c.token))
		if err != nil {
			t.Fatal(err)
		}
		req := s.newRequest(m)
		req.cancel = func() {}
		s.read(func(t *table) {
			t.Add(&req.Request)
			t.Relay(&req.Request, c.of, int64(i))
		})
	}
	times := func() int { return strings.Count(strings.Join(said(), "\n"), `"notifications/progress"`) }
	progress := func(p *running, params string) (told bool) {
		before := times()
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p.FromChild(m)
		return times() > before
	}
	for _, c := range []struct {
		of     *running
		params string
		told   bool
	}{
		{good, `{"progressToken":"good"}`, true}, {good, `{"progressToken":7}`, true},
		{bad, `{"progressToken":"bad"}`, true}, // however it is written
		{bad, `{"progressToken":"good"}`, false}, {bad, `{"progressToken":7}`, false},
		{bad, `{"progressToken":1}`, false}, {bad, `{}`, false}, {good, `{"progressToken":"7"}`, false},
	} {
		if told := progress(c.of, c.params); told != c.told {
			t.Errorf("the host is told of the progress %s of %s: %v, want %v", c.params, c.of.sup.child.Name,
				told, c.told)
		}
	}
}
