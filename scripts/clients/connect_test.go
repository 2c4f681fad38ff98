//go:build linux

package clients_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"btools/lib/cmdtest"
)

// The address of /connect is all that Playwright, Puppeteer and chromedp need for a lease, which ends with them.
func TestConnectIsLease(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const token = "sixteen-characters"
	if err := os.WriteFile(w.Dir+"/tokens", []byte("ci "+token), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.WebPool([]string{"--token-file", w.Dir + "/tokens"}, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1",
		"_A_ISOLATION=context", "_A_INSTANCES=1")
	at := strings.Replace(p.HTTP, "http", "ws", 1) + "/connect?token=" + token
	w.Node("connect.mjs", "playwright", at) // each waits for the end of the one before: there is one instance
	w.Node("connect.mjs", "puppeteer", at)
	bound, cancel := context.WithTimeout(t.Context(), clientBound)
	defer cancel()
	browser, disconnect := remote.NewAllocator(bound, at, remote.NoModifyURL)
	tab, _ := chromedp.NewContext(browser)
	if err := chromedp.Do(tab, chromedp.Navigate("data:text/html,<title>leased</title>")); err != nil {
		t.Fatal(err)
	}
	if title, err := chromedp.Run(tab, chromedp.Title()); err != nil || title != "leased" {
		t.Errorf("the page has the title %q, %v", title, err)
	}
	disconnect()
	cmdtest.Until(t, "the lease has ended", func() bool {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", p.HTTP+"/leases", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b) == "[]\n"
	})
	p.Stop()
	w.Clean()
}
