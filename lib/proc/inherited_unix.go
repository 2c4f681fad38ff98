//go:build unix

package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Inherited are the descriptors, beyond the three streams, that this process
// was started with and that it would hand on to whatever it starts.
type Inherited []int

// HideInherited keeps them from what is started from now on: a shell's lock
// or the end of its pipe must not live as long as a browser does.
func HideInherited() (i Inherited) {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		// This program's own are closed on exec already.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.CloseOnExec(fd)
			i = append(i, fd)
		}
	}
	return i
}

// Show hands them on again.
func (i Inherited) Show() {
	for _, fd := range i {
		unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
}
