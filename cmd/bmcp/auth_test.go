//go:build linux

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"btools/lib/cmdtest"
)

// issuer is an MCP server that only people who are logged in may use, and the server that
// logs them in. Its tokens are to be replaced at once, and each refresh is good for one.
type issuer struct {
	URL       string
	mu        sync.Mutex
	challenge string // of the login in progress
	valid     map[string]bool
	refresh   map[string]bool
	issued    int
	refreshed int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	s := &issuer{valid: map[string]bool{}, refresh: map[string]bool{}}
	tools := server.NewMCPServer("remote", "1", server.WithToolCapabilities(true))
	tools.AddTool(mcp.NewTool("whoami"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("ann"), nil
	})
	served := server.NewStreamableHTTPServer(tools)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		ok := s.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		s.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/of-mcp"`, s.URL))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		served.ServeHTTP(w, r)
	})
	says := func(path string, what func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(what()) })
	}
	says("/of-mcp", func() any {
		return map[string]any{"resource": s.URL + "/mcp", "authorization_servers": []string{s.URL}}
	})
	says("/.well-known/oauth-authorization-server", func() any {
		return map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize",
			"token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}}
	})
	says("/register", func() any {
		return map[string]any{"client_id": "client-7", "token_endpoint_auth_method": "none"}
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s.mu.Lock()
		s.challenge = q.Get("code_challenge")
		s.mu.Unlock()
		back := url.Values{"state": {q.Get("state")}, "code": {"s3cret-code"}}
		if q.Get("refuse") != "" {
			back = url.Values{"state": {q.Get("state")}, "error": {"access_denied"}}
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		switch {
		case r.FormValue("grant_type") == "authorization_code" && r.FormValue("code") == "s3cret-code" &&
			base64.RawURLEncoding.EncodeToString(sum[:]) == s.challenge:
		case r.FormValue("grant_type") == "refresh_token" && s.refresh[r.FormValue("refresh_token")] &&
			r.FormValue("resource") == s.URL+"/mcp":
			delete(s.refresh, r.FormValue("refresh_token"))
			s.refreshed++
		default:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		s.issued++
		token, refresh := fmt.Sprintf("s3cret-token-%d", s.issued), fmt.Sprintf("s3cret-refresh-%d", s.issued)
		s.valid[token], s.refresh[refresh] = true, true
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"token_type":"Bearer","expires_in":"5.5"}`,
			token, refresh)
	})
	s.URL = cmdtest.Serve(t, mux.ServeHTTP)
	return s
}

// revoke ends all logins.
func (s *issuer) revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.valid)
	clear(s.refresh)
}

// login runs bmcp auth as a person does who opens the address that it prints, after a
// page has tried another one, and returns its exit code and messages.
func login(t *testing.T, c *exec.Cmd, suffix string) (int, string) {
	t.Helper()
	var errs bytes.Buffer
	c.Stderr = &errs
	out := cmdtest.StartRead(t, c)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		at, _ := url.Parse(strings.TrimSpace(line))
		forged, err := http.Get(at.Query().Get("redirect_uri") + "?state=forged&code=forged")
		if err != nil || forged.StatusCode != http.StatusBadRequest {
			t.Errorf("an answer with another state: %+v, %v", forged, err)
		}
		res, err := http.Get(at.String() + suffix)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(res.Body)
		if !strings.Contains(string(page), "You can close this page.") {
			t.Errorf("the person sees %s", page)
		}
	}
	c.Wait()
	return c.ProcessState.ExitCode(), errs.String()
}

// A person logs in once at the server of a child, and each bmcp of theirs uses that, with
// tokens that are replaced; those of all hosts of one bmcp only if an option says so.
func TestMCPAuth(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := newIssuer(t)
	config := w.Dir + "/bmcp.toml"
	cmdtest.WriteFile(t, config, fmt.Sprintf("[child.crm]\nurl = \"%s/mcp\"\n", s.URL))
	bmcp := func(args ...string) *exec.Cmd {
		c := w.Cmd("bmcp", args...)
		c.Env = append(slices.Clone(w.Env), "XDG_STATE_HOME="+w.Dir+"/x", "XDG_CACHE_HOME="+w.Dir+"/cache")
		return c
	}
	host := func(args ...string) *cmdtest.MCP {
		m := w.Attach(bmcp(append([]string{"--config", config}, args...)...))
		m.Initialize(`{}`)
		return m
	}
	refused := func(want string) {
		t.Helper()
		m := host()
		if got := m.Tool("whoami", "{}"); !strings.Contains(got.Line, want) {
			t.Errorf("got %s, want %s", got.Line, want)
		}
		m.End()
		if strings.Contains(m.Errs.String(), "s3cret") {
			t.Errorf("it says %s", m.Errs.String())
		}
	}
	refused("bmcp auth crm")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "name one child"}, {[]string{"erp", "--config", config}, "no child is named erp"},
		{[]string{"builtin"}, "runs on this machine"}, {[]string{"x=https:///mcp"}, "is not a URL"},
	} {
		w.Run("bmcp", append([]string{"auth"}, c.args...)...).Exits(t, 64, c.want)
	}
	if code, said := login(t, bmcp("auth", "crm", "--config", config), "&refuse=1"); code != 1 ||
		!strings.Contains(said, "access_denied") {
		t.Errorf("a login that is refused: exit %d: %s", code, said)
	}
	if code, said := login(t, bmcp("auth", "crm", "--config", config), ""); code != 0 ||
		strings.Contains(said, "s3cret") {
		t.Fatalf("exit %d: %s", code, said)
	}
	files, _ := filepath.Glob(w.Dir + "/x/btools/auth/*.json")
	if len(files) != 1 {
		t.Fatalf("logins: %v", files)
	}
	if st, err := os.Stat(files[0]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", files[0], st.Mode(), err)
	}
	one, two := host(), host() // each needs the next token, which one gets at a time
	for _, m := range []*cmdtest.MCP{one, two, one} {
		m.AwaitTools("whoami")
		if got := m.MustTool("whoami", "{}").Text(); got != "ann" {
			t.Errorf("whoami: %s", got)
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.Cmd.Process.Pid))
		if strings.Contains(string(line), "s3cret") {
			t.Errorf("ps shows %q", line)
		}
	}
	one.End()
	two.End()
	if s.refreshed == 0 {
		t.Error("no token was replaced")
	}
	// Hosts by HTTP share no login, unless that is wished.
	web := func(args ...string) cmdtest.ToolResult {
		at, stop := w.ServeMCP([]string{"XDG_STATE_HOME=" + w.Dir + "/x"}, append(args, "--config", config)...)
		defer stop()
		h := cmdtest.NewWebHost(t, at)
		return h.Tool("whoami", "{}")
	}
	if got := web(); !got.IsError || !strings.Contains(got.Text(), "it needs a login, by bmcp auth crm") {
		t.Errorf("without --share-auth: %s", got.Text())
	}
	if got := web("--share-auth"); got.Text() != "ann" {
		t.Errorf("with --share-auth: %s", got.Text())
	}
	s.revoke()
	refused("bmcp auth crm logs in again")
	end := bmcp("auth", "crm", "--config", config, "--end")
	if err := end.Run(); err != nil {
		t.Error(err)
	}
	refused("it needs a login")
	w.Clean()
}
