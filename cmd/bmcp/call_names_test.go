//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "btools/lib/cmdtest"
)

// A session of bmcp call has a name that people know, by which every command finds it, though its address is secret.
func TestCallNames(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	site := callSite(t)
	called(w, "--session", "shop.1", "navigate", site+"/shop")
	called(w, "navigate", site+"/mine")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Base(exe)
	mine := fmt.Sprintf("%s-%d", program[:min(15, len(program))], os.Getpid())
	if names := w.Run("bmcp", "sessions", "-f", "session.name").Out; names != "shop.1\n"+mine+"\n" {
		t.Errorf("the sessions are %q, want shop.1 and %s", names, mine)
	}
	secret := w.Run("bproxy", "session", "list", "-f", "session.name").Out
	for _, name := range []string{"shop.1", mine} {
		if !strings.Contains("\n"+secret, "\n"+name+"-") {
			t.Errorf("bproxy has the sessions %q, want %s", secret, name)
		}
		w.Run("bproxy", "downloads", name).Exits(t, 0, "")
		w.Run("bproxy", "cast", name, w.Dir+"/"+name+".html", "--duration", "100ms").Exits(t, 0, "")
		w.Run("bproxy", "state", "save", "saved", "--from", name).Exits(t, 0, "")
		w.Run("bproxy", "cast", name[1:], w.Dir+"/none.html").Exits(t, 69, "there is no named session")
	}
	if out := called(w, "--session", mine, "--raw", "evaluate", "location.pathname"); out != "/mine" {
		t.Errorf("by its name the session is at %s", out)
	}
	elsewhere := w.Run("env", "TZ=Asia/Tokyo", "bmcp", "call", "--session", mine, "--raw", "evaluate",
		"location.pathname")
	if elsewhere.Out != "/mine" {
		t.Errorf("from other surroundings the session is at %q: %s", elsewhere.Out, elsewhere.Err)
	}
	w.Run("bmcp", "end", mine).Exits(t, 0, "")
	if out := called(w, "--raw", "evaluate", "location.href"); out != "about:blank" {
		t.Errorf("after its end the session is at %s", out)
	}
	w.Run("bproxy", "session", "end", "shop.1").Exits(t, 0, "")
	if out := called(w, "--session", "shop.1", "--raw", "evaluate", "location.href"); out != "about:blank" {
		t.Errorf("after its end the other session is at %s", out)
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
