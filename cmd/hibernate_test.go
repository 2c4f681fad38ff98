//go:build linux

package cmd_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// firstPage connects to the first page of a session, which stays awake meanwhile.
func firstPage(t *testing.T, base string) *wire {
	t.Helper()
	defer dial(t, "ws"+strings.TrimPrefix(base, "http")+"/devtools/browser").conn.Close(1000, "")
	_, list := get(t, http.MethodGet, base+"/json/list")
	_, ws, _ := strings.Cut(list, `"webSocketDebuggerUrl"`)
	fields := strings.Split(ws, `"`)
	if len(fields) < 2 {
		t.Fatalf("the session has no page: %s", list)
	}
	return dial(t, fields[1])
}

// shows waits until a page's title has some text.
func (c *wire) shows(title string) {
	c.t.Helper()
	until(c.t, "the page shows "+title, func() bool {
		return strings.Contains(c.ask("Runtime.evaluate", `{"expression":"document.title"}`), title)
	})
}

func (c *wire) open(url string) {
	c.t.Helper()
	c.ask("Page.navigate", fmt.Sprintf(`{"url":%q}`, url))
}

// A named session without clients frees its part of the browser, and its next
// client gets it back: the login, the page and the downloads.
func TestHibernation(t *testing.T) {
	t.Parallel()
	site := members(t)
	w := newWorld(t)
	changed := w.visitor(site)
	p := w.proxy("--isolate", "--hibernate", "200ms", "--state", "visitor")
	base := p.url + "/session/agent"
	c := firstPage(t, base)
	c.open(site)
	c.shows("shows nobody, visitor, nothing")
	c.open(site + "/login")
	c.shows("logged in")
	c.open(site + "/inbox")
	c.shows("shows ann, s3cret-token, s3cret-key")
	asleep := func() bool { return w.run("bproxy", "session", "list", "-f", "session.hibernated").out == "true\n" }
	if asleep() {
		t.Error("a session with a client was hibernated")
	}
	c.conn.Close(1000, "")
	until(t, "the session is hibernated", asleep)
	w.run("bproxy", "downloads", "agent").wants(t, 0, "")
	w.run("bproxy", "session", "new", "agent").wants(t, 64, "already")

	c = firstPage(t, base)
	c.shows("shows ann, s3cret-token, s3cret-key")
	if got := c.ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, site+"/inbox") {
		t.Errorf("the page is at %s, want %s/inbox", got, site)
	}
	if r := w.run("bproxy", "session", "list", "-f", "session.restored_at"); strings.TrimSpace(r.out) == "" {
		t.Error("session list does not say that the session was restored")
	}
	if changed() {
		t.Error("the state with which the session has started was changed")
	}
	c.conn.Close(1000, "")
	until(t, "the session is hibernated again", asleep)

	w.killed(p.cmd)
}

// visitor saves a login for a site of members, which is not that of a member. It
// returns what reports whether it has changed.
func (w *world) visitor(site string) (changed func() bool) {
	w.t.Helper()
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	write(w.t, w.dir+"/visitor.json",
		`{"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"visitor"}]}]}`)
	w.run("bproxy", "state", "import", w.dir+"/visitor.json").wants(w.t, 0, "")
	export := func() string { return w.run("bproxy", "state", "export", "visitor").out }
	before := export()
	return func() bool { return export() != before }
}

// killed kills a program with hibernated sessions, which leave nothing.
func (w *world) killed(cmd *exec.Cmd) {
	w.t.Helper()
	if all, _ := filepath.Glob(w.dir + "/btools-run_*/hibernated-*"); len(all) != 1 {
		w.t.Errorf("the hibernated session is in %q, want one file", all)
	}
	cmd.Process.Kill()
	cmd.Wait()
	until(w.t, "the directory is gone", func() bool {
		w.run("blaunch", "gc")
		return len(w.dirs()) == 0
	})
	w.clean()
}

// A lease without clients frees its part of the browser, and its next client
// gets it back, in whichever browser there is.
func TestPoolHibernation(t *testing.T) {
	t.Parallel()
	site := members(t)
	w := newWorld(t)
	changed := w.visitor(site)
	p := w.shared("_A_INSTANCES=2", "_A_STATE=visitor", "_A_HIBERNATE=200ms")
	a := p.lease()
	base := a.Instance.HTTPURL
	c := firstPage(t, base)
	c.open(site)
	c.shows("shows nobody, visitor, nothing")
	c.open(site + "/login")
	c.shows("logged in")
	c.open(site + "/inbox")
	const member = "shows ann, s3cret-token, s3cret-key"
	c.shows(member)
	asleep := func() bool { return strings.Contains(w.run("bpool", "status").out, `"hibernated":true`) }
	if asleep() {
		t.Error("a lease with a client was hibernated")
	}
	c.conn.Close(1000, "")
	until(t, "the lease is hibernated", asleep)
	until(t, "its pages are gone", func() bool {
		_, all := get(t, http.MethodGet, w.own()+"/json/list")
		return !strings.Contains(all, site)
	})
	w.run("bpool", "downloads", a.Lease.ID).wants(t, 0, "")
	if code, body := get(t, http.MethodGet, base+"/downloads"); code != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("the downloads of the lease: %d %s, want none", code, body)
	}
	if !asleep() {
		t.Error("the list of its downloads has woken the lease")
	}

	pid := p.pid(0)
	syscall.Kill(pid, syscall.SIGKILL)
	until(t, "another browser runs", func() bool {
		i := p.status().Pools[0].Instances[0]
		return i.Status == "healthy" && i.PID != pid
	})
	c = firstPage(t, base)
	c.shows(member)
	if got := c.ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, site+"/inbox") {
		t.Errorf("the page is at %s, want %s/inbox", got, site)
	}
	if out := w.run("bpool", "status").out; !strings.Contains(out, `"restored_at"`) || asleep() {
		t.Errorf("the status does not say that the lease was restored: %s", out)
	}
	if changed() {
		t.Error("the state of the pool was changed")
	}
	other := p.lease()
	if got := shows(t, other.Instance.WSURL, site); got != "shows nobody, visitor, nothing" {
		t.Errorf("another lease shows %q", got)
	}
	w.run("bpool", "release", other.Lease.ID).wants(t, 0, "")

	c.conn.Close(1000, "")
	until(t, "the lease is hibernated again", asleep)
	w.run("bpool", "restart", "A/"+a.Lease.Instance).wants(t, 0, "")
	c = firstPage(t, base)
	if got := c.ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, "about:blank") {
		t.Errorf("after a restart the page is at %s, want about:blank", got)
	}
	c.conn.Close(1000, "")
	until(t, "its session is hibernated", asleep)
	w.killed(p.cmd)
}

// The end of a lease that is hibernated deletes what was saved.
func TestPoolHibernatedLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.shared("_A_INSTANCES=1", "_A_HIBERNATE=100ms")
	l := p.lease()
	saved := func() int {
		all, _ := filepath.Glob(w.dir + "/btools-run_*/hibernated-*")
		return len(all)
	}
	once(t, l.Instance.WSURL, "Target.getTargets", "{}")
	until(t, "the lease is hibernated", func() bool { return saved() == 1 })
	w.run("bpool", "release", l.Lease.ID).wants(t, 0, "")
	until(t, "the file is deleted", func() bool { return saved() == 0 })
	p.stop()
	w.clean()
}

func TestHibernationNeedsSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("bproxy", "--hibernate", "1m").wants(t, 64, "--isolate")
	w.run("bproxy", "--isolate", "--hibernate", "1h", "--session-idle", "30m").wants(t, 64,
		"shorter than --session-idle")
	w.run("bproxy", "--isolate", "--hibernate", "-1s").wants(t, 64, "--hibernate")
}

func TestMCPHibernationFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for args, want := range map[string]string{
		"--shared":                      "none of with --shared",
		"--session-idle 10m":            "shorter than --session-idle (10m0s)",
		"--idle 5m":                     "shorter than --idle (5m0s)",
		"--browser webkit":              "launched by the child",
		"--pool-config " + w.dir + "/p": "bpool.toml(5)",
	} {
		w.run("bmcp", append([]string{"--hibernate", "10m"}, strings.Fields(args)...)...).wants(t, 64, want)
	}
	w.run("bmcp", "--hibernate", "-1s").wants(t, 64, "0 or more")
}

// The children of a browser that no call uses are stopped, so that it is
// hibernated, and the next call gets it back and says so.
func TestMCPHibernation(t *testing.T) {
	t.Parallel()
	clients, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	const title = `"function":"() => document.title"`
	for _, c := range []struct {
		name, session, status string // the arguments that choose the browser, the tool that shows it
		env, args             []string
	}{
		{"a session_id", `,"session_id":"agent"`, "coordinator_status", nil,
			[]string{"--browser=chromium", "--hibernate=500ms", "--mcp=" + clients + "/playwright-mcp"}},
		{"a session_id, tools of bmcp", `,"session_id":"agent"`, "coordinator_status", nil,
			[]string{"--browser=chromium", "--hibernate=500ms"}},
		{"an instance of a pool", "", "browser_pool_status",
			[]string{"PW_MCP_PROXY__A_INSTANCES=1", "PW_MCP_PROXY_BROWSER=chromium",
				"PW_MCP_PROXY_ISOLATION=context", "PW_MCP_PROXY_HIBERNATE=500ms"},
			[]string{"--mcp=" + clients + "/playwright-mcp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := members(t)
			w := newWorld(t)
			m := w.startMCP(append(c.env, "HOME="+w.dir), c.args...)
			m.greet("{}")
			m.lists("browser_navigate")
			call := func(tool, args string) *rpc { return m.tool(tool, "{"+args+c.session+"}") }
			const hibernated = `hibernated; its pages were reloaded`
			shows := func(want string) {
				t.Helper()
				until(t, want, func() bool { return strings.Contains(call("browser_evaluate", title).text(t), want) })
			}
			call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/login"))
			shows("logged in")
			r := call("browser_navigate", fmt.Sprintf(`"url":%q`, site+"/inbox"))
			if strings.Contains(r.line, hibernated) {
				t.Errorf("a result of a browser that is in use says %s", r.line)
			}
			for n := range 2 {
				until(t, "the browser is hibernated", func() bool {
					text := strings.ReplaceAll(m.tool(c.status, "{}").text(t), " ", "")
					return strings.Contains(text, `"hibernated":true`)
				})
				r := call("browser_evaluate", title)
				if why := fmt.Sprint(r.tool(t).Meta["btools/restored"]); !strings.Contains(r.text(t), hibernated) ||
					!strings.Contains(why, "had not been used for 500ms and was "+hibernated) {
					t.Errorf("result %d does not say that the browser was hibernated: %s", n, r.line)
				}
				if strings.Contains(r.line, "btools/replaced") {
					t.Errorf("result %d says that the browser was replaced: %s", n, r.line)
				}
				shows("shows ann, s3cret-token, s3cret-key")
			}
			if r := call("browser_tabs", `"action":"list"`); !strings.Contains(r.text(t), "/inbox") ||
				strings.Contains(r.text(t), hibernated) {
				t.Errorf("got %s, want a tab at /inbox, and nothing of hibernation", r.line)
			}
			m.end()
			w.clean()
		})
	}
}
