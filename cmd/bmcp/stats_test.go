//go:build linux

package main_test

import (
	"encoding/json"
	"slices"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// sessionStats are what browser_session_stats says.
type sessionStats struct {
	Active   int `json:"active_sessions"`
	Sessions []struct {
		ID       string  `json:"session_id"`
		Pool     string  `json:"browser_pool"`
		Instance string  `json:"browser_instance"`
		Tabs     *int    `json:"tab_count"`
		Idle     float64 `json:"idle_seconds"`
	}
}

func statsOf(t *testing.T, r cmdtest.ToolResult) (s sessionStats) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Text()), &s); err != nil || r.IsError || r.Struct["sessions"] == nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return s
}

// A host sees its own sessions, and starts none by looking.
func TestMCPSessionStats(t *testing.T) {
	t.Parallel()
	const tool = "browser_session_stats"
	site := titles(t)
	w := cmdtest.New(t)
	t.Run("http", func(t *testing.T) {
		url, bmcp := w.WebMCP([]string{"BTOOLS_BROWSER=chrome-headless-shell"}, "--headless")
		a, b := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
		if s := statsOf(t, a.Tool(tool, `{}`)); s.Active != 0 || len(w.Browsers()) > 0 {
			t.Errorf("before the first use: %+v, %v", s, w.Browsers())
		}
		a.Tool("browser_navigate", `{"url":"`+site+`/1"}`)
		a.Tool("browser_tabs", `{"action":"new"}`)
		a.Tool("browser_navigate", `{"url":"`+site+`/2","session_id":"sub"}`)
		s := statsOf(t, a.Tool(tool, `{}`))
		if s.Active != 1 || len(s.Sessions) != 2 || s.Sessions[0].ID != "" || *s.Sessions[0].Tabs != 2 ||
			s.Sessions[1].ID != "sub" || *s.Sessions[1].Tabs != 1 { // its own is no sub-agent's
			t.Errorf("a host has %+v", s)
		}
		if s := statsOf(t, b.Tool(tool, `{}`)); len(s.Sessions) > 0 {
			t.Errorf("another host has %+v", s)
		}
		before := s.Sessions[0].Idle
		cmdtest.Until(t, "the idle time grows", func() bool {
			return statsOf(t, a.Tool(tool, `{}`)).Sessions[0].Idle > before
		})
		a.EndSession()
		bmcp.Process.Signal(syscall.SIGTERM)
		bmcp.Wait()
	})
	t.Run("shared", func(t *testing.T) {
		m := w.Builtin("--headless", "--shared")
		if s := statsOf(t, m.MustTool(tool, `{}`)); len(s.Sessions) > 0 {
			t.Errorf("before the first use: %+v", s)
		}
		m.MustTool("browser_navigate", `{"url":%q}`, site) // in a tab whose renderer has just been started
		if s := statsOf(t, m.MustTool(tool, `{}`)); s.Active != 0 || len(s.Sessions) != 1 || *s.Sessions[0].Tabs < 1 {
			t.Errorf("got %+v", s)
		}
		m.End()
	})
	t.Run("pool", func(t *testing.T) {
		w.Shared("_A_INSTANCES=1", "_A_HIBERNATE=500ms")
		m := w.Builtin("--pool")
		m.MustTool("browser_navigate", `{"url":%q}`, site)
		var s sessionStats
		cmdtest.Until(t, "it is hibernated, whoever looks", func() bool {
			s = statsOf(t, m.MustTool(tool, `{}`))
			return s.Active == 0
		})
		if len(s.Sessions) != 1 || s.Sessions[0].Pool != "A" || *s.Sessions[0].Tabs != 1 ||
			s.Sessions[0].Instance == "" {
			t.Errorf("got %+v", s)
		}
		m.End()
	})
	t.Run("tools", func(t *testing.T) {
		m := w.Builtin("--headless", "--tools", "core")
		if names := m.Tools(); slices.Contains(names, tool) || !slices.Contains(names, "browser_click") {
			t.Errorf("core has %v", names)
		}
		m.End()
		m = w.Builtin("--headless", "--tools", "session_stats,browser_click")
		if names := m.Tools(); !slices.Contains(names, tool) || slices.Contains(names, "browser_type") {
			t.Errorf("a selection has %v", names)
		}
		m.End()
	})
}
