//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// titles is a site whose pages' titles are their addresses.
func titles(t *testing.T) string {
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>page %s</title>", r.URL.Path)
	})
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
	w := cmdtest.New(t)
	children := []string{"--mcp", "builtin"}
	if cmdtest.IsLong { // a Node process for each; TestMCPSessionIDs has a host with both
		children = cmdtest.BrowserChildren(t)
	}
	url, bmcp := w.WebMCP(nil, children...)
	const hosts, rounds = 3, 2
	all := make([]*cmdtest.WebHost, hosts)
	var wg sync.WaitGroup
	for i := range hosts {
		all[i] = cmdtest.NewWebHost(t, url)
		wg.Go(func() {
			navigate, args, read, page1 := "browser_navigate", `{"url":%q}`, "browser_evaluate", ""
			if i == 1 && cmdtest.IsLong {
				page1 = `,"pageId":1`
				navigate, args, read = "navigate_page", `{"pageId":1,"type":"url","url":%q}`, "evaluate_script"
			}
			all[i].AwaitTools(read)
			for n := range rounds {
				page := fmt.Sprintf("/host-%d/%d", i, n)
				all[i].Tool(navigate, fmt.Sprintf(args, site+page))
				if r := all[i].Tool(read, `{"function":"() => document.title"`+page1+`}`); r.IsError ||
					!strings.Contains(r.Text(), "page "+page) {
					t.Errorf("host %d is not on %s: %s", i, page, r.Text())
				}
			}
		})
	}
	wg.Wait()
	one, two := all[0], all[2]
	go2 := func(h *cmdtest.WebHost, page, id string) {
		t.Helper()
		if r := h.Tool("browser_navigate", fmt.Sprintf(`{"url":%q,"session_id":%q}`, site+page, id)); r.IsError ||
			!strings.Contains(r.Text(), "page "+page) {
			t.Errorf("got %s, want page %s", r.Text(), page)
		}
	}
	t.Run("each host has pages of its own, and of its session_ids", func(t *testing.T) {
		go2(one, "/sub/one", "sub-agent-1")
		go2(two, "/sub/two", "sub-agent-1")
		for _, c := range []struct {
			h          *cmdtest.WebHost
			args, want string
		}{
			{one, `{"action":"list"}`, "/host-0/1"}, {one, `{"action":"list","session_id":"sub-agent-1"}`, "/sub/one"},
			{two, `{"action":"list"}`, "/host-2/1"}, {two, `{"action":"list","session_id":"sub-agent-1"}`, "/sub/two"},
		} {
			if r := c.h.Tool("browser_tabs", c.args).Text(); !strings.Contains(r, c.want) ||
				strings.Count(r, "(http") != 1 {
				t.Errorf("%s: %s, want only %s", c.args, r, c.want)
			}
		}
		if !cmdtest.IsLong {
			return
		}
		// A host's other child has the same browser.
		if r := one.Tool("list_pages", `{"session_id":"sub-agent-1"}`).Text(); !strings.Contains(r, "/sub/one") ||
			strings.Contains(r, "/host-") {
			t.Errorf(`got %s, want "/sub/one" without "/host-"`, r)
		}
	})
	if all := w.Run("bproxy", "session", "list", "-f", "session.name").Out; !regexp.MustCompile(
		`(?m)^t-[0-9a-f]{4}-[A-Z2-7]{26}\.sub-agent-1$`).MatchString(all) {
		t.Errorf("the sessions are called %s", all)
	}
	st := statusOf(t, one.Tool("coordinator_status", "{}").Text())
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
			if r := one.Tool("browser_tabs", c.args); !r.IsError || !strings.Contains(r.Text(), c.want) {
				t.Errorf("%s: %+v, want an error with %q", c.args, r, c.want)
			}
		}
	})
	t.Run("the end of a host and of a session_id ends what is theirs, and no more", func(t *testing.T) {
		sessions := func() int {
			return len(strings.Fields(w.Run("bproxy", "session", "list", "-f", "session.name").Out))
		}
		if n := sessions(); n != hosts+2 {
			t.Errorf("%d sessions, want %d", n, hosts+2)
		}
		gone := func(what string, left int) {
			t.Helper()
			cmdtest.Until(t, what, func() bool { return sessions() <= left })
			if n := sessions(); n != left {
				t.Errorf("%s leaves %d sessions, want %d", what, n, left)
			}
		}
		one.Tool("coordinator_stop_browser", `{"session_id":"sub-agent-1"}`)
		gone("the end of a session_id", hosts+1)
		go2(one, "/sub/again", "sub-agent-1")
		two.EndSession()
		gone("the end of a host", hosts)
		one.Tool("coordinator_restart_browser", "{}")
		if r := one.Tool("browser_tabs", `{"action":"list"}`).Text(); strings.Contains(r, "/host-0") {
			t.Errorf("the page is still there after a restart: %s", r)
		}
		if r := all[1].Tool("browser_tabs", `{"action":"list"}`); !strings.Contains(r.Text(), "/host-1/1") {
			t.Errorf("a host's restart has touched another's: %s", r.Text())
		}
	})
	t.Run("each host is told that Chrome has ended", func(t *testing.T) {
		syscall.Kill(st.Browser.Instance.PID, syscall.SIGKILL)
		cmdtest.Until(t, "its end is seen", func() bool {
			return statusOf(t, one.Tool("coordinator_status",
				"{}").Text()).Browser.Instance.PID != st.Browser.Instance.PID
		})
		said := "" // by a call that has failed, too, if its child had not seen the end yet
		cmdtest.Until(t, "a call works", func() bool {
			r := all[1].Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/after"))
			said += r.Text()
			return !r.IsError
		})
		if !strings.Contains(said, "launched anew") || !strings.Contains(said, "page /after") {
			t.Errorf(`got %s, want "launched anew" and "page /after"`, said)
		}
	})
	bmcp.Process.Kill()
	bmcp.Wait()
	w.Clean()
}

// Over standard streams the host has the browser's profile, and a session_id
// has a virtual browser beside it, which ends when it is not used.
func TestMCPSessionIDs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.StartMCP([]string{"HOME=" + w.Dir, "BROWSER_TIMEOUT_MINUTES=0.25"},
		append([]string{"--profile", w.Dir + "/profile", "--tab-limit", "2", "--idle", "0"},
			cmdtest.BrowserChildren(t)...)...)
	site := titles(t)
	m.Initialize("{}")
	m.AwaitTools("browser_navigate", "navigate_page")
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/mine"))
	m.Tool("browser_evaluate", `{"function":"() => document.cookie = 'kept=yes; max-age=3600'"}`)
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q,"session_id":"a"}`, site+"/a"))
	if r := m.Tool("browser_evaluate",
		`{"function":"() => document.cookie","session_id":"a"}`).Text(t); strings.Contains(r, "kept=yes") {
		t.Errorf("a session_id has the host's cookie: %s", r)
	}
	for range 3 {
		m.Tool("browser_tabs", `{"action":"new","session_id":"a"}`)
	}
	st := statusOf(t, m.Tool("coordinator_status", "{}").Text(t))
	if len(st.Sessions) != 2 || st.Sessions[0].ID != nil || st.Sessions[0].Tabs != 1 || st.Sessions[1].ID == nil ||
		st.Sessions[1].Tabs != 2 {
		t.Errorf("got %+v, want 2 sessions: the host's without an ID and with 1 tab, and one with 2", st.Sessions)
	}
	// The port is the host's, whoever connects.
	if _, body := cmdtest.Get(t, "GET", fmt.Sprintf("http://127.0.0.1:%d/json/list", st.Port)); !strings.Contains(body,
		"/mine") ||
		strings.Contains(body, `/a"`) {
		t.Errorf(`got %s, want "/mine" without '/a"'`, body)
	}
	bulk := m.Tool("browser_execute_bulk", `{"session_id":"b","commands":[`+
		`{"tool":"browser_tabs","args":{"action":"list"},"return_result":true},`+
		`{"tool":"browser_tabs","args":{"action":"list","session_id":"c"}}]}`).Tool(t).Struct
	if s := fmt.Sprint(bulk); bulk["executed_count"] != 2.0 ||
		!strings.Contains(s, "give session_id to browser_execute_bulk") || strings.Contains(s, "/mine") {
		t.Errorf("two commands, one with a session_id of its own: %s", s)
	}
	// What works on the browser itself does for the host.
	m.Tool("navigate_page", `{"pageId":1,"type":"url","url":"file:///etc/hostname"}`)
	if r := m.Tool("evaluate_script", `{"pageId":1,"function":"() => location.href"}`).Text(t); !strings.Contains(r,
		"file:///etc/hostname") {
		t.Errorf(`got %s, want "file:///etc/hostname"`, r)
	}
	m.Tool("performance_start_trace", `{"pageId":1,"reload":false,"autoStop":false}`)
	if r := m.Tool("performance_stop_trace", `{"pageId":1}`); r.Tool(t).IsError ||
		!strings.Contains(r.Text(t), "trace has been stopped") {
		t.Errorf(`got %v, want no error, and "trace has been stopped"`, r.Line)
	}
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/mine"))
	cmdtest.Until(t, "unused ones have ended", func() bool {
		return len(statusOf(t, m.Tool("coordinator_status", "{}").Text(t)).Sessions) == 1
	})
	if r := m.Tool("browser_tabs", `{"action":"list","session_id":"a"}`).Text(t); !strings.Contains(r,
		"had not been used for 15s") || strings.Contains(r, "(http") {
		t.Errorf(`got %s, want "had not been used for 15s" without "(http"`, r)
	}
	if r := m.Tool("browser_evaluate", `{"function":"() => document.cookie"}`).Text(t); !strings.Contains(r,
		"kept=yes") {
		t.Errorf("%s\nlacks %q", r, "kept=yes")
	}
	m.End()
	w.Clean()
	// The profile has what the host did.
	m = w.StartMCP([]string{"HOME=" + w.Dir},
		"--shared", "--profile", w.Dir+"/profile")
	m.Initialize("{}")
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/later"))
	if r := m.Tool("browser_evaluate", `{"function":"() => document.cookie"}`).Text(t); !strings.Contains(r,
		"kept=yes") {
		t.Errorf("%s\nlacks %q", r, "kept=yes")
	}
	if list := m.Call("tools/list", "{}").Line; strings.Contains(list, "session_id") {
		t.Error("with --shared there is a session_id")
	}
	m.End()
	w.Clean()
}

// A child that takes a port, or an address without a path, has a port of its
// own for its virtual browser, which ends with it.
func TestMCPPortOfAChild(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP(nil, "--mcp", "port="+cmdtest.Bin+"/fakechild {cdp_port}",
		"--mcp",
		"ws="+cmdtest.Bin+"/fakechild {ws_endpoint}")
	one, two := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
	pages := func(h *cmdtest.WebHost, id string) (port, list string) {
		t.Helper()
		byPort, byURL := "", "ws__" // the first child to list its tools has the plain names
		cmdtest.Until(t, "both children have listed their tools", func() bool {
			answer, _ := h.Ask("tools/list", "{}")
			if strings.Contains(answer.Line, `"port__env"`) {
				byPort, byURL = "port__", ""
			}
			return strings.Contains(answer.Line, `"`+byPort+`env"`) && strings.Contains(answer.Line, `"`+byURL+`env"`)
		})
		args := fmt.Sprintf(`{"session_id":%q,"names":["BTOOLS_PORT","BTOOLS_WS_URL"]}`, id)
		words := strings.Fields(h.Tool(byPort+"env", args).Text())
		if len(words) != 2 || !strings.HasSuffix(words[0], ":"+words[1]) {
			t.Fatalf("got %q, want an address and its port", words)
		}
		if got := strings.Fields(h.Tool(byPort+"getenv", args).Text()); len(got) != 2 || got[0] != words[1] ||
			!strings.HasPrefix(got[1], "ws://127.0.0.1:"+words[1]+"/") {
			t.Errorf("%q, want the port %s", got, words[1])
		}
		if ws := h.Tool(byURL+"env", args).Text(); !strings.Contains(ws, "/session/") ||
			!strings.Contains(ws, "/devtools/browser/") {
			t.Errorf(`got %q, want "/session/" and "/devtools/browser/"`, ws)
		}
		if got := strings.Fields(h.Tool(byURL+"getenv", args).Text()); len(got) != 1 ||
			!strings.Contains(got[0], "/session/") {
			t.Errorf("%q: a port that is not the virtual browser's alone", got)
		}
		_, body := cmdtest.Get(t, "GET", words[0]+"/json/list")
		return words[1], body
	}
	ports := map[string]bool{}
	for i, c := range []struct {
		h  *cmdtest.WebHost
		id string
	}{{one, ""}, {one, "a"}, {two, ""}, {two, "a"}} {
		port, list := pages(c.h, c.id)
		if strings.Contains(list, "#mine") || strings.Count(list, `"type": "page"`) != 1 {
			t.Errorf("%d: %s", i, list)
		}
		ports[port] = true
		if code, body := cmdtest.Get(t, "PUT", "http://127.0.0.1:"+port+"/json/new?about:blank%23mine"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if _, list := pages(c.h, c.id); strings.Count(list, `"url": "about:blank#mine"`) != 1 {
			t.Errorf("%d: %s", i, list)
		}
	}
	if len(ports) != 4 {
		t.Errorf("the ports are %v", ports)
	}
	proxies := func() int { return len(strings.Fields(w.Run("bproxy", "list", "-f", "proxy.port").Out)) }
	if n := proxies(); n != 5 {
		t.Errorf("%d proxies run", n)
	}
	one.Tool("coordinator_stop_browser", `{"session_id":"a"}`)
	two.EndSession()
	cmdtest.Until(t, "their ports are closed", func() bool { return proxies() == 2 })
	stop()
	w.Clean()
}

// What bounds the virtual browsers of a host.
func TestMCPManySessionIDs(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.Bin+"/fakechild {ws_endpoint}")
	use := func(id string) cmdtest.ToolResult { return m.Tool("env", fmt.Sprintf(`{"session_id":%q}`, id)).Tool(t) }
	seen := map[string]bool{}
	for i := range 32 {
		r := use(fmt.Sprintf("%s-%d", strings.Repeat("long", 15), i))
		if r.IsError || seen[r.Text()] {
			t.Fatalf("%d: %s", i, r.Text())
		}
		seen[r.Text()] = true
	}
	if r := use("one-more"); !r.IsError || !strings.Contains(r.Text(), "32 session_ids in use") {
		t.Errorf(`got %+v, want an error with "32 session_ids in use"`, r)
	}
	m.Tool("env", "{}").MustSucceed(t)
	m.Tool("coordinator_stop_browser", fmt.Sprintf(`{"session_id":"%s-7"}`, strings.Repeat("long", 15)))
	if r := use("one-more"); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	m.End()
	w.Clean()
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"--shared", "--tab-limit", "3"}, "--shared"}, {nil, []string{"--tab-limit", "-1"}, "0 or more"},
		{nil, []string{"--shared", "--throttle", "1m"}, "--shared"},
		{nil, []string{"--throttle", "-1s"}, "0 or more"},
		{nil, []string{"--pool", "--throttle", "1m"}, "no effect"},
		{nil, []string{"--pool", "--session-idle", "1m"}, "no effect"}, {[]string{"BROWSER_TIMEOUT_MINUTES=soon"}, nil,
			"number of minutes"},
	} {
		c2 := w.Cmd("bmcp", c.args...)
		c2.Env = append(c2.Env, c.env...)
		out, err := cmdtest.Combined(c2)
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v %v: %s", c.env, c.args, out)
		}
	}
}

// Hosts without MCP sessions share a virtual browser, but for session_ids.
func TestMCPStatelessSessions(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp",
		"kid="+cmdtest.Bin+"/fakechild {ws_endpoint}")
	endpoint := func(id string) string {
		t.Helper()
		return callStateless(t, url, "env", "{"+id+"}").Text(t)
	}
	own, a, again, b := endpoint(""), endpoint(`"session_id":"a"`), endpoint(""), endpoint(`"session_id":"b"`)
	if own != again || own == a || a == b || !strings.Contains(own, "/session/") {
		t.Errorf("got %s, %s, %s and %s, want the first again as the third, and else different sessions", own, a, again,
			b)
	}
	if host := cmdtest.NewWebHost(t, url).Tool("env", `{"session_id":"a"}`).Text(); host == a ||
		!strings.Contains(host, "/session/") {
		t.Errorf("a host has the address of another's: %s", host)
	}
	stop()
	w.Clean()
}

// A lease of a shared browser has an endpoint of its own, which the children
// get; the next lease has another.
func TestMCPVirtualPool(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	site := titles(t)
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"PW_MCP_PROXY__A_INSTANCES=3", "PW_MCP_PROXY__A_ISOLATION=context",
		"PW_MCP_PROXY__A_LEASE_TTL=30s"},
		append(cmdtest.BrowserChildren(t), "--mcp", "port="+cmdtest.Bin+"/fakechild {cdp_port}")...)
	hosts := []*cmdtest.WebHost{cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)}
	hosts[0].AwaitTools("browser_navigate", "list_pages", "env")
	for n := range 2 {
		for i, h := range hosts {
			page := fmt.Sprintf("/lease-%d/%d", i, n)
			if r := h.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+page)); r.IsError ||
				!strings.Contains(r.Text(), "page "+page) {
				t.Errorf("got %s, want page %s", r.Text(), page)
			}
		}
	}
	for i, h := range hosts {
		page := fmt.Sprintf("/lease-%d/1", i)
		if r := h.Tool("list_pages", "{}").Text(); !strings.Contains(r, page) || strings.Count(r, "(http") != 1 {
			t.Errorf("host %d: %s", i, r)
		}
		words := strings.Fields(h.Tool("env", "{}").Text())
		if _, list := cmdtest.Get(t, "GET", words[0]+"/json/list"); !strings.Contains(list, page) ||
			strings.Count(list, `"type": "page"`) != 1 {
			t.Errorf("host %d: %s", i, list)
		}
	}
	// The lease ends when it is not used, and its pages with it.
	cmdtest.Until(t, "the leases have ended", func() bool {
		return strings.Contains(hosts[0].Tool("browser_pool_status", "{}").Text(), `"leased_instances":0`)
	})
	if r := hosts[0].Tool("browser_tabs", `{"action":"list"}`); r.IsError || strings.Contains(r.Text(), "/lease-") ||
		!strings.Contains(r.Text(), "was replaced") && !strings.Contains(r.Text(), "from instance") {
		t.Errorf("%s", r.Text())
	}
	stop()
	w.Clean()
}

// The browser that bmcp launches listens on no port, however hosts share it.
func TestMCPBrowserHasNoPort(t *testing.T) {
	t.Parallel()
	site := titles(t)
	for _, args := range [][]string{nil, {"--shared"}} {
		w := cmdtest.New(t)
		m := w.Builtin(append(args, "--headless")...)
		m.MustTool("browser_navigate", `{"url":%q}`, site+"/one")
		pid := statusOf(t, m.Tool("coordinator_status", "{}").Text(t)).Browser.Instance.PID
		if all := cmdtest.Listening(t, pid); pid == 0 || len(all) > 0 {
			t.Errorf("%v: the browser %d listens: %v", args, pid, all)
		}
		m.End()
		w.Clean()
	}
}
