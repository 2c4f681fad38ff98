//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	. "btools/lib/cmdtest"
)

// A session at a URL has the tools of the bmcp there, and is a session there until it ends. The token is shown nowhere.
func TestCallAtURL(t *testing.T) {
	t.Parallel()
	w := New(t)
	const secret = "s3cret-of-the-server"
	WriteFile(t, w.Dir+"/token", secret+"\n")
	WriteFile(t, w.Dir+"/wrong", "s3cret-that-is-wrong\n")
	server := []string{"--token-file", w.Dir + "/token", "--http", Address(t)} // where it listens twice
	at, stop := w.ServeMCP(nil, server...)
	to, err := url.Parse(strings.TrimSuffix(at, "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	begun, ended := map[string]bool{}, map[string]bool{} // sessions there
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if r.SetURL(to); r.Out.Method == "DELETE" { // a busy server answers when bmcp does not wait any more
				r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
			}
		},
		ModifyResponse: func(r *http.Response) error {
			mu.Lock()
			defer mu.Unlock()
			if id := r.Header.Get("Mcp-Session-Id"); id != "" {
				begun[id] = true
			}
			if r.Request.Method == "DELETE" && r.StatusCode == http.StatusNoContent {
				ended[r.Request.Header.Get("Mcp-Session-Id")] = true
			}
			return nil
		}}
	far := Serve(t, proxy.ServeHTTP) + "/mcp"
	counts := func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(len(begun), " begun, ", len(ended), " ended")
	}
	site := callSite(t)
	said := ""
	run := func(code int, want string, args ...string) {
		t.Helper()
		c := w.Run("bmcp", append([]string{"call"}, args...)...)
		c.Exits(t, code, want)
		said += c.Out + c.Err
	}

	c := w.Cmd("bmcp", "call", "--url", far, "--token-file", "token", "navigate", site+"/far")
	c.Dir = w.Dir
	out, err := c.Output()
	if said += string(out); err != nil || !strings.Contains(said, "Page /far") {
		t.Fatalf("%v: %s", err, out)
	}
	there := []string{"--url", far, "--token-file", w.Dir + "/token"}
	run(0, "", append(there, "--save", w.Dir+"/far.png", "take_screenshot")...)
	if b, _ := os.ReadFile(w.Dir + "/far.png"); !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("the picture has %d bytes", len(b))
	}
	if out := called(w, append(there, "evaluate", "() => document.title")...); !strings.Contains(out, "Page /far") {
		t.Errorf("the next call says %s", out)
	}
	if out := called(w, "evaluate", "--help"); strings.Contains(out, "session_id") {
		t.Errorf("the help of a tool has an argument that chooses a session: %s", out)
	}
	if s := callSessions(w); len(s) != 1 || s[0].Session.Title != "Page /far" {
		t.Errorf("the sessions are %+v", s)
	}
	run(64, "did you mean navigate?", append(there, "navigat", site)...)
	run(64, "with other options", "--url", far, "snapshot")
	if got := counts(); got != "1 begun, 0 ended" {
		t.Errorf("at the server are %s", got)
	}

	other := []string{"--session", "other", "--url"}
	run(78, "401 Unauthorized", append(other, far, "--token-file", w.Dir+"/wrong", "snapshot")...)
	run(78, "--token-file", append(other, far, "snapshot")...)
	run(78, "cannot read the token", append(other, far, "--token-file", w.Dir+"/none", "snapshot")...)
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	run(69, "certificate", append(other, tls.URL+"/mcp", "snapshot")...)
	run(69, "404 Not Found", append(other, Serve(t, http.NotFound)+"/mcp", "snapshot")...)
	run(1, "text/html, which is not an answer of MCP", append(other, site+"/mcp", "snapshot")...)
	run(69, "cannot reach http://127.0.0.1:1/mcp", append(other, "http://127.0.0.1:1/mcp", "snapshot")...)
	run(64, "is not a URL", append(other, "example.com", "snapshot")...)
	run(64, "needs https", append(other, "http://example.com/mcp", "--token-file", w.Dir+"/token", "snapshot")...)
	run(64, "--token-file is for --url", "--token-file", w.Dir+"/token", "snapshot")
	run(64, "--pool has no effect", append(other, far, "--pool", "snapshot")...)

	var f struct {
		Calls []struct{ Process struct{ PID int } }
	}
	state, _ := os.ReadFile(w.Dir + "/state/state.json")
	if err := json.Unmarshal(state, &f); err != nil || len(f.Calls) != 1 {
		t.Fatalf("the state file is %s, %v", state, err)
	}
	argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", f.Calls[0].Process.PID))
	memory, _ := os.ReadFile(w.Dir + "/state/calls.json")
	for _, text := range []string{said, string(state), string(argv), string(memory), w.Run("bmcp", "sessions").Out} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("a token is shown: %s", text)
		}
	}

	w.Run("bmcp", "end").Exits(t, 0, "")
	Until(t, "the session at the server has ended", func() bool { return counts() == "1 begun, 1 ended" })

	// When the server has ended so has the session, and the next call begins another.
	there = []string{"--url", at, "--token-file", w.Dir + "/token", "coordinator_status"}
	run(0, "", there...)
	stop()
	run(69, "cannot reach "+at, there...)
	_, stop = w.ServeMCP(nil, server...)
	run(0, "", there...)
	stop()
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
	w.Clean()
}
