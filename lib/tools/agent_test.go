package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/record"
)

// agent uses a server by its host. It calls one tool at a time.
type agent struct {
	t     *testing.T
	to    *io.PipeWriter
	from  *jsonrpc.Reader
	calls int
	roots []string // that it names when it is asked; nil: it does not list any
	asked int      // how often it was asked for them
	site  string   // for {site} in arguments and results
}

// newAgent starts a server, which ends with the test.
func newAgent(t *testing.T, o Options, roots ...string) *agent {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	h := &agent{t: t, to: to, from: jsonrpc.NewReader(from), roots: roots}
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), in, out, o) }()
	t.Cleanup(func() {
		to.Close()
		go io.Copy(io.Discard, from)
		if err := <-ended; err != nil {
			t.Errorf("the server has ended: %v", err)
		}
	})
	able := "{}"
	if roots != nil {
		able = `{"roots":{}}`
	}
	h.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":`+able+`}`)
	return h
}

func (h *agent) send(message string) {
	h.t.Helper()
	if _, err := io.WriteString(h.to, message+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

// start sends a request and returns its ID.
func (h *agent) start(method, params string) string {
	h.t.Helper()
	h.calls++
	id := fmt.Sprint(h.calls)
	h.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

// answer is the answer to a request.
func (h *agent) answer(id string) *jsonrpc.Message {
	h.t.Helper()
	for {
		line, err := h.from.Line()
		if err != nil {
			h.t.Fatal(err)
		}
		m, err := jsonrpc.Parse(line)
		switch {
		case err != nil:
			h.t.Fatalf("%v: %s", err, line)
		case m.IsResponse() && string(m.ID) == id:
			return m
		case m.Method == "roots/list":
			h.asked++
			var list []json.RawMessage
			for _, root := range h.roots {
				list = append(list, json.RawMessage(fmt.Sprintf(`{"uri":%q}`, root)))
			}
			h.send(string(jsonrpc.Response(m.ID, json.RawMessage(`{"roots":`+string(jsonrpc.Array(list))+`}`))))
		default:
			h.t.Fatalf("the server says %s", line)
		}
	}
}

func (h *agent) ask(method, params string) *jsonrpc.Message {
	h.t.Helper()
	return h.answer(h.start(method, params))
}

// call calls a tool and returns its result.
func (h *agent) call(name, args string) (json.RawMessage, error) {
	h.t.Helper()
	m := h.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
	if m.Error != nil {
		return nil, fmt.Errorf("%s", m.Error)
	}
	return m.Result, nil
}

// said is a result for comparison: its texts, and of each other part its type.
func said(raw json.RawMessage) (text string, isError bool) {
	var all []string
	for part := range jsonrpc.Elements(jsonrpc.Get(raw, "content")) {
		switch kind := jsonrpc.GetString(part, "type"); kind {
		case "text":
			all = append(all, jsonrpc.GetString(part, "text"))
		case "resource":
			all = append(all, "["+kind+" "+jsonrpc.GetString(part, "resource", "mimeType")+"]")
		default:
			all = append(all, "["+kind+" "+jsonrpc.GetString(part, "mimeType")+"]")
		}
	}
	return strings.Join(all, "\n"), string(jsonrpc.Get(raw, "isError")) == "true"
}

// gets calls a tool, which has to fail or not, and whose result has to have some texts;
// one after a ! it must not have.
func (h *agent) gets(t *testing.T, fails bool, name, args string, want ...string) string {
	t.Helper()
	args = strings.NewReplacer("{site}", h.site, "\n", " ", "\t", " ").Replace(args)
	raw, err := h.call(name, args)
	if err != nil {
		t.Errorf("%s %s: %v", name, args, err)
		return ""
	}
	got, isError := said(raw)
	if isError != fails {
		t.Errorf("%s %s: it fails: %v, want %v\n%.2000s", name, args, isError, fails, got)
		return got
	}
	for _, text := range want {
		text, no := strings.CutPrefix(strings.ReplaceAll(text, "{site}", h.site), "!")
		if strings.Contains(got+"\n", text) == no {
			t.Errorf("%s %s: want %q: %v\n%.2000s", name, args, text, !no, got)
		}
	}
	return got
}

func (h *agent) does(t *testing.T, name, args string, want ...string) string {
	t.Helper()
	return h.gets(t, false, name, args, want...)
}

func (h *agent) refuses(t *testing.T, name, args string, want ...string) {
	t.Helper()
	h.gets(t, true, name, args, want...)
}

// closeAll closes all tabs.
func (h *agent) closeAll(t *testing.T) {
	t.Helper()
	for !strings.Contains(h.does(t, "browser_close", "{}"), "No open tabs.") {
		if t.Failed() {
			return
		}
	}
}

// A server answers each request, and runs a tool only with arguments that fit.
func TestRequests(t *testing.T) {
	t.Parallel()
	h := newAgent(t, Options{Only: []string{"browser_click", "browser_wait_for", "browser_downloads"}, Release: "1.2",
		HTTPURL: "http://127.0.0.1:9"})
	for _, c := range []struct{ method, params, want string }{
		{"initialize", `{"protocolVersion":"2025-06-18"}`, `"serverInfo":{"name":"builtin","version":"1.2"}`},
		{"ping", `{}`, `"result":{}`},
		{"tools/list", `{}`, `"name":"browser_click"`},
		{"resources/list", `{}`, `there is no method \"resources/list\"`},
		{"tools/call", `{"name":"browser_clik"}`, `there is no tool \"browser_clik\"`},
		{"tools/call", `{"name":"browser_navigate"}`, `there is no tool \"browser_navigate\"`},
		{"tools/call", `{"name":"browser_click","arguments":{"target":["a"]}}`, "target must be a text"},
		{"tools/call", `{"name":"browser_wait_for"}`, "one of time, text, textGone, url, load and function is needed"},
		{"tools/call", `{"name":"browser_downloads","arguments":{"action":"list"}}`, "cannot read the downloads: "},
	} {
		if got := string(h.ask(c.method, c.params).Raw); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.method, c.params, got, c.want)
		}
	}
	h.send("[]")
	if line, err := h.from.Line(); err != nil || !strings.Contains(string(line), "not a request") {
		t.Errorf("what is not a request: %s, %v", line, err)
	}
	if got := h.ask("tools/list", "{}").Result; strings.Contains(string(got), "browser_navigate") {
		t.Errorf("a tool that is not chosen is listed: %s", got)
	}
}

// Named logins are listed with what they have, and those that cannot be read with why.
func TestListOfStates(t *testing.T) {
	t.Parallel()
	var domains []string
	for n := range 12 {
		domains = append(domains, fmt.Sprintf("d%d.example", n))
	}
	at := record.Time{Time: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
	var all []logins.Info
	var bad []string
	var fault error
	h := newAgent(t, Options{ListStates: func(context.Context) ([]logins.Info, []string, error) {
		return all, bad, fault
	}})
	const tool, list = "browser_state", `{"action":"list"}`
	h.does(t, tool, list, "There are no named logins: the action save makes one.")
	all = []logins.Info{{Name: "shop", CookieCount: 12, Domains: domains, Origins: []string{"https://a.example"},
		EarliestExpiry: &at, SavedAt: at}}
	bad = []string{"old.json is damaged"}
	h.does(t, tool, list, "- shop: 12 cookies of d0.example, d1",
		"d9.example and 2 more, storage of https://a.example, "+
			"the first cookie expires at 2026-11-25T12:00:00Z, saved at 2026-11-25T12:00:00Z", "- old.json is damaged")
	fault = errors.New("the service does not answer")
	h.refuses(t, tool, list, "the service does not answer")
	h.refuses(t, tool, `{"action":"save"}`, "name is missing")
	h.refuses(t, tool, `{"action":"save","name":"a/b"}`, "not the name of a state")
}

// fitting are arguments of a tool that need nothing but the browser.
func fitting(t *tool) string {
	switch t.Name {
	case "browser_wait_for":
		return `{"time":0}`
	case "browser_drop":
		return `{"target":"button","data":{"text/plain":"x"}}`
	case "browser_fill_form":
		return `{"fields":[{"target":"button","name":"x","type":"textbox","value":"x"}]}`
	case "browser_state":
		return `{"action":"save","name":"x"}`
	case "browser_ask_human":
		return `{"instructions":"x"}`
	}
	var all []string
	for _, name := range t.Arguments.Required {
		value := map[string]string{"string": `"button"`, "boolean": "true", "array": "[]", "object": "{}"}
		p := t.Arguments.Properties[name]
		given := cmp.Or(value[p.Type], "1")
		if len(p.Enum) > 0 {
			given = quoted(p.Enum[0])
		}
		all = append(all, fmt.Sprintf("%q:%s", name, given))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// Each tool says that the browser cannot be reached.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	var names []string
	for _, tool := range prepared() {
		names = append(names, tool.Name)
	}
	h := newAgent(t, Options{Endpoint: "ws://127.0.0.1:9/", HTTPURL: "http://127.0.0.1:9",
		Dir: t.TempDir(), Only: names})
	for _, tool := range prepared() {
		h.refuses(t, tool.Name, fitting(&tool), "127.0.0.1:9")
	}
}
