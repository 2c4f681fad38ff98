//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// An instance that a host keeps and does not use is another one's, if that waits: with
// a browser to itself what was in it is lost, and a session is saved and comes back.
func TestMCPIdleHostYields(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Run("a browser", func(t *testing.T) {
		p := w.Pool("_A_INSTANCES=2", "_A_AFFINITY_IDLE=100ms")
		var hosts []*cmdtest.MCP
		for range 3 {
			m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
			if r := m.Tool("echo", "{}").Tool(t); r.IsError || strings.Contains(r.Text(), "had been ended") {
				t.Fatalf("host %d: %s", len(hosts), r.Text())
			}
			hosts = append(hosts, m)
		}
		yielded := 0
		for _, m := range hosts { // one of the first two has none
			if r := m.Tool("echo", "{}").Tool(t); r.IsError {
				t.Error(r.Text())
			} else if strings.Contains(r.Text(), "had been ended, as it was not used and another one waited") {
				yielded++
			}
		}
		if yielded == 0 {
			t.Error("nobody is told that its lease had been ended")
		}
		p.Stop()
	})
	t.Run("a session", func(t *testing.T) {
		site := cmdtest.LoginSite(t)
		w.Shared("_A_INSTANCES=1", "_A_AFFINITY_IDLE=100ms")
		ann, bob := w.Builtin("--pool"), w.Builtin("--pool")
		ann.MustTool("browser_navigate", `{"url":"%s/login"}`, site)
		ann.AwaitTitle("logged in")
		ann.MustTool("browser_navigate", `{"url":"%s/inbox"}`, site)
		bob.MustTool("browser_navigate", `{"url":%q}`, site)
		bob.AwaitTitle("shows nobody, null, nothing")
		r := ann.Tool("browser_snapshot", "{}").Tool(t) // an error, if the page is not back yet
		if !strings.Contains(r.Text(), "as it was not used and another one waited; its pages were reloaded") ||
			strings.Contains(r.Text(), "are gone") {
			t.Errorf("after another session: %s", r.Text())
		}
		ann.AwaitTitle("shows ann, s3cret-token, s3cret-key")
		if r := ann.MustTool("browser_snapshot", "{}"); !strings.Contains(r.Text(), site+"/inbox") {
			t.Errorf("the tab that is back: %s", r.Text())
		}
	})
}
