//go:build linux

package clients_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"btools/lib/cmdtest"
)

// twice is two of each client.
func twice(scripts ...string) []string { return append(scripts, scripts...) }

// isolatedClients runs clients at once, each at the addresses that at gives it.
// All of them must end well.
func isolatedClients(t *testing.T, p *cmdtest.Proxy, site string, at func(who string) (http, ws string),
	scripts ...string) {
	t.Helper()
	dir := cmdtest.Clients(t)
	var wg sync.WaitGroup
	for i, script := range scripts {
		who := fmt.Sprintf("%s-%d", strings.TrimSuffix(strings.TrimPrefix(script, "isolated-"), ".mjs"), i)
		httpURL, wsURL := at(who)
		c := p.W.Cmd("node", filepath.Join(dir, script), httpURL, wsURL, site, who, p.W.Dir)
		c.Env = slices.Concat(c.Env, []string{"HOME=" + p.W.Dir}) // others share what follows it
		wg.Go(func() {
			if out, err := cmdtest.Combined(c); err != nil || string(out) != "done\n" {
				t.Errorf("%s: %v\n%s", who, err, out)
			}
		})
	}
	wg.Wait()
}

// A Playwright and a Puppeteer client at once, each with an anonymous session
// each time.
func TestIsolatedClients(t *testing.T) {
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--session-grace", "0s")
	isolatedClients(t, p, site, func(string) (string, string) { return p.URL, "" }, "isolated-playwright.mjs",
		"isolated-puppeteer.mjs")
	cmdtest.Until(t, "the sessions end", func() bool { return p.Sessions() == "" })
	p.CheckLaunched(1, 0)
	p.Stop()
	w.Clean()
}

// The same on named sessions, which keep what they have over three
// connections, and with clients that open a connection for each page. The
// session of one of them is the browser's default context.
func TestClientsOfSessions(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--default-session", "playwright-0")
	at := func(who string) (string, string) {
		return p.URL + "/session/" + who, "ws" + strings.TrimPrefix(p.URL, "http") + "/session/" + who +
			"/devtools/browser/" + who
	}
	var wg sync.WaitGroup
	for _, who := range []string{"chromedp-1", "chromedp-2"} {
		wg.Go(func() {
			_, ws := at(who)
			chromedpSession(t, ws, site, who)
		})
	}
	isolatedClients(t, p, site, at, twice("isolated-playwright.mjs", "isolated-puppeteer.mjs", "isolated-cri.mjs")...)
	wg.Wait()
	if got := len(strings.Fields(p.Sessions())); got != 8 {
		t.Errorf("there are %d sessions, want 8: %s", got, p.Sessions())
	}
	p.CheckLaunched(1, 0)
	p.Stop()
	w.Clean()
}

// chromedpSession is a client by chromedp, which takes no address of a browser
// but one that ends in /devtools/browser/ID.
func chromedpSession(t *testing.T, url, site, who string) {
	bound, cancel := context.WithTimeout(t.Context(), clientBound)
	defer cancel()
	for round := range 3 {
		browser, disconnect := remote.NewAllocator(bound, url)
		defer disconnect()
		tab, _ := chromedp.NewContext(browser)
		if err := chromedp.Do(tab, chromedp.Navigate(site+"/page?"+who)); err != nil {
			t.Errorf("%s, round %d: %v", who, round, err)
			return
		}
		if title, err := chromedp.Run(tab, chromedp.Title()); err != nil || title != "/page" {
			t.Errorf("%s, round %d: the page has the title %q, %v", who, round, title, err)
		}
		targets, err := chromedp.Targets(tab)
		if err != nil {
			t.Errorf("%s, round %d: %v", who, round, err)
		}
		for _, x := range targets {
			if x.URL != "about:blank" && !strings.HasSuffix(x.URL, "?"+who) {
				t.Errorf("%s sees %s", who, x.URL)
			}
		}
		disconnect()
	}
}
