package evidence

import (
	"os"
	"strings"
	"testing"
)

// A text that a page has chosen is a part of a name, and a file system takes it.
func TestSlug(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Shop: cart/1": "Shop-cart-1", "../../etc/passwd": "etc-passwd", ".hidden": "hidden", "a\x00\n\u202eb": "a-b",
		" - ": "", "C:\\x": "C-x", "über 日本": "über-日本",
	} {
		if got := Slug(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	long := Slug(strings.Repeat("𝒜 ", 100))
	if err := os.WriteFile(t.TempDir()+"/1000-"+long+".mjpeg", nil, 0o600); err != nil {
		t.Errorf("a name of %d bytes: %v", len(long), err)
	}
}

// There is evidence in a directory that can be made, of which nothing is left, and in no
// other one.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/e"
	if err := Check(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err == nil || !strings.Contains(err.Error(), "cannot record evidence: ") {
		t.Errorf("in a file: %v", err)
	}
}
