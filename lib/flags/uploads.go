package flags

import (
	"fmt"
	"os"
	"path/filepath"

	"btools/lib/cli"
	"btools/lib/exit"
)

// ReadRoots reads a flag such as --upload-root: directories, whose links are
// resolved now.
func ReadRoots(c *cli.Context, flag string) (roots []string, err error) {
	for _, dir := range c.StringSlice(flag) {
		if dir, err = filepath.Abs(dir); err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		var st os.FileInfo
		if err == nil {
			st, err = os.Stat(dir)
		}
		if err == nil && !st.IsDir() {
			err = fmt.Errorf("%s is not a directory", dir)
		}
		if err != nil {
			return nil, exit.Errorf(exit.Config, "--%s: %v", flag, err)
		}
		roots = append(roots, dir)
	}
	return roots, nil
}
