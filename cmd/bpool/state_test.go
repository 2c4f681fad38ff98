//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// shows returns what a page of members shows in a new page.
func shows(t *testing.T, ws, site string) string {
	t.Helper()
	c := cmdtest.Dial(t, ws)
	target := jsonrpc.GetString(cmdtest.ResultOf(t, c.Ask("Target.createTarget", `{"url":"about:blank"}`)), "targetId")
	page := cmdtest.Dial(t, ws[:strings.Index(ws, "/devtools/")]+"/devtools/page/"+target)
	page.Ask("Page.navigate", `{"url":"`+site+`"}`)
	got := page.Ask("Runtime.evaluate", `{"awaitPromise":true,"expression":"new Promise((done) => {`+
		`const look = () => (document.title ? done(document.title) : setTimeout(look, 10)); look() })"}`)
	return jsonrpc.GetString(cmdtest.ResultOf(t, got), "result", "value")
}

func TestPoolStates(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.LoginSite(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	cmdtest.WriteFile(t, w.Dir+"/base.json",
		`{"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"base"}]}]}`)
	w.Run("bpool", "state", "import", w.Dir+"/base.json").Exits(t, 0, "")
	p := w.Shared("_A_INSTANCES=2", "_A_STATE=base", "_B_INSTANCES=1", "_B_START=lazy", "_B_ISOLATION=process")
	a := p.Lease()
	if got := shows(t, a.Instance.WSURL, site); got != "shows nobody, base, nothing" {
		t.Errorf("a lease of the pool's state shows %q", got)
	}
	if got := shows(t, a.Instance.WSURL, site+"/login"); got != "logged in" {
		t.Fatalf("got %v, want %v", got, "logged in")
	}
	fields := "state.name,state.saved_at,state.size_bytes"
	save := w.Run("bpool", "state", "save", "ann", "--from", a.Lease.ID, "-f", fields)
	save.Exits(t, 0, "")
	if show := w.Run("bpool", "state", "show", "ann", "-f", fields).Out; save.Out != show {
		t.Errorf("the saved state is %q, and shown as %q", save.Out, show)
	}
	b := p.Lease("--state", "ann")
	if got := shows(t, b.Instance.WSURL, site); got != "shows ann, s3cret-token, s3cret-key" {
		t.Errorf("a lease with a state shows %q", got)
	}
	c := cmdtest.Dial(t, b.Instance.WSURL)
	c.Ask("Browser.close", "{}") // the lease gets another session
	c.AwaitEnd()
	cmdtest.Until(t, "a new session with the state", func() bool {
		code, _ := cmdtest.Get(t, "GET", b.Instance.HTTPURL+"/json/version")
		return code == 200
	})
	if got := shows(t, b.Instance.WSURL, site); got != "shows ann, s3cret-token, s3cret-key" {
		t.Errorf("the lease's next session shows %q", got)
	}
	w.Run("bpool", "release", a.Lease.ID).Exits(t, 0, "")
	w.Run("bpool", "state", "save", "ann", "--from", a.Lease.ID).Exits(t, 69, "there is no lease")
	w.Run("bpool", "lease", "--state", "nobody").Exits(t, 69, `there is no state "nobody"`)
	w.Run("bpool", "lease", "B", "--state", "ann").Exits(t, 64, "has a browser to itself")
	status := w.Run("bpool", "status")
	if !strings.Contains(status.Out, `"login":{"name":"ann"}`) || strings.Contains(status.Out, "s3cret") {
		t.Errorf("the status is %s", status.Out)
	}
	p.Stop()
	w.Clean()
}
