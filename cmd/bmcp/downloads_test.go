//go:build linux

package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// An agent lists, awaits, saves and uploads what its session has downloaded.
func TestMCPDownloadsOfAgents(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	m := w.Builtin("--headless")
	const tool = "browser_downloads"
	if r := m.MustTool(tool, `{}`); !strings.Contains(r.Text(), "There are no downloads.") {
		t.Errorf("before the first use: %s", r.Text())
	}
	m.MustFail("no download has begun within 100ms", tool, `{"action":"wait","timeout":100}`)
	m.MustFail("there is no complete download", tool, `{"action":"save"}`)
	m.MustTool("browser_navigate", `{"url":%q}`, site)
	m.MustTool("browser_click", `{"target":"#file"}`)
	r := m.MustTool(tool, `{"action":"wait"}`)
	_, path, _ := strings.Cut(r.Text(), "- report.txt: complete, 10 bytes, from "+site+"/file, at ")
	path, _, _ = strings.Cut(path, "\n")
	if !strings.HasPrefix(path, w.Dirs()[0]) {
		t.Fatalf("the download is\n%s", r.Text())
	}
	m.MustFail("no other download has begun within 0s", tool, `{"action":"wait","timeout":0}`)

	t.Run("save", func(t *testing.T) {
		cmdtest.WriteFile(t, w.Dir+"/files/report.txt", "mine")
		m.MustTool(tool, `{"action":"save"}`)
		m.MustTool(tool, `{"action":"save","name":"report.txt","filename":"copy.txt"}`)
		m.MustTool(tool, `{"action":"save","filename":"copy.txt"}`)
		for name, want := range map[string]string{"report.txt": "mine", "report (1).txt": "the report",
			"copy.txt": "the report"} {
			if b, err := os.ReadFile(filepath.Join(w.Dir, "files", name)); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		m.MustFail("may not be used", tool, `{"action":"save","filename":"/etc/report.txt"}`)
		m.MustFail(`there is no download "other.txt"`, tool, `{"action":"save","name":"other.txt"}`)
		if left, _ := filepath.Glob(w.Dir + "/files/.btools-*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("upload", func(t *testing.T) {
		m.MustTool("browser_click", `{"target":"input[type=file]"}`)
		cmdtest.WriteFile(t, filepath.Dir(path)+"/other", "no download")
		m.MustFail("may not be used", "browser_file_upload", `{"paths":[%q]}`, filepath.Dir(path)+"/other")
		m.MustTool("browser_file_upload", `{"paths":[%q]}`, path)
		r := m.MustTool("browser_evaluate", `{"function":"() => document.querySelector('input').files[0].text()"}`)
		if !strings.Contains(r.Text(), "the report") {
			t.Errorf("the page has %s", r.Text())
		}
	})
	t.Run("progress", func(t *testing.T) {
		m.MustTool("browser_click", `{"target":"#slow"}`)
		cmdtest.Until(t, "the download has begun", func() bool {
			return strings.Contains(m.MustTool(tool, `{"action":"list"}`).Text(), "- slow.bin: in progress")
		})
		m.MustFail("slow.bin is still in progress after 50ms", tool, `{"action":"wait","timeout":50}`)
		m.MustFail("slow.bin is still in progress", tool, `{"action":"save","name":"slow.bin"}`)
		id := m.StartTool(tool, `{"action":"wait","timeout":60000}`)
		m.MustTool("browser_snapshot", `{}`) // whose turn it is all the same
		m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		m.MustTool("browser_snapshot", `{}`)
	})
	m.End()
	w.Clean()
}

// The result of a tool names the file that its browser has downloaded.
func TestMCPDownloads(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	for name, env := range map[string][]string{
		"one browser": {"BTOOLS_BROWSER=chrome-headless-shell"},
		"shared":      {"BTOOLS_BROWSER=chrome-headless-shell"},
		"a pool":      {"BTOOLS_BROWSER=chrome-headless-shell", "PW_MCP_PROXY__A_INSTANCES=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			args := []string{"--mcp", cmdtest.FakeChild()}
			if name == "shared" {
				args = append(args, "--shared")
			}
			m := w.MCP(env, args...)
			m.AwaitTools("getenv")
			where := func() string { return m.Tool("getenv", `{"names":["BTOOLS_CDP_URL"]}`).Text(t) }
			first := where()
			if strings.Contains(first, "Downloaded") {
				t.Errorf("the first result is %s", first)
			}
			url := strings.Fields(first)[0]
			cmdtest.Click(t, strings.Replace(url, "http", "ws", 1)+"/devtools/browser", site, "file")
			cmdtest.Until(t, "the download is complete", func() bool {
				_, list := cmdtest.Get(t, "GET", url+"/downloads")
				return strings.Contains(list, `"complete"`)
			})
			if text := where(); !strings.Contains(text, "Downloaded report.txt (10 bytes) to "+w.Dir+"/btools-run_") {
				t.Errorf("the result is %s", text)
			}
			if text := where(); strings.Contains(text, "Downloaded") {
				t.Errorf("the file is named twice: %s", text)
			}
			m.End()
			w.Clean()
		})
	}
}

// upload has a new page of a session put a file into a form, and returns the
// answer.
func upload(t *testing.T, ws, file string) string {
	t.Helper()
	at, _, _ := strings.Cut(ws, "/devtools/")
	target := cmdtest.Dial(t, ws).Ask(cmdtest.NewPage, `{"url":"data:text/html,<input type=file>"}`)
	p := cmdtest.Dial(t, at+"/devtools/page/"+jsonrpc.GetString([]byte(target), "result", "targetId"))
	var input string
	cmdtest.Until(t, "the page has loaded", func() bool {
		got := p.Ask("Runtime.evaluate", `{"expression":"document.querySelector('input')"}`)
		input = jsonrpc.GetString([]byte(got), "result", "result", "objectId")
		return input != ""
	})
	return p.Ask("DOM.setFileInputFiles", fmt.Sprintf(`{"objectId":%q,"files":[%q]}`, input, file))
}

// Virtual browsers of bmcp upload files of its working directory, unless that
// is nobody's choice.
func TestMCPUploads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, home, args string
		inside, outside  bool // may be uploaded
	}{
		{"a project", "", "", true, false},
		{"the home directory", "%", "", false, false},
		{"above the home directory", "%/home", "", false, false},
		{"a directory", "%", "--upload-root=project", true, false},
		{"everything", "", "--upload-root=/", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "above the home directory" {
				cmdtest.Long(t) // it is as the home directory is
			}
			w := cmdtest.New(t)
			cmdtest.WriteFile(t, w.Dir+"/project/a.txt", "inside")
			cmdtest.WriteFile(t, w.Dir+"/home/x", "")
			env := []string{"BTOOLS_BROWSER=chrome-headless-shell"}
			if c.home != "" {
				env = append(env, "HOME="+strings.Replace(c.home, "%", w.Dir, 1))
			}
			args := []string{"--headless", "--mcp", cmdtest.Bin + "/fakechild {ws_endpoint}"}
			if c.args != "" {
				args = append(args, c.args)
			}
			m := w.MCP(env, args...)
			m.AwaitTools("getenv")
			ws := m.Tool("getenv", `{"session_id":"one","names":["BTOOLS_WS_URL"]}`).Text(t)
			for file, ok := range map[string]bool{w.Dir + "/project/a.txt": c.inside, "/etc/hostname": c.outside} {
				if answer := upload(t, ws, file); strings.Contains(answer, "--upload-root") == ok {
					t.Errorf("%s: %s", file, answer)
				}
			}
			m.End()
			w.Clean()
		})
	}
	w := cmdtest.New(t)
	w.Run("bmcp", "--upload-root", w.Dir+"/none").Exits(t, 78, "--upload-root")
	w.Run("bmcp", "--download-root", w.Dir+"/none").Exits(t, 78, "--download-root")
	w.Run("bmcp", "--upload-root", w.Dir, "--shared").Exits(t, 64, "--upload-root")
	w.Run("bmcp", "--upload-root", w.Dir, "--pool-config", "x").Exits(t, 64, "--upload-root has no effect")
}
