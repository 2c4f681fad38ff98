//go:build unix

package cli

import (
	"errors"
	"syscall"

	"btools/lib/exit"
)

// spareFiles is how many more files a program needs to say what it misses: Go's
// runtime, which dumps its goroutines if it gets no poller, opens two of them.
const spareFiles = 4

// checkFiles tells of a limit of open files that no program can run with.
func checkFiles() error {
	for range spareFiles {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			return &exit.Error{Code: exit.Failed, Err: err, Hint: "allow more open files (ulimit -n)"}
		}
		if err == nil {
			defer syscall.Close(fd)
		}
	}
	return nil
}
