package shell

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ofProcess returns what a process inherits: its umask, the files and the network that it sees, and whether it is in a
// sandbox that it cannot leave.
func ofProcess() string {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	files, _ := os.Readlink("/proc/self/ns/mnt")
	network, _ := os.Readlink("/proc/self/ns/net")
	confined, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return fmt.Sprint(mask, files, network, confined)
}
