package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
)

// Children that misbehave, as a host sees them.

// lists is a child that lists these tools, and says when they change; others does the
// rest, nil nothing.
func lists(tools string, others behaviour) behaviour {
	return func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
		switch m.Method {
		case "initialize":
			return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{}},` +
				`"serverInfo":{"name":"c","version":"1"}}`, nil
		case "tools/list":
			return `{"tools":[` + tools + `]}`, nil
		case "ping":
			return "{}", nil
		}
		if others == nil {
			return "", nil
		}
		return others(child, m)
	}
}

const echoTool = `{"name":"echo","inputSchema":{"type":"object"}}`

// greet greets, and waits until all children that can have listed their tools.
func (f *fixture) greet() {
	f.t.Helper()
	f.ask(hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	time.Sleep(time.Second)
	f.ask(`{"jsonrpc":"2.0","id":"greeted","method":"tools/list"}`)
	time.Sleep(catalog.DefaultLimits.List)
	f.heard()
}

// result asks for something, and returns the answer.
func (f *fixture) result(method, params string) string {
	f.t.Helper()
	f.ask(`{"jsonrpc":"2.0","id":"asked","method":"` + method + `","params":` + params + `}`)
	time.Sleep(catalog.DefaultLimits.List)
	for _, m := range f.heard() {
		if strings.Contains(m, `"id":"asked"`) {
			return m
		}
	}
	f.t.Fatalf("%s %s is not answered", method, params)
	return ""
}

func (f *fixture) tool(name string) string {
	f.t.Helper()
	return f.result("tools/call", `{"name":"`+name+`","arguments":{}}`)
}

// A child whose lists never end is told of, and keeps nobody from the lists of
// others.
func TestEndlessLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := 0
		endless := func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			kind, isList := strings.CutSuffix(m.Method, "/list")
			if !isList {
				return lists("", nil)(child, m)
			}
			pages++ // each has one item more, and says that there is another one
			return fmt.Sprintf(`{%q:[{"name":"endless_%d","uri":"fake://%[2]d","inputSchema":{"type":"object"}}],`+
				`"nextCursor":"%[2]d"}`, kind, pages), nil
		}
		well := lists(echoTool, func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) {
			return `{"resources":[{"uri":"fake://a","name":"a"}]}`, nil
		})
		f := newFixtureOf(t, Options{}, kid{"well", well}, kid{"endless", endless})
		f.greet()
		if got := f.result("tools/list", "{}"); !strings.Contains(got, `"name":"echo"`) ||
			strings.Contains(got, "endless_") {
			t.Errorf("got %.500s, want echo and no tool of endless", got)
		}
		if got := f.tool(statusTool); !strings.Contains(got, "child endless has more than 1000 pages of tools") {
			t.Errorf("the status does not tell of it: %.2000s", got)
		}
		if got := f.result("resources/list", "{}"); !strings.Contains(got,
			`"result":{"resources":[{"uri":"fake://a","name":"a"}]}`) {
			t.Errorf("%.300s", got)
		}
	})
}

// A child that asks without end, and a host that answers nothing: what is kept
// is bounded.
func TestEndlessQuestions(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const questions = 1000
			refused := 0
			var call string
			f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				switch {
				case m.Method == "tools/call":
					call = string(m.ID)
					go func() {
						for n := range questions {
							child.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q-%d","method":"elicitation/create",`+
								`"params":{"message":"question %[1]d"}}`, n))
						}
					}()
				case m.IsResponse():
					if refused++; !stateless && refused == questions-DefaultLimits.Questions {
						child.say(`{"jsonrpc":"2.0","id":` + call + `,"result":{"content":[]}}`)
					}
				}
				return "", nil
			}))
			if stateless {
				f.ask(statelessCall("1", ""))
			} else {
				f.shakeHands()
				f.ask(callEcho("1"))
			}
			time.Sleep(time.Second)
			got := f.heard()
			n := strings.Count(strings.Join(got, ""), `"message":"question `)
			if n == 0 || n > DefaultLimits.Questions {
				t.Errorf("stateless %v: %d questions: %.500q", stateless, n, got)
			}
			if !stateless && (len(got) != DefaultLimits.Questions+1 || !strings.Contains(got[len(got)-1], `"id":1,`) ||
				refused != questions-DefaultLimits.Questions) {
				t.Errorf("%d messages, %d questions refused", len(got), refused)
			}
		})
	}
}

// A resource is its child's that lists it now, not that of the one that did
// once.
func TestOwnersOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		has := map[string][]string{"a": {"moves", "both"}, "b": {"both", "gone"}}
		as := func(name string) kid {
			return kid{name, lists("", func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				switch m.Method {
				case "resources/list":
					mu.Lock()
					defer mu.Unlock()
					return `{"resources":` + uris(has[name]) + `}`, nil
				case "resources/read":
					return `{"contents":[{"uri":"fake://","text":"of ` + name + `"}]}`, nil
				}
				return "", nil
			})}
		}
		f := newFixtureOf(t, Options{}, as("a"), as("b"))
		f.greet()
		wants := func(names ...string) {
			t.Helper()
			if got := f.result("resources/list", "{}"); !strings.Contains(got, `"resources":`+uris(names)+`}`) {
				t.Errorf("got %s, want %v", got, names)
			}
		}
		for range 2 {
			wants("moves", "both", "gone")
		}
		mu.Lock()
		has["a"], has["b"] = nil, []string{"both", "moves"}
		mu.Unlock()
		wants("both", "moves")
		// The last one is nobody's: the first is asked.
		for name, want := range map[string]string{"both": "of b", "moves": "of b", "gone": "of a"} {
			if got := f.result("resources/read", `{"uri":"fake://`+name+`"}`); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want that %s", name, got, want)
			}
		}
	})
}

// uris are resources as a list has them.
func uris(names []string) string {
	all := []string{}
	for _, n := range names {
		all = append(all, `{"uri":"fake://`+n+`"}`)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// Children that list what no client takes, or write what is not valid JSON.
func TestOddTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var odd []string
		for n, schema := range []string{`"text"`, "null", "[]", "{}", `{"properties":5}`,
			`{"type":"object","properties":null}`, `{"type":"object","properties":{"n":{"type":"string",` +
				`"x-mcp-header":"a b"},"m":{"type":"object","x-mcp-header":5}}}`} {
			odd = append(odd, fmt.Sprintf(`{"name":"odd_%d","inputSchema":%s}`, n, schema))
		}
		answers := func(result string) behaviour {
			return func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) { return result, nil }
		}
		f := newFixtureOf(t, Options{},
			kid{"a", lists(strings.Join(append(odd, `{"name":"nan","inputSchema":{"type":"object"}}`), ","),
				answers(`{"content":[],"structuredContent":{"x":1}}`))},
			kid{"b", func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				if m.Method != "tools/list" {
					return lists("", nil)(child, m)
				}
				child.say(`{"jsonrpc":"2.0","id":` + string(m.ID) +
					`,"result":{"tools":[{"name":"x","inputSchema":{"maximum":NaN}}]}}`)
				return "", nil
			}},
			kid{"c", lists(echoTool, func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				child.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[],"x":NaN}}`)
				return "", nil
			})})
		f.greet()
		list := f.result("tools/list", "{}")
		for n := range odd {
			name := "odd_" + strconv.Itoa(n)
			if !strings.Contains(list, `"`+name+`"`) {
				t.Errorf("%s is not listed", name)
			}
			if got := f.tool(name); strings.Contains(got, `"error"`) {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := f.tool(statusTool); !strings.Contains(got, "the answer of child b is not valid JSON") {
			t.Errorf("the status is %.2000s", got)
		}
		if got := f.tool("echo"); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "not valid JSON") {
			t.Errorf(`got %s, want an error with "not valid JSON"`, got)
		}
	})
}

// What a child writes beside its answers reaches nobody: an answer to nothing,
// one more answer, and what is no message.
func TestNonsenseOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method != "tools/call" {
				return "", nil
			}
			child.say(`{"jsonrpc":"2.0","id":999999,"result":{}}`)
			child.say("this is no JSON\n{\"half\":\n[]\n42\n{}")
			child.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":["once"]}}`)
			return `{"content":["twice"]}`, nil
		}))
		f.shakeHands()
		for range 2 {
			f.ask(callEcho("1"))
			f.wants("one answer", `"once"`)
		}
	})
}

// A change of a child's tools is told, and a storm of them is not.
func TestToolsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tools := []string{echoTool}
		f := newFixture(t, func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			mu.Lock()
			list := strings.Join(tools, ",")
			mu.Unlock()
			return lists(list, func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				if m.Method != "tools/call" {
					return "", nil
				}
				mu.Lock()
				tools = append(tools, strings.Replace(echoTool, "echo", "new", 1))
				mu.Unlock()
				for range 100 {
					child.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				}
				return `{"content":[]}`, nil
			})(child, m)
		})
		f.shakeHands()
		f.ask(callEcho("1"))
		time.Sleep(time.Second)
		changes := strings.Count(strings.Join(f.heard(), ""), "notifications/tools/list_changed")
		if got := f.result("tools/list", "{}"); !strings.Contains(got, `"new"`) || changes < 1 || changes > 3 {
			t.Errorf("%d changes were told, and the tools are %.500s; want 3 at most, and new", changes, got)
		}
	})
}

// A child that has closed its output has ended.
func TestChildThatClosesItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.outEnd.Close()
			}
			return "", nil
		}))
		f.shakeHands()
		f.ask(callEcho("1"))
		f.wants("its end", "child c ended")
	})
}

// Images of results that a bulk call returns are images, not text; those of
// others are not there.
func TestBulkImages(t *testing.T) {
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
	const image = `{"type":"image","data":"` + pixel + `","mimeType":"image/png","x-unknown":1.0}`
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, lists(echoTool+","+strings.Replace(echoTool, "echo", "image", 1),
			func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
				if jsonrpc.GetString(m.Params, "name") == "image" {
					return `{"content":[{"type":"text","text":"shot"},` + image + `]}`, nil
				}
				return `{"content":[{"type":"text","text":"echo"}]}`, nil
			}))
		f.greet()
		got := f.result("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"image"},`+
			`{"tool":"echo","return_result":true},{"tool":"image","return_result":true},`+
			`{"tool":"image","return_result":true}]}}`)
		m, err := jsonrpc.Parse([]byte(got))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(got, image+","+image+"]") != 1 || strings.Count(got, pixel) != 2 {
			t.Errorf("got %s, want the 2 images that were asked for, as they were", got)
		}
		results := string(jsonrpc.Get(m.Result, "structuredContent", "results"))
		content := slices.Collect(jsonrpc.Elements(jsonrpc.Get(m.Result, "content")))
		if string(jsonrpc.Get(m.Result, "structuredContent", "success")) != "true" || len(content) != 3 ||
			!strings.Contains(results, "shot") || !strings.Contains(results, "image: item 2") ||
			!strings.Contains(results, "image: item 3") {
			t.Errorf(`got %s, want success, 3 items of content, "shot", "image: item 2", "image: item 3"`, got)
		}
	})
}

// A greeting that is refused is not the host's: children get the one after it.
func TestRefusedGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, wellBehaved(func(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				child.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?"}}`)
			}
			return "", nil
		}))
		f.ask(strings.Replace(hello, `"capabilities":{"elicitation":{}}`, `"capabilities":[]`, 1))
		f.wants("refused", `"error"`)
		f.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		f.wants("too early", `"code":-32600`)
		f.shakeHands()
		f.ask(callEcho("2"))
		f.wants("question", `"method":"elicitation/create"`)
	})
}
