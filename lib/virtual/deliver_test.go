//go:build linux

package virtual

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// A client gets its downloads where the user of the sessions allows it, or where
// it could write by itself, wherever links lead.
func TestDownloadDirectories(t *testing.T) {
	t.Parallel()
	root, own, foreign := t.TempDir(), t.TempDir(), t.TempDir()
	if os.Getuid() != 0 {
		foreign = "/"
	} else if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{root + "/out": foreign, own + "/nowhere": own + "/none/none",
		own + "/allowed": root} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(own+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := sharedBrowser(t)
	s := newSession(t, b, Options{Files: keep(t, downloads.Options{}).Files,
		Settings: settings.Settings{DownloadRoots: []string{root}}})
	others := keep(t, downloads.Options{Keep: root + "/others"}).Files
	newSession(t, b, Options{Files: others})
	if err := os.Symlink(others.Roots()[0], own+"/others"); err != nil {
		t.Fatal(err)
	}
	type client struct {
		name string
		*peer
	}
	local, remote := client{"local", connect(t, s, "")}, client{"remote", connectUnknown(t, s)}
	for _, test := range []struct {
		client
		behavior, dir string
		gets, err     string
	}{
		{local, "allow", own, own, ""},
		{local, "allowAndName", own + "/new/er", own + "/new/er", ""},
		{local, "allow", root + "/a/../b", root + "/b", ""},
		{local, "allow", own + "/allowed/a", root + "/a", ""},
		{local, "allow", foreign, "", "belongs to another user; name a directory of your own, or one that --"},
		{local, "allow", filepath.Join(foreign, "new"), "", "belongs to another user"},
		{local, "allow", root + "/out", "", "belongs to another user"},
		{local, "allow", root + "/../" + filepath.Base(foreign), "", "belongs to another user"},
		{local, "allow", own + "/nowhere", "", "no such file"},
		{local, "allow", own + "/file", "", "is not a directory"},
		{local, "allow", own + "/file/new", "", "not a directory"},
		{local, "allow", "downloads", "", "not an absolute path"},
		{local, "allow", others.Roots()[0], "", "it is another session's"},
		{local, "allow", own + "/others/new", "", "it is another session's"},
		{local, "allow", root + "/others", "", "it is another session's"},
		{remote, "allow", root + "/others", "", ""},
		{local, "default", foreign, "", ""},
		{local, "deny", foreign, "", ""},
		{remote, "allow", root + "/c", root + "/c", ""},
		{remote, "allow", own, "", ""},
		{remote, "allowAndName", "/nonexistent/artifacts", "", ""},
		{remote, "allow", `C:\Users\a`, "", ""},
	} {
		if foreign == "/" && strings.HasPrefix(test.dir, root+"/../") {
			continue
		}
		got := test.call("", "Browser.setDownloadBehavior", map[string]any{"behavior": test.behavior,
			"downloadPath": test.dir, "eventsEnabled": true})
		text := jsonrpc.GetString(got, "error", "message")
		if (text == "") != (test.err == "") || !strings.Contains(text, test.err) {
			t.Errorf("%s client: %s %s: %s", test.name, test.behavior, test.dir, got)
			continue
		}
		s.browser.mu.Lock()
		gets := s.downloads.wishes[s.base].dir
		s.browser.mu.Unlock()
		if text == "" && gets != test.gets {
			t.Errorf("%s client: %s %s: it gets downloads in %q", test.name, test.behavior, test.dir, gets)
		}
	}
}

// A client that a process of the browser has started gets no directory.
func TestDownloadDirectoryOfABrowsersClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The first renderer after the session's address is there starts the client.
	script := fmt.Sprintf("#!/bin/sh\ncd %s\nif [ -e url ] && mkdir once 2>/dev/null; then\n"+
		"VIRTUAL_TEST_CLIENT=%[1]s %s &\nfi\nexec \"$@\"\n", dir, os.Args[0])
	if err := os.WriteFile(dir+"/prefix", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	b := openPipe(t, func(t testing.TB) (in, out *os.File, p *os.Process) {
		return chrometest.StartShellWith(t, "--renderer-cmd-prefix="+dir+"/prefix")
	})
	s := newSession(t, b, Options{Files: keep(t, downloads.Options{}).Files})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k, err := s.Connect(r.Context(), ""); err == nil {
			k.Accept(w, r)
		}
	}))
	t.Cleanup(server.Close)
	if err := os.WriteFile(dir+"/url", []byte(strings.Replace(server.URL, "http", "ws", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := connect(t, s, "")
	for end := time.Now().Add(patience); ; p.create("about:blank") {
		got, err := os.ReadFile(dir + "/answer")
		if err == nil {
			if !strings.Contains(string(got), "the browser has started the client") {
				t.Errorf("it is answered %s", got)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("no process of the browser has started a client")
		}
	}
}

// connectUnknown connects a client of which nobody knows the process.
func connectUnknown(t *testing.T, s *Session) *peer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := s.Connect(r.Context(), "")
		if err != nil {
			t.Error(err)
			return
		}
		conn, err := websocket.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		k.Serve(conn)
	}))
	t.Cleanup(server.Close)
	conn, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &peer{t: t, conn: conn}
}

// A directory that became a link after it was allowed is not written to.
func TestDeliverFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.WriteFile(dir+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := filepath.Join(dir, "wanted")
	if at, err := deliver(dir+"/file", wanted, "file", false); err != nil || at != wanted+"/file" {
		t.Fatalf("%s, %v", at, err)
	}
	if err := os.RemoveAll(wanted); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, wanted); err != nil {
		t.Fatal(err)
	}
	if at, err := deliver(dir+"/file", wanted, "file", false); err == nil {
		t.Errorf("it was put at %s", at)
	}
	if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
		t.Errorf("%v", left)
	}
}
