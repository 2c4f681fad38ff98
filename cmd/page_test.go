//go:build linux

package cmd_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page is really loaded over the network, and no part of the browser
// crashes meanwhile.
func TestPageLoads(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<title>it is loaded</title>")
	}))
	defer site.Close()
	for _, typ := range []string{"chromium", "chrome-headless-shell"} {
		w := newWorld(t)
		c := w.cmd("blaunch", "--wait", "--log-level", "debug", "--browser", typ, "--url", site.URL)
		var errs strings.Builder
		c.Stderr = &errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the page is loaded", func() bool {
			r := w.run("blaunch", "list", "-f", "instance.http_url")
			if r.out == "" {
				return false
			}
			_, pages := get(t, "GET", strings.TrimSpace(r.out)+"/json/list")
			return strings.Contains(pages, "it is loaded")
		})
		w.run("blaunch", "stop", "--all").wants(t, 0, "")
		c.Wait()
		if strings.Contains(errs.String(), "rash") {
			t.Errorf("%s:\n%s", typ, errs.String())
		}
		w.clean()
	}
}
