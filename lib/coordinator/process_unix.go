//go:build unix

package coordinator

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// widen has a pipe take a megabyte, where that can be asked for: each time
// that it is full costs two changes of the process.
func widen(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { setPipeSize(int(fd), 1<<20) })
	}
}

// tryWrite writes to a pipe what it takes without waiting.
func tryWrite(f *os.File) func([]byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int, err error) {
		if e := raw.Write(func(fd uintptr) bool {
			n, err = unix.Write(int(fd), b)
			return true
		}); e != nil {
			return 0, e
		}
		if err == unix.EAGAIN || err == unix.EINTR {
			return 0, nil
		}
		return max(n, 0), err
	}
}
