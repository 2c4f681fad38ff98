package downloads

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxName = 200 // bytes of a name: file systems allow 255, and a number may follow
	maxExt  = 20  // bytes of an extension that is kept when a name is cut
)

// cleanName returns a file name for the name that a page suggests: one that
// leads to no other directory, that is not hidden, and that all systems allow.
func cleanName(suggested string) string {
	name := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsGraphic(r) ||
			strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(suggested, "_"))
	name = strings.TrimRight(strings.TrimLeft(name, ". "), ". ")
	if ext := filepath.Ext(name); len(name) > maxName {
		if len(ext) > maxExt {
			ext = ""
		}
		name = cut(name, maxName-len(ext)) + ext
	}
	if base, _, _ := strings.Cut(strings.ToUpper(name), "."); devices[base] {
		name = "_" + name
	}
	if name == "" {
		return "download"
	}
	return name
}

// cut cuts a text to a number of bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// devices are the names that Windows has for devices.
var devices = func() map[string]bool {
	all := map[string]bool{"CON": true, "PRN": true, "AUX": true, "NUL": true}
	for i := 1; i <= 9; i++ {
		all[fmt.Sprintf("COM%d", i)], all[fmt.Sprintf("LPT%d", i)] = true, true
	}
	return all
}()

// numbered returns the n-th name to try: name.txt, name (1).txt, and so on.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	ext := filepath.Ext(name)
	if len(ext) > maxExt {
		ext = ""
	}
	return fmt.Sprintf("%s (%d)%s", strings.TrimSuffix(name, ext), n, ext)
}
