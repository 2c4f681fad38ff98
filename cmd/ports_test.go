//go:build linux

package cmd_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Every port refuses a page of a browser that the state file lists, even one that a
// person might have opened; and no other program of this machine.
func TestPortsRefuseBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	pool := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--http", "127.0.0.1:0", "--stop-timeout", "300ms",
		"--drain-timeout", "0s")}
	pool.Cmd.Env = append(pool.Cmd.Env, "PW_MCP_PROXY_BROWSER=chrome-headless-shell", "PW_MCP_PROXY__A_INSTANCES=2",
		"PW_MCP_PROXY__A_ISOLATION=context", "PW_MCP_PROXY__A_IS_DEFAULT=1")
	pool.Start()
	browser, other := pool.Lease(), pool.Lease()
	fake := []string{"--browser", cmdtest.Bin + "/fakebrowser"}
	mcp, stop := w.ServeMCP(nil, "--no-child")
	ports := map[string]string{
		"bproxy":              w.Proxy(fake...).URL + "/json/version",
		"a session of bproxy": w.Proxy(append(fake, "--isolate")...).URL + "/session/me/json/list",
		"the hub":             w.Hub().URL + "/json/list",
		"bpool":               pool.HTTP + "/status",
		"a lease of bpool":    other.Instance.HTTPURL + "/json/list",
		"bmcp":                mcp,
		"its own lease":       browser.Instance.HTTPURL + "/json/list",
		"bproxy by a name":    strings.Replace(w.Proxy(fake...).URL, "127.0.0.1", "localhost", 1) + "/json/version",
	}
	for name, url := range ports {
		if got := cmdtest.Visit(t, browser.Instance.WSURL, url); !strings.Contains(got,
			"requests from a browser of blaunch are refused") {
			t.Errorf("%s: a page shows %s: %s", name, url, got)
		}
		if strings.Contains(name, "bproxy") {
			continue // it would launch a browser
		}
		if code, body := cmdtest.Get(t, "GET", url); code == 403 {
			t.Errorf("%s: a program gets %d %s", name, code, body)
		}
	}
	stop()
	pool.Stop()
}
