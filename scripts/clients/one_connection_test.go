//go:build linux

package clients_test

import (
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// Clients at the same time, with /json and health checks besides, cost one question. One of them is killed; the others stay.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, scripts []string }{
		{nil, []string{"playwright.mjs", "puppeteer.mjs"}},
		{[]string{"--isolate"}, []string{"puppeteer.mjs", "puppeteer.mjs"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			site := cmdtest.ClientSite(t)
			w := cmdtest.New(t)
			chrome := w.Consent()
			chrome.NoJSON = true
			p := w.Proxy(append(c.args, "--one-connection", "--target", chrome.WSURL, "--health-interval", "50ms")...)
			chrome.CheckAsked(t, 0, 0)
			var cs []*client
			for _, script := range c.scripts {
				cs = append(cs, startClient(p, script, site))
			}
			for _, c := range cs {
				c.says("ready")
			}
			for _, path := range []string{"/json/version", "/json/list", "/json"} {
				if code, body := cmdtest.Get(t, "GET", p.URL+path); code != 200 {
					t.Errorf("%s: %d %s", path, code, body)
				}
			}
			cs[0].cmd.Process.Kill()
			cs[0].cmd.Wait()
			cmdtest.Until(t, "the killed client is gone", func() bool { return p.Do("status").Status.WebSockets == 1 })
			chrome.CheckAsked(t, 1, 0)
			syscall.Kill(chrome.PID, syscall.SIGKILL)
			for _, c := range cs[1:] {
				c.told() // and waits until it has noticed; then it finds no browser
			}
			for _, c := range cs[1:] {
				if c.cmd.Wait(); strings.Contains(c.errs.String(), "no end after") {
					t.Errorf("%s does not notice that its browser is lost", c.name)
				}
			}
			p.Stop()
		})
	}
}
