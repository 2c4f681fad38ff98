package oauth

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A server that says something about its logins by which a token could go to another one
// gets no login.
func TestDiscoverRefuses(t *testing.T) {
	type document = map[string]any
	for name, c := range map[string]struct {
		tls              bool
		resource, server document // what they say otherwise
		want             string
	}{
		"right":               {want: ""},
		"right by https":      {tls: true, want: ""},
		"another resource":    {resource: document{"resource": "https://bank.example/mcp"}, want: "it is another one"},
		"another path":        {resource: document{"resource": "SITE/other"}, want: "it is another one"},
		"another issuer":      {server: document{"issuer": "https://bank.example"}, want: "it is another one"},
		"no PKCE":             {server: document{"code_challenge_methods_supported": []string{"plain"}}, want: "PKCE"},
		"no token endpoint":   {server: document{"token_endpoint": ""}, want: "how to get a token"},
		"a token over http":   {server: document{"token_endpoint": "http://bank.example/token"}, want: "https"},
		"a page that is none": {server: document{"authorization_endpoint": "javascript:alert(1)"}, want: "https"},
		"this machine, from elsewhere": {tls: true, server: document{"token_endpoint": "http://127.0.0.1:1/token"},
			want: "https"},
		"an issuer of this machine, from elsewhere": {tls: true,
			resource: document{"authorization_servers": []string{"http://127.0.0.1:1"}}, want: "how to get a token"},
	} {
		t.Run(name, func(t *testing.T) {
			var site *httptest.Server
			says := func(usual, other document) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					all := maps.Clone(usual)
					maps.Copy(all, other)
					b, _ := json.Marshal(all)
					w.Write([]byte(strings.ReplaceAll(string(b), "SITE", site.URL)))
				}
			}
			mux := http.NewServeMux()
			mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", says(document{"resource": "SITE/mcp",
				"authorization_servers": []string{"SITE"}}, c.resource))
			mux.HandleFunc("/.well-known/oauth-authorization-server", says(document{"issuer": "SITE",
				"authorization_endpoint": "SITE/authorize", "token_endpoint": "SITE/token",
				"code_challenge_methods_supported": []string{"S256"}}, c.server))
			if c.tls {
				site = httptest.NewTLSServer(mux)
				client.Transport = site.Client().Transport
				defer func() { client.Transport = nil }()
			} else {
				site = httptest.NewServer(mux)
			}
			defer site.Close()
			_, _, err := discover(context.Background(), site.URL+"/mcp")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"3600": time.Hour, `"3600"`: time.Hour, "0.5": time.Second / 2, "9e18": 365 * 24 * time.Hour,
		"0": 0, "-5": 0, `"soon"`: 0, "null": 0, "[]": 0,
	} {
		var got seconds
		if err := json.Unmarshal([]byte(text), &got); err != nil || time.Duration(got) != want {
			t.Errorf("%s is %v, %v; want %v", text, time.Duration(got), err, want)
		}
	}
}
