//go:build unix

package terminal

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// Height is how many rows the terminal has, 0 if f is not one.
func Height(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(ws.Row)
}

// Foreground reports whether this process's group is the one that the
// terminal sends its signals to, so that a child in the group has had them.
func Foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	pgrp, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// Width is how many columns the terminal has, 0 if f is not one.
func Width(f *os.File) int {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 {
		return 0
	}
	return int(ws.Col)
}

// BackgroundReadsFail has a background job's reads of the terminal fail (EIO):
// they stop it otherwise, and what is stopped doesn't act on a TERM.
func BackgroundReadsFail() { signal.Ignore(unix.SIGTTIN) }
