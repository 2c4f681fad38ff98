package relay

import (
	"os"
	"strconv"
	"syscall"
)

// prGetNoNewPrivs is PR_GET_NO_NEW_PRIVS of prctl(2).
const prGetNoNewPrivs = 39

// isConfined reports whether the process is in a sandbox that it cannot leave.
func isConfined() bool {
	confined, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0)
	return confined == 1
}

// ofProcess returns what a process inherits: its group and umask, the files and the network that it sees, and whether
// it is in a sandbox that it cannot leave.
func ofProcess() string {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	files, _ := os.Readlink("/proc/self/ns/mnt")
	network, _ := os.Readlink("/proc/self/ns/net")
	return strconv.Itoa(os.Getegid()) + " " + strconv.Itoa(mask) + files + network + strconv.FormatBool(isConfined())
}
