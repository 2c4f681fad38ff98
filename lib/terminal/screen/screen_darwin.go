package screen

import (
	"time"

	"golang.org/x/sys/unix"
)

const getModes, setModes = unix.TIOCGETA, unix.TIOCSETA

// stopTime is how long it may take until a signal stops this process.
const stopTime = 50 * time.Millisecond

// stop stops this process, by TTOU: Go has TSTP do nothing once it has been asked for. It returns when the process goes
// on, after a while if there is no shell that could have it do so.
func stop() {
	unix.Kill(unix.Getpid(), unix.SIGTTOU)
	time.Sleep(stopTime)
}
