package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

func isTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// Foreground reports that a console gives its signals to all of its
// processes.
func Foreground() bool { return true }
