package port

import (
	"errors"

	"golang.org/x/sys/windows"
)

func inUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }
