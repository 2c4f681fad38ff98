package port

import (
	"errors"

	"golang.org/x/sys/windows"
)

func inUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }

// isTooMany reports whether this process has too many open sockets.
func isTooMany(err error) bool { return errors.Is(err, windows.WSAEMFILE) }
