//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// webHost is a host by HTTP.
type webHost struct {
	t       *testing.T
	url     string
	session string
	mu      sync.Mutex
	last    int
}

// webHost greets bmcp.
func newWebHost(t *testing.T, url string) *webHost {
	t.Helper()
	_, h, body := post(t, url, nil, greeting("2025-11-25"))
	host := &webHost{t: t, url: url, session: h.Get("Mcp-Session-Id")}
	if host.session == "" {
		t.Fatalf("got %v, want a session", body)
	}
	return host
}

// lists waits until tools are listed, as mcp.lists does.
func (h *webHost) lists(tools ...string) {
	h.t.Helper()
	listed(h.t, tools, func() []string {
		_, _, body := post(h.t, h.url, map[string]string{"Mcp-Session-Id": h.session},
			`{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{}}`)
		for line := range strings.Lines(body) {
			r := rpc{line: line}
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &r) == nil &&
				string(r.ID) == `"list"` {
				return r.toolNames(h.t)
			}
		}
		h.t.Fatalf("no list of tools: %.500s", body)
		return nil
	})
}

func (h *webHost) tool(name, args string) (x toolResult) {
	h.t.Helper()
	h.mu.Lock()
	h.last++
	id := fmt.Sprint("h", h.last)
	h.mu.Unlock()
	_, _, body := post(h.t, h.url, map[string]string{"Mcp-Session-Id": h.session},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name,
			args))
	for line := range strings.Lines(body) {
		var r struct {
			ID     string
			Result *toolResult
			Error  *struct{ Message string }
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &r) == nil && r.ID == id {
			if r.Error != nil {
				return toolResult{IsError: true, Content: []struct{ Text string }{{r.Error.Message}}}
			}
			return *r.Result
		}
	}
	return toolResult{IsError: true, Content: []struct{ Text string }{{body}}}
}

// leaves ends the session.
func (h *webHost) leaves() {
	h.t.Helper()
	r, _ := http.NewRequest("DELETE", h.url, nil)
	r.Header.Set("Mcp-Session-Id", h.session)
	if x, err := http.DefaultClient.Do(r); err != nil || x.StatusCode != 204 {
		h.t.Errorf("%+v, %v, want 204", x, err)
	}
}

// titles is a site whose pages' titles are their addresses.
func titles(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>page %s</title>", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// browserChildren are the arguments for both browser servers.
func browserChildren(t *testing.T) []string {
	t.Helper()
	bin, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--mcp", bin + "/playwright-mcp", "--mcp", bin +
		"/chrome-devtools-mcp --no-usage-statistics --no-performance-crux"}
}

// statusOf is what coordinator_status says to a host.
func statusOf(t *testing.T, text string) (s struct {
	Browser  struct{ Instance struct{ PID int } }
	Port     int `json:"proxy_port"`
	Sessions []struct {
		ID      *string `json:"session_id"`
		HTTPURL string  `json:"http_url"`
		Tabs    int     `json:"tab_count"`
	}
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return s
}

// Each host by HTTP has a browser of its own, on one Chrome, and so has each of
// its session_ids.
func TestMCPHostsApart(t *testing.T) {
	t.Parallel()
	site := titles(t)
	w := newWorld(t)
	url, bmcp := w.webMCP(nil, browserChildren(t)...)
	const hosts, rounds = 8, 5
	all := make([]*webHost, hosts)
	var wg sync.WaitGroup
	for i := range hosts {
		all[i] = newWebHost(t, url)
		wg.Go(func() {
			navigate, args, read, page1 := "browser_navigate", `{"url":%q}`, "browser_evaluate", ""
			if i%2 == 1 {
				page1 = `,"pageId":1`
				navigate, args, read = "navigate_page", `{"pageId":1,"type":"url","url":%q}`, "evaluate_script"
			}
			all[i].lists(read)
			for n := range rounds {
				page := fmt.Sprintf("/host-%d/%d", i, n)
				all[i].tool(navigate, fmt.Sprintf(args, site+page))
				if r := all[i].tool(read, `{"function":"() => document.title"`+page1+`}`); r.IsError ||
					!strings.Contains(r.text(), "page "+page) {
					t.Errorf("host %d is not on %s: %s", i, page, r.text())
				}
			}
		})
	}
	wg.Wait()
	one, two := all[0], all[2]
	go2 := func(h *webHost, page, id string) {
		t.Helper()
		if r := h.tool("browser_navigate", fmt.Sprintf(`{"url":%q,"session_id":%q}`, site+page, id)); r.IsError ||
			!strings.Contains(r.text(), "page "+page) {
			t.Errorf("got %s, want page %s", r.text(), page)
		}
	}
	t.Run("each host has pages of its own, and of its session_ids", func(t *testing.T) {
		go2(one, "/sub/one", "sub-agent-1")
		go2(two, "/sub/two", "sub-agent-1")
		for _, c := range []struct {
			h          *webHost
			args, want string
		}{
			{one, `{"action":"list"}`, "/host-0/4"}, {one, `{"action":"list","session_id":"sub-agent-1"}`, "/sub/one"},
			{two, `{"action":"list"}`, "/host-2/4"}, {two, `{"action":"list","session_id":"sub-agent-1"}`, "/sub/two"},
		} {
			if r := c.h.tool("browser_tabs", c.args).text(); !strings.Contains(r, c.want) ||
				strings.Count(r, "(http") != 1 {
				t.Errorf("%s: %s, want only %s", c.args, r, c.want)
			}
		}
		// A host's other child has the same browser.
		if r := one.tool("list_pages", `{"session_id":"sub-agent-1"}`).text(); !strings.Contains(r, "/sub/one") ||
			strings.Contains(r, "/host-") {
			t.Errorf(`got %s, want "/sub/one" without "/host-"`, r)
		}
	})
	st := statusOf(t, one.tool("coordinator_status", "{}").text())
	t.Run("the status lists the host's sessions", func(t *testing.T) {
		if len(st.Sessions) != 2 || st.Sessions[0].ID != nil || st.Sessions[1].ID == nil ||
			*st.Sessions[1].ID != "sub-agent-1" || st.Sessions[1].Tabs != 1 {
			t.Errorf(`got %+v, want 2 sessions: the host's without an ID, and "sub-agent-1" with 1 tab`, st.Sessions)
		}
	})
	t.Run("a bad session_id is refused", func(t *testing.T) {
		for _, c := range []struct{ args, want string }{
			{`{"action":"list","session_id":"a b"}`, "1 to 64 letters"}, {`{"action":"list","session_id":["a"]}`,
				"session_id is a text"},
		} {
			if r := one.tool("browser_tabs", c.args); !r.IsError || !strings.Contains(r.text(), c.want) {
				t.Errorf("%s: %+v, want an error with %q", c.args, r, c.want)
			}
		}
	})
	t.Run("the end of a host and of a session_id ends what is theirs, and no more", func(t *testing.T) {
		sessions := func() int {
			return len(strings.Fields(w.run("bproxy", "session", "list", "-f", "session.name").out))
		}
		if n := sessions(); n != hosts+2 {
			t.Errorf("%d sessions, want %d", n, hosts+2)
		}
		gone := func(what string, left int) {
			t.Helper()
			until(t, what, func() bool { return sessions() <= left })
			if n := sessions(); n != left {
				t.Errorf("%s leaves %d sessions, want %d", what, n, left)
			}
		}
		one.tool("coordinator_stop_browser", `{"session_id":"sub-agent-1"}`)
		gone("the end of a session_id", hosts+1)
		go2(one, "/sub/again", "sub-agent-1")
		two.leaves()
		gone("the end of a host", hosts)
		one.tool("coordinator_restart_browser", "{}")
		if r := one.tool("browser_tabs", `{"action":"list"}`).text(); strings.Contains(r, "/host-0") {
			t.Errorf("the page is still there after a restart: %s", r)
		}
		if r := all[1].tool("evaluate_script", `{"pageId":1,"function":"() => document.title"}`); !strings.Contains(
			r.text(),
			"page /host-1/4") {
			t.Errorf("a host's restart has touched another's: %s", r.text())
		}
	})
	t.Run("each host is told that Chrome has ended", func(t *testing.T) {
		syscall.Kill(st.Browser.Instance.PID, syscall.SIGKILL)
		until(t, "its end is seen", func() bool {
			return statusOf(t, one.tool("coordinator_status",
				"{}").text()).Browser.Instance.PID != st.Browser.Instance.PID
		})
		for _, h := range []*webHost{all[4], all[6]} {
			said := "" // by a call that has failed, too, if its child had not seen the end yet
			until(t, "a call works", func() bool {
				r := h.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/after"))
				said += r.text()
				return !r.IsError
			})
			if !strings.Contains(said, "launched anew") || !strings.Contains(said, "page /after") {
				t.Errorf(`got %s, want "launched anew" and "page /after"`, said)
			}
		}
	})
	bmcp.Process.Kill()
	bmcp.Wait()
	w.clean()
}

// Over standard streams the host has the browser's profile, and a session_id
// has a virtual browser beside it, which ends when it is not used.
func TestMCPSessionIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.startMCP([]string{"HOME=" + w.dir, "BROWSER_TIMEOUT_MINUTES=0.25"},
		append([]string{"--profile", w.dir + "/profile", "--tab-limit", "2", "--idle", "0"}, browserChildren(t)...)...)
	site := titles(t)
	m.greet("{}")
	m.lists("browser_navigate", "navigate_page")
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/mine"))
	m.tool("browser_evaluate", `{"function":"() => document.cookie = 'kept=yes; max-age=3600'"}`)
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q,"session_id":"a"}`, site+"/a"))
	if r := m.tool("browser_evaluate",
		`{"function":"() => document.cookie","session_id":"a"}`).text(t); strings.Contains(r, "kept=yes") {
		t.Errorf("a session_id has the host's cookie: %s", r)
	}
	for range 3 {
		m.tool("browser_tabs", `{"action":"new","session_id":"a"}`)
	}
	st := statusOf(t, m.tool("coordinator_status", "{}").text(t))
	if len(st.Sessions) != 2 || st.Sessions[0].ID != nil || st.Sessions[0].Tabs != 1 || st.Sessions[1].ID == nil ||
		st.Sessions[1].Tabs != 2 {
		t.Errorf("got %+v, want 2 sessions: the host's without an ID and with 1 tab, and one with 2", st.Sessions)
	}
	// The port is the host's, whoever connects.
	if _, body := get(t, "GET", fmt.Sprintf("http://127.0.0.1:%d/json/list", st.Port)); !strings.Contains(body,
		"/mine") ||
		strings.Contains(body, `/a"`) {
		t.Errorf(`got %s, want "/mine" without '/a"'`, body)
	}
	bulk := m.tool("browser_execute_bulk", `{"session_id":"b","commands":[`+
		`{"tool":"browser_tabs","args":{"action":"list"},"return_result":true},`+
		`{"tool":"browser_tabs","args":{"action":"list","session_id":"c"}}]}`).tool(t).Struct
	if s := fmt.Sprint(bulk); bulk["executed_count"] != 2.0 ||
		!strings.Contains(s, "give session_id to browser_execute_bulk") || strings.Contains(s, "/mine") {
		t.Errorf("two commands, one with a session_id of its own: %s", s)
	}
	// What works on the browser itself does for the host.
	m.tool("navigate_page", `{"pageId":1,"type":"url","url":"file:///etc/hostname"}`)
	if r := m.tool("evaluate_script", `{"pageId":1,"function":"() => location.href"}`).text(t); !strings.Contains(r,
		"file:///etc/hostname") {
		t.Errorf(`got %s, want "file:///etc/hostname"`, r)
	}
	m.tool("performance_start_trace", `{"pageId":1,"reload":false,"autoStop":false}`)
	if r := m.tool("performance_stop_trace", `{"pageId":1}`); r.tool(t).IsError ||
		!strings.Contains(r.text(t), "trace has been stopped") {
		t.Errorf(`got %v, want no error, and "trace has been stopped"`, r.line)
	}
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/mine"))
	until(t, "unused ones have ended", func() bool {
		return len(statusOf(t, m.tool("coordinator_status", "{}").text(t)).Sessions) == 1
	})
	if r := m.tool("browser_tabs", `{"action":"list","session_id":"a"}`).text(t); !strings.Contains(r,
		"had not been used for 15s") || strings.Contains(r, "(http") {
		t.Errorf(`got %s, want "had not been used for 15s" without "(http"`, r)
	}
	if r := m.tool("browser_evaluate", `{"function":"() => document.cookie"}`).text(t); !strings.Contains(r,
		"kept=yes") {
		t.Errorf("%s\nlacks %q", r, "kept=yes")
	}
	m.end()
	w.clean()
	// The profile has what the host did.
	m = w.startMCP([]string{"HOME=" + w.dir},
		append([]string{"--shared", "--profile", w.dir + "/profile"}, browserChildren(t)...)...)
	m.greet("{}")
	m.lists("browser_navigate")
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/later"))
	if r := m.tool("browser_evaluate", `{"function":"() => document.cookie"}`).text(t); !strings.Contains(r,
		"kept=yes") {
		t.Errorf("%s\nlacks %q", r, "kept=yes")
	}
	if list := m.call("tools/list", "{}").line; strings.Contains(list, "session_id") {
		t.Error("with --shared there is a session_id")
	}
	m.end()
	w.clean()
}

// A child that takes a port, or an address without a path, has a port of its
// own for its virtual browser, which ends with it.
func TestMCPPortOfAChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url, stop := w.serveMCP(nil, "--mcp", "port="+bin+"/fakechild {cdp_port}", "--mcp",
		"ws="+bin+"/fakechild {ws_endpoint}")
	one, two := newWebHost(t, url), newWebHost(t, url)
	pages := func(h *webHost, id string) (port, list string) {
		t.Helper()
		args := fmt.Sprintf(`{"session_id":%q,"names":["BTOOLS_PORT","BTOOLS_WS_URL"]}`, id)
		words := strings.Fields(h.tool("env", args).text())
		if len(words) != 2 || !strings.HasSuffix(words[0], ":"+words[1]) {
			t.Fatalf("got %q, want an address and its port", words)
		}
		if got := strings.Fields(h.tool("getenv", args).text()); len(got) != 2 || got[0] != words[1] ||
			!strings.HasPrefix(got[1], "ws://127.0.0.1:"+words[1]+"/") {
			t.Errorf("%q, want the port %s", got, words[1])
		}
		if ws := h.tool("ws__env", args).text(); !strings.Contains(ws, "/session/") ||
			!strings.Contains(ws, "/devtools/browser/") {
			t.Errorf(`got %q, want "/session/" and "/devtools/browser/"`, ws)
		}
		if got := strings.Fields(h.tool("ws__getenv", args).text()); len(got) != 1 ||
			!strings.Contains(got[0], "/session/") {
			t.Errorf("%q: a port that is not the virtual browser's alone", got)
		}
		_, body := get(t, "GET", words[0]+"/json/list")
		return words[1], body
	}
	ports := map[string]bool{}
	for i, c := range []struct {
		h  *webHost
		id string
	}{{one, ""}, {one, "a"}, {two, ""}, {two, "a"}} {
		port, list := pages(c.h, c.id)
		if strings.Contains(list, "#mine") || strings.Count(list, `"type": "page"`) != 1 {
			t.Errorf("%d: %s", i, list)
		}
		ports[port] = true
		if code, body := get(t, "PUT", "http://127.0.0.1:"+port+"/json/new?about:blank%23mine"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if _, list := pages(c.h, c.id); strings.Count(list, `"url": "about:blank#mine"`) != 1 {
			t.Errorf("%d: %s", i, list)
		}
	}
	if len(ports) != 4 {
		t.Errorf("the ports are %v", ports)
	}
	proxies := func() int { return len(strings.Fields(w.run("bproxy", "list", "-f", "proxy.port").out)) }
	if n := proxies(); n != 5 {
		t.Errorf("%d proxies run", n)
	}
	one.tool("coordinator_stop_browser", `{"session_id":"a"}`)
	two.leaves()
	until(t, "their ports are closed", func() bool { return proxies() == 2 })
	stop()
	w.clean()
}

// What bounds the virtual browsers of a host.
func TestMCPManySessionIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+bin+"/fakechild {ws_endpoint}")
	use := func(id string) toolResult { return m.tool("env", fmt.Sprintf(`{"session_id":%q}`, id)).tool(t) }
	seen := map[string]bool{}
	for i := range 32 {
		r := use(fmt.Sprintf("%s-%d", strings.Repeat("long", 15), i))
		if r.IsError || seen[r.text()] {
			t.Fatalf("%d: %s", i, r.text())
		}
		seen[r.text()] = true
	}
	if r := use("one-more"); !r.IsError || !strings.Contains(r.text(), "32 session_ids in use") {
		t.Errorf(`got %+v, want an error with "32 session_ids in use"`, r)
	}
	if r := m.tool("env", "{}").tool(t); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	m.tool("coordinator_stop_browser", fmt.Sprintf(`{"session_id":"%s-7"}`, strings.Repeat("long", 15)))
	if r := use("one-more"); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	m.end()
	w.clean()
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"--shared", "--tab-limit", "3"}, "--shared"}, {nil, []string{"--tab-limit", "-1"}, "0 or more"},
		{nil, []string{"--shared", "--session-throttle", "1m"}, "--shared"},
		{nil, []string{"--session-throttle", "-1s"}, "0 or more"},
		{nil, []string{"--pool", "--session-throttle", "1m"}, "no effect"},
		{nil, []string{"--pool", "--session-idle", "1m"}, "no effect"}, {[]string{"BROWSER_TIMEOUT_MINUTES=soon"}, nil,
			"number of minutes"},
	} {
		c2 := w.cmd("bmcp", c.args...)
		c2.Env = append(c2.Env, c.env...)
		out, err := c2.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v %v: %s", c.env, c.args, out)
		}
	}
}

// Hosts without MCP sessions share a virtual browser, but for session_ids.
func TestMCPStatelessSessions(t *testing.T) {
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp",
		"kid="+bin+"/fakechild {ws_endpoint}")
	endpoint := func(id string) string {
		t.Helper()
		_, _, body := post(t, url,
			map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "env"},
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"env",`+
				`"arguments":{%s},"_meta":%s}}`, id,
				stateless))
		var r rpc
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatalf("got %q: %v", body, err)
		}
		return r.text(t)
	}
	own, a, again, b := endpoint(""), endpoint(`"session_id":"a"`), endpoint(""), endpoint(`"session_id":"b"`)
	if own != again || own == a || a == b || !strings.Contains(own, "/session/") {
		t.Errorf("got %s, %s, %s and %s, want the first again as the third, and else different sessions", own, a, again,
			b)
	}
	if host := newWebHost(t, url).tool("env", `{"session_id":"a"}`).text(); host == a ||
		!strings.Contains(host, "/session/") {
		t.Errorf("a host has the address of another's: %s", host)
	}
	stop()
	w.clean()
}

// A lease of a shared browser has an endpoint of its own, which the children
// get; the next lease has another.
func TestMCPVirtualPool(t *testing.T) {
	t.Parallel()
	site := titles(t)
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"PW_MCP_PROXY__A_INSTANCES=3", "PW_MCP_PROXY__A_ISOLATION=context",
		"PW_MCP_PROXY__A_LEASE_TTL=30s"},
		append(browserChildren(t), "--mcp", "port="+bin+"/fakechild {cdp_port}")...)
	hosts := []*webHost{newWebHost(t, url), newWebHost(t, url)}
	hosts[0].lists("browser_navigate", "list_pages", "env")
	for n := range 3 {
		for i, h := range hosts {
			page := fmt.Sprintf("/lease-%d/%d", i, n)
			if r := h.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+page)); r.IsError ||
				!strings.Contains(r.text(), "page "+page) {
				t.Errorf("got %s, want page %s", r.text(), page)
			}
		}
	}
	for i, h := range hosts {
		page := fmt.Sprintf("/lease-%d/2", i)
		if r := h.tool("list_pages", "{}").text(); !strings.Contains(r, page) || strings.Count(r, "(http") != 1 {
			t.Errorf("host %d: %s", i, r)
		}
		words := strings.Fields(h.tool("env", "{}").text())
		if _, list := get(t, "GET", words[0]+"/json/list"); !strings.Contains(list, page) ||
			strings.Count(list, `"type": "page"`) != 1 {
			t.Errorf("host %d: %s", i, list)
		}
	}
	// The lease ends when it is not used, and its pages with it.
	until(t, "the leases have ended", func() bool {
		return strings.Contains(hosts[0].tool("browser_pool_status", "{}").text(), `"leased_instances":0`)
	})
	if r := hosts[0].tool("browser_tabs", `{"action":"list"}`); r.IsError || strings.Contains(r.text(), "/lease-") ||
		!strings.Contains(r.text(), "was replaced") && !strings.Contains(r.text(), "from instance") {
		t.Errorf("%s", r.text())
	}
	stop()
	w.clean()
}
