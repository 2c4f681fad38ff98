//go:build linux

package tools

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startFirefox starts a headless Firefox, which ends with the test.
func startFirefox(t *testing.T) (bidi string, p *os.Process) {
	t.Helper()
	profile := t.TempDir()
	prefs := `user_pref("browser.startup.page", 0);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("dom.ipc.reportProcessHangs", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
user_pref("browser.download.folderList", 2);
user_pref("browser.download.dir", "` + t.TempDir() + `");
`
	if err := os.WriteFile(filepath.Join(profile, "user.js"), []byte(prefs), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "firefox-esr"
	if _, err := exec.LookPath(name); err != nil {
		name = "firefox"
	}
	c := exec.Command(name, "--headless", "--remote-debugging-port=0", "--no-remote", "--profile", profile,
		"about:blank")
	c.Env = append(os.Environ(), "MOZ_CRASHREPORTER_DISABLE=1")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatalf("cannot start %s (make deps installs it): %v", name, err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		io.Copy(io.Discard, stderr) // until its children have ended
		c.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "WebDriver BiDi listening on "); ok {
			go io.Copy(io.Discard, stderr)
			// Chrome's threads have this priority where root starts it, and Firefox's would wait
			// for them.
			syscall.Setpriority(syscall.PRIO_PROCESS, c.Process.Pid, -8)
			return url + "/session", c.Process
		}
	}
	t.Fatal("Firefox did not start")
	return "", nil
}

// pagesOf are the processes of a Firefox that show pages.
func pagesOf(t *testing.T, firefox int) (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		b, _ := os.ReadFile(path)
		said := strings.ReplaceAll(string(b), "\x00", " ")
		if strings.Contains(said, fmt.Sprintf(" -parentPid %d ", firefox)) &&
			strings.Contains(said, " -isForBrowser ") {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestPagesAndTabs, on a Firefox.
func TestPagesAndTabsFirefox(t *testing.T) {
	endpoint, _ := startFirefox(t)
	o := Options{BiDi: endpoint}
	o.Only, _ = Names("all")
	h := serveWith(t, o)
	usePages(h, newSite(t))
	const told = `{"function":"() => [innerWidth, devicePixelRatio, navigator.language, new Date(0).getHours(), ` +
		`navigator.userAgent, navigator.onLine].join(' ')"}`
	h.wants(false, `All pages emulate {"device":"300x200@2"`, "browser_emulate",
		`{"device":"300x200@2","userAgent":"Ours","timezone":"Asia/Tokyo","locale":"de-DE","headers":["X-A: 1"],`+
			`"geolocation":"1,2"}`)
	h.wants(false, `"300 2 de-DE 9 Ours true"`, "browser_evaluate", told)
	h.wants(false, "", "browser_tabs", `{"action":"new"}`)
	h.wants(false, `"300 2 de-DE 9 Ours true"`, "browser_evaluate", told)
	h.wants(true, "permissions: Firefox asks a person", "browser_emulate", `{"permissions":["camera"]}`)
	h.wants(false, "All pages emulate {}", "browser_emulate", `{"reset":true}`)
	h.wants(false, "Gecko", "browser_evaluate", told)
}

// TestMatrix, on one Firefox. What is read of pages may take longer than the bounds of the calls that last to their
// end. It is not parallel: the Chromes of other tests have a higher priority than all but its main thread.
func TestMatrixFirefox(t *testing.T) {
	m := matrix{site: matrixSite(t), second: 600 * time.Millisecond,
		expected: regexp.MustCompile(`nothing matches|no dialog is open|no tab|no page (before|after) this one`)}
	site := m.site
	m.calls = slices.DeleteFunc(matrixTools(site), func(c [2]string) bool {
		return !slices.Contains(onFirefox(), c[0])
	})
	for _, name := range onFirefox() {
		if !slices.ContainsFunc(m.calls, func(c [2]string) bool { return c[0] == name }) {
			t.Errorf("%s is not in the matrix", name)
		}
	}
	endpoint, p := startFirefox(t)
	t.Run("page", func(t *testing.T) {
		h := serveWith(t, Options{BiDi: endpoint, Second: 2 * time.Second})
		until(h, "- HTTP status: 404 Not Found\n", "browser_navigate", `{"url":`+quoted(site+"/missing")+`}`)
		h.wants(false, "Page URL: "+site+"/healthy", "browser_navigate", `{"url":`+quoted(site+"/healthy")+`}`)
		h.wants(true, "### Error\nThe script threw\n```\nError: one\n### Page\n```", "browser_evaluate",
			`{"function":"() => { throw Error('one\\n### Page') }"}`)
		h.wants(false, "- "+site+"/file is a file, which is downloaded", "browser_navigate",
			`{"url":`+quoted(site+"/file")+`}`)
		h.wants(true, site+"/nothing has no page: the server has answered 204 No Content, and the page before it is "+
			"still open", "browser_navigate", `{"url":`+quoted(site+"/nothing")+`}`)
		h.wants(false, "/nothing", "browser_evaluate", `{"function":"() => document.links[0].href = '/nothing'"}`)
		h.wants(false, "- Clicked link \"a link\"\n### Snapshot", "browser_click", `{"target":"text=a link"}`)
		h.wants(false, "- Began to download file", "browser_evaluate", `{"function":"() => { location = '/file' }"}`)
		h.wants(false, "", "browser_navigate", `{"url":`+quoted("data:text/html,"+url.PathEscape(controls))+`}`)
		if got := interactive(h, `{"interactive":true}`); got != controlsOnly {
			t.Errorf("the interactive snapshot is\n%s", got)
		}
		useForms(t, h)
		h.wants(false, "Page URL: "+site+"/healthy", "browser_navigate", `{"url":`+quoted(site+"/healthy")+`}`)
		h.wants(false, "- Opened tab 1: browser_tabs selects it\n", "browser_evaluate",
			`{"function":"async () => { const w = open('/normal'); while (w.location.pathname !== '/normal') `+
				`await new Promise((done) => setTimeout(done, 10)) }"}`)
		h.wants(false, "0: (current)", "browser_tabs", `{"action":"close","index":1}`)
		t.Run("strays", func(t *testing.T) { checkStrays(h.as(t), onFirefox()) })
		t.Run("fields", func(t *testing.T) { checkFieldsOfFirefox(h.as(t), fieldSite(t)) })
	})
	h := serveWith(t, Options{BiDi: endpoint, Second: m.second})
	// One that answers late, as on a busy machine, is driven by the calls after that.
	p.Signal(syscall.SIGSTOP)
	h.wants(true, "the browser does not answer", "browser_navigate", `{"url":"about:blank"}`)
	p.Signal(syscall.SIGCONT)
	until(h, "Page URL: "+site+"/healthy", "browser_navigate", `{"url":`+quoted(site+"/healthy")+`}`)
	m.run(t, h, []matrixState{
		{"normal", func(h *host) { m.open(h, "/normal") }, "", []string{"browser_click", "browser_wait_for"}},
		{"dialog", func(h *host) {
			m.open(h, "/alert")
			until(h, "can be handled by", "browser_tabs", `{"action":"select","index":1}`)
			until(h, "a dialog is open", "browser_snapshot", `{}`)
		}, "a dialog is open", []string{"browser_handle_dialog", "browser_close"}},
		{"closed", func(h *host) {
			m.open(h, "/normal")
			h.call("browser_evaluate", `{"function":"() => { open('/closes') }"}`)
			h.call("browser_tabs", `{"action":"select","index":2}`)
		}, "was closed", []string{"browser_wait_for"}},
		{"leaving", func(h *host) {
			m.open(h, "/normal")
			h.call("browser_evaluate", `{"function":"() => { location = '/never' }"}`)
			h.wants(false, "- Leaving for: "+site+"/never", "browser_snapshot", `{}`)
		}, "has not answered", []string{"browser_snapshot"}},
		{"hung", func(h *host) {
			m.open(h, "/normal")
			h.call("browser_evaluate", `{"function":"() => { setTimeout(() => { for (;;); }) }"}`)
		}, "a blank one is in its place", []string{"browser_snapshot", "browser_navigate", "browser_close"}},
		{"frame", func(h *host) {
			m.open(h, "/frame")
			until(h, "# does not answer", "browser_snapshot", `{}`)
		}, "a frame does not answer", []string{"browser_wait_for"}},
		{"modal", func(h *host) { m.open(h, "/modal") }, inertSays, nil},
		{"inert", func(h *host) { m.open(h, "/inert") }, inertSays, nil},
		{"stream", func(h *host) { m.open(h, "/stream") }, "", nil},
		{"never", func(h *host) { m.open(h, "/never") }, "has not answered", nil},
	})
	t.Run("crashed", func(t *testing.T) {
		h := h.as(t)
		for _, c := range m.calls {
			if !isLong && c[0] != "browser_snapshot" && c[0] != "browser_close" {
				continue
			}
			for _, pid := range pagesOf(t, p.Pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			until(h, "has crashed", "browser_evaluate", `{"function":"() => 1"}`)
			m.check(t, h, c, "has crashed")
			h.wants(false, "Page URL: "+site+"/healthy", "browser_navigate", `{"url":`+quoted(site+"/healthy")+`}`)
		}
	})
	m.stop(t, h, p, syscall.SIGSTOP, "the browser does not answer", "browser_snapshot")
	m.stop(t, h, p, syscall.SIGKILL, "connect|has ended", "browser_snapshot", "browser_tabs")
}
