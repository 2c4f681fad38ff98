package downloads

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNames(t *testing.T) {
	for suggested, want := range map[string]string{
		"a.txt": "a.txt", "": "download", "..": "download", "../../etc/passwd": "_.._etc_passwd", ".bashrc": "bashrc",
		"a\x00b": "a_b", "\xff\xfe.bin": "_.bin", `C:\x.exe`: "C__x.exe", "nul.txt": "_nul.txt", "a. . ": "a",
		"übung 1.pdf": "übung 1.pdf", "a\u202egpj.exe": "a_gpj.exe",
		strings.Repeat("x", 300) + ".tar": strings.Repeat("x", 196) + ".tar",
		strings.Repeat("ü", 300):          strings.Repeat("ü", 100),
	} {
		if got := cleanName(suggested); got != want {
			t.Errorf("%q becomes %q, want %q", suggested, got, want)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"../x", "a/b", "\x00", "con", strings.Repeat("é.", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, suggested string) {
		name := numbered(cleanName(suggested), 999)
		if !filepath.IsLocal(name) || filepath.Base(name) != name || len(name) > 255 || !utf8.ValidString(name) ||
			strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00") {
			t.Errorf("%q becomes %q", suggested, name)
		}
	})
}

// newFiles returns the files of a session, and the events so far.
func newFiles(t *testing.T, o Options) (*Files, *[]string) {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "session")
	told := &[]string{}
	o.Tell = func(event string, f File) { *told = append(*told, event+" "+f.Name+" "+f.Why) }
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d, told
}

// arrive is what a browser does.
func arrive(t *testing.T, d *Files, guid, name, text string) error {
	t.Helper()
	if !d.Begin(guid, "http://u:p@h/"+name, name) {
		t.Fatal("no more downloads")
	}
	if err := os.WriteFile(filepath.Join(d.Incoming(), guid), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := d.Move(guid)
	if err != nil {
		return err
	}
	return d.Finish(t.Context().Done(), guid, path)
}

func TestFiles(t *testing.T) {
	d, told := newFiles(t, Options{Limit: 10})
	for _, guid := range []string{"a1", "a2"} {
		if err := arrive(t, d, guid, "../x.txt", "1234"); err != nil {
			t.Fatal(err)
		}
	}
	all := d.List()
	if all[0].Name != "_x.txt" || all[1].Name != "_x (1).txt" || all[1].URL != "http://h/../x.txt" ||
		all[0].Bytes != 4 ||
		all[0].SHA256 != "03ac674216f3e15c761ee1a5e255f067953623c8b388b4459e13f978d7c846f4" {
		t.Errorf("the files are %+v", all)
	}
	r, _, err := d.Open("a2")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, _ := io.ReadAll(r); string(b) != "1234" {
		t.Errorf("the file holds %q", b)
	}
	if err := arrive(t, d, "a3", "y", "123"); !errors.Is(err, ErrLimit) {
		t.Errorf("a file over the limit: %v", err)
	}
	d.Fail("a3", Limit)
	d.Begin("a4", "", "z")
	if !d.Progress("a4", 1, 2) || d.Progress("a4", 1, 3) || d.Progress("a4", 3, 0) {
		t.Error("progress does not keep the limit")
	}
	if left, _ := os.ReadDir(d.Incoming()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, _, err := d.Open("../a1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opened: %v", err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Wait(short); err == nil {
		t.Error("it does not wait for a download in progress")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(d.Incoming())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	want := "download_started _x.txt |downloaded _x.txt |download_started _x.txt |downloaded _x (1).txt |" +
		"download_started y |download_failed y limit|download_started z |download_failed z canceled"
	if got := strings.Join(*told, "|"); got != want {
		t.Errorf("the events are\n%s\nwant\n%s", got, want)
	}
}

// Files that are kept outlive the session; nothing in a client's directory is
// overwritten.
func TestKeepAndDeliver(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "name")
	d, _ := newFiles(t, Options{Keep: keep})
	if err := arrive(t, d, "b1", "x.txt", "new"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	old := filepath.Join(dir, "x.txt")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := d.List()[0].Path
	if to, err := Deliver(path, dir, "x.txt", false); err != nil || filepath.Base(to) != "x (1).txt" {
		t.Errorf("delivered to %s: %v", to, err)
	}
	if to, err := Deliver(path, dir, "x.txt", true); err == nil {
		t.Errorf("delivered to %s", to)
	}
	d.Close()
	for name, want := range map[string]string{
		old: "old", filepath.Join(dir, "x (1).txt"): "new", keep + "/x.txt": "new",
	} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s holds %q: %v", name, b, err)
		}
	}
}

// A file that the browser has written elsewhere stays there.
func TestAdopt(t *testing.T) {
	incoming, theirs := t.TempDir(), t.TempDir()
	d, told := newFiles(t, Options{Incoming: incoming, Limit: 10})
	file := filepath.Join(theirs, "theirs")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(theirs, "link")); err != nil {
		t.Fatal(err)
	}
	d.Begin("c1", "", "a.txt")
	path, err := d.Adopt("c1", file)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(nil, "c1", path); err != nil {
		t.Fatal(err)
	}
	d.Begin("c2", "", "b.txt")
	for _, from := range []string{"theirs", theirs, filepath.Join(theirs, "link"), filepath.Join(theirs, "none")} {
		if _, err := d.Adopt("c2", from); err == nil {
			t.Errorf("adopted %s", from)
		}
	}
	if b, err := os.ReadFile(path); string(b) != "text" || filepath.Dir(path) != d.Dir() {
		t.Errorf("%s holds %q: %v", path, b, err)
	}
	if all, _ := os.ReadDir(d.Dir()); len(all) != 1 {
		t.Errorf("the directory holds %v", all)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Adopt("c2", file); !errors.Is(err, ErrEnded) {
		t.Errorf("adopted after the end: %v", err)
	}
	if b, err := os.ReadFile(file); string(b) != "text" {
		t.Errorf("theirs holds %q: %v", b, err)
	}
	want := "download_started a.txt |downloaded a.txt |download_started b.txt |download_failed b.txt canceled"
	if got := strings.Join(*told, "|"); got != want {
		t.Errorf("the events are\n%s\nwant\n%s", got, want)
	}
}
