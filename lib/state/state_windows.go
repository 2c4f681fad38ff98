package state

import (
	"os"
	"path/filepath"
)

// openDir opens what an instance's directory is locked by: a file in it, as
// directories can't be locked.
func openDir(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
}
