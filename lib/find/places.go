package find

import (
	"path/filepath"
	"runtime"
	"strings"

	"btools/lib/record"
)

// places lists where browsers may be on this system. What does not exist is
// left to the caller to pass over.
func places(o *Options) []candidate {
	list := systemPlaces(o)
	list = append(list, inPath(o)...)
	list = append(list, caches(o)...)
	return append(list, lastPlaces(o)...)
}

// caches lists all builds in the caches of Playwright, Puppeteer and
// Selenium. The directories are theirs: a build's version or revision is in
// its directory's name.
func caches(o *Options) []candidate {
	var list []candidate
	add := func(source, pattern string, k kind, version bool) {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			c := candidate{path: p, source: source, kind: k}
			if version {
				// From the end: the cache's own path may hold numbers too.
				parts := strings.Split(filepath.ToSlash(p), "/")
				for i := len(parts) - 2; i >= 0 && c.version == ""; i-- {
					c.version = number(parts[i])
				}
			}
			list = append(list, c)
		}
	}
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	testing := kind{record.Chrome, "Google Chrome for Testing", "testing"}
	shell := kind{record.HeadlessShell, kindNames[record.HeadlessShell], "testing"}
	chromium := kind{record.Chromium, kindNames[record.Chromium], "testing"}
	firefox := kind{record.Firefox, kindNames[record.Firefox], "testing"}
	const macChrome = "Google Chrome for Testing.app/Contents/MacOS/Google Chrome for Testing"

	patched := kind{"firefox-playwright", "Firefox (Playwright's build)", "testing"}
	pw := o.cache("PLAYWRIGHT_BROWSERS_PATH", "ms-playwright")
	for _, p := range []struct {
		glob string
		k    kind
	}{
		{"chromium-*/chrome-*/chrome" + exe, chromium},
		{"chromium-*/chrome-*/Chromium.app/Contents/MacOS/Chromium", chromium},
		{"chromium-*/chrome-*/" + macChrome, testing},
		{"chromium_headless_shell-*/*/headless_shell" + exe, shell},
		{"chromium_headless_shell-*/*/chrome-headless-shell" + exe, shell},
		{"firefox-*/firefox/firefox" + exe, patched}, {"firefox-*/firefox/Nightly.app/Contents/MacOS/firefox", patched},
		{"webkit-*/pw_run.sh", kind{"webkit", "WebKit (Playwright's build)", "testing"}},
	} {
		add("playwright", filepath.Join(pw, p.glob), p.k, false)
	}
	pp := o.cache("PUPPETEER_CACHE_DIR", "puppeteer")
	for _, p := range []struct {
		glob string
		k    kind
	}{
		{"chrome/*/chrome-*/chrome" + exe, testing}, {"chrome/*/chrome-*/" + macChrome, testing},
		{"chromium/*/chrome-*/chrome" + exe, chromium},
		{"chrome-headless-shell/*/chrome-headless-shell-*/chrome-headless-shell" + exe, shell},
		{"firefox/*/firefox/firefox" + exe, firefox}, {"firefox/*/*.app/Contents/MacOS/firefox", firefox},
	} {
		add("puppeteer", filepath.Join(pp, p.glob), p.k, true)
	}
	se := o.cache("SE_CACHE_PATH", "selenium")
	edge := kind{record.Edge, kindNames[record.Edge], "testing"}
	for _, p := range []struct {
		glob string
		k    kind
	}{
		{"chrome/*/*/chrome" + exe, testing}, {"chrome/*/*/" + macChrome, testing},
		{"chrome-headless-shell/*/*/chrome-headless-shell" + exe, shell},
		{"edge/*/*/msedge" + exe, edge}, {"firefox/*/*/firefox" + exe, firefox},
		{"firefox/*/*/firefox/firefox" + exe, firefox},
	} {
		add("selenium", filepath.Join(se, p.glob), p.k, true)
	}
	return list
}
