package launch

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupOfItsOwn has the kernel end the browser with us as well, for those
// that know no pipe or hang: at once if nothing is to be kept, else with the
// chance to save.
func groupOfItsOwn(temporary bool) *syscall.SysProcAttr {
	sig := syscall.SIGTERM
	if temporary {
		sig = syscall.SIGKILL
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: sig}
}

// reapFrom is "any child": as a subreaper we get every orphan, so that no
// child left means nothing left.
func reapFrom(int) int { return -1 }

func awaitGroup(int) {}

func signalName(s syscall.Signal) string {
	return strconv.Itoa(int(s)) + " (" + unix.SignalName(s) + ")"
}

func itoa(n int) string { return strconv.Itoa(n) }

// smallShm reports whether /dev/shm is too small for Chromium's tabs: 64 MB
// is what containers give, and what they crash with.
func smallShm() bool {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) != nil {
		return true
	}
	return int64(st.Blocks)*int64(st.Bsize) < 256<<20
}

func dup2(from, to int) error { return unix.Dup3(from, to, 0) }
