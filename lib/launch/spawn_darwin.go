package launch

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// groupOfItsOwn: the pipe alone holds the browser here.
func groupOfItsOwn(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reapFrom is the browser: orphans go to launchd.
func reapFrom(pid int) int { return pid }

// awaitGroup waits until the process group is empty.
func awaitGroup(pid int) {
	for syscall.Kill(-pid, 0) == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

func signalName(s syscall.Signal) string {
	return strconv.Itoa(int(s)) + " (" + unix.SignalName(s) + ")"
}

func itoa(n int) string { return strconv.Itoa(n) }

func smallShm() bool { return false }

func dup2(from, to int) error { return unix.Dup2(from, to) }
