//go:build linux

package clients_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Clients of a browser that has joined, with LONG=1 one of each kind at once: none of
// them sees the tabs of another one or of the user, and none leaves a tab.
func TestExtensionClients(t *testing.T) {
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p, chrome, _, j := w.WithJoined("--session-grace", "0s")
	if i := j.Instance; i.Protocol != "cdp" || i.Source != "extension" || i.HTTPURL != p.URL+"/session/"+i.ID ||
		!strings.Contains(j.Joined.UserAgent, "Chrome/") || j.Joined.Tabs != 0 {
		t.Errorf("the record is %+v", j)
	}
	before := cmdtest.Tabs(t, chrome)
	scripts := []string{"extension-playwright.mjs"}
	if cmdtest.IsLong {
		scripts = append(scripts, "extension-puppeteer.mjs")
	}
	isolatedClients(t, p, site, func(string) (string, string) { return j.Instance.HTTPURL, j.Instance.WSURL },
		scripts...)
	cmdtest.Until(t, "the tabs of the clients are closed", func() bool {
		return slices.Equal(cmdtest.Tabs(t, chrome),
			before)
	})
}

// The same browser in a window.
func TestExtensionInWindow(t *testing.T) {
	t.Parallel()
	cmdtest.Long(t)
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p := w.Hub("--session-grace", "0s")
	w.Env = append(w.Env, "DISPLAY="+cmdtest.Display(t))
	w.Run("blaunch", "--no-input", "--browser", "chromium", "--no-headless", "--extension").Exits(t, 0, "")
	j := p.AwaitJoined("the browser joins", cmdtest.AnyJoined)
	isolatedClients(t, p, site, func(string) (string, string) { return j.Instance.HTTPURL, j.Instance.WSURL },
		"extension-playwright.mjs", "extension-puppeteer.mjs")
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
	cmdtest.Until(t, "the instance is gone", func() bool { return len(p.Joined()) == 0 })
}

// What the extension's own page says and does.
func TestExtensionPage(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Hub()
	dir := filepath.Join(w.Dir, "plain")
	w.Run("bproxy", "extension", "--hub", p.URL, dir).Exits(t, 0, "")
	chrome, _ := cmdtest.ChromiumWith(t, dir)
	code, err := os.ReadFile(w.Dir + "/code")
	if err != nil {
		t.Fatal(err)
	}
	script := cmdtest.Clients(t) + "/extension-page.mjs"
	c := w.Cmd("node", script, chrome, p.URL, strings.TrimSpace(string(code)), w.Dir)
	c.Env = append(c.Env, "HOME="+w.Dir)
	if out, err := cmdtest.Combined(c); err != nil || string(out) != "done\n" {
		t.Errorf("the page: %v\n%s", err, out)
	}
}

func TestExtensionOtherClients(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	_, chrome, _, j := w.WithJoined("--session-grace", "0s")
	before := cmdtest.Tabs(t, chrome)
	chromedpSession(t, j.Instance.WSURL+"/chromedp", site, "chromedp")
	node := cmdtest.Clients(t) + "/node_modules/.bin/playwright-mcp"
	m := w.Cmd(node, "--cdp-endpoint", j.Instance.HTTPURL)
	m.Stdin = strings.NewReader(cmdtest.FirstRequest("2025-06-18") + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"browser_navigate",` +
		`"arguments":{"url":"` + site + `/page?mcp"}}}` + "\n")
	in := m.Stdin
	m.Stdin = nil
	stdin, err := m.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out cmdtest.SyncBuffer
	m.Stdout = &out
	cmdtest.Start(t, m)
	io.Copy(stdin, in)
	cmdtest.Until(t, "@playwright/mcp opens a page", func() bool {
		return strings.Contains(out.String(),
			"Page Title: /page")
	})
	stdin.Close()
	m.Wait()
	cmdtest.Until(t, "the tabs of the clients are closed", func() bool {
		return slices.Equal(cmdtest.Tabs(t, chrome),
			before)
	})
}
