//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	. "btools/lib/cmdtest"
)

// The commands of --once have a session of their own, which ends with them, however they end.
func TestCallOnce(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	called(w, "--session", "other", "navigate", site+"/other")
	others := func() bool {
		all := callSessions(w)
		return len(all) == 1 && all[0].Session.Name == "other"
	}
	file := w.Dir + "/page.md"
	for _, test := range []struct {
		commands []string
		code     int
		out      string
	}{
		{[]string{"goto --raw " + site + "/a", "click 'text=Press' --raw", "text button --raw",
			"evaluate document.title --json"}, 0, "Clicked\n{\"result\":\"Page /a\","},
		{[]string{"navigate --raw " + site + "/a", "get_markdown --save " + file}, 0, file + "\n"},
		{[]string{"evaluate '\"xy\".repeat(9000)'"}, 0, "\"xyxy"},
		{[]string{"click e999999", "evaluate 1"}, 1, ""},
		{[]string{"nothing", "evaluate 1"}, 64, ""},
		{[]string{"evaluate 'a"}, 64, ""},
		{[]string{"--session x evaluate 1"}, 64, ""},
		{[]string{"--raw"}, 64, ""},
		{[]string{"--session", "x", "evaluate 1"}, 64, ""},
		{[]string{"--raw", "evaluate 1"}, 64, ""},
	} {
		r := w.Run("bmcp", append([]string{"call", "--once"}, test.commands...)...)
		if len(r.Out) > 9<<10 || strings.Contains(r.Out, "bmcp call result") {
			t.Errorf("%q prints %d bytes, or what cannot be asked for: %.300s", test.commands, len(r.Out), r.Out)
		}
		if r.Code != test.code || !strings.HasPrefix(r.Out, test.out) || test.out == "" && r.Out != "" {
			t.Errorf("%q: exit %d, %s%s", test.commands, r.Code, r.Out, r.Err)
		}
		if !others() {
			t.Errorf("after %q: the sessions are %+v", test.commands, callSessions(w))
		}
	}
	if b, _ := os.ReadFile(file); !strings.HasPrefix(string(b), "# Hello") {
		t.Errorf("the file has %q", b)
	}
	w.Env = append(w.Env, "BTOOLS_SESSION=other")
	if r := w.Run("bmcp", "call", "--once", "evaluate location.href --raw"); r.Out != "about:blank\n" {
		t.Errorf("where a session is named: %q %s", r.Out, r.Err)
	}
	killed := w.Cmd("bmcp", "call", "--once", "evaluate 'new Promise(() => {})'")
	Start(t, killed)
	Until(t, "it has its session", func() bool { return len(callSessions(w)) == 2 })
	killed.Process.Signal(syscall.SIGKILL)
	killed.Wait()
	Until(t, "its session ends", others)
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

// A picture or PDF of a page is one call, which writes no file if there is no page.
func TestCallShot(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	for _, test := range []struct{ call, begins string }{
		{"screenshot " + site + "/a shot.png", "\x89PNG"},
		{"take_screenshot " + site + "/a shot.jpg fullPage=true", "\xff\xd8"},
		{"pdf " + site + "/a shot.pdf", "%PDF-"},
		{"--raw screenshot " + site + "/a >shot.raw", "\x89PNG"},
		{"screenshot http://127.0.0.1:1/ shot.none", ""},
		{"screenshot " + site + "/a shot.none --save other", ""},
	} {
		r := w.Run("sh", "-c", "cd "+w.Dir+" && bmcp call --session s "+test.call)
		name := "shot." + test.call[strings.Index(test.call, "shot.")+5:]
		name, _, _ = strings.Cut(name, " ")
		b, err := os.ReadFile(w.Dir + "/" + name)
		if (r.Code == 0) != (test.begins != "") || (err == nil) != (r.Code == 0) ||
			!strings.HasPrefix(string(b), test.begins) {
			t.Errorf("%s: exit %d, %v, %.10q\n%s%s", test.call, r.Code, err, b, r.Out, r.Err)
		}
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
