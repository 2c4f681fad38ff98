//go:build linux

package cmd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"btools/lib/jsonrpc"
)

// observed is a site whose page tells the server when it is hidden; was reports
// whether it did.
func observed(t *testing.T) (url string, was func() bool) {
	var hidden atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hidden" {
			hidden.Store(true)
			return
		}
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<title>observed</title><script>
			const tell = () => { if (document.hidden) fetch('/hidden') }
			document.onvisibilitychange = tell
			tell()</script>`)
	}))
	t.Cleanup(s.Close)
	return s.URL, hidden.Load
}

// A session's own time until it is throttled overrides that of the proxy.
func TestThrottledSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy("--isolate", "--session-throttle", "0")
	w.run("bproxy", "session", "new", "quick", "--throttle", "-1s").wants(t, 64, "--throttle must be a duration")
	w.run("bproxy", "session", "end", "quick", "--throttle", "1s").wants(t, 64, "applies to a new session")
	w.run("bproxy", "session", "new", "quick", "--throttle", "100ms").wants(t, 0, "")
	site, hidden := observed(t)
	other, otherHidden := observed(t)
	firstPage(t, p.url+"/session/slow").open(other)
	c := firstPage(t, p.url+"/session/quick")
	c.open(site)
	until(t, "the unused page is hidden", hidden)
	got := resultOf(t, c.ask("Runtime.evaluate", `{"expression":"document.visibilityState"}`))
	if state := jsonrpc.GetString(got, "result", "value"); state != "visible" {
		t.Errorf("a command finds the page %q, want visible", state)
	}
	if otherHidden() {
		t.Error("a page of a session that is never throttled was hidden")
	}
	p.stop()
	w.clean()
}

func TestMCPThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site, hidden := observed(t)
	clients, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	m := w.startMCP([]string{"HOME=" + w.dir}, "--browser=chromium", "--session-throttle", "100ms",
		"--mcp", clients+"/playwright-mcp")
	m.greet("{}")
	m.lists("browser_navigate")
	m.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site))
	until(t, "the unused page is hidden", hidden)
	const visible = `{"function":"() => document.visibilityState"}`
	if r := m.tool("browser_evaluate", visible).text(t); !strings.Contains(r, `"visible"`) {
		t.Errorf("the next call finds the page %s, want visible", r)
	}
	m.end()
	w.clean()
}
