package extension

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The ID follows from the manifest's key, as Chrome computes it.
func TestID(t *testing.T) {
	b, err := files.ReadFile("browser/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Key         string
		Permissions []string
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	der, err := base64.StdEncoding.DecodeString(m.Key)
	if err != nil {
		t.Fatal(err)
	}
	var id strings.Builder
	sum := sha256.Sum256(der)
	for _, b := range sum[:16] {
		id.WriteByte('a' + b>>4)
		id.WriteByte('a' + b&15)
	}
	if id.String() != ID {
		t.Errorf("the manifest's key is of the extension %s, not of %s", id.String(), ID)
	}
	page, err := os.ReadFile("../../man/btools-extension.7")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Permissions {
		if !strings.Contains(string(page), ".It "+p+"\n") {
			t.Errorf("btools-extension(7) does not say what the permission %s is for", p)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := Config{Hub: "http://127.0.0.1:1234", Code: NewCode(), Launch: "x"}
	for range 2 { // a later version is written over an earlier one
		if err := Write(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	var got Config
	b, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil || json.Unmarshal(b, &got) != nil || got != c {
		t.Errorf("the configuration is %s, %v, want %+v", b, err, c)
	}
	if st, err := os.Stat(filepath.Join(dir, configFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("others may read the code: %v, %v", st.Mode(), err)
	}
	entries, _ := os.ReadDir(dir)
	own, _ := files.ReadDir("browser")
	if len(entries) != len(own) {
		t.Errorf("there are %d files, want %d", len(entries), len(own))
	}
	other := t.TempDir()
	for _, content := range []string{"{}", `{"key":"other"}`, "no JSON"} {
		if err := os.WriteFile(filepath.Join(other, manifestFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(other, c); err == nil || !strings.Contains(err.Error(), "is not the extension") {
			t.Errorf("it was written over another extension: %v", err)
		}
	}
}

func TestCode(t *testing.T) {
	c := NewCode()
	if len(c) != 20 || strings.Count(c.String(), "-") != 3 {
		t.Errorf("the code is %v", c)
	}
	for text, ok := range map[string]bool{c.String(): true, strings.ToLower(c.String()) + "\n": true, string(c): true,
		" " + strings.ReplaceAll(c.String(), "-", " "): true, "": false, "ABCDE": false, "0189-0189-0189-0189": false} {
		if got, valid := ReadCode(text); valid != ok || ok && got != c {
			t.Errorf("%q is read as %v, %v", text, got, valid)
		}
	}
	if !c.Verify("a", c.Prove("a")) || c.Verify("b", c.Prove("a")) || c.Verify("a", NewCode().Prove("a")) ||
		c.Verify("a", "") {
		t.Error("a proof of another text or code is accepted")
	}
}

func TestLoadCode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "code")
	c, made, err := LoadCode(path)
	if err != nil || !made {
		t.Fatal(c, made, err)
	}
	if again, made, err := LoadCode(path); err != nil || made || again != c {
		t.Errorf("the second time it is %v, made %v, %v, want %v", again, made, err, c)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v", st.Mode())
	}
	os.WriteFile(path, []byte("ABC\n"), 0o600)
	if _, _, err := LoadCode(path); err == nil {
		t.Error("a file without a code is accepted")
	}
}
