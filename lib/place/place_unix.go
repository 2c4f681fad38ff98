//go:build unix

package place

import (
	"os"
	"path"
	"syscall"
)

func join(parts ...string) string  { return path.Join(parts...) }
func directory(name string) string { return path.Dir(name) }
func isAbs(name string) bool       { return path.IsAbs(name) }

func abs(name string) (string, error) {
	if isAbs(name) {
		return path.Clean(name), nil
	}
	dir, err := os.Getwd()
	return join(dir, name), err
}

// ShortTemp is where sockets go whose path would be too long in $TMPDIR.
const ShortTemp = "/tmp"

// Owned reports whether a directory is there and this user's.
func Owned(dir string) bool {
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}
