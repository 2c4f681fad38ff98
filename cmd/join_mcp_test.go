//go:build linux

package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// titled serves pages whose title is their path.
func titled(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>of %s</title><h1>Page %s</h1>", r.URL.Path, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The browser of an agent is one that has joined: each session_id has tabs of its
// own, which close with the host, and the first result from the next browser says
// that it is another one.
func TestMCPOnAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w, site := newWorld(t), titled(t)
	hub := w.hub()
	chrome, process := chromiumWith(t, hub.extension())
	before := tabs(t, chrome)
	m := w.startMCP(nil, "--extension")
	m.greet("{}")
	if names := m.tools(); slices.Contains(names, "coordinator_launch_browser") ||
		!slices.Contains(names, "coordinator_stop_browser") {
		t.Errorf("the tools are %v", names)
	}
	for _, id := range []string{"", "one", "two"} {
		args := fmt.Sprintf(`{"url":"%s/%s","session_id":%q}`, site, "x"+id, id)
		if id == "" {
			args = fmt.Sprintf(`{"url":"%s/x"}`, site)
		}
		if got := m.tool("browser_navigate", args).text(t); !strings.Contains(got, "of /x"+id) {
			t.Errorf("session_id %q: %s", id, got)
		}
	}
	for _, id := range []string{"one", "two"} {
		got := m.tool("browser_tabs", fmt.Sprintf(`{"action":"list","session_id":%q}`, id)).text(t)
		if !strings.Contains(got, "/x"+id) || strings.Count(got, site) != 1 {
			t.Errorf("session_id %q has the tabs %s", id, got)
		}
	}
	if got := tabs(t, chrome); len(got) != len(before)+3 {
		t.Errorf("the user sees the tabs %v", got)
	}
	m.tool("coordinator_stop_browser", `{"session_id":"two"}`)
	until(t, "the tab of a session_id is closed", func() bool { return len(tabs(t, chrome)) == len(before)+2 })
	if got := m.tool("coordinator_status", "{}").text(t); !strings.Contains(got, `"source":"extension"`) ||
		!strings.Contains(got, `"session_id":"one"`) {
		t.Errorf("the status is %s", got)
	}

	process.Signal(syscall.SIGKILL)
	until(t, "the browser has left", func() bool { return len(hub.joined()) == 0 })
	next, _ := chromiumWith(t, hub.extension())
	before = tabs(t, next)
	r := m.tool("browser_navigate", fmt.Sprintf(`{"url":"%s/again"}`, site))
	if got := r.text(t); !strings.Contains(got, "of /again") || !strings.Contains(got, "the browser had left (") {
		t.Errorf("the first result from the next browser is %s", got)
	}
	m.end()
	until(t, "the tabs of the host are closed", func() bool { return slices.Equal(tabs(t, next), before) })
	hub.stop()
}

// A host that is killed leaves no tabs.
func TestMCPOnAJoinedBrowserKilled(t *testing.T) {
	t.Parallel()
	w, site := newWorld(t), titled(t)
	hub := w.hub()
	chrome, _ := chromiumWith(t, hub.extension())
	before := tabs(t, chrome)
	m := w.startMCP(nil, "--extension")
	m.greet("{}")
	m.tool("browser_navigate", fmt.Sprintf(`{"url":"%s/x"}`, site))
	if got := tabs(t, chrome); len(got) != len(before)+1 {
		t.Errorf("the user sees the tabs %v", got)
	}
	m.cmd.Process.Kill()
	m.wait()
	until(t, "the tabs of the host are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
	hub.stop()
}

// A child server gets the address of the browser, which stays the same.
func TestMCPChildOnAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hub := w.hub()
	chromiumWith(t, hub.extension())
	m := w.startMCP(nil, "--extension", "--mcp", bin+"/fakechild {ws_endpoint}")
	m.greet("{}")
	if got := m.tool("env", "{}").text(t); !strings.Contains(got, "ws://"+hub.addr+"/session/bmcp-") {
		t.Errorf("the child was given %s", got)
	}
}

// The child servers that agents use drive a browser that has joined, each
// session_id in tabs of its own.
func TestMCPRealChildrenOnAJoinedBrowser(t *testing.T) {
	long(t)
	t.Parallel()
	w, site := newWorld(t), titled(t)
	hub := w.hub()
	chromiumWith(t, hub.extension())
	clients, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	for child, tool := range map[string]string{"playwright-mcp": "browser_navigate",
		"chrome-devtools-mcp": "new_page"} {
		m := w.startMCP([]string{"HOME=" + w.dir}, "--extension", "--mcp", clients+"/"+child)
		m.greet("{}")
		for _, id := range []string{"one", "two"} {
			got := m.tool(tool, fmt.Sprintf(`{"url":"%s/%s","session_id":%q}`, site, id, id)).text(t)
			if !strings.Contains(got, "/"+id) {
				t.Errorf("%s, session_id %s: %s", child, id, got)
			}
		}
		m.end()
	}
	hub.stop()
}

// An agent leases a browser that joins from a pool. After that has left, the next
// call leases another one, and says so.
func TestMCPOnAPoolOfJoinedBrowsers(t *testing.T) {
	long(t)
	t.Parallel()
	w, site := newWorld(t), titled(t)
	hub := w.hub()
	w.joinedPool()
	clients, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	_, process := chromiumWith(t, hub.extension())
	m := w.startMCP([]string{"HOME=" + w.dir}, "--pool", "--mcp", clients+"/playwright-mcp")
	m.greet("{}")
	if got := m.tool("browser_navigate", fmt.Sprintf(`{"url":"%s/x"}`, site)).text(t); !strings.Contains(got, "of /x") {
		t.Errorf("a call on a leased browser is answered %s", got)
	}
	process.Signal(syscall.SIGKILL)
	until(t, "the browser has left", func() bool { return len(hub.joined()) == 0 })
	chromiumWith(t, hub.extension())
	got := m.tool("browser_navigate", fmt.Sprintf(`{"url":"%s/again"}`, site)).text(t)
	if !strings.Contains(got, "of /again") || !strings.Contains(got, "had been ended") {
		t.Errorf("the first call on the next browser is answered %s", got)
	}
	m.end()
	hub.stop()
}

// Without a browser a call says what the user has to do.
func TestMCPWithoutAJoinedBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hub()
	m := w.startMCP(nil, "--extension")
	m.greet("{}")
	got := m.tool("browser_snapshot", "{}").text(t)
	for _, want := range []string{"No browser has joined", "bproxy extension DIR", w.dir + "/code"} {
		if !strings.Contains(got, want) {
			t.Errorf("without a browser a call is answered %s", got)
		}
	}
	if got := m.tool("coordinator_status", "{}").text(t); !strings.Contains(got, "No browser has joined") {
		t.Errorf("the status is %s", got)
	}
}

// bmcp runs a hub if none is running, and ends it.
func TestMCPRunsItsHub(t *testing.T) {
	w := newWorld(t)
	w.ownHub()
	m := w.startMCP(nil, "--extension")
	m.greet("{}")
	id := m.startTool("browser_snapshot", "{}")
	until(t, "bmcp runs a hub", func() bool { return w.run("bproxy", "list").out != "" })
	w.run("bproxy", "extension", "--paired", w.dir+"/extension").wants(t, 0, "")
	chromiumWith(t, w.dir+"/extension")
	if got := m.answer(id).text(t); !strings.Contains(got, "about:blank") {
		t.Errorf("a call that has waited for a browser is answered %s", got)
	}
	m.end()
	if got := w.run("bproxy", "list").out; got != "" {
		t.Errorf("bmcp has left the hub %s", got)
	}
}

// Programs that need a hub at once have one together. When the one that runs it
// ends, another one takes its place, and the browser is back.
func TestProgramsShareAHub(t *testing.T) {
	w := newWorld(t)
	w.ownHub()
	p := w.joinedPool("_P_INSTANCES=1")
	m := w.startMCP(nil, "--extension")
	m.greet("{}")
	id := m.startTool("browser_snapshot", "{}")
	until(t, "both use a hub", func() bool {
		return strings.Count(w.run("bproxy", "list").out, `"extension":true`) == 1
	})
	w.run("bproxy", "extension", "--paired", w.dir+"/extension").wants(t, 0, "")
	chromiumWith(t, w.dir+"/extension")
	chromiumWith(t, w.dir+"/extension")
	if got := m.answer(id).text(t); !strings.Contains(got, "about:blank") {
		t.Errorf("a call of bmcp is answered %s", got)
	}
	until(t, "the pool has a browser, too", func() bool { return p.states() == "healthy" })
	p.stop()
	until(t, "bmcp has a browser again", func() bool {
		return strings.Contains(m.tool("browser_snapshot", "{}").text(t), "about:blank")
	})
	m.end()
	if got := w.run("bproxy", "list").out; got != "" {
		t.Errorf("somebody has left the hub %s", got)
	}
}

func TestMCPExtensionRefuses(t *testing.T) {
	w := newWorld(t)
	for flag, why := range map[string]string{
		"--headless":         "is its user's",
		"--browser=chrome":   "is its user's",
		"--shared":           "is its user's",
		"--idle=5m":          "is its user's",
		"--hibernate=5m":     "is its user's",
		"--max-browsers=2":   "is its user's",
		"--upload-root=/":    "is its user's",
		"--state=shop":       "the logins of its user",
		"--pool":             "LAUNCH=extension makes a pool",
		"--pool-config=/x":   "LAUNCH=extension makes a pool",
		"--session-idle=-1s": "0 or more",
	} {
		w.run("bmcp", "--extension", flag).wants(t, 64, why)
	}
}
