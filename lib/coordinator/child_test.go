package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
	"btools/lib/run"
)

// fakeProgram is a child in memory.
type fakeProgram struct {
	in, inEnd   *pipe
	out, outEnd *pipe
	done        chan error
	over        sync.Once
}

// pipe is one end of a pipe.
type pipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p *pipe) Close() error {
	if p.PipeReader != nil {
		return p.PipeReader.Close()
	}
	return p.PipeWriter.Close()
}

func newPipe() (r, w *pipe) {
	pr, pw := io.Pipe()
	return &pipe{PipeReader: pr}, &pipe{PipeWriter: pw}
}

func newFakeProgram() *fakeProgram {
	f := &fakeProgram{done: make(chan error, 1)}
	f.inEnd, f.in = newPipe()
	f.out, f.outEnd = newPipe()
	return f
}

func (f *fakeProgram) Input() io.WriteCloser               { return f.in }
func (f *fakeProgram) Output() io.ReadCloser               { return f.out }
func (f *fakeProgram) TryWrite() func([]byte) (int, error) { return nil }
func (f *fakeProgram) Ended() <-chan error                 { return f.done }
func (f *fakeProgram) End()                                { f.exit(nil) }
func (f *fakeProgram) Kill()                               { f.exit(nil) }
func (f *fakeProgram) Sweep() error                        { return nil }
func (f *fakeProgram) Free()                               {}
func (f *fakeProgram) PID() int                            { return 1 }

// exit ends the child.
func (f *fakeProgram) exit(err error) {
	f.over.Do(func() {
		f.inEnd.Close()
		f.outEnd.Close()
		f.done <- err
	})
}

// behaviour is what a child does: a result for a request, an error, or neither.
type behaviour func(child *fakeProgram, m *jsonrpc.Message) (result string, err *jsonrpc.Error)

// say writes a message of the child.
func (f *fakeProgram) say(message string) { fmt.Fprintln(f.outEnd, message) }

func (f *fakeProgram) serve(b behaviour) {
	defer f.exit(nil)
	for lines := jsonrpc.NewReader(f.inEnd); ; {
		line, err := lines.Line()
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			return
		}
		result, no := b(f, m)
		switch {
		case !m.IsRequest():
		case no != nil:
			f.say(string(jsonrpc.Failure(m.ID, no)))
		case result != "":
			f.say(string(jsonrpc.Response(m.ID, json.RawMessage(result))))
		}
	}
}

// wellBehaved answers what every child answers; others what is left.
func wellBehaved(others behaviour) behaviour {
	return func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
		switch m.Method {
		case "initialize":
			return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
				`"serverInfo":{"name":"c","version":"1"}}`, nil
		case "tools/list":
			return `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`, nil
		case "ping":
			return "{}", nil
		}
		return others(child, m)
	}
}

// fixture is a host with children in memory, by the public entrances alone. It is
// for a bubble of synctest.
type fixture struct {
	*Host
	t  *testing.T
	mu sync.Mutex
	// children are those that were started.
	children []*fakeProgram
	said     []string // to the host
}

// driver is a child that is given the browser.
var driver = child.Command("c", []string{os.Args[0], run.CDPPort})

// kid is a child of a fixture.
type kid struct {
	name string
	behaviour
}

func newFixture(t *testing.T, b behaviour) *fixture { return newFixtureWith(t, Limits{}, b) }

func newFixtureWith(t *testing.T, limits Limits, b behaviour) *fixture {
	return newFixtureOf(t, Options{Limits: limits}, kid{"c", b})
}

func newFixtureOf(t *testing.T, o Options, kids ...kid) *fixture {
	f := &fixture{t: t}
	o.Source, o.Release = source.ChildLaunched("firefox", true, ""), "0"
	o.Log, o.Stderr = slog.New(slog.DiscardHandler), io.Discard
	o.Detect = func(context.Context) ([]json.RawMessage, error) { return nil, nil }
	behaviours := map[string]behaviour{}
	for _, k := range kids {
		o.Children = append(o.Children, child.Spec{Name: k.name, Argv: []string{os.Args[0]}})
		behaviours[k.name] = k.behaviour
	}
	o.Start = func(_ context.Context, child *child.Spec, _ child.Endpoint, _ io.Writer) (child.Program, error) {
		p := newFakeProgram()
		f.mu.Lock()
		f.children = append(f.children, p)
		f.mu.Unlock()
		go p.serve(behaviours[child.Name])
		return p, nil
	}
	c := New(o)
	f.Host = c.NewHost(func(_ json.RawMessage, _ bool, message []byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if message != nil {
			f.said = append(f.said, string(message))
		}
	}, false)
	t.Cleanup(c.Close)
	return f
}

// ask gives the host's messages to the session.
func (f *fixture) ask(messages ...string) {
	for _, m := range messages {
		f.Handle(jsonrpc.Parse([]byte(m)))
	}
	synctest.Wait()
}

// heard is what the host was told since it was asked last.
func (f *fixture) heard() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.said
	f.said = nil
	return all
}

func (f *fixture) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.children)
}

// latest is the child that was started last.
func (f *fixture) latest() *fakeProgram {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.children[len(f.children)-1]
}

// wants compares what the host was told.
func (f *fixture) wants(what string, want ...string) {
	f.t.Helper()
	got := f.heard()
	if len(got) != len(want) {
		f.t.Fatalf("%s: %q, want %q", what, got, want)
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			f.t.Errorf("%s: %s, want %s", what, got[i], want[i])
		}
	}
}

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`

// shakeHands greets, and has the child list its tools.
func (f *fixture) shakeHands() {
	f.t.Helper()
	f.ask(hello)
	time.Sleep(time.Second)
	f.ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	var list string
	for _, m := range f.heard() {
		if strings.Contains(m, `"id":"list"`) {
			list = m
		}
	}
	if !strings.Contains(list, `"name":"echo"`) {
		f.t.Fatal("echo is not listed")
	}
}

func callEcho(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
}

// An answer reaches the host as the child has written it, under the host's ID.
func TestCallIsRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			return `{"content":[ ],  "odd": 1e0}`, nil
		}))
		f.shakeHands()
		f.ask(callEcho(`"a"`), callEcho("1"))
		f.wants("answers", `{"jsonrpc":"2.0","id":"a","result":{"content":[ ],  "odd": 1e0}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[ ],  "odd": 1e0}}`)
	})
}

// The calls of a child that ends are answered with its end. The next call
// starts it again; if it crashes again, only after a while.
func TestChildThatCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.exit(errors.New("crashed"))
			}
			return "", nil
		}))
		f.shakeHands()
		for n := range 2 {
			f.ask(callEcho("1"))
			f.wants("crash", "child c ended")
			if f.started() != n+1 {
				t.Errorf("%d children", f.started())
			}
		}
		f.ask(callEcho("1"))
		f.wants("too early", "it is started again in 1s at the earliest")
		time.Sleep(DefaultLimits.FirstDelay)
		f.ask(callEcho("1"))
		f.wants("again", "child c ended")
		if f.started() != 3 {
			t.Errorf("%d children", f.started())
		}
	})
}

// A child that lives long before it crashes is started again at once.
func TestChildThatCrashesRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if jsonrpc.Get(m.Params, "arguments", "crash") != nil {
				child.exit(errors.New("crashed"))
			}
			return `{"content":[]}`, nil
		}))
		f.shakeHands()
		for n := range 4 {
			f.ask(callEcho("1"))
			f.wants("answer", `"content":[]`)
			if f.started() != n+1 {
				t.Errorf("%d children", f.started())
			}
			time.Sleep(DefaultLimits.Steady + time.Second)
			f.ask(strings.Replace(callEcho("1"), `"arguments":{`, `"arguments":{"crash":1`, 1))
			f.wants("crash", "child c ended")
		}
	})
}

// A child that does not answer initialize has startTimeout for it.
func TestChildThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) { return "", nil })
		f.ask(hello, callEcho("1"))
		time.Sleep(catalog.DefaultLimits.List)
		f.wants("answers", `"id":"hello"`, "Unknown tool: echo")
		f.ask(callEcho("2"))
		time.Sleep(DefaultLimits.Start)
		var all string
		for _, m := range f.heard() {
			all += m
		}
		if !strings.Contains(all, "Unknown tool: echo") {
			t.Errorf("%s", all)
		}
		f.ask(callEcho("3"))
		time.Sleep(catalog.DefaultLimits.List)
		f.wants("the reason", "child c did not answer within 5m0s")
	})
}

// A host gets the log messages that its protocol has it ask for: all, or those
// of the level that a request of the stateless protocol names.
func TestLogMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method != "tools/call" {
				return "", nil
			}
			for _, level := range []string{"info", "error"} {
				child.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level +
					`","data":1}}`)
			}
			return `{"content":[]}`, nil
		}))
		f.shakeHands()
		f.ask(callEcho("1"))
		f.wants("handshake", `"level":"info"`, `"level":"error"`, `"id":1`)
		f.ask(statelessCall("2", ""))
		f.wants("none", `"id":2`)
		level := `"_meta":{"io.modelcontextprotocol/logLevel":"warning",`
		f.ask(strings.Replace(statelessCall("3", ""), `"_meta":{`, level, 1))
		f.wants("warnings", `"level":"error"`, `"id":3`)
	})
}

// The end of a session gives no second answer to a call that has asked its host
// for something.
func TestSessionEndsWhileHostIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?"}}`)
			}
			return "", nil
		}))
		f.ask(statelessCall("2", ""))
		time.Sleep(DefaultLimits.Settle)
		f.wants("question", `"resultType":"input_required"`)
		f.Close()
		f.wants("end")
	})
}

// A call that is cancelled is answered no more, and its child is told.
func TestCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "notifications/cancelled" {
				told = append(told, string(m.Params))
				child.say(`{"jsonrpc":"2.0","id":` + string(jsonrpc.Get(m.Params, "requestId")) + `,"result":{}}`)
			}
			return "", nil
		}))
		f.shakeHands()
		f.ask(callEcho("5"),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"enough"}}`)
		f.wants("answers")
		if len(told) != 1 || !strings.Contains(told[0], "enough") {
			t.Errorf("the child is told %q", told)
		}
		f.ask(callEcho("5")) // the ID is free
		f.ask(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
		f.wants("ping", `"id":6`)
	})
}

// What a child asks reaches the host, and the host's answer the child. The end
// of the child takes its question back.
func TestChildAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var call, answer string
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			switch {
			case m.Method == "tools/call":
				call = string(m.ID)
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?"}}`)
			case m.IsResponse():
				answer = string(m.Raw)
				child.say(`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[]}}`)
			}
			return "", nil
		}))
		f.shakeHands()
		f.ask(callEcho("1"))
		f.wants("question", `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"which?"}}`)
		f.ask(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
		f.wants("answer", `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		if answer != `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}` {
			t.Errorf("the child is answered %s", answer)
		}
		f.ask(callEcho("2"))
		f.wants("question", `"id":2,"method":"elicitation/create"`)
		f.latest().exit(nil)
		f.wants("end", `"method":"notifications/cancelled","params":{"requestId":2`, `"id":2,"result"`)
	})
}

// statelessCall is a call by the stateless protocol.
func statelessCall(id, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{}` + more +
		`,"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
}

// What a child asks is an answer to the call of a host of the stateless
// protocol, which comes again with what it was asked for. If it does not, the
// call ends after a while, and the child is told.
func TestStatelessHostIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var call, cancelled string
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			switch {
			case m.Method == "tools/call":
				call = string(m.ID)
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?"}}`)
			case m.Method == "notifications/cancelled":
				cancelled = string(m.Params)
			case m.IsResponse():
				child.say(`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[],"got":` + string(m.Result) + `}}`)
			}
			return "", nil
		}))
		first := func(id string) (state string) {
			t.Helper()
			f.ask(statelessCall(id, ""))
			time.Sleep(DefaultLimits.Settle)
			got := f.heard()
			if len(got) != 1 {
				t.Fatalf("%q", got)
			}
			m, _ := jsonrpc.Parse([]byte(got[0]))
			if string(m.ID) != id || jsonrpc.GetString(m.Result, "resultType") != "input_required" ||
				jsonrpc.GetString(m.Result, "inputRequests", "q", "method") != "elicitation/create" {
				t.Errorf("%s", got)
			}
			return jsonrpc.GetString(m.Result, "requestState")
		}
		state := first("1")
		f.ask(statelessCall("2", `,"requestState":"`+state+`","inputResponses":{"q":{"action":"accept"}}`))
		f.wants("answer", `"got":{"action":"accept"}`)
		state = first("3")
		time.Sleep(DefaultLimits.AwaitInput)
		synctest.Wait()
		if !strings.Contains(cancelled, "the host does not come again") {
			t.Errorf("the child is told %q", cancelled)
		}
		f.ask(statelessCall("4", `,"requestState":"`+state+`"`))
		f.wants("too late", "too old")
	})
}

// The end of a session answers its calls, ends its children, and waits for its
// goroutines: none is left that sleeps or waits, whatever was under way.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?"}}`)
			}
			return "", nil
		}))
		f.shakeHands()
		f.ask(statelessCall("2", "")) // asks its host, and waits for that
		time.Sleep(DefaultLimits.Settle)
		f.heard()
		f.latest().say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		f.ask(callEcho("1"))
		f.wants("question", "elicitation/create")
		f.Close()
		f.wants("end", source.ErrEnded.Error())
		for _, child := range f.children {
			if _, err := child.outEnd.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the child lives: %v", err)
			}
		}
		synctest.Wait()
		all := make([]byte, 1<<20)
		stacks := strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
		bubble := stacks[0][strings.Index(stacks[0], "synctest bubble"):strings.Index(stacks[0], "]:")]
		for _, stack := range stacks[1:] {
			header, _, _ := strings.Cut(stack, "\n")
			if strings.Contains(header, bubble+"]") && !strings.Contains(stack, "synctest.testingSynctestTest(") &&
				!strings.Contains(header, "synctest.Run") {
				t.Errorf("a goroutine is left: %s", stack)
			}
		}
	})
}
