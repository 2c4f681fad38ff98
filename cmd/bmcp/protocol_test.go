//go:build linux

package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A host of the stateless protocol: each request says what the host can do,
// and what a child asks is the answer to it.
func TestMCPStateless(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.StartMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp", "kid="+cmdtest.FakeChild())
	call := func(name, args, more string) *cmdtest.RPC {
		t.Helper()
		return m.Call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s%s}`, name, args,
			cmdtest.Stateless, more))
	}
	const ask = `{"method":"elicitation/create","params":{"message":"name?"}}`
	asks := func(t *testing.T, r *cmdtest.RPC) (q cmdtest.Required, key string) {
		t.Helper()
		r.Into(t, &q)
		key = q.Key()
		if q.Type != "input_required" || q.State == "" || len(q.Requests) != 1 ||
			q.Requests[key].Method != "elicitation/create" || q.Requests[key].Params.Message != "name?" {
			t.Fatalf("%s, want that the host is asked for a name", r.Line)
		}
		return q, key
	}
	t.Run("what the protocol does not have is refused", func(t *testing.T) {
		if r := m.Call("tools/list", `{"_meta":{}}`); r.Error == nil || r.Error.Code != -32600 {
			t.Errorf("got %v, want the error -32600", r.Line)
		}
		if r := m.Call("ping", `{"_meta":`+cmdtest.Stateless+`}`); r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("got %v, want the error -32601", r.Line)
		}
		if r := m.Call("tools/list",
			`{"_meta":`+strings.Replace(cmdtest.Stateless, "2026-07-28", "2027-01-01", 1)+`}`); r.Error == nil ||
			r.Error.Code != -32022 || !strings.Contains(string(r.Error.Data), `"2026-07-28"`) {
			t.Errorf(`got %v, want the error -32022, '"2026-07-28"'`, r.Line)
		}
	})
	t.Run("the child is not told what only hosts of this protocol say", func(t *testing.T) {
		if r := call("echo", `{}`, ``); !strings.Contains(r.Line,
			`"structuredContent":{"params":{"name":"echo","arguments":{},"_meta":{}}}`) ||
			!strings.Contains(r.Line, `"resultType":"complete"`) {
			t.Errorf(`got %s, want '"structuredContent":{"params":{"name":"echo","arguments":{},"_meta":{}}}' and `+
				`'"resultType":"complete"'`, r.Line)
		}
	})
	t.Run("a question is answered by the request that comes again", func(t *testing.T) {
		q, key := asks(t, call("ask", ask, ``))
		if r := call("ask", ask, `,"requestState":"`+q.State+`x"`); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("got %v, want the error -32602", r.Line)
		}
		if r := call("echo", `{}`, `,"requestState":"`+q.State+`"`); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("the state of another request is taken: %s", r.Line)
		}
		again, _ := asks(t, call("ask", ask, `,"requestState":"`+q.State+`","inputResponses":{"other":{}}`))
		if r := call("ask", ask, `,"requestState":"`+again.State+`","inputResponses":{"`+key+
			`":{"action":"accept"}}`).Text(t); !strings.Contains(r, `"result":{"action":"accept"}`) {
			t.Errorf(`got %s, want '"result":{"action":"accept"}'`, r)
		}
	})
	t.Run("a host that cannot be asked is not, even if another one can", func(t *testing.T) {
		r := m.Call("tools/call", `{"name":"ask","arguments":{"method":"roots/list"},"_meta":`+cmdtest.Stateless+`}`)
		if !strings.Contains(r.Text(t), "the host has no roots") {
			t.Errorf(`got %v, want "the host has no roots"`, r.Line)
		}
	})
	t.Run("progress is told by the token of the request that came last", func(t *testing.T) {
		again, _ := asks(t, m.Call("tools/call",
			`{"name":"askprogress","arguments":`+ask+`,"_meta":`+withMeta(`"progressToken":"old"`)+`}`))
		id := m.Start("tools/call",
			`{"name":"askprogress","_meta":`+withMeta(`"progressToken":"new"`)+`,"requestState":"`+again.State+
				`","inputResponses":{"`+again.Key()+`":{}}}`)
		if a, b := m.Next(), m.Next(); !strings.Contains(a.Line, `"progressToken":"new"`) || string(b.ID) != id {
			t.Errorf("got %s and %s, want progress with the token new, then the answer", a.Line, b.Line)
		}
	})
	t.Run("a child that ends while its question is open", func(t *testing.T) {
		q, _ := asks(t, call("ask", ask, ``))
		call("crash", `{}`, ``)
		cmdtest.Until(t, "its end is seen by this call, too", func() bool {
			r := call("ask", ask, `,"requestState":"`+q.State+`"`)
			if !strings.Contains(r.Line, "out of luck") {
				q, _ = asks(t, r)
				return false
			}
			return r.Tool(t).IsError
		})
	})
	t.Run("log messages are as severe as was asked for", func(t *testing.T) {
		cmdtest.Until(t, "the child is back", func() bool { return !call("echo", `{}`, ``).Tool(t).IsError })
		id := m.Start("tools/call",
			`{"name":"log","_meta":`+withMeta(`"io.modelcontextprotocol/logLevel":"error"`)+`}`)
		if a, b := m.Next(), m.Next(); !strings.Contains(a.Line, "trouble") || string(b.ID) != id {
			t.Errorf("got %s and %s, want the error alone, then the answer", a.Line, b.Line)
		}
		id = m.Start("tools/call", `{"name":"log","_meta":`+cmdtest.Stateless+`}`)
		if a := m.Next(); string(a.ID) != id {
			t.Errorf("got %s, want the answer without a message before it", a.Line)
		}
	})
	t.Run("only what is listened to is told", func(t *testing.T) {
		listen := m.Start("subscriptions/listen", `{"notifications":{"toolsListChanged":true,`+
			`"resourceSubscriptions":["fake://a"]},"_meta":`+cmdtest.Stateless+`}`)
		if a := m.Next(); a.Method != "notifications/subscriptions/acknowledged" ||
			!strings.Contains(a.Line, `"io.modelcontextprotocol/subscriptionId":`+listen) {
			t.Errorf("got %s, want an acknowledgement of subscription %s", a.Line, listen)
		}
		cmdtest.Until(t, "the child is told",
			func() bool { return strings.Contains(call("told", `{}`, ``).Text(t), "resources/subscribe") })
		for tool, method := range map[string]string{"updated": "notifications/resources/updated",
			"change": "notifications/tools/list_changed"} {
			id := m.Start("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"names":["fresh"]},"_meta":%s}`, tool,
				cmdtest.Stateless))
			var seen bool
			for answered := false; !seen || !answered; {
				r := m.Next()
				answered = answered || string(r.ID) == id
				if r.Method != "" {
					if seen = r.Method == method &&
						strings.Contains(r.Line, `"io.modelcontextprotocol/subscriptionId":`+listen); !seen {
						t.Errorf("got %s, want %s of subscription %s", r.Line, method, listen)
					}
				}
			}
		}
		m.In.Close() // ends what listens
		if r := m.Answer(listen); !strings.Contains(r.Line, `"resultType":"complete"`) {
			t.Errorf("%s\nlacks %q", r.Line, `"resultType":"complete"`)
		}
	})
	m.Wait()
	w.Clean()
}

// Several children behind a host of the stateless protocol, and one that could
// not be started at first.
func TestMCPStatelessChildren(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	late := `c=sh -c 'if [ -e ` + w.Dir + `/flag ]; then exec ` + cmdtest.Bin + `/fakechild; fi; touch ` + w.Dir +
		`/flag; exit 3'`
	m := w.StartMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp", "a="+cmdtest.FakeChild(),
		"--mcp", "b="+cmdtest.FakeChild(),
		"--mcp", late)
	// Neither has the resource; what they are asked with, and what they say of
	// it, is in the protocol of each.
	r := m.Call("resources/read", `{"uri":"fake://nonesuch","_meta":`+cmdtest.Stateless+`}`)
	if r.Error == nil || r.Error.Code != -32602 {
		t.Errorf("got %v, want the error -32602", r.Line)
	}
	cmdtest.Until(t, "the third child is started again", func() bool {
		r := m.Call("tools/call", `{"name":"c__echo","arguments":{},"_meta":`+cmdtest.Stateless+`}`)
		return r.Error == nil && !r.Tool(t).IsError
	})
	// A host with a handshake at the same time gets what is its own.
	m.Initialize("{}")
	id := m.Start("tools/call", `{"name":"log","_meta":`+cmdtest.Stateless+`}`)
	if a := m.Next(); string(a.ID) != id {
		t.Errorf("got %s, want the answer without a message before it", a.Line)
	}
	m.End()
	w.Clean()
}

// What a host wants to last outlives the child that it was said to.
func TestMCPChildStartedAgain(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	m.Call("resources/subscribe", `{"uri":"fake://a"}`)
	m.Call("resources/subscribe", `{"uri":"fake://b"}`)
	m.Call("resources/unsubscribe", `{"uri":"fake://b"}`)
	m.Call("logging/setLevel", `{"level":"error"}`)
	told := func(want ...string) {
		t.Helper()
		cmdtest.Until(t, fmt.Sprintf("the child is told %v, and no more", want), func() bool {
			got := strings.Fields(m.Tool("told", "{}").Text(t))
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
	const level = `logging/setLevel{"level":"error"}`
	const a, b = `resources/subscribe{"uri":"fake://a"}`, `resources/subscribe{"uri":"fake://b"}`
	told(level, a, b, `resources/unsubscribe{"uri":"fake://b"}`)
	m.Tool("crash", "{}")
	told(level, a)
	m.End()
	w.Clean()
}

// A host that loses a stream comes back to it, and misses nothing.
func TestMCPResumedStream(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp",
		"kid="+cmdtest.FakeChild())
	ask := func(ctx context.Context, method, session, event, body string) *http.Response {
		t.Helper()
		r, _ := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		if event != "" {
			r.Header.Set("Last-Event-ID", event)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ctx := context.Background()
	a := ask(ctx, "POST", "", "", `{"jsonrpc":"2.0","id":0,"method":"initialize",`+
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	io.Copy(io.Discard, a.Body)
	session := a.Header.Get("Mcp-Session-Id")
	t.Run("a stream that was lost is resumed", func(t *testing.T) {
		lost, lose := context.WithCancel(ctx)
		a := ask(lost, "POST", session, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep",`+
			`"arguments":{"ms":600}}}`)
		first, err := bufio.NewReader(a.Body).ReadString('\n')
		lose()
		event, ok := strings.CutPrefix(strings.TrimSpace(first), "id: ")
		if err != nil || !ok {
			t.Fatalf("the stream begins with %q, %v, want an event ID", first, err)
		}
		for range 2 { // the second time it is over
			a = ask(ctx, "GET", session, event, "")
			if b, _ := io.ReadAll(a.Body); a.StatusCode != 200 || strings.Count(string(b), `"text":"slept"`) != 1 {
				t.Errorf("%s: %d %s, want 200 and the answer once", event, a.StatusCode, b)
			}
		}
	})
	t.Run("an answer that nobody has read is kept when others are over", func(t *testing.T) {
		lost, lose := context.WithCancel(ctx)
		a := ask(lost, "POST", session, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"big",`+
			`"arguments":{"n":2097152}}}`)
		first, _ := bufio.NewReader(a.Body).ReadString('\n')
		lose()
		event, _ := strings.CutPrefix(strings.TrimSpace(first), "id: ")
		for range 3 {
			a = ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"big",`+
				`"arguments":{"n":2097152}}}`)
			io.Copy(io.Discard, a.Body)
		}
		a = ask(ctx, "GET", session, event, "")
		if b, _ := io.ReadAll(a.Body); a.StatusCode != 200 || len(b) < 2<<20 {
			t.Errorf("%s: %d, %d bytes, want 200 and 2 MiB", event, a.StatusCode, len(b))
		}
	})
	t.Run("the stream of a request that is cancelled ends, and its ID is free", func(t *testing.T) {
		for range 2 {
			a := ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","id":5,"method":"tools/call",`+
				`"params":{"name":"silent"}}`)
			ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","method":"notifications/cancelled",`+
				`"params":{"requestId":5}}`)
			if b, _ := io.ReadAll(a.Body); a.StatusCode != 200 || strings.Contains(string(b), "jsonrpc") {
				t.Errorf("%d %s, want 200 without an answer", a.StatusCode, b)
			}
		}
	})
	t.Run("an event that never was is refused", func(t *testing.T) {
		for _, event := range []string{"77-0", "0-9", "x", "-1--1"} {
			if a := ask(ctx, "GET", session, event, ""); a.StatusCode != 400 {
				t.Errorf("%s: %d, want 400", event, a.StatusCode)
			}
		}
	})
	listening, leave := context.WithCancel(ctx)
	defer leave()
	t.Run("a message of no request goes to the last listener: the one before may be dead", func(t *testing.T) {
		before := ask(ctx, "GET", session, "", "")
		now := ask(listening, "GET", session, "", "")
		if before.StatusCode != 200 || now.StatusCode != 200 {
			t.Errorf("two listeners got %d and %d, want 200", before.StatusCode, now.StatusCode)
		}
		if b, err := io.ReadAll(before.Body); err != nil {
			t.Errorf("the first listener: %v, %s; want an end", err, b)
		}
		list := ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		io.Copy(io.Discard, list.Body)
		ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"change",`+
			`"arguments":{"names":["fresh"]}}}`)
		for lines := bufio.NewScanner(now.Body); ; {
			if !lines.Scan() {
				t.Fatal("the list's change is not told")
			}
			if strings.Contains(lines.Text(), "list_changed") {
				break
			}
		}
	})
	t.Run("the end of a session, and of bmcp, answer open calls", func(t *testing.T) {
		a := ask(ctx, "POST", session, "", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep",`+
			`"arguments":{"ms":60000}}}`)
		if d := ask(ctx, "DELETE", session, "", ""); d.StatusCode != 204 {
			t.Errorf("got %v, want %v", d.StatusCode, 204)
		}
		ended := func(a *http.Response) {
			t.Helper()
			if b, err := io.ReadAll(a.Body); err != nil || !strings.Contains(string(b), "the session has ended") {
				t.Errorf("%s, %v, want that the session has ended", b, err)
			}
		}
		ended(a)
		a = ask(ctx, "POST", "", "", `{"jsonrpc":"2.0","id":0,"method":"initialize",`+
			`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		io.Copy(io.Discard, a.Body)
		a = ask(ctx, "POST", a.Header.Get("Mcp-Session-Id"), "",
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}`)
		stop()
		ended(a)
	})
	w.Clean()
}

// callStateless calls a tool as a host of the stateless protocol, and returns the
// answer.
func callStateless(t *testing.T, url, name, args string) *cmdtest.RPC {
	t.Helper()
	headers := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
	_, _, body := cmdtest.Post(t, url, headers, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
		`"params":{"name":%q,"arguments":%s,"_meta":%s}}`, name, args, cmdtest.Stateless))
	r := &cmdtest.RPC{Line: body}
	if err := json.Unmarshal([]byte(body), r); err != nil {
		t.Fatalf("got %q: %v", body, err)
	}
	return r
}

// withMeta returns what a request of the stateless protocol says of itself, with one more member.
func withMeta(member string) string {
	return strings.Replace(cmdtest.Stateless, "{", "{"+member+",", 1)
}
