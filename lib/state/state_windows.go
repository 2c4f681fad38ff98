package state

import (
	"os"

	"golang.org/x/sys/windows"
)

var shortTemp = os.TempDir()

// Lock takes an exclusive lock that ends with the process, waiting for it or
// not.
func Lock(f *os.File, wait bool) error {
	flags := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
}

// checkOwner leaves it to the directory's access list, which is the user's.
func checkOwner(path string) error {
	_, err := os.Lstat(path)
	return err
}
