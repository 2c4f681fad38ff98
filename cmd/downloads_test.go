//go:build linux

package cmd_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// downloadSite serves a page that downloads /file, /big, which has a megabyte, or
// /slow, which never ends.
func downloadSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=report.txt")
			io.WriteString(w, "the report")
		case "/big":
			w.Header().Set("Content-Disposition", "attachment; filename=big.bin")
			io.WriteString(w, strings.Repeat("x", 1<<20))
		case "/slow":
			w.Header().Set("Content-Disposition", "attachment; filename=slow.bin")
			io.WriteString(w, strings.Repeat("x", 64<<10))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html><title>files</title><a id=file href=/file>file</a> <a id=popup "+
				"target=_blank href=/file>pop-up</a> <a id=slow href=/slow>slow</a> <a id=big href=/big>big</a> "+
				"<input type=file>")
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// node runs a client of scripts/clients, which says that it is done.
func (w *world) node(script string, args ...string) {
	w.t.Helper()
	dir, err := filepath.Abs("../scripts/clients")
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.cmd("node", append([]string{filepath.Join(dir, script)}, args...)...)
	if out, err := c.CombinedOutput(); err != nil || string(out) != "done\n" {
		w.t.Errorf("%s: %v\n%s", script, err, out)
	}
}

// click has the first page of a session click on an element.
func click(t *testing.T, ws, page, id string) {
	t.Helper()
	target := once(t, ws, newPage, fmt.Sprintf(`{"url":%q}`, page))
	var made struct {
		Result struct {
			TargetID string `json:"targetId"`
		}
	}
	if err := json.Unmarshal([]byte(target), &made); err != nil {
		t.Fatalf("%v: %s", err, target)
	}
	at, _, _ := strings.Cut(ws, "/devtools/")
	p := dial(t, at+"/devtools/page/"+made.Result.TargetID)
	defer p.conn.Close(websocket.Normal, "")
	until(t, "the page has loaded", func() bool {
		return strings.Contains(p.ask("Runtime.evaluate",
			fmt.Sprintf(`{"expression":"!!document.querySelector('#%s')"}`, id)), "true")
	})
	p.ask("Runtime.evaluate", fmt.Sprintf(`{"expression":"document.querySelector('#%s').click()"}`, id))
}

// events are the events that a command prints.
func (w *world) events(program string, args ...string) *syncBuffer {
	w.t.Helper()
	out := &syncBuffer{}
	c := w.cmd(program, append([]string{"watch", "-f", "event.event,event.why"}, args...)...)
	c.Stdout = out
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return out
}

// downloads waits until a session or lease has n downloads, none of which is in
// progress, and returns their names, states and reasons.
func (w *world) downloads(program, of string, n int) (got string) {
	w.t.Helper()
	until(w.t, fmt.Sprint(n, " downloads"), func() bool {
		r := w.run(program, "downloads", of, "-f", "download.name,download.state,download.why")
		r.wants(w.t, 0, "")
		got = strings.ReplaceAll(r.out, "\t", " ")
		return strings.Count(got, "\n") == n && !strings.Contains(got, "in_progress")
	})
	return got
}

// dirs are the temporary directories of programs.
func (w *world) dirs() []string {
	all, _ := filepath.Glob(w.dir + "/btools-run_*")
	return all
}

func TestSessionDownloads(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	root := w.dir + "/uploads"
	write(t, root+"/allowed.txt", "allowed")
	p := w.proxy("--isolate", "--upload-root", root)
	events := w.events("bproxy")
	at := func(name string) (string, string) {
		return p.url + "/session/" + name, "ws" + strings.TrimPrefix(p.url, "http") + "/session/" + name +
			"/devtools/browser"
	}
	_, ws := at("one")
	if code, _ := get(t, "GET", p.url+"/session/one/downloads"); code != 404 || p.sessions() != "" {
		t.Errorf("the downloads of no session: %d, sessions %q", code, p.sessions())
	}
	until(t, "the events are watched", func() bool { // what comes before is not shown
		w.run("bproxy", "session", "new", "first")
		w.run("bproxy", "session", "end", "first")
		return strings.Contains(events.String(), "ended")
	})
	httpURL, _ := at("playwright")
	w.node("downloads-playwright.mjs", httpURL, site, w.dir+"/got")
	w.node("downloads-puppeteer.mjs", ws, site, w.dir+"/got", root)

	list := w.run("bproxy", "downloads", "one", "--wait", "--save", w.dir+"/saved")
	list.wants(t, 0, "")
	var d struct {
		Download struct{ GUID, Name, SHA256, Path, Saved, URL, Session string }
	}
	if err := json.Unmarshal([]byte(list.out), &d); err != nil {
		t.Fatalf("%v: %s", err, list.out)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("the report")))
	if got := d.Download; got.Name != "report.txt" || got.SHA256 != sum || got.URL != site+"/file" ||
		got.Session != "one" || filepath.Base(got.Saved) != "report.txt" || !strings.HasPrefix(got.Path, w.dirs()[0]) {
		t.Errorf("the download is %+v", got)
	}
	if b, err := os.ReadFile(d.Download.Saved); string(b) != "the report" {
		t.Errorf("it was saved as %q: %v", b, err)
	}
	if st, err := os.Stat(w.dirs()[0]); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", st.Mode(), err)
	}
	if code, body := get(t, "GET", p.url+"/session/one/downloads"); code != 200 ||
		!strings.Contains(body, d.Download.GUID) {
		t.Errorf("the list is %d %s", code, body)
	}
	resp, err := http.Get(p.url + "/session/one/downloads/" + d.Download.GUID)
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
		if code, body := get(t, "GET", p.url+path); code != want {
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
	click(t, ws, site, "slow")
	until(t, "a download is in progress", func() bool {
		return strings.Contains(w.run("bproxy", "downloads", "one").out, "in_progress")
	})
	r := w.run("bproxy", "downloads", "one", "--wait", "--timeout", "20ms")
	r.wants(t, 75, "still in progress")
	w.run("bproxy", "session", "end", "--all").wants(t, 0, "")
	if left, _ := filepath.Glob(w.dirs()[0] + "/*"); len(left) > 0 {
		t.Errorf("left of the sessions: %v", left)
	}
	p.stop()
	w.clean()
}

// Kept files outlive the session; a limit ends a download; no directory remains
// after a SIGKILL.
func TestKeptDownloads(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	p := w.proxy("--isolate", "--downloads", w.dir+"/kept", "--download-limit", "32KiB")
	ws := "ws" + strings.TrimPrefix(p.url, "http") + "/session/one/devtools/browser"
	click(t, ws, site, "file")
	w.run("bproxy", "downloads", "one", "--wait", "-f", "download.state").wants(t, 0, "")
	click(t, ws, site, "slow")
	until(t, "the limit ends the download", func() bool {
		return strings.Contains(w.run("bproxy", "downloads", "one", "-f", "download.why").out, "limit")
	})
	w.run("bproxy", "session", "new", "two", "--download-limit", "0").wants(t, 0, "")
	click(t, strings.Replace(ws, "/one/", "/two/", 1), site, "slow")
	until(t, "a download is in progress", func() bool {
		return strings.Contains(w.run("bproxy", "downloads", "two").out, "in_progress")
	})
	p.cmd.Process.Signal(syscall.SIGKILL)
	p.cmd.Wait()
	until(t, "the directory is gone", func() bool {
		w.run("blaunch", "gc")
		return len(w.dirs()) == 0
	})
	w.clean()
	if b, err := os.ReadFile(w.dir + "/kept/one/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
}

// Each lease of a shared browser has downloads of its own, which end with it.
func TestLeaseDownloads(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	root := w.dir + "/uploads"
	write(t, root+"/allowed.txt", "allowed")
	bare := w.env
	for says, v := range map[string]string{"absolute path": "DOWNLOADS=x", "whole number": "DOWNLOAD_LIMIT=9",
		"absolute paths": "UPLOAD_ROOTS=/none"} {
		w.env = append(slices.Clone(bare), "PW_MCP_PROXY_BROWSER=chromium", "PW_MCP_PROXY__A_INSTANCES=1",
			"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__A_ISOLATION=context", "PW_MCP_PROXY_"+v)
		w.run("bpool", "check").wants(t, 78, says)
	}
	w.env = bare
	p := w.shared("_A_INSTANCES=2", "_A__1_DOWNLOADS="+w.dir+"/kept", "_A_UPLOAD_ROOTS="+root)
	events := w.events("bpool")
	a, kept := p.lease("--instance", "0"), p.lease("--instance", "1")
	until(t, "the events are watched", func() bool { return len(events.String()) > 0 || releaseAnother(w, p) })
	w.node("downloads-puppeteer.mjs", a.Instance.WSURL, site, w.dir+"/got", root)
	w.node("downloads-playwright.mjs", kept.Instance.HTTPURL, site, w.dir+"/got")
	r := w.run("bpool", "downloads", a.Lease.ID, "--wait", "--save", w.dir+"/saved", "-f",
		"download.name,download.saved")
	if r.wants(t, 0, ""); r.out != "report.txt\t"+w.dir+"/saved/report.txt\n" {
		t.Errorf("the downloads are %q", r.out)
	}
	guid := strings.TrimSpace(w.run("bpool", "downloads", a.Lease.ID, "-f", "download.guid").out)
	if code, body := get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 200 || !strings.Contains(body, guid) {
		t.Errorf("the list is %d %s", code, body)
	}
	if code, body := get(t, "GET", a.Instance.HTTPURL+"/downloads/"+guid); code != 200 || body != "the report" {
		t.Errorf("the file is %d %s", code, body)
	}
	if code, body := get(t, "GET", kept.Instance.HTTPURL+"/downloads/"+guid); code != 404 {
		t.Errorf("another lease's: %d %s", code, body)
	}
	click(t, a.Instance.WSURL, site, "slow")
	until(t, "a download is in progress", func() bool {
		return strings.Contains(w.run("bpool", "downloads", a.Lease.ID).out, "in_progress")
	})
	w.run("bpool", "release", a.Lease.ID).wants(t, 0, "")
	until(t, "the download ends with the lease", func() bool {
		got := events.String()
		return strings.Contains(got, "download_started") && strings.Contains(got, "downloaded") &&
			strings.Count(got, "download_failed\tcanceled") == 3 // and two by Playwright
	})
	w.run("bpool", "downloads", a.Lease.ID).wants(t, 69, "lease")
	if b, err := os.ReadFile(w.dir + "/kept/" + kept.Lease.ID + "/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
	p.cmd.Process.Signal(syscall.SIGKILL)
	p.cmd.Wait()
	until(t, "the directory is gone", func() bool {
		w.run("blaunch", "gc")
		return len(w.dirs()) == 0
	})
	w.clean()
}

// A lease that has a browser to itself has downloads of its own as well,
// wherever its clients want them.
func TestWholeBrowserDownloads(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	w.env = append(w.env, "HOME="+w.dir+"/home")
	p := w.pool("BROWSER=chromium", "START=lazy", "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A__1_DOWNLOADS="+w.dir+"/kept",
		"_A__1_DOWNLOAD_LIMIT=32KiB", "_F_INSTANCES=1", "_F_BROWSER=firefox", "_N_INSTANCES=1", "_N_LAUNCH=false")
	for pool, why := range map[string]string{"F": "firefox reports no downloads", "N": "bpool does not launch"} {
		w.run("bpool", "downloads", p.lease(pool).Lease.ID).wants(t, 1, why)
	}
	events := w.events("bpool")
	a, kept := p.lease("--instance", "0"), p.lease("--instance", "1")
	until(t, "the events are watched", func() bool { return len(events.String()) > 0 || releaseAnother(w, p) })
	shows := func(l leased, n int) string { return w.downloads("bpool", l.Lease.ID, n) }

	click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 1); got != "report.txt complete \n" {
		t.Errorf("the downloads are %q", got)
	}
	path := strings.Fields(w.run("bpool", "downloads", a.Lease.ID, "-f", "download.path,download.guid").out)
	if b, err := os.ReadFile(path[0]); string(b) != "the report" || !strings.HasPrefix(path[0], w.dirs()[0]) {
		t.Errorf("%s holds %q: %v", path[0], b, err)
	}
	if code, body := get(t, "GET", a.Instance.HTTPURL+"/downloads/"+path[1]); code != 200 || body != "the report" {
		t.Errorf("the file is %d %s", code, body)
	}
	if code, body := get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 200 || !strings.Contains(body, path[1]) {
		t.Errorf("the list is %d %s", code, body)
	}
	if code, body := get(t, "GET", kept.Instance.HTTPURL+"/downloads/"+path[1]); code != 404 {
		t.Errorf("another lease's: %d %s", code, body)
	}
	w.node("downloads-playwright.mjs", a.Instance.HTTPURL, site, w.dir+"/got") // a directory of its own
	if got := shows(a, 7); strings.Count(got, "complete") != 5 || strings.Count(got, "failed interrupted") != 2 {
		t.Errorf("the downloads are %q", got)
	}
	click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 8); strings.Count(got, "complete") != 6 {
		t.Errorf("the downloads are %q", got)
	}
	if strays, _ := filepath.Glob(w.dir + "/home/Downloads/*"); len(strays) > 0 {
		t.Errorf("downloads in the home directory: %v", strays)
	}

	click(t, kept.Instance.WSURL, site, "slow")
	if got := shows(kept, 1); got != "slow.bin failed limit\n" {
		t.Errorf("the downloads are %q", got)
	}
	click(t, kept.Instance.WSURL, site, "file")
	shows(kept, 2)

	// A browser that dies, and a lease that ends, in the middle.
	inProgress := func(l leased) {
		t.Helper()
		click(t, l.Instance.WSURL, site, "slow")
		until(t, "a download is in progress", func() bool {
			return strings.Contains(w.run("bpool", "downloads", l.Lease.ID).out, "in_progress")
		})
	}
	inProgress(a)
	syscall.Kill(p.pid(0), syscall.SIGKILL)
	until(t, "the download has failed", func() bool {
		return !strings.Contains(w.run("bpool", "downloads", a.Lease.ID).out, "in_progress")
	})
	inProgress(a) // by the next browser
	w.run("bpool", "release", a.Lease.ID).wants(t, 0, "")
	until(t, "the download ends with the lease", func() bool {
		return strings.HasSuffix(strings.TrimSpace(strings.ReplaceAll(events.String(), "released\t\n", "")),
			"download_failed\tcanceled")
	})
	w.run("bpool", "downloads", a.Lease.ID).wants(t, 69, "lease")
	until(t, "nothing is left of the lease", func() bool {
		left, _ := filepath.Glob(w.dirs()[0] + "/*/*")
		return !slices.ContainsFunc(left, func(name string) bool { return !strings.HasSuffix(name, "/incoming") })
	})
	if code, body := get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 404 {
		t.Errorf("without a lease: %d %s", code, body)
	}
	a = p.lease("--instance", "0")
	if got := w.run("bpool", "downloads", a.Lease.ID).out; got != "" {
		t.Errorf("a new lease has downloads: %s", got)
	}
	click(t, a.Instance.WSURL, site, "file")
	if got := shows(a, 1); got != "report.txt complete \n" {
		t.Errorf("the downloads are %q", got)
	}
	p.stop()
	w.clean()
	if b, err := os.ReadFile(w.dir + "/kept/" + kept.Lease.ID + "/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
}

// Whatever is killed during a download, nothing is left: who holds the browser
// deletes the files, too.
func TestKilledDuringDownload(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	for name, start := range map[string]func(w *world) (ws string, program *exec.Cmd){
		"bproxy": func(w *world) (string, *exec.Cmd) {
			p := w.proxy("--isolate")
			return "ws" + strings.TrimPrefix(p.url, "http") + "/session/one/devtools/browser", p.cmd
		},
		"bpool with sessions": func(w *world) (string, *exec.Cmd) {
			p := w.shared("_A_INSTANCES=1")
			return p.lease().Instance.WSURL, p.cmd
		},
		"bpool with whole browsers": func(w *world) (string, *exec.Cmd) {
			p := w.pool("BROWSER=chromium", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
			return p.lease().Instance.WSURL, p.cmd
		},
		"bmcp": func(w *world) (string, *exec.Cmd) {
			m := w.mcp([]string{"BTOOLS_BROWSER=chromium"}, "--headless", "--mcp", bin+"/fakechild {ws_endpoint}")
			m.lists("getenv")
			ws := m.tool("getenv", `{"session_id":"one","names":["BTOOLS_WS_URL"]}`).text(w.t)
			return strings.TrimSpace(ws), m.cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ws, program := start(w)
			startSlow(t, w, ws, site)
			program.Process.Signal(syscall.SIGKILL)
			program.Wait()
			until(t, "the directories are gone", func() bool {
				left, _ := filepath.Glob(w.dir + "/btools-*")
				return len(left) == 0
			})
			w.clean()
		})
	}
	t.Run("blaunch", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		p := w.pool("BROWSER=chromium", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
		l := p.lease()
		startSlow(t, w, l.Instance.WSURL, site)
		syscall.Kill(w.state().Instances[0].Supervisor.PID, syscall.SIGKILL)
		until(t, "the download has failed", func() bool {
			return strings.Contains(w.run("bpool", "downloads", l.Lease.ID).out, "interrupted")
		})
		p.stop()
		w.clean()
	})
}

// startSlow starts a download that does not end, and waits until the browser
// writes it.
func startSlow(t *testing.T, w *world, ws, site string) {
	t.Helper()
	click(t, ws, site, "slow")
	until(t, "the browser writes the file", func() bool {
		var found []string
		for _, depth := range []string{"/*", "/*/*", "/*/*/*"} {
			some, _ := filepath.Glob(w.dir + "/btools-run_*" + depth + ".crdownload")
			found = append(found, some...)
		}
		return len(found) > 0
	})
}

// A disk that is full fails a download, and nothing else.
func TestDownloadToFullDisk(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	w := newWorld(t)
	small := func(dir string) (unmount func()) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skipf("cannot mount a file system: %v", err)
		}
		return func() { syscall.Unmount(dir, syscall.MNT_DETACH) }
	}
	if err := os.Mkdir(w.dir+"/kept", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small(w.dir + "/kept"))
	incoming := func(pattern string) string {
		t.Helper()
		dirs, _ := filepath.Glob(w.dirs()[0] + pattern)
		if len(dirs) != 1 {
			t.Fatalf("the directories are %v", dirs)
		}
		return dirs[0]
	}
	fails := func(ws, program, of string) {
		t.Helper()
		click(t, ws, site, "big")
		if got := w.downloads(program, of, 1); got != "big.bin failed interrupted\n" {
			t.Errorf("the downloads are %q", got)
		}
	}
	goesOn := func(ws, program, of string) {
		t.Helper()
		click(t, ws, site, "file")
		if got := w.downloads(program, of, 2); got != "big.bin failed interrupted\nreport.txt complete \n" {
			t.Errorf("the downloads are %q", got)
		}
	}

	p := w.proxy("--isolate", "--downloads", w.dir+"/kept")
	ws := "ws" + strings.TrimPrefix(p.url, "http") + "/session/one/devtools/browser"
	fails(ws, "bproxy", "one") // complete, and there is no room where it is kept
	if left, _ := filepath.Glob(w.dir + "/kept/one/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	goesOn(ws, "bproxy", "one")
	w.run("bproxy", "session", "end", "one").wants(t, 0, "")

	w.run("bproxy", "session", "new", "two").wants(t, 0, "")
	unmount := small(incoming("/session-*/incoming"))
	t.Cleanup(unmount)
	ws = strings.Replace(ws, "/one/", "/two/", 1)
	fails(ws, "bproxy", "two")
	goesOn(ws, "bproxy", "two")
	unmount()
	p.stop()

	pool := w.pool("BROWSER=chromium", "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	l := pool.lease()
	unmount = small(incoming("/browser-*"))
	t.Cleanup(unmount)
	fails(l.Instance.WSURL, "bpool", l.Lease.ID)
	goesOn(l.Instance.WSURL, "bpool", l.Lease.ID)
	unmount()
	pool.stop()
	w.clean()
}

// releaseAnother makes an event.
func releaseAnother(w *world, p *pool) bool {
	w.run("bpool", "drain").wants(w.t, 0, "")
	w.run("bpool", "drain", "--off").wants(w.t, 0, "")
	return false
}

// The result of a tool names the file that its browser has downloaded.
func TestMCPDownloads(t *testing.T) {
	t.Parallel()
	site := downloadSite(t)
	for name, env := range map[string][]string{
		"one browser": {"BTOOLS_BROWSER=chromium"},
		"a pool":      {"BTOOLS_BROWSER=chromium", "PW_MCP_PROXY__A_INSTANCES=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.mcp(env, "--mcp", fake())
			m.lists("getenv")
			where := func() string { return m.tool("getenv", `{"names":["BTOOLS_CDP_URL"]}`).text(t) }
			first := where()
			if strings.Contains(first, "Downloaded") {
				t.Errorf("the first result is %s", first)
			}
			url := strings.Fields(first)[0]
			click(t, strings.Replace(url, "http", "ws", 1)+"/devtools/browser", site, "file")
			until(t, "the download is complete", func() bool {
				_, list := get(t, "GET", url+"/downloads")
				return strings.Contains(list, `"complete"`)
			})
			if text := where(); !strings.Contains(text, "Downloaded report.txt (10 bytes) to "+w.dir+"/btools-run_") {
				t.Errorf("the result is %s", text)
			}
			if text := where(); strings.Contains(text, "Downloaded") {
				t.Errorf("the file is named twice: %s", text)
			}
			m.end()
			w.clean()
		})
	}
}

// upload has a new page of a session put a file into a form, and returns the
// answer.
func upload(t *testing.T, ws, file string) string {
	t.Helper()
	at, _, _ := strings.Cut(ws, "/devtools/")
	target := dial(t, ws).ask(newPage, `{"url":"data:text/html,<input type=file>"}`)
	p := dial(t, at+"/devtools/page/"+jsonrpc.GetString([]byte(target), "result", "targetId"))
	var input string
	until(t, "the page has loaded", func() bool {
		got := p.ask("Runtime.evaluate", `{"expression":"document.querySelector('input')"}`)
		input = jsonrpc.GetString([]byte(got), "result", "result", "objectId")
		return input != ""
	})
	return p.ask("DOM.setFileInputFiles", fmt.Sprintf(`{"objectId":%q,"files":[%q]}`, input, file))
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
			w := newWorld(t)
			write(t, w.dir+"/project/a.txt", "inside")
			write(t, w.dir+"/home/x", "")
			env := []string{"BTOOLS_BROWSER=chromium"}
			if c.home != "" {
				env = append(env, "HOME="+strings.Replace(c.home, "%", w.dir, 1))
			}
			args := []string{"--headless", "--mcp", bin + "/fakechild {ws_endpoint}"}
			if c.args != "" {
				args = append(args, c.args)
			}
			m := w.mcp(env, args...)
			m.lists("getenv")
			ws := m.tool("getenv", `{"session_id":"one","names":["BTOOLS_WS_URL"]}`).text(t)
			for file, ok := range map[string]bool{w.dir + "/project/a.txt": c.inside, "/etc/hostname": c.outside} {
				if answer := upload(t, ws, file); strings.Contains(answer, "--upload-root") == ok {
					t.Errorf("%s: %s", file, answer)
				}
			}
			m.end()
			w.clean()
		})
	}
	w := newWorld(t)
	w.run("bmcp", "--upload-root", w.dir+"/none").wants(t, 78, "--upload-root")
	w.run("bmcp", "--upload-root", w.dir, "--shared").wants(t, 64, "--upload-root")
	w.run("bmcp", "--upload-root", w.dir, "--pool-config", "x").wants(t, 64, "--upload-root has no effect")
}
