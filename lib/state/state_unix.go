//go:build unix

package state

import (
	"os"

	"btools/lib/private"
)

// openDir opens what an instance's directory is locked by: the directory
// itself. Cleaners of temporary directories spare one that is locked
// (systemd-tmpfiles does), and it can't be lost while the directory is there.
func openDir(dir string) (*os.File, error) {
	if err := private.CheckDir(dir); err != nil {
		return nil, err
	}
	return os.Open(dir)
}
