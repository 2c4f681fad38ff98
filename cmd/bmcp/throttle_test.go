//go:build linux

package main_test

import (
	"fmt"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

func TestMCPThrottle(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site, hidden := cmdtest.ObservedSite(t)
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--browser=chrome-headless-shell", "--throttle", "100ms",
		"--mcp", "builtin")
	m.Initialize("{}")
	m.AwaitTools("browser_navigate")
	m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site))
	cmdtest.Until(t, "the unused page is hidden", hidden)
	const visible = `{"function":"() => document.visibilityState"}`
	if r := m.Tool("browser_evaluate", visible).Text(t); !strings.Contains(r, `"visible"`) {
		t.Errorf("the next call finds the page %s, want visible", r)
	}
	m.End()
	w.Clean()
}
