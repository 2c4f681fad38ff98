//go:build linux

package main

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cdp"
	. "btools/lib/cmdtest"
)

// A browser that runs is used as it is or in a context of its own, and stays as it was.
func TestCallCDP(t *testing.T) {
	t.Parallel()
	w := New(t)
	x := Parse(t, w.Run("blaunch", "--browser", "chrome-headless-shell"))
	chrome, err := cdp.Dial(t.Context(), x.Instance.WSURL, func(cdp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	defer chrome.Close()
	person := map[string]string{"url": "data:text/html,<title>Person</title><h1>Mine</h1>"}
	if err := chrome.Call(t.Context(), "", "Target.createTarget", person, nil); err != nil {
		t.Fatal(err)
	}
	pages := func() (all string) {
		var got struct{ TargetInfos []struct{ Type, URL string } }
		if err := chrome.Call(t.Context(), "", "Target.getTargets", nil, &got); err != nil {
			t.Fatal(err)
		}
		for _, i := range got.TargetInfos {
			if i.Type == "page" {
				all += i.URL + "\n"
			}
		}
		return all
	}
	Until(t, "the person's page is there", func() bool { return strings.Contains(pages(), "Person") })
	before := pages()
	port := x.Instance.HTTPURL[strings.LastIndex(x.Instance.HTTPURL, ":")+1:]
	runs := func(code int, want string, args ...string) {
		t.Helper()
		if r := w.Run("bmcp", args...); r.Code != code || !strings.Contains(r.Out+r.Err, want) {
			t.Errorf("%q: exit %d, want %d and %q: %s%s", args, r.Code, code, want, r.Out, r.Err)
		}
	}
	runs(0, "<title>Person", "call", "--cdp", port, "tabs", "list")
	runs(0, "<title>Person", "call", "--session", "two", "--cdp", x.Instance.WSURL, "tabs", "list")
	runs(0, "about:blank", "call", "tabs", "new")
	runs(0, "Opened", "call", "navigate", "data:text/html,<title>Opened</title><a target=_blank href=about:blank>x</a>")
	runs(0, "Opened tab", "call", "click", "a")
	runs(0, "Own", "call", "--session", "own", "--cdp", port, "--isolated", "navigate",
		"data:text/html,<title>Own</title>")
	if r := w.Run("bmcp", "call", "--session", "own", "tabs", "list"); strings.Contains(r.Out, "Person") {
		t.Errorf("a context of its own shows the tabs of others: %s", r.Out)
	}
	for _, p := range w.State().Proxies { // the connection is lost, and the next call connects again
		syscall.Kill(p.Process.PID, syscall.SIGKILL)
	}
	runs(0, "Opened", "call", "tabs", "list")
	runs(0, "about:blank", "call", "tabs", "new")
	runs(0, "", "end", "--all")
	Until(t, "only the person's tabs are left", func() bool { return pages() == before })

	runs(0, "about:blank", "call", "--cdp", port, "tabs", "new")
	for _, s := range w.State().Calls {
		syscall.Kill(s.Process.PID, syscall.SIGKILL)
	}
	if pages() == before {
		t.Error("the tabs of a killed program are not left") // so the next lines test nothing
	}
	runs(0, "<title>Person", "call", "--cdp", "localhost:"+port, "tabs", "list")
	Until(t, "the tabs of a killed program are closed by the next one", func() bool { return pages() == before })
	runs(0, "", "end", "--all")

	taken := Serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	runs(69, ".test (process", "call", "--session", "taken", "--cdp", taken, "snapshot")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	runs(69, "nothing listens there", "call", "--session", "dead", "--cdp", dead.Addr().String(), "snapshot")
	chrome.Close()
	w.Run("bmcp", "end", "--all")
	w.Run("blaunch", "stop", "--all")
	w.Clean()
}

// A session of bproxy share is a browser that runs, too, and has no contexts for others.
func TestCDPOfSession(t *testing.T) {
	t.Parallel()
	w := New(t)
	p := w.Proxy("--isolate", "--browser", "chrome-headless-shell")
	at := p.URL + "/session/mine"
	for _, at := range []string{at, "ws" + strings.TrimPrefix(at, "http") + "/devtools/browser/mine", p.URL,
		strings.Replace(p.URL, "127.0.0.1", "localhost", 1)} {
		if r := w.Run("bmcp", "call", "--session", "s", "--cdp", at, "navigate", "about:blank#there"); r.Code != 0 {
			t.Errorf("%s: exit %d: %s%s", at, r.Code, r.Out, r.Err)
		}
		w.Run("bmcp", "end", "s")
	}
	if r := w.Run("bmcp", "call", "--cdp", at, "--isolated", "snapshot"); r.Code != 64 {
		t.Errorf("--isolated there: exit %d: %s", r.Code, r.Err)
	}
	p.Stop()
	w.Clean()
}

// Options that contradict --cdp are refused before a host has come.
func TestCDPRefuses(t *testing.T) {
	t.Parallel()
	w := New(t)
	for want, args := range map[string][]string{
		"--isolated is for --cdp": {"--isolated"}, "--idle has no effect": {"--cdp", "9222", "--idle", "1m"},
		"exclude each other":        {"--cdp", "9222", "--extension"},
		"--state needs --isola":     {"--cdp", "9222", "--state", "x"},
		"it is PORT, http://HOST":   {"--cdp", "https://example.com"},
		"is a session, which is as": {"--cdp", "ws://127.0.0.1:9222/session", "--block-private"},
		"has no port":               {"--cdp", "example.com"},
	} {
		if r := w.Run("bmcp", args...); r.Code != 64 || !strings.Contains(r.Err, want) {
			t.Errorf("%q: exit %d, want 64 and %q: %s", args, r.Code, want, r.Err)
		}
	}
}
