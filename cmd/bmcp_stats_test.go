//go:build linux

package cmd_test

import (
	"encoding/json"
	"slices"
	"syscall"
	"testing"
)

// sessionStats are what browser_session_stats says.
type sessionStats struct {
	Active   int `json:"active_sessions"`
	Sessions []struct {
		ID       string  `json:"session_id"`
		Pool     string  `json:"browser_pool"`
		Instance string  `json:"browser_instance"`
		Tabs     int     `json:"tab_count"`
		Idle     float64 `json:"idle_seconds"`
	}
}

func statsOf(t *testing.T, r toolResult) (s sessionStats) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.text()), &s); err != nil || r.IsError || r.Struct["sessions"] == nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return s
}

// A host sees its own sessions, and starts none by looking.
func TestMCPSessionStats(t *testing.T) {
	t.Parallel()
	const tool = "browser_session_stats"
	site := titles(t)
	w := newWorld(t)
	t.Run("http", func(t *testing.T) {
		url, bmcp := w.webMCP([]string{"BTOOLS_BROWSER=chromium"}, "--headless")
		a, b := newWebHost(t, url), newWebHost(t, url)
		if s := statsOf(t, a.tool(tool, `{}`)); s.Active != 0 || len(w.browsers()) > 0 {
			t.Errorf("before the first use: %+v, %v", s, w.browsers())
		}
		a.tool("browser_navigate", `{"url":"`+site+`/1"}`)
		a.tool("browser_tabs", `{"action":"new"}`)
		a.tool("browser_navigate", `{"url":"`+site+`/2","session_id":"sub"}`)
		s := statsOf(t, a.tool(tool, `{}`))
		if s.Active != 2 || len(s.Sessions) != 2 || s.Sessions[0].ID != "" || s.Sessions[0].Tabs != 2 ||
			s.Sessions[1].ID != "sub" || s.Sessions[1].Tabs != 1 {
			t.Errorf("a host has %+v", s)
		}
		if s := statsOf(t, b.tool(tool, `{}`)); s.Active != 0 {
			t.Errorf("another host has %+v", s)
		}
		before := s.Sessions[0].Idle
		until(t, "the idle time grows", func() bool {
			return statsOf(t, a.tool(tool, `{}`)).Sessions[0].Idle > before
		})
		a.leaves()
		bmcp.Process.Signal(syscall.SIGTERM)
		bmcp.Wait()
	})
	t.Run("shared", func(t *testing.T) {
		m := w.builtin("--headless", "--shared")
		if s := statsOf(t, m.did(tool, `{}`)); s.Active != 0 {
			t.Errorf("before the first use: %+v", s)
		}
		m.did("browser_navigate", `{"url":%q}`, site) // in a tab whose renderer has just been started
		if s := statsOf(t, m.did(tool, `{}`)); s.Active != 1 || s.Sessions[0].Tabs < 1 {
			t.Errorf("got %+v", s)
		}
		m.end()
	})
	t.Run("pool", func(t *testing.T) {
		w.shared("_A_INSTANCES=1")
		m := w.builtin("--pool")
		m.did("browser_navigate", `{"url":%q}`, site)
		s := statsOf(t, m.did(tool, `{}`))
		if s.Active != 1 || s.Sessions[0].Pool != "A" || s.Sessions[0].Tabs != 1 || s.Sessions[0].Instance == "" {
			t.Errorf("got %+v", s)
		}
		m.end()
	})
	t.Run("tools", func(t *testing.T) {
		m := w.builtin("--headless", "--tools", "core")
		if names := m.tools(); slices.Contains(names, tool) || !slices.Contains(names, "browser_click") {
			t.Errorf("core has %v", names)
		}
		m.end()
		m = w.builtin("--headless", "--tools", "session_stats,browser_click")
		if names := m.tools(); !slices.Contains(names, tool) || slices.Contains(names, "browser_type") {
			t.Errorf("a selection has %v", names)
		}
		m.end()
	})
}
