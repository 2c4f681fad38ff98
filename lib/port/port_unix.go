//go:build unix

package port

import (
	"errors"
	"syscall"
)

func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }

// isTooMany reports whether this process, or the machine, has too many open files.
func isTooMany(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
