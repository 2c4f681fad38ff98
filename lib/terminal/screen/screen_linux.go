package screen

import (
	"runtime"

	"golang.org/x/sys/unix"
)

const getModes, setModes = unix.TCGETS, unix.TCSETS

// stop stops this process, by TTOU: Go has TSTP do nothing once it has been asked for. It returns when the process goes
// on, at once if there is no shell that could have it do so. A signal to its own thread comes before the call returns.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTTOU)
}
