// Package chrometest starts a Chrome for a test.
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

// Start starts a headless Chromium, with these arguments as well.
func Start(t testing.TB, args ...string) (wsURL string, p *os.Process) {
	t.Helper()
	return start(t, "chromium", append(args, "--headless=new")...)
}

// StartShell starts a chrome-headless-shell, which costs less than half, for
// tests that need nothing but the protocol. It has fewer processes: frames of
// other sites are no targets of their own.
func StartShell(t testing.TB) (wsURL string, p *os.Process) {
	t.Helper()
	return start(t, shell())
}

// StartShellOnPort starts what StartShell does, with these arguments as well.
func StartShellOnPort(t testing.TB, args ...string) (wsURL string, p *os.Process) {
	t.Helper()
	return start(t, shell(), args...)
}

func shell() string {
	name := "chromium-headless-shell"
	// Debian's command is a script that stays as the parent of the browser.
	if program := "/usr/lib/chromium/" + name; exists(program) {
		name = program
	}
	return name
}

// StartOnPipe starts a headless Chromium without a port. What it says comes from in,
// and it ends with out.
func StartOnPipe(t testing.TB) (in, out *os.File, p *os.Process) {
	t.Helper()
	return startOnPipe(t, "chromium", "--headless=new")
}

// StartShellOnPipe starts a chrome-headless-shell without a port.
func StartShellOnPipe(t testing.TB) (in, out *os.File, p *os.Process) {
	t.Helper()
	return StartShellWith(t)
}

// StartShellWith starts what StartShellOnPipe does, with these arguments as well.
func StartShellWith(t testing.TB, args ...string) (in, out *os.File, p *os.Process) {
	t.Helper()
	return startOnPipe(t, shell(), args...)
}

// StartOneRenderer starts a chrome-headless-shell without a port, in which all pages of a
// context share a process, and nothing is drawn: each costs half of what it does else.
func StartOneRenderer(t testing.TB) (in, out *os.File, p *os.Process) {
	t.Helper()
	return StartShellWith(t, "--renderer-process-limit=1", "--process-per-site",
		"--disable-site-isolation-trials", "--disable-features=SpareRendererForSitePerProcess",
		"--in-process-gpu", "--disable-gpu-compositing", "--window-size=50,50")
}

func startOnPipe(t testing.TB, name string, args ...string) (in, out *os.File, p *os.Process) {
	t.Helper()
	commands, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		out.Close()
	})
	c := command(t, name, append(args, "--remote-debugging-pipe")...)
	c.ExtraFiles = []*os.File{commands, answers}
	run(t, c)
	commands.Close()
	answers.Close()
	return in, out, c.Process
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// start starts a browser without a sandbox or background traffic. It returns
// its DevTools endpoint, ws://HOST:PORT/devtools/browser/ID. The browser and its
// files are removed when the test ends.
func start(t testing.TB, name string, args ...string) (wsURL string, p *os.Process) {
	t.Helper()
	c := command(t, name, append(args, "--remote-debugging-port=0")...)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)
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
				t.Logf("%s says:\n%s", name, said)
			})
			return url, c.Process
		}
	}
	t.Fatalf("%s has ended without an endpoint", name)
	return "", nil
}

// command returns the command of a browser without a sandbox or background traffic,
// whose files are removed when the test ends.
func command(t testing.TB, name string, args ...string) *exec.Cmd {
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
	c := exec.Command(name, append([]string{"--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
		"--user-data-dir=" + dir + "/profile", "about:blank"}, args...)...)
	c.Env = append(c.Environ(), "TMPDIR="+dir)
	c.SysProcAttr = ownGroup()
	return c
}

// run starts a browser, which ends with the test.
func run(t testing.TB, c *exec.Cmd) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatalf("cannot start %s (make deps installs it): %v", c.Path, err)
	}
	t.Cleanup(func() {
		// Its profile is deleted: it need not save anything.
		c.Process.Kill()
		killGroup(c.Process.Pid)
		if err := c.Wait(); err != nil && t.Failed() {
			t.Logf("%s ended with %v", c.Path, err) // a crash, or the signal above
		}
	})
}
