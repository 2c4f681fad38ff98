//go:build linux

package main_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A tool that leads an agent to an origin that its person does not allow is an error with
// the rule, in the host's own browser and in a virtual one.
func TestMCPLimits(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	allowed, other := buttonSite(t), buttonSite(t)
	w.Run("bmcp", "--allow-origins", "http://u@x").Exits(t, 64, "in its host")
	m := w.StartMCP(nil, "--browser", "chrome-headless-shell", "--allow-origins", allowed)
	m.Initialize("{}")
	for _, session := range []string{"", `,"session_id":"a"`} {
		m.MustTool("browser_navigate", `{"url":%q`+session+`}`, allowed+"/a")
		for tool, args := range map[string]string{
			"browser_navigate": fmt.Sprintf(`{"url":%q`+session+`}`, other+"/b"),
			"browser_tabs":     fmt.Sprintf(`{"action":"new","url":%q`+session+`}`, other+"/b"),
		} {
			got := m.Tool(tool, args).Text(t)
			if !strings.Contains(got, "--allow-origins: no pattern matches "+other) {
				t.Errorf("%s%s: %s", tool, session, got)
			}
		}
	}
	for _, options := range [][]string{{"--block-private"}, nil} {
		args := slices.Concat([]string{"call", "--session", "s"}, options, []string{"navigate", other})
		w.Run("bmcp", args...).Exits(t, 1, "--block-private: 127.0.0.1")
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
