//go:build linux

package clients_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The app of browser_view runs in a host on @modelcontextprotocol/ext-apps in a browser, also twice, and in one that
// never answers.
func TestViewAppInBrowser(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	r := w.With("HOME="+w.Dir).Run("node", cmdtest.Clients(t)+"/view-host.mjs", p.URL+"/session/agent",
		p.URL+"/session/viewer", cmdtest.Bin+"/bmcp")
	if r.Code != 0 || !strings.HasPrefix(r.Out, "done ") {
		t.Errorf("%+v", r)
	}
	t.Logf("pictures, ms at the middle and at most: %s", strings.TrimPrefix(r.Out, "done "))
}
