// Package ondisk has what settings ask of the file system.
package ondisk

import (
	"fmt"
	"os"
	"path/filepath"

	"btools/lib/settings"
)

// Files are those of this machine.
var Files = settings.Files{Read: os.ReadFile, Real: func(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(real); err != nil || !st.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return real, nil
}}
