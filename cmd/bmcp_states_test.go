//go:build linux

package cmd_test

import (
	"fmt"
	"strings"
	"testing"
)

// title waits until the page of an agent has a title.
func (m *mcp) title(want string) {
	m.t.Helper()
	until(m.t, "the title is "+want, func() bool {
		return strings.Contains(m.tool("browser_evaluate", `{"function":"() => document.title"}`).line, want)
	})
}

// An agent saves the login of its session, and sees of logins no value.
func TestMCPStatesOfAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := members(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	w.shared("_A_INSTANCES=1")
	const tool = "browser_state"
	for i, kind := range []string{"--headless", "--pool"} {
		name := fmt.Sprint("login-", i)
		t.Run(kind, func(t *testing.T) {
			m := w.builtin(kind)
			m.refused("name is missing", tool, `{"action":"save"}`)
			m.refused("not the name of a state", tool, `{"action":"save","name":"../x"}`)
			m.did("browser_navigate", `{"url":"%s/login"}`, site)
			m.title("logged in")
			var said strings.Builder
			keep := func(r toolResult) string {
				said.WriteString(r.text())
				return r.text()
			}
			want := `Saved the login "` + name + `": 1 cookies of 127.0.0.1, storage of ` + site
			if r := keep(m.did(tool, `{"action":"save","name":%q}`, name)); !strings.Contains(r, want) {
				t.Errorf("%s, want %s", r, want)
			}
			m.refused("overwrite replaces it", tool, `{"action":"save","name":%q}`, name)
			keep(m.did(tool, `{"action":"save","name":%q,"overwrite":true}`, name))
			want = "- " + name + ": 1 cookies of 127.0.0.1"
			if r := keep(m.did(tool, `{"action":"list"}`)); !strings.Contains(r, want) || strings.Contains(r, "other") {
				t.Errorf("%s, want %s", r, want)
			}
			if kind != "--pool" { // another session has another login
				keep(m.did(tool, `{"action":"save","name":"other","session_id":"b"}`))
				if r := keep(m.did(tool, `{"action":"list"}`)); !strings.Contains(r, "- other: 0 cookies, saved at") {
					t.Errorf("%s", r)
				}
			}
			if strings.Contains(said.String(), "s3cret") {
				t.Errorf("a value is shown: %s", said.String())
			}
			m.end()
			m = w.builtin(kind, "--state", name)
			m.did("browser_navigate", `{"url":%q}`, site)
			m.title("shows ann, s3cret-token, s3cret-key")
			m.end()
			w.run("bproxy", "state", "delete", "other")
		})
	}
	t.Run("shared", func(t *testing.T) {
		m := w.builtin("--headless", "--shared")
		m.refused("not a session of its own", tool, `{"action":"save","name":"x"}`)
		m.did(tool, `{"action":"list"}`)
		m.end()
	})
}
