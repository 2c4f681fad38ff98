package find

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// number is the first version in a text, such as 156.0.1, "" without one.
func number(text string) string {
	isDigit := func(i int) bool { return i < len(text) && text[i] >= '0' && text[i] <= '9' }
	for i := 0; i < len(text); i++ {
		start, dots := i, 0
		for isDigit(i) {
			i++
			if i < len(text) && text[i] == '.' && isDigit(i+1) {
				i++
				dots++
			}
		}
		if dots > 0 {
			return text[start:i]
		}
	}
	return ""
}

// versions reads versions from what lies around a browser; the package
// database is read once.
type versions struct {
	root string
	dpkg []byte
	read bool
}

// of returns the version of an executable, "" where it can't be told.
func (v *versions) of(path string) string {
	dir := filepath.Dir(path)
	if b, err := os.ReadFile(filepath.Join(dir, "application.ini")); err == nil {
		if _, rest, ok := strings.Cut(string(b), "\nVersion="); ok {
			return number(rest)
		}
	}
	if i := strings.Index(filepath.ToSlash(path), ".app/Contents/"); i > 0 {
		if b, err := os.ReadFile(path[:i] + ".app/Contents/Info.plist"); err == nil {
			if _, rest, ok := strings.Cut(string(b), "<key>CFBundleShortVersionString</key>"); ok {
				return number(rest[:min(len(rest), 200)])
			}
		}
	}
	if strings.HasSuffix(strings.ToLower(path), ".exe") { // Chrome's version is a directory beside it
		entries, _ := os.ReadDir(dir)
		best := ""
		for _, e := range entries {
			if n := number(e.Name()); n == e.Name() && n != "" && compareVersions(n, best) > 0 {
				best = n
			}
		}
		return best
	}
	slash := strings.TrimPrefix(filepath.ToSlash(path), v.root)
	if name, ok := strings.CutPrefix(slash, "/snap/bin/"); ok {
		name, _, _ = strings.Cut(name, ".")
		b, _ := os.ReadFile(v.root + "/snap/" + name + "/current/meta/snap.yaml")
		if _, rest, ok := strings.Cut("\n"+string(b), "\nversion:"); ok {
			return number(rest[:min(len(rest), 60)])
		}
		return ""
	}
	if strings.HasPrefix(slash, "/usr/") || strings.HasPrefix(slash, "/opt/") {
		return v.packaged(slash)
	}
	return ""
}

// packages names, for each executable that a package may ship, the package.
var packages = []struct{ path, pkg string }{
	{"/opt/google/chrome/", "google-chrome-stable"}, {"/opt/google/chrome-beta/", "google-chrome-beta"},
	{"/opt/google/chrome-unstable/", "google-chrome-unstable"}, {"/opt/microsoft/msedge/", "microsoft-edge-stable"},
	{"/opt/microsoft/msedge-beta/", "microsoft-edge-beta"}, {"/opt/microsoft/msedge-dev/", "microsoft-edge-dev"},
	{"/opt/brave.com/brave/", "brave-browser"}, {"/opt/brave.com/brave-beta/", "brave-browser-beta"},
	{"/opt/brave.com/brave-nightly/", "brave-browser-nightly"},
	{"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell"}, {"/usr/lib/chromium/", "chromium"},
	{"/usr/lib64/chromium/", "chromium"}, {"/usr/lib/chromium-browser/", "chromium-browser"},
	{"/usr/bin/chromium-headless-shell", "chromium-headless-shell"}, {"/usr/bin/chromium", "chromium"},
	{"/usr/lib/firefox-esr/", "firefox-esr"}, {"/usr/lib/firefox/", "firefox"},
}

// packaged looks a system's executable up in the package database of dpkg,
// pacman or apk.
func (v *versions) packaged(path string) string {
	pkg := ""
	for _, p := range packages {
		if strings.HasPrefix(path, p.path) {
			pkg = p.pkg
			break
		}
	}
	if pkg == "" {
		return ""
	}
	if !v.read {
		v.read = true
		v.dpkg, _ = os.ReadFile(v.root + "/var/lib/dpkg/status")
	}
	rest, ok := bytes.CutPrefix(v.dpkg, []byte("Package: "+pkg+"\n"))
	if !ok {
		_, rest, ok = bytes.Cut(v.dpkg, []byte("\n\nPackage: "+pkg+"\n"))
	}
	if ok {
		entry, _, _ := bytes.Cut(rest, []byte("\n\n"))
		if _, ver, ok := bytes.Cut(entry, []byte("\nVersion: ")); ok && bytes.Contains(entry, []byte(" installed\n")) {
			line, _, _ := bytes.Cut(ver, []byte("\n"))
			if _, after, epoch := bytes.Cut(line, []byte(":")); epoch {
				line = after
			}
			return number(string(line))
		}
	}
	if dirs, _ := filepath.Glob(v.root + "/var/lib/pacman/local/" + pkg + "-[0-9]*"); len(dirs) == 1 {
		return number(filepath.Base(dirs[0])[len(pkg):])
	}
	if b, err := os.ReadFile(v.root + "/lib/apk/db/installed"); err == nil {
		if _, rest, ok := strings.Cut(string(b), "\nP:"+pkg+"\nV:"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			return number(line)
		}
	}
	return ""
}

// probeBound is how long one browser may take to say its version.
const probeBound = 3 * time.Second

// probe runs each browser with --version, two at a time for each core that a
// small machine has.
func probe(ctx context.Context, all []found) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range all {
		if all[i].remote || len(all[i].Protocols) == 0 {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, probeBound)
			defer cancel()
			cmd := exec.CommandContext(ctx, all[i].Path, "--version")
			killGroup(cmd)
			cmd.WaitDelay = 100 * time.Millisecond // a grandchild may hold the pipe
			out, _ := cmd.Output()
			if v := number(string(out)); v != "" {
				all[i].Version = v
			}
		})
	}
	wg.Wait()
}
