//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

func TestMCPHibernationFlags(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for args, want := range map[string]string{
		"--shared":                      "none of with --shared",
		"--session-idle 10m":            "shorter than --session-idle (10m0s)",
		"--idle 5m":                     "shorter than --idle (5m0s)",
		"--browser webkit":              "launched by the child",
		"--pool-config " + w.Dir + "/p": "bpool.toml(5)",
	} {
		w.Run("bmcp", append([]string{"--hibernate", "10m"}, strings.Fields(args)...)...).Exits(t, 64, want)
	}
	w.Run("bmcp", "--hibernate", "-1s").Exits(t, 64, "0 or more")
}

// The children of a browser that no call uses are stopped, so that it is
// hibernated, and the next call gets it back and says so.
func TestMCPHibernation(t *testing.T) {
	t.Parallel()
	clients := cmdtest.Clients(t) + "/node_modules/.bin"
	const title = `"function":"() => document.title"`
	for _, c := range []struct {
		name, session, status string // the arguments that choose the browser, the tool that shows it
		env, args             []string
	}{
		{"a session_id", `,"session_id":"agent"`, "coordinator_status", nil,
			[]string{"--browser=chrome-headless-shell", "--hibernate=500ms", "--mcp=" + clients + "/playwright-mcp"}},
		{"a session_id, tools of bmcp", `,"session_id":"agent"`, "coordinator_status", nil,
			[]string{"--browser=chrome-headless-shell", "--hibernate=500ms"}},
		{"an instance of a pool", "", "browser_pool_status",
			[]string{"PW_MCP_PROXY__A_INSTANCES=1", "PW_MCP_PROXY_BROWSER=chrome-headless-shell",
				"PW_MCP_PROXY_ISOLATION=context", "PW_MCP_PROXY_HIBERNATE=500ms"},
			[]string{"--mcp=" + clients + "/playwright-mcp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "a session_id" {
				cmdtest.Long(t) // the children of a pool are stopped in the same way
			}
			site := cmdtest.LoginSite(t)
			w := cmdtest.New(t)
			m := w.StartMCP(append(c.env, "HOME="+w.Dir), c.args...)
			m.Initialize("{}")
			m.AwaitTools("browser_navigate")
			call := func(tool, args string) *cmdtest.RPC { return m.Tool(tool, "{"+args+c.session+"}") }
			const hibernated = `hibernated; its pages were reloaded`
			shows := func(want string) {
				t.Helper()
				cmdtest.Until(t, want, func() bool {
					return strings.Contains(call("browser_evaluate", title).Text(t),
						want)
				})
			}
			call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/login"))
			shows("logged in")
			r := call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/inbox"))
			if strings.Contains(r.Line, hibernated) {
				t.Errorf("a result of a browser that is in use says %s", r.Line)
			}
			rounds := 1
			if cmdtest.IsLong {
				rounds = 2
			}
			for n := range rounds {
				cmdtest.Until(t, "the browser is hibernated", func() bool {
					text := strings.ReplaceAll(m.Tool(c.status, "{}").Text(t), " ", "")
					return strings.Contains(text, `"hibernated":true`)
				})
				r := call("browser_evaluate", title)
				if why := fmt.Sprint(r.Tool(t).Meta["btools/restored"]); !strings.Contains(r.Text(t), hibernated) ||
					!strings.Contains(why, "had not been used for 500ms and was "+hibernated) {
					t.Errorf("result %d does not say that the browser was hibernated: %s", n, r.Line)
				}
				if strings.Contains(r.Line, "btools/replaced") {
					t.Errorf("result %d says that the browser was replaced: %s", n, r.Line)
				}
				shows("shows ann, s3cret-token, s3cret-key")
			}
			if r := call("browser_tabs", `"action":"list"`); !strings.Contains(r.Text(t), "/inbox") ||
				strings.Contains(r.Text(t), hibernated) {
				t.Errorf("got %s, want a tab at /inbox, and nothing of hibernation", r.Line)
			}
			m.End()
			w.Clean()
		})
	}
}

// After a crash the browser of a host comes back with its pages and logins, and so does
// that of a session_id; a result says so. One that the agent replaces does not.
func TestMCPCrash(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	m := w.Builtin("--headless")
	for name, session := range map[string]string{"host": "", ".ann": `,"session_id":"ann"`} {
		call := func(tool, args string) *cmdtest.RPC { return m.Tool(tool, "{"+args+session+"}") }
		call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/login"))
		const title = `"function":"() => document.title"`
		cmdtest.Until(t, "it is logged in", func() bool {
			return strings.Contains(call("browser_evaluate", title).Text(t), "logged in")
		})
		call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/inbox"))
		shows := "shows ann, s3cret-token, s3cret-key"
		cmdtest.Until(t, "the inbox is shown", func() bool {
			return strings.Contains(call("browser_evaluate", title).Text(t), shows)
		})
		shown := time.Now()
		call("browser_evaluate", title) // a save that began just before is followed by one after a use
		cmdtest.Until(t, "it is kept", func() bool {
			for line := range strings.Lines(w.Run("bproxy", "session", "list").Out) {
				var r struct {
					Session struct {
						Name string
						Kept time.Time `json:"kept_at"`
					}
				}
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(r.Session.Name, name) && r.Session.Kept.After(shown) {
					return true
				}
			}
			return false
		})
		syscall.Kill(statusOf(t, m.Tool("coordinator_status", "{}").Text(t)).Browser.Instance.PID, syscall.SIGKILL)
		said := "" // by a call that has failed, too, if it was made before the end was seen
		cmdtest.Until(t, "the inbox is shown again", func() bool {
			said += call("browser_evaluate", title).Line
			return strings.Contains(said, shows)
		})
		if !strings.Contains(said, "was launched anew; its pages were reloaded. Logins and stored data are as they "+
			"were ") || strings.Contains(said, "btools/replaced") || strings.Contains(said, "as before") {
			t.Errorf("got %s, want that its pages were reloaded, and as of when its data are", said)
		}
	}
	// What is too large to be kept is named once it is seen, before anything ends.
	m.MustTool("browser_evaluate", `{"function":%q}`, `() => new Promise((done, fail) => {
		const r = indexedDB.open('large')
		r.onupgradeneeded = () => r.result.createObjectStore('s')
		r.onsuccess = () => { const t = r.result.transaction('s', 'readwrite')
			for (let i = 0; i < 66; i++) t.objectStore('s').put((i + 'x').repeat(1 << 20).slice(0, 1 << 20), i)
			t.oncomplete = done
			t.onerror = fail } })`)
	cmdtest.Until(t, "a result names the large storage", func() bool {
		return strings.Contains(m.Tool("browser_tabs", `{"action":"list"}`).Text(t), "does not come back if this "+
			"browser ends without warning: "+site+": it has more than 64 MiB of storage")
	})
	m.Tool("coordinator_restart_browser", "{}")
	if r := m.Tool("browser_tabs", `{"action":"list"}`); strings.Contains(r.Text(t), site) {
		t.Errorf("a browser that was replaced has %s", r.Line)
	}
	m.End()
	w.Clean()
}
