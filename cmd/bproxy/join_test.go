//go:build linux

package main_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// A browser has one holder at a time. The holder learns that it has left; who
// lets it go leaves it to the next one, without the tabs of its session.
func TestJoin(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bproxy", "join").Exits(t, 69, "no bproxy hub is running")
	p, chrome, process, j := w.WithJoined()
	hub := []string{p.URL[strings.LastIndex(p.URL, ":")+1:]}
	w.CheckOffers(map[string][]string{"bproxy join ": {j.Instance.ID}, "bproxy join --port ": hub,
		"blaunch --hub=": hub})
	before := cmdtest.Tabs(t, chrome)
	first := w.Join("--session")
	i := first.Instance
	if i.Source != "extension" || !strings.HasPrefix(i.HTTPURL, p.URL+"/session/"+i.ID+"/session/") ||
		i.WSURL != strings.Replace(i.HTTPURL, "http", "ws", 1)+"/devtools/browser" {
		t.Errorf("the record has %+v, want a session below %s", i, p.URL)
	}
	if got := cmdtest.Tabs(t, chrome); !slices.Equal(got, before) {
		t.Errorf("a holder without a client has opened the tabs %v", got)
	}
	cmdtest.NewTab(t, i.HTTPURL)
	if got := cmdtest.Tabs(t, chrome); len(got) <= len(before) {
		t.Errorf("the session has opened none of the tabs %v", got)
	}
	name := i.HTTPURL[strings.LastIndex(i.HTTPURL, "/")+1:]
	port := p.URL[strings.LastIndex(p.URL, ":")+1:]
	if got := w.Run("bproxy", "session", "list", "--port="+port).Out; !strings.Contains(got, `"name":"`+name+`"`) {
		t.Errorf("the sessions of the hub are %s", got)
	}
	// The browser is somebody's own: its process and its profile are not known.
	if got := w.Run("bproxy", "list").Out; strings.Contains(got, `"pid":0`) ||
		strings.Contains(got, `"user_data_dir":`) {
		t.Errorf("the record of a browser that has joined is %s", got)
	}
	w.Run("bproxy", "join", "--timeout=200ms").Exits(t, 75, "no free browser has joined in time")

	first.Cmd.Process.Signal(syscall.SIGTERM)
	if code := first.Code(t); code != 0 {
		t.Errorf("it was told to end, and ended with %d: %s", code, first.Errs.String())
	}
	cmdtest.Until(t, "the tabs of the first holder are closed", func() bool {
		return slices.Equal(cmdtest.Tabs(t,
			chrome), before)
	})
	second := w.Join(i.ID)
	w.CheckOffers(map[string][]string{"bproxy join ": nil}, "bash") // it is claimed
	if second.Instance.ID != i.ID || second.Instance.HTTPURL != p.URL+"/session/"+i.ID {
		t.Errorf("the record has %+v, want the browser %s", second.Instance, i.ID)
	}
	w.Run("bproxy", "join", "--timeout=200ms", i.ID).Exits(t, 75, "no free browser has joined in time")
	process.Signal(syscall.SIGKILL)
	if code := second.Code(t); code != 69 || !strings.Contains(second.Errs.String(), "the browser has left") {
		t.Errorf("the browser left, and it ended with %d: %s", code, second.Errs.String())
	}
	p.Stop()
}
