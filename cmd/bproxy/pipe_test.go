//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// The browser of sessions listens on no port, so that no page can reach it, and
// whatever is killed, it ends.
func TestIsolatedBrowserHasNoPort(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	start := func() (p *cmdtest.Proxy, at string) {
		p = w.Proxy("--isolate", "--browser", "chrome-headless-shell", "--profile", w.Dir+"/profile",
			"--health-interval", "100ms")
		return p, "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/browser"
	}
	p, at := start()
	c := cmdtest.Dial(t, at)
	c.Ask("Browser.getVersion", "{}")
	status := w.Run("bproxy", "status")
	var s struct {
		Instance map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(status.Out), &s); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"host", "port", "http_url", "ws_url"} {
		if v := s.Instance[name]; v != nil {
			t.Errorf("the record has %s: %s", name, v)
		}
	}
	var pid, supervisor int
	json.Unmarshal(s.Instance["pid"], &pid)
	json.Unmarshal(s.Instance["supervisor_pid"], &supervisor)
	if all := cmdtest.Listening(t, pid); pid == 0 || len(all) > 0 {
		t.Errorf("the browser %d listens: %v", pid, all)
	}
	if code, body := cmdtest.Get(t, "GET", p.URL+"/session/one/json/protocol"); code != 200 ||
		!strings.Contains(body, `"domain":"Browser"`) {
		t.Errorf("/json/protocol: %d %.100s", code, body)
	}
	// Nor can a page reach the session of another client at bproxy's port.
	if got := cmdtest.Visit(t, at, p.URL+"/session/two/json/list"); !strings.Contains(got, "from a browser") {
		t.Errorf("a page that opens another session's address shows %s", got)
	}
	if all := p.Sessions(); all != "one" {
		t.Errorf("the sessions are %q", all)
	}
	gone := func(pid int) {
		t.Helper()
		cmdtest.Until(t, "the browser is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	}

	syscall.Kill(supervisor, syscall.SIGKILL)
	c.AwaitEnd()
	gone(pid)
	c = cmdtest.Dial(t, at)
	c.Ask("Browser.getVersion", "{}")

	pid = p.Do("status").Instance.PID
	syscall.Kill(pid, syscall.SIGKILL)
	c.AwaitEnd()
	c = cmdtest.Dial(t, at)
	c.Ask("Browser.getVersion", "{}")

	p.Stop()
	c.AwaitEnd()
	w.Clean()
	if _, err := os.Lstat(w.Dir + "/profile/SingletonLock"); err == nil {
		t.Error("the browser did not end well: it has left its lock in the profile")
	}

	p, at = start()
	c = cmdtest.Dial(t, at)
	c.Ask("Browser.getVersion", "{}")
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	c.AwaitEnd()
	w.Clean()
}

// A browser that cannot start says why, as one with a port does.
func TestIsolatedBrowserFails(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for what, want := range map[string]string{"exit": "exited with code", "nodisplay": "there is no display",
		"hang": "has not answered on its pipe after 2s"} {
		p := w.Proxy("--isolate", "--timeout", "2s", "--browser", cmdtest.Bin+"/fakebrowser", "--env", "FAKE="+what,
			"--stop-timeout", "300ms")
		if code, body := cmdtest.Get(t, "GET", p.URL+"/session/one/json/version"); code != 502 ||
			!strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", what, code, body, want)
		}
		p.Stop()
	}
	w.Clean()
}
