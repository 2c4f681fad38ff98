//go:build linux

package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// builtin starts a bmcp with its own tools and Chromium, in the directory files; its
// host names no roots.
func (w *world) builtin(args ...string) *mcp {
	w.t.Helper()
	c := w.cmd("bmcp", args...)
	c.Env = append(slices.Clone(w.env), "XDG_CACHE_HOME="+w.dir+"/cache", "BTOOLS_BROWSER=chromium")
	if c.Dir = w.dir + "/files"; os.MkdirAll(c.Dir, 0o700) != nil {
		w.t.Fatal("there is no directory for files")
	}
	m := w.attach(c)
	m.greet(`{}`)
	return m
}

// did calls a tool that is to succeed.
func (m *mcp) did(tool, format string, args ...any) toolResult {
	m.t.Helper()
	r := m.tool(tool, fmt.Sprintf(format, args...)).tool(m.t)
	if r.IsError {
		m.t.Fatalf("%s: %s", tool, r.text())
	}
	return r
}

// refused calls a tool that is to fail, and looks for a part of its error.
func (m *mcp) refused(want, tool, format string, args ...any) {
	m.t.Helper()
	if r := m.tool(tool, fmt.Sprintf(format, args...)).tool(m.t); !r.IsError || !strings.Contains(r.text(), want) {
		m.t.Errorf("%s: %s, want %s", tool, r.text(), want)
	}
}

// An agent lists, awaits, saves and uploads what its session has downloaded.
func TestMCPDownloadsOfAgents(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	m := w.builtin("--headless")
	const tool = "browser_downloads"
	if r := m.did(tool, `{"action":"list"}`); !strings.Contains(r.text(), "There are no downloads.") {
		t.Errorf("before the first use: %s", r.text())
	}
	m.refused("no download has begun within 100ms", tool, `{"action":"wait","timeout":100}`)
	m.refused("there is no complete download", tool, `{"action":"save"}`)
	m.did("browser_navigate", `{"url":%q}`, site)
	m.did("browser_click", `{"target":"#file"}`)
	r := m.did(tool, `{"action":"wait"}`)
	_, path, _ := strings.Cut(r.text(), "- report.txt: complete, 10 bytes, from "+site+"/file, at ")
	path, _, _ = strings.Cut(path, "\n")
	if !strings.HasPrefix(path, w.dirs()[0]) {
		t.Fatalf("the download is\n%s", r.text())
	}
	m.refused("no other download has begun within 0s", tool, `{"action":"wait","timeout":0}`)

	t.Run("save", func(t *testing.T) {
		write(t, w.dir+"/files/report.txt", "mine")
		m.did(tool, `{"action":"save"}`)
		m.did(tool, `{"action":"save","name":"report.txt","filename":"copy.txt"}`)
		m.did(tool, `{"action":"save","filename":"copy.txt"}`)
		for name, want := range map[string]string{"report.txt": "mine", "report (1).txt": "the report",
			"copy.txt": "the report"} {
			if b, err := os.ReadFile(filepath.Join(w.dir, "files", name)); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		m.refused("may not be used", tool, `{"action":"save","filename":"/etc/report.txt"}`)
		m.refused(`there is no download "other.txt"`, tool, `{"action":"save","name":"other.txt"}`)
		if left, _ := filepath.Glob(w.dir + "/files/.btools-*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("upload", func(t *testing.T) {
		m.did("browser_click", `{"target":"input[type=file]"}`)
		write(t, filepath.Dir(path)+"/other", "no download")
		m.refused("may not be used", "browser_file_upload", `{"paths":[%q]}`, filepath.Dir(path)+"/other")
		m.did("browser_file_upload", `{"paths":[%q]}`, path)
		r := m.did("browser_evaluate", `{"function":"() => document.querySelector('input').files[0].text()"}`)
		if !strings.Contains(r.text(), "the report") {
			t.Errorf("the page has %s", r.text())
		}
	})
	t.Run("progress", func(t *testing.T) {
		m.did("browser_click", `{"target":"#slow"}`)
		until(t, "the download has begun", func() bool {
			return strings.Contains(m.did(tool, `{"action":"list"}`).text(), "- slow.bin: in progress")
		})
		m.refused("slow.bin is still in progress after 50ms", tool, `{"action":"wait","timeout":50}`)
		m.refused("slow.bin is still in progress", tool, `{"action":"save","name":"slow.bin"}`)
		id := m.startTool(tool, `{"action":"wait","timeout":60000}`)
		m.did("browser_snapshot", `{}`) // whose turn it is all the same
		m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		m.did("browser_snapshot", `{}`)
	})
	m.end()
	w.clean()
}

// A browser that is shared as a whole says that it keeps no downloads.
func TestMCPDownloadsOfAWholeBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.builtin("--headless", "--shared")
	m.refused("not a session of its own", "browser_downloads", `{"action":"list"}`)
	m.did("browser_tabs", `{"action":"list"}`)
	m.refused("not a session of its own", "browser_downloads", `{"action":"list"}`)
}
