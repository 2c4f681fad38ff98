//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// What is not there is named, with what to do about it; what fails once is
// tried again.
func TestMCPBrowserThatDoesNotStart(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.StartMCP(nil, "--mcp", "a="+cmdtest.FakeChild(), "--browser", "edge")
	m.Initialize("{}")
	m.Tool("env", "{}").MustFail(t, "### Error\nno edge is installed (installed are: ")
	m.End()

	script := w.Dir + "/browser"
	os.WriteFile(script, []byte("#!/bin/sh\n[ -e "+w.Dir+"/flag ] || { >"+w.Dir+
		"/flag; echo no display >&2; exit 1; }\nexec "+cmdtest.Bin+"/fakebrowser \"$@\"\n"), 0o755)
	m = w.StartMCP([]string{"BTOOLS_BROWSER=" + script}, "--mcp", "a="+cmdtest.FakeChild())
	m.Initialize("{}")
	m.Tool("coordinator_launch_browser", `{"browserType":"edge"}`).MustFail(t, "no edge is installed (installed are: ")
	m.Tool("env", "{}").MustFail(t, "no display")
	m.Tool("env", "{}").MustSucceed(t)
	m.End()
	w.Clean()
}

// A real child keeps its connection from call to call, though each has a lease
// of its own; somebody else's lease in between cuts it, which the next call
// gets over.
func TestMCPCallsOnOneInstance(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_AFFINITY=call", "_A_BROWSER=chrome-headless-shell", "_A_LAUNCH=true")
	clients := cmdtest.Clients(t) + "/node_modules/.bin"
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--pool", "--mcp", clients+"/playwright-mcp")
	m.Initialize("{}")
	m.AwaitTools("browser_navigate")
	works := func(what string) {
		t.Helper()
		if r := m.Tool("browser_evaluate", `{"function":"() => 1"}`); r.Tool(t).IsError {
			t.Errorf("%s: %s", what, r.Line)
		}
	}
	m.Tool("browser_navigate", `{"url":"data:text/html,<title>one</title>"}`)
	for i := range 15 {
		works(fmt.Sprint(i))
	}
	var ids []string
	for range 5 {
		ids = append(ids, m.StartTool("browser_evaluate", `{"function":"() => 2"}`))
	}
	for range ids {
		m.Next().MustSucceed(t)
	}
	if s := p.Status().Summary; s.Leased != 0 {
		t.Errorf("got %+v, want none leased", s)
	}
	w.Run("bpool", "lease", "--", "sleep", "0.3").Exits(t, 0, "")
	works("after another lease")
	m.End()
}

// What an agent gets wrong is told to it, and changes nothing.
func TestMCPBadArguments(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	m.Tool("env", "{}")
	for args, tool := range map[string]string{
		`{"headless":"no"}`: "coordinator_launch_browser", `{"browsertype":"chromium"}`: "coordinator_launch_browser",
		`{"browserType":"firefox"}`: "coordinator_launch_browser",
		`{"x":1}`:                   "coordinator_status",
		`{"commands":[{"tool":"coordinator_status"}]}`: "browser_execute_bulk",
		`{"commands":"echo"}`:                          "browser_execute_bulk",
	} {
		r := m.Tool(tool, args).Tool(t)
		if r.Struct["success"] == true || tool != "browser_execute_bulk" && !r.IsError ||
			strings.Contains(fmt.Sprint(r), "json:") {
			t.Errorf("%s %s: %+v", tool, args, r)
		}
	}
	if r := m.Tool("coordinator_status", "{}").Tool(t); r.Struct["running"] != true {
		t.Errorf("got %+v, want that it runs", r)
	}
	m.End()
	for args, code := range map[string]int{
		"--pool-config " + w.Dir + "/none.toml": 78, "--token-file x": 64, "--allow-origin http://x": 64, "--http=": 64,
		"--no-child --eager":     64,
		"--pool --pool-config x": 64, "--socket x --env-file y": 64, "--config " + w.Dir + "/none.toml": 78,
	} {
		if r := w.Run("bmcp", strings.Fields(args)...); r.Code != code || r.Err == "" {
			t.Errorf("%s: exit %d, want %d: %s", args, r.Code, code, r.Err)
		}
	}
	// Options that would have no effect are refused, and say why.
	configured := []string{"PW_MCP_PROXY__A_INSTANCES=1"}
	p := w.Pool("LAUNCH=false", "_A_INSTANCES=1")
	for _, x := range []struct {
		env        []string
		args, want string
	}{
		{nil, "--image-responses no", "--image-responses is allow or omit"},
		{configured, "--browser chromium", "--browser has no effect: pools are configured"},
		{configured, "--no-headless", "--no-headless has no effect: pools are configured"},
		{nil, "--pool --profile " + w.Dir + "/p", "--profile has no effect: the browsers of the service"},
		{nil, "--socket " + p.Socket + " --arg --x", "--arg has no effect"},
		{nil, "--browser firefox --window-size 1,1", "--window-size has no effect: a firefox has other options " +
			"only in a pool"},
		{nil, "--browser webkit --profile x", "--profile has no effect: webkit is launched by the child"},
	} {
		was := w.Env
		w.Env = slices.Concat(w.Env, x.env)
		w.Run("bmcp", strings.Fields(x.args)...).Exits(t, 64, x.want)
		w.Env = was
	}
	p.Stop()
	w.Clean()
}

// A browser that DevTools can't reach is the child's business.
func TestMCPBrowserLeftToTheChild(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	child := w.Dir + "/playwright-mcp"
	if err := os.Symlink(cmdtest.Bin+"/fakechild", child); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{"firefox": " --browser=firefox --headless --isolated",
		"firefox --no-headless": " --browser=firefox --isolated", "webkit": " --browser=webkit --headless --isolated"} {
		m := w.StartMCP(nil, slices.Concat([]string{"--mcp", "a=" + child, "--browser"}, strings.Fields(args))...)
		kind, _, _ := strings.Cut(args, " ")
		install := "npx @playwright/mcp@0.0.83 install-browser " + kind // of the revision that it drives
		if r := m.Initialize("{}"); !strings.Contains(r.Line, install) {
			t.Errorf("got %s, want %q", r.Line, install)
		}
		if got := m.Tool("env", "{}").Text(t); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if st := m.Tool("coordinator_status", "{}").Text(t); !strings.Contains(st, install) {
			t.Errorf("got %s, want %q", st, install)
		}
		if e := m.Errs.String(); !strings.Contains(e, "bmcp: Playwright drives only a "+kind+" of its own") {
			t.Errorf("got %s, want %q", e, "bmcp: Playwright drives only a "+kind+" of its own")
		}
		if all := w.Processes(); len(all) != 3 { // bmcp, hold, the child
			t.Errorf("%q run", all)
		}
		m.End()
	}
	// In pools, each has a profile of its own, and there is no other browser.
	m := w.MCP([]string{"PW_MCP_PROXY_BROWSER=firefox", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A__1_USER_DATA_DIR=" + w.Dir + "/profile", "PW_MCP_PROXY__A_IS_DEFAULT=1",
		"PW_MCP_PROXY_HEALTH_INTERVAL=200ms", "PW_MCP_PROXY__B_INSTANCES=1", "PW_MCP_PROXY__B_BROWSER=webkit"}, "--mcp",
		"a="+child)
	for args, want := range map[string]string{
		`{"browser_instance":"0"}`: " --browser=firefox --headless --isolated",
		`{"browser_instance":"1"}`: " --browser=firefox --headless --user-data-dir=" + w.Dir + "/profile",
		`{"browser_pool":"B"}`:     " --browser=webkit --headless --isolated",
	} {
		if got := m.Tool("env", args).Tool(t).Content[0].Text; got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	// Its health is that of the child: its process, and what it answers to a ping.
	healthy := func() (n int) {
		var st struct {
			Pools []struct {
				Instances []struct {
					PID    int `json:"process_id"`
					Health struct {
						LastCheck  string `json:"last_check"`
						Responsive bool
					} `json:"health_check"`
				}
			}
		}
		text := m.Tool("browser_pool_status", "{}").Text(t)
		if err := json.Unmarshal([]byte(text), &st); err != nil || strings.Contains(text, `"status":"failed"`) {
			t.Fatal(text, err)
		}
		for _, p := range st.Pools {
			for _, i := range p.Instances {
				if i.PID > 0 && i.Health.LastCheck != "" && i.Health.Responsive && syscall.Kill(i.PID, 0) == nil {
					n++
				}
			}
		}
		return n
	}
	cmdtest.Until(t, "all three are healthy", func() bool { return healthy() == 3 })
	m.Tool("crash", `{"browser_pool":"B"}`)
	if st := m.Tool("browser_pool_status", `{"pool_name":"B"}`).Text(t); !strings.Contains(st,
		"child a ended (exit status 7): out of luck") {
		t.Errorf(`got %s, want "child a ended (exit status 7): out of luck"`, st)
	}
	for _, p := range w.Processes() {
		if strings.Contains(p, "/blaunch ") {
			t.Errorf("%s runs", p)
		}
	}
	m.End()
	w.Clean()
}

// Children that take their time, fail to say what they have, or can't be run;
// one behind npx, which forks twice.
func TestMCPChildrenThatStartBadly(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/text", []byte("no program"), 0o644)
	as := func(name, how string) string {
		return name + "=sh -c 'FAKE=" + how + " FAKE_TOOLS=" + name + " exec " + cmdtest.Bin + "/fakechild'"
	}
	m := w.MCP(nil, "--mcp", as("late", "slow"), "--mcp", as("mute", "list"), "--mcp", "text="+w.Dir+"/text", "--mcp",
		as("well", ""))
	m.AwaitTools("well", "late") // which takes 2 s
	m.Tool("well", "{}").MustSucceed(t)
	m.Tool("late", "{}").MustSucceed(t)
	for _, want := range []string{"cannot list", "cannot start child text", "permission denied"} {
		cmdtest.Until(t, "the status says "+want, func() bool {
			return strings.Contains(m.Tool("coordinator_status", "{}").Text(t), want)
		})
	}
	m.End()
	w.Clean()

	clients := cmdtest.Clients(t)
	c := w.Cmd("bmcp", "--mcp", "npx --no-install playwright-mcp")
	c.Env, c.Dir = slices.Concat(w.Env, []string{"HOME=" + w.Dir, "XDG_CACHE_HOME=" + w.Dir + "/cache"}), clients
	m = w.Attach(c)
	m.Initialize("{}")
	m.AwaitTools("browser_navigate")
	if n := len(w.Processes()); n < 5 { // bmcp, hold, npx, what it runs, bproxy
		t.Errorf("only %q run", w.Processes())
	}
	c.Process.Kill()
	c.Wait()
	w.Clean()
}

// Eager, a host has a child for every instance before it calls any; else one.
func TestMCPEager(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]float64{"": 1, "--eager": 3} {
		w := cmdtest.New(t) // with a list of tools in its cache no child would start
		m := w.MCP([]string{"PW_MCP_PROXY__P_INSTANCES=3", "PW_MCP_PROXY_AFFINITY=call"},
			slices.Concat([]string{"--mcp", "a=" + cmdtest.FakeChild()}, strings.Fields(args))...)
		m.Tools()
		var running any
		cmdtest.Until(t, fmt.Sprint(args, " ", want, " children run"), func() bool {
			running = m.Tool("coordinator_status",
				"{}").Tool(t).Struct["children"].([]any)[0].(map[string]any)["running"]
			return running == want
		})
		for range 6 { // and no more; each call is on the next instance
			m.Tool("echo", "{}")
		}
		if running := m.Tool("coordinator_status",
			"{}").Tool(t).Struct["children"].([]any)[0].(map[string]any)["running"]; running != 3.0 {
			t.Errorf("%s: %v children run", args, running)
		}
		m.End()
		w.Clean()
	}
	// Where each lease has a browser of its own, there is none to start a child for.
	w := cmdtest.New(t)
	m := w.MCP([]string{"PW_MCP_PROXY__P_INSTANCES=1", "PW_MCP_PROXY__P_ISOLATION=context",
		"PW_MCP_PROXY__P_START=lazy"}, "--mcp", "a="+cmdtest.FakeChild(), "--eager")
	if all := m.Tools(); !slices.Contains(all, "echo") {
		t.Errorf("the tools are %v", all)
	}
	m.End()
	w.Clean()
}

// The tools of a child whose schemas no client takes get the arguments of pools.
func TestMCPOddTools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP([]string{"FAKE=odd", "PW_MCP_PROXY_TIMEOUT=60000", "PW_MCP_PROXY__P_IS_DEFAULT=true",
		"PW_MCP_PROXY__P_INSTANCES=1"},
		"--mcp", "a="+cmdtest.FakeChild())
	var all struct {
		Tools []struct {
			Name   string
			Schema json.RawMessage `json:"inputSchema"`
		}
	}
	m.Call("tools/list", "{}").Into(t, &all)
	odd := 0
	for _, tool := range all.Tools {
		if !strings.HasPrefix(tool.Name, "odd_") {
			continue
		}
		odd++
		if !strings.Contains(string(tool.Schema), "browser_pool") {
			t.Errorf("%s has %s", tool.Name, tool.Schema)
		}
	}
	if odd != 7 {
		t.Errorf("%d odd tools, want 7", odd)
	}
	if r := m.Tool("odd_7", "{}"); r.Error != nil {
		t.Error(r.Line)
	}
	if text := m.Tool("big", `{"n":16777216}`).Text(t); len(text) != 16<<20 {
		t.Errorf("%d bytes, want %d: %.200s", len(text), 16<<20, text)
	}
	m.End()
	w.Clean()
}

// Nobody waits for what one of them does not do.
func TestMCPNobodyHoldsUpOthers(t *testing.T) {
	t.Parallel()
	for name, holdsUp := range map[string]func(*cmdtest.World){
		"children that fail all the time": childrenFail,
		"a bproxy that takes its time":    proxyIsSlow, "a host that writes before it reads": hostWritesFirst,
		"nobody reads standard error": errorsAreUnread,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			holdsUp(w)
			w.Clean()
		})
	}
}

// A host asks how they are.
func childrenFail(w *cmdtest.World) {
	t := w.T
	var args []string
	for i := range 20 {
		args = append(args, "--mcp", fmt.Sprintf(`c%d=sh -c "sleep 0.0%d; exit 1"`, i, i))
	}
	m := w.MCP(nil, args...)
	for range 20 {
		var ids []string
		for range 20 {
			ids = append(ids, m.StartTool("coordinator_status", "{}"))
		}
		for range ids {
			if r := m.Next(); r.Error != nil || r.Method != "" {
				t.Fatalf("got %v, want no error and no request of the child", r.Line)
			}
		}
	}
	m.End()
}

func proxyIsSlow(w *cmdtest.World) {
	t := w.T
	dir := w.Dir + "/slow"
	os.Mkdir(dir, 0o755)
	for _, name := range []string{"bmcp", "blaunch", "bproxy"} {
		b, err := os.ReadFile(cmdtest.Bin + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(dir+"/"+name, b, 0o755)
	}
	os.Rename(dir+"/bproxy", dir+"/real")
	cmdtest.WriteFile(t, dir+"/bproxy",
		"#!/bin/sh\nuntil [ -e "+dir+"/go ]; do sleep 0.05; done\nexec "+dir+"/real \"$@\"\n")
	c := w.Cmd(dir+"/bmcp", "--mcp", "a="+cmdtest.Bin+"/fakechild {cdp_endpoint}")
	c.Env = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache", "BTOOLS_BROWSER="+cmdtest.Bin+"/fakebrowser")
	m := w.Attach(c)
	m.Initialize("{}")
	call := m.StartTool("echo", "{}")
	m.Answer(m.StartTool("coordinator_status", "{}")) // before that of the call
	m.Answer(m.Start("ping", "{}"))
	cmdtest.WriteFile(t, dir+"/go", "")
	m.Answer(call).MustSucceed(t)
	m.End()
}

func hostWritesFirst(w *cmdtest.World) {
	t := w.T
	c := w.Cmd("bmcp", "--no-child")
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	c.Start()
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(in, strings.Repeat("garbage\n", 100_000))
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(cmdtest.Patience):
		t.Error("bmcp reads no more")
		c.Process.Kill()
	}
	in.Close()
	b, _ := io.ReadAll(out)
	c.Wait()
	if n := strings.Count(string(b), "\n"); n != 100_000 {
		t.Errorf("%d answers", n)
	}
}

// Children say much there, and so does what is below bproxy and bpool.
func errorsAreUnread(w *cmdtest.World) {
	t := w.T
	for _, pools := range []string{"", "PW_MCP_PROXY__P_INSTANCES=1"} {
		c := w.Cmd("bmcp", "--log-level", "debug", "--mcp", "a="+cmdtest.Bin+"/fakechild {cdp_endpoint}")
		c.Env = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache",
			"BTOOLS_BROWSER="+cmdtest.Bin+"/fakebrowser",
			"FAKE=flood", pools)
		read, write, _ := os.Pipe()
		defer read.Close()
		c.Stderr = write
		m := w.Attach(c)
		write.Close()
		m.Initialize("{}")
		if r := m.Tool("flood", `{"n":5000}`).Text(t); r != "dry" {
			t.Errorf("%q, want %q", r, "dry")
		}
		if pools == "" { // a browser again, by the bproxy that nobody reads either
			m.Tool("coordinator_restart_browser", "{}").MustSucceed(t)
		}
		if r := m.Tool("env", "{}").Text(t); !strings.HasPrefix(r, "http://127.0.0.1:") {
			t.Errorf("%s\ndoes not begin with %q", r, "http://127.0.0.1:")
		}
		c.Process.Signal(syscall.SIGTERM)
		m.Wait()
	}
}

// What hosts send by HTTP need not be one line, nor theirs what others get.
func TestMCPHostsByHTTP(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp",
		"kid="+cmdtest.FakeChild())
	post := func(headers map[string]string, body string) (int, http.Header, string) {
		t.Helper()
		return cmdtest.Post(t, url, headers, body)
	}
	greeting := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	for _, bad := range []string{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`,
		`{"jsonrpc":"2.0","method":"initialize","params":{}}`} {
		if code, h, b := post(nil, bad); code != 400 || h.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %d %s", bad, code, b)
		}
	}
	_, h, _ := post(nil, greeting)
	session := map[string]string{"Mcp-Session-Id": h.Get("Mcp-Session-Id")}
	if code, _, b := post(session, "{\n \"jsonrpc\": \"2.0\",\r\n \"id\": 2,\n \"method\": \"tools/call\",\n "+
		"\"params\": {\"name\": \"sleep\",\n \"arguments\": {\"ms\": 1}}\n}"); code != 200 ||
		!strings.Contains(b, "slept") {
		t.Errorf("%d %s", code, b)
	}
	if code, _, b := post(map[string]string{"Mcp-Session-Id": h.Get("Mcp-Session-Id"),
		"Mcp-Protocol-Version": "1888-01-01"}, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); code != 400 {
		t.Errorf("%d %s", code, b)
	}
	// Two hosts without sessions use one token: each hears of its own.
	call := func(id, name, args string) string {
		t.Helper()
		_, _, b := post(map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
			"Mcp-Name": name}, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,`+
			`"arguments":%s,"_meta":%s}}`, id, name, args, withMeta(`"progressToken":"mine"`)))
		return b
	}
	slow := make(chan string, 1)
	go func() { slow <- call("1", "sleep", `{"ms":1000}`) }()
	if b := call("1", "progress", `{"n":3}`); strings.Count(b, `"progressToken":"mine"`) != 3 ||
		!strings.Contains(b, "done") {
		t.Error(b)
	}
	// What a child asks is asked of neither, as it is not known who is meant.
	if b := call("2", "ask", `{"method":"elicitation/create"}`); !strings.Contains(b, "can't be asked") {
		t.Errorf("%s\nlacks %q", b, "can't be asked")
	}
	if b := <-slow; strings.Contains(b, "progress") || !strings.Contains(b, "slept") {
		t.Errorf(`got %s, want "slept" without "progress"`, b)
	}
	stop()
	w.Clean()
}
