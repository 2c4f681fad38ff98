//go:build unix

package state

import (
	"os"
	"syscall"
)

// shortTemp is where sockets go whose path would be too long in $TMPDIR.
const shortTemp = "/tmp"

// Lock takes an exclusive lock that ends with the process, waiting for it or
// not.
func Lock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			return err
		}
	}
}

// checkOwner refuses what another user could have put there. Root's own are
// refused to others too: they could not be written.
func checkOwner(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return &os.PathError{Op: "use", Path: path, Err: ErrOwner}
	}
	return nil
}
