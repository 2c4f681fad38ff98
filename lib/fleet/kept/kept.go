// Package kept is the files in which sessions outlive the program that has them. What is in them stands in package
// virtual.
package kept

import (
	"os"
	"path/filepath"
)

// Path returns the file of the session with a name in a directory.
func Path(dir, name string) string { return filepath.Join(dir, name+".json") }

// Prefix returns how the names of the files begin that become a file: no session has such a name.
func Prefix(path string) string { return filepath.Base(path) + "~" }

// Delete deletes what is kept of a session that no program has.
func Delete(dir, name string) {
	path := Path(dir, name)
	DeleteUnfinished(path)
	os.Remove(path)
}

// DeleteUnfinished deletes what a program that was killed has begun to write for a file.
func DeleteUnfinished(path string) {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), Prefix(path)+"*"))
	for _, path := range left {
		os.Remove(path)
	}
}
