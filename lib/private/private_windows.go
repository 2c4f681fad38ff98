package private

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// CheckDir leaves it to the directory's access list, which is the user's.
func CheckDir(dir string) error {
	_, err := os.Lstat(dir)
	return err
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

// waitLock asks again and again: a wait in the kernel could not be ended.
func waitLock(ctx context.Context, f *os.File) error {
	const first, most = 200 * time.Microsecond, 10 * time.Millisecond
	for pause := first; ; pause = min(2*pause, most) {
		if err := tryLock(f); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
