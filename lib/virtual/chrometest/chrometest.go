// Package chrometest starts a Chromium for a test.
package chrometest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"btools/lib/tail"
)

// Start starts a headless Chromium without a sandbox or background traffic. It
// returns its DevTools endpoint, ws://HOST:PORT/devtools/browser/ID. The
// browser and its files are removed when the test ends. It gets these arguments,
// too.
func Start(t testing.TB, args ...string) (wsURL string, p *os.Process) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bt-chrome-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what a killed one leaves running writes on for a moment
		for end := time.Now().Add(time.Minute); os.RemoveAll(dir) != nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("cannot remove %s", dir)
				return
			}
		}
	})
	c := exec.Command("chromium", append(args, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
		"--user-data-dir="+dir+"/profile", "about:blank")...)
	c.Env = append(c.Environ(), "TMPDIR="+dir)
	c.SysProcAttr = ownGroup()
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatalf("cannot start Chromium (make deps installs it): %v", err)
	}
	t.Cleanup(func() {
		c.Process.Signal(os.Interrupt)
		// What a test has done to it may keep it from ending by itself.
		kill := time.AfterFunc(5*time.Second, func() { c.Process.Kill() })
		defer kill.Stop()
		if err := c.Wait(); err != nil && t.Failed() {
			t.Logf("Chromium ended with %v", err) // a crash, or what it was stopped by
		}
		killGroup(c.Process.Pid)
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "DevTools listening on "); ok {
			said := &tail.Tail{Max: 16 << 10}
			copied := make(chan struct{})
			go func() {
				defer close(copied)
				io.Copy(said, stderr)
			}()
			t.Cleanup(func() { // it may have crashed
				if !t.Failed() {
					return
				}
				select {
				case <-copied:
				case <-time.After(time.Second): // it runs
				}
				t.Logf("Chromium says:\n%s", said)
			})
			return url, c.Process
		}
	}
	t.Fatal("Chromium has ended without an endpoint")
	return "", nil
}
