//go:build linux

package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The official suite finds nothing, in either era, that it does not find in
// the server behind bmcp too.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clients, err := filepath.Abs("../scripts/clients")
	if err != nil {
		t.Fatal(err)
	}
	suite := func(url string, args ...string) string {
		t.Helper()
		c := exec.Command(node(t),
			slices.Concat([]string{clients + "/node_modules/@modelcontextprotocol/conformance/dist/index.js",
				"server", "--url", url, "--output-dir", t.TempDir()}, args)...)
		out, err := c.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(" 0 failed")) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		_, summary, _ := bytes.Cut(out, []byte("=== SUMMARY ===\n"))
		return string(summary)
	}
	// By itself it speaks only the protocols before the stateless one.
	direct := exec.Command(node(t), clients+"/fixture.mjs", "0")
	out, _ := direct.StdoutPipe()
	if err := direct.Start(); err != nil {
		t.Fatal(err)
	}
	defer direct.Wait()
	defer direct.Process.Kill()
	port, _ := bufio.NewReader(out).ReadString('\n')
	legacy := []string{"--suite", "all", "--spec-version", "2025-11-25"}
	want := suite("http://127.0.0.1:"+strings.TrimSpace(port)+"/mcp", legacy...)

	// With the tools of bmcp itself beside those that the suite asks for.
	url, stop := w.serveMCP(nil, "--mcp", "builtin", "--", "node", clients+"/fixture.mjs")
	first := newWebHost(t, url)
	first.lists("test_simple_text")
	first.leaves()
	if got := suite(url, legacy...); scenarios(got) != scenarios(want) || scenarios(want) == "" {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// Hosts that can be asked other things have another child; the suite gives
	// some answers half a second, which is less than a node takes to start here.
	code, _, answer := post(t, url,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
			"Mcp-Name": "test_simple_text"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"test_simple_text","_meta":`+
			strings.Replace(stateless, `"sampling":{},`, "", 1)+`}}`)
	if code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	suite(url, "--requirements", "2026-07-28")
	for _, pending := range []string{"json-schema-2020-12", "http-header-validation",
		"http-custom-header-server-validation"} {
		suite(url, "--scenario", pending, "--spec-version", "2026-07-28")
	}
	// Those of the extension for tasks; that for notifications has no checks yet.
	for _, name := range []string{"lifecycle", "capability-negotiation", "wire-fields", "request-state-removal",
		"mrtr-input", "request-headers", "dispatch-and-envelope", "status-notifications", "required-task-error",
		"mrtr-composition"} {
		suite(url, "--scenario", "tasks-"+name, "--timeout", "60000")
	}
	stop()
	w.clean()
}

// What Inspector has to say of the merged list would be its children's own
// fault, and of theirs it says nothing.
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clients, _ := filepath.Abs("../scripts/clients/node_modules")
	// Inspector asks for the tools once: from then on they are in the cache.
	m := w.startMCP([]string{"HOME=" + w.dir}, browserChildren(t)...)
	m.greet("{}")
	m.lists("browser_navigate", "navigate_page")
	m.end()
	for _, pools := range []string{"1", "3"} {
		for _, era := range []string{"legacy", "modern"} {
			var env []string
			if pools != "1" {
				env = append(env, "PW_MCP_PROXY__P_IS_DEFAULT=true", "PW_MCP_PROXY__P_INSTANCES="+pools)
			}
			c := w.inspector(env, "--mcp", clients+"/.bin/playwright-mcp", "--mcp",
				clients+"/.bin/chrome-devtools-mcp --no-usage-statistics --no-performance-crux",
				"--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json")
			var errs bytes.Buffer
			c.Stderr = &errs
			out, err := c.Output()
			if err != nil || strings.Contains(errs.String(), "Issue:") {
				t.Errorf("%s, %s: %v\n%s", pools, era, err, errs.String())
			}
			for _, want := range []string{`"browser_navigate"`, `"navigate_page"`, `"coordinator_status"`} {
				if !bytes.Contains(out, []byte(want)) {
					t.Errorf("%s, %s: no %s in %.300s", pools, era, want, out)
				}
			}
		}
	}
	w.clean()
}

// inspector is Inspector's command line on a bmcp with these arguments and
// variables. It gives its server no variables but those that it is told.
func (w *world) inspector(env []string, args ...string) *exec.Cmd {
	w.t.Helper()
	clients, _ := filepath.Abs("../scripts/clients/node_modules")
	argv := []string{clients + "/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli"}
	for _, kv := range slices.Concat(w.env, []string{"HOME=" + w.dir, "XDG_CACHE_HOME=" + w.dir + "/cache"}, env) {
		if name, _, _ := strings.Cut(kv, "="); name == "HOME" || name == "TMPDIR" || name == "PATH" ||
			strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "BTOOLS_") || slices.Contains(env, kv) {
			argv = append(argv, "-e", kv)
		}
	}
	c := exec.Command(node(w.t), slices.Concat(argv, []string{bin + "/bmcp"}, args)...)
	c.Env = slices.Concat(w.env, []string{"HOME=" + w.dir})
	return c
}

// node is a newer one than Debian has, for those that want it.
func node(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../scripts/clients/node_modules/node-linux-" +
		map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH] + "/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// scenarios are the names of those that a summary says have passed.
func scenarios(summary string) string {
	var names []string
	for line := range strings.Lines(summary) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "✓") {
			names = append(names, name)
		}
	}
	return strings.Join(names, "\n")
}

// A host of the stateless protocol: each request says what the host can do,
// and what a child asks is the answer to it.
func TestMCPStateless(t *testing.T) {
	w := newWorld(t)
	m := w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	call := func(name, args, more string) *rpc {
		t.Helper()
		return m.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s%s}`, name, args, stateless, more))
	}
	const ask = `{"method":"elicitation/create","params":{"message":"name?"}}`
	asks := func(t *testing.T, r *rpc) (q required, key string) {
		t.Helper()
		r.into(t, &q)
		key = q.key()
		if q.Type != "input_required" || q.State == "" || len(q.Requests) != 1 ||
			q.Requests[key].Method != "elicitation/create" || q.Requests[key].Params.Message != "name?" {
			t.Fatalf("%s, want that the host is asked for a name", r.line)
		}
		return q, key
	}
	t.Run("what the protocol does not have is refused", func(t *testing.T) {
		if r := m.call("tools/list", `{"_meta":{}}`); r.Error == nil || r.Error.Code != -32600 {
			t.Errorf("got %v, want the error -32600", r.line)
		}
		if r := m.call("ping", `{"_meta":`+stateless+`}`); r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("got %v, want the error -32601", r.line)
		}
		if r := m.call("tools/list",
			`{"_meta":`+strings.Replace(stateless, "2026-07-28", "2027-01-01", 1)+`}`); r.Error == nil ||
			r.Error.Code != -32022 || !strings.Contains(string(r.Error.Data), `"2026-07-28"`) {
			t.Errorf(`got %v, want the error -32022, '"2026-07-28"'`, r.line)
		}
	})
	t.Run("the child is not told what only hosts of this protocol say", func(t *testing.T) {
		if r := call("echo", `{}`, ``); !strings.Contains(r.line,
			`"structuredContent":{"params":{"name":"echo","arguments":{},"_meta":{}}}`) ||
			!strings.Contains(r.line, `"resultType":"complete"`) {
			t.Errorf(`got %s, want '"structuredContent":{"params":{"name":"echo","arguments":{},"_meta":{}}}' and `+
				`'"resultType":"complete"'`, r.line)
		}
	})
	t.Run("a question is answered by the request that comes again", func(t *testing.T) {
		q, key := asks(t, call("ask", ask, ``))
		if r := call("ask", ask, `,"requestState":"`+q.State+`x"`); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("got %v, want the error -32602", r.line)
		}
		if r := call("echo", `{}`, `,"requestState":"`+q.State+`"`); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("the state of another request is taken: %s", r.line)
		}
		again, _ := asks(t, call("ask", ask, `,"requestState":"`+q.State+`","inputResponses":{"other":{}}`))
		if r := call("ask", ask, `,"requestState":"`+again.State+`","inputResponses":{"`+key+
			`":{"action":"accept"}}`).text(t); !strings.Contains(r, `"result":{"action":"accept"}`) {
			t.Errorf(`got %s, want '"result":{"action":"accept"}'`, r)
		}
	})
	t.Run("a host that cannot be asked is not, even if another one can", func(t *testing.T) {
		r := m.call("tools/call", `{"name":"ask","arguments":{"method":"roots/list"},"_meta":`+stateless+`}`)
		if !strings.Contains(r.text(t), "the host has no roots") {
			t.Errorf(`got %v, want "the host has no roots"`, r.line)
		}
	})
	t.Run("progress is told by the token of the request that came last", func(t *testing.T) {
		again, _ := asks(t, m.call("tools/call",
			`{"name":"askprogress","arguments":`+ask+`,"_meta":`+withMeta(`"progressToken":"old"`)+`}`))
		id := m.start("tools/call",
			`{"name":"askprogress","_meta":`+withMeta(`"progressToken":"new"`)+`,"requestState":"`+again.State+
				`","inputResponses":{"`+again.key()+`":{}}}`)
		if a, b := m.next(), m.next(); !strings.Contains(a.line, `"progressToken":"new"`) || string(b.ID) != id {
			t.Errorf("got %s and %s, want progress with the token new, then the answer", a.line, b.line)
		}
	})
	t.Run("a child that ends while its question is open", func(t *testing.T) {
		q, _ := asks(t, call("ask", ask, ``))
		call("crash", `{}`, ``)
		if r := call("ask", ask, `,"requestState":"`+q.State+`"`); !r.tool(t).IsError ||
			!strings.Contains(r.line, "out of luck") {
			t.Errorf(`got %v, want an error with "out of luck"`, r.line)
		}
	})
	t.Run("log messages are as severe as was asked for", func(t *testing.T) {
		until(t, "the child is back", func() bool { return !call("echo", `{}`, ``).tool(t).IsError })
		id := m.start("tools/call", `{"name":"log","_meta":`+withMeta(`"io.modelcontextprotocol/logLevel":"error"`)+`}`)
		if a, b := m.next(), m.next(); !strings.Contains(a.line, "trouble") || string(b.ID) != id {
			t.Errorf("got %s and %s, want the error alone, then the answer", a.line, b.line)
		}
		id = m.start("tools/call", `{"name":"log","_meta":`+stateless+`}`)
		if a := m.next(); string(a.ID) != id {
			t.Errorf("got %s, want the answer without a message before it", a.line)
		}
	})
	t.Run("only what is listened to is told", func(t *testing.T) {
		listen := m.start("subscriptions/listen", `{"notifications":{"toolsListChanged":true,`+
			`"resourceSubscriptions":["fake://a"]},"_meta":`+stateless+`}`)
		if a := m.next(); a.Method != "notifications/subscriptions/acknowledged" ||
			!strings.Contains(a.line, `"io.modelcontextprotocol/subscriptionId":`+listen) {
			t.Errorf("got %s, want an acknowledgement of subscription %s", a.line, listen)
		}
		until(t, "the child is told",
			func() bool { return strings.Contains(call("told", `{}`, ``).text(t), "resources/subscribe") })
		for tool, method := range map[string]string{"updated": "notifications/resources/updated",
			"change": "notifications/tools/list_changed"} {
			id := m.start("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"names":["fresh"]},"_meta":%s}`, tool,
				stateless))
			var seen bool
			for answered := false; !seen || !answered; {
				r := m.next()
				answered = answered || string(r.ID) == id
				if r.Method != "" {
					if seen = r.Method == method &&
						strings.Contains(r.line, `"io.modelcontextprotocol/subscriptionId":`+listen); !seen {
						t.Errorf("got %s, want %s of subscription %s", r.line, method, listen)
					}
				}
			}
		}
		m.in.Close() // ends what listens
		if r := m.answer(listen); !strings.Contains(r.line, `"resultType":"complete"`) {
			t.Errorf("%s\nlacks %q", r.line, `"resultType":"complete"`)
		}
	})
	m.wait()
	w.clean()
}

// Several children behind a host of the stateless protocol, and one that could
// not be started at first.
func TestMCPStatelessChildren(t *testing.T) {
	w := newWorld(t)
	late := `c=sh -c 'if [ -e ` + w.dir + `/flag ]; then exec ` + bin + `/fakechild; fi; touch ` + w.dir +
		`/flag; exit 3'`
	m := w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "a="+fake(), "--mcp", "b="+fake(),
		"--mcp", late)
	// Neither has the resource; what they are asked with, and what they say of
	// it, is in the protocol of each.
	r := m.call("resources/read", `{"uri":"fake://nonesuch","_meta":`+stateless+`}`)
	if r.Error == nil || r.Error.Code != -32602 {
		t.Errorf("got %v, want the error -32602", r.line)
	}
	until(t, "the third child is started again", func() bool {
		r := m.call("tools/call", `{"name":"c__echo","arguments":{},"_meta":`+stateless+`}`)
		return r.Error == nil && !r.tool(t).IsError
	})
	// A host with a handshake at the same time gets what is its own.
	m.greet("{}")
	id := m.start("tools/call", `{"name":"log","_meta":`+stateless+`}`)
	if a := m.next(); string(a.ID) != id {
		t.Errorf("got %s, want the answer without a message before it", a.line)
	}
	m.end()
	w.clean()
}

// What a host wants to last outlives the child that it was said to.
func TestMCPChildStartedAgain(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+fake())
	m.call("resources/subscribe", `{"uri":"fake://a"}`)
	m.call("resources/subscribe", `{"uri":"fake://b"}`)
	m.call("resources/unsubscribe", `{"uri":"fake://b"}`)
	m.call("logging/setLevel", `{"level":"error"}`)
	told := func(want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("the child is told %v, and no more", want), func() bool {
			got := strings.Fields(m.tool("told", "{}").text(t))
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
	const level = `logging/setLevel{"level":"error"}`
	const a, b = `resources/subscribe{"uri":"fake://a"}`, `resources/subscribe{"uri":"fake://b"}`
	told(level, a, b, `resources/unsubscribe{"uri":"fake://b"}`)
	m.tool("crash", "{}")
	told(level, a)
	m.end()
	w.clean()
}

// A host that loses a stream comes back to it, and misses nothing.
func TestMCPResumedStream(t *testing.T) {
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
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
	w.clean()
}
