//go:build linux

package cmd_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// firstPage connects to the first page of a session.
func firstPage(t *testing.T, base string) *wire {
	t.Helper()
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
	p := w.proxy("--isolate", "--hibernate", "200ms")
	base := p.url + "/session/agent"
	c := firstPage(t, base)
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
	c.conn.Close(1000, "")
	until(t, "the session is hibernated again", asleep)

	// Nothing outlives the program.
	p.cmd.Process.Signal(syscall.SIGKILL)
	p.cmd.Wait()
	until(t, "the directory is gone", func() bool {
		w.run("blaunch", "gc")
		return len(w.dirs()) == 0
	})
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
