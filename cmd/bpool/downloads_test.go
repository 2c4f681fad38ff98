//go:build linux

package main_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// Each lease of a shared browser has downloads of its own, which end with it.
func TestLeaseDownloads(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	root := w.Dir + "/uploads"
	cmdtest.WriteFile(t, root+"/allowed.txt", "allowed")
	bare := w.Env
	for says, v := range map[string]string{"DOWNLOADS is": "DOWNLOADS=x", "DOWNLOAD_LIMIT is": "DOWNLOAD_LIMIT=9",
		"UPLOAD_ROOTS is": "UPLOAD_ROOTS=/none", "DOWNLOAD_ROOTS is": "DOWNLOAD_ROOTS=/none"} {
		w.Env = append(slices.Clone(bare), "PW_MCP_PROXY_BROWSER=chrome-headless-shell", "PW_MCP_PROXY__A_INSTANCES=1",
			"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__A_ISOLATION=context", "PW_MCP_PROXY_"+v)
		w.Run("bpool", "check").Exits(t, 78, says)
	}
	w.Env = bare
	p := w.Shared("_A_INSTANCES=2", "_A__1_DOWNLOADS="+w.Dir+"/kept", "_A_UPLOAD_ROOTS="+root)
	events := w.Events("bpool")
	a, kept := p.Lease("--instance", "0"), p.Lease("--instance", "1")
	cmdtest.Until(t, "the events are watched", func() bool {
		return len(events.String()) > 0 ||
			cmdtest.ReleaseAnother(w, p)
	})
	w.Node("downloads-puppeteer.mjs", a.Instance.WSURL, site, w.Dir+"/got", root)
	cmdtest.Click(t, kept.Instance.WSURL, site, "file")
	w.Downloads("bpool", kept.Lease.ID, 1)
	r := w.Run("bpool", "downloads", a.Lease.ID, "--wait", "--save", w.Dir+"/saved", "-f",
		"download.name,download.saved")
	if r.Exits(t, 0, ""); r.Out != "report.txt\t"+w.Dir+"/saved/report.txt\n" {
		t.Errorf("the downloads are %q", r.Out)
	}
	guid := strings.TrimSpace(w.Run("bpool", "downloads", a.Lease.ID, "-f", "download.guid").Out)
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/downloads"); code != 200 || !strings.Contains(body,
		guid) {
		t.Errorf("the list is %d %s", code, body)
	}
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/downloads/"+guid); code != 200 || body != "the report" {
		t.Errorf("the file is %d %s", code, body)
	}
	if code, body := cmdtest.Get(t, "GET", kept.Instance.HTTPURL+"/downloads/"+guid); code != 404 {
		t.Errorf("another lease's: %d %s", code, body)
	}
	cmdtest.Click(t, a.Instance.WSURL, site, "slow")
	cmdtest.Until(t, "a download is in progress", func() bool {
		return strings.Contains(w.Run("bpool", "downloads", a.Lease.ID).Out, "in_progress")
	})
	w.Run("bpool", "release", a.Lease.ID).Exits(t, 0, "")
	cmdtest.Until(t, "the download ends with the lease", func() bool {
		got := events.String()
		return strings.Contains(got, "download_started") && strings.Contains(got, "downloaded") &&
			strings.Count(got, "download_failed\tcanceled") == 1
	})
	w.Run("bpool", "downloads", a.Lease.ID).Exits(t, 69, "lease")
	if b, err := os.ReadFile(w.Dir + "/kept/" + kept.Lease.ID + "/report.txt"); string(b) != "the report" {
		t.Errorf("the kept file holds %q: %v", b, err)
	}
	p.Cmd.Process.Signal(syscall.SIGKILL)
	p.Cmd.Wait()
	cmdtest.Until(t, "the directory is gone", func() bool {
		w.Run("blaunch", "gc")
		return len(w.Dirs()) == 0
	})
	w.Clean()
}
