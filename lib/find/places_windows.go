package find

import (
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/windows/registry"
)

func (o *Options) cache(variable, name string) string {
	if v := o.Getenv(variable); filepath.IsAbs(v) {
		return v
	}
	if name == "ms-playwright" {
		return filepath.Join(o.Getenv("LOCALAPPDATA"), name)
	}
	return filepath.Join(o.Home, ".cache", name)
}

func systemPlaces(o *Options) []candidate {
	var list []candidate
	for _, v := range []string{"ProgramFiles", "ProgramFiles(x86)", "LOCALAPPDATA"} {
		dir := o.Getenv(v)
		if dir == "" {
			continue
		}
		for _, p := range windowsBrowsers {
			list = append(list, candidate{path: filepath.Join(dir, filepath.FromSlash(p)), source: "well-known"})
		}
	}
	for _, hive := range []registry.Key{registry.CURRENT_USER, registry.LOCAL_MACHINE} {
		for _, exe := range []string{"chrome.exe", "msedge.exe", "brave.exe", "firefox.exe"} {
			k, err := registry.OpenKey(hive, `SOFTWARE\Microsoft\Windows\CurrentVersion\App Paths\`+exe,
				registry.QUERY_VALUE)
			if err != nil {
				continue
			}
			if path, _, err := k.GetStringValue(""); err == nil {
				list = append(list, candidate{path: path, source: "registry"})
			}
			k.Close()
		}
	}
	return list
}

func inPath(o *Options) []candidate {
	var list []candidate
	for _, dir := range filepath.SplitList(o.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, n := range []string{"chrome.exe", "msedge.exe", "chromium.exe", "brave.exe", "chrome-headless-shell.exe",
			"firefox.exe"} {
			list = append(list, candidate{path: filepath.Join(dir, n), source: "path"})
		}
	}
	return list
}

func lastPlaces(*Options) []candidate { return nil }

func killGroup(*exec.Cmd) {}
