//go:build unix

package private

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestCheckDir(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]error{0o700: nil, 0o755: nil, 0o770: ErrShared,
		0o777 | os.ModeSticky: ErrShared} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckDir(dir); !errors.Is(err, want) {
			t.Errorf("a directory of mode %o: %v, want %v", mode, err, want)
		}
	}
	if os.Geteuid() == 0 {
		os.Chmod(dir, 0o700)
		os.Chown(dir, 65534, 65534)
		if err := CheckDir(dir); !errors.Is(err, ErrOwner) {
			t.Errorf("another user's directory: %v", err)
		}
	}
}

// Links, pipes and other users' files are refused, at once.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(victim, link), syscall.Mkfifo(fifo, 0o600),
		os.Symlink(victim, filepath.Join(dir, "file.new"))); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, fifo} {
		if _, err := Open(p, os.O_RDWR|os.O_CREATE); !errors.Is(err, ErrKind) {
			t.Errorf("%s: %v, want %v", p, err, ErrKind)
		}
		if _, err := LockFile(t.Context(), p); !errors.Is(err, ErrKind) {
			t.Errorf("lock of %s: %v, want %v", p, err, ErrKind)
		}
	}
	if err := WriteFile(filepath.Join(dir, "file"), []byte("ours")); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("written through a link: %q", b)
	}
	if st, err := os.Lstat(filepath.Join(dir, "file")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if os.Geteuid() == 0 {
		os.Chown(victim, 65534, 65534)
		if _, err := ReadFile(victim); !errors.Is(err, ErrOwner) {
			t.Errorf("another user's file: %v", err)
		}
	}
}

// Who waits for a lock hears that it is to end.
func TestLockEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	told := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(told)
	if _, err := LockFile(ctx, path); !errors.Is(err, told) {
		t.Errorf("%v, want %v", err, told)
	}
	ended := make(chan error)
	go func() {
		f, err := LockFile(context.Background(), path)
		if err == nil {
			f.Close()
		}
		ended <- err
	}()
	held.Close()
	if err := <-ended; err != nil {
		t.Errorf("a lock that was given back: %v", err)
	}
}
