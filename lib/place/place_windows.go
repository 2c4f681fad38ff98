package place

import (
	"os"
	"path/filepath"
)

func join(parts ...string) string     { return filepath.Join(parts...) }
func directory(name string) string    { return filepath.Dir(name) }
func isAbs(name string) bool          { return filepath.IsAbs(name) }
func abs(name string) (string, error) { return filepath.Abs(name) }

// ShortTemp is where sockets go whose path would be too long in $TMPDIR.
var ShortTemp = os.TempDir()

// Owned reports whether a directory is there.
func Owned(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}
