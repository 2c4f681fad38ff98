package launch

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// groupOfItsOwn: the pipe alone holds the browser here.
func groupOfItsOwn(bool, bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reapFrom is the browser: orphans go to launchd.
func reapFrom(pid int) int { return pid }

// awaitGroup waits until the process group is empty.
func awaitGroup(pid int) {
	for syscall.Kill(-pid, 0) == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

// handle is nothing here: a process has only its number.
type handle struct{}

func (handle) ask(*syscall.SysProcAttr) {}
func (handle) close()                   {}

// signal reaches the main process while it is unreaped: its number is ours.
func (c *child) signal(sig syscall.Signal) {
	select {
	case <-c.exited:
	default:
		syscall.Kill(c.pid, sig)
	}
}

// killRest ends the process group, whose number is taken while it has one.
func (c *child) killRest() { syscall.Kill(-c.pid, syscall.SIGKILL) }

func signalName(s syscall.Signal) string {
	return strconv.Itoa(int(s)) + " (" + unix.SignalName(s) + ")"
}

func itoa(n int) string { return strconv.Itoa(n) }

func smallShm() bool { return false }
