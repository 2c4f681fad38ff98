//go:build linux

package clients_test

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"btools/lib/cmdtest"
)

// clientBound is how long a client may take for all of it, as in client.mjs.
const clientBound = 280 * time.Second

// clients are those that people use, by their scripts in scripts/clients.
var clients = []struct{ name, script, server string }{
	{"playwright", "playwright.mjs", ""},
	{"puppeteer", "puppeteer.mjs", ""},
	{"playwright-mcp", "mcp.mjs", "playwright"},
	{"chrome-devtools-mcp", "mcp.mjs", "devtools"},
}

// client is one that runs.
type client struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs cmdtest.SyncBuffer
}

// client starts the script of a client of the proxy; what it writes to disk
// lands in the test's directory.
func startClient(p *cmdtest.Proxy, script, site string, more ...string) *client {
	p.T.Helper()
	dir := cmdtest.Clients(p.T)
	c := &client{t: p.T, name: strings.Join(append([]string{script}, more...), " ")}
	c.cmd = p.W.Cmd("node", append([]string{filepath.Join(dir, script), p.URL, "ws://" + p.Addr + "/devtools/browser",
		site}, more...)...)
	c.cmd.Dir = p.W.Dir
	c.cmd.Env = slices.Concat(p.W.Env, []string{"HOME=" + p.W.Dir, "XDG_CACHE_HOME=" + p.W.Dir,
		"XDG_CONFIG_HOME=" + p.W.Dir, "DEBUG=puppeteer:webDriverBiDi:*"}) // shown if it fails
	c.cmd.Stderr = &c.errs
	c.cmd.WaitDelay = cmdtest.Patience // for an MCP server that outlives its client
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.T.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		p.T.Fatal(err)
	}
	cmdtest.Start(p.T, c.cmd)
	c.out = bufio.NewReader(out)
	p.T.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			c.cmd.Process.Kill()
			c.cmd.Wait()
		}
	})
	return c
}

// says waits for a line of the client; it bounds itself.
func (c *client) says(want string) {
	c.t.Helper()
	if line, err := c.out.ReadString('\n'); line != want+"\n" {
		c.cmd.Wait()
		c.t.Fatalf("%s says %q, not %q (%v, %v)\n%s", c.name, line, want, err, c.cmd.ProcessState, c.errs.String())
	}
}

// told tells the client that its browser is lost.
func (c *client) told() {
	c.t.Helper()
	if _, err := io.WriteString(c.in, "lost\n"); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

// leaves has the client end, and asserts that it does so well.
func (c *client) leaves() {
	c.t.Helper()
	c.in.Close()
	c.says("done")
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("%s: %v\n%s", c.name, err, c.errs.String())
	}
}

// TestClients has each client launch the browser by connecting, takes that
// away by a kill and by a restart, and has the client go on with the next one.
func TestClients(t *testing.T) {
	t.Parallel()
	allSurvive(t)
}

// TestClientsOfIsolated does the same with clients that each take a session for
// the browser.
func TestClientsOfIsolated(t *testing.T) {
	t.Parallel()
	allSurvive(t, "--isolate")
}

func allSurvive(t *testing.T, args ...string) {
	for _, x := range clients {
		t.Run(x.name, func(t *testing.T) {
			if x.server != "" || x.name != "playwright" || len(args) == 0 {
				cmdtest.Long(t) // TestClientsSideBySide has them
			}
			survives(t, args, func(p *cmdtest.Proxy, site string) (again, leave func()) {
				c := startClient(p, x.script, site, x.server)
				c.says("ready")
				return func() {
					c.told()
					c.says("ready")
				}, c.leaves
			})
		})
	}
	t.Run("chromedp", func(t *testing.T) {
		if len(args) > 0 {
			cmdtest.Long(t) // TestClients has it
		}
		survives(t, args, chromedpClient)
	})
}

// survives does it. start and again return when a page of the site is loaded.
func survives(t *testing.T, args []string, start func(p *cmdtest.Proxy, site string) (again, leave func())) {
	site := cmdtest.ClientSite(t)
	w := cmdtest.New(t)
	p := w.Proxy(args...)
	if s := p.Do("status"); s.Status.State != "stopped" || s.Status.Launches != 0 {
		t.Errorf("before the client: %+v", s)
	}
	again, leave := start(p, site)
	syscall.Kill(p.CheckLaunched(1, 1).Instance.PID, syscall.SIGKILL)
	again()
	p.CheckLaunched(2, 1)
	p.Do("restart")
	again()
	p.CheckLaunched(3, 1)
	leave()
	p.CheckLaunched(3, 0)
	p.Stop()
	w.Clean()
}

// chromedpClient is chromedp's remote allocator.
func chromedpClient(p *cmdtest.Proxy, site string) (again, leave func()) {
	bound, cancel := context.WithTimeout(context.Background(), clientBound)
	p.T.Cleanup(cancel)
	var tab context.Context
	var disconnect context.CancelFunc
	load := func() {
		p.T.Helper()
		var browser context.Context
		browser, disconnect = remote.NewAllocator(bound, p.URL)
		p.T.Cleanup(disconnect)
		tab, _ = chromedp.NewContext(browser)
		if err := chromedp.Do(tab, chromedp.Navigate(site+"/chromedp")); err != nil {
			p.T.Fatalf("chromedp: %v", err)
		}
		if title, err := chromedp.Run(tab, chromedp.Title()); err != nil || title != "/chromedp" {
			p.T.Fatalf("chromedp: the page has the title %q, %v", title, err)
		}
	}
	load()
	return func() {
		<-tab.Done()
		if bound.Err() != nil {
			p.T.Fatal("chromedp does not notice that its browser is lost")
		}
		disconnect()
		load()
	}, func() { disconnect() }
}

// Clients have one browser, each its pages, before and after a restart. The two that
// are servers for agents are here with LONG=1: TestMCPOnRealBrowsers has them.
func TestClientsSideBySide(t *testing.T) {
	t.Parallel()
	site := cmdtest.ClientSite(t)
	w := cmdtest.New(t)
	p := w.Proxy()
	var cs []*client
	ready := func() {
		for _, c := range cs {
			c.says("ready")
		}
	}
	for _, x := range clients {
		if x.server == "" || cmdtest.IsLong {
			cs = append(cs, startClient(p, x.script, site, x.server))
		}
	}
	ready()
	p.CheckLaunched(1, len(cs))
	p.Do("restart")
	for _, c := range cs {
		c.told()
	}
	ready()
	p.CheckLaunched(2, len(cs))
	for _, c := range cs {
		c.leaves()
	}
	p.CheckLaunched(2, 0)
	p.Stop()
	w.Clean()
}

// Firefox has one session at a time. A client that leaves without ending its
// own does not keep the next one out, nor cost a browser.
func TestClientsOfFirefox(t *testing.T) {
	t.Parallel()
	site := cmdtest.ClientSite(t)
	w := cmdtest.New(t)
	p := w.Proxy("--browser", "firefox", "--timeout", "60s")
	rounds := 1 // cmd/bproxy has two that speak the protocol by themselves
	if cmdtest.IsLong {
		rounds = 2
	}
	for range rounds {
		startClient(p, "puppeteer-bidi.mjs", site).leaves()
	}
	if s := p.Do("status"); s.Browser.Type != "firefox" || s.Status.Launches != 1 {
		t.Errorf("after its clients: %+v", s)
	}
	p.Stop()
	w.Clean()
}
