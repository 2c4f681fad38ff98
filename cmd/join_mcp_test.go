package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
