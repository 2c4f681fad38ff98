//go:build !linux

package private

import "os"

// replace puts the file next into the place of path, all at once.
func replace(next, path string) error { return os.Rename(next, path) }
