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
