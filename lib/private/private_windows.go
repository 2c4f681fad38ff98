package private

import (
	"os"

	"golang.org/x/sys/windows"
)

// CheckDir leaves it to the directory's access list, which is the user's.
func CheckDir(dir string) error {
	_, err := os.Lstat(dir)
	return err
}

// Owned reports whether a directory is there.
func Owned(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

// Open opens a file.
func Open(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o600) }

func tryLock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{})
	if err == windows.ERROR_LOCK_VIOLATION {
		return ErrLocked
	}
	return err
}
