package blobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newStore(t *testing.T) *Store { return &Store{Dir: filepath.Join(t.TempDir(), "cache", "blobs")} }

func put(t *testing.T, s *Store, data, ext string) Blob {
	t.Helper()
	b, err := s.Put(context.Background(), []byte(data), ext)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read returns a blob's data, and whether it is there.
func read(t *testing.T, s *Store, b Blob) (string, bool) {
	t.Helper()
	f, got, err := s.Open(b.URI())
	if errors.Is(err, ErrNotFound) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil || int64(len(data)) != got.Size {
		t.Errorf("%d bytes of %d: %v", len(data), got.Size, err)
	}
	return string(data), true
}

func TestPut(t *testing.T) {
	s := newStore(t)
	b := put(t, s, "hello", "txt")
	const want = "blob://2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824.txt"
	if b.URI() != want || b.Size != 5 || b.MIMEType() != "text/plain" {
		t.Errorf("%+v with the address %s", b, b.URI())
	}
	if left := time.Until(b.Expires); left < TTL-time.Minute || left > TTL {
		t.Errorf("it is kept for %v", left)
	}
	if data, ok := read(t, s, b); data != "hello" || !ok {
		t.Errorf("it reads %q, %v", data, ok)
	}
	for path, mode := range map[string]fs.FileMode{s.Dir: 0o700, filepath.Join(s.Dir, b.Name): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want mode %o", path, st.Mode(), err, mode)
		}
	}
	if entries, _ := os.ReadDir(s.Dir); len(entries) != 2 { // it and the lock
		t.Errorf("in the directory: %v", entries)
	}
}

// A blob is kept for a day after it was put last.
func TestExpiry(t *testing.T) {
	s := newStore(t)
	synctest.Test(t, func(t *testing.T) {
		old, renewed := put(t, s, "old", "txt"), put(t, s, "renewed", "txt")
		time.Sleep(TTL / 2)
		put(t, s, "renewed", "txt")
		time.Sleep(TTL/2 - time.Second)
		if _, ok := read(t, s, old); !ok {
			t.Error("a blob is gone before its time")
		}
		time.Sleep(time.Second)
		if _, ok := read(t, s, old); ok {
			t.Error("a blob is there after its time")
		}
		if _, ok := read(t, s, renewed); !ok {
			t.Error("a blob that was put again is gone")
		}
	})
}

// Old blobs are deleted at the start and every hour, and what killed writers left;
// other files stay.
func TestKeepClean(t *testing.T) {
	s := newStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.KeepClean(ctx, func(err error) { t.Error(err) })
		}()
		synctest.Wait()
		if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cleaning has made the directory: %v", err)
		}
		b := put(t, s, "x", "txt")
		now := time.Now()
		for _, name := range []string{newPrefix + "1", "notes.md"} {
			path := filepath.Join(s.Dir, name)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, now, now)); err != nil {
				t.Fatal(err)
			}
		}
		have := func() (names string) {
			synctest.Wait()
			entries, _ := os.ReadDir(s.Dir)
			for _, e := range entries {
				names += e.Name() + " "
			}
			return names
		}
		if got, want := have(), b.Name+" lock new-1 notes.md "; got != want {
			t.Errorf("at first: %s, want %s", got, want)
		}
		time.Sleep(2*cleanEvery + time.Second)
		if got, want := have(), b.Name+" lock notes.md "; got != want {
			t.Errorf("after two hours: %s, want %s", got, want)
		}
		time.Sleep(TTL)
		if got, want := have(), "lock notes.md "; got != want {
			t.Errorf("after a day: %s, want %s", got, want)
		}
		cancel()
		<-done
	})
}

// The oldest blobs make room for new ones.
func TestMax(t *testing.T) {
	s := newStore(t)
	s.Max = 100
	synctest.Test(t, func(t *testing.T) {
		var all []Blob
		for i := range 5 {
			all = append(all, put(t, s, strings.Repeat(fmt.Sprint(i), 30), "bin"))
			time.Sleep(time.Second)
		}
		for i, b := range all {
			if _, ok := read(t, s, b); ok != (i >= 2) {
				t.Errorf("blob %d is there: %v", i, ok)
			}
		}
		if _, err := s.Put(t.Context(), make([]byte, 101), "bin"); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a blob of more than all: %v", err)
		}
		if _, ok := read(t, s, all[4]); !ok {
			t.Error("a blob was deleted for one that is not kept")
		}
	})
}

// Several processes write, read and clean: each blob that is there is whole.
func TestManyProcesses(t *testing.T) {
	dir := newStore(t).Dir
	var wg sync.WaitGroup
	for i := range 6 { // the lock is that of an open file, so each Store is as another process
		wg.Go(func() {
			s := &Store{Dir: dir, Max: 40_000}
			for j := range 40 {
				data := bytes.Repeat([]byte{byte(j)}, 1000+(i+j)%3)
				b, err := s.Put(context.Background(), data, "bin")
				if err != nil {
					t.Error(err)
					return
				}
				if j%7 == i {
					if err := s.Clean(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if got, ok := read(t, s, b); ok && got != string(data) {
					t.Errorf("a blob of %d bytes has %d", len(data), len(got))
				}
			}
		})
	}
	wg.Wait()
	var sum int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil && validName().MatchString(e.Name()) {
			sum += st.Size()
		}
		if strings.HasPrefix(e.Name(), newPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
	if sum == 0 || sum > 40_000 {
		t.Errorf("%d bytes are kept", sum)
	}
}

// A reader goes on after the blob was deleted.
func TestDeletedWhileRead(t *testing.T) {
	s := newStore(t)
	f, b, err := s.Open(put(t, s, "data", "bin").URI())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(filepath.Join(s.Dir, b.Name)); err != nil {
		t.Skip(err) // Windows
	}
	if data, err := io.ReadAll(f); string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	}
}

// A directory that cannot be used is an error, and nothing is left.
func TestUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Store{Dir: filepath.Join(file, "blobs")}
	if _, err := s.Put(t.Context(), []byte("x"), "bin"); err == nil ||
		!strings.HasPrefix(err.Error(), "cannot keep a blob of 1 bytes: ") {
		t.Errorf("below a file: %v", err)
	}
	s = newStore(t)
	if err := os.MkdirAll(s.Dir, 0o777); err != nil || os.Chmod(s.Dir, 0o777) != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), []byte("x"), "bin"); err == nil {
		t.Error("a directory that others can write is used")
	}
}

func TestTypes(t *testing.T) {
	for _, one := range []struct{ mime, ext string }{{"application/pdf", "pdf"}, {"image/PNG; x=y", "png"},
		{"application/x-unknown", "bin"}, {"", "bin"}, {"../../etc", "bin"}} {
		if got := ExtOf(one.mime); got != one.ext {
			t.Errorf("%s: %s, want %s", one.mime, got, one.ext)
		}
	}
	for _, typ := range types {
		if TypeOf(ExtOf(typ.mime)) != typ.mime {
			t.Errorf("%s is not its own type", typ.mime)
		}
	}
}

// No address names a file outside the store.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	for _, name := range []string{"secret", "lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	s := &Store{Dir: filepath.Join(dir, "blobs")}
	if _, err := s.Put(context.Background(), []byte("x"), "txt"); err != nil {
		f.Fatal(err)
	}
	for _, uri := range []string{"blob://../secret", "blob://lock", "blob://new-1", "blob:///etc/passwd",
		"blob://" + strings.Repeat("0", 64) + ".txt"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		file, b, err := s.Open(uri)
		if err == nil {
			file.Close()
			if !validName().MatchString(b.Name) || uri != b.URI() {
				t.Errorf("%q opens %+v", uri, b)
			}
		}
	})
}
