//go:build unix

package find

import (
	"os/exec"
	"path/filepath"
	"syscall"
)

// commands are the names that browsers are installed under, best first.
var commands = []string{
	"google-chrome", "google-chrome-stable", "google-chrome-beta", "google-chrome-unstable", "chrome",
	"microsoft-edge", "microsoft-edge-stable", "microsoft-edge-beta", "microsoft-edge-dev", "msedge",
	"chromium", "chromium-browser", "brave-browser", "brave-browser-stable", "brave-browser-beta",
	"brave-browser-nightly", "brave",
	"chrome-headless-shell", "chromium-headless-shell", "headless_shell", "firefox", "firefox-esr",
}

// inPath looks into every absolute directory of PATH, always.
func inPath(o *Options) []candidate {
	var list []candidate
	names := commands
	for _, dir := range filepath.SplitList(o.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, n := range names {
			list = append(list, candidate{path: filepath.Join(dir, n), source: "path"})
		}
		if o.All {
			list = append(list, candidate{path: filepath.Join(dir, "epiphany"), source: "path",
				kind: kind{"epiphany", "GNOME Web", "stable"}})
		}
	}
	return list
}

// killGroup has the whole group of a browser that is late end.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
