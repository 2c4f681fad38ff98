//go:build unix

package launch

import (
	"os"
	"runtime"
	"syscall"
)

// executable is this program, even after its file was replaced or deleted.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// detached puts the supervisor in a session of its own: no terminal's signals.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// silence lets go of the pipes to an owner that may end.
func silence(files ...*os.File) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range len(files) {
		dup2(int(null.Fd()), fd)
	}
}
