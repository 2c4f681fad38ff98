package launch

import (
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"btools/lib/proc"
)

// groupOfItsOwn has the kernel end the browser with us as well: at once if
// nothing is to be kept, else with the chance to save. To a Chromium that is
// to save, the pipe alone tells it: the kernel sends its signal once for each
// of our threads that dies, and the second SIGTERM kills a Chromium.
func groupOfItsOwn(temporary, pipe bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	switch {
	case temporary:
		attr.Pdeathsig = syscall.SIGKILL
	case !pipe:
		attr.Pdeathsig = syscall.SIGTERM
	}
	return attr
}

// reapFrom is "any child": as a subreaper we get every orphan, so that no
// child left means nothing left.
func reapFrom(int) int { return -1 }

func awaitGroup(int) {}

func signalName(s syscall.Signal) string {
	return strconv.Itoa(int(s)) + " (" + unix.SignalName(s) + ")"
}

func itoa(n int) string { return strconv.Itoa(n) }

// handle is a descriptor of the main process, which no other process can be
// mistaken for; -1 where the kernel has none to give (before 5.3).
type handle struct {
	mu sync.Mutex
	fd int
}

func (h *handle) ask(attr *syscall.SysProcAttr) {
	h.fd = -1
	attr.PidFD = &h.fd
}

func (h *handle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}

// signal reaches the main process, and none that has its number after it.
func (c *child) signal(sig syscall.Signal) {
	c.handle.mu.Lock()
	defer c.handle.mu.Unlock()
	if c.handle.fd >= 0 {
		unix.PidfdSendSignal(c.handle.fd, sig, nil, 0)
		return
	}
	select {
	case <-c.exited:
	default:
		syscall.Kill(c.pid, sig)
	}
}

// killRest ends all that the main process has left: as a subreaper this
// process has it below itself, whatever group or session it is in.
func (c *child) killRest() { proc.KillDescendants() }

// smallShm reports whether /dev/shm is too small for Chromium's tabs: 64 MB
// is what containers give, and what they crash with.
func smallShm() bool {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil {
		return true
	}
	return int64(st.Blocks)*int64(st.Bsize) < 256<<20
}
