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
	site := cmdtest.LoginSite(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	p := there.Shared("_A_INSTANCES=1")
	const tool = "browser_state"
	for i, kind := range []string{"--headless", "--pool"} {
		name := fmt.Sprint("login-", i)
		t.Run(kind, func(t *testing.T) {
			m := w.Builtin(kind)
			m.MustFail("name is missing", tool, `{"action":"save"}`)
			m.MustFail("not the name of a state", tool, `{"action":"save","name":"../x"}`)
			m.MustTool("browser_navigate", `{"url":"%s/login"}`, site)
			m.AwaitTitle("logged in")
			var said strings.Builder
			keep := func(r cmdtest.ToolResult) string {
				said.WriteString(r.Text())
				return r.Text()
			}
			want := `Saved the login "` + name + `": 1 cookie of 127.0.0.1, storage of ` + site
			if r := keep(m.MustTool(tool, `{"action":"save","name":%q}`, name)); !strings.Contains(r, want) {
				t.Errorf("%s, want %s", r, want)
			}
			at := map[string]string{"--headless": "here", "--pool": "there"}[kind]
			if _, err := os.Stat(w.Dir + "/" + at + "/btools/states/" + name + ".json"); err != nil {
				t.Error(err)
			}
			m.MustFail("overwrite replaces it", tool, `{"action":"save","name":%q}`, name)
			keep(m.MustTool(tool, `{"action":"save","name":%q,"overwrite":true}`, name))
			want = "- " + name + ": 1 cookie of 127.0.0.1"
			if r := keep(m.MustTool(tool, `{}`)); !strings.Contains(r, want) || strings.Count(r, "\n") > 1 {
				t.Errorf("%s, want %s", r, want)
			}
			if kind == "--pool" {
				m.MustFail("logins of a service", tool, `{"action":"load","name":%q}`, name)
			} else { // another session has another login
				keep(m.MustTool(tool, `{"action":"save","name":"other","session_id":"b"}`))
				r := keep(m.MustTool(tool, `{"action":"list"}`))
				if !strings.Contains(r, "- other: 0 cookies, saved at") {
					t.Errorf("%s", r)
				}
			}
			if strings.Contains(said.String(), "s3cret") {
				t.Errorf("a value is shown: %s", said.String())
			}
			m.End()
			m = w.Builtin(kind, "--state", name)
			m.MustTool("browser_navigate", `{"url":%q}`, site)
			m.AwaitTitle("shows ann, s3cret-token, s3cret-key")
			m.End()
		})
	}
	p.Stop()
	t.Run("given back to sessions", func(t *testing.T) {
		m := w.Builtin("--headless")
		in := func(id, more string) string {
			return fmt.Sprintf(`{"url":%q,"session_id":%q%s}`, site, id, more)
		}
		title := func(id, want string) {
			t.Helper()
			cmdtest.Until(t, id+" "+want, func() bool {
				x := m.MustTool("browser_evaluate", `{"function":"() => document.title","session_id":%q}`, id)
				return strings.Contains(x.Text(), want)
			})
		}
		m.MustTool("browser_navigate", "%s", in("a", `,"state":"login-0"`))
		title("a", "shows ann, s3cret-token, s3cret-key")
		m.MustTool("browser_navigate", "%s", in("a", `,"state":"login-0"`)) // the same again
		m.MustFail("is open already", "browser_navigate", "%s", in("a", `,"state":"other"`))
		m.MustFail(`there is no state "nobody"`, "browser_navigate", "%s", in("b", `,"state":"nobody"`))
		m.MustFail("not the name of a state", "browser_navigate", "%s", in("b", `,"state":"../login-0"`))
		m.MustFail("with a session_id", "browser_navigate", `{"url":%q,"state":"login-0"}`, site)
		m.MustTool("browser_navigate", "%s", in("b", "")) // one that could not be started can be started otherwise
		title("b", "shows nobody, null, nothing")
		m.MustTool(tool, `{"action":"load","name":"login-0","session_id":"b"}`)
		m.MustTool("browser_navigate", "%s", in("b", ""))
		title("b", "shows ann, s3cret-token, s3cret-key")
		m.MustFail(`there is no state "nobody"`, tool, `{"action":"load","name":"nobody"}`)
		m.MustTool("coordinator_restart_browser", `{}`)
		m.MustTool("browser_navigate", "%s", in("a", "")) // as it has begun
		title("a", "shows ann, s3cret-token, s3cret-key")
		m.MustTool("browser_close", `{"session_id":"a"}`)
		m.MustTool("browser_navigate", "%s", in("a", ""))
		title("a", "shows ann, s3cret-token, s3cret-key")
		m.End()
	})
	t.Run("shared", func(t *testing.T) {
		m := w.Builtin("--headless", "--shared")
		m.MustTool("browser_navigate", `{"url":"%s/login"}`, site)
		m.AwaitTitle("logged in")
		m.MustTool(tool, `{"action":"save","name":"shared"}`)
		if r := m.MustTool(tool, `{"action":"list"}`).Text(); !strings.Contains(r, "- shared: 1 cookie of 127.0.0.1") {
			t.Errorf("%s", r)
		}
		m.End()
	})
}
