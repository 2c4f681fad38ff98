//go:build linux

package clients_test

import (
	"fmt"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The child servers that agents use drive a browser that has joined, each
// session_id in tabs of its own.
func TestMCPRealChildrenOnAJoinedBrowser(t *testing.T) {
	t.Parallel()
	cmdtest.Long(t)
	t.Parallel()
	w, site := cmdtest.New(t), cmdtest.TitledSite(t)
	hub := w.Hub()
	cmdtest.ChromiumWith(t, hub.Extension())
	clients := cmdtest.Clients(t) + "/node_modules/.bin"
	for child, tool := range map[string]string{"playwright-mcp": "browser_navigate",
		"chrome-devtools-mcp": "new_page"} {
		m := w.StartMCP([]string{"HOME=" + w.Dir}, "--extension", "--mcp", clients+"/"+child)
		m.Initialize("{}")
		for _, id := range []string{"one", "two"} {
			got := m.Tool(tool, fmt.Sprintf(`{"url":"%s/%s","session_id":%q}`, site, id, id)).Text(t)
			if !strings.Contains(got, "/"+id) {
				t.Errorf("%s, session_id %s: %s", child, id, got)
			}
		}
		m.End()
	}
	hub.Stop()
}
