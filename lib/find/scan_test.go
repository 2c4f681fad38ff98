package find

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "156": "", "156.": "", ".5": "", "156.0": "156.0", "Chromium 156.0.8078.79 built": "156.0.8078.79",
		"12 3.4": "3.4", "1..2.3": "2.3", "1:2.3-1": "2.3", "v1.2.x": "1.2", "1.2.3.": "1.2.3", "a1b2.3.4c5.6": "2.3.4",
	} {
		if got := number(text); got != want {
			t.Errorf("number(%q) is %q, want %q", text, got, want)
		}
	}
}

// The regular expressions say what is looked for; they are too slow to be used.
func FuzzScan(f *testing.F) {
	version := regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)
	path := regexp.MustCompile(`^\s*(?:exec\s+)?["']?(/[^\s"'$]+)["']?(?:\s|$)`)
	name := regexp.MustCompile(`^\s*exec\s+([a-z][a-z0-9-]*)(?:\s|$)`)
	for _, seed := range []string{
		"#!/bin/sh\nexec /usr/lib/chromium/chromium \"$@\"\n", "/usr/lib/x/y --a\n  exec\tfirefox-esr \"$@\"",
		"exec \"/opt/google/chrome/chrome\" \"$@\"", "  '/a b'\n/$X/y\nexec /usr/$X z\nexecute /a\nexec",
		"a 1.2.3..4.5",
		"exec  Chrome x\nexec 7z\n/\n\"/\"\n/a\"b\n/a'\t\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := number(text), version.FindString(text); got != want {
			t.Errorf("number(%q) is %q, want %q", text, got, want)
		}
		if strings.ContainsAny(text, "\v\u0085\u00a0") || !isASCII(text) {
			return // space to one of them only
		}
		var paths, names []string
		for line := range strings.SplitSeq(text, "\n") {
			if m := path.FindStringSubmatch(line); m != nil {
				paths = append(paths, m[1])
			}
			if m := name.FindStringSubmatch(line); m != nil {
				names = append(names, m[1])
			}
		}
		if p, n := scriptRuns([]byte(text)); !slices.Equal(p, paths) || !slices.Equal(n, names) {
			t.Errorf("%q runs %q and %q, want %q and %q", text, p, n, paths, names)
		}
	})
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > 126 })
}
