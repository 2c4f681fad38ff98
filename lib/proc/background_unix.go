//go:build unix

package proc

import (
	"os"
	"runtime"
	"syscall"
)

// Executable is this program, even after its file was replaced or deleted.
func Executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// Detached puts a process in a session of its own: no terminal's signals, and no end with its parent's group.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
