//go:build linux

package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// An agent saves the login of its session, and sees of logins no value. Those of a
// service are where the service has its own.
func TestMCPStatesOfAgents(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.Members(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	p := there.Shared("_A_INSTANCES=1")
	const tool = "browser_state"
	for i, kind := range []string{"--headless", "--pool"} {
		name := fmt.Sprint("login-", i)
		t.Run(kind, func(t *testing.T) {
			m := w.Builtin(kind)
			m.Refused("name is missing", tool, `{"action":"save"}`)
			m.Refused("not the name of a state", tool, `{"action":"save","name":"../x"}`)
			m.Did("browser_navigate", `{"url":"%s/login"}`, site)
			m.Title("logged in")
			var said strings.Builder
			keep := func(r cmdtest.ToolResult) string {
				said.WriteString(r.Text())
				return r.Text()
			}
			want := `Saved the login "` + name + `": 1 cookies of 127.0.0.1, storage of ` + site
			if r := keep(m.Did(tool, `{"action":"save","name":%q}`, name)); !strings.Contains(r, want) {
				t.Errorf("%s, want %s", r, want)
			}
			at := map[string]string{"--headless": "here", "--pool": "there"}[kind]
			if _, err := os.Stat(w.Dir + "/" + at + "/btools/states/" + name + ".json"); err != nil {
				t.Error(err)
			}
			m.Refused("overwrite replaces it", tool, `{"action":"save","name":%q}`, name)
			keep(m.Did(tool, `{"action":"save","name":%q,"overwrite":true}`, name))
			want = "- " + name + ": 1 cookies of 127.0.0.1"
			if r := keep(m.Did(tool, `{}`)); !strings.Contains(r, want) || strings.Count(r, "\n") > 1 {
				t.Errorf("%s, want %s", r, want)
			}
			if kind != "--pool" { // another session has another login
				keep(m.Did(tool, `{"action":"save","name":"other","session_id":"b"}`))
				if r := keep(m.Did(tool, `{"action":"list"}`)); !strings.Contains(r, "- other: 0 cookies, saved at") {
					t.Errorf("%s", r)
				}
			}
			if strings.Contains(said.String(), "s3cret") {
				t.Errorf("a value is shown: %s", said.String())
			}
			m.End()
			m = w.Builtin(kind, "--state", name)
			m.Did("browser_navigate", `{"url":%q}`, site)
			m.Title("shows ann, s3cret-token, s3cret-key")
			m.End()
		})
	}
	p.Stop()
	t.Run("shared", func(t *testing.T) {
		m := w.Builtin("--headless", "--shared")
		m.Did("browser_navigate", `{"url":"%s/login"}`, site)
		m.Title("logged in")
		m.Did(tool, `{"action":"save","name":"shared"}`)
		if r := m.Did(tool, `{"action":"list"}`).Text(); !strings.Contains(r, "- shared: 1 cookies of 127.0.0.1") {
			t.Errorf("%s", r)
		}
		m.End()
	})
}
