package find

import (
	"os"
	"path/filepath"
	"strings"

	"btools/lib/record"
)

func (o *Options) cache(variable, name string) string {
	if v := o.Getenv(variable); filepath.IsAbs(v) {
		return v
	}
	return filepath.Join(o.Home, ".cache", name)
}

func systemPlaces(o *Options) []candidate {
	var list []candidate
	for _, n := range commands {
		list = append(list, candidate{path: o.Root + "/usr/bin/" + n, source: "well-known"})
	}
	for _, p := range []string{
		"/opt/google/chrome/chrome", "/opt/google/chrome-beta/chrome", "/opt/google/chrome-unstable/chrome",
		"/opt/microsoft/msedge/msedge", "/opt/microsoft/msedge-beta/msedge", "/opt/microsoft/msedge-dev/msedge",
		"/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser",
		"/usr/lib64/chromium-browser/chromium-browser",
		"/opt/brave.com/brave/brave", "/opt/brave.com/brave-beta/brave", "/opt/brave.com/brave-nightly/brave",
		"/usr/lib/firefox/firefox", "/usr/lib/firefox-esr/firefox-esr", "/opt/firefox/firefox",
	} {
		list = append(list, candidate{path: o.Root + p, source: "well-known"})
	}
	for _, n := range []string{"chromium", "brave", "firefox"} {
		list = append(list, candidate{path: o.Root + "/snap/bin/" + n, source: "snap"})
	}
	for _, dir := range []string{o.Root + "/var/lib/flatpak/exports/bin",
		filepath.Join(o.Home, ".local/share/flatpak/exports/bin")} {
		for _, app := range []struct{ id, typ string }{
			{"com.google.Chrome", record.Chrome}, {"com.microsoft.Edge", record.Edge},
			{"org.chromium.Chromium", record.Chromium},
			{"com.brave.Browser", record.Brave}, {"org.mozilla.firefox", record.Firefox},
		} {
			list = append(list, candidate{path: filepath.Join(dir, app.id), source: "flatpak",
				kind: kind{app.typ, kindNames[app.typ], "stable"}})
		}
	}
	return list
}

// lastPlaces is the Windows side of WSL: listed, but after all that can be
// launched from here.
func lastPlaces(o *Options) []candidate {
	b, err := os.ReadFile(o.Root + "/proc/sys/kernel/osrelease")
	if err != nil || !strings.Contains(strings.ToLower(string(b)), "microsoft") {
		return nil
	}
	var list []candidate
	for _, pattern := range []string{"Program Files", "Program Files (x86)", "Users/*/AppData/Local"} {
		for _, p := range windowsBrowsers {
			paths, _ := filepath.Glob(o.Root + "/mnt/c/" + pattern + "/" + p)
			for _, path := range paths {
				list = append(list, candidate{path: path, source: "wsl", remote: true})
			}
		}
	}
	return list
}
