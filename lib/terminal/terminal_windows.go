package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// Height is how many rows the terminal has, 0 if f is not one.
func Height(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0
	}
	return int(info.Window.Bottom-info.Window.Top) + 1
}

// Foreground reports that a console gives its signals to all of its
// processes.
func Foreground() bool { return true }

// Width is how many columns the terminal has, 0 if f is not one.
func Width(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}

// BackgroundReadsFail does nothing: there are no background jobs.
func BackgroundReadsFail() {}
