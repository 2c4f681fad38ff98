package find

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/record"
)

// kind is what a browser is, its place left out.
type kind struct{ typ, name, channel string }

func (k kind) browser(path, source string) record.Browser {
	protocols := []string{record.CDP}
	switch k.typ {
	case record.Firefox:
		protocols = []string{record.BiDi}
	case "webkit", "safari", "epiphany", "firefox-playwright":
		protocols = []string{}
	}
	return record.Browser{Type: k.typ, Name: k.name, Channel: k.channel, Path: path, Protocols: protocols,
		Source: source}
}

var kindNames = map[string]string{
	record.Chrome: "Google Chrome", record.Edge: "Microsoft Edge", record.Chromium: "Chromium", record.Brave: "Brave",
	record.HeadlessShell: "Chrome Headless Shell", record.Firefox: "Mozilla Firefox",
}

// identify tells a browser by its executable's name, and, where that is just
// "chrome" or "brave", by its directory. A name that nobody knows counts as a
// Chromium: most browsers are.
func identify(path string) kind {
	base := strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(".exe")))
	base = strings.TrimSuffix(base, ".exe")
	whole := strings.ToLower(filepath.ToSlash(path))
	typ := record.Chromium
	switch {
	case strings.Contains(base, "headless-shell"), strings.Contains(base, "headless_shell"):
		typ = record.HeadlessShell
	case strings.Contains(base, "firefox"):
		typ = record.Firefox
	case strings.Contains(base, "chromium"):
	case strings.Contains(base, "msedge"), strings.Contains(base, "microsoft-edge"),
		strings.Contains(base, "microsoft edge"), base == "com.microsoft.edge":
		typ = record.Edge
	case strings.Contains(base, "brave"):
		typ = record.Brave
	case base == "chrome" && strings.Contains(whole, "chromium"):
	case base == "chrome", strings.HasPrefix(base, "google-chrome"), strings.Contains(base, "google chrome"),
		base == "com.google.chrome":
		typ = record.Chrome
	}
	channel := "stable"
	for _, c := range []struct{ word, channel string }{
		{"for testing", "testing"}, {"canary", "canary"}, {"sxs", "canary"}, {"unstable", "dev"}, {"nightly", "canary"},
		{"beta", "beta"}, {"-dev", "dev"}, {" dev", "dev"}, {"developer", "dev"}, {"-esr", "esr"},
	} {
		dir := filepath.Base(filepath.Dir(whole))
		if strings.Contains(base, c.word) || strings.Contains(dir, c.word) || strings.Contains(whole, c.word+".app/") {
			channel = c.channel
			break
		}
	}
	k := kind{typ, kindNames[typ], channel}
	if channel == "testing" {
		k.name += " for Testing"
	}
	return k
}

// wrapperNames are how the names begin that distributions give to scripts
// around a browser.
var wrapperNames = []string{
	"google-chrome", "chromium", "microsoft-edge", "brave", "firefox", "chrome-headless", "headless",
}

// scriptRuns lists the absolute paths and the names of commands that lines of a
// script begin with: one of them may be the browser. Regular expressions would
// take longer than all else that is looked at.
func scriptRuns(script []byte) (paths, names []string) {
	const space = " \t\r\f\v"
	for line := range bytes.SplitSeq(script, []byte("\n")) {
		line = bytes.TrimLeft(line, space)
		if rest, ok := bytes.CutPrefix(line, []byte("exec")); ok && bytes.IndexAny(rest, space) == 0 {
			line = bytes.TrimLeft(rest, space)
			if word := bytes.Fields(line); len(word) > 0 && isCommandName(word[0]) {
				names = append(names, string(word[0]))
			}
		}
		if len(line) > 0 && strings.IndexByte(`"'`, line[0]) >= 0 {
			line = line[1:]
		}
		if len(line) < 2 || line[0] != '/' {
			continue
		}
		path, after := line, []byte(nil)
		if end := bytes.IndexAny(line, space+`"'$`); end >= 0 {
			path, after = line[:end], line[end:]
		}
		if len(after) > 0 && strings.IndexByte(`"'`, after[0]) >= 0 {
			after = after[1:]
		}
		if len(path) > 1 && (len(after) == 0 || bytes.IndexAny(after, space) == 0) {
			paths = append(paths, string(path))
		}
	}
	return paths, names
}

func isCommandName(word []byte) bool {
	for i, c := range word {
		if (c < 'a' || c > 'z') && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(word) > 0
}

// resolve follows links and the wrapper scripts of distributions to the real
// executable. Snap's and Flatpak's names are to be run as they are.
func resolve(path, root string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(real) == "snap" {
		return path
	}
	named := slices.ContainsFunc(wrapperNames, func(n string) bool { return strings.HasPrefix(filepath.Base(real), n) })
	if strings.Contains(filepath.ToSlash(path), "/flatpak/exports/") || !named {
		return real
	}
	script, ok := readScript(real)
	if !ok {
		return real
	}
	name := filepath.Base(real)
	var tries []string
	_, script, _ = bytes.Cut(script, []byte("\n")) // its interpreter is not the browser
	paths, names := scriptRuns(script)
	for _, p := range paths {
		tries = append(tries, root+p)
	}
	for _, n := range names {
		tries = append(tries, root+"/usr/bin/"+n)
	}
	dir := filepath.Dir(real)
	for _, n := range []string{"chrome", "msedge", "brave"} {
		tries = append(tries, filepath.Join(dir, n))
	}
	for _, lib := range []string{"/usr/lib/", "/usr/lib64/"} {
		tries = append(tries, root+lib+name+"/"+name, root+lib+"chromium-browser/chromium-browser",
			root+lib+"chromium/chromium")
	}
	for _, t := range tries {
		if t == real || executable(t) != nil || identify(t).typ != identify(real).typ {
			continue
		}
		if _, script := readScript(t); script {
			continue
		}
		if t, err := filepath.EvalSymlinks(t); err == nil {
			return t
		}
	}
	return real
}

// readScript returns a file's text if it is a script.
func readScript(path string) ([]byte, bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, []byte("#!")) {
		return nil, false
	}
	rest, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return rest, err == nil
}
