//go:build linux

package main_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A page is really loaded over the network, has the size of one on a desktop, is not
// told that a program drives it, and no part of the browser crashes meanwhile.
func TestPageLoads(t *testing.T) {
	t.Parallel()
	site := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<script>document.title = ['page', innerWidth, innerHeight, navigator.webdriver]</script>")
	})
	for _, typ := range []string{"chromium", "chrome-headless-shell"} {
		w := cmdtest.New(t)
		c := w.Cmd("blaunch", "--wait", "--log-level", "debug", "--browser", typ, "--url", site)
		var errs strings.Builder
		c.Stderr = &errs
		cmdtest.Start(t, c)
		cmdtest.Until(t, "the page is loaded", func() bool {
			r := w.Run("blaunch", "list", "-f", "instance.http_url")
			if r.Out == "" {
				return false
			}
			_, pages := cmdtest.Get(t, "GET", strings.TrimSpace(r.Out)+"/json/list")
			return strings.Contains(pages, "page,1280,720,false")
		})
		w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
		c.Wait()
		if strings.Contains(errs.String(), "rash") {
			t.Errorf("%s:\n%s", typ, errs.String())
		}
		w.Clean()
	}
}
