//go:build linux

package find

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/record"
)

// tree makes files: a name that ends in nothing special is an executable.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(strings.Replace(to, "ROOT", root, 1), path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func list(t *testing.T, root string, env map[string]string, o Options) []string {
	t.Helper()
	o.Root, o.Home = root, filepath.Join(root, "home")
	o.Getenv = func(k string) string { return strings.ReplaceAll(env[k], "ROOT", root) }
	found, _, err := Browsers(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.First = true
	first, _, err := Browsers(context.Background(), o)
	if err != nil || !slices.EqualFunc(first, found[:min(len(found), 1)], func(a, b record.Browser) bool {
		return a.Path == b.Path && a.Version == b.Version
	}) {
		t.Errorf("First: %v, %v, want the first of %v", first, err, found)
	}
	var out []string
	for _, b := range found {
		out = append(out, strings.TrimSpace(b.Type+" "+b.Channel+" "+strings.TrimPrefix(b.Path, root)+" "+b.Version))
	}
	return out
}

const elf = "\x7fELF"

func TestOrderLinksAndWrappers(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"usr/bin/firefox-esr":                  "-> ../lib/firefox-esr/firefox-esr",
		"usr/bin/firefox":                      "#!/bin/sh\nexec firefox-esr \"$@\"\n",
		"usr/lib/firefox-esr/firefox-esr":      elf,
		"usr/lib/firefox-esr/application.ini":  "[App]\nVersion=153.7.0\n",
		"usr/bin/chromium":                     "#!/bin/sh\nAPPNAME=chromium\n",
		"usr/lib/chromium/chromium":            elf,
		"usr/bin/google-chrome":                "-> google-chrome-stable",
		"usr/bin/google-chrome-stable":         "-> ../../opt/google/chrome/google-chrome",
		"opt/google/chrome/google-chrome":      "#!/bin/bash\nexec \"$HERE/chrome\"\n",
		"opt/google/chrome/chrome":             elf,
		"opt/google/chrome-beta/chrome":        elf,
		"opt/brave.com/brave/brave":            elf,
		"usr/bin/snap":                         elf,
		"snap/bin/chromium":                    "-> ROOT/usr/bin/snap",
		"snap/chromium/current/meta/snap.yaml": "name: chromium\nversion: 150.0.1.2\n",
		"var/lib/dpkg/status": "Package: chromium\nStatus: install ok installed\n" +
			"Version: 156.0.8078.79-1~deb12u1\n\nPackage: google-chrome-stable\nStatus: install ok installed\n" +
			"Version: 1:155.0.1.2-1\n\n",
	})
	want := []string{
		"chrome stable /opt/google/chrome/chrome 155.0.1.2", "chrome beta /opt/google/chrome-beta/chrome",
		"chromium stable /usr/lib/chromium/chromium 156.0.8078.79", "chromium stable /snap/bin/chromium 150.0.1.2",
		"brave stable /opt/brave.com/brave/brave", "firefox esr /usr/lib/firefox-esr/firefox-esr 153.7.0",
	}
	got := list(t, root, map[string]string{"PATH": "ROOT/usr/bin"}, Options{})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := list(t, root, nil, Options{Types: []string{"brave", "firefox"}}); len(got) != 2 {
		t.Errorf("filtered by type: %v", got)
	}
	got = list(t, root, map[string]string{"BTOOLS_BROWSER": "firefox"}, Options{})
	if !strings.HasPrefix(got[0], "firefox") {
		t.Errorf("preferred by type: %v", got)
	}
	got = list(t, root, map[string]string{
		"BTOOLS_BROWSER": "ROOT/opt/brave.com/brave/brave", "CHROME_PATH": "ROOT/none",
	}, Options{})
	if !strings.HasPrefix(got[0], "brave") {
		t.Errorf("preferred by path: %v", got)
	}
}

func TestCaches(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{
		"ms-playwright/chromium-1100/chrome-linux/chrome",
		"ms-playwright/chromium_headless_shell-1100/chrome-linux/headless_shell",
		"ms-playwright/firefox-1400/firefox/firefox",
		"puppeteer/chrome/linux-131.0.6778.86/chrome-linux64/chrome",
		"puppeteer/chrome/linux-133.0.1.2/chrome-linux64/chrome",
		"puppeteer/chrome-headless-shell/linux-133.0.1.2/chrome-headless-shell-linux64/chrome-headless-shell",
		"selenium/firefox/linux64/129.0/firefox",
	} {
		files["home/.cache/"+name] = elf
	}
	root := tree(t, files)
	got := strings.Join(list(t, root, nil, Options{}), "\n")
	want := `chrome testing /home/.cache/puppeteer/chrome/linux-133.0.1.2/chrome-linux64/chrome 133.0.1.2
chrome testing /home/.cache/puppeteer/chrome/linux-131.0.6778.86/chrome-linux64/chrome 131.0.6778.86
chromium testing /home/.cache/ms-playwright/chromium-1100/chrome-linux/chrome
chrome-headless-shell testing /home/.cache/puppeteer/chrome-headless-shell/linux-133.0.1.2/` +
		`chrome-headless-shell-linux64/chrome-headless-shell 133.0.1.2
chrome-headless-shell testing /home/.cache/ms-playwright/chromium_headless_shell-1100/chrome-linux/headless_shell
firefox testing /home/.cache/selenium/firefox/linux64/129.0/firefox 129.0`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if all := list(t, root, nil, Options{All: true}); len(all) != 7 {
		t.Errorf("with All: %v", all)
	}
}

func TestNamedInVain(t *testing.T) {
	t.Parallel()
	for _, env := range []string{t.TempDir() + "/chrome", "brave"} {
		_, _, err := Browsers(context.Background(), Options{Root: t.TempDir(), Getenv: func(k string) string {
			if k == "BTOOLS_BROWSER" {
				return env
			}
			return ""
		}})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", env, err)
		}
	}
}

func TestProbeIsBounded(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"usr/lib/chromium/chromium": "#!/bin/sh\nsleep 1000\n",
		"opt/google/chrome/chrome":  "#!/bin/sh\necho Google Chrome 1.2.3.4\n",
	})
	start := time.Now()
	got := list(t, root, nil, Options{Probe: true})
	if want := []string{"chrome stable /opt/google/chrome/chrome 1.2.3.4",
		"chromium stable /usr/lib/chromium/chromium"}; !slices.Equal(got, want) {
		t.Errorf("got %v want %v", got, want)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}
