//go:build linux

package main_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// The browser of an agent is one that has joined: each session_id has tabs of its
// own, which close with the host, and the first result from the next browser says
// that it is another one.
func TestMCPOnAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w, site := cmdtest.New(t), cmdtest.TitledSite(t)
	hub := w.Hub()
	chrome, process := cmdtest.ChromiumWith(t, hub.Extension())
	before := cmdtest.Tabs(t, chrome)
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	if names := m.Tools(); slices.Contains(names, "coordinator_launch_browser") ||
		!slices.Contains(names, "coordinator_stop_browser") {
		t.Errorf("the tools are %v", names)
	}
	for _, id := range []string{"", "one", "two"} {
		args := fmt.Sprintf(`{"url":"%s/%s","session_id":%q}`, site, "x"+id, id)
		if id == "" {
			args = fmt.Sprintf(`{"url":"%s/x"}`, site)
		}
		if got := m.Tool("browser_navigate", args).Text(t); !strings.Contains(got, "of /x"+id) {
			t.Errorf("session_id %q: %s", id, got)
		}
	}
	for _, id := range []string{"one", "two"} {
		got := m.Tool("browser_tabs", fmt.Sprintf(`{"action":"list","session_id":%q}`, id)).Text(t)
		if !strings.Contains(got, "/x"+id) || strings.Count(got, site) != 1 {
			t.Errorf("session_id %q has the tabs %s", id, got)
		}
	}
	if got := cmdtest.Tabs(t, chrome); len(got) != len(before)+3 {
		t.Errorf("the user sees the tabs %v", got)
	}
	m.Tool("coordinator_stop_browser", `{"session_id":"two"}`)
	cmdtest.Until(t, "the tab of a session_id is closed", func() bool {
		return len(cmdtest.Tabs(t,
			chrome)) == len(before)+2
	})
	if got := m.Tool("coordinator_status", "{}").Text(t); !strings.Contains(got, `"source":"extension"`) ||
		!strings.Contains(got, `"session_id":"one"`) {
		t.Errorf("the status is %s", got)
	}

	process.Signal(syscall.SIGKILL)
	cmdtest.Until(t, "the browser has left", func() bool { return len(hub.Joined()) == 0 })
	next, _ := cmdtest.ChromiumWith(t, hub.Extension())
	before = cmdtest.Tabs(t, next)
	r := m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/again"}`, site))
	if got := r.Text(t); !strings.Contains(got, "of /again") || !strings.Contains(got, "the browser had left (") {
		t.Errorf("the first result from the next browser is %s", got)
	}
	closed := func(what string) {
		t.Helper()
		cmdtest.Until(t, "the tabs of "+what+" are closed", func() bool {
			return slices.Equal(cmdtest.Tabs(t, next), before)
		})
	}
	m.End()
	closed("the host")

	// A child server gets the address of the browser, which stays the same.
	m = w.StartMCP(nil, "--extension", "--mcp", cmdtest.Bin+"/fakechild {ws_endpoint}")
	m.Initialize("{}")
	if got := m.Tool("env", "{}").Text(t); !strings.Contains(got, "ws://"+hub.Addr+"/session/bmcp-") {
		t.Errorf("the child was given %s", got)
	}
	m.End()

	m = w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/x"}`, site))
	if got := cmdtest.Tabs(t, next); len(got) != len(before)+1 {
		t.Errorf("the user sees the tabs %v", got)
	}
	m.Cmd.Process.Kill()
	m.Wait()
	closed("a host that was killed")
	hub.Stop()
}

// A call may name another browser that has joined, in which the host has tabs of its
// own; one that the host launches shows its URL there. No other program gets it
// meanwhile.
func TestMCPNamesAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w, site := cmdtest.New(t), cmdtest.TitledSite(t)
	hub := w.Hub()
	_, process := cmdtest.ChromiumWith(t, hub.Extension())
	users := hub.AwaitJoined("a browser has joined", func(cmdtest.JoinedBrowser) bool { return true }).Instance.ID
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/mine"}`, site))
	launched := instances(m, t, fmt.Sprintf(`{"action":"new","url":"%s/new"}`, site)).Instance.InstanceID
	tabs := func(m *cmdtest.MCP, args string, has, hasNot string) {
		t.Helper()
		args = `{"action":"list"` + args + `}`
		if got := m.Tool("browser_tabs", args).Text(t); !strings.Contains(got, has) || strings.Contains(got, hasNot) {
			t.Errorf("%s: %s, want %s and not %s", args, got, has, hasNot)
		}
	}
	on := fmt.Sprintf(`,"instanceId":%q`, launched)
	tabs(m, on, "/new", "/mine")
	tabs(m, "", "/mine", "/new")
	tabs(m, fmt.Sprintf(`,"instanceId":%q`, users), "/mine", "/new")
	r := m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/apart","session_id":"one"%s}`, site, on))
	if got := r.Text(t); !strings.Contains(got, "of /apart") || r.Tool(t).Meta["btools/instance"] != launched {
		t.Errorf("in a session_id of the browser: %s", r.Line)
	}
	tabs(m, on, "/new", "/apart")
	got := m.Tool("browser_execute_bulk", fmt.Sprintf(
		`{"commands":[{"tool":"browser_snapshot","return_result":true}]%s}`, on)).Text(t)
	if !strings.Contains(got, "of /new") {
		t.Errorf("in bulk: %s", got)
	}
	if got := m.Tool("coordinator_status", "{}").Text(t); strings.Count(got, `"instanceId":"`+launched) != 2 ||
		strings.Count(got, `"instanceId":"`+users) != 1 {
		t.Errorf("the status is %s", got)
	}
	fails := func(m *cmdtest.MCP, args string, some ...string) {
		t.Helper()
		r := m.Tool("browser_tabs", `{"action":"list"`+args+`}`).Tool(t)
		for _, want := range some {
			if !r.IsError || !strings.Contains(r.Text(), want) {
				t.Errorf("%s: %s, want the error %q", args, r.Text(), want)
			}
		}
	}
	fails(m, `,"instanceId":"inst_1_x"`, `there is no browser "inst_1_x"`, users, launched)
	other := w.StartMCP(nil, "--extension")
	other.Initialize("{}")
	fails(other, on, "is in use by another program")
	fails(other, fmt.Sprintf(`,"instanceId":%q`, users), "is in use by another program")

	// A hub that hangs does not hold a call for ever; nor does it end what is there.
	if cmdtest.IsLong {
		hub.Cmd.Process.Signal(syscall.SIGSTOP)
		fails(m, `,"instanceId":"inst_1_x"`, "has not answered within 20s")
		hub.Cmd.Process.Signal(syscall.SIGCONT)
	}

	// Without tabs in it, others may have it; those of a bmcp that is killed close.
	r = m.Tool("coordinator_stop_browser", `{"instanceId":"inst_1_x"}`)
	if got := r.Text(t); !r.Tool(t).IsError || !strings.Contains(got, `there is no browser "inst_1_x"`) ||
		!strings.Contains(got, users) || !strings.Contains(got, launched) {
		t.Errorf("the end of the tabs in an unknown browser: %s", got)
	}
	for _, id := range []string{"", `"session_id":"one",`} {
		m.Tool("coordinator_stop_browser", fmt.Sprintf(`{%s"instanceId":%q}`, id, launched))
	}
	tabs(m, "", "/mine", "/new")
	chrome := strings.TrimSpace(w.Run("blaunch", "list", "-f", "instance.ws_url").Out)
	before := cmdtest.Tabs(t, chrome)
	other.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/other"%s}`, site, on))
	tabs(other, on, "/other", "/new")
	other.Cmd.Process.Kill()
	other.Wait()
	cmdtest.Until(t, "the tabs of the other are closed", func() bool {
		return slices.Equal(cmdtest.Tabs(t, chrome), before)
	})

	// It takes the place of the one that leaves. After its hub was killed, it joins the one that
	// bmcp runs, and what was open in it is gone.
	for _, id := range []string{"two", "three"} {
		m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/%s","session_id":%q%s}`, site, id, id, on))
	}
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/again"%s}`, site, on))
	process.Signal(syscall.SIGKILL)
	cmdtest.Until(t, "the browser has left", func() bool { return len(w.JoinedIDs()) == 1 })
	tabs(m, "", "/again", "/mine")
	tabs(m, on, "/again", "/mine")
	tabs(m, on+`,"session_id":"two"`, "/two", "the browser had left")
	hub.Cmd.Process.Kill()
	hub.Cmd.Wait()
	cmdtest.Until(t, "the browser is back", func() bool { return slices.Contains(w.JoinedIDs(), launched) })
	tabs(m, on+`,"session_id":"two"`, "the browser had left", "/two")
	tabs(m, on+`,"session_id":"three"`, "the browser had left", "/three")
	instances(m, t, fmt.Sprintf(`{"action":"close","instanceId":%q}`, launched))
	fails(m, on, fmt.Sprintf("there is no browser %q: none has joined", launched))
	m.End()
}

// An agent leases a browser that joins from a pool. After that has left, the next
// call leases another one, and says so.
func TestMCPOnAPoolOfJoinedBrowsers(t *testing.T) {
	t.Parallel()
	cmdtest.Long(t)
	t.Parallel()
	w, site := cmdtest.New(t), cmdtest.TitledSite(t)
	hub := w.Hub()
	w.JoinedPool()
	clients := cmdtest.Clients(t) + "/node_modules/.bin"
	_, process := cmdtest.ChromiumWith(t, hub.Extension())
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--pool", "--mcp", clients+"/playwright-mcp")
	m.Initialize("{}")
	if got := m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/x"}`, site)).Text(t); !strings.Contains(got, "of /x") {
		t.Errorf("a call on a leased browser is answered %s", got)
	}
	process.Signal(syscall.SIGKILL)
	cmdtest.Until(t, "the browser has left", func() bool { return len(hub.Joined()) == 0 })
	cmdtest.ChromiumWith(t, hub.Extension())
	got := m.Tool("browser_navigate", fmt.Sprintf(`{"url":"%s/again"}`, site)).Text(t)
	if !strings.Contains(got, "of /again") || !strings.Contains(got, "had been ended") {
		t.Errorf("the first call on the next browser is answered %s", got)
	}
	m.End()
	hub.Stop()
}

// Without a browser a call says what the user has to do. After its hub was killed,
// bmcp runs one at the same port, as soon as that is free.
func TestMCPWithoutAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	hub := w.Hub()
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	got := m.Tool("browser_snapshot", "{}").Text(t)
	for _, want := range []string{"No browser has joined", "bproxy extension DIR", w.Dir + "/code"} {
		if !strings.Contains(got, want) {
			t.Errorf("without a browser a call is answered %s", got)
		}
	}
	if got := m.Tool("coordinator_status", "{}").Text(t); !strings.Contains(got, "No browser has joined") {
		t.Errorf("the status is %s", got)
	}
	m.Cmd.Process.Signal(syscall.SIGSTOP)
	hub.Cmd.Process.Kill()
	hub.Cmd.Wait()
	other, err := net.Listen("tcp", hub.Addr)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { other.Close() })
	m.Cmd.Process.Signal(syscall.SIGCONT)
	cmdtest.Until(t, "there is another hub", func() bool {
		return strings.TrimSpace(w.Run("bproxy", "list", "-f", "proxy.http_url").Out) == hub.URL
	})
	m.End()
}

// serves waits until a call is answered of the browser that has joined. A call waits for
// one itself, but not as long as a busy machine may take to start it.
func serves(m *cmdtest.MCP) {
	m.T.Helper()
	answer := ""
	defer func() {
		if !strings.Contains(answer, "about:blank") {
			m.T.Logf("the last answer is %s; there are %s", answer, m.W.Run("bproxy", "list").Out)
		}
	}()
	cmdtest.Until(m.T, "bmcp has a browser", func() bool {
		answer = m.Tool("browser_snapshot", "{}").Text(m.T)
		return strings.Contains(answer, "about:blank")
	})
}

// bmcp runs a hub if none is running, and ends it.
func TestMCPRunsItsHub(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.OwnHub()
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	id := m.StartTool("browser_snapshot", "{}")
	cmdtest.Until(t, "bmcp runs a hub", func() bool { return w.Run("bproxy", "list").Out != "" })
	w.Run("bproxy", "extension", "--paired", w.Dir+"/extension").Exits(t, 0, "")
	cmdtest.ChromiumWith(t, w.Dir+"/extension")
	m.Answer(id)
	serves(m)
	m.End()
	if got := w.Run("bproxy", "list").Out; got != "" {
		t.Errorf("bmcp has left the hub %s", got)
	}
}

// Programs that need a hub at once have one together. When the one that runs it
// ends, another one takes its place, and the browser is back.
func TestProgramsShareAHub(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.OwnHub()
	p := w.JoinedPool("_P_INSTANCES=1")
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")
	id := m.StartTool("browser_snapshot", "{}")
	cmdtest.Until(t, "both use a hub", func() bool {
		return strings.Count(w.Run("bproxy", "list").Out, `"extension":true`) == 1
	})
	w.Run("bproxy", "extension", "--paired", w.Dir+"/extension").Exits(t, 0, "")
	cmdtest.ChromiumWith(t, w.Dir+"/extension")
	cmdtest.ChromiumWith(t, w.Dir+"/extension")
	m.Answer(id)
	serves(m)
	cmdtest.Until(t, "the pool has a browser, too", func() bool { return p.States() == "healthy" })
	p.Stop()
	serves(m)
	m.End()
	if got := w.Run("bproxy", "list").Out; got != "" {
		t.Errorf("somebody has left the hub %s", got)
	}
}

func TestMCPExtensionRefuses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for flag, why := range map[string]string{
		"--headless":         "is its user's",
		"--browser=chrome":   "is its user's",
		"--shared":           "is its user's",
		"--idle=5m":          "is its user's",
		"--hibernate=5m":     "is its user's",
		"--max-sessions=2":   "is its user's",
		"--upload-root=/":    "is its user's",
		"--state=shop":       "the logins of its user",
		"--pool":             "LAUNCH=extension makes a pool",
		"--pool-config=/x":   "LAUNCH=extension makes a pool",
		"--session-idle=-1s": "0 or more",
	} {
		w.Run("bmcp", "--extension", flag).Exits(t, 64, why)
	}
}
