//go:build linux

package clients_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// A real browser, by way of a real child, whatever dies meanwhile.
func TestMCPOnRealBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.Clients(t) + "/node_modules/.bin"
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--mcp", site+"/playwright-mcp", "--mcp",
		site+"/chrome-devtools-mcp --no-usage-statistics --no-performance-crux")
	m.Initialize("{}")
	m.AwaitTools("browser_navigate", "navigate_page", "coordinator_status")
	type st struct {
		Running bool
		Port    int `json:"proxy_port"`
		Browser struct{ Instance struct{ PID int } }
	}
	status := func() (s st) {
		json.Unmarshal([]byte(m.Tool("coordinator_status", "{}").Text(t)), &s)
		return s
	}
	if s := status(); s.Running {
		t.Errorf("a browser runs before it is needed: %+v", s)
	}
	load := func() {
		t.Helper()
		if r := m.Tool("browser_navigate", `{"url":"data:text/html,<title>one</title>"}`).Text(t); !strings.Contains(r,
			"Page Title: one") {
			t.Errorf(`got %s, want "Page Title: one"`, r)
		}
	}
	load()
	if r := m.Tool("list_pages", "{}").Text(t); !strings.Contains(r, "<title>one</title>") {
		t.Errorf("the two do not share a browser: %s", r)
	}
	first := status()
	// Killed between calls.
	syscall.Kill(first.Browser.Instance.PID, syscall.SIGKILL)
	cmdtest.Until(t, "its end is seen", func() bool { return !status().Running })
	load()
	second := status()
	if second.Port != first.Port || second.Browser.Instance.PID == first.Browser.Instance.PID {
		t.Errorf("%+v, then %+v", first, second)
	}
	// During a call, which fails then; it would never end.
	called := make(chan struct{}, 1)
	page := cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/called" {
			called <- struct{}{}
		}
	})
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, page))
	id := m.StartTool("browser_evaluate", `{"function":"() => { fetch('/called'); return new Promise(() => {}) }"}`)
	select {
	case <-called:
	case <-time.After(cmdtest.Patience):
		t.Fatal("the page does not run the function")
	}
	syscall.Kill(second.Browser.Instance.PID, syscall.SIGKILL)
	if r := m.Answer(id).Tool(t); !r.IsError {
		t.Errorf("the answer to a call whose browser was killed: %+v, want an error", r)
	}
	load()
	// The proxy under it.
	syscall.Kill(w.State().Proxies[0].Process.PID, syscall.SIGKILL)
	cmdtest.Until(t, "there is another one", func() bool {
		return strings.Contains(m.Tool("browser_navigate", `{"url":"data:text/html,<title>two</title>"}`).Text(t),
			"Page Title: two")
	})
	bulk := m.Tool("browser_execute_bulk", `{"commands":[`+
		`{"tool":"browser_navigate","args":{"url":"data:text/html,<title>three</title>"}},`+
		`{"tool":"browser_tabs","args":{"action":"list"},"return_result":true}]}`).Tool(t)
	if bulk.IsError || bulk.Struct["success"] != true || !strings.Contains(fmt.Sprint(bulk.Struct["results"]),
		"three") {
		t.Errorf(`got %+v, want success and "three"`, bulk)
	}
	m.Tool("coordinator_launch_browser", `{"browserType":"brave"}`).MustFail(t, "brave")
	if r := m.Tool("coordinator_launch_browser", `{"browserType":"chromium","headless":false}`).Tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "no display") ||
		!strings.HasSuffix(r.Content[0].Text, " (with headless true it needs none)") {
		t.Errorf(`got %+v, want an error with "no display", " (with headless true it needs none)" at the end`, r)
	}
	if r := m.Tool("coordinator_stop_browser", "{}").Tool(t); r.IsError || r.Struct["running"] != false {
		t.Errorf("got %+v, want no error, and that none runs", r)
	}
	if r := m.Tool("coordinator_list_browsers", "{}").Text(t); !strings.Contains(r, `"type":"chromium"`) {
		t.Errorf("%s\nlacks %q", r, `"type":"chromium"`)
	}
	m.End()
	w.Clean()
}

// The SDK's client as the host, by standard streams and by HTTP.
func TestMCPHost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	clients := cmdtest.Clients(t)
	env := slices.Concat(w.Env, []string{"HOME=" + w.Dir, "XDG_CACHE_HOME=" + w.Dir})
	host := func(running, asked bool, argv ...string) {
		c := w.Cmd("node", append([]string{clients + "/host.mjs"}, argv...)...)
		c.Env, c.Dir = env, w.Dir
		var errs cmdtest.SyncBuffer
		c.Stderr = &errs
		out, err := c.Output()
		var got struct {
			Server, Page, Why string
			Tools, Asked      int
			Running, Success  bool
		}
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%v: %s\n%s", err, out, errs.String())
		}
		if got.Server != "bmcp" || got.Tools < 30 || got.Running != running || (got.Asked > 0) != asked ||
			!strings.Contains(got.Page, "Page Title: host") || !got.Success || !strings.Contains(got.Why, "enough") {
			t.Errorf("%+v, want bmcp with 30 tools or more, that all that was done worked, running: %v, asked: %v", got,
				running, asked)
		}
	}
	playwright := clients + "/node_modules/.bin/playwright-mcp" // which asks for the roots
	host(false, true, cmdtest.Bin+"/bmcp", "--mcp", playwright)
	w.Clean()

	w.Run("bmcp", "--http", "0.0.0.0:0").Exits(t, 64, "--token-file")
	child := "builtin"
	if cmdtest.IsLong {
		child = playwright
	}
	url, stop := w.ServeMCP(nil, "--mcp", child)
	host(false, cmdtest.IsLong, url)
	host(true, cmdtest.IsLong, url) // the browser is the server's
	// Two sessions with the same IDs, each with its own answers.
	post := func(session, body string) (string, http.Header) {
		t.Helper()
		headers := map[string]string{}
		if session != "" {
			headers["Mcp-Session-Id"] = session
		}
		code, h, answer := cmdtest.Post(t, url, headers, body)
		return fmt.Sprint(code, " ", answer), h
	}
	const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	body, one := post("", greeting)
	_, two := post("", greeting)
	a, b := one.Get("Mcp-Session-Id"), two.Get("Mcp-Session-Id")
	if a == "" || a == b || !strings.HasPrefix(body, "200 id: 1-1\nevent: message\ndata: {") {
		t.Error(a, b, body)
	}
	for _, c := range []struct{ session, body, want string }{
		{a, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "202 "},
		{a, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"id":1,"result":{}`},
		{b, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"id":1,"result":{}`},
		{"", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "400 "},
		{"nonesuch", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "404 "},
		{a, "garbage", "400 "},
		// its headers are missing
		{"", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":` + cmdtest.Stateless + `}}`,
			`"code":-32020`},
	} {
		if got, _ := post(c.session, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.300s, want %s", c.body, got, c.want)
		}
	}
	r, _ := http.NewRequest("DELETE", url, nil)
	r.Header.Set("Mcp-Session-Id", a)
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 204 {
		t.Errorf("%+v, %v, want 204", x, err)
	}
	if got, _ := post(a, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); !strings.HasPrefix(got, "404 ") {
		t.Errorf("%s\ndoes not begin with %q", got, "404 ")
	}
	r, _ = http.NewRequest("POST", url, strings.NewReader(greeting))
	r.Header.Set("Origin", "http://evil.example")
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 403 {
		t.Errorf("a web page gets %+v, %v", x, err)
	}
	stop()
	w.Clean()
}
