// Package private is files that belong to this user alone: it refuses what
// another user put there or could change, replaces files as a whole, and
// locks them without ever waiting forever.
package private

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"btools/lib/exit"
)

var (
	// ErrOwner says that a file or directory belongs to another user.
	ErrOwner = errors.New("belongs to another user")
	// ErrShared says that other users can write to a directory.
	ErrShared = errors.New("can be written by other users")
	// ErrKind says that something else is in a file's place.
	ErrKind = errors.New("is not a regular file")
)

// IsOwn reports whether a user at the other end of a connection may do everything here: the
// user of this program, and root. -1 is the program's user, where users have no numbers.
func IsOwn(uid int) bool { return uid == -1 || uid == 0 || uid == os.Geteuid() }

// MakeDir makes a directory, mode 0700, unless it is there, and checks it.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return CheckDir(dir)
}

// StateDir is the directory of this user for one kind of data that stay,
// $XDG_STATE_HOME/btools/KIND; home is the user's home directory.
func StateDir(getenv func(string) string, home, kind string) (string, error) {
	base := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification has relative values ignored
		if home == "" {
			return "", exit.Errorf(exit.Config, "there is no directory for %s: set HOME or XDG_STATE_HOME", kind)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "btools", kind), nil
}

// ReadFile reads a file of this user's. It follows no symbolic link.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteFile writes a file, mode 0600, that readers see whole: the old one or
// the new one. Writers must not race. What a killed one left beside it, as
// path.new, is replaced.
func WriteFile(path string, b []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := Open(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = replace(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}
