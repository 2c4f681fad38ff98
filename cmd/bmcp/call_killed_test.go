//go:build linux

package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "btools/lib/cmdtest"
)

// killService kills the service of bmcp call, which must be one.
func killService(w *World) {
	w.T.Helper()
	pids := callServices(w)
	if len(pids) != 1 {
		w.T.Fatalf("the services are %v", pids)
	}
	syscall.Kill(pids[0], syscall.SIGKILL)
}

// keptCalls are the files of the sessions of bmcp call.
func keptCalls(w *World) []string {
	files, _ := filepath.Glob(w.Dir + "/state/calls/*")
	return files
}

// The sessions of a service that was killed come back at the next call: with their tabs, logins and storage.
func TestCallServiceKilled(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			http.SetCookie(rw, &http.Cookie{Name: "login", Value: r.URL.Query().Get("as")})
		}
		c, _ := r.Cookie("login")
		fmt.Fprintf(rw, "<title>%s as %v</title><body style='height:9000px'>", r.URL.Path, c)
	})
	for _, name := range []string{"a", "b"} {
		called(w, "--session", name, "navigate", site+"/login?as="+name)
		called(w, "--session", name, "evaluate", "() => { localStorage.token = 'of "+name+"'; scrollTo(0, 1234) }")
		called(w, "--session", name, "tabs", "new", "url="+site+"/second")
	}
	check := func(after, name string) {
		t.Helper()
		r := w.Run("bmcp", "call", "--session", name, "tabs", "list")
		for _, path := range []string{"/login", "/second"} {
			if !strings.Contains(r.Out, site+path) {
				t.Errorf("%s the tabs of %s are %s, without %s", after, name, r.Out, path)
			}
		}
		if !strings.Contains(r.Err, "comes back") {
			t.Errorf("%s it is said: %s", after, r.Err)
		}
		if out := called(w, "--session", name, "--raw", "evaluate",
			"document.cookie + ' ' + localStorage.token"); out != "login="+name+" of "+name {
			t.Errorf("%s %s has %q", after, name, out)
		}
	}
	listed := func(field string) string { return w.Run("bmcp", "sessions", "-f", "session.name,session."+field).Out }
	if got := listed("kept_at"); got != "a\t\nb\t\n" {
		t.Errorf("sessions of a service that runs are listed as %q", got)
	}
	killService(w)
	got, at := listed("url"), listed("kept_at")
	if got != "a\t"+site+"/second\nb\t"+site+"/second\n" || strings.Contains(at, "\t\n") {
		t.Errorf("after the service was killed its sessions are listed as %q, %q", got, at)
	}
	w.CheckOffers(map[string][]string{"bmcp end ": {"a", "b"}}, "bash")
	check("after the service was killed", "a") // at once
	check("after the service was killed", "b")
	called(w, "--session", "a", "tabs", "select", "0")
	if out := called(w, "--session", "a", "--raw", "evaluate", "scrollY"); out != "1234" {
		t.Errorf("its first tab is scrolled to %s", out)
	}

	// Chrome is killed with it: what was kept last is there.
	Until(t, "both are kept", func() bool { return len(keptCalls(w)) == 2 })
	browsers := w.Browsers()
	killService(w)
	for _, browser := range browsers {
		pid, _ := strconv.Atoi(browser)
		syscall.Kill(pid, syscall.SIGKILL)
	}
	check("after Chrome was killed, too,", "a")

	// A call that runs ends with it.
	slow := w.Cmd("bmcp", "call", "--session", "b", "evaluate", "() => new Promise(() => {})")
	Start(t, slow)
	Until(t, "the call runs", func() bool { return strings.Contains(w.Run("bmcp", "sessions").Out, `"calls":1`) })
	killService(w)
	if slow.Wait(); slow.ProcessState.ExitCode() == 0 {
		t.Error("a call succeeds whose service was killed")
	}
	check("after a kill during a call", "b")
	check("after a kill during a call", "a")

	// bproxy is killed below it.
	for _, p := range w.State().Proxies {
		syscall.Kill(p.Process.PID, syscall.SIGKILL)
	}
	all := ""
	Until(t, "a result says so", func() bool { // the first call may not be told of it, or fail
		r := w.Run("bmcp", "call", "--session", "b", "tabs", "list")
		all += r.Out + r.Err
		return strings.Contains(all, "its pages were reloaded")
	})
	if !strings.Contains(all, site+"/second") {
		t.Errorf("after bproxy was killed: %s", all)
	}

	// The options with which a session began are not lost.
	called(w, "--session", "c", "--device", "iPhone 15", "evaluate", "1")
	Until(t, "all are kept", func() bool { return len(keptCalls(w)) == 3 })
	killService(w)
	w.Run("bmcp", "call", "--session", "c", "--device", "Pixel 7", "evaluate", "1").Exits(t, 64, "iPhone 15")
	out := called(w, "--session", "c", "--raw", "evaluate", "navigator.userAgent")
	if !strings.Contains(out, "iPhone") {
		t.Errorf("a session with a device has the user agent %s", out)
	}
	w.Run("bmcp", "end", "c").Exits(t, 0, "")
	check("after another session was ended", "a")
	check("after another session was ended", "b")

	// What ends leaves nothing, whether its service runs or was killed.
	w.Run("bmcp", "end", "b").Exits(t, 0, "")
	killed := keptCalls(w)
	killService(w)
	w.Run("bmcp", "end", "b").Exits(t, 69, "no session named b")
	w.Run("bmcp", "end", "a").Exits(t, 0, "")
	if left := keptCalls(w); len(killed) != 1 || len(left) != 0 {
		t.Errorf("after the end of b there is %v, after that of both %v", killed, left)
	}
	w.Clean()
}
