//go:build linux

package main_test

import (
	"fmt"
	"os"
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
	m.MustTool("browser_navigate", `{"url":%q}`, allowed+"/a")
	m.MustTool("browser_evaluate", `{"function":"() => Promise.all(['%s/c', 'https://name.test/d'].map(u => `+
		`fetch(u, {mode: 'no-cors'}).catch(() => {})))"}`, other)
	for _, tool := range []string{"browser_network_requests", "browser_console_messages"} {
		for _, want := range []string{"--allow-origins: no pattern matches " + other,
			"--allow-origins: no pattern matches name.test:443"} {
			if got := m.Tool(tool, `{}`).Text(t); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", tool, got, want)
			}
		}
	}
	os.WriteFile(w.Dir+"/begun.js", []byte("self.begun = location.pathname"), 0o600)
	os.WriteFile(w.Dir+"/none.js", []byte("\nreturn ]"), 0o600)
	call := []string{"call", "--session", "i", "--init-script", w.Dir + "/begun.js"}
	w.Run("bmcp", append(call, "navigate", allowed+"/i")...).Exits(t, 0, "")
	if got := w.Run("bmcp", append(call, "evaluate", "begun")...); !strings.Contains(got.Out, `"/i"`) {
		t.Errorf("a script that runs first: %s%s", got.Out, got.Err)
	}
	w.Run("bmcp", "call", "--session", "j", "--init-script", w.Dir+"/none.js", "evaluate", "1").Exits(t, 1,
		"none.js, line 2: SyntaxError")
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
