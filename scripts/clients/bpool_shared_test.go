//go:build linux

package clients_test

import (
	"sync"
	"testing"

	"btools/lib/cmdtest"
)

// Two of each client at once, each with a lease, see nothing of the others.
func TestSharedPoolClients(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	site := cmdtest.IsolatedSite(t)
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=8")
	at := func(string) (string, string) {
		l := p.Lease()
		return l.Instance.HTTPURL, l.Instance.WSURL
	}
	var wg sync.WaitGroup
	for _, who := range []string{"chromedp-1", "chromedp-2"} {
		_, ws := at(who)
		wg.Go(func() { chromedpSession(t, ws, site, who) })
	}
	isolatedClients(t, &cmdtest.Proxy{T: t, W: w}, site, at,
		twice("isolated-playwright.mjs", "isolated-puppeteer.mjs", "isolated-cri.mjs")...)
	wg.Wait()
	if n := len(w.Browsers()); n != 1 || p.Status().Summary.Leased != 8 {
		t.Errorf("%d browsers run", n)
	}
	p.Stop()
	w.Clean()
}
