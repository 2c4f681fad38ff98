//go:build unix

package port

import (
	"errors"
	"syscall"
)

func inUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
