//go:build linux

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// toldSite serves pages of which much can be said: /status/N answers with the status N.
func toldSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		switch _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); {
		case err == nil:
			w.WriteHeader(status)
			fmt.Fprintf(w, "<title>With %d</title>", status)
		case r.URL.Path == "/redirected":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			io.WriteString(w, "<!doctype html><title>Fine</title>")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// An agent is told what a person would see, and what only the browser knows.
func TestBuiltinTells(t *testing.T) {
	t.Parallel()
	site := toldSite(t)
	a := agent{t, cmdtest.New(t).Builtin()}
	t.Run("the HTTP status of a page, as long as it is open", func(t *testing.T) {
		a := agent{t, a.m}
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_navigate", `{"url":"%s/status/404"}`, site)
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_snapshot", `{}`)
		if x := a.wants(false, "Fine", "browser_navigate", `{"url":"%s/redirected"}`, site); strings.Contains(x.Text(),
			"HTTP status") {
			t.Errorf("of a page that has come: %s", x.Text())
		}
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_navigate_back", `{}`)
	})
}
