//go:build linux

package cmd_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

// clientBound is how long a client may take for all of it.
const clientBound = 2 * time.Minute

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
	errs syncBuffer
}

// client starts the script of a client of the proxy; what it writes to disk
// lands in the test's directory.
func (p *proxy) client(script, site string, more ...string) *client {
	p.t.Helper()
	dir, err := filepath.Abs("../scripts/clients")
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/node_modules"); err != nil {
		p.t.Fatalf("the clients are not installed (scripts/install-deps test does it): %v", err)
	}
	c := &client{t: p.t, name: strings.Join(append([]string{script}, more...), " ")}
	c.cmd = p.w.cmd("node", append([]string{filepath.Join(dir, script), p.url, "ws://" + p.addr + "/devtools/browser",
		site}, more...)...)
	c.cmd.Dir = p.w.dir
	c.cmd.Env = slices.Concat(p.w.env, []string{"HOME=" + p.w.dir, "XDG_CACHE_HOME=" + p.w.dir,
		"XDG_CONFIG_HOME=" + p.w.dir})
	c.cmd.Stderr = &c.errs
	c.cmd.WaitDelay = patience // for an MCP server that outlives its client
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	p.t.Cleanup(func() {
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

// clientSite serves pages whose titles are their paths.
func clientSite(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<!doctype html><title>%s</title>", html.EscapeString(r.URL.Path))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// launched asserts how many browsers the proxy has launched by now, that the
// last of them is the only one that runs (no client has its own), and how many
// clients it has. One that has just left may take a moment to be seen to.
func (p *proxy) launched(launches, clients int) (s status) {
	p.t.Helper()
	until(p.t, fmt.Sprintf("%d clients", clients), func() bool {
		s = p.do("status")
		return s.Status.WebSockets == clients
	})
	if s.Status.State != "ready" || s.Status.Launches != launches {
		p.t.Errorf("want launch %d: %+v", launches, s)
	}
	var browsers []string
	for _, o := range p.w.ours() {
		if strings.Contains(o, "--user-data-dir") && !strings.Contains(o, "--type=") {
			browsers = append(browsers, o)
		}
	}
	if len(browsers) != 1 || !strings.HasPrefix(browsers[0], strconv.Itoa(s.Instance.PID)+" ") {
		p.t.Errorf("want only the browser %d:\n%s", s.Instance.PID, strings.Join(browsers, "\n"))
	}
	return s
}

// TestClients has each client launch the browser by connecting, takes that
// away by a kill and by a restart, and has the client go on with the next one.
func TestClients(t *testing.T) { allSurvive(t) }

// TestClientsOfIsolated does the same with clients that each take a session for
// the browser.
func TestClientsOfIsolated(t *testing.T) { allSurvive(t, "--isolate") }

func allSurvive(t *testing.T, args ...string) {
	for _, x := range clients {
		t.Run(x.name, func(t *testing.T) {
			survives(t, args, func(p *proxy, site string) (again, leave func()) {
				c := p.client(x.script, site, x.server)
				c.says("ready")
				return func() {
					c.told()
					c.says("ready")
				}, c.leaves
			})
		})
	}
	t.Run("chromedp", func(t *testing.T) { survives(t, args, chromedpClient) })
}

// survives does it. start and again return when a page of the site is loaded.
func survives(t *testing.T, args []string, start func(p *proxy, site string) (again, leave func())) {
	site := clientSite(t)
	w := newWorld(t)
	p := w.proxy(args...)
	if s := p.do("status"); s.Status.State != "stopped" || s.Status.Launches != 0 {
		t.Errorf("before the client: %+v", s)
	}
	again, leave := start(p, site)
	syscall.Kill(p.launched(1, 1).Instance.PID, syscall.SIGKILL)
	again()
	p.launched(2, 1)
	p.do("restart")
	again()
	p.launched(3, 1)
	leave()
	p.launched(3, 0)
	p.stop()
	w.clean()
}

// chromedpClient is chromedp's remote allocator.
func chromedpClient(p *proxy, site string) (again, leave func()) {
	bound, cancel := context.WithTimeout(context.Background(), clientBound)
	p.t.Cleanup(cancel)
	var tab context.Context
	var disconnect context.CancelFunc
	load := func() {
		p.t.Helper()
		var browser context.Context
		browser, disconnect = remote.NewAllocator(bound, p.url)
		p.t.Cleanup(disconnect)
		tab, _ = chromedp.NewContext(browser)
		if err := chromedp.Do(tab, chromedp.Navigate(site+"/chromedp")); err != nil {
			p.t.Fatalf("chromedp: %v", err)
		}
		if title, err := chromedp.Run(tab, chromedp.Title()); err != nil || title != "/chromedp" {
			p.t.Fatalf("chromedp: the page has the title %q, %v", title, err)
		}
	}
	load()
	return func() {
		<-tab.Done()
		if bound.Err() != nil {
			p.t.Fatal("chromedp does not notice that its browser is lost")
		}
		disconnect()
		load()
	}, func() { disconnect() }
}

// Four clients have one browser, each its pages, before and after a restart.
func TestClientsSideBySide(t *testing.T) {
	t.Parallel()
	site := clientSite(t)
	w := newWorld(t)
	p := w.proxy()
	var cs []*client
	ready := func() {
		for _, c := range cs {
			c.says("ready")
		}
	}
	for _, x := range clients {
		cs = append(cs, p.client(x.script, site, x.server))
	}
	ready()
	p.launched(1, len(cs))
	p.do("restart")
	for _, c := range cs {
		c.told()
	}
	ready()
	p.launched(2, len(cs))
	for _, c := range cs {
		c.leaves()
	}
	p.launched(2, 0)
	p.stop()
	w.clean()
}

// Firefox has one session at a time. A client that leaves without ending its
// own does not keep the next one out, nor cost a browser.
func TestClientsOfFirefox(t *testing.T) {
	t.Parallel()
	site := clientSite(t)
	w := newWorld(t)
	p := w.proxy("--browser", "firefox", "--timeout", "60s")
	for range 3 {
		p.client("puppeteer-bidi.mjs", site).leaves()
	}
	if s := p.do("status"); s.Browser.Type != "firefox" || s.Status.Launches != 1 {
		t.Errorf("after three clients: %+v", s)
	}
	p.stop()
	w.clean()
}
