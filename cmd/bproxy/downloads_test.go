//go:build linux

package main_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

func TestSessionDownloads(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	root := w.Dir + "/uploads"
	cmdtest.WriteFile(t, root+"/allowed.txt", "allowed")
	theirs, allowed := w.Dir+"/theirs", w.Dir+"/allowed"
	for _, dir := range []string{theirs, allowed} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Chown(dir, 65534, 65534) != nil { // only root may
			theirs = "/"
		}
	}
	p := w.Proxy("--isolate", "--upload-root", root, "--download-root", allowed)
	events := w.Events("bproxy")
	at := func(name string) (string, string) {
		return p.URL + "/session/" + name, "ws" + strings.TrimPrefix(p.URL, "http") + "/session/" + name +
			"/devtools/browser"
	}
	_, ws := at("one")
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/session/one/downloads"); code != 404 || p.Sessions() != "" {
		t.Errorf("the downloads of no session: %d, sessions %q", code, p.Sessions())
	}
	cmdtest.Until(t, "the events are watched", func() bool { // what comes before is not shown
		w.Run("bproxy", "session", "new", "first")
		w.Run("bproxy", "session", "end", "first")
		return strings.Contains(events.String(), "ended")
	})
	httpURL, _ := at("playwright")
	w.Node("downloads-playwright.mjs", httpURL, site, w.Dir+"/got")
	w.Node("downloads-puppeteer.mjs", ws, site, w.Dir+"/got", root)
	c := cmdtest.Dial(t, strings.Replace(ws, "/one/", "/playwright/", 1))
	for dir, refused := range map[string]bool{theirs: true, allowed + "/new": false} {
		got := c.Ask("Browser.setDownloadBehavior", fmt.Sprintf(`{"behavior":"allow","downloadPath":%q}`, dir))
		if strings.Contains(got, "one that --download-root allows") != refused {
			t.Errorf("downloads into %s: %s", dir, got)
		}
	}
	w.Run("bproxy", "session", "new", "x", "--download-root", w.Dir+"/none").Exits(t, 78, "--download-root")

	list := w.Run("bproxy", "downloads", "one", "--wait", "--save", w.Dir+"/saved")
	list.Exits(t, 0, "")
	var d struct {
		Download struct{ GUID, Name, SHA256, Path, Saved, URL, Session string }
	}
	if err := json.Unmarshal([]byte(list.Out), &d); err != nil {
		t.Fatalf("%v: %s", err, list.Out)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("the report")))
	if got := d.Download; got.Name != "report.txt" || got.SHA256 != sum || got.URL != site+"/file" ||
		got.Session != "one" || filepath.Base(got.Saved) != "report.txt" || !strings.HasPrefix(got.Path, w.Dirs()[0]) {
		t.Errorf("the download is %+v", got)
	}
	if b, err := os.ReadFile(d.Download.Saved); string(b) != "the report" {
		t.Errorf("it was saved as %q: %v", b, err)
	}
	if st, err := os.Stat(w.Dirs()[0]); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", st.Mode(), err)
	}
	if code, body := cmdtest.Get(t, "GET", p.URL+"/session/one/downloads"); code != 200 ||
		!strings.Contains(body, d.Download.GUID) {
		t.Errorf("the list is %d %s", code, body)
	}
	resp, err := http.Get(p.URL + "/session/one/downloads/" + d.Download.GUID)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if h := resp.Header; string(b) != "the report" || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Content-Disposition") != "attachment; filename=report.txt" {
		t.Errorf("the file is %q with %v", b, h)
	}
	for path, want := range map[string]int{
		"/session/playwright/downloads/" + d.Download.GUID: 404, "/session/one/downloads/..": 404,
		"/session/one/downloads/..%2f..%2fetc%2fpasswd": 404, "/session/none/downloads": 404,
	} {
		if code, body := cmdtest.Get(t, "GET", p.URL+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	got := strings.ReplaceAll(events.String(), "\t", " ")
	for _, want := range []string{"download_started ", "downloaded ", "download_failed canceled"} {
		if !strings.Contains(got, want) {
			t.Errorf("no event %q in\n%s", want, got)
		}
	}
	// What is in progress ends with the session.
	cmdtest.Click(t, ws, site, "slow")
	cmdtest.Until(t, "a download is in progress", func() bool {
		return strings.Contains(w.Run("bproxy", "downloads", "one").Out, "in_progress")
	})
	r := w.Run("bproxy", "downloads", "one", "--wait", "--timeout", "20ms")
	r.Exits(t, 75, "still in progress")
	w.Run("bproxy", "session", "end", "--all").Exits(t, 0, "")
	if left, _ := filepath.Glob(w.Dirs()[0] + "/*"); len(left) > 0 {
		t.Errorf("left of the sessions: %v", left)
	}
	p.Stop()
	w.Clean()
}

// Kept files outlive the session; a limit ends a download; no directory remains
// after a SIGKILL.
func TestKeptDownloads(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	p := w.Proxy("--isolate", "--downloads", w.Dir+"/kept", "--download-limit", "32KiB")
	ws := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/browser"
	cmdtest.Click(t, ws, site, "file")
	w.Run("bproxy", "downloads", "one", "--wait", "-f", "download.state").Exits(t, 0, "")
	cmdtest.Click(t, ws, site, "slow")
	cmdtest.Until(t, "the limit ends the download", func() bool {
		return strings.Contains(w.Run("bproxy", "downloads", "one", "-f", "download.why").Out, "limit")
	})
	w.Run("bproxy", "session", "new", "two", "--download-limit", "0").Exits(t, 0, "")
	cmdtest.Click(t, strings.Replace(ws, "/one/", "/two/", 1), site, "slow")
	cmdtest.Until(t, "a download is in progress", func() bool {
		return strings.Contains(w.Run("bproxy", "downloads", "two").Out, "in_progress")
	})
	p.Cmd.Process.Signal(syscall.SIGKILL)
	p.Cmd.Wait()
	cmdtest.Until(t, "the directory is gone", func() bool {
		w.Run("blaunch", "gc")
		return len(w.Dirs()) == 0
	})
	w.Clean()
	if b, err := os.ReadFile(w.Dir + "/kept/one/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
}

// A lease that has a browser to itself has downloads of its own as well,
// wherever its clients want them.
func TestWholeBrowserDownloads(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	w.Env = append(w.Env, "HOME="+w.Dir+"/home")
	p := w.Pool("BROWSER=chrome-headless-shell", "START=lazy", "_A_INSTANCES=2", "_A_IS_DEFAULT=1",
		"_A__1_DOWNLOADS="+w.Dir+"/kept",
		"_A__1_DOWNLOAD_LIMIT=32KiB", "_F_INSTANCES=1", "_F_BROWSER=firefox", "_N_INSTANCES=1", "_N_LAUNCH=false")
	for pool, why := range map[string]string{"F": "firefox reports no downloads", "N": "bpool does not launch"} {
		w.Run("bpool", "downloads", p.Lease(pool).Lease.ID).Exits(t, 1, why)
	}
	events := w.Events("bpool")
	a, kept := p.Lease("--instance", "0"), p.Lease("--instance", "1")
	cmdtest.Until(t, "the events are watched", func() bool {
		return len(events.String()) > 0 ||
			cmdtest.ReleaseAnother(w, p)
	})
	shows := func(l cmdtest.Leased, n int) string { return w.Downloads("bpool", l.Lease.ID, n) }

	cmdtest.Click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 1); got != "report.txt complete \n" {
		t.Errorf("the downloads are %q", got)
	}
	path := strings.Fields(w.Run("bpool", "downloads", a.Lease.ID, "-f", "download.path,download.guid").Out)
	if b, err := os.ReadFile(path[0]); string(b) != "the report" || !strings.HasPrefix(path[0], w.Dirs()[0]) {
		t.Errorf("%s holds %q: %v", path[0], b, err)
	}
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/downloads/"+path[1]); code != 200 ||
		body != "the report" {
		t.Errorf("the file is %d %s", code, body)
	}
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 200 || !strings.Contains(body,
		path[1]) {
		t.Errorf("the list is %d %s", code, body)
	}
	if code, body := cmdtest.Get(t, "GET", kept.Instance.HTTPURL+"/downloads/"+path[1]); code != 404 {
		t.Errorf("another lease's: %d %s", code, body)
	}
	w.Node("downloads-playwright.mjs", a.Instance.HTTPURL, site, w.Dir+"/got") // a directory of its own
	if got := shows(a, 7); strings.Count(got, "complete") != 5 || strings.Count(got, "failed interrupted") != 2 {
		t.Errorf("the downloads are %q", got)
	}
	cmdtest.Click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 8); strings.Count(got, "complete") != 6 {
		t.Errorf("the downloads are %q", got)
	}
	if strays, _ := filepath.Glob(w.Dir + "/home/Downloads/*"); len(strays) > 0 {
		t.Errorf("downloads in the home directory: %v", strays)
	}

	cmdtest.Click(t, kept.Instance.WSURL, site, "slow")
	if got := shows(kept, 1); got != "slow.bin failed limit\n" {
		t.Errorf("the downloads are %q", got)
	}
	cmdtest.Click(t, kept.Instance.WSURL, site, "file")
	shows(kept, 2)

	// A browser that dies, and a lease that ends, in the middle.
	inProgress := func(l cmdtest.Leased) {
		t.Helper()
		cmdtest.Click(t, l.Instance.WSURL, site, "slow")
		cmdtest.Until(t, "a download is in progress", func() bool {
			return strings.Contains(w.Run("bpool", "downloads", l.Lease.ID).Out, "in_progress")
		})
	}
	inProgress(a)
	syscall.Kill(p.PID(0), syscall.SIGKILL)
	cmdtest.Until(t, "the download has failed", func() bool {
		return !strings.Contains(w.Run("bpool", "downloads", a.Lease.ID).Out, "in_progress")
	})
	inProgress(a) // by the next browser
	w.Run("bpool", "release", a.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "the download ends with the lease", func() bool {
		return strings.HasSuffix(strings.TrimSpace(strings.ReplaceAll(events.String(), "released\t\n", "")),
			"download_failed\tcanceled")
	})
	w.Run("bpool", "downloads", a.Lease.ID).Exits(t, 69, "lease")
	cmdtest.Until(t, "nothing is left of the lease", func() bool {
		left, _ := filepath.Glob(w.Dirs()[0] + "/*/*")
		return !slices.ContainsFunc(left, func(name string) bool { return !strings.HasSuffix(name, "/incoming") })
	})
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 404 {
		t.Errorf("without a lease: %d %s", code, body)
	}
	a = p.Lease("--instance", "0")
	if got := w.Run("bpool", "downloads", a.Lease.ID).Out; got != "" {
		t.Errorf("a new lease has downloads: %s", got)
	}
	cmdtest.Click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 1); got != "report.txt complete \n" {
		t.Errorf("the downloads are %q", got)
	}
	p.Stop()
	w.Clean()
	if b, err := os.ReadFile(w.Dir + "/kept/" + kept.Lease.ID + "/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
}

// Whatever is killed during a download, nothing is left: who holds the browser
// deletes the files, too.
func TestKilledDuringDownload(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	for name, start := range map[string]func(w *cmdtest.World) (ws string, program *exec.Cmd){
		"bproxy": func(w *cmdtest.World) (string, *exec.Cmd) {
			p := w.Proxy("--isolate")
			return "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/browser", p.Cmd
		},
		"bpool with sessions": func(w *cmdtest.World) (string, *exec.Cmd) {
			p := w.Shared("_A_INSTANCES=1")
			return p.Lease().Instance.WSURL, p.Cmd
		},
		"bpool with whole browsers": func(w *cmdtest.World) (string, *exec.Cmd) {
			p := w.Pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
			return p.Lease().Instance.WSURL, p.Cmd
		},
		"bmcp": func(w *cmdtest.World) (string, *exec.Cmd) {
			m := w.MCP([]string{"BTOOLS_BROWSER=chrome-headless-shell"}, "--headless", "--mcp",
				cmdtest.Bin+"/fakechild {ws_endpoint}")
			m.AwaitTools("getenv")
			ws := m.Tool("getenv", `{"session_id":"one","names":["BTOOLS_WS_URL"]}`).Text(w.T)
			return strings.TrimSpace(ws), m.Cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			ws, program := start(w)
			startSlow(t, w, ws, site)
			program.Process.Signal(syscall.SIGKILL)
			program.Wait()
			cmdtest.Until(t, "the directories are gone", func() bool {
				left, _ := filepath.Glob(w.Dir + "/btools-*")
				return len(left) == 0
			})
			w.Clean()
		})
	}
	t.Run("blaunch", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		p := w.Pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
		l := p.Lease()
		startSlow(t, w, l.Instance.WSURL, site)
		syscall.Kill(w.State().Instances[0].Supervisor.PID, syscall.SIGKILL)
		cmdtest.Until(t, "the download has failed", func() bool {
			return strings.Contains(w.Run("bpool", "downloads", l.Lease.ID).Out, "interrupted")
		})
		p.Stop()
		w.Clean()
	})
}

// startSlow starts a download that does not end, and waits until the browser
// writes it.
func startSlow(t *testing.T, w *cmdtest.World, ws, site string) {
	t.Helper()
	cmdtest.Click(t, ws, site, "slow")
	cmdtest.Until(t, "the browser writes the file", func() bool {
		var found []string
		for _, depth := range []string{"/*", "/*/*", "/*/*/*"} {
			some, _ := filepath.Glob(w.Dir + "/btools-run_*" + depth + ".crdownload")
			found = append(found, some...)
		}
		return len(found) > 0
	})
}

// A disk that is full fails a download, and nothing else.
func TestDownloadToFullDisk(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	small := func(dir string) (unmount func()) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skipf("cannot mount a file system: %v", err)
		}
		return func() { syscall.Unmount(dir, syscall.MNT_DETACH) }
	}
	if err := os.Mkdir(w.Dir+"/kept", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small(w.Dir + "/kept"))
	incoming := func(pattern string) string {
		t.Helper()
		dirs, _ := filepath.Glob(w.Dirs()[0] + pattern)
		if len(dirs) != 1 {
			t.Fatalf("the directories are %v", dirs)
		}
		return dirs[0]
	}
	fails := func(ws, program, of string) {
		t.Helper()
		cmdtest.Click(t, ws, site, "big")
		if got := w.Downloads(program, of, 1); got != "big.bin failed interrupted\n" {
			t.Errorf("the downloads are %q", got)
		}
	}
	goesOn := func(ws, program, of string) {
		t.Helper()
		cmdtest.Click(t, ws, site, "file")
		if got := w.Downloads(program, of, 2); got != "big.bin failed interrupted\nreport.txt complete \n" {
			t.Errorf("the downloads are %q", got)
		}
	}

	p := w.Proxy("--isolate", "--downloads", w.Dir+"/kept")
	ws := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/one/devtools/browser"
	fails(ws, "bproxy", "one") // complete, and there is no room where it is kept
	if left, _ := filepath.Glob(w.Dir + "/kept/one/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	goesOn(ws, "bproxy", "one")
	w.Run("bproxy", "session", "end", "one").Exits(t, 0, "")

	w.Run("bproxy", "session", "new", "two").Exits(t, 0, "")
	unmount := small(incoming("/session-*/incoming"))
	t.Cleanup(unmount)
	ws = strings.Replace(ws, "/one/", "/two/", 1)
	fails(ws, "bproxy", "two")
	goesOn(ws, "bproxy", "two")
	unmount()
	p.Stop()

	pool := w.Pool("BROWSER=chrome-headless-shell", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	l := pool.Lease()
	unmount = small(incoming("/browser-*"))
	t.Cleanup(unmount)
	fails(l.Instance.WSURL, "bpool", l.Lease.ID)
	goesOn(l.Instance.WSURL, "bpool", l.Lease.ID)
	unmount()
	pool.Stop()
	w.Clean()
}
