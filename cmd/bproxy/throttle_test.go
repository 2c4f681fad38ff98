//go:build linux

package main_test

import (
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// A session's own time until it is throttled overrides that of the proxy.
func TestThrottledSessions(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--session-throttle", "0")
	w.Run("bproxy", "session", "new", "quick", "--throttle", "-1s").Exits(t, 64, "must be a duration")
	w.Run("bproxy", "session", "end", "quick", "--throttle", "1s").Exits(t, 64, "applies to a new session")
	w.Run("bproxy", "session", "new", "quick", "--throttle", "100ms").Exits(t, 0, "")
	site, hidden := cmdtest.ObservedSite(t)
	other, otherHidden := cmdtest.ObservedSite(t)
	cmdtest.FirstPage(t, p.URL+"/session/slow").Open(other)
	c := cmdtest.FirstPage(t, p.URL+"/session/quick")
	c.Open(site)
	cmdtest.Until(t, "the unused page is hidden", hidden)
	got := cmdtest.ResultOf(t, c.Ask("Runtime.evaluate", `{"expression":"document.visibilityState"}`))
	if state := jsonrpc.GetString(got, "result", "value"); state != "visible" {
		t.Errorf("a command finds the page %q, want visible", state)
	}
	if otherHidden() {
		t.Error("a page of a session that is never throttled was hidden")
	}
	p.Stop()
	w.Clean()
}
