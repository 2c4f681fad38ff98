//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// agentsEnv is a variable: how many agents TestMCPAgents has in place of 12.
const agentsEnv = "BTOOLS_TEST_AGENTS"

// counters is a site whose pages have a button that counts, and a cookie of
// whoever loads them.
func counters(t *testing.T) string { return countersOf(t, new(cmdtest.Presence)) }

func countersOf(t *testing.T, pages *cmdtest.Presence) string {
	return pages.Site(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		who, _, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
		if c, err := r.Cookie("who"); err == nil && c.Value != who {
			fmt.Fprintf(w, "<title>%s has the cookie of %s</title>", who, c.Value)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "who", Value: who, Path: "/"})
		fmt.Fprintf(w, `<title>%[1]s</title><h1>%[1]s</h1>
			<button onclick="n++; document.title += ' pressed'">press %[1]s</button>
			<script>let n = 0</script>`+cmdtest.Here, r.URL.Path)
	})
}

// round is what an agent does over and over: it loads a page, finds the button in the
// snapshot, presses it and looks at what that did.
func round(h *cmdtest.WebHost, site, path string) error {
	loaded := h.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+path))
	if loaded.IsError || !strings.Contains(loaded.Text(), "Page Title: "+path) {
		return fmt.Errorf("it loads %s: %s", path, loaded.Text())
	}
	shown := h.Tool("browser_snapshot", "{}")
	ref := regexp.MustCompile(`button "press ` + path + `" \[ref=(\w+)\]`).FindStringSubmatch(shown.Text())
	if ref == nil {
		return fmt.Errorf("it looks at %s: %s", path, shown.Text())
	}
	if r := h.Tool("browser_click", fmt.Sprintf(`{"element":"the button","target":%q}`, ref[1])); r.IsError {
		return fmt.Errorf("it presses the button of %s: %s", path, r.Text())
	}
	r := h.Tool("browser_evaluate", `{"function":"() => document.title + ' ' + n"}`)
	if r.IsError || !strings.Contains(r.Text(), `"`+path+` pressed 1"`) {
		return fmt.Errorf("it has pressed the button of %s: %s", path, r.Text())
	}
	return nil
}

// pss is the memory of a process in MiB, its part of what others share included.
func pss(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	m := regexp.MustCompile(`(?m)^Pss:\s+(\d+)`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("the memory of %d is not known: %v", pid, err)
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64)
	return kb / 1024
}

// Agents that work at once, each by a session of its own, get right answers only.
func TestMCPAgents(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	agents := 12
	if n, err := strconv.Atoi(os.Getenv(agentsEnv)); err == nil {
		agents = n
	}
	const rounds = 4
	site := counters(t)
	url, bmcp := cmdtest.New(t).WebMCP(nil, "--mcp", "builtin")
	var wg sync.WaitGroup
	began := time.Now()
	for i := range agents {
		wg.Go(func() {
			h := cmdtest.NewWebHost(t, url)
			for n := range rounds {
				if err := round(h, site, fmt.Sprintf("/agent-%d/%d", i, n)); err != nil {
					t.Errorf("agent %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	memory := pss(t, bmcp.Process.Pid)
	t.Logf("%d agents, %d rounds: %v, bmcp has %.1f MiB", agents, rounds, time.Since(began).Round(time.Millisecond),
		memory)
	if limit := 50 + float64(agents); !cmdtest.Race && memory > limit {
		t.Errorf("bmcp has %.1f MiB with %d sessions, want at most %.0f", memory, agents, limit)
	}
}
