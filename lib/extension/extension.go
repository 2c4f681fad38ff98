// Package extension has the browser extension by which a running Chrome joins a
// hub, as files to be written to a directory, and the pairing code that both
// sides know. What the two say to each other lives in lib/extension/hub.
package extension

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"btools/lib/private"
)

// ID is the extension's ID in every browser: it follows from the key in its
// manifest.
const ID = "jmmjblambjkbkcajamfnaknffedbcnbb"

// Origin is the Origin header of the extension's requests.
const Origin = "chrome-extension://" + ID

// DefaultPort is the port of 127.0.0.1 on which the extension looks for a hub
// unless it is told otherwise.
const DefaultPort = 3300

//go:embed browser
var files embed.FS

// Config is what the extension knows from the start.
type Config struct {
	// Hub is the hub's address, such as http://127.0.0.1:3300.
	Hub string `json:"hub"`
	// Code is the hub's pairing code; "": the user enters it.
	Code Code `json:"code,omitempty"`
	// Launch is a mark by which the program that launches a browser recognizes
	// it; "": none.
	Launch string `json:"launch,omitempty"`
}

// Write writes the extension to a directory, which must not exist or be empty,
// or hold an earlier version of it. Files that hold a code are readable for
// this user only.
func Write(dir string, c Config) error {
	if err := checkDir(dir); err != nil {
		return err
	}
	config, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	content, err := fs.Sub(files, "browser")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot write the extension: %w", err)
	}
	return fs.WalkDir(content, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, mode := config, os.FileMode(0o600)
		if name != configFile {
			if b, err = fs.ReadFile(content, name); err != nil {
				return err
			}
			mode = 0o644
		}
		if err := replace(filepath.Join(dir, name), b, mode); err != nil {
			return fmt.Errorf("cannot write the extension: %w", err)
		}
		return nil
	})
}

const (
	configFile   = "config.json"
	manifestFile = "manifest.json"
)

// replace writes a file as a whole: Chrome may be reading the old one.
func replace(path string, b []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".btools-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// checkDir refuses a directory with anything else in it.
func checkDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write the extension: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	var old, own struct{ Key string }
	manifest, _ := files.ReadFile("browser/" + manifestFile)
	json.Unmarshal(manifest, &own)
	if err != nil || json.Unmarshal(b, &old) != nil || old.Key != own.Key {
		return fmt.Errorf("cannot write the extension: %s is not empty, and what it holds is not the extension", dir)
	}
	return nil
}

// Code is a pairing code: 20 letters and digits of base32, without separators.
type Code string

// NewCode returns a new code of 100 random bits.
func NewCode() Code { return Code(rand.Text()[:20]) }

// ReadCode returns the code in a text, which may have separators and small
// letters; false: it has none.
func ReadCode(text string) (Code, bool) {
	var b strings.Builder
	for _, r := range strings.ToUpper(text) {
		if r >= 'A' && r <= 'Z' || r >= '2' && r <= '7' {
			b.WriteRune(r)
		}
	}
	return Code(b.String()), b.Len() >= 16
}

// String returns the code as people read and type it, in groups of five.
func (c Code) String() string {
	var groups []string
	for s := string(c); s != ""; {
		n := min(5, len(s))
		groups = append(groups, s[:n])
		s = s[n:]
	}
	return strings.Join(groups, "-")
}

// Prove returns a proof that its maker knows the code: HMAC-SHA-256 of the
// text, in hex.
func (c Code) Prove(text string) string {
	m := hmac.New(sha256.New, []byte(c))
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil))
}

// Verify checks a proof.
func (c Code) Verify(text, proof string) bool {
	return hmac.Equal([]byte(c.Prove(text)), []byte(proof))
}

// LoadCode returns the code in a file. If there is no file, it makes a code and
// writes it there, and made is true.
func LoadCode(path string) (c Code, made bool, err error) {
	if c, err = ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		return c, false, err
	}
	c = NewCode()
	if err = private.MakeDir(filepath.Dir(path)); err == nil {
		err = private.WriteFile(path, []byte(c.String()+"\n"))
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot keep the pairing code: %w", err)
	}
	return c, true, nil
}

// ReadFile returns the code in a file.
func ReadFile(path string) (Code, error) {
	b, err := private.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the pairing code: %w", err)
	}
	c, ok := ReadCode(string(b))
	if !ok {
		return "", fmt.Errorf("%s has no pairing code, which is 16 or more letters and digits", path)
	}
	return c, nil
}
