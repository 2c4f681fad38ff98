package devtools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadActivePort(t *testing.T) {
	path := filepath.Join(t.TempDir(), ActivePort)
	if _, err := ReadActivePort(path); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
	for text, want := range map[string]string{
		"9222\n/devtools/browser/a-b":     "ws://127.0.0.1:9222/devtools/browser/a-b",
		"9222\r\n/devtools/browser/a\r\n": "ws://127.0.0.1:9222/devtools/browser/a",
		"":                                "does not begin with a port",
		"99999\n/devtools/browser/a":      "does not begin with a port",
		"@evil\n/devtools/browser/a":      "does not begin with a port",
		"9222":                            "does not have the path",
		"9222\n@evil":                     "does not have the path",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadActivePort(path)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
